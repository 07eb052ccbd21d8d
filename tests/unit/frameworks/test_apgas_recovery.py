"""Places die in an executor's run, and again while it recovers.

Law: the log of sums is that of a run without deaths, bit for bit. If two places die of which one
keeps what the other one holds, a catastrophe may be told instead, which the program catches.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from apgasplaces import Kill, Outcome, Slow, run_apgas
from apgassteps import oracle, run_steps
from pairwise import pairwise
from tiers import tiers

ACTIVE, SPARES = 5, 4
FIRST_RESERVE = ACTIVE
FIRST = ("step", "checkpoint", "half", "published", "flip", "team", "end", "reply")
SECOND = ("remake", "restore", "load", "mirror", "half", "flip", "published", "checkpoint", "team",
          "admit", "reply")
FACTORS: dict[str, tuple[Any, ...]] = {
    "point": FIRST,
    "victim": (1, 2),
    "time": (1, 2, 6),
    "second": (None, *SECOND),
    "again": (1, 2, 4),
    "who": ("keeper", "kept", "replacement", "other", "idle"),
}
PAIRS = pairwise(FACTORS)


def name_of(case: dict[str, Any]) -> str:
    return "-".join(str(value) for value in case.values())


def second_victim(who: str, victim: int) -> int:
    return {"keeper": victim + 1, "kept": (victim - 1) or ACTIVE - 1, "replacement": FIRST_RESERVE,
            "other": victim + 2, "idle": FIRST_RESERVE + 2}[who]


def kills_of(case: dict[str, Any]) -> dict[int, Kill]:
    kills = {case["victim"]: Kill(f"apgas.{case['point']}", case["time"])}
    if case["second"]:
        kills[second_victim(case["who"], case["victim"])] = Kill(
            f"apgas.{case['second']}", case["again"])
    return kills


def neighbours(dead: tuple[int, ...]) -> bool:
    return any((a - b) % ACTIVE == 1 for a in dead for b in dead)


def assert_right(outcome: Outcome, kills: dict[int, Kill]) -> None:
    assert set(outcome.dead) <= set(kills)
    if outcome.value == "catastrophe":
        assert neighbours(outcome.dead), outcome.dead
    else:
        assert outcome.value == oracle(ACTIVE)


@pytest.mark.parametrize("case", [
    pytest.param(case, id=name_of(case), marks=pytest.mark.plain if i % 16 == 0 else
                 pytest.mark.full if i % 16 == 1 else pytest.mark.nightly)
    for i, case in enumerate(PAIRS)])
def test_pairs_of_the_matrix(case: dict[str, Any]) -> None:
    kills = kills_of(case)
    assert_right(run_apgas(run_steps, ACTIVE, spares=SPARES, kills=kills), kills)


@pytest.mark.full
@pytest.mark.parametrize("point", FIRST)
def test_each_first_point_is_met(point: str) -> None:
    """A matrix whose points nobody comes to proves nothing."""
    kills = {2: Kill(f"apgas.{point}")}
    outcome = run_apgas(run_steps, ACTIVE, spares=SPARES, kills=kills)
    assert outcome.dead == (2,) and outcome.value == oracle(ACTIVE)


@pytest.mark.parametrize("point", tiers(SECOND, plain=["load", "mirror"]))
def test_the_replacement_dies_at_each_point(point: str) -> None:
    kills = {2: Kill("apgas.step", 5), FIRST_RESERVE: Kill(f"apgas.{point}")}
    outcome = run_apgas(run_steps, ACTIVE, spares=SPARES, kills=kills)
    assert outcome.dead == (2, FIRST_RESERVE) and outcome.value == oracle(ACTIVE)


@pytest.mark.plain
def test_nobody_dies() -> None:
    assert run_apgas(run_steps, ACTIVE).value == oracle(ACTIVE)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(1, 301))
def test_random_deaths(number: int) -> None:
    """Up to three places die anywhere; in every second run all stop now and then."""
    chance = random.Random(number)
    points = sorted({*FIRST, *SECOND})
    kills = {victim: Kill(f"apgas.{chance.choice(points)}", chance.randint(1, 8))
             for victim in chance.sample(range(1, ACTIVE + 2), chance.randint(1, 3))}
    slow = Slow(number) if number % 2 else None
    assert_right(run_apgas(run_steps, ACTIVE, spares=SPARES, kills=kills, slow=slow), kills)
