"""Checkpoints of a job over several nodes.

On one node checksum ranks read their members' vaults in shared memory. Here bytes travel by MPI, on
communicators that the user's program never sees, and the steps of a checkpoint are (compare
``csrc/vault/checkpoint.c``):

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

from ..errors import CorruptVault, FtrmaError
from ..fabric.story import Checkpoint
from ..native import job, vaults
from ..native.constants import SPARE
from ..native.shared import Slot, Version
from ..native.vaults import BLOCK
from ..vault import erasure
from ..vault.salvage import Role
from ..vault.vault import Vault
from .checkpoints import Policy, Repaired
from .coordinated import step_down
from .retrieval import BLOCKS, CHUNK_BLOCKS, HEAD, LISTS, Retrieval
from .rounds import Ended
from .spread import SpreadWorld

POLL_S = 0.001
VOTE, RESULT, FIGURES, COMMIT, END = range(4, 9)  # tags, after those of `retrieval`


class Distributed:
    """A process's part in them.

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
        self.version = Version(0)
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
        job.windows_flush()
        world.barrier()  # nobody's accesses are under way any more
        version = Version(self.version + 1)
        with world.link.critical:
            vault.words.version = self.version  # committed: there is no way back behind it
            try:
                size_bytes, dirty_bytes = vault.stage(
                    version, regions, record, world.seal(version), lambda: world.visit("stage")
                )
            except CorruptVault as error:
                # Going back would take the damage along, with a checksum that matches it.
                vault.words.version = vault.words.complete = Version(0)
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

    def _send_staged(self, vault: Vault, version: Version, to: int) -> None:
        staged = vault.staged_blocks()
        head = np.array([version, vault.used, staged.size], "i8")
        self.comm.Send(head, to, HEAD)
        self.comm.Send(np.concatenate([staged, vault.crcs()[staged]]), to, LISTS)
        for first in range(0, staged.size, CHUNK_BLOCKS):
            count = min(CHUNK_BLOCKS, staged.size - first)
            self.comm.Send([vault.stage_bytes(first, count), self.world.bytes_type], to, BLOCKS)

    def _enter_commit(self, version: Version, *figures: float) -> None:
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

    def scrub(self, slot: Slot) -> None:
        """Vaults were looked at when they were restored."""

    def repair(self, vault: Vault | None) -> tuple[Vault | None, Repaired]:
        """Nothing is repaired across nodes: the supervisor does the rest."""
        raise Ended

    # -- a checksum rank's and a spare's side -------------------------------------------------

    def serve(
        self, vault: Vault | None, idle: Callable[[], object]
    ) -> tuple[Vault | None, bool]:
        """Sum, commit and fold until the program has ended; a spare waits for nothing else."""
        role, index = self.world.role()
        while not self.comm.Iprobe(tag=END):
            if role == SPARE or not self._step(index):
                time.sleep(POLL_S)
        self.comm.Recv(np.zeros(0, "i8"), tag=END)
        return vault, False

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
                self.vault.words.complete = Version(self.version + 1)
                world.visit("commit")
                self._enter_commit(Version(self.version + 1), 0, 0, 0)
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
        self.world.emit(Checkpoint(
            version=self.version, kind="coordinated", seconds=float(held_s.max()),
            bytes=int(size_bytes.sum()), dirty_bytes=int(dirty_bytes.sum()),
        ))
        return True

    def _receive_staged(self, checksum: int, members: list[Slot]) -> None:
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
            vaults.parity_fold(vault.c, self.version)
        world.visit("folded")

    # -- going back ---------------------------------------------------------------------------

    def start(self) -> Vault | None:
        """Restore, and give the slots their communicator; a failure on the way ends this launch."""
        world, began = self.world, time.monotonic()
        self.restore()
        took_s = time.monotonic() - began
        if job.comm_build(0):
            raise FtrmaError("the MPI library cannot build the communicator of the slots")
        world.meet(0, 1)
        world.enter(world.committed, took_s)
        return self.vault

    def restore(self) -> None:
        """Bring this process's role to the newest version that can be had (see `retrieval`).

        Raises:
            CatastrophicFailure, CorruptVault: the committed version cannot be had.
        """
        retrieval = Retrieval(self.world, self.comm, self.holder)
        retrieval.run()
        self.version, self.vault = retrieval.version, retrieval.vault
