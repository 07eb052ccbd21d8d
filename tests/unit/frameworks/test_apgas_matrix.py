"""Programs that a number draws, places that die at named places of the code, and a checker.

Law: with no death the exceptions of the forecast come; with deaths, these or DPEs of the dead
places alone; the checker finds nothing in the histories, and all ends. Points are met with victims,
times, programs and a second death: by pairs in a plain run, all of them in the night.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import apgasrecorder as api
import pytest
from apgascrowds import adoption_fails, late_messages
from apgasplaces import Kill, Outcome, Slow, run_apgas
from apgasstorm import draw, forecast, weather
from pairwise import pairwise

from ftrma import apgas

PLACES = 4
POINTS = ("count", "append", "admit", "end", "adopt", "reply", "exception")
FACTORS: dict[str, tuple[Any, ...]] = {
    "point": POINTS,
    "victim": (1, 2, 3),
    "time": (1, 2, 5),
    "program": (11, 12, 13, 14, 15),
    "second": (None, *POINTS),
}
PAIRS = pairwise(FACTORS)


def name_of(case: dict[str, Any]) -> str:
    return "-".join(str(value) for value in case.values())


def kills_of(case: dict[str, Any]) -> dict[int, Kill]:
    victim = case["victim"]
    kills = {victim: Kill(f"apgas.{case['point']}", case["time"])}
    if case["second"]:
        kills[victim % (PLACES - 1) + 1] = Kill(f"apgas.{case['second']}", 2)
    return kills


def run_storm(number: int, way: str = "place0", kills: dict[int, Kill] | None = None,
              **options: Any) -> Outcome:
    tree = draw(number, PLACES)
    return run_apgas(lambda: weather(tree), PLACES, finish=way, kills=kills, **options)


def assert_right(number: int, outcome: Outcome, kills: dict[int, Kill]) -> None:
    assert set(outcome.dead) <= set(kills)
    assert outcome.violations() == []
    if outcome.dead:
        dpes = {f"DPE {place}" for place in outcome.dead}
        assert {text for text in outcome.value if not text.startswith("ValueError: ")} <= dpes
    else:
        assert outcome.value == forecast(draw(number, PLACES))


@pytest.mark.plain
@pytest.mark.parametrize("way", ["place0", "none"])
@pytest.mark.parametrize("number", range(1, 3))
def test_nobody_dies(number: int, way: str) -> None:
    assert_right(number, run_storm(number, way), {})


@pytest.mark.parametrize("case", [
    pytest.param(case, id=name_of(case), marks=pytest.mark.plain if i % 8 == 0 else
                 pytest.mark.full if i % 8 == 1 else pytest.mark.nightly)
    for i, case in enumerate(PAIRS)])
def test_pairs_of_the_matrix(case: dict[str, Any]) -> None:
    kills = kills_of(case)
    assert_right(case["program"], run_storm(case["program"], kills=kills), kills)


@pytest.mark.nightly
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("second", FACTORS["second"])
def test_the_whole_matrix(point: str, second: str | None) -> None:
    others = [FACTORS[name] for name in ("victim", "time", "program")]
    for victim, time, program in itertools.product(*others):
        case = {"point": point, "victim": victim, "time": time, "program": program,
                "second": second}
        kills = kills_of(case)
        assert_right(program, run_storm(program, kills=kills), kills)


@pytest.mark.full
@pytest.mark.parametrize("point", [point for point in POINTS if point != "adopt"])
def test_each_point_is_met(point: str) -> None:
    """A matrix whose points nobody comes to proves nothing."""
    kills = {2: Kill(f"apgas.{point}")}
    for number in range(11, 31):
        outcome = run_storm(number, kills=kills)
        assert_right(number, outcome, kills)
        if 2 in outcome.dead:
            return
    raise AssertionError(f"nobody has died at apgas.{point}")


@pytest.mark.plain
def test_the_home_that_adopts_dies_too() -> None:
    """The root's finish then has the orphan of both."""
    outcome = run_apgas(adoption_fails, PLACES, kills={2: Kill("apgas.adopt")})
    assert outcome.dead == (1, 2) and outcome.violations() == []


@pytest.mark.parametrize("number", [
    pytest.param(n, marks=pytest.mark.nightly if n > 2 else pytest.mark.plain)
    for n in range(1, 41)])
def test_messages_of_the_dead_come_late(number: int) -> None:
    """Place two stops amid the admission of tasks, while their finish ends and others begin."""
    outcome = run_apgas(late_messages, PLACES, records=2,
                        kills={1: Kill("apgas.append", 2 + number % 3)},
                        slow=Slow(number, 1.0, (2,), 0.03, ("add",)))
    assert outcome.dead == (1,) and outcome.violations() == []


@pytest.mark.parametrize("number", [
    pytest.param(n, marks=pytest.mark.nightly if n > 3 else pytest.mark.plain)
    for n in range(1, 301)])
def test_all_stop_now_and_then(number: int) -> None:
    """One or two places die at points that the number draws, and records are used again soon."""
    chance = random.Random(number)
    kills = {victim: Kill(f"apgas.{chance.choice(POINTS)}", chance.randint(1, 6))
             for victim in chance.sample((1, 2, 3), chance.randint(1, 2))}
    assert_right(number, run_storm(number, kills=kills, slow=Slow(number), records=30), kills)


def own_weather(number: int) -> list[str]:
    return weather(draw(number * PLACES + apgas.here(), PLACES, 1))


@pytest.mark.parametrize("number", [
    pytest.param(n, marks=pytest.mark.nightly if n > 2 else pytest.mark.full)
    for n in range(1, 101)])
def test_each_place_runs_a_program(number: int) -> None:
    """A place that dies before its program has ended gives a DPE at place zero."""
    chance = random.Random(number)
    kills = {victim: Kill(f"apgas.{chance.choice(POINTS)}", chance.randint(1, 6))
             for victim in chance.sample((1, 2, 3), chance.randint(0, 3))}
    outcome = run_apgas(lambda: api.everywhere(own_weather, number), PLACES, everywhere=True,
                        kills=kills, slow=Slow(number) if number % 2 else None)
    assert outcome.violations() == []
    if not outcome.dead:
        assert outcome.value == forecast(draw(number * PLACES, PLACES, 1))
    ended = {event.place for event in outcome.events if event.subject.startswith("main")
             and event.kind == "end"}
    assert {f"DPE {place}" for place in set(outcome.dead) - ended} <= set(outcome.value)
