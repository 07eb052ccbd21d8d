"""Declares the words that processes of a job share, as protocols and program see them.

`control_words` implements them by the control file.
"""

from __future__ import annotations

from typing import Protocol

from ..native.shared import Proc, Progress, Slot, Version


class ProcessWords(Protocol):
    """Words of one process, which the process itself writes.

    Attributes:
        ordinal: safepoints that the slot has passed in this attempt.
        step: safepoints since the program's start, over all attempts that count.
        verdict: ordinal of the safepoint where the program judged its state, << 1, | 1: right.
        arrived: ordinal of the safepoint where the slot waits to checkpoint.
        staging: version that the slot stages or has staged; 0: it waits.
        staged: version that the slot has staged completely.
        summed: version of which the parity has the members' changes.
        folded: version of the parity.
        spilled: newest version of which the slot has written its files.
        ready: 1: the vault holds what its role must hold.
        finished: attempt in which the program has ended.
        blocks: of the vault that are in use.
        bytes: that the last checkpoint protected; dirty_bytes: those that had changed.
        block_ns: for which the last checkpoint held up the program.
        protect_hash: hash of the names that were declared so far.
        reported: 1: the death is in the job's story.
        syncs: synchronizations in this attempt, where events are not counted.
        busy_until_ns: until then the slot's program computes, as it has said, see `job.now_ns`.
        rebuilding: 1: a spare takes a checksum rank's seat, or has it and reads members' copies.
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
        """Number of the process on its node."""

    @property
    def dead(self) -> bool:
        """The process has died."""

    @property
    def lacked_memory(self) -> bool:
        """The process said, as it died, that shared memory was full."""

    @property
    def waits(self) -> bool:
        """The process waits for others."""


class Words(Protocol):
    """Words that all processes share, with what they say of the job.

    Attributes:
        checkpoint_target: ordinal of the safepoint where the next checkpoint is due.
        checkpoint_wanted: 1: a checkpoint of all is needed at the next chance.
        spill: newest version that is to be written to files.
        spilled: newest version of which all files are there.
        checkpoint_taken: ordinal of the newest safepoint whose checkpoint all have passed.
        halt: 1: the job is to end behind its next checkpoint.
        halting: ordinal of the safepoint behind which all slots wait for that end; 0: none.
        attempt: how often the program was entered; 1 is the first time.
        causal: 1: the newest plan is a causal recovery.
        replays: 1: a slot is to be replayed.
        plan_round: newest round of repair that has a plan, written after all that belongs to it.
        repaired_round: newest round of repair that has ended with everybody.
        connect_wanted: 1: the next round of repair makes the library's communicators.
        failed_connects: rounds of a repair in which the library failed without another death.
        dynamic: 1: the program has a window that is the library's own.
        start_ns: when the program was first entered, `job.now_ns`.
        request: what the job asks of its supervisor, `job.Request`.
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
        """Words of this process."""

    def process(self, proc: Proc) -> ProcessWords:
        """Words of a process."""

    def slot(self, slot: Slot) -> Progress:
        """Words of a slot, which stay when its process dies."""

    @property
    def committed(self) -> Version:
        """The newest version that all can go back to; 0 is the start of the program."""

    def commit(self, version: Version) -> bool:
        """Commit a version, unless it is committed or a repair has begun; whether this call did."""

    def set_committed(self, version: Version) -> None:
        """Set the committed version, at the start of a launch."""

    def forfeit(self) -> None:
        """Give up the committed version, as the leader of a repair."""

    def forbid_commits(self) -> None:
        """Have no version committed from here to the end of the repair."""

    def allow_commits(self) -> None:
        """Let versions be committed again, as the leader of a repair."""

    def first_to_report(self, proc: Proc) -> bool:
        """True for the first caller that asks about the death of this process."""

    def first_to_tell_full(self, step: int) -> bool:
        """True for the first caller that tells this step (1, 2) of full logs, in a job."""

    def first_to_tell_demand(self) -> bool:
        """True for the first caller that tells the cost of demand checkpoints, in a job."""

    @property
    def resumed(self) -> bool:
        """The launch goes on from vaults of an earlier one."""

    @property
    def from_files(self) -> bool:
        """The launch goes on from vaults that were filled from files, and nobody refuses them."""

    def refuse_files(self) -> None:
        """Have the supervisor take older files, with the next launch."""

    @property
    def supervised(self) -> bool:
        """A supervisor can launch the job again."""

    @property
    def capacity_blocks(self) -> int:
        """Blocks of new vaults on this node."""

    @property
    def log_bytes(self) -> int:
        """Budget of each slot's logs."""

    @property
    def partitioned(self) -> bool:
        """The program has partitioned communication."""

    @property
    def death_ns(self) -> int:
        """When the newest death was noticed, or happened by a rule of ``--kill``."""

    @property
    def exit_status(self) -> int:
        """Status of the job, if a process has given one."""

    @property
    def error_owner(self) -> int:
        """1 + the process whose error is the job's; 0: nobody's, or the job is on several nodes."""

    @property
    def refusal(self) -> str:
        """Why the slot being replayed cannot be; empty if it can."""

    def clear_refusal(self) -> None:
        """Forget the refusal, as the leader at the end of a repair."""
