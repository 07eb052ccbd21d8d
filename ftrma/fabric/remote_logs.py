"""Brings put logs of slots on other nodes to this node, for a replay that reads them.

A replay looks through the other slots' put logs (``csrc/log/replay.c``). A log that is brought here
keeps its file name, which no log of this node has. Only those parts of the file are brought that
contain records of puts.

Invariant: the logs do not change meanwhile, since a repair is under way.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..native import logs
from ..native.shared import Slot
from .remote import File, Files


def path_of(directory: Path, slot: Slot) -> Path:
    """Return the path of a slot's log."""
    return directory / f"log-{slot}"


def fetch(files: Files, node: int, slot: Slot, directory: Path) -> None:
    """Bring the put log of a slot from its node.

    Raises:
        RoundChanged: another failure came meanwhile.
    """

    def read(at: int, size_bytes: int) -> bytearray:
        room = bytearray(size_bytes)
        files.read(node, File.LOG, slot, at, room)
        return room

    head_bytes = logs.log_head_bytes()
    list_bytes, file_bytes = logs.log_sizes(read(0, head_bytes))
    head = read(0, head_bytes + list_bytes)
    fd = os.open(path_of(directory, slot), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.truncate(fd, file_bytes)
        os.pwrite(fd, head, 0)
        for at, size_bytes in logs.put_log_spans(head):
            os.pwrite(fd, read(at, size_bytes), at)
    finally:
        os.close(fd)
