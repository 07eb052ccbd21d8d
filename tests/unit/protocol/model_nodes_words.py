"""The parts of the model over several nodes: where they lie, with whom they die, messages.

A slot's file (`Slot`) and what a node keeps of collectives (`Node.arrived`, `Node.given`) are
memory of nodes: they outlive processes and agents.  A `Process` and a node's `parked` and
`unacknowledged` die with the process and the agent.  `Rules` says how the protocol decides; every
rule can be broken, to show that the properties notice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from unit.protocol.model_programs import DATA, Op, State, Value
from unit.protocol.model_words import Wrong

__all__ = ["Answer", "Checkpoint", "Connection", "Demand", "Message", "Node", "Process", "Record",
           "Reply", "Rules", "Slot", "Undo", "Wrong"]


@dataclass(frozen=True)
class Rules:
    """The protocol's decisions; the defaults are right.

    Not needed, so not here: that the agent keeps one request for a lock of each slot, since the
    request's number says that it was granted; that the flush has a number, since it is asked for
    again until nothing is pending; that replies of atomics acknowledge puts before them.
    """

    # Rules of the agent for a request.
    numbers: bool = True  # a put whose number is reached is not applied again
    gaps: bool = True  # one whose number is not the next is refused
    answers: bool = True  # a repeated atomic gets the answer of the first time
    applied_first: bool = True  # a put is counted and acknowledged after it is applied
    serial: bool = True  # atomics of neighbours wait while the agent is inside one
    undo: bool = True  # the next agent takes back an atomic whose number is not reached
    undo_cleared: bool = True  # and does so once
    undo_first: bool = True  # a recovery waits for that
    dead_refused: bool = True  # requests of a process that is dead are refused
    requests_of_epoch: bool = True  # requests from before a rollback are refused
    replies_of_epoch: bool = True  # and so are replies
    forget: bool = True  # a rollback makes agents forget what they have not acknowledged yet
    between: bool = True  # agents come to a rollback between two requests
    hold: bool = True  # requests to a slot that is being recovered are refused
    mine: bool = True  # a lock word that names the slot means that it has the lock
    lock_numbers: bool = True  # locks and unlocks have numbers, too, and are not done again
    # Rules of a slot.
    flush_waits: bool = True  # a flush waits until nothing is pending
    unlock_after: bool = True  # an unlock is sent when the puts before it are acknowledged
    unlock_acknowledged: bool = True  # and acknowledged before its event is complete
    resend_live: bool = True  # what was refused is sent again when the slot is live
    resend_agent: bool = True  # what is not acknowledged is sent again to the next agent
    resend_moved: bool = True  # and to the node where the target comes back, refused or not
    set_acknowledged: bool = True  # a collective's event is complete when its words are everywhere
    set_maximum: bool = True  # a word at a node never goes back
    set_again: bool = True  # when a slot has moved all tell all nodes their words again
    set_two: bool = True  # with what they gave in this round and in the one before
    # Rules of a checkpoint on demand.
    demand_numbers: bool = True  # it holds nothing with a number above those that it has seen
    demand_looks: bool = True  # it waits for the agent to be between two requests
    demand_whole: bool = True  # it does not count if an agent has died meanwhile
    demand_looks_again: bool = True  # which shows when the next one has begun
    demand_flushes: bool = True  # nothing that the slot has sent is on its way
    # Rules of a recovery.
    above_number: bool = True  # puts below the horizon and above the agent's number are sent again
    pending_counts: bool = True  # a rebuild takes what is pending, too
    pending_last: bool = True  # after all the rest
    answers_rebuilt: bool = True  # and answers that their origins may not have taken yet
    answers_kept: bool = True  # answers outlive the target's process
    number_between: bool = True  # the agent's number is read between two requests
    dead_locality: bool = True  # a replay counts as requests what the dead sent from its node
    neighbours: bool = True  # a new neighbour is asked by request up to the agent's number
    set_moved: bool = True  # and so does the replacement, for an event that is complete
    words_move: bool = True  # a slot that moves takes its words and contributions along
    moved_once: bool = True  # a slot that has moved is not replayed before the next checkpoint


@dataclass
class Record:
    """A write to another slot's part, in the put log of its origin."""

    origin: int
    target: int
    at: int
    value: Value  # as it is in memory afterwards
    event: int  # of the origin
    number: int = 0  # of the request, among those from origin to target; 0: without one
    clock: int = -1  # of the target
    seq: int = -1  # in the order of all writes to the part; -1: pending

    @property
    def pending(self) -> bool:
        return self.seq < 0


