"""Directories and files of a job: made by this user, closed to others, not reached by a link.

A job's directory lies where every user of the node can make files (/dev/shm), under a name that
they can see. So a process that makes it fails if it exists, and a process that finds it checks who
owns it before it reads or makes anything in it. Files inside a directory of mode 0700 need no
further care; they are nevertheless checked when they are opened (here, and in C by ``ftrma_open``).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .errors import FtrmaError
from .nodedirectory import why_foreign

OTHERS = 0o077


def make_directory(path: Path) -> None:
    """Make a directory of mode 0700, or check that this user has already made it so.

    Raises:
        FtrmaError: it is somebody else's, or others may use it.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        check_directory(path)


def check_directory(path: Path) -> None:
    """Refuse a path that is no directory which only this user can access.

    Raises:
        FtrmaError: it is refused; the text says why.
    """
    why = why_foreign(path)
    if why:
        raise FtrmaError(
            f"{path} {why}: another user of this node may have made it to harm this job. Nothing "
            "in it was used; have it removed and start the job again"
        )


def write(path: Path, data: bytes) -> None:
    """Make a file of mode 0600, which must not be there yet."""
    with make(path) as file:
        file.write(data)


def replace(path: Path, data: bytes, *, lasting: bool = False) -> None:
    """Make a file of mode 0600, which replaces a file of that name completely or not at all.

    Args:
        lasting: write the file's content to the disk before the file gets its name.
    """
    draft = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    try:
        with make(draft) as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def make(path: Path) -> BinaryIO:
    """Open a new file of mode 0600 for writing; it must not exist yet."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "wb")


def read(path: Path) -> bytes:
    """Read a file that only this user can access.

    Raises:
        FtrmaError: it belongs to somebody else, or others may use it. OSError: it cannot be read.
    """
    with opened(path) as file:
        return file.read()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open for reading a file that only this user can access; never wait for a FIFO in its place.

    Raises:
        FtrmaError: it belongs to somebody else, or others may use it. OSError: it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        found, why = os.fstat(fd), ""
        if not stat.S_ISREG(found.st_mode):
            why = "is no regular file"
        elif found.st_uid != os.geteuid():
            why = f"belongs to user {found.st_uid} and not to user {os.geteuid()}"
        elif found.st_mode & OTHERS:
            why = f"is open to others (mode {stat.S_IMODE(found.st_mode):o})"
        if why:
            raise FtrmaError(
                f"{path} is not a file of this user's alone: it {why}; nothing in it was used"
            )
        yield file
