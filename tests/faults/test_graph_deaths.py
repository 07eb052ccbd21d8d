"""Graph programs of all kinds under deaths that a number draws.

Law: with each recovery that a program has it comes to the bits of the run without deaths, or to
another right result where many are, whoever dies and whenever, as long as no group loses more
members at once than it has checksum ranks.

`PYTHONPATH=tests python tests/faults/test_graph_deaths.py FIRST COUNT` runs more numbers, and
counts the deaths.
"""

from __future__ import annotations

import json
import random
import sys

import graphruns
import pytest
import test_phoenix
from jobs import Result
from programs import kinds

SLOTS = graphruns.SLOTS
STEPS = ("graph.compute", "graph.emit", "graph.exchange", "graph.sync")
ROUNDS = ("graph.compute", "graph.exchange", "graph.sync")
CLAIMED = {"reentry"}
DECLARED = {"causal", "rollback"}
MANY = 3  # programs in a job
TWO_LOST = ("--checksums", "2", "--group-size", "4")


def rules(dice: random.Random, places: tuple[str, ...], most: int) -> list[str]:
    """Deaths of slots in steps that lie apart, of those that repair, and of checksum ranks."""
    visits = sorted(dice.sample(range(2, most, 2), dice.randint(4, 8)))
    found = [f"{dice.randrange(SLOTS)}@{dice.choice(places)}:{visit}" for visit in visits]
    if dice.random() < 0.3:
        found.append(f"{dice.randrange(SLOTS)}@graph.recover:{dice.randint(2, 3)}")
    if dice.random() < 0.3:
        found.append(f"c{dice.randrange(2)}@{dice.choice(['sum', 'commit', 'fold'])}:2")
    return found


def vertex_programs(seed: int) -> Result:
    """Run some of Pregel's kind; their bits have to be those of the run without deaths."""
    dice = random.Random(seed)
    every = graphruns.PROGRAMS + graphruns.FULL + graphruns.ANALYTICS
    names = tuple(dice.sample(every, MANY))
    recovery = dice.choice([*graphruns.RECOVERIES, *sorted(DECLARED)])
    deaths = rules(dice, STEPS, 80)
    result = graphruns.run(recovery, names, "--spares", str(len(deaths)), *TWO_LOST,
                           *graphruns.kill(*deaths))
    graphruns.assert_same(result, names)
    assert set(kinds(result)) <= (DECLARED if recovery in DECLARED else CLAIMED), result
    return result


def phoenix_programs(seed: int) -> Result:
    """Run some of Phoenix's; their results have to be right."""
    dice = random.Random(seed)
    names = tuple(dice.sample(sorted(test_phoenix.ROUNDS), MANY))
    deaths = rules(dice, ROUNDS, 120)
    result = test_phoenix.run(names, "--spares", str(len(deaths)), *TWO_LOST,
                              *test_phoenix.kill(*deaths), recovery=dice.choice(["phoenix", "cr"]))
    test_phoenix.assert_right(result, names)
    assert set(kinds(result)) <= CLAIMED, result
    return result


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_vertex_programs(seed: int) -> None:
    """Law: of the module."""
    vertex_programs(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_phoenix_programs(seed: int) -> None:
    """Law: of the module."""
    phoenix_programs(seed)


def main(first: int, count: int) -> int:
    """Run numbers, every third one with programs of Phoenix; returns how many have failed."""
    deaths = failed = 0
    for seed in range(first, first + count):
        play = phoenix_programs if seed % 3 == 2 else vertex_programs
        try:
            result = play(seed)
        except AssertionError as error:
            failed += 1
            print(json.dumps({"seed": seed, "failed": str(error)[-3000:]}), flush=True)
            continue
        deaths += len(result.stats["failures"])
        print(json.dumps({"seed": seed, "deaths": len(result.stats["failures"]),
                          "recoveries": kinds(result), "in all": deaths}), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
