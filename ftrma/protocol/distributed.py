"""A launch of a job over several nodes begins.

A launch that follows another one takes stock of the vaults that are left on all nodes and restores
from them (`retrieval`); then all goes as on one node. What a checksum rank reads of vaults on other
nodes it has from their agents (`fabric.remote`).
"""

from __future__ import annotations

import contextlib
import time

from ..errors import FtrmaError
from ..fabric.base import RoundChanged
from ..native import job
from ..native.constants import CHECKSUM, SLOT
from ..native.shared import Version
from ..vault.vault import Vault
from .retrieval import Retrieval
from .salvage import Role
from .spread import SpreadWorld


def start_over_nodes(world: SpreadWorld) -> Vault | None:
    """Restore, and give the slots their communicator.

    A failure before all have restored ends this launch; one that comes later is left to repair.

    Returns:
        The vault of this process's role; None for a spare.

    MPI: collective over all processes.
    """
    began = time.monotonic()
    vault, version = restore(world)
    took_s = time.monotonic() - began
    if vault:
        for word in ("staged", "summed", "folded"):
            world.put(word, version)
        world.put("ready", 1)
    job.watch()
    with contextlib.suppress(RoundChanged):
        world.meet(0, 4, planned=False)  # behind the meetings of `retrieval`
        if job.comm_build(0) not in (job.Wait.OK, job.Wait.ALARM):
            raise FtrmaError("the MPI library cannot build the communicator of the slots")
        if world.role()[0] == SLOT:
            job.world_open()
        world.meet(0, 5, planned=False)
    world.enter(version, took_s)
    return vault


def restore(world: SpreadWorld) -> tuple[Vault | None, Version]:
    """Bring this process's role to the newest version that can be had (see `retrieval`).

    Raises:
        CatastrophicFailure, CorruptVault: the committed version cannot be had.
    """
    holder: dict[Role, int] = {}
    for s, proc in enumerate(world.holders()):
        holder["slot", s] = proc
    for c, proc in enumerate(world.servers()):
        holder["checksum", c] = proc
    retrieval = Retrieval(world, world.everyone, holder)
    retrieval.run()
    role, _ = world.role()
    return retrieval.vault if role in (SLOT, CHECKSUM) else None, retrieval.version
