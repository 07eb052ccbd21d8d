"""Reads files of a job's shared memory without the MPI library, to look at the job from outside.

The control file is mapped read-only, so a reader cannot change the job. Words are read one by one
while the job writes them: each is whole, but two of them may be from different moments.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..host import private
from ..host.errors import FtrmaError
from .constants import number, size_of, viewed
from .shared import Control

MAGIC, LOG_MAGIC = number("CONTROL_MAGIC"), number("LOG_MAGIC")
CONTROL_BYTES, LOG_HEAD_BYTES = size_of("ftrma_ctl"), size_of("ftrma_log")


@contextlib.contextmanager
def control_image(path: Path) -> Iterator[Control]:
    """Give the block the words of a control file; they cannot be written, nor kept after the block.

    Raises:
        FtrmaError: the file belongs to another user or another version of ftrma. OSError: it cannot
            be read.
    """
    with private.opened(path) as file:
        if file.seek(0, 2) < CONTROL_BYTES:
            raise FtrmaError(foreign(path))
        memory = mmap.mmap(file.fileno(), CONTROL_BYTES, prot=mmap.PROT_READ)
    with memory, viewed("ftrma_ctl", memory) as found:
        if found.magic != MAGIC:
            raise FtrmaError(foreign(path))
        yield found


def foreign(path: Path) -> str:
    return (f"{path} is not the control file of a job of this version of ftrma; use the version "
            "that has started the job")


def log_used_bytes(path: Path) -> int | None:
    """Return how many bytes a slot's logs use now; None if they are not on this node."""
    with contextlib.suppress(FtrmaError, OSError), private.opened(path) as file:
        head = file.read(LOG_HEAD_BYTES)
        if len(head) == LOG_HEAD_BYTES:
            with viewed("ftrma_log", head) as log:
                chunks: Any = log.used * log.chunk_bytes
                return int(chunks) if log.magic == LOG_MAGIC else None
    return None
