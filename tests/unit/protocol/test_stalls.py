"""A job that hangs is told from one that waits, and those to blame from those that wait."""

from __future__ import annotations

import pytest

from ftrma.native.constants import WHAT
from ftrma.protocol import stalls
from ftrma.protocol.stalls import Doing, SlotLook, Verdict, judge

LIMIT_S = 10.0
LOCK, FENCE = WHAT["LOCK"], WHAT["FENCE"]


def waits(slot: int, awaited: int | None, still_s: float = 12.0, kind: int = FENCE) -> SlotLook:
    return SlotLook(slot, still_s, 0.0, Doing.WAITS, stalls.WAITS_IN[kind], kind, awaited)


def at_work(slot: int, still_s: float = 0.1, step_s: float = 0.0) -> SlotLook:
    return SlotLook(slot, still_s, step_s)


def found(*looks: SlotLook, by_steps: bool = False) -> tuple[str, tuple[int, ...]] | None:
    verdict = judge(looks, LIMIT_S, by_steps=by_steps)
    return verdict and (verdict.kind, verdict.slots)


@pytest.mark.parametrize("doing", [Doing.STOPPED, Doing.OUTSIDE])
def test_who_does_not_wait_is_to_blame(doing: Doing) -> None:
    """Law: those that wait for it are not, however long they do."""
    assert found(waits(0, 1, 99.0), SlotLook(1, 11.0, doing=doing), waits(2, 1)) == ("stall", (1,))


def test_all_who_hang_are_named() -> None:
    """Law: two slots that stand still are both to blame, for the shorter of their times."""
    verdict = judge([SlotLook(0, 11.0), waits(1, 0), SlotLook(2, 15.0)], LIMIT_S)
    assert verdict == Verdict("stall", (0, 2), 11.0)


def test_nobody_hangs_before_the_limit() -> None:
    """Law: until the limit nothing is said, whoever waits or computes."""
    assert found(waits(0, 1, 9.9), SlotLook(1, 9.9, doing=Doing.STOPPED)) is None
    assert found(waits(0, 1, 99.0), at_work(1)) is None, "it waits for one that works"


def test_who_waits_for_long_hangs_only_with_all() -> None:
    """Law: a worker may wait for work in a call of the library while others go on."""
    idle = SlotLook(1, 99.0, doing=Doing.LIBRARY, call="MPI_Recv")
    assert found(at_work(0), idle) is None
    assert found(waits(0, 1), idle) == ("deadlock", (0, 1))


def test_a_circle_of_waits_is_a_deadlock_beside_others_that_work() -> None:
    """Law: slots that wait for each other never go on, whatever the others do; who waits for the
    circle is not in it."""
    looks = at_work(0), waits(1, 3, kind=LOCK), waits(2, 1), waits(3, 1)
    assert found(*looks) == ("deadlock", (1, 3))
    assert found(at_work(0), waits(1, 3), waits(2, 1), waits(3, None)) is None
    assert found(at_work(0), waits(1, 3), waits(3, 1, 9.0)) is None, "slot 3 was at work just now"


def test_slots_at_the_end_are_no_deadlock_of_their_own() -> None:
    """Law: they are not named, nor judged when all are there."""
    ended = SlotLook(0, 50.0, doing=Doing.ENDED)
    assert found(ended, waits(1, None)) == ("deadlock", (1,))
    assert found(ended, SlotLook(1, 50.0, doing=Doing.ENDED)) is None
    assert found(ended, at_work(1)) is None


def test_calls_without_steps_are_a_circle_if_steps_are_the_measure() -> None:
    """Law: only with a limit that follows from steps, and only if no slot comes on."""
    probing = at_work(0, 0.0, 11.0), at_work(1, 0.0, 12.0)
    assert found(*probing) is None
    assert found(*probing, by_steps=True) == ("circle", (0, 1))
    assert found(probing[0], at_work(1, 0.0, 0.5), by_steps=True) is None
    assert found(probing[0], at_work(1, 0.0, 0.0), by_steps=True) is None, "no safepoint yet"


def test_the_limit_follows_the_longest_step() -> None:
    """Law: nothing is known before a step was seen, and short steps give no short limit."""
    assert stalls.limit_by_steps(10, 0.0) is None
    assert stalls.limit_by_steps(10, 0.001) == stalls.LEAST_S
    assert stalls.limit_by_steps(10, 2.0) == 20.0


@pytest.mark.parametrize(("slots", "spares", "allowed"), [
    ([1], 1, True), ([1], 0, False), ([0, 2], 2, True), ([0, 1], 2, False), ([0, 2], 1, False)])
def test_no_more_is_killed_than_a_group_survives(
    slots: list[int], spares: int, allowed: bool
) -> None:
    """Law: and no more than there are spares; else all vaults are kept, in a launch."""
    assert stalls.may_be_killed(slots, [0, 0, 1, 1], 1, spares) is allowed


def test_who_waits_for_whom_is_told_by_place() -> None:
    """Law: slots at one place are told together; those to blame are left out."""
    looks = [waits(0, 1), SlotLook(1, 11.0), waits(2, 1), waits(3, 1, kind=LOCK),
             SlotLook(4, 11.0, doing=Doing.LIBRARY, call="MPI_Recv"),
             SlotLook(5, 11.0, doing=Doing.ENDED)]
    assert stalls.who_waits(looks, [1]) == (
        "slots 0 and 2 wait in a fence, or another barrier of a window for slot 1; slot 3 waits in "
        "MPI_Win_lock for slot 1; slot 4 waits in MPI_Recv; slot 5 waits at the program's end")
    assert stalls.who_waits(looks[1:2]) == ""
    assert stalls.names([0, 2, 5]) == "slots 0, 2 and 5" and stalls.names([3]) == "slot 3"
