"""The message-logging baseline: loggers hold every record that the protocol promises, and the
program does not notice them.

Why: a baseline that stored less than it should would make everything else look expensive.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tree import ROOT

sys.path.insert(0, str(ROOT))

from bench import launching, ml

LIMIT_S = 30
CALLS = ["PUT", "GET", "ACCUMULATE", "GET_ACCUMULATE", "FETCH_AND_OP", "COMPARE_AND_SWAP"]
HEAD = struct.Struct("<QQQiiii")  # struct record of ml.c

# Every kind of access, from slot 0 to slot 1; then what the program sees of the world.
PROGRAM = """
import json, sys, numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, last = comm.Get_rank(), comm.Get_size() - 1
window = MPI.Win.Allocate(8 << 16, 8, comm=comm)
memory = np.frombuffer(window.tomemory(), dtype=np.int64)
memory[:] = np.arange(len(memory)) + 1000 * me
comm.Barrier()
one, old = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
many = np.arange(int(sys.argv[1]), dtype=np.int64)
window.Lock_all()
if me == 0:
    window.Put(np.array([7], dtype=np.int64), last, 3)
    window.Put(one, 0, 3)                                # to itself: no record
    window.Put(many, last, 100)
    window.Flush(last)
    many[:] = -1                                         # too late to be logged
    window.Get(old, last, 5)
    window.Flush_all()
    got = old[0]
    window.Fetch_and_op(one, old, last, 6)
    window.Flush(last)
    window.Compare_and_swap(one, np.array([8], dtype=np.int64), old, last, 7)
    window.Accumulate(one, last, 9)
    column = MPI.INT64_T.Create_vector(3, 1, 2).Commit()
    window.Put([np.arange(5, dtype=np.int64), 1, column], last, [10, 3, MPI.INT64_T])
window.Unlock_all()
window.Fence()
if me == last:
    window.Get(old, 0, 1)
window.Fence()
total = comm.allreduce(me)
half = comm.Split(me % 2, me)
sizes = [comm.Get_size(), comm.Get_group().Get_size(), comm.Dup().Get_size(), half.Get_size()]
window.Free()
if me == 0:
    print(json.dumps({"total": total, "sizes": sizes, "got": int(got)}))
"""


class Record(NamedTuple):
    """One record as a logger keeps it."""

    call: str
    number: int
    source: int
    target: int
    displacement: int
    words: list[int]


def run(
    tmp_path: Path, large: int, ring_bytes: int = 1 << 20, slots: int = 2, loggers: int = 1
) -> dict[str, Any]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    command = ml.command_line(slots, script, [str(large)], loggers, ring_bytes, str(tmp_path),
                              ["ML_KEEP=1"])
    return launching.run(command, LIMIT_S)


def kept(path: Path) -> list[Record]:
    """The records in a ring that did not wrap."""
    ring, found, at = path.read_bytes(), [], 0
    while at < len(ring):
        number, displacement, size, call, source, target, _ = HEAD.unpack_from(ring, at)
        words = struct.unpack_from(f"<{size // 8}q", ring, at + HEAD.size)
        found.append(Record(CALLS[call], number, source, target, displacement, list(words)))
        at += HEAD.size + size
    return found


@pytest.mark.plain
@pytest.mark.parametrize("large", [4, 5000])
def test_every_access_is_logged_with_its_data(tmp_path: Path, large: int) -> None:
    """Law: puts with their data, gets and atomics with result and operands; in program order; large
    data, which travels by itself, as it was when the put was issued."""
    assert run(tmp_path, large) == {"total": 1, "sizes": [2, 2, 2, 1], "got": 1005}
    records = kept(tmp_path / "logger-0.ring")
    of_slot_0 = [r for r in records if r.source == 0]
    assert [r.number for r in of_slot_0] == list(range(len(of_slot_0)))
    # The accumulate is sent when it is issued, the swap before it when it is complete.
    assert [(r.call, r.displacement, r.words) for r in of_slot_0] == [
        ("PUT", 3, [7]),
        ("PUT", 100, list(range(large))),
        ("GET", 5, [1005]),
        ("FETCH_AND_OP", 6, [1006, 1]),
        ("ACCUMULATE", 9, [1]),
        ("PUT", 10, [0, 2, 4]),
        ("COMPARE_AND_SWAP", 7, [1007, 1, 8]),
    ]
    assert [(r.call, r.target, r.words) for r in records if r.source == 1] == [("GET", 0, [1])]
    assert ml.stored(tmp_path, 1) == {
        "records": 8, "bytes": 8 * (large + 12), "wraps": 0,
    }


@pytest.mark.plain
def test_slots_share_the_loggers(tmp_path: Path) -> None:
    assert run(tmp_path, 4, slots=3, loggers=2)["sizes"] == [3, 3, 3, 2]
    assert {r.source for r in kept(tmp_path / "logger-0.ring")} == {0, 2}
    assert {r.source for r in kept(tmp_path / "logger-1.ring")} == set()
    assert ml.stored(tmp_path, 2)["records"] == 8


@pytest.mark.plain
def test_a_full_ring_begins_again(tmp_path: Path) -> None:
    assert run(tmp_path, 4, ring_bytes=2200)["total"] == 1
    told = json.loads((tmp_path / "logger-0.json").read_text())
    assert told["records"] == 8 and told["wraps"] >= 1


@pytest.mark.plain
def test_a_record_larger_than_the_ring_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(launching.BenchError, match="does not fit the loggers' memory"):
        run(tmp_path, 5000, ring_bytes=20_000)


@pytest.mark.plain
def test_a_library_that_cannot_be_built_is_an_error(monkeypatch: Any, tmp_path: Path) -> None:
    source = tmp_path / "ml.c"
    source.write_text("this is not C")
    monkeypatch.setattr(ml, "SOURCE", source)
    with pytest.raises(launching.BenchError, match="cannot build"):
        ml.library.__wrapped__()
