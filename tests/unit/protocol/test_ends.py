"""The end of a job whose processes end themselves, or whose slot is killed too often."""

from __future__ import annotations

import dataclasses

import pytest

from ftrma.fabric.story import Failure, Scrub
from ftrma.protocol.job_end import STRIKES, JobEnd, OwnExit, decide_end, killed_repeatedly

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
