"""After a relaunch over several nodes: every role gets the newest version that can be had.

All processes know which vaults were found where and what each can be brought to, so all come to the
same version and the same order of messages (`salvage` decides, here it is done): whoever has a
vault open brings it to that version and says whether it is sound; then one role after the other,
slots first, is filled from its own vault on another node or as a sum over its group's others.

Invariant: until a role's new vault is filled it counts as version 0, and the vaults it is computed
from stay as they are; a launch that ends in the middle leaves the next one what it had found.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..errors import CorruptVault
from ..fabric.story import Restored
from ..native import vaults
from ..native.constants import CHECKSUM, ROLE_NAMES, SLOT
from ..native.shared import Version
from ..native.vaults import BLOCK
from ..vault import erasure, salvage
from ..vault.salvage import Role
from ..vault.vault import Vault
from .spread import SpreadWorld

HEAD, LISTS, BLOCKS = 1, 2, 3  # tags
CHUNK_BLOCKS = 256  # of one message: 1 MiB, beyond which messages get no faster


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
        for role, proc in self.holder.items() if self.version else ():  # slots come first
            if sound.get(role) != proc:
                self._bring(role, sound)
        self.comm.Barrier()
        for vault in world.stock.held.values():
            vault.close()
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

    def _bring(self, role: Role, sound: dict[Role, int]) -> None:
        """Fill one role's empty vault: from its own vault elsewhere, or from its group's others."""
        layout, world = self.world.layout, self.world
        group = salvage.elements(layout, salvage.group_of(layout, role))
        element = group.index(role)
        k, m = len(group) - layout.strength, layout.strength
        if role in sound:
            sources, row = [element], [1]
        else:
            # Slots that were lost have been rebuilt when parities are.
            lost = [e for e, r in enumerate(group) if r not in sound]
            plan = erasure.decoding(k, m, lost)
            sources = list(plan.sources)
            row = [int(g) for g in plan.coefficients[plan.lost.index(element)]]
        to = self.holder[role]
        if world.proc == to:
            began = time.monotonic()
            self._receive(role, [(s, sound[group[s]]) for s in sources], row, element, k)
            took_s = time.monotonic() - began
            world.emit(Restored(role=role[0], index=role[1], seconds=took_s))
        else:
            for s in sources:
                if sound[group[s]] == world.proc:
                    vault = self.vault if group[s] == self.mine else world.stock.held[group[s]]
                    assert vault is not None
                    self._send(vault, s, element, k, to)
        sound[role] = to

    @staticmethod
    def _lists(source: int, element: int, k: int) -> list[tuple[int, int]]:
        """Which checksums go along: (member in the source's lists, member in the target's).

        -1 means a vault's own. A slot's come from its own vault or a parity, those of a parity from
        its own vault or from each member.
        """
        if source == element:
            return [(-1, -1)] + ([(i, i) for i in range(k)] if source >= k else [])
        if element < k:
            return [(element, -1)] if source >= k else []
        return [(-1, source)]

    def _send(self, vault: Vault, source: int, element: int, k: int, to: int) -> None:
        used = vault.used
        self.comm.Send(np.array([used], "i8"), to, HEAD)
        for member, _ in self._lists(source, element, k):
            self.comm.Send(np.ascontiguousarray(vault.crcs(member)[:used]), to, LISTS)
        for first in range(0, used, CHUNK_BLOCKS):
            count = min(CHUNK_BLOCKS, used - first)
            self.comm.Send(
                [vault.bytes_at(first, count * BLOCK), self.world.bytes_type], to, BLOCKS
            )

    def _receive(
        self, role: Role, sources: list[tuple[int, int]], row: list[int], element: int, k: int
    ) -> None:
        """Compute this process's vault as a sum of others: (element, process) of each."""
        self.world.visit("restore")
        vault, expected = self.vault, None
        assert vault is not None
        chunk = np.zeros(CHUNK_BLOCKS * BLOCK, "u1")
        for (source, proc), weight in zip(sources, row, strict=True):
            head = np.zeros(1, "i8")
            self.comm.Recv(head, proc, HEAD)
            used = int(head[0])
            vault.reserve(used)
            for _, into in self._lists(source, element, k):
                crcs = np.zeros(used, "u4")
                self.comm.Recv(crcs, proc, LISTS)
                if into == -1:
                    expected = crcs
                else:
                    vault.crcs(into)[:used] = crcs
            for first in range(0, used, CHUNK_BLOCKS):
                count = min(CHUNK_BLOCKS, used - first)
                self.comm.Recv([chunk, count * BLOCK, self.world.bytes_type], proc, BLOCKS)
                vault.add(weight, first, count, chunk)
        vault.seal()
        if expected is not None:
            have = vault.crcs()[: vault.used].copy()
            have[: expected.size] ^= expected
            if have.any():
                raise CorruptVault(
                    f"block {int(np.flatnonzero(have)[0])} of {role[0]} {role[1]} cannot be "
                    f"rebuilt: what was read of its group is damaged; checkpoint version "
                    f"{self.version} is gone, start the program again"
                )
        vault.words.version = self.version
