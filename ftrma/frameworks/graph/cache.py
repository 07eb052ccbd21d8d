"""Slots' parts of graphs in files of a directory, for replaced slots and later jobs.

A part follows from the graph and the slot alone, so a file serves every process that needs that
part. Graphs are told from each other by `parts.Graph.key`; a graph without a key has no files. If a
file is missing, damaged or another user's, nothing of it is used, and the part is made again.

Directories may be shared with others, so a name in them proves nothing. Only this user can access a
file (mode 0600). It is opened without following a link and without waiting for a FIFO. At its end
it has a tag of its name, its key and its content, by the user's own key (`ftrma.host.userkey`). The
tag is checked before anything is parsed.

Law: a file is there as a whole or not at all, and data is read only if a job of this user has
written it under that name.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import hmac
import io
import os
import secrets
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import ftrma

from ...host import outfile, private, userkey
from ...host.errors import FtrmaError
from ...host.key import TAG_BYTES
from .parts import Graph, Part, Partition
from .references import AnyArray

PREFIX = "ftrma-graph-"
PURPOSE = b"file of a graph"
BLOCK_BYTES = 1 << 20


def place_of(directory: str, graph: Graph, partition: Partition, slot: int) -> tuple[str, str]:
    """Return path and key of a part's file."""
    key = f"{ftrma.__version__} {graph.key} {graph.n} {partition.key} {slot}"
    name = f"{PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    return os.path.join(os.path.abspath(directory), name), key


def read(directory: str, graph: Graph, partition: Partition, slot: int) -> Part | None:
    """Read a slot's part from its file.

    Returns:
        The part; None if there is no such file, or if it cannot be used, which is reported on
        standard error.
    """
    if not graph.key:
        return None
    arrays, why = fetch(*place_of(directory, graph, partition, slot))
    if why:
        outfile.tell(f"slot {slot} makes its part of {graph.what} again: {why}", who="graph")
    try:
        return None if arrays is None else Part(**{"weight": None} | arrays)  # type: ignore[arg-type]
    except TypeError:  # another version of ftrma has written it
        return None


def write(directory: str, graph: Graph, partition: Partition, slot: int, part: Part) -> None:
    """Leave a slot's part in a file; if it cannot be written, report that, and do not fail."""
    path, key = place_of(directory, graph, partition, slot)
    if not graph.key:
        return
    arrays = {field.name: getattr(part, field.name) for field in fields(part)}
    why = leave(path, key, {name: array for name, array in arrays.items() if array is not None})
    if why:
        outfile.tell(f"slot {slot} cannot leave its part of {graph.what} in {directory}: {why}; it "
                     "is made again when it is needed", who="graph")


# ---- files of arrays --------------------------------------------------------------


def fetch(path: str, key: str) -> tuple[dict[str, AnyArray] | None, str]:
    """Return the arrays of a file of this key; or None and why not: "" if there is no file."""
    try:
        tag = _begin(path, key)
        with private.opened(Path(path)) as file:
            left = os.fstat(file.fileno()).st_size - TAG_BYTES
            while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
                tag.update(block)
                left -= len(block)
            if left or not hmac.compare_digest(tag.digest(), file.read()):
                return None, (f"{path} was damaged or changed, or the key {userkey.path()} is "
                              "another one than when it was written")
            file.seek(0)
            with np.load(file, allow_pickle=False) as found:
                return {name: found[name] for name in found.files}, ""
    except FileNotFoundError:
        return None, ""
    except FtrmaError as error:
        return None, str(error)
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"


def leave(path: str, key: str, arrays: Mapping[str, Any]) -> str:
    """Write a file of arrays; it replaces a file of that name.

    Returns:
        "" if the file is there; else why it cannot be written, and then nothing is left of it.
    """
    try:
        tag, directory = _begin(path, key), os.path.dirname(path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        _sweep(path)
        draft = Path(f"{path}.{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            with private.make(draft) as file:
                np.savez(_Tagged(file, tag), **arrays)
                file.write(tag.digest())
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except FtrmaError as error:
        return str(error)
    except OSError as error:
        return outfile.why(error)
    return ""


def _begin(path: str, key: str) -> hmac.HMAC:
    """Begin the tag of a file of this name, before its content; FtrmaError: there is no key."""
    return userkey.read().begin(PURPOSE, os.path.basename(path).encode(), key.encode())


class _Tagged(io.RawIOBase):
    """A file for writing; all bytes that are written are also added to a tag."""

    def __init__(self, file: BinaryIO, tag: hmac.HMAC) -> None:
        self._file, self._tag = file, tag

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._tag.update(data)
        return self._file.write(data)


def _sweep(path: str) -> None:
    """Remove drafts of processes of this node that have died while they wrote."""
    drafts = glob.glob(f"{glob.escape(path)}.{os.uname().nodename}-*")
    for draft in drafts:
        *_, pid, _ = draft.split("-")
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                os.unlink(draft)
