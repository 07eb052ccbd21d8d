"""Programs that wait by looking again and again: their logs stay small, and they are replayed.

Law: whatever the way of looking, and whether the one that looks dies or the one that is looked at,
in the middle of it or later, the recovery is causal and the job ends with the bits of the run
without failure; no log takes more for it than a few records, however often a slot has looked.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
from jobs import Result, run_job
from programs import ROOT, assert_causal
from tiers import tiers

from ftrma.trace.check import check
from ftrma.trace.records import read

SLOTS = 3
BUDGET = 256 << 10
RECORD_BYTES = 80  # of what one look would leave
MOST_BYTES = 64 << 10  # that a log may take: the beginnings of several chunks
ROUNDS = 2
pytestmark = pytest.mark.full

# For each way of looking: where a slot dies in the middle of it, where slot 0 dies as it is about
# to let the others go on, and where a slot dies behind all of it.
PLACES = {
    "shared": ("lock-held:9000", "0@put:1", "put:2"),
    "exclusive": ("lock-held:9000", "0@lock-held:1", "put:2"),
    "get": ("get:9000", "0@atomic:1", "put:2"),
    "probe": ("atomic:3000", "0@atomic:1", "put:2"),
    "read": ("atomic:9000", "0@atomic:1", "put:2"),
    "add": ("atomic:9000", "0@atomic:2", "put:2"),
    "compare": ("atomic:9000", "0@atomic:2", "put:4"),
    "swap": ("atomic:9000", "0@atomic:4", "put:4"),
    "test": ("time:0.4", "0@put:2", "put:2"),
}


def run(way: str, *options: str, takes_s: float = 0.2) -> Result:
    script = ROOT / "tests/faults/replay/polling.py"
    takes_s *= 4 if way == "probe" else 1  # the library takes its time
    budget = ("--log-budget", str(BUDGET), "--policy", "causal")
    return run_job(script, SLOTS, *budget, *options, args=[way, str(ROUNDS), str(takes_s)])


@functools.cache
def expected(way: str) -> list[dict[str, Any]]:
    """Results of the slots without a failure."""
    result = run(way)
    assert result.status == 0 and not result.stats["failures"], result
    assert_small(result)
    return result.of_slots("slot", SLOTS)


def assert_small(result: Result) -> None:
    """The logs have not grown by looking, though somebody has looked very often."""
    polls = max(result.of_slots("polls", SLOTS))
    assert polls * RECORD_BYTES > 2 * BUDGET, polls
    assert all(log["peak_bytes"] <= MOST_BYTES for log in result.stats["log"]), result.stats["log"]


def assert_same(way: str, result: Result) -> None:
    assert result.status == 0, result
    for mine, theirs in zip(expected(way), result.of_slots("slot", SLOTS), strict=True):
        assert mine["cells"].tobytes() == theirs["cells"].tobytes()


CASES = [
    (way, rule if "@" in rule else f"1@{rule}") for way, rules in PLACES.items() for rule in rules
]


@pytest.mark.parametrize(("way", "rule"), tiers(
    CASES, full=["get-1@get:9000"]))
def test_a_slot_that_polls_is_replayed(way: str, rule: str) -> None:
    result = run(way, "--kill", rule)
    assert_same(way, result)
    assert_causal(result, [int(rule[0])], SLOTS + 1)
    assert_small(result)


@pytest.mark.parametrize("way", tiers(PLACES, full=["read"]))
@pytest.mark.nightly
def test_polling_is_exact_by_its_trace(tmp_path: Path, way: str) -> None:
    path = tmp_path / "trace.json"
    result = run(way, "--kill", f"1@{PLACES[way][2]}", "--trace", str(path), takes_s=0.02)
    assert_same(way, result)
    assert_causal(result, [1], SLOTS + 1)
    report = check(read(path))
    assert report.violation is None and report.recoveries == 1, report


LOOKING = "waits by looking at its own memory"


def assert_told(result: Result) -> None:
    """Causal, or the reason that is told names what the program does."""
    for recovery in result.stats["recoveries"]:
        assert recovery["kind"] == "causal" or LOOKING in recovery["reason"], result


@pytest.mark.full
@pytest.mark.parametrize("way", ["sync", "flush", "nap"])
def test_the_reason_of_one_that_looks_at_its_own_part(way: str) -> None:
    result = run_job(
        ROOT / "tests/faults/replay/polling.py", SLOTS, "--kill", "1@put:4", args=[way, "4", "0.1"]
    )
    assert result.status == 0 and len(result.stats["recoveries"]) == 1, result
    for s in range(1, SLOTS):
        cells = result.of_slots("slot", SLOTS)[s]["cells"]
        assert list(cells[:2]) == [4, 28], cells
    assert_told(result)


# One step puts more than the logs hold, then looks again and again.
TOO_MUCH = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8000, 8, comm=comm)
state = ftrma.protect("s", step=0)
cell = np.zeros(1, "i8")
while state.step < 6:
    ftrma.safepoint()
    win.Lock_all()
    for k in range(1500 if state.step == 2 else 3):
        win.Put(np.array([k]), (comm.rank + 1) % comm.size, (k % 100, 1, MPI.INT64_T))
    for _ in range(30000):
        win.Get(cell, 0, (500, 1, MPI.INT64_T))
        win.Fetch_and_op(cell, cell, 0, 501, MPI.NO_OP)
    win.Unlock_all()
    comm.Barrier()
    state.step += 1
"""


def test_what_would_have_been_logged() -> None:
    """Law: the budget that is advised has room for the puts, and none for looking."""
    result = run_job(TOO_MUCH, SLOTS, "--interval", "0", "--log-budget", "48K")
    assert result.status == 0, result
    found = re.search(r"would have logged (\d+) bytes", result.stderr)
    assert found, result
    needed = (48 << 10) + 1500 * RECORD_BYTES
    assert needed / 2 < int(found[1]) < needed * 1.1, result


# Nobody but slot 1 locks slot 2, so the numbers of its locks are known.
NUMBERS = """
import json, os, sys
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
with open(f"{sys.argv[1]}/entered-{os.getpid()}.txt", "a") as f:
    f.write("x")
win = MPI.Win.Allocate(8, 8, comm=comm)
for step in range(30):
    if comm.rank == 1:
        win.Lock(2, MPI.LOCK_SHARED if step % 2 else MPI.LOCK_EXCLUSIVE)
        win.Unlock(2)
    if step % 10 == 0:
        comm.Barrier()
with open(f"{sys.argv[1]}/numbers-{comm.rank}.json", "w") as f:
    json.dump(ftrma.stats()["windows"][0]["sc"], f)
comm.Barrier()
"""


@pytest.mark.parametrize("place", ["lock-held:12", "end"])
def test_the_numbers_of_locks_outlive_a_process(place: str) -> None:
    """Law: SC is in no log, and is right again when the slot is live or at its end."""
    result = run_job(NUMBERS, SLOTS, "--policy", "causal", "--kill", f"1@{place}")
    assert result.status == 0, result
    assert_causal(result, [1], SLOTS + 1)
    assert result.of_slots("numbers", SLOTS) == [[0, 0, 0], [0, 0, 30], [0, 0, 0]]
