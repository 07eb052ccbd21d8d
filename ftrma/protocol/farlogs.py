"""Put logs of slots on other nodes, brought here for a replay that reads them.

A replay looks through the others' put logs (``csrc/log/replay.c``), by the names that they have on
their nodes; no slot of this node has that name. Of each file only what holds records of puts comes.

Invariant: the logs do not change meanwhile; a repair is under way.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..fabric.remote import File, Files
from ..native import logs
from ..native.shared import Slot


def path_of(directory: Path, slot: Slot) -> Path:
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
