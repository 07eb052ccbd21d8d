"""Jobs of apgas: X10's resiliency programs, and drawn ones with a death at each named place.

Law: each program's checks hold, as without MPI (`tests/unit/frameworks/test_apgas_programs.py`);
the histories of the last attempt keep the laws of `tests/apgaschecker.py`. Place zero's death is a
rollback: all run the program again, and it ends as if nothing had happened, but for the dead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apgaschecker import check
from apgasprograms import PROGRAMS
from apgasrecorder import parse
from apgassteps import oracle
from apgasstorm import draw, forecast
from jobs import Result, run_job
from tiers import tiers

JOB = Path(__file__).parents[1] / "apgasjob.py"
PLACES = 4
POINTS = ("count", "append", "admit", "end", "adopt", "reply", "exception")
QUIET = [name for name, program in PROGRAMS.items() if not program.deaths]
DEADLY = [name for name, program in PROGRAMS.items() if program.deaths]


def job(*names: str, way: str = "place0", spares: int = 0, kills: tuple[str, ...] = ()) -> Result:
    rules = [word for rule in kills for word in ("--kill", rule)]
    return run_job(JOB, PLACES, "--spares", str(spares), *rules, args=[way, *names])


def assert_sound(result: Result) -> dict[str, Any]:
    """Return all that the program has told, if all of the last attempt keeps the laws."""
    assert result.status == 0, result
    told = result.results["told"]
    events = [event for name, text in result.results.items() if name != "told"
              for event in parse(name, text) if event.attempt == told["attempt"]]
    assert events and check(events, told["dead"], delay_s=10.0) == [], result
    return told


def deaths_of(names: list[str]) -> int:
    return sum(PROGRAMS[name].deaths for name in names)


@pytest.mark.full
@pytest.mark.parametrize("share", range(4))
def test_programs_that_lose_places(share: int) -> None:
    names = DEADLY[share::4]
    told = assert_sound(job(*names, spares=deaths_of(names)))
    assert len(told["dead"]) == deaths_of(names) and told["attempt"] == 1


@pytest.mark.full
@pytest.mark.parametrize("way", ["place0", "none"])
def test_programs_without_deaths(way: str) -> None:
    assert_sound(job(*QUIET, way=way))


@pytest.mark.parametrize("point", tiers(POINTS, full=["append", "adopt"]))
def test_place_zero_dies_at_a_point(point: str) -> None:
    """All run the program again, in the places that are left."""
    name = "nested_finish_middle_fail" if point == "adopt" else "storm:12"
    time = 1 if point in ("adopt", "exception") else 3
    told = assert_sound(job(name, spares=2, kills=(f"0@apgas.{point}:{time}",)))
    assert told["attempt"] == 2 and 0 in told["dead"], told
    if point != "adopt":
        assert told["dead"] == [0]
        assert told["told"][name] == forecast(draw(12, PLACES))


@pytest.mark.full
def test_a_checksum_rank_dies() -> None:
    """It runs no tasks: nothing is told."""
    result = job("storm:13", kills=("c0@time:0.5",))
    assert assert_sound(result)["told"]["storm:13"] == forecast(draw(13, PLACES))


@pytest.mark.nightly
@pytest.mark.parametrize("rule", ["s0@time:0.5", "2@apgas.append:4"])
def test_one_death(rule: str) -> None:
    told = assert_sound(job("storm:14", spares=1, kills=(rule,)))
    dpes = {f"DPE {place}" for place in told["dead"]}
    assert {t for t in told["told"]["storm:14"] if not t.startswith("ValueError")} <= dpes


# Slot 0 of slots 0 to 3 is place zero. Places two and zero are no neighbours.
RECOVERIES = {
    "step": ("0@apgas.step:5",),
    "checkpoint": ("0@apgas.checkpoint:3",),
    "half": ("0@apgas.half:4",),
    "published": ("0@apgas.published:5",),
    "team": ("0@apgas.team:8",),
    "rebuild": ("2@apgas.step:5", "0@apgas.rebuild"),
    "open": ("2@apgas.step:5", "0@apgas.open:2"),
    "remake": ("2@apgas.step:5", "0@apgas.remake"),
    "restore": ("2@apgas.step:5", "0@apgas.restore"),
    "others": ("1@apgas.step:3", "3@apgas.checkpoint:4"),
}


@pytest.mark.parametrize("point", tiers(RECOVERIES, full=["checkpoint", "restore"]))
def test_an_executor_goes_on(point: str) -> None:
    """Also after the death of place zero, which is a rollback: from the store's checkpoint."""
    kills = RECOVERIES[point]
    result = job("steps:3", spares=3, kills=kills)
    assert result.status == 0, result
    told = result.results["told"]
    assert told["attempt"] == (2 if any(rule[0] == "0" for rule in kills) else 1), told
    assert len(told["dead"]) == len(kills) and told["told"]["steps:3"] == oracle(PLACES), told
