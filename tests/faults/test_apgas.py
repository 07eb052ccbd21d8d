"""A program of ftrma.apgas in whole jobs: a death at each place, of each victim.

In each round every place runs the body of an `at`, which starts a task at all places; some tasks
raise an exception. The program's only other exceptions are those of deaths.
"""

from __future__ import annotations

import re

import pytest
from jobs import Result, run_job
from tiers import tiers

from ftrma.frameworks import apgas

PROGRAM = '''
import json, sys
from ftrma import apgas, framework

ROUNDS = 8


def everyone():
    return [*apgas.places(), *apgas.reserves()]


def leaf(i):
    if i % 2:
        raise ValueError("odd")


def branch(i, allowed):
    try:
        with apgas.finish():
            for place in everyone():
                apgas.async_at(place, leaf, i)
    except apgas.MultipleExceptions as errors:
        assert errors.only((ValueError, apgas.DeadPlaceException)), errors
    for place in everyone():
        apgas.async_at(place, leaf, 0)  # of the finish around the at
    return i * 100 + apgas.here()


def main():
    ended, told = [], set()
    for i in range(ROUNDS):
        for place in everyone():
            try:
                with apgas.finish():
                    ended.append(apgas.at(place, branch, i, None))
            except apgas.MultipleExceptions as errors:
                assert errors.only(apgas.DeadPlaceException), errors
                told |= {e.place for e in errors.of_type(apgas.DeadPlaceException)}
    with open(f"{sys.argv[1]}/root.json", "w") as file:
        json.dump({"ended": sorted(ended), "told": sorted(told), "here": apgas.here(),
                   "living": everyone(), "attempt": framework.attempt()}, file)


if __name__ == "__main__":
    apgas.run(main)
'''
POINTS = ("count", "append", "admit", "end", "reply", "exception")
VICTIMS = {"1": 1, "s0": 4, "0": 0}


def play(*options: str) -> Result:
    """Run the program with slots 0 to 2, checksum rank 3, and spares 4 and 5."""
    job = run_job(PROGRAM, 3, "--spares", "2", *options)
    assert job.status == 0, job
    return job


def test_nobody_dies() -> None:
    """Law: slots and spares are places; all rounds end at all of them."""
    job = play()
    assert not job.stderr
    assert job.results["root"] == {
        "ended": [i * 100 + p for i in range(8) for p in (0, 1, 2, 4, 5)], "told": [], "here": 0,
        "living": [0, 1, 2, 4, 5], "attempt": 1}


@pytest.mark.parametrize(("victim", "point", "count"), tiers(
    [(victim, point, count) for victim in VICTIMS for point in POINTS for count in (1, 4, 15)],
    plain=["0-admit-4"],
    full=["1-append-4", "1-end-15", "1-reply-4", "s0-append-1", "0-append-15"]))
def test_one_dies(victim: str, point: str, count: int) -> None:
    """Law: living places end all rounds, the dead one is told, and none hangs. Place zero's death
    has all run the program again."""
    job = play("--kill", f"{victim}@apgas.{point}:{count}")
    result, dead = job.results["root"], VICTIMS[victim]
    if dead not in result["living"]:
        assert result["attempt"] == (2 if victim == "0" else 1)
        assert set(result["told"]) <= {dead}
        assert re.search(r"slot|spare", job.stderr) and "Traceback" not in job.stderr
    assert {(i, p) for i in range(8) for p in result["living"]} <= {
        divmod(value, 100) for value in result["ended"]}


@pytest.mark.parametrize(("first", "second"), tiers(
    [("1@apgas.admit:3", "2@apgas.end:9"), ("1@apgas.end:5", "1@apgas.end:5"),
     ("2@apgas.append:7", "0@apgas.adopt:1"), ("1@apgas.reply:2", "0@apgas.count:9"),
     ("s1@apgas.end:2", "s0@apgas.admit:8")], full=["1@apgas.admit:3-2@apgas.end:9",
                                                    "1@apgas.reply:2-0@apgas.count:9"]))
def test_two_die(first: str, second: str) -> None:
    """Law: see `test_one_dies`."""
    job = play("--kill", first, "--kill", second)
    result = job.results["root"]
    assert {(i, p) for i in range(8) for p in result["living"]} <= {
        divmod(value, 100) for value in result["ended"]}


SPMD = '''
import json, sys
import numpy as np
from ftrma import apgas


def add(n):
    global got
    got += n


def main():
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    window = MPI.Win.Allocate(8, 8, comm=comm)
    cell = np.frombuffer(window.tomemory(), "i8")
    for i in range(5):
        with apgas.blocking():  # another slot may still wait for its task here
            window.Fence()
            window.Put(np.array([comm.rank * 10 + i]), (comm.rank + 1) % comm.size)
            window.Fence()
        with apgas.finish():
            apgas.async_at((apgas.here() + 1) % comm.size, add, i)
    with apgas.blocking():
        total = comm.allreduce(int(cell[0]))
    assert got == 10
    if comm.rank == 0:
        with open(f"{sys.argv[1]}/root.json", "w") as file:
            json.dump(total, file)
    return total


got = 0
assert apgas.run(main, everywhere=True) in (None, 42)
'''


def test_beside_mpi() -> None:
    """Law: with `everywhere` a program of MPI runs on all slots, with tasks beside its windows."""
    job = run_job(SPMD, 3, "--spares", "1")
    assert job.status == 0, job
    assert job.results["root"] == 42


FAILS = '''
import sys
from ftrma import apgas

how = sys.argv[2]


def fail():
    raise ValueError("a task's")


def main():
    if how == "task":
        apgas.async_at(1, fail)
    if how == "main":
        raise ValueError("the program's")
    if how == "exit":
        apgas.async_at(1, apgas.sleep, 0.05)
        sys.exit(3)
    if how == "reserve":
        apgas.at(3, use_mpi)


def use_mpi():
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()


apgas.run(main)
'''


@pytest.mark.parametrize(("how", "status", "words"), tiers([
    ("task", 1, "ValueError: a task's"), ("main", 1, "ValueError: the program's"),
    ("exit", 3, ""), ("reserve", 1, "this process runs the program as a spare"),
], full=["task-1-ValueError: a task's", "exit-3-",
         "reserve-1-this process runs the program as a spare"]))
def test_ends(how: str, status: int, words: str) -> None:
    """Law: an error of the program, or of its tasks, is the job's; nobody waits for ever."""
    job = run_job(FAILS, 2, "--spares", "1", args=[how])
    assert job.status == status, job
    assert words in job.stderr, job


def test_the_package_imports_nothing() -> None:
    """Law: the command line reads it."""
    assert set(vars(apgas)) >= {"__doc__"} and "MultipleExceptions" not in vars(apgas)
