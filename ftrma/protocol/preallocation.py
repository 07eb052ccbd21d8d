"""Allocates the memory of checkpoints while the program computes.

Otherwise the first checkpoint would have to allocate the memory of the vaults, which holds the
program up several times as long as staging. The size is known as soon as the program has declared
what it protects. From then on each slot has its vault's memory allocated in the background
(``csrc/vault/ahead.c``) and publishes the size; its checksum ranks and the spares then do the same.

Nothing is allocated if the program might need the memory: all vaults of the node, each of twice the
slot's bytes, must fit into what is free at this moment. If they do not fit, the first checkpoint
allocates its memory itself, and reports if there is too little.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..fabric.view import JobView
from ..host.cgroup import available_bytes
from ..native.vaults import BLOCK
from ..vault.vault import Vault, blocks

PARTS = 2  # parts of a vault: the copy, and the stage, which is at most as large
RECORD_BLOCKS = 2  # blocks beside the regions: block 0, and a record of usual size


def preallocate(view: JobView, vault: Vault, sizes_bytes: Iterable[int]) -> None:
    """Allocate memory for a slot's checkpoints of regions of these sizes.

    MPI: local; it waits for nobody.
    Fault: a death has no effect on it.
    """
    count = RECORD_BLOCKS + sum(max(1, blocks(size_bytes)) for size_bytes in sizes_bytes)
    node = [p for p in view.all_procs() if view.remote_files is None or view.remote_files.here(p)]
    if PARTS * count * BLOCK * len(node) <= room_bytes(view.directory):
        vault.reserve_ahead(count, staging=count)
        if count > view.words.me.blocks:
            view.words.me.blocks = count


def room_bytes(directory: Path) -> int:
    """Return how many bytes files in a directory of shared memory can still take."""
    room, available = os.statvfs(directory), available_bytes()
    return min(available, room.f_bavail * room.f_frsize) if room.f_blocks else available