@dataclass
class Answer:
    """The last atomic of an origin, as the agent keeps it: the values told and written."""

    number: int
    learned: Value
    record: Record


@dataclass
class Undo:
    """The bytes by which an atomic under way is taken back."""

    origin: int
    number: int
    at: int
    old: Value


@dataclass
class Message:
    """A request to an agent: put, get, atomic, flush, lock, lock_shared, unlock, set."""

    kind: str
    origin: int
    target: int = -1
    node: int = -1  # set: where the words are
    number: int = 0
    at: int = 0
    value: Value = (0, 0)
    op: Op | None = None
    state: State = field(default_factory=State)
    event: int = 0
    words: dict[int, tuple[int, Value, Value]] = field(default_factory=dict)  # round, given, before
    token: int = 0  # 0: nobody waits for a reply
    incarnation: int = 0  # of the origin
    epoch: int = 0
    way: Connection | None = None


@dataclass
class Reply:
    kind: str  # done, refused
    target: int
    token: int
    epoch: int
    learned: Value | None = None
    record: Record | None = None
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)  # number, clock, seq


@dataclass(eq=False)
class Connection:
    """Between a process and the agent of a node: first in, first out, both ways."""

    origin: int
    node: int
    sending: deque[Message] = field(default_factory=deque)  # lost when the process dies
    arrived: deque[Message] = field(default_factory=deque)  # lost when the agent dies
    answering: deque[Reply] = field(default_factory=deque)  # lost when either dies
    process: bool = True  # lives
    agent: bool = True  # lives


@dataclass
class Process:
    """The state that dies with a slot's process; a checkpoint holds its first fields."""

    state: State = field(default_factory=State)
    event: int = 0
    clock: int = 0
    round: int = 0
    sent: list[int] = field(default_factory=list)  # requests with a number, for each target
    log: list[Record] = field(default_factory=list)
    requests: dict[int, Message] = field(default_factory=dict)  # by token: not answered yet
    replies: dict[int, Value | None] = field(default_factory=dict)  # by token
    inbox: deque[Reply] = field(default_factory=deque)
    ways: dict[int, Connection] = field(default_factory=dict)  # by node
    refused: set[int] = field(default_factory=set)  # targets that are being recovered
    epoch: int = 0
    moves: int = 0  # how many slots' moves it has heard of
    staged: int = 0  # round in which the process itself came to a safepoint
    ended: bool = False
    replaying: bool = False
    node: int = -1  # in a replay: where the dead was
    pending: list[Record] = field(default_factory=list)  # in a replay: not yet applied
    reached: list[int] = field(default_factory=list)  # the agents' numbers when the replay began


@dataclass
class Demand:
    """A slot's checkpoint that it took alone: what others have written is in it for certain up to
    this number, and of each origin up to this event."""

    process: Process
    part: list[Value]
    seq: int
    events: list[float]


@dataclass
class Slot:
    """The file of a slot, on its node; it goes along when the slot moves."""

    part: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in range(DATA + 1)])
    clock: int = 0
    seq: int = 0
    serial: bool = False  # the agent is inside an atomic
    owner: int | None = None  # of the exclusive lock
    holders: set[int] = field(default_factory=set)  # of the shared lock
    hold: bool = False  # requests and accesses to the part wait
    inside: int | None = None  # the neighbour that this slot is accessing
    horizon: int = 0
    results: dict[int, tuple[Value, Record | None]] = field(default_factory=dict)
    reached: list[int] = field(default_factory=list)  # the last number of each origin
    answers: dict[int, Answer] = field(default_factory=dict)  # by origin
    undo: Undo | None = None
    whole: bool = True  # the put log reaches back to the checkpoint
    moved: bool = False  # since the checkpoint
    demand: Demand | None = None  # the newest since the checkpoint of all

    def value(self, at: int) -> Value:
        return self.part[at][0], self.part[at][1]

    def grants(self, q: int, shared: bool) -> bool:
        return self.owner in (None, q) and (shared or not self.holders - {q})


@dataclass
class Node:
    arrived: list[int]  # of each slot, the last round
    given: list[list[Value]]  # of each slot, in this round and the one before
    ways: list[Connection] = field(default_factory=list)
    busy: int | None = None  # the target of the request in the agent's hands, or one of those below
    parked: list[Message] = field(default_factory=list)
    unacknowledged: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    agents: int = 0  # that have begun

    STARTING = -2
    SETTING = -1


@dataclass
class Checkpoint:
    processes: list[Process]
    parts: list[list[Value]]
    seqs: list[int]
    reached: list[list[int]]
    history: int
