"""Executors and load balancing under deaths at any instruction: the result, or a loss that is told.

A number draws a program, the places that die, and when; a timer's signal kills them. A program may
end with its oracle's result, or say that reserves are short, that neighbours died at once, or that
a place died behind the run.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import Any

import pytest
from placeprocesses import Ended, run_places
from unit.frameworks import test_apgas_executors as loops
from unit.frameworks import test_apgas_glb as bags

from ftrma import apgas
from ftrma.framework import Members
from ftrma.frameworks.apgas import runtime

PLACES, SPARES = 4, 3
LONGEST_S = 0.3  # until a death: about twice what a program takes
SEEDS = 20  # of a case
ALARM = Ended(signal.SIGALRM)


def shrinking_loop() -> bool:
    executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(allow_shrinking=True), loops.EVERY)
    first = sum(executor.manager.active_places())
    total = executor.run(loops.Sum).total
    # Places that died before the run have never been counted.
    return bool(total % loops.STEPS == 0 and total <= first * loops.STEPS)


PROGRAMS: dict[str, tuple[Callable[[], bool], int]] = {
    "loop": (lambda: loops.run_small()[0] == loops.oracle(), SPARES),
    "implicit": (lambda: loops.run_small(True)[0] == loops.oracle(), SPARES),
    "global": (lambda: loops.run_global() == [c for c, _, _ in loops.oracle()], SPARES),
    "tree": (lambda: bags.count()[0] == bags.SIZE, SPARES),
    "fewer": (shrinking_loop, 0),
    "fewer-tree": (lambda: bags.count(shrink=True)[0] == bags.SIZE, 0),
}


def told(program: Callable[[], bool]) -> Any:
    """Run a program; its loss, if it tells of one, is an end as good as its result."""
    try:
        return program()
    except (apgas.CatastrophicFailure, apgas.NotEnoughPlaces, apgas.DeadPlaceException):
        return True
    except apgas.MultipleExceptions as error:
        return error.only((apgas.DeadPlaceException, apgas.CatastrophicFailure)) or str(error)


@pytest.mark.nightly
@pytest.mark.parametrize("case", range(10))
def test_random_deaths(case: int) -> None:
    for seed in range(case * SEEDS, (case + 1) * SEEDS):
        rng = random.Random(seed)
        name = rng.choice(list(PROGRAMS))
        program, spares = PROGRAMS[name]
        deaths = {rng.randrange(1, PLACES + spares): rng.uniform(1e-4, LONGEST_S)
                  for _ in range(rng.choice((1, 1, 2, 3)))}

        def be_place(members: Members, deaths: dict[int, float] = deaths,
                     program: Callable[[], bool] = program) -> Any:
            if members.me in deaths:
                signal.setitimer(signal.ITIMER_REAL, deaths[members.me])
            value = runtime.run_at(members, lambda: told(program))
            signal.setitimer(signal.ITIMER_REAL, 0)
            return value

        ends = run_places(PLACES, be_place, spares=spares)
        assert ends[0] is True, (seed, name, deaths, ends)
        assert all(ends[place] in (None, ALARM) for place in range(1, PLACES + spares)), ends
