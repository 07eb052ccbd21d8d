"""Reads and writes the words that processes of a job share, in the control file.

Whoever reads a word also sees everything that its writer wrote before it: each read is an acquire,
and each write a release.
"""

from __future__ import annotations

from typing import Any

from ..native import job
from ..native.constants import RESUME_FILES, RESUME_REFUSED
from ..native.shared import Control, Proc, Process, Progress, Slot, Version


class _Word:
    """A word of a struct of C; the object with this attribute keeps the struct in `struct`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, owner: Any, _: object) -> int:
        return job.load(owner.struct, self.name)

    def __set__(self, owner: Any, value: int) -> None:
        job.store(owner.struct, self.name, value)


def _word(name: str) -> Any:  # so that classes can declare the type
    return _Word(name)


class ControlProcessWords:
    """Words of one process in the control file, see `words.ProcessWords`."""

    ordinal: int = _word("ordinal")
    step: int = _word("step")
    verdict: int = _word("verdict")
    arrived: int = _word("arrived")
    staging: int = _word("staging")
    staged: Version = _word("staged")
    summed: Version = _word("summed")
    folded: Version = _word("folded")
    spilled: Version = _word("spilled")
    ready: int = _word("ready")
    finished: int = _word("finished")
    blocks: int = _word("blocks")
    bytes: int = _word("bytes")
    dirty_bytes: int = _word("dirty_bytes")
    block_ns: int = _word("block_ns")
    protect_hash: int = _word("protect_hash")
    reported: int = _word("reported")
    syncs: int = _word("syncs")
    rebuilding: int = _word("rebuilding")
    busy_until_ns: int = _word("busy_until_ns")

    def __init__(self, struct: Process) -> None:
        self.struct = struct

    @property
    def pid(self) -> int:
        return self.struct.pid

    @property
    def dead(self) -> bool:
        return self.struct.state == job.ProcessState.DEAD

    @property
    def lacked_memory(self) -> bool:
        return bool(self.struct.leaving & job.Left.BY_MEMORY)

    @property
    def waits(self) -> bool:
        return bool(self.struct.waiting or job.is_in_call(self.struct))


class ControlWords:
    """Words of a job in the control file, see `words.Words`.

    Args:
        struct: the control file.
        proc: this process.
    """

    checkpoint_target: int = _word("target")
    checkpoint_wanted: int = _word("wanted")
    spill: Version = _word("spill")
    spilled: Version = _word("spilled")
    checkpoint_taken: int = _word("taken")
    halt: int = _word("halt")
    halting: int = _word("halting")
    attempt: int = _word("attempt")
    causal: int = _word("causal")
    replays: int = _word("replays")
    plan_round: int = _word("plan_round")
    repaired_round: int = _word("repaired")
    connect_wanted: int = _word("connect")
    failed_connects: int = _word("stumbles")
    dynamic: int = _word("dynamic")
    start_ns: int = _word("start_ns")
    request: int = _word("request")

    def __init__(self, struct: Control, proc: Proc) -> None:
        self.struct = struct
        self.me = ControlProcessWords(struct.proc[proc])

    def process(self, proc: Proc) -> ControlProcessWords:
        return ControlProcessWords(self.struct.proc[proc])

    def slot(self, slot: Slot) -> Progress:
        return self.struct.slots[slot]

    # -- committed versions -------------------------------------------------------------------

    @property
    def committed(self) -> Version:
        return Version(job.load(self.struct, "commit") >> 1)

    def commit(self, version: Version) -> bool:
        return job.exchange(self.struct, "commit", version - 1 << 1, version << 1)

    def set_committed(self, version: Version) -> None:
        job.store(self.struct, "commit", version << 1)

    def forfeit(self) -> None:
        job.store(self.struct, "commit", 1)

    def forbid_commits(self) -> None:
        word = job.load(self.struct, "commit")
        while not word & 1:
            job.exchange(self.struct, "commit", word, word | 1)
            word = job.load(self.struct, "commit")

    def allow_commits(self) -> None:
        self.set_committed(self.committed)

    # -- said once ----------------------------------------------------------------------------

    def first_to_report(self, proc: Proc) -> bool:
        return job.exchange(self.struct.proc[proc], "reported", 0, 1)

    def first_to_tell_full(self, step: int) -> bool:
        return job.exchange(self.struct, "told_full", step - 1, step)

    def first_to_tell_demand(self) -> bool:
        return job.exchange(self.struct, "told_demand", 0, 1)

    # -- facts --------------------------------------------------------------------------------

    @property
    def resumed(self) -> bool:
        return bool(self.struct.resume)

    @property
    def from_files(self) -> bool:
        return bool(self.struct.resume == RESUME_FILES)

    def refuse_files(self) -> None:
        self.struct.resume = RESUME_REFUSED

    @property
    def supervised(self) -> bool:
        return bool(self.struct.supervisor)

    @property
    def capacity_blocks(self) -> int:
        return self.struct.capacity_blocks

    @property
    def log_bytes(self) -> int:
        return self.struct.log_bytes

    @property
    def partitioned(self) -> bool:
        return bool(self.struct.partitioned)

    @property
    def death_ns(self) -> int:
        return self.struct.death_ns

    @property
    def exit_status(self) -> int:
        return self.struct.exit_status

    @property
    def error_owner(self) -> int:
        return self.struct.error_owner

    @property
    def refusal(self) -> str:
        return job.refusal(self.struct)

    def clear_refusal(self) -> None:
        self.struct.refusal[0] = b"\0"
