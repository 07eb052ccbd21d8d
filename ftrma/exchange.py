"""Checkpoints of a job over several nodes, and what they give back to its next launch.

On one node checksum ranks read their members' vaults in shared memory. Here bytes travel by MPI, on
communicators that the user's program never sees, and the steps of a checkpoint are (compare
``csrc/vault.c``):

1. *stage*: all slots at the same safepoint; each stages into its own vault.
2. *send*: each slot sends what it staged to its group's checksum ranks, which sum it.
3. *commit*: the first checksum rank, once it has heard from all slots that they have sent and from
   all checksum ranks that they have summed, tells them so.
4. *fold*: each checksum rank folds its sum in.

No slot stages the next version before it has heard of the commit, so a version that may have been
committed is whole in every vault that is left (see `salvage`). Steps 3 and 4 go on while the
program computes. Any death ends the launch; the next one restores from the vaults on the nodes.

Whether a checkpoint is due travels by votes that slots cast at one safepoint and that slot 0 counts
at the next, so that nobody waits for a slot that is less than a safepoint behind. (Nonblocking
collectives would do the same; Open MPI's complain on stderr when a process dies.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from . import erasure, salvage
from .checkpoint import Policy, step_down
from .errors import CorruptVault
from .salvage import Role
from .spread import SpreadWorld
from .vault import BLOCK, Vault
from .world import CHECKSUM, ROLE_NAMES, SLOT, SPARE

POLL_S = 0.001
VOTE, RESULT, HEAD, LISTS, BLOCKS, FIGURES, COMMIT, END = range(1, 9)  # tags
CHUNK_BLOCKS = 256  # of one message: 1 MiB, beyond which messages get no faster


class Exchange:
    """A process's part in it.

    Args:
        world: of this process.

    Attributes:
        version: the newest that was staged or summed here.

    MPI: collective over all processes.
    """

    def __init__(self, world: SpreadWorld) -> None:
        self.world = world
        self.comm = world.everyone.Dup()
        roles = world.roles
        ctl = world.ctl
        self.holder: dict[Role, int] = {}
        for s in range(ctl.nslots):
            self.holder["slot", s] = roles.slot_proc[s]
        for c in range(ctl.nchecksums):
            self.holder["checksum", c] = roles.checksum_proc[c]
        self.votes: Any = None  # of the round that is under way
        self.committing = False  # the newest version is not known to be committed
        self.summed = 0  # members of the next version
        self.figures: list[Any] = []  # first checksum rank: of those who have done their part
        self.version = 0
        self.vault: Vault | None = None

    # -- when ---------------------------------------------------------------------------------

    def due(self, policy: Policy, slot: int, ordinal: int, size_bytes: Callable[[], int]) -> bool:
        """Whether all slots checkpoint at this safepoint. Collective over the slots."""
        self._look_for_commit(wait=False)
        if policy.interval == "never":
            return False
        if policy.every:
            self._ask(1)
        due, ended = self._answer() if self.votes is not None else (0, 0)
        if due:
            policy.last = time.monotonic()
        if not policy.every:
            if due:  # a slot that has ended since it voted does not come to this safepoint
                self._ask(0)
                ended = self._answer()[1]
            self._ask(int(slot == 0 and policy.due(size_bytes)))
        return bool(due and not ended)

    def _ask(self, due: int, ended: int = 0) -> None:
        """Cast this slot's vote of a round."""
        self.votes = np.array([due, ended], "i8")
        if self.world.role()[1]:
            self.comm.Send(self.votes, self.holder["slot", 0], VOTE)

    def _answer(self) -> tuple[int, int]:
        """Wait for the sums of the round's votes: (due, ended)."""
        assert self.votes is not None
        total, self.votes = self.votes, None
        slots = range(1, self.world.ctl.nslots)
        if self.world.role()[1] == 0:
            vote = np.zeros(2, "i8")
            for s in slots:
                self.comm.Recv(vote, self.holder["slot", s], VOTE)
                total = total + vote
            for s in slots:
                self.comm.Send(total, self.holder["slot", s], RESULT)
        else:
            self.comm.Recv(total, self.holder["slot", 0], RESULT)
        return int(total[0]), int(total[1])

    # -- a slot's side ------------------------------------------------------------------------

    def take(
        self, vault: Vault, regions: list[tuple[Any, int, int]], record: dict[str, Any]
    ) -> float:
        """Take this slot's part of a coordinated checkpoint; all slots are at the same safepoint.

        Returns:
            Seconds for which the program was held up.
        """
        world = self.world
        self._look_for_commit(wait=True)
        began = time.monotonic()
        world.visit("checkpoint")
        world.barrier()  # nobody's accesses are under way any more
        version = self.version + 1
        with world.link.critical:
            vault.words.version = self.version  # committed: there is no way back behind it
            try:
                size_bytes, dirty_bytes = vault.stage(
                    version, regions, record, middle=lambda: world.visit("stage")
                )
            except CorruptVault as error:
                # Going back would take the damage along, with a checksum that matches it.
                vault.words.version = vault.words.complete = 0
                step_down(world, error)
                raise
            vault.words.complete = version
        world.visit("staged")
        world.barrier()  # or somebody's next access would be in a later one's copy
        for checksum in world.checksums_of(world.roles.slot_group[world.role()[1]]):
            self._send_staged(vault, version, self.holder["checksum", checksum])
        held_s = time.monotonic() - began
        self._enter_commit(version, size_bytes, dirty_bytes, held_s)
        return held_s

    def _send_staged(self, vault: Vault, version: int, to: int) -> None:
        staged = vault.staged_blocks()
        head = np.array([version, vault.used, staged.size], "i8")
        self.comm.Send(head, to, HEAD)
        self.comm.Send(np.concatenate([staged, vault.crcs()[staged]]), to, LISTS)
        for first in range(0, staged.size, CHUNK_BLOCKS):
            count = min(CHUNK_BLOCKS, staged.size - first)
            self.comm.Send([vault.stage_bytes(first, count), self.world.bytes_type], to, BLOCKS)

    def _enter_commit(self, version: int, *figures: float) -> None:
        """This process has done its part of a version: tell the first checksum rank."""
        self.version = version
        first = self.holder["checksum", 0]
        if self.world.proc == first:
            self.figures.append(np.array(figures, "f8"))
        else:
            self.comm.Send(np.array(figures, "f8"), first, FIGURES)
        self.committing = True

    def _look_for_commit(self, *, wait: bool) -> None:
        """See whether the newest version is committed, and note it."""
        first = self.holder["checksum", 0]
        if self.committing and (wait or self.comm.Iprobe(first, COMMIT)):
            self.comm.Recv(np.zeros(0, "i8"), first, COMMIT)
            self._note_commit()

    def _note_commit(self) -> None:
        self.committing = False
        self.world.store("commit", self.version << 1)

    def finish(self) -> None:
        """This slot's program has ended: wait for the others', then let the servers go."""
        world = self.world
        if self.votes is not None:
            self._answer()
        ended = 0
        while ended < world.ctl.nslots:
            self._ask(0, ended=1)
            _, ended = self._answer()
        self._look_for_commit(wait=True)
        if world.role()[1] == 0:
            slots = {self.holder["slot", s] for s in range(world.ctl.nslots)}
            for server in set(range(world.ctl.nprocs)) - slots:
                self.comm.Send(np.zeros(0, "i8"), server, END)

    # -- a checksum rank's and a spare's side -------------------------------------------------

    def serve(self) -> None:
        """Sum, commit and fold until the program has ended; a spare waits for nothing else."""
        role, index = self.world.role()
        while not self.comm.Iprobe(tag=END):
            if role == SPARE or not self._step(index):
                time.sleep(POLL_S)
        self.comm.Recv(np.zeros(0, "i8"), tag=END)

    def _step(self, checksum: int) -> bool:
        """Do what is next for a checksum rank; False if there is nothing."""
        world = self.world
        if not self.committing and self.comm.Iprobe(tag=HEAD):
            members = world.members(world.group_of_checksum(checksum))
            self._receive_staged(checksum, members)
            self.summed += 1
            if self.summed == len(members):
                self.summed = 0
                assert self.vault
                self.vault.words.complete = self.version + 1
                world.visit("commit")
                self._enter_commit(self.version + 1, 0, 0, 0)
            return True
        if checksum == 0:
            return self._gather()
        if self.committing:
            self._look_for_commit(wait=False)
            if not self.committing:
                self._fold()
                return True
        return False

    def _gather(self) -> bool:
        """The first checksum rank hears from all who work on a version, and commits it."""
        if self.comm.Iprobe(tag=FIGURES):
            figures = np.zeros(3, "f8")
            self.comm.Recv(figures, tag=FIGURES)
            self.figures.append(figures)
            return True
        if len(self.figures) < len(self.holder):
            return False
        for proc in self.holder.values():
            if proc != self.world.proc:
                self.comm.Send(np.zeros(0, "i8"), proc, COMMIT)
        self._note_commit()
        self._fold()
        size_bytes, dirty_bytes, held_s = np.array(self.figures).T
        self.figures.clear()
        self.world.emit(
            "checkpoint", version=self.version, kind="coordinated", seconds=float(held_s.max()),
            bytes=int(size_bytes.sum()), dirty_bytes=int(dirty_bytes.sum()),
        )  # fmt: skip
        return True

    def _receive_staged(self, checksum: int, members: list[int]) -> None:
        """Add one member's staged deltas to the sum."""
        world, vault = self.world, self.vault
        assert vault is not None
        world.visit("sum")
        parity = checksum % world.ctl.strength
        weights = erasure.coefficients(len(members), int(world.ctl.strength))[parity]
        status = world.new_status()
        head = np.zeros(3, "i8")
        self.comm.Recv(head, tag=HEAD, status=status)
        version, used, count = head
        assert version == self.version + 1, (version, self.version)
        proc = status.Get_source()
        member = [world.roles.slot_proc[s] for s in members].index(proc)
        block, crc = vault.expect(member, int(used), int(count))
        lists = np.zeros(2 * count, "u4")
        self.comm.Recv(lists, proc, LISTS)
        block[:], crc[:] = lists[:count], lists[count:]
        chunk = np.zeros(CHUNK_BLOCKS * BLOCK, "u1")
        for first in range(0, int(count), CHUNK_BLOCKS):
            blocks = min(CHUNK_BLOCKS, int(count) - first)
            self.comm.Recv([chunk, blocks * BLOCK, world.bytes_type], proc, BLOCKS)
            with world.link.critical:  # not while it waits for one that may be dead
                vault.add_delta(member, int(weights[member]), first, blocks, chunk)

    def _fold(self) -> None:
        world, vault = self.world, self.vault
        assert vault is not None
        world.visit("fold")
        with world.link.critical:
            world.lib.ftrma_parity_fold(vault.c, self.version)
        world.visit("folded")

    # -- going back ---------------------------------------------------------------------------

    def start(self) -> Vault | None:
        """Bring this process's role to the newest version that can be had.

        Returns:
            The vault of its role; None for a spare.

        Raises:
            CatastrophicFailure, CorruptVault: the committed version cannot be had.
        """
        world = self.world
        layout, found = world.layout, world.found
        versions = {role: can for role, (_, can) in found.items()}
        version = salvage.newest_version(layout, versions, world.known_committed)
        world.store("commit", version << 1)
        self.version = version
        mine = self._own_role()
        sound = self._settle(version) if version else {}
        if version:
            salvage.refuse(layout, sound, version)
        if mine and sound.get(mine) == world.proc:
            self.vault = world.held.pop(mine)
        elif mine:
            if mine in world.held:
                world.held.pop(mine).close()
            world.vault_path_of(mine).unlink(missing_ok=True)
            self.vault = world.open_vault(mine, create=True)
        if version:
            for kind in ("slot", "checksum"):
                for role, proc in self.holder.items():
                    if role[0] == kind and sound.get(role) != proc:
                        self._bring(role, sound)
        self.comm.Barrier()
        for vault in world.held.values():
            vault.close()
        world.held.clear()
        if world.first_on_node:
            for role, proc in self.holder.items():
                if world.hosts[proc] != world.host:
                    # It has moved, or was here a second time: never to be taken for a newer one.
                    world.vault_path_of(role).unlink(missing_ok=True)
        return self.vault

    def _own_role(self) -> Role | None:
        role, index = self.world.role()
        return (ROLE_NAMES[role], index) if role in (SLOT, CHECKSUM) else None

    def _settle(self, version: int) -> dict[Role, int]:
        """Bring all vaults that were found to a version, and look whether they are sound.

        Returns:
            For each sound vault, the process that has it open.
        """
        world = self.world
        sound = []
        for role, vault in world.held.items():
            words = vault.words
            if version not in vault.versions(role[0]):
                continue
            with world.link.critical:  # another death must not leave it half way
                if role[0] == "slot":
                    world.lib.ftrma_stage_undo(vault.c, version)
                elif words.version < version:
                    world.lib.ftrma_parity_fold(vault.c, version)
                else:
                    world.lib.ftrma_parity_drop(vault.c)
                words.version, words.complete, words.folding = version, 0, 0
            if world.lib.ftrma_check(vault.c, vault.c, -1, 0, 2**62) < 0:
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
            world.emit("restored", role=role[0], index=role[1], seconds=time.monotonic() - began)
        else:
            for s in sources:
                if sound[group[s]] == world.proc:
                    vault = self.vault if group[s] == self._own_role() else world.held[group[s]]
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
            vault.reserve(used, staging=False)
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
