"""Slots that wait for slot 0 by looking again and again, in a way that the argument names.

Arguments: the directory for results, the way of waiting, rounds, seconds that slot 0 takes for each
of them. The others wait until slot 0 lets them go on, and then tell it so. What they save does not
depend on how often they have looked; that is saved by itself.
"""

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

DIRECTORY, WAY, ROUNDS, TAKES_S = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
FLAG, WORD, COUNT, TOLD = 0, 1, 2, 3
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
with open(f"{DIRECTORY}/entered-{os.getpid()}.txt", "a") as f:
    f.write("x")
win = MPI.Win.Allocate(8 * (TOLD + n * ROUNDS), 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
polls = 0
Looking = Callable[[], int]


def cell(at: int) -> tuple[int, int, MPI.Datatype]:
    return at, 1, MPI.INT64_T


def by_lock(kind: int) -> Looking:
    seen = np.zeros(1, "i8")

    def look() -> int:
        win.Lock(0, kind)
        win.Get(seen, 0, cell(FLAG))
        win.Unlock(0)
        return int(seen[0])

    return look


def by_get() -> int:
    """The flag, and two cells that hold something else."""
    seen = np.zeros(3, "i8")
    for at in range(3):
        win.Get(seen[at : at + 1], 0, cell(at))
        win.Flush(0)
    return int(seen[FLAG])


def by_probe() -> int:
    """It lets the library progress in between; nobody ever sends a message."""
    assert not comm.Iprobe() and (polls or comm.improbe() is None)
    return by_atomic(MPI.NO_OP)


def by_atomic(op: MPI.Op) -> int:
    seen = np.zeros(1, "i8")
    win.Fetch_and_op(np.zeros(1, "i8"), seen, 0, FLAG, op)
    win.Flush(0)
    return int(seen[0])


LOOKS: dict[str, Looking] = {
    "shared": by_lock(MPI.LOCK_SHARED),
    "exclusive": by_lock(MPI.LOCK_EXCLUSIVE),
    "get": by_get,
    "probe": by_probe,
    "read": lambda: by_atomic(MPI.NO_OP),
    "add": lambda: by_atomic(MPI.SUM),
}


def wait_for_flag(step: int) -> None:
    global polls
    while LOOKS[WAY]() < step:
        polls += 1


def let_go(step: int) -> None:
    if WAY in ("shared", "exclusive"):
        win.Lock(0, MPI.LOCK_EXCLUSIVE)
        win.Put(np.array([step]), 0, cell(FLAG))
        win.Unlock(0)
    else:
        win.Fetch_and_op(np.array([step]), np.zeros(1, "i8"), 0, FLAG, MPI.REPLACE)
        win.Flush(0)


def spin(mine: int) -> None:
    """Take the lock that is the word's value, and tell slot 0."""
    global polls
    old, one, nobody = np.ones(1, "i8"), np.array([mine]), np.zeros(1, "i8")
    while True:
        if WAY == "compare":
            win.Compare_and_swap(one, nobody, old, 0, WORD)
        else:
            win.Fetch_and_op(np.ones(1, "i8"), old, 0, WORD, MPI.REPLACE)
        win.Flush(0)
        if old[0] == 0:
            return
        polls += 1


def release() -> None:
    win.Fetch_and_op(np.zeros(1, "i8"), np.zeros(1, "i8"), 0, WORD, MPI.REPLACE)
    win.Flush(0)


def critical() -> None:
    """Only one at a time counts."""
    value = np.zeros(1, "i8")
    win.Get(value, 0, cell(COUNT))
    win.Flush(0)
    win.Put(value + 1, 0, cell(COUNT))
    win.Flush(0)


def tell(step: int, value: int) -> None:
    win.Put(np.array([1000 * value + me]), 0, cell(TOLD + me * ROUNDS + step - 1))


def by_test(step: int) -> None:
    """Slot 0 writes in the others' windows while they test whether it has."""
    global polls
    others = comm.group.Excl([0])
    if me == 0:
        time.sleep(TAKES_S)
        win.Start(others)
        for other in range(1, n):
            win.Put(np.array([step]), other, cell(FLAG))
        win.Complete()
    else:
        win.Post(comm.group.Incl([0]))
        while not win.Test():
            polls += 1
        win.Lock(0, MPI.LOCK_SHARED)
        tell(step, int(cells[FLAG]))
        win.Unlock(0)


def by_spinning(step: int) -> None:
    if me == 0:
        spin(1)
    comm.Barrier()
    if me == 0:
        time.sleep(TAKES_S)
        release()
    else:
        spin(1 + me)
        critical()
        tell(step, step)
        win.Flush(0)
        release()


def by_looking(step: int) -> None:
    """Slot 0 puts the flag into each slot's own part, where that looks for it."""
    global polls
    if me == 0:
        time.sleep(TAKES_S)
        for other in range(1, n):
            win.Put(np.array([7 * step]), other, cell(WORD))
            win.Flush(other)
            win.Put(np.array([step]), other, cell(FLAG))
            win.Flush(other)
        return
    win.Sync()
    while cells[FLAG] < step:
        polls += 1
        if WAY == "flush":
            win.Flush(me)
        elif WAY == "nap":
            time.sleep(0.001)
        win.Sync()
    tell(step, step + int(cells[WORD]))


def by_flag(step: int) -> None:
    if me == 0:
        time.sleep(TAKES_S)
        let_go(step)
        return
    wait_for_flag(step)
    if WAY in ("shared", "exclusive"):
        win.Lock(0, MPI.LOCK_SHARED)
    tell(step, step)
    if WAY in ("shared", "exclusive"):
        win.Unlock(0)


if me == 0 and WAY == "get":
    cells[WORD], cells[COUNT] = 7, 9
locked_all = WAY not in ("test", "shared", "exclusive")
comm.Barrier()
if locked_all:
    win.Lock_all()
for step in range(1, ROUNDS + 1):
    if WAY == "test":
        by_test(step)
    elif WAY in ("compare", "swap"):
        by_spinning(step)
    elif WAY in ("sync", "flush", "nap"):
        by_looking(step)
    else:
        by_flag(step)
    if locked_all:
        win.Flush_all()
    comm.Barrier()
if locked_all:
    win.Unlock_all()
comm.Barrier()
np.savez(f"{DIRECTORY}/slot-{me}.npz", cells=cells)
with open(f"{DIRECTORY}/polls-{me}.json", "w") as f:
    json.dump(polls, f)
