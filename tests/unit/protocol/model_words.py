"""The parts of the model's slots: some die with a process, some others see, some are logged.

`Rules` says how the protocol decides.  Every rule can be broken, to show that the properties
notice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unit.protocol.model_programs import DATA, WINDOWS, State, Value


class Wrong(AssertionError):
    """The protocol gave a wrong answer, or none."""


@dataclass(frozen=True)
class Rules:
    """The protocol's decisions; the defaults are right."""

    clock_counts_atomics: bool = True  # the clock counts atomics and accumulates begun, too
    clock_under_lock: bool = True  # an atomic reads the target's clock where it takes its number
    clock_stays: bool = True  # the clock that others see never goes back
    shift: int = 0  # records are applied at the clock they carry, not this much later
    all_at_once: bool = False  # all records before the program runs again (Algorithm 3)
    wait: bool = True  # accesses to a slot wait until it is live again
    waiting_too: bool = True  # who waits for its turn at a slot is inside, or looks again
    drain: bool = True  # records are collected after accesses under way are logged
    repair_first: bool = True  # the dead's atomic is decided before that: others wait for its lock
    suppress: bool = True  # below the horizon nothing is issued again
    own_puts: bool = True  # a plain put to the own part is not suppressed
    by_number: bool = True  # records are applied by the numbers that their target gave
    undo: bool = True  # an atomic that is not done is taken back
    done_counts: bool = True  # an atomic that is done is complete, whatever the horizon says
    words: bool = True  # each slot has its own word for arriving at a barrier
    two_buffers: bool = True  # contributions to a collective outlive the next one's
    keep_horizon: bool = True  # a replay does not move the horizon
    mine: bool = True  # a lock word that names the slot means that it has the lock
    numbers_first: bool = True  # a snapshot reads the numbers of accesses before the others' events
    held_by_number: bool = True  # it holds only accesses whose number it has read
    held_by_event: bool = True  # it holds only accesses whose event it has seen complete
    atomic_done: bool = True  # atomics are seen complete before their lock is released
    number_of_each: bool = True  # numbers are read of each window, where they are counted
    copy_last: bool = True  # memory is copied after both are read
    publish_last: bool = True  # a snapshot counts when it is whole, and logs are freed after that
    unheld_again: bool = True  # what it does not hold is applied, whatever clock it has read
    published_counts: bool = True  # a snapshot published is an event complete


@dataclass
class Record:
    """A write to another slot's part: in the put log of its origin."""

    source: int
    target: int
    at: int
    value: Value  # as it is in memory afterwards
    clock: int  # of the target
    number: int  # in the order of writes to the target's part of the window
    event: int  # of the source


@dataclass
class Result:
    """A value that a slot learned at an event: it is in the result log, which survives the slot."""

    value: Value
    written: Record | None = None  # atomics: what they wrote
    done: bool = True


@dataclass
class Process:
    """The state that dies with a slot's process, apart from its part and its put log."""

    state: State = field(default_factory=State)
    event: int = 0
    clock: int = 0
    round: int = 0
    staged: int = 0  # round in which the process itself came to a safepoint
    chain: int = 0
    replaying: bool = False
    pending: list[Record] = field(default_factory=list)


@dataclass
class Shared:
    """The state of a slot that others see, or that is kept for it elsewhere."""

    part: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in range(DATA + 1)])
    clock: int = 0
    numbers: list[int] = field(default_factory=lambda: [0] * WINDOWS)
    serial: list[int | None] = field(default_factory=lambda: [None] * WINDOWS)  # inside an atomic
    atomic_done: int = 0  # the slot's event that was its last complete atomic
    owner: int | None = None  # of the exclusive lock
    holders: set[int] = field(default_factory=set)  # of the shared lock
    arrived: int = 0
    given: list[Value] = field(default_factory=lambda: [(0, 0), (0, 0)])
    inside: int | None = None  # the target of the access under way
    gate: bool = False  # closed: accesses to the part wait
    horizon: int = 0
    chain: list[int] = field(default_factory=lambda: [0, 0])  # by the event's parity
    records: list[Record] = field(default_factory=list)  # put log, lost with the process
    whole: bool = True  # the put log reaches back to the checkpoint
    results: dict[int, Result] = field(default_factory=dict)
    demand: Demand | None = None  # the newest since the checkpoint of all

    def value(self, at: int) -> Value:
        return self.part[at][0], self.part[at][1]


@dataclass
class Checkpoint:
    processes: list[Process]
    parts: list[list[Value]]
    numbers: list[list[int]]
    history: int


@dataclass
class Demand:
    """A checkpoint that one slot took alone, while others went on writing to its part."""

    process: Process
    part: list[list[int]]
    numbers: list[int]  # of accesses to each window when the snapshot began
    events: list[int]  # the last of each slot that was complete after that
