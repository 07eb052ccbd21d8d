"""Random deaths in the applications of `bench/apps`, in real processes without MPI.

Law: the result is the oracle's, bit for bit; only if a place and its neighbour die, which keeps
what the place has saved, a catastrophe may be told instead. In every second run all places stop now
and then amid their protocols.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from apgasplaces import Kill, Slow, run_apgas
from tree import ROOT

from ftrma import apgas
from ftrma.frameworks.apgas import glb

sys.path.insert(0, str(ROOT / "bench" / "apps"))
import kmeans
import logreg
import lulesh
import pagerank_apgas
import uts

PLACES, SPARES, STEPS, EVERY, DEPTH, EDGE = 4, 3, 12, 3, 6, 5
POINTS = ("step", "checkpoint", "half", "published", "flip", "team", "end", "reply", "admit",
          "remake", "restore", "load", "mirror")
STEALING = ("commit", "deal", "applied", "intent", "half", "published", "flip", "load", "mirror",
            "admit", "end")


class Ranks(pagerank_apgas.PageRank):
    """Has the ranks of all pages after the last step.

    Attributes:
        final: they.
    """

    def step_local(self, team: Any) -> None:
        super().step_local(team)
        if self.step == self.steps:
            blocks = {first: ranks for its in team.allgather(self.ranks)
                      for first, ranks in its.items()}
            self.final = np.concatenate([blocks[first] for first in sorted(blocks)])


class Blast(lulesh.Lulesh):
    """Has the energies of all elements after the last step.

    Attributes:
        final: they.
    """

    def step_local(self, team: Any) -> None:
        super().step_local(team)
        if self.slab.cycle == self.steps:
            self.final = np.concatenate(team.allgather(self.slab.e))


def steps_of(attribute: str, make: Any, *arguments: Any) -> bytes:
    """Run an application by an executor; the bytes of its result."""
    executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(), EVERY)
    return np.asarray(getattr(executor.run(make, *arguments), attribute)).tobytes()


PROGRAMS: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[str, ...]]] = {
    "kmeans": (lambda: steps_of("centres", kmeans.KMeans, 60, 3, 2, STEPS),
               lambda: kmeans.oracle(PLACES, 60, 3, 2, STEPS).tobytes(), POINTS),
    "logreg": (lambda: steps_of("weights", logreg.LogisticRegression, 60, 4, STEPS),
               lambda: logreg.oracle(PLACES, 60, 4, STEPS).tobytes(), POINTS),
    "pagerank": (lambda: steps_of("final", Ranks, 120, STEPS),
                 lambda: pagerank_apgas.oracle(120, STEPS).tobytes(), POINTS),
    "lulesh": (lambda: steps_of("final", Blast, EDGE, STEPS),
               lambda: lulesh.oracle(EDGE, STEPS).e.tobytes(), POINTS),
    "uts": (lambda: glb.run(uts.Nodes.root(DEPTH), commit_s=0.002)[0],
            lambda: uts.sequential(DEPTH), STEALING),
}


def caught(program: Callable[[], Any]) -> Any:
    try:
        return program()
    except apgas.CatastrophicFailure:
        return "catastrophe"
    except apgas.MultipleExceptions as error:
        if error.of_type(apgas.CatastrophicFailure):
            return "catastrophe"
        raise


def neighbours(dead: tuple[int, ...]) -> bool:
    """Say whether two of the dead may have had a shelf together; a reserve may be anybody's."""
    return len(dead) > 1 and (any(p >= PLACES for p in dead) or any(
        (a - b) % PLACES == 1 for a in dead for b in dead))


@pytest.mark.parametrize("number", [
    pytest.param(n, marks=pytest.mark.nightly if n > 1 else pytest.mark.full)
    for n in range(1, 61)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_deaths(name: str, number: int) -> None:
    program, oracle, points = PROGRAMS[name]
    chance = random.Random(f"{name} {number}")
    kills = {victim: Kill(f"apgas.{chance.choice(points)}", chance.randint(1, 6))
             for victim in chance.sample(range(1, PLACES + 2), chance.randint(1, 3))}
    outcome = run_apgas(lambda: caught(program), PLACES, spares=SPARES, kills=kills,
                        slow=Slow(number) if number % 2 else None)
    if outcome.value == "catastrophe":
        assert neighbours(outcome.dead)
    else:
        assert outcome.value == oracle()
