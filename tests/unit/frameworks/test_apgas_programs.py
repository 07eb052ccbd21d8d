"""The programs of `tests/apgasprograms.py` in real processes without MPI, and their histories.

Law: each program's checks hold, the checker finds nothing, and just the places have died that the
program kills. Under the finish "none" the programs without deaths run alike.
"""

from __future__ import annotations

import time

import pytest
from apgasplaces import run_apgas
from apgasprograms import PROGRAMS, Program, living, run_program
from apgasrecorder import async_at, finish, step

from ftrma import apgas

pytestmark = pytest.mark.plain
BUSY_S = 0.8


def run_named(name: str, way: str) -> None:
    program: Program = PROGRAMS[name]
    outcome = run_apgas(lambda: run_program(name), program.places, finish=way)
    assert len(outcome.dead) == program.deaths, outcome.dead
    assert outcome.events and outcome.violations() == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    run_named(name, "place0")


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not PROGRAMS[name].deaths])
def test_program_without_protection(name: str) -> None:
    run_named(name, "none")


@pytest.mark.parametrize(
    "name", ["finish_in_an_at", "nested_finish_middle_fail", "finish_at_async"])
def test_program_with_idle_places(name: str) -> None:
    program = PROGRAMS[name]
    outcome = run_apgas(lambda: run_program(name), program.places + 1, spares=2)
    assert len(outcome.dead) == program.deaths and outcome.violations() == []


def compute(seconds: float) -> None:
    """Give the baton to nobody, and look at no mail."""
    step()
    time.sleep(seconds)


def beside_a_busy_place() -> tuple[float, int]:
    """The time of finishes over place one while place two computes, before and after a death."""
    _, first, second, third = living()
    taken = 0.0
    with finish():
        async_at(second, compute, BUSY_S)
        for function in (apgas.here, apgas.kill_here, apgas.here):
            began = time.monotonic()
            try:
                with finish():
                    async_at(first, function)
                    async_at(third, apgas.here)
            except apgas.MultipleExceptions as error:
                assert [e.place for e in error.of_type(apgas.DeadPlaceException)] == [first]
            taken = max(taken, time.monotonic() - began)
    return taken, first


def test_a_busy_place_delays_nobody() -> None:
    outcome = run_apgas(beside_a_busy_place, 4)
    taken, first = outcome.value
    assert outcome.dead == (first,) and taken < BUSY_S / 2
    assert outcome.violations(delay_s=BUSY_S / 2) == []
