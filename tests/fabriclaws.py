"""The laws of a `JobView`: what each slot does, and what must be true of what they saw.

They are tried on a fake, on real processes of one node and, those without a death, over several
nodes (`tests/unit/fabric/test_fabric.py`, `tests/faults/test_fabric_nodes.py`). What a slot saw is
plain enough for JSON; times are of the time of day, which nodes have in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ftrma.fabric.round_changed import RoundChanged
from ftrma.fabric.story import Failure
from ftrma.fabric.view import JobView
from ftrma.host.errors import Rollback
from ftrma.native.constants import SLOT

SLOTS = 4
ROUNDS = 25
TOLD = 20
SOON_S = 5.0
STATUS = 3

Body = Callable[[Any, Callable[[], None]], Any]


@dataclass(frozen=True)
class Law:
    """One law.

    Attributes:
        body: what every slot does, given the view and how to die; gives what it saw.
        holds: asserts the law for what the slots saw, by slot.
        deaths: slots that die.
        everyone: checksum ranks and spares do it, too.
    """

    body: Body
    holds: Callable[[dict[int, Any]], None]
    deaths: tuple[int, ...] = ()
    everyone: bool = False

    @property
    def name(self) -> str:
        return self.body.__name__


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.001)


# ---- without a death ------------------------------------------------------------------------


def all_know_who_is_who(view: JobView, die: Callable[[], None]) -> Any:
    view.visit("call")
    return {"proc": view.proc, "role": list(view.role()), "holders": view.slot_holders(),
            "alive": [view.alive(p) for p in view.slot_holders()], "nobody": view.alive(-1),
            "committed": view.words.committed, "round": view.requested_round(),
            "alarmed": view.alarmed()}


def holds_who_is_who(seen: dict[int, Any]) -> None:
    """A slot finds itself among the holders, and all know the same ones, which live."""
    for slot, saw in seen.items():
        assert saw["role"][1] == slot and saw["holders"][slot] == saw["proc"]
        assert saw["holders"] == seen[0]["holders"] and len(set(saw["holders"])) == SLOTS
        assert saw["alive"] == [True] * SLOTS and not saw["nobody"]
        assert saw["committed"] == saw["round"] == 0 and not saw["alarmed"]


def a_barrier_holds_all_until_the_last_came(view: JobView, die: Callable[[], None]) -> Any:
    times = []
    for turn in range(ROUNDS):
        if view.role()[1] == turn % SLOTS:
            time.sleep(0.002)  # each slot is the last one now and then
        came = time.time_ns()
        view.barrier()
        times.append((came, time.time_ns()))
    return times


def holds_barrier(seen: dict[int, Any]) -> None:
    """Nobody has left before all have come."""
    for turn in zip(*seen.values(), strict=True):
        assert max(came for came, _ in turn) <= min(left for _, left in turn)


def words_are_seen_behind_a_barrier(view: JobView, die: Callable[[], None]) -> Any:
    me, seen = view.role()[1], []
    for turn in range(ROUNDS):
        view.words.me.bytes = SLOTS * turn + me
        view.barrier()
        seen.append([view.words.process(proc).bytes for proc in view.slot_holders()])
        view.barrier()
    return seen


def holds_words(seen: dict[int, Any]) -> None:
    """Each finds in the words of the others what they have written before the barrier."""
    expected = [[SLOTS * turn + slot for slot in range(SLOTS)] for turn in range(ROUNDS)]
    assert seen == dict.fromkeys(range(SLOTS), expected)


def the_slot_that_differs_is_named(view: JobView, die: Callable[[], None]) -> Any:
    me = view.role()[1]
    same = [view.slot_that_differs(1000 + turn) for turn in range(ROUNDS)]
    other = view.slot_that_differs(int(me == SLOTS - 1))
    view.barrier()
    return [same, other]


def holds_agreement(seen: dict[int, Any]) -> None:
    """Equal values differ nowhere; else each is told a slot that gave another value than it."""
    for slot, (same, other) in seen.items():
        assert same == [None] * ROUNDS
        assert other is not None and (other == SLOTS - 1) != (slot == SLOTS - 1)


def events_are_told_once_and_in_order(view: JobView, die: Callable[[], None]) -> Any:
    me = view.role()[1]
    for number in range(TOLD):
        view.emit(Failure(role="slot", index=me, pid=number, place="x" * number))
    view.barrier()
    story = [e for e in view.events() if isinstance(e, Failure)]
    view.barrier()
    return [[e.index, e.pid, len(e.place)] for e in story]


def holds_events(seen: dict[int, Any]) -> None:
    """A process sees all its own events; of others none twice, out of order, or in part."""
    for slot, story in seen.items():
        for teller in range(SLOTS):
            numbers = [number for who, number, _ in story if who == teller]
            assert numbers == list(range(len(numbers)))
            assert teller != slot or len(numbers) == TOLD
        assert all(number == size for _, number, size in story)


def one_reports_the_error(view: JobView, die: Callable[[], None]) -> Any:
    claimed = [view.claim_error(), view.claim_error()]
    view.barrier()
    return claimed


def holds_claims(seen: dict[int, Any]) -> None:
    """Exactly one slot's error is the job's, and it stays so."""
    assert sorted(seen.values()) == [[False, False]] * (SLOTS - 1) + [[True, True]]


def the_end_is_the_end_of_all(view: JobView, die: Callable[[], None]) -> Any:
    if view.role()[1] == SLOTS - 1:
        time.sleep(0.01)
    came = time.time_ns()
    view.end_program()
    return [[came, time.time_ns()]]


# ---- deaths ---------------------------------------------------------------------------------


def a_death_is_seen_by_all_and_unwinds_waits(view: JobView, die: Callable[[], None]) -> Any:
    view.barrier()
    if view.role()[1] == SLOTS - 1:
        die()
    try:
        while True:
            view.barrier()
    except Rollback:
        pass
    until(lambda: view.requested_round() > 0)
    unwound = False
    try:
        view.unwind_if_alarmed()
    except Rollback:
        unwound = True
    alive = [view.alive(p) for p in view.slot_holders()]
    return [view.alarmed(), unwound, alive, view.requested_round()]


def holds_death(seen: dict[int, Any]) -> None:
    """All who live were in a wait and came back; they know who died, and agree on the round."""
    expected = [True, True, [True] * (SLOTS - 1) + [False], 1]
    assert seen == dict.fromkeys(range(SLOTS - 1), expected)


def another_death_changes_the_round(view: JobView, die: Callable[[], None]) -> Any:
    me = view.role()
    if me == (SLOT, SLOTS - 1):
        die()
    until(lambda: view.requested_round() > 0)
    number = view.requested_round()
    try:
        view.meet(number, 1, planned=False)
        if me == (SLOT, SLOTS - 2):
            die()
        view.meet(number, 2, planned=False)
        # A death is marked before it is numbered: the round sees it at its next meeting then.
        until(lambda: view.requested_round() > number)
        view.meet(number, 3, planned=False)
    except RoundChanged:
        pass
    else:
        return "the round went on without noticing"
    newer = view.requested_round()
    view.meet(newer, 1, planned=False)
    return [number, newer]


def holds_rounds(seen: dict[int, Any]) -> None:
    """A meeting that sees another death is left by RoundChanged, and the next round holds those
    who are left."""
    assert seen == {slot: [1, 2] for slot in range(SLOTS - 2)}


def nobody_meets_without_a_holder(view: JobView, die: Callable[[], None]) -> Any:
    if view.role() == (SLOT, SLOTS - 1):
        die()
    until(lambda: view.requested_round() > 0)
    number = view.requested_round()
    try:
        view.meet(number, 1, planned=False)
        view.meet(number, 2)
    except RoundChanged:
        return "changed"
    return "met"


def holds_planned(seen: dict[int, Any]) -> None:
    """In a plan, each process that holds a role must live."""
    assert seen == dict.fromkeys(range(SLOTS - 1), "changed")


def an_abort_has_its_status(view: JobView, die: Callable[[], None]) -> Any:
    if view.role()[1] == 1:
        view.abort(STATUS)
    view.barrier()


LAWS = (
    Law(all_know_who_is_who, holds_who_is_who),
    Law(a_barrier_holds_all_until_the_last_came, holds_barrier),
    Law(words_are_seen_behind_a_barrier, holds_words),
    Law(the_slot_that_differs_is_named, holds_agreement),
    Law(events_are_told_once_and_in_order, holds_events),
    Law(one_reports_the_error, holds_claims),
    Law(the_end_is_the_end_of_all, holds_barrier),
    Law(a_death_is_seen_by_all_and_unwinds_waits, holds_death, (SLOTS - 1,)),
    Law(another_death_changes_the_round, holds_rounds, (SLOTS - 2, SLOTS - 1), True),
    Law(nobody_meets_without_a_holder, holds_planned, (SLOTS - 1,), True),
)
