"""A slot dies within a put: its bytes are in place, and it has not gone on.

Law: nobody sees the put twice. Bytes that lie where they were put count as done: the recovery is
causal; where the target has taken them away meanwhile all go back, with the reason in words; a
large put is made again while its target has not come back from a call. Whatever it is, the end is
that of the run without failure.
"""

from __future__ import annotations

import pytest
from jobs import Result, run_job
from nodes import remove_fake_ssh, run_on_nodes
from programs import assert_rollback, kinds

# Slot 0 signals slot 1, which counts the signals and takes each back ("reset") or leaves it there
# until both have met ("keep"); it looks with Sync in between.
PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI
directory, way, words, made = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
comm = MPI.COMM_WORLD
me = comm.rank
if made == "create":
    cells = np.zeros(8192, "i8")
    win = MPI.Win.Create(cells, 8, comm=comm)
else:
    win = MPI.Win.Allocate(8 * 8192, 8, comm=comm)
    cells = np.frombuffer(win.tomemory(), "i8")
    cells[:] = 0
kind = MPI.INT64_T
if made == "layout":
    kind = MPI.INT64_T.Create_vector(words, 1, 2).Commit()
    target = (16, 1, kind)
else:
    target = (16, words, kind)
comm.Barrier()
got, one = np.zeros(1, "i8"), np.ones(words, "i8")
last = 16 + (words - 1) * (2 if made == "layout" else 1)
win.Lock_all()
for step in range(1, 9):
    if me == 0:
        win.Put(one, 1, target)
        win.Flush(1)
        while got[0] < step:
            win.Fetch_and_op(one[:1].copy(), got, 1, 1, MPI.NO_OP)
            win.Flush(1)
    if me == 1:
        while cells[last] == 0:
            win.Sync()
        if way == "reset":
            cells[last] = 0
        cells[1] += 1
        win.Sync()
    if way == "keep":
        comm.Barrier()
        cells[16:] = 0
        comm.Barrier()
win.Unlock_all()
comm.Barrier()
np.save(f"{directory}/slot-{me}.npy", cells)
"""
TOLD = "it died within a put, upon which its target may have acted"


def assert_counted(result: Result, way: str) -> None:
    assert result.status == 0, result
    cells = result.of_slots("slot", 2)[1]
    assert cells[1] == 8 and cells[16:].sum() == 0, (way, cells[:20])


@pytest.mark.parametrize(
    ("way", "words", "made"),
    [
        ("reset", 1, "allocate"),
        pytest.param("reset", 1, "create", marks=pytest.mark.full),
        pytest.param("reset", 1, "layout", marks=pytest.mark.full),
        pytest.param("keep", 1, "allocate", marks=pytest.mark.full),
        pytest.param("keep", 8, "create", marks=pytest.mark.full),
    ],
)
def test_a_signal(way: str, words: int, made: str) -> None:
    result = run_job(
        PROGRAM, 2, "--kill", "0@put-landed:4", args=[way, str(words), made], timeout=30
    )
    assert_counted(result, way)
    if way == "keep":
        assert kinds(result) == ["causal"], result
    else:
        assert_rollback(result, TOLD)


@pytest.mark.full
def test_a_large_put_whose_target_has_gone_on() -> None:
    result = run_job(
        PROGRAM, 2, "--kill", "0@put-landed:4", args=["keep", "4096", "allocate"], timeout=30
    )
    assert_counted(result, "keep")
    assert_rollback(result, TOLD)


# In a fence that has begun nobody acts upon anything.
FENCED = """
import sys
import numpy as np
from ftrma import MPI
comm = MPI.COMM_WORLD
me = comm.rank
win = MPI.Win.Allocate(8 * 8192, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
for step in range(8):
    win.Fence()
    if me == 0:
        win.Put(np.full(4096, step), 1, (0, 4096, MPI.INT64_T))
    win.Fence()
np.save(f"{sys.argv[1]}/slot-{me}.npy", cells)
"""


@pytest.mark.full
def test_a_large_put_whose_target_waits() -> None:
    result = run_job(FENCED, 2, "--kill", "0@put-landed:4", timeout=30)
    assert result.status == 0 and kinds(result) == ["causal"], result
    assert list(result.of_slots("slot", 2)[1][4090:4100]) == [7] * 6 + [0] * 4


@pytest.mark.full
@pytest.mark.parametrize("in_turn", [False, True])
def test_over_nodes(in_turn: bool) -> None:
    """The target on the same node, and on another one, where its agent knows what it has done."""
    try:
        result = run_on_nodes(
            PROGRAM, 3 - in_turn, "--spares", "2", "--kill", "0@put-landed:4",
            args=["reset", "1", "allocate"], in_turn=2 if in_turn else 0, timeout=60,
        )
    finally:
        remove_fake_ssh()
    assert result.status == 0, result
    assert result.results["slot-1"][1] == 8, result
