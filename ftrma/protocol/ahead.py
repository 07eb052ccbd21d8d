"""Memory of checkpoints, taken while the program computes.

The first checkpoint of so many bytes would find no memory in the vaults, and taking it holds the
program up several times as long as staging. How much it will be is known when the program has
declared what it protects: from then on each slot has its vault's memory taken (``csrc/vault/
ahead.c``), and says how much that is; its checksum ranks and the spares do the same then.

Not where the program might need the memory otherwise: all vaults of the node must fit into what is
free by then, twice the slot's bytes each. Else the first checkpoint takes its memory itself, and
tells if there is too little.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..fabric.world import World
from ..host.cgroup import available_bytes
from ..native.vaults import BLOCK
from ..vault.vault import Vault, blocks

PARTS = 2  # of a vault: the copy and the stage, at most as large
RECORD_BLOCKS = 2  # besides the regions: the first block, and a record of usual size


def expect(world: World, vault: Vault, sizes_bytes: Iterable[int]) -> None:
    """A slot is going to checkpoint regions of these sizes.

    MPI: local; waits for nobody.
    Fault: nothing happens in it.
    """
    count = RECORD_BLOCKS + sum(max(1, blocks(size_bytes)) for size_bytes in sizes_bytes)
    node = [p for p in world.procs_of_job() if world.files is None or world.files.here(p)]
    if PARTS * count * BLOCK * len(node) <= room_bytes(world.directory):
        vault.ahead(count, staging=count)
        if count > world.me.blocks:
            world.put("blocks", count)


def room_bytes(directory: Path) -> int:
    """Memory that files in a directory of shared memory can still have."""
    room, available = os.statvfs(directory), available_bytes()
    return min(available, room.f_bavail * room.f_frsize) if room.f_blocks else available
