"""A slot's checkpoint on demand in the model: a fuzzy snapshot, and what it holds for certain.

The slot stops for it, the others do not: while it copies its part word by word, they go on writing
there.  So it notes first how many accesses to each window have taken a number, then the last event
of every other slot that is complete, then copies.  An access that both notes cover was in memory
before the copy began: it is *held*.  All others are applied again when a replay begins there; what
the copy has of them already does no harm, since records hold the bytes as they were afterwards.

Why it takes both: of two accesses to common bytes the earlier one must be held if the later one is.
The number says that the later one began before the first event was read; by then the earlier one
was complete, and its event or, for an atomic, the word that is set under the lock says so.

Invariant: the memory of the snapshot, with all that is not held applied in order up to its clock,
is what the slot's next event may find.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from unit.protocol.model_programs import DATA, WINDOWS
from unit.protocol.model_words import Demand, Process, Record, Rules, Shared

Steps = Generator[Callable[[], bool] | None, None, None]


def snapshot(shared: list[Shared], q: int, process: Process, rules: Rules) -> Steps:
    """Take a checkpoint of slot q within its event; `process` is what it is after that."""
    demand = Demand(process, [[0, 0] for _ in range(DATA + 1)], [0] * WINDOWS, [0] * len(shared))
    if not rules.publish_last:
        publish(shared[q], demand)
    steps = [numbers(shared[q], demand, rules), events(shared, q, demand, rules)]
    if not rules.numbers_first:
        steps.reverse()
    steps.insert(2 if rules.copy_last else 0, copy(shared[q], demand))
    for step in steps:
        yield from step
    publish(shared[q], demand)
    yield None
    free(shared[q], demand)
    yield None


def numbers(me: Shared, demand: Demand, rules: Rules) -> Steps:
    for window in range(WINDOWS):
        yield None
        demand.numbers[window] = me.numbers[window]
    if not rules.number_of_each:
        demand.numbers = [max(demand.numbers)] * WINDOWS


def events(shared: list[Shared], q: int, demand: Demand, rules: Rules) -> Steps:
    demand.events[q] = demand.process.event
    for p in set(range(len(shared))) - {q}:
        yield None
        done = shared[p].atomic_done if rules.atomic_done else 0
        demand.events[p] = max(shared[p].horizon, done)


def copy(me: Shared, demand: Demand) -> Steps:
    for at in range(DATA + 1):
        for word in range(2):
            yield None
            demand.part[at][word] = me.part[at][word]
    yield None


def publish(me: Shared, demand: Demand) -> None:
    me.demand = demand


def free(me: Shared, demand: Demand) -> None:
    """Drop the results before it, and the slot's atomics on its own part with them."""
    me.results = {e: r for e, r in me.results.items() if e > demand.process.event}


def held(demand: Demand | None, record: Record, rules: Rules) -> bool:
    """Say whether a checkpoint holds an access to its slot for certain."""
    if demand is None:
        return False
    numbered = record.number <= demand.numbers[record.at % WINDOWS]
    complete = record.event <= demand.events[record.source]
    return (numbered or not rules.held_by_number) and (complete or not rules.held_by_event)
