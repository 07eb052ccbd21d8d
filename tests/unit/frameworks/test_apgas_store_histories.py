"""The resilient store over real processes that are killed at any time: its histories are kept.

Each place writes down when it has called what, and when the call has returned, by the clock that
all processes of a machine share. The root kills places at random moments, and recovers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from linearizable import ANYTHING, NEVER, Operation, is_linearizable
from placeprocesses import run_places
from tiers import tiers

from ftrma import apgas
from ftrma.frameworks.apgas.runtime import current, run_at

PLACES, SPARES, OPERATIONS = 3, 3, 60
CALLS = ["get", "set", "delete", "set_all", "tx", "tx", "get_remote", "get_remote", "set_remote",
         "set2", "set2"]
KEYS = ("x", "y")


class Log:
    """Calls of a place: a line when a call begins, and one when it has ended."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / f"log-{apgas.here()}-{os.getpid()}",
                             os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._number = 0

    def begin(self, writes: list[tuple[int, str, Any]]) -> int:
        self._number += 1
        self._put(["begin", self._number, time.monotonic(), writes])
        return self._number

    def end(self, number: int, reads: list[tuple[int, str, Any]], how: str = "well") -> None:
        self._put(["end", number, time.monotonic(), reads, how])

    def _put(self, line: Any) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def work(store: Any, directory: Path, seed: int) -> None:
    draw, log = random.Random(f"{seed} {apgas.here()}"), Log(directory)
    for i in range(OPERATIONS):
        mine = store.shelves[0]
        value = 1000 * (1 + apgas.here()) + i
        call(store, log, draw, mine, value)
        if draw.random() < 0.3:
            apgas.sleep(draw.random() * 0.002)


def call(store: Any, log: Log, draw: random.Random, mine: int, value: int) -> None:
    """Make a call, and write it down; a write whose death leaves it open may have happened."""
    what, key, other = draw.choice(CALLS), draw.choice(KEYS), draw.randrange(PLACES)
    reads: list[tuple[int, str, Any]] = []
    writes = {"set": [(mine, key, value)], "delete": [(mine, key, None)],
              "set_all": [(mine, k, value) for k in KEYS],
              "tx": [(mine, k, value) for k in KEYS], "set_remote": [(other, key, value)],
              "set2": [(mine, key, value), (other, key, value + 500)]}.get(what, [])
    if what == "set2" and other == mine:
        return
    number = log.begin(writes)
    try:
        if what == "tx":
            with store.transaction() as tx:
                reads += [(mine, k, tx.get(k)) for k in KEYS]
                if draw.random() < 0.3:
                    apgas.yield_()
                for k in KEYS:
                    tx.set(k, value)
        elif what == "set_all":
            store.set_all(dict.fromkeys(KEYS, value))
        elif what == "get":
            reads.append((mine, key, store.get(key)))
        elif what == "get_remote":
            reads.append((other, key, store.get_remote(other, key)))
        elif what == "set_remote":
            store.set_remote(other, key, value)
        elif what == "set2":
            store.set2(key, value, other, key, value + 500)
        else:
            store.set(key, value) if what == "set" else store.delete(key)
        log.end(number, reads)
    except apgas.DeadPlaceAfterCommit:
        log.end(number, reads, "open")
        raise
    except apgas.DeadPlaceException:
        log.end(number, reads, "open" if what == "set_remote" and other != mine else "failed")
        raise


def program(directory: Path, seed: int, kills: int) -> Any:
    draw, active = random.Random(seed), list(range(PLACES))
    store = apgas.ResilientStore(active)
    reserves, recovered, interrupted = list(range(PLACES, PLACES + SPARES)), 0, 0
    apgas.async_(kill_some, draw, active, kills)
    left = 4
    while left:
        try:
            with apgas.finish():
                for place in active:
                    apgas.async_at(place, work, store, directory, seed + left)
            left -= 1
        except apgas.MultipleExceptions as error:
            assert error.only(apgas.DeadPlaceException), error
        while any(map(apgas.is_dead, active)):
            reserves[:] = [p for p in reserves if not apgas.is_dead(p)]
            active[:] = [p if not apgas.is_dead(p) else reserves.pop(0) for p in active]
            try:
                store.recover(active)
                recovered += 1
            except apgas.DeadPlaceException:
                interrupted += 1
            except apgas.CatastrophicFailure:  # another place was killed before a shelf was copied
                return recovered, "lost"
    log = Log(directory)
    for shelf in range(PLACES):
        for key in KEYS:
            number = log.begin([])
            log.end(number, [(shelf, key, store.get_remote(shelf, key))])
    return recovered, interrupted


def kill_some(draw: random.Random, active: list[int], kills: int) -> None:
    """Kill some places of the group, one after the other, never two neighbours at once."""
    for _ in range(kills):
        apgas.sleep(0.01 + draw.random() * 0.1)
        victims = [p for p in active if p != 0 and not apgas.is_dead(p)]
        if len(victims) == len(active) - 1:
            os.kill(PIDS[draw.choice(victims)], signal.SIGKILL)


PIDS: dict[int, int] = {}


def tell_pid(place: int, pid: int) -> None:
    PIDS[place] = pid


def say_pid() -> None:
    apgas.uncounted_async_at(0, tell_pid, apgas.here(), os.getpid())


def histories(directory: Path) -> dict[tuple[int, str], list[Operation]]:
    """The operations on each key, of all logs."""
    found: dict[tuple[int, str], list[Operation]] = defaultdict(list)
    for path in directory.glob("log-*"):
        begun: dict[int, Any] = {}
        for line in path.read_text().splitlines():
            kind, number, at, *rest = json.loads(line)
            if kind == "begin":
                begun[number] = at, rest[0]
                continue
            called, writes = begun.pop(number)
            reads, how = rest
            seen = {(shelf, key): value for shelf, key, value in reads}
            if how == "failed":
                writes = []
            for shelf, key, value in writes:
                found[shelf, key].append(Operation(called, at if how == "well" else NEVER, True,
                                                   value, seen.pop((shelf, key), ANYTHING)))
            for (shelf, key), value in seen.items():
                found[shelf, key].append(Operation(called, at, False, value))
        for called, writes in begun.values():
            for shelf, key, value in writes:
                found[shelf, key].append(Operation(called, NEVER, True, value))
    return found


@pytest.mark.parametrize("seed", tiers(range(40), quick=["0", "1"],
                                       full=["2", "3"]))
def test_histories(seed: int, tmp_path: Path) -> None:
    """Law: the history of each key is linearizable, whoever was killed when."""
    kills = 3 - seed % 2

    def main() -> Any:
        for place in range(1, PLACES + SPARES):
            apgas.uncounted_async_at(place, say_pid)
        current().scheduler.wait(lambda: len(PIDS) == PLACES + SPARES - 1)
        return program(tmp_path, seed, kills)

    found = run_places(PLACES, lambda members: run_at(members, main), spares=SPARES)
    assert isinstance(found[0], tuple), found
    history = histories(tmp_path)
    assert found[0][1] == "lost" or sum(map(len, history.values())) > PLACES * OPERATIONS
    for key, operations in history.items():
        assert is_linearizable(operations), (key, sorted(operations, key=lambda o: o[:2]))
    print(found[0], {key: len(operations) for key, operations in history.items()})
