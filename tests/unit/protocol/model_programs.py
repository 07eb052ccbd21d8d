"""Race-free programs for the model of causal recovery, and what they mean without failures.

A program is a list of operations for each slot.  Between two collective operations (a phase) every
location of every part is used in one way: by one owner, for reading, by atomics alone, under the
part's lock, or handed from slot to slot by a flag that atomics set and poll.  So two accesses of
which one writes are always ordered by synchronization, or both atomic, whatever the schedule.  What
a slot reads enters its register, and the register chooses locations and values of later accesses:
one wrong value spoils all that follows.

`Sequential` executes the events one at a time in a given order, without logs, locks or failures;
it is what every recovered run is compared with.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st

PRIME = 251
DATA = 3  # locations of a part for data; one more holds the flag of what is handed over
FLAG = DATA
WINDOWS = 2  # which the locations of a part belong to in turn
Value = tuple[int, int]  # a location is two words wide, so that a write can be torn
LOCAL = {"load", "store"}
ATOMIC = {"accumulate", "fetch", "swap", "compare", "poll", "signal"}
COLLECTIVE = {"fence", "allreduce", "safepoint"}
LEARNING = {"get", "fetch", "swap", "compare", "poll", "allreduce", "load"}


class Op(NamedTuple):
    """One operation; `places` are the locations that the register chooses from."""

    kind: str
    target: int = -1
    places: tuple[int, ...] = (0,)
    salt: int = 0


class State(NamedTuple):
    """The state of a slot: its place in the program, its register, the last value read."""

    pc: int = 0
    register: int = 1
    last: Value = (0, 0)


Program = tuple[tuple[Op, ...], ...]


def place(op: Op, state: State) -> int:
    return op.places[state.register % len(op.places)]


def operand(op: Op, state: State) -> Value:
    if op.kind == "signal":
        return 1, 1
    value = (31 * state.register + op.salt) % PRIME
    return value, (value + 7) % PRIME


def combined(op: Op, state: State, old: Value) -> Value:
    """The value that an atomic or accumulate leaves behind."""
    new = operand(op, state)
    if op.kind == "poll":
        return old
    if op.kind == "swap":
        return new
    if op.kind == "compare":  # succeeds if the location holds what this slot read last
        return new if old == state.last else old
    if op.kind == "signal":  # counts turns
        return old[0] + 1, old[1] + 1
    return (old[0] + new[0]) % PRIME, (old[1] + new[1]) % PRIME


def finish(op: Op, state: State, learned: Value | None) -> State:
    """The state after an operation; a poll that came too early is executed again."""
    pc = state.pc + 1
    if op.kind == "poll" and learned is not None and learned[1] < op.salt:
        pc = state.pc
    if learned is None or op.kind not in LEARNING:
        return state._replace(pc=pc)
    register = (17 * state.register + 3 * learned[0] + learned[1] + 5) % (PRIME * PRIME)
    return State(pc, register, learned)


class Sequential:
    """The program executed one event at a time."""

    def __init__(self, program: Program) -> None:
        n = len(program)
        self.program = program
        self.parts: list[list[Value]] = [[(0, 0)] * (DATA + 1) for _ in range(n)]
        self.states = [State() for _ in range(n)]
        self.events = [0] * n
        self.rounds = [0] * n
        self.given: dict[int, dict[int, Value]] = defaultdict(dict)

    def catch_up(self, q: int) -> Op | None:
        """Execute local loads and stores up to the next event; returns that."""
        while self.states[q].pc < len(self.program[q]):
            state, op = self.states[q], self.program[q][self.states[q].pc]
            if op.kind not in LOCAL:
                return op
            at, learned = place(op, state), None
            if op.kind == "load":
                learned = self.parts[q][at]
            else:
                self.parts[q][at] = operand(op, state)
            self.states[q] = finish(op, state, learned)
        return None

    def take(self, step: str, q: int, event: int) -> None:
        """ "arrive": what precedes the event is visible to others; "do": it takes effect."""
        op = self.catch_up(q)
        assert op is not None and event == self.events[q] + 1, (step, q, event, self.events)
        state, learned = self.states[q], None
        if op.kind in COLLECTIVE:
            self.given[self.rounds[q]][q] = operand(op, state)
        if step == "arrive":
            return
        if op.kind == "allreduce":
            learned = total(self.given[self.rounds[q]].values())
        elif op.kind == "put":
            self.parts[op.target][place(op, state)] = operand(op, state)
        elif op.kind == "get" or op.kind in ATOMIC:
            learned = self.parts[op.target][place(op, state)]
            if op.kind in ATOMIC:
                self.parts[op.target][place(op, state)] = combined(op, state, learned)
        self.rounds[q] += op.kind in COLLECTIVE
        self.events[q] = event
        self.states[q] = finish(op, state, learned)


def total(values: object) -> Value:
    pairs = list(values)  # type: ignore[call-overload]
    return sum(a for a, _ in pairs) % PRIME, sum(b for _, b in pairs) % PRIME


# ---- making them -------------------------------------------------------------------------------


@dataclass
class Phase:
    """The use of each location until the next collective; drawn as one number."""

    slots: int
    number: int

    def use(self, part: int, at: int) -> tuple[str, int]:
        digit = self.number // 10 ** (part * DATA + at) % 10
        if digit < 3:
            return "owned", digit % self.slots
        return ("read", "atomic", "atomic", "locked", "locked", "token", "token")[digit - 3], -1

    def places(self, part: int, at: int) -> tuple[int, ...]:
        """Locations used in the same way: what the register may choose from."""
        mine = self.use(part, at)
        return tuple(i for i in range(DATA) if self.use(part, i) == mine)


def accesses(slot: int, part: int, places: tuple[int, ...], salt: int, reads: bool) -> list[Op]:
    """One to three accesses by a slot that has these locations for itself (or only reads them)."""
    kinds = ["get"] if reads else ["put", "get", "fetch", "accumulate", "swap"]
    if slot == part:
        kinds = ["load", "get"] if reads else ["load", "store", "fetch", *kinds]
    made = []
    for i in range(1 + salt % 3):
        digits = salt // 7 ** (i + 1)
        made.append(Op(kinds[digits % len(kinds)], part, places, digits % 11))
    return made


def section(phase: Phase, number: int, turns: list[int]) -> tuple[int, list[Op]]:
    """Decode a few operations of one slot from a number; `turns` counts each flag's hand-overs."""
    slots = phase.slots
    slot, number = number % slots, number // slots
    part, number = number % slots, number // slots
    at, number = number % DATA, number // DATA
    salt, tail = number // 4, number % 4
    use, owner = phase.use(part, at)
    places = phase.places(part, at)
    after = [[], [Op("flush", part)], [Op("sync")], []][tail]
    if use == "owned":
        return owner, accesses(owner, part, places, salt, False) + after
    if use == "read":
        return slot, accesses(slot, part, places, salt, True) + after
    if use == "atomic":
        kind = ("fetch", "accumulate", "swap", "compare")[salt % 4]
        return slot, [Op(kind, part, places, salt % 11), *after]
    if use == "locked":
        shared = salt % 5 == 4
        inner = accesses(slot, part, places, salt, shared)
        lock = Op("lock_shared" if shared else "lock", part)
        return slot, [lock, *inner, *after, Op("unlock", part)]
    turn, turns[part] = turns[part], turns[part] + 1
    inner = accesses(slot, part, places, salt, False)
    return slot, [Op("poll", part, (FLAG,), turn), *inner, Op("signal", part, (FLAG,)), *after]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    slots = draw(st.integers(2, 3))
    made: list[list[Op]] = [[] for _ in range(slots)]
    turns = [0] * slots
    for _ in range(draw(st.integers(1, 3))):
        digits = 10 ** (slots * DATA)
        alike = [digit * (digits // 9) for digit in range(10)]  # all locations used in one way
        phase = Phase(slots, draw(st.sampled_from(alike) | st.integers(0, digits - 1)))
        for number in draw(st.lists(st.integers(0, 10**7), max_size=6)):
            slot, ops = section(phase, number, turns)
            made[slot] += ops
            part = number // slots % slots
            if number // 97 % 3 == 0:  # while others go on to write to that part, or have just
                made[part].append(Op("demand", part))
        ending = draw(st.sampled_from(["fence", "allreduce", "safepoint"]))
        for ops in made:
            ops.append(Op(ending))
    return tuple(tuple(ops) for ops in made)


def settled(program: Program) -> bool:
    """Say whether the result depends on no order of locks or atomics: then every run ends alike."""
    return not any(op.kind in {"lock", "lock_shared", "poll", *ATOMIC} for ops in program
                   for op in ops)
