"""Slots hand a token round and wait for it by polling, each time in another way."""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(64 * 8, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
comm.Barrier()
left, right = (me - 1) % n, (me + 1) % n
group = comm.group.Incl([left])
to = comm.group.Incl([right])
got = np.zeros(1, "i8")


def by_lock(want: int) -> None:
    while True:
        win.Lock(me, MPI.LOCK_SHARED)
        win.Get(got, me, (0, 1, MPI.INT64_T))
        win.Unlock(me)
        if got[0] >= want:
            return


def by_fetch(want: int) -> None:
    win.Lock(me, MPI.LOCK_SHARED)
    while True:
        win.Fetch_and_op(np.zeros(1, "i8"), got, me, 0, MPI.NO_OP)
        win.Flush(me)
        if got[0] >= want:
            break
    win.Unlock(me)


def hand_on(value: int) -> None:
    win.Lock(right, MPI.LOCK_SHARED if value % 2 else MPI.LOCK_EXCLUSIVE)
    win.Accumulate(np.array([value]), right, (0, 1, MPI.INT64_T), op=MPI.REPLACE)
    win.Unlock(right)


for turn in range(1, 31):
    if me == 0:
        hand_on(turn)
        (by_lock, by_fetch)[turn % 2](turn)
    else:
        (by_lock, by_fetch)[turn % 2](turn)
        hand_on(turn)
    win.Post(group)
    win.Start(to)
    win.Put(np.array([turn + me]), right, (turn % 60 + 2, 1, MPI.INT64_T))
    win.Complete()
    while not win.Test():
        pass
np.savez(f"{sys.argv[1]}/slot-{me}.npz", cells=cells)
