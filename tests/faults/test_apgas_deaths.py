"""The applications of `ftrma apgas` under deaths that a number draws.

Law: each comes to its oracle's result, with equal bits where the oracle has bits, whoever dies and
whenever: places, reserves that have taken part, place zero, and whoever repairs. A job may end with
a lost shelf, but only if both places that had it can have died before the recovery; it names the
shelf then.

`PYTHONPATH=tests python tests/faults/test_apgas_deaths.py FIRST COUNT` runs more numbers, and
counts the deaths.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_command

SLOTS = 4
STEPS = ("apgas.step", "apgas.team", "apgas.checkpoint", "apgas.end", "apgas.append", "apgas.half")
REPAIRS = ("apgas.remake", "apgas.restore", "apgas.rebuild", "apgas.load", "apgas.mirror")
SEARCH = ("apgas.commit", "apgas.deal", "apgas.end", "apgas.half", "apgas.intent")
# Arguments of a program, and the visits of a place that come before its end.
PROGRAMS = {
    "kmeans": ("--points 500 --clusters 4 --dimensions 3 --steps 60 --checkpoint 4", 60),
    "logreg": ("--samples 500 --features 5 --steps 60 --checkpoint 4", 60),
    "pagerank": ("--pages 600 --steps 60 --checkpoint 4", 60),
    "lulesh": ("--edge 5 --checkpoint 10", 80),
    "uts": ("--depth 8 --commit 0.01", 12),
}
LOST = re.compile(r"shelf \d+.* lost: the place that held it and the next one")


def rules(dice: random.Random, program: str, most: int) -> list[str]:
    """Deaths of slots and reserves in visits that lie apart, of those that repair, and
    of one that is asked for its part of the result.

    Each process dies once, but place zero, whose death takes all back to the begin, often twice.
    """
    places = SEARCH if program == "uts" else STEPS
    victims = [*map(str, range(SLOTS)), "0", "s0", "s1", "s2"]
    dice.shuffle(victims)
    found = []
    for visit in sorted(dice.sample(range(2, most, 2), dice.randint(3, 5))):
        place = dice.choice(places)
        if place == "apgas.checkpoint":  # one in four steps
            visit = 1 + visit // 4
        found.append(f"{victims.pop()}@{place}:{visit}")
    if dice.random() < 0.5:
        found.append(f"{victims.pop()}@{dice.choice(REPAIRS)}:{dice.randint(1, 3)}")
    if dice.random() < 0.5:
        found.append(f"{victims.pop()}@time:{dice.uniform(0.4, 1.5):.2f}")
    if program != "uts" and dice.random() < 0.5:
        found.append(f"{victims.pop()}@apgas.result")
    return found


def play(seed: int) -> tuple[Result, bool]:
    """Run a job; True: it has the result, False: it has lost a shelf and says so."""
    dice = random.Random(seed)
    program = dice.choice(sorted(PROGRAMS))
    words, most = PROGRAMS[program]
    deaths = rules(dice, program, most)
    kills = [word for rule in deaths for word in ("--kill", rule)]
    with tempfile.TemporaryDirectory() as directory:
        stats = Path(directory) / "stats.json"
        job = run_command([FTRMA, "apgas", program, "-n", str(SLOTS), "--spares",
                           str(len(deaths)), "--max-relaunch", str(len(deaths)), "--stats",
                           str(stats), "--check", *words.split(), *kills])
        job.stats = json.loads(stats.read_text())
    if job.status:
        told = f"{job.stderr}\n{job.stdout}"
        assert job.status == 1 and LOST.search(told) and len(job.stats["failures"]) >= 2, job
        return job, False
    found = json.loads(job.stdout.splitlines()[-1])
    assert found["equal"] and found["places"] == SLOTS, job
    return job, True


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(75))
def test_applications(seed: int) -> None:
    """Law: of the module."""
    play(seed)


def main(first: int, count: int) -> int:
    """Run numbers; returns how many have failed."""
    deaths = failed = lost = 0
    for seed in range(first, first + count):
        try:
            job, whole = play(seed)
        except AssertionError as error:
            failed += 1
            print(json.dumps({"seed": seed, "failed": str(error)[-3000:]}), flush=True)
            continue
        deaths += len(job.stats["failures"])
        lost += not whole
        print(json.dumps({"seed": seed, "deaths": len(job.stats["failures"]), "whole": whole,
                          "in all": deaths, "lost shelves": lost}), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
