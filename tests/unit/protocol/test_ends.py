"""The end of a job whose processes end themselves, or whose slot is killed too often."""

from __future__ import annotations

import dataclasses

import pytest

from ftrma.fabric.story import Event, Failure, Relaunch, Scrub, Stall
from ftrma.protocol.job_end import (
    NO_PROGRESS,
    STRIKES,
    JobEnd,
    OwnExit,
    decide_end,
    killed_repeatedly,
    no_progress,
    setbacks,
    step_of,
)

CRASH, SEVEN, WELL = OwnExit(by_signal=11), OwnExit(status=7), OwnExit()
LIBRARY = OwnExit(status=1, sure=False)


@pytest.mark.parametrize(
    ("left", "failing", "waiting", "status"),
    [
        ({}, False, True, None),
        ({1: SEVEN}, False, False, 7),
        ({1: SEVEN}, True, False, 7),
        ({1: CRASH}, False, False, 139),
        ({1: CRASH}, True, True, None),
        ({2: WELL, 1: SEVEN}, False, True, 7),
        ({2: SEVEN, 1: CRASH}, False, True, 7),
        ({2: CRASH, 1: SEVEN}, False, True, 139),
        ({1: LIBRARY}, False, False, 1),
        ({1: LIBRARY}, True, False, None),
        ({0: WELL}, False, False, None),
        ({0: WELL}, False, True, 70),
        ({0: WELL}, True, True, None),
        ({0: WELL, 1: WELL, 2: WELL}, False, False, 0),
    ],
)
def test_the_end_is_the_programs(
    left: dict[int, OwnExit], failing: bool, waiting: bool, status: int | None
) -> None:
    """Law: the first bad end is the job's, a crash beside a failure is none; good ends count when
    all have them, and are told when others wait for those who are gone."""
    end = decide_end(left, 3, failing=failing, waiting=waiting)
    assert (end.status if end else None) == status
    assert not (end and status and not end.words)


def test_the_words_name_slot_and_signal() -> None:
    end = decide_end({1: CRASH}, 3, failing=False, waiting=False)
    assert end and "slot 1 crashed: SIGSEGV (Segmentation fault)" in end.words
    assert decide_end({1: SEVEN}, 3, failing=False, waiting=False) == JobEnd(
        7, "slot 1 ended itself with status 7"
    )


def death(slot: int = 1, at: tuple[int, int] = (0, 5), place: str = "unknown",
          waited: bool = False, role: str = "slot") -> Failure:
    return Failure(role, slot, 4711, place, at=at, waited=waited)


def test_killed_again_and_again() -> None:
    """Law: STRIKES deaths of one slot, one behind the other, at one place, from outside, while it
    computed; other slots' deaths between do not matter."""
    assert killed_repeatedly([death()] * STRIKES) == 1
    assert killed_repeatedly([death(), death(0), death(), Scrub("slot", 1, 2), death()]) == 1
    assert killed_repeatedly([death()] * (STRIKES - 1)) is None


@pytest.mark.parametrize(
    "other",
    [death(at=(0, 6)), death(at=(1, 5)), death(place="fence"), death(waited=True)],
    ids=["another event", "behind a checkpoint", "by a rule", "while it waited"],
)
def test_what_breaks_the_row(other: Failure) -> None:
    for at in range(STRIKES):
        story = [death()] * STRIKES
        story[at] = other
        assert killed_repeatedly(story) is None
        assert killed_repeatedly([*story, *[death()] * STRIKES]) == 1
    assert killed_repeatedly([other] * 2 + [death()] * (STRIKES - 1)) is None


def test_servers_are_not_counted() -> None:
    """Law: neither checksum ranks, nor what a job over several nodes tells without a place."""
    assert killed_repeatedly([death(role="checksum")] * 5) is None
    assert killed_repeatedly([dataclasses.replace(death(), at=None)] * 5) is None


def test_a_slot_that_hung_was_not_killed_for_its_memory() -> None:
    """Law: the watcher kills a slot that hangs as often as it hangs, and that is told otherwise."""
    hung = Stall("stall", (1,), 10.0, action="replace", pids=(4711,))
    assert killed_repeatedly([hung, *[death()] * STRIKES]) is None
    other = Stall("stall", (1,), 10.0, pids=(4712,))
    assert killed_repeatedly([other, *[death()] * STRIKES]) == 1


def failure(step: int | None, repair: int, slot: int = 1, place: str = "unknown",
            role: str = "slot") -> Failure:
    return Failure(role, slot, 4711, place, step=step, repair=repair)


def again(step: int | None, repair: int) -> Relaunch:
    return Relaunch("no spare is left", (), step=step, repair=repair)


@pytest.mark.parametrize(("steps", "events", "found"), [
    ([4, 5, 5], [90, 91, 92], 5), ([0, 0], [7, 9], -9), ([0, 0], [0, 0], None), ([], [], None)])
def test_the_step_of_a_job(steps: list[int], events: list[int], found: int | None) -> None:
    """Law: safepoints count if there are any, else events; what is not known is not made up."""
    assert step_of(steps, events) == found


@pytest.mark.parametrize(("story", "found"), [
    ([failure(5, 0), failure(5, 1)], [5, 5]),
    ([failure(5, 0), failure(5, 0, slot=2), failure(6, 1)], [5, 6]),  # two in one repair
    ([failure(5, 3), again(5, 3), failure(5, 0)], [5, 5]),  # the launch follows from the death
    ([failure(5, 3), again(5, 4), failure(5, 0)], [5, 5, 5]),  # and here from something else
    ([again(5, 0), again(5, 0)], [5, 5]),
    ([failure(5, 0), failure(5, 1, role="spare"), Scrub("slot", 1, 2)], [5]),
    ([failure(5, 0, place="fence"), failure(5, 1)], [None, 5]),
    ([failure(5, 0), failure(5, 0, place="fence")], [None]),
    ([failure(5, 0), again(None, 0), again(None, 0), failure(5, 0)], [5, 5]),  # several nodes
])
def test_setbacks(story: list[Event], found: list[int | None]) -> None:
    """Law: one for each repair or launch, none for what changes nothing, None for kills on
    purpose."""
    assert setbacks(story) == found


def test_no_progress() -> None:
    """Law: a job that fails at one step once more than it may be recovered there ends with 93; one
    failure elsewhere begins the count anew, and so does one that is not known."""
    def row(*steps: int | None) -> list[Event]:
        return [failure(step, i) for i, step in enumerate(steps)]

    end = no_progress(row(3, 7, 7, 7, 7), 3)
    assert end and end.status == NO_PROGRESS == 93
    assert "failed 4 times running at safepoint 7, and no recovery came further" in end.words
    assert no_progress(row(7, 7, 7), 3) is None
    assert no_progress(row(7, 7, 7, 8), 3) is None, "it came further"
    assert no_progress(row(7, 7, 8, 7, 7), 3) is None
    assert no_progress(row(7, 7, None, 7, 7), 3) is None
    assert no_progress(row(None, None, None, None), 3) is None
    assert no_progress(row(7, 7, 7, 7), 0) is None, "it may go on for ever"
    end = no_progress(row(-40, -40), 1)
    assert end and "at event 40 (it passes no safepoints)" in end.words
