"""After a relaunch over several nodes: every role gets the newest version that can be had.

All processes know which vaults were found where and what each can be brought to, so all come to the
same version (`salvage` decides, here it is done): whoever has a vault open brings it to that
version and says whether it is sound. Then what has moved is copied to where its role is now, and
what is lost is computed as in a repair, slots before parities.

Invariant: until a role's new vault is filled it counts as version 0, and the vaults it is computed
from stay as they are; a launch that ends in the middle leaves the next one what it had found.
"""

from __future__ import annotations

import time
from typing import Any

from ..errors import CorruptVault, FtrmaError
from ..fabric.base import RoundChanged
from ..fabric.remote import File
from ..fabric.story import Restored
from ..native import vaults
from ..native.constants import CHECKSUM, ROLE_NAMES, SLOT
from ..native.shared import Proc, Slot, Version
from ..vault import salvage
from ..vault.group import rebuild_parity, rebuild_slot
from ..vault.image import Image
from ..vault.salvage import Role
from ..vault.vault import Vault
from .spread import SpreadWorld


class Retrieval:
    """A process's part in it.

    Args:
        world: of this process.
        comm: communicator of all processes that carries nothing else meanwhile.
        holder: process of each role.

    Attributes:
        version: that all come to; 0 is the start of the program.
        vault: of this process's role; None on a spare.
    """

    def __init__(self, world: SpreadWorld, comm: Any, holder: dict[Role, int]) -> None:
        self.world, self.comm, self.holder = world, comm, holder
        role, index = world.role()
        self.mine = (ROLE_NAMES[role], index) if role in (SLOT, CHECKSUM) else None
        self.version = Version(0)
        self.vault: Vault | None = None

    def run(self) -> None:
        """Do all of it. Collective over all processes.

        Raises:
            CatastrophicFailure, CorruptVault: the committed version cannot be had.
        """
        world, mine = self.world, self.mine
        versions = {role: can for role, (_, can) in world.stock.found.items()}
        self.version = salvage.newest_version(world.layout, versions, world.known_committed)
        world.store("commit", self.version << 1)
        sound: dict[Role, int] = {}
        if self.version:
            sound = self._settle()
            salvage.refuse(world.layout, sound, self.version)
        if mine and sound.get(mine) == world.proc:
            self.vault = world.stock.held.pop(mine)
        elif mine:
            if mine in world.stock.held:
                world.stock.held.pop(mine).close()
            world.stock.path(mine).unlink(missing_ok=True)
            self.vault = world.stock.open(mine, create=True)
        if mine:
            world.place_vault()
        try:
            if self.version:
                self._bring(sound)
        except RoundChanged:  # the supervisor ends this launch
            raise FtrmaError("vaults could not be brought back: a process died") from None
        self.comm.Barrier()
        for role, vault in world.stock.held.items():
            vault.close()
            if world.files and self.version:
                world.files.leave(File.VAULT, self._stray(role))
        world.stock.held.clear()
        if world.first_on_node:
            for role, proc in self.holder.items():
                if world.hosts[proc] != world.host:
                    # It has moved, or was here a second time: never to be taken for a newer one.
                    world.stock.path(role).unlink(missing_ok=True)

    def _settle(self) -> dict[Role, int]:
        """Bring all vaults that were found to the version, and look whether they are sound.

        Returns:
            For each sound vault, the process that has it open.
        """
        world, version = self.world, self.version
        sound = []
        for role, vault in world.stock.held.items():
            words = vault.words
            if version not in vault.versions(role[0]):
                continue
            with world.link.critical:  # another death must not leave it half way
                if role[0] == "slot":
                    vaults.stage_undo(vault.c, version)
                elif words.version < version:
                    vaults.parity_fold(vault.c, version)
                else:
                    vaults.parity_drop(vault.c)
                words.version, words.complete, words.folding = version, Version(0), Version(0)
            if vaults.check(vault.c, vault.c, -1) < 0:
                sound.append(role)
            else:
                world.tell(f"{role[0]} {role[1]}: its vault on {world.host} is damaged")
        everybody = self.comm.allgather(sound)
        return {role: proc for proc, roles in enumerate(everybody) for role in roles}

    def _bring(self, sound: dict[Role, int]) -> None:
        """Fill empty vaults: from their own on other nodes, or from what their groups have."""
        world = self.world
        for role in world.stock.held:
            assert world.files is not None
            world.files.place_vault(self._stray(role), world.stock.path(role))
        if self.mine:
            world.put("ready", int(sound.get(self.mine) == world.proc))
        moved = [role for role, proc in self.holder.items() if sound.get(role, proc) != proc]
        lost = [role for role in self.holder if role not in sound]
        # A slot is computed from what is ready; a parity from its members, which have come by then.
        for phase, roles, fill in (
            (1, moved, self._fetch),
            (2, [role for role in lost if role[0] == "slot"], self._rebuild_slot),
            (3, [role for role in lost if role[0] == "checksum"], self._rebuild_parity),
        ):
            if not roles:
                continue
            # Not MPI's barrier, which does not bring what others have stored.
            world.meet(0, phase, planned=False)
            if self.mine in roles:
                began = time.monotonic()
                world.visit("restore")
                fill(sound)
                assert self.vault is not None
                self.vault.words.version = self.version
                world.put("ready", 1)
                world.emit(Restored(
                    role=self.mine[0], index=self.mine[1], seconds=time.monotonic() - began
                ))

    def _stray(self, role: Role) -> Proc:
        """In place of its process, for a vault that has none: behind all of them."""
        return Proc(len(self.world.hosts) + list(self.holder).index(role))

    def _fetch(self, sound: dict[Role, int]) -> None:
        """Take the vault of this process's role from the node where it was left."""
        world, vault, role = self.world, self.vault, self.mine
        assert vault is not None and role is not None and world.files is not None
        path = world.directory / f"image-{world.proc}"
        members = world.members(world.group_of_checksum(role[1])) if role[0] == "checksum" else ()
        image = Image(world.files, world.node_of(Proc(sound[role])), self._stray(role), path,
                      world.ctl.group_size)
        try:
            image.copy_to(vault.c, range(len(members)))
        finally:
            image.close()
        block = vaults.check(vault.c, vault.c, -1)
        if block >= 0:
            raise CorruptVault(
                f"block {block} of {role[0]} {role[1]} was damaged on its way here; start the "
                "program again"
            )

    def _rebuild_slot(self, _: object) -> None:
        assert self.vault is not None and self.mine is not None
        rebuild_slot(self.world, self.vault, Slot(self.mine[1]))

    def _rebuild_parity(self, _: object) -> None:
        assert self.vault is not None and self.mine is not None
        rebuild_parity(self.world, self.vault, self.mine[1])
