"""Programs that know nothing of ftrma, killed at random moments.

Law: whatever a program does with threads, its stdin, directories, communicators of its own,
polling, pools and shared memory, it ends well after any kill, with the memory of the run without
failure, bit for bit; `run_job` sees to it that nothing hangs and nothing is left.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from typing import Any

import numpy as np
import pytest
from jobs import Result, run_job
from programs import ROOT
from tiers import tiers

N = 4
HERE = ROOT / "tests/faults/dropin"
PROGRAMS = ("executor", "answers", "folders", "polls", "shared", "grid", "groups")
LINES = "".join(f"{i * i % 1009}\n" for i in range(900))
MOST_S = 1.5  # a kill comes within this time: somewhere between the first import and the end


def run(program: str, *options: str) -> Result:
    if program == "groups":
        return run_job(HERE.with_name("replay") / "groups.py", N, *options, args=["plain", "40"])
    return run_job(HERE / f"{program}.py", N, *options, stdin=LINES if program == "answers" else "")


@functools.cache
def expected(program: str) -> list[dict[str, Any]]:
    result = run(program)
    assert result.status == 0 and not result.stats["failures"], result
    return result.of_slots("slot", N)


@pytest.mark.parametrize(("program", "seed"), tiers(
    itertools.product(PROGRAMS, range(4)),
    full=["executor-0"]))
def test_random_kills(program: str, seed: int) -> None:
    dice = random.Random(f"{program} {seed}")
    victims = [(dice.randrange(N), dice.uniform(0, MOST_S)) for _ in range(dice.choice((1, 1, 2)))]
    rules = [word for slot, at_s in victims for word in ("--kill", f"{slot}@time:{at_s:.4f}")]
    options = ("--policy", dice.choice(("auto", "auto", "rollback")), "--spares",
               str(dice.randrange(3)), "--interval", "0")
    print(*rules, *options)
    result = run(program, *options, *rules)
    assert result.status == 0, result
    for slot, (found, right) in enumerate(zip(result.of_slots("slot", N), expected(program),
                                              strict=True)):
        for name, array in right.items():
            same = np.asarray(found[name]).tobytes() == np.asarray(array).tobytes()
            assert same, f"{program}: slot {slot}'s {name} differs\n{result}"


# The frame below the signal handler in a stack trace of the MPI library.
CRASH = re.compile(r"\[ 1\] \S*/(libmpi|libopen-pal|mca_)")
POOLS = {"comm": (), "module": ("-m", "mpi4py.futures")}
# Calls of MPI that a slot has made when it dies, of some 200.
PLACES = [(victim, calls) for victim in range(N) for calls in (2, 8, 20, 50, 110)]


@pytest.mark.parametrize(("victim", "calls", "how"), tiers(
    [(*place, how) for place in PLACES for how in POOLS],
    full=["0-50-comm", "1-50-module"]))
def test_pools_of_mpi(victim: int, calls: int, how: str) -> None:
    """Law: slot 0's main thread waits for futures, which a thread of its own fulfils by messages,
    and the pool is not the worse for any death. The library can hang or crash in
    MPI_Intercomm_create, by which a pool begins (Open MPI 5.0.11): then all is launched again,
    after a rollback if only the pool's own thread hangs there."""
    result = run_job(HERE / "pools.py", N, "--kill", f"{victim}@call:{calls}", *POOLS[how],
                     args=[how])
    assert result.status == 0, result
    assert result.results["slot-0"]["found"].tolist() == [n * n for n in range(150)]
    kinds = ["rollback"]
    crashed = CRASH.search(result.stderr) and "no spare is left" in result.stderr
    if calls == 2 and (crashed or "hangs inside the MPI library" in result.stderr):
        kinds = ["relaunch"]
    elif calls == 2 and "(_manager)') goes on" in result.stderr:
        kinds = ["rollback", "relaunch"]
    assert [r["kind"] for r in result.stats["recoveries"]] == kinds, result
