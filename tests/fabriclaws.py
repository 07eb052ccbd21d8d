"""The laws of a `Fabric`: what each slot does, and what must be true of what they saw.

They are tried on a fake, on real processes of one node and, those without a death, over several
nodes (`tests/unit/fabric/test_fabric.py`, `tests/faults/test_fabric_nodes.py`). What a slot saw is
plain enough for JSON; times are of the time of day, which nodes have in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ftrma.errors import Rollback
from ftrma.fabric.base import Fabric, RoundChanged
from ftrma.fabric.story import Failure
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
        body: what every slot does, given the fabric and how to die; gives what it saw.
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


def all_know_who_is_who(fabric: Fabric, die: Callable[[], None]) -> Any:
    fabric.visit("call")
    return {"proc": fabric.proc, "role": list(fabric.role()), "holders": fabric.holders(),
            "alive": [fabric.alive(p) for p in fabric.holders()], "nobody": fabric.alive(-1),
            "committed": fabric.committed, "round": fabric.round_asked(),
            "alarmed": fabric.alarmed()}


def holds_who_is_who(seen: dict[int, Any]) -> None:
    """A slot finds itself among the holders, and all know the same ones, which live."""
    for slot, saw in seen.items():
        assert saw["role"][1] == slot and saw["holders"][slot] == saw["proc"]
        assert saw["holders"] == seen[0]["holders"] and len(set(saw["holders"])) == SLOTS
        assert saw["alive"] == [True] * SLOTS and not saw["nobody"]
        assert saw["committed"] == saw["round"] == 0 and not saw["alarmed"]


def a_barrier_holds_all_until_the_last_came(fabric: Fabric, die: Callable[[], None]) -> Any:
    times = []
    for turn in range(ROUNDS):
        if fabric.role()[1] == turn % SLOTS:
            time.sleep(0.002)  # each slot is the last one now and then
        came = time.time_ns()
        fabric.barrier()
        times.append((came, time.time_ns()))
    return times


def holds_barrier(seen: dict[int, Any]) -> None:
    """Nobody has left before all have come."""
    for turn in zip(*seen.values(), strict=True):
        assert max(came for came, _ in turn) <= min(left for _, left in turn)


def same_everywhere_names_who_differs(fabric: Fabric, die: Callable[[], None]) -> Any:
    me = fabric.role()[1]
    same = [fabric.same_everywhere(1000 + turn) for turn in range(ROUNDS)]
    other = fabric.same_everywhere(int(me == SLOTS - 1))
    fabric.barrier()
    return [same, other]


def holds_agreement(seen: dict[int, Any]) -> None:
    """Equal values differ nowhere; else each is told a slot that gave another value than it."""
    for slot, (same, other) in seen.items():
        assert same == [None] * ROUNDS
        assert other is not None and (other == SLOTS - 1) != (slot == SLOTS - 1)


def events_are_told_once_and_in_order(fabric: Fabric, die: Callable[[], None]) -> Any:
    me = fabric.role()[1]
    for number in range(TOLD):
        fabric.emit(Failure(role="slot", index=me, pid=number, place="x" * number))
    fabric.barrier()
    story = [e for e in fabric.events() if isinstance(e, Failure)]
    fabric.barrier()
    return [[e.index, e.pid, len(e.place)] for e in story]


def holds_events(seen: dict[int, Any]) -> None:
    """Who asks sees all its own, and of others none twice, before an earlier one, or in part."""
    for slot, story in seen.items():
        for teller in range(SLOTS):
            numbers = [number for who, number, _ in story if who == teller]
            assert numbers == list(range(len(numbers)))
            assert teller != slot or len(numbers) == TOLD
        assert all(number == size for _, number, size in story)


def one_reports_the_error(fabric: Fabric, die: Callable[[], None]) -> Any:
    claimed = [fabric.claim_error(), fabric.claim_error()]
    fabric.barrier()
    return claimed


def holds_claims(seen: dict[int, Any]) -> None:
    """Exactly one slot's error is the job's, and it stays so."""
    assert sorted(seen.values()) == [[False, False]] * (SLOTS - 1) + [[True, True]]


def the_end_is_the_end_of_all(fabric: Fabric, die: Callable[[], None]) -> Any:
    if fabric.role()[1] == SLOTS - 1:
        time.sleep(0.01)
    came = time.time_ns()
    fabric.end_program()
    return [[came, time.time_ns()]]


# ---- deaths ---------------------------------------------------------------------------------


def a_death_is_seen_by_all_and_unwinds_waits(fabric: Fabric, die: Callable[[], None]) -> Any:
    fabric.barrier()
    if fabric.role()[1] == SLOTS - 1:
        die()
    try:
        while True:
            fabric.barrier()
    except Rollback:
        pass
    until(lambda: fabric.round_asked() > 0)
    unwound = False
    try:
        fabric.unwind_if_alarmed()
    except Rollback:
        unwound = True
    alive = [fabric.alive(p) for p in fabric.holders()]
    return [fabric.alarmed(), unwound, alive, fabric.round_asked()]


def holds_death(seen: dict[int, Any]) -> None:
    """All who live were in a wait and came back; they know who died, and agree on the round."""
    expected = [True, True, [True] * (SLOTS - 1) + [False], 1]
    assert seen == dict.fromkeys(range(SLOTS - 1), expected)


def another_death_changes_the_round(fabric: Fabric, die: Callable[[], None]) -> Any:
    me = fabric.role()
    if me == (SLOT, SLOTS - 1):
        die()
    until(lambda: fabric.round_asked() > 0)
    number = fabric.round_asked()
    try:
        fabric.meet(number, 1, planned=False)
        if me == (SLOT, SLOTS - 2):
            die()
        fabric.meet(number, 2, planned=False)
        # A death is marked before it is numbered: the round sees it at its next meeting then.
        until(lambda: fabric.round_asked() > number)
        fabric.meet(number, 3, planned=False)
    except RoundChanged:
        pass
    else:
        return "the round went on without noticing"
    newer = fabric.round_asked()
    fabric.meet(newer, 1, planned=False)
    return [number, newer]


def holds_rounds(seen: dict[int, Any]) -> None:
    """A meeting that sees another death is left by RoundChanged, and the next round holds those
    who are left."""
    assert seen == {slot: [1, 2] for slot in range(SLOTS - 2)}


def nobody_meets_without_a_holder(fabric: Fabric, die: Callable[[], None]) -> Any:
    if fabric.role() == (SLOT, SLOTS - 1):
        die()
    until(lambda: fabric.round_asked() > 0)
    number = fabric.round_asked()
    try:
        fabric.meet(number, 1, planned=False)
        fabric.meet(number, 2)
    except RoundChanged:
        return "changed"
    return "met"


def holds_planned(seen: dict[int, Any]) -> None:
    """Where there is a plan, who holds a role must live."""
    assert seen == dict.fromkeys(range(SLOTS - 1), "changed")


def an_abort_has_its_status(fabric: Fabric, die: Callable[[], None]) -> Any:
    if fabric.role()[1] == 1:
        fabric.abort(STATUS)
    fabric.barrier()


LAWS = (
    Law(all_know_who_is_who, holds_who_is_who),
    Law(a_barrier_holds_all_until_the_last_came, holds_barrier),
    Law(same_everywhere_names_who_differs, holds_agreement),
    Law(events_are_told_once_and_in_order, holds_events),
    Law(one_reports_the_error, holds_claims),
    Law(the_end_is_the_end_of_all, holds_barrier),
    Law(a_death_is_seen_by_all_and_unwinds_waits, holds_death, (SLOTS - 1,)),
    Law(another_death_changes_the_round, holds_rounds, (SLOTS - 2, SLOTS - 1), True),
    Law(nobody_meets_without_a_holder, holds_planned, (SLOTS - 1,), True),
)
