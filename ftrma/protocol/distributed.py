"""Checkpoints of a job over several nodes: those of one node (`coordinated`), begun otherwise.

A launch that follows another one takes stock of the vaults that are left on all nodes and restores
from them (`retrieval`); then all goes as on one node. What a checksum rank reads of vaults on other
nodes it has from their agents (`fabric.remote`).
"""

from __future__ import annotations

import time

from ..errors import FtrmaError
from ..fabric.base import RoundChanged
from ..native import job
from ..native.constants import CHECKSUM, SLOT
from ..native.shared import Version
from ..vault.salvage import Role
from ..vault.vault import Vault
from .coordinated import Coordinated
from .retrieval import Retrieval
from .spread import SpreadWorld


class Distributed(Coordinated):
    """A process's part in them.

    Args:
        world: of this process.

    MPI: collective over all processes.
    """

    def __init__(self, world: SpreadWorld) -> None:
        super().__init__(world)
        self.spread = world

    def start(self) -> Vault | None:
        """Restore, and give the slots their communicator.

        A failure before all have restored ends this launch; what is left to do after one that comes
        later is done in repair.
        """
        world, began = self.spread, time.monotonic()
        vault, version = self.restore()
        took_s = time.monotonic() - began
        if vault:
            for word in ("staged", "summed", "folded"):
                world.put(word, version)
            world.put("ready", 1)
        job.watch()
        try:
            world.meet(0, 4, planned=False)  # behind those of `retrieval`
            if job.comm_build(0) not in (job.Wait.OK, job.Wait.ALARM):
                raise FtrmaError("the MPI library cannot build the communicator of the slots")
            if world.role()[0] == SLOT:
                job.world_open()
            world.meet(0, 5, planned=False)
        except RoundChanged:
            pass
        world.enter(version, took_s)
        return vault

    def restore(self) -> tuple[Vault | None, Version]:
        """Bring this process's role to the newest version that can be had (see `retrieval`).

        Raises:
            CatastrophicFailure, CorruptVault: the committed version cannot be had.
        """
        world = self.spread
        holder: dict[Role, int] = {}
        for s, proc in enumerate(world.holders()):
            holder["slot", s] = proc
        for c, proc in enumerate(world.servers()):
            holder["checksum", c] = proc
        retrieval = Retrieval(world, world.everyone, holder)
        retrieval.run()
        role, _ = world.role()
        return retrieval.vault if role in (SLOT, CHECKSUM) else None, retrieval.version
