"""MPI semantics for programs whose threads call at once (MPI_THREAD_MULTIPLE).

Law: what a thread does is what it would do alone, whatever the others do at that moment: on windows
and communicators of their own, and on one that they share.
"""

from __future__ import annotations

import pytest
from jobs import run_job
from nodes import run_on_nodes
from tiers import tiers

SLOTS = 2
HEAD = """
import threading
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
me, n, threads = world.rank, world.size, 4
comms = [world.Dup() for _ in range(threads)]
failed = []

def work(i):
    try:
        each(i, comms[i])
    except BaseException as error:
        failed.append(f"thread {i}: {error}")

def together():
    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed
"""
PROGRAMS = {
    # Each puts by a layout of its own, and looks at what has arrived.
    "layouts": """
import sys
sys.setswitchinterval(1e-5)
windows = [MPI.Win.Allocate(16 * 500, 8, comm=MPI.COMM_SELF) for _ in range(threads)]
def each(i, comm):
    win, cells = windows[i], np.frombuffer(windows[i].tomemory(), "i8")
    win.Lock(0)
    for length in (200, 500):
        layout = MPI.INT64_T.Create_vector(length, 1, 2).Commit()
        got = np.zeros(length, "i8")
        for step in range(4000):
            value = 10000 * i + step
            win.Put((np.full(length, value), length, MPI.INT64_T), 0, (0, 1, layout))
            win.Flush(0)
            assert (cells[: 2 * length : 2] == value).all() and not cells[1::2].any(), step
            if step % 10 == 0:
                win.Get((got, length, MPI.INT64_T), 0, (0, 1, layout))
                win.Flush(0)
                assert (got == value).all(), step
    win.Unlock(0)
together()
""",
    # Windows are made and freed while others are in use.
    "windows": """
lasting = [MPI.Win.Allocate(8, 8, comm=comm) for comm in comms]
def each(i, comm):
    cell = np.frombuffer(lasting[i].tomemory(), "i8")
    for step in range(100):
        own = MPI.Win.Allocate(64, 8, comm=comm if i % 2 else MPI.COMM_SELF)
        cells = np.frombuffer(own.tomemory(), "i8")
        assert not cells.any(), cells
        cells[:] = 10 * step + i
        lasting[i].Fence()
        lasting[i].Put(np.array([step]), (me + 1) % n)
        lasting[i].Fence()
        assert cell[0] == step and (cells == 10 * step + i).all(), (step, cell, cells)
        own.Free()
together()
""",
    # One window, on which each locks a rank of its own.
    "locks": """
win = MPI.Win.Allocate(8 * threads, 8, comm=world)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
world.Barrier()
def each(i, comm):
    if i >= n:
        return
    for step in range(2000):
        win.Lock(i)
        win.Accumulate(np.ones(1, "i8"), i, me)
        win.Unlock(i)
together()
world.Barrier()
win.Lock_all()
win.Unlock_all()
assert (cells[:n] == 2000).all(), cells
""",
}


@pytest.mark.parametrize("program", tiers(PROGRAMS, plain=["layouts"], others="full"))
def test_on_one_node(program: str) -> None:
    result = run_job(HEAD + PROGRAMS[program], SLOTS, "--interval", "never", timeout=60)
    assert result.status == 0, result


@pytest.mark.parametrize("program", tiers(PROGRAMS, nightly=["layouts", "locks"], others="full"))
def test_over_nodes(program: str) -> None:
    result = run_on_nodes(HEAD + PROGRAMS[program], SLOTS, "--interval", "never", in_turn=2,
                          timeout=60)
    assert result.status == 0, result
