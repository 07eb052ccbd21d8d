"""Declares the words that processes of a job share, as `protocol` and `program` see them.

`control_words` implements them by the control file.
"""

from __future__ import annotations

from typing import Protocol

from ..native.shared import Proc, Progress, Slot, Version


class ProcessWords(Protocol):
    """Words of one process, which the process itself writes.

    Attributes:
        ordinal: safepoints that the slot has passed in this attempt.
        step: safepoints since the program's start, without those that a rollback has undone.
        verdict: ordinal of the safepoint where the program judged its state, << 1; bit 0: the state
            is right.
        arrived: ordinal of the safepoint where the slot has arrived to checkpoint.
        staging: version that the slot stages or has staged; 0: it waits.
        staged: version that the slot has staged completely.
        summed: version whose changes the parity has from all members.
        folded: version of the parity.
        spilled: newest version of which the slot has written its files.
        ready: 1: the vault holds what the process's role must hold.
        finished: attempt in which the program has ended.
        blocks: blocks of the vault that are in use.
        bytes: bytes that the last checkpoint protected; dirty_bytes: those that had changed.
        block_ns: how long the last checkpoint held the program up.
        protect_hash: hash of the names that were declared so far.
        reported: 1: the death is in the job's story.
        syncs: synchronizations in this attempt, counted if events are not.
        busy_until_ns: the slot's program has said that it computes until then (`job.now_ns`).
        rebuilding: 1: the spare is taking a checksum rank's seat, or has taken it and reads its
            members' copies.
    """

    ordinal: int
    step: int
    verdict: int
    arrived: int
    staging: int
    staged: Version
    summed: Version
    folded: Version
    spilled: Version
    ready: int
    finished: int
    blocks: int
    bytes: int
    dirty_bytes: int
    block_ns: int
    protect_hash: int
    reported: int
    syncs: int
    busy_until_ns: int
    rebuilding: int

    @property
    def pid(self) -> int:
        """Return the pid of the process on its node."""

    @property
    def dead(self) -> bool:
        """Say whether the process has died."""

    @property
    def lacked_memory(self) -> bool:
        """Say whether the process noted, as it died, that shared memory was full."""

    @property
    def waits(self) -> bool:
        """Say whether the process waits for others."""


class Words(Protocol):
    """Words that all processes share, and what they say about the job.

    Attributes:
        checkpoint_target: ordinal of the safepoint where the next checkpoint is due.
        checkpoint_wanted: 1: a coordinated checkpoint is needed as soon as possible.
        spill: newest version that is to be written to files.
        spilled: newest version whose files are all written.
        checkpoint_taken: ordinal of the newest safepoint whose checkpoint all have passed.
        halt: 1: the job is to end behind its next checkpoint.
        halting: ordinal of the safepoint behind which all slots wait for that end; 0: none.
        attempt: how often the program was entered; 1 is the first time.
        causal: 1: the newest plan is a causal recovery.
        replays: 1: a slot is to be replayed.
        plan_round: newest round of repair that has a plan; written after everything that belongs to
            it.
        repaired_round: newest round of repair that has ended with everybody.
        connect_wanted: 1: the next round of repair makes the library's communicators.
        failed_connects: number of rounds of a repair in which the library failed without another
            death.
        dynamic: 1: the program has a window of the library's own (Create_dynamic).
        start_ns: when the program was first entered, by `job.now_ns`.
        request: what the job asks of its supervisor, a `job.Request`.
    """

    checkpoint_target: int
    checkpoint_wanted: int
    spill: Version
    spilled: Version
    checkpoint_taken: int
    halt: int
    halting: int
    attempt: int
    causal: int
    replays: int
    plan_round: int
    repaired_round: int
    connect_wanted: int
    failed_connects: int
    dynamic: int
    start_ns: int
    request: int

    @property
    def me(self) -> ProcessWords:
        """Return the words of this process."""

    def process(self, proc: Proc) -> ProcessWords:
        """Return the words of a process."""

    def slot(self, slot: Slot) -> Progress:
        """Return the words of a slot, which remain when its process dies."""

    @property
    def committed(self) -> Version:
        """Return the newest committed version, to which all can go back; 0 is the program's
        start."""

    def commit(self, version: Version) -> bool:
        """Commit a version, unless it is committed or a repair has begun; say whether this call did
        it."""

    def set_committed(self, version: Version) -> None:
        """Set the committed version, at the start of a launch."""

    def forfeit(self) -> None:
        """Give up the committed version, as the leader of a repair."""

    def forbid_commits(self) -> None:
        """Forbid commits from here to the end of the repair."""

    def allow_commits(self) -> None:
        """Let versions be committed again, as the leader of a repair."""

    def first_to_report(self, proc: Proc) -> bool:
        """Return True to the first caller that asks about the death of this process."""

    def first_to_tell_full(self, step: int) -> bool:
        """Return True to the first caller in a job that reports this step (1, 2) of full logs."""

    def first_to_tell_demand(self) -> bool:
        """Return True to the first caller in a job that reports the cost of demand checkpoints."""

    @property
    def resumed(self) -> bool:
        """Say whether the launch goes on from vaults of an earlier one."""

    @property
    def from_files(self) -> bool:
        """Say whether the launch goes on from vaults filled from files, which nobody has
        refused."""

    def refuse_files(self) -> None:
        """Have the supervisor take older files in the next launch."""

    @property
    def supervised(self) -> bool:
        """Say whether there is a supervisor, which can launch the job again."""

    @property
    def capacity_blocks(self) -> int:
        """Return the capacity of new vaults on this node, in blocks."""

    @property
    def log_bytes(self) -> int:
        """Return the budget of each slot's logs, in bytes."""

    @property
    def partitioned(self) -> bool:
        """Say whether the program has partitioned communication."""

    @property
    def death_ns(self) -> int:
        """Return when the newest death was noticed, or happened by a rule of ``--kill``."""

    @property
    def exit_status(self) -> int:
        """Return the job's status, if a process has given one."""

    @property
    def error_owner(self) -> int:
        """Return 1 + the process whose error is the job's; 0: no process's, or the job is on
        several nodes."""

    @property
    def refusal(self) -> str:
        """Return why the slot that is replayed cannot be replayed; empty if it can."""

    def clear_refusal(self) -> None:
        """Forget the refusal, as the leader at the end of a repair."""
