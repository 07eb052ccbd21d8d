"""The resilient store in jobs: what it holds in the end is that of a run in which nobody dies.

Each shelf counts steps, adds numbers up, and sends a number to the next shelf in each step, all in
one transaction. Whoever dies, wherever and how often, the program recovers the store and goes on;
if the root dies, the program runs again and finds its store as it was.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from jobs import Result, run_job
from tiers import tiers

STEPS, SHELVES = 12, 3
PROGRAM = '''
import json, sys
import numpy as np
from ftrma import apgas

directory, steps, shelves = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def work(store, shelf):
    while (i := store.get("step", 0)) < steps:
        # First: a death may cut this off, and it is done again as long as the step has not passed.
        store.set2("first", i, (shelf + 2) % shelves, f"second {shelf}", i, wait=i % 2 == 0)
        with store.transaction() as tx:
            tx.set("array", tx.get("array", np.zeros(5000)) + i * (shelf + 1))
            tx.set("sum", tx.get("sum", 0) + i * shelf)
            tx.set_remote((shelf + 1) % shelves, f"from {shelf}", i)
            tx.set("step", i + 1)
        apgas.yield_()


def contents(store, shelf):
    names = ["step", "sum", f"from {(shelf - 1) % shelves}", "first",
             f"second {(shelf + 1) % shelves}"]
    return [*(store.get_remote(shelf, name) for name in names),
            store.get_remote(shelf, "array").sum()]


def main():
    active, rounds = list(apgas.places()), 0
    store = apgas.ResilientStore(active)
    recover = False
    while True:
        try:
            if recover:
                rounds += 1
                reserves = list(apgas.reserves())
                active = [p for p in (p if not apgas.is_dead(p) else reserves.pop(0) if reserves
                                      else None for p in active) if p is not None]
                store.recover(active)
                recover = False
            with apgas.finish():
                for shelf, place in enumerate(active):
                    apgas.async_at(place, work, store, shelf)
            break
        except (apgas.DeadPlaceException, apgas.MultipleExceptions) as error:
            if isinstance(error, apgas.MultipleExceptions):
                assert error.only(apgas.DeadPlaceException), error
            recover = True
    with open(f"{directory}/root.json", "w") as file:
        json.dump({"contents": [contents(store, shelf) for shelf in range(shelves)],
                   "rounds": rounds, "main": apgas.here()}, file)


if __name__ == "__main__":
    apgas.run(main)
'''


def expected() -> list[list[float]]:
    total, last = sum(range(STEPS)), STEPS - 1
    return [[STEPS, total * shelf, last, last, last, 5000.0 * total * (shelf + 1)]
            for shelf in range(SHELVES)]


def job(*rules: str, spares: int = 3) -> Result:
    options = [word for rule in rules for word in ("--kill", rule)]
    result = run_job(PROGRAM, SHELVES, "--spares", str(spares), *options,
                     args=[str(STEPS), str(SHELVES)])
    assert result.status == 0, result
    assert result.results["root"]["contents"] == expected(), result
    died = Counter(re.findall(r"(?:slot|spare) \d+(?= died| and slot \d+ died)", result.stderr))
    for victim, times in Counter(rule.partition("@")[0] for rule in rules).items():
        name = f"spare {victim[1:]}" if victim[0] == "s" else f"slot {victim}"
        assert died[name] >= times, result
    return result


@pytest.mark.full
def test_nobody_dies() -> None:
    """Law: the numbers are those that a sum on paper gives."""
    assert job().results["root"]["rounds"] == 0


@pytest.mark.parametrize("rules", tiers([
    "1@apgas.half:9", "1@apgas.published:9", "2@apgas.flip:2", "2@apgas.applied:3",
    "0@apgas.half:9", "0@apgas.published:9", "0@apgas.applied:3", "0@apgas.open:1",
    "0@apgas.mirror:1", "1@apgas.load:1", "2@apgas.mirror:1",
    # A second death, in the recovery from another one: of the replacement, the keeper, the root.
    "1@apgas.published:9 s0@apgas.load", "1@apgas.half:9 s0@apgas.mirror",
    "1@apgas.half:9 0@apgas.open:2",
    "0@apgas.published:9 0@apgas.load:2", "0@apgas.half:9 0@apgas.mirror:2",
    "0@apgas.half:9 0@apgas.open:2", "2@apgas.applied:3 s0@apgas.published:3",
], plain=["1@apgas.published:9 s0@apgas.load"],
   full=["0@apgas.published:9 0@apgas.load:2", "1@apgas.half:9 0@apgas.open:2"]))
def test_deaths(rules: str) -> None:
    """Law: see above."""
    job(*rules.split())


@pytest.mark.full
def test_the_root_dies_with_its_copy() -> None:
    """Law: a shelf whose holder and keeper are dead is told as lost; a program that does not catch
    that is launched again, and finds its store as it was: memory has outlived the processes."""
    result = job("1@apgas.half:9", "0@apgas.mirror:2")
    assert "LostShelves: store 'store': shelf 0 lost" in result.stderr
    assert "launching the job again" in result.stderr and "begins empty" not in result.stderr


LATE = '''
import json, os, signal, sys
from ftrma import apgas


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    active = list(apgas.places())
    store = apgas.ResilientStore(active)
    for place in active:
        apgas.at(place, store.set, "k", 10 * place)
    late = apgas.add_places_and_wait(1)[0]
    apgas.uncounted_async_at(1, die)
    apgas.when(lambda: apgas.is_dead(1))
    active[1] = late
    store.recover(active)
    found = [store.get_remote(shelf, "k") for shelf in range(3)]
    apgas.at(late, store.set, "k", 77)
    with open(f"{sys.argv[1]}/root.json", "w") as file:
        json.dump([*found, store.get_remote(1, "k"), apgas.at(late, store.get, "k")], file)


if __name__ == "__main__":
    apgas.run(main)
'''


@pytest.mark.full
def test_a_late_place_takes_a_shelf() -> None:
    """Law: a place that has come later holds the shelf of a dead one as any reserve."""
    result = run_job(LATE, 3, "--spares", "0")
    assert result.status == 0, result
    assert result.results["root"] == [0, 10, 20, 77, 77]
