"""Threads of a pool add to counters of all slots, under locks."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8 * 8, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
comm.Barrier()


def add(i: int) -> None:
    target = i % comm.size
    win.Lock(target, MPI.LOCK_SHARED)
    win.Accumulate(np.array([1 + i]), target, (i % 8, 1, MPI.INT64_T))
    win.Unlock(target)


with ThreadPoolExecutor(1) as pool:  # one lock of a slot at a time, as MPI wants it
    list(pool.map(add, range(4000)))
comm.Barrier()
np.savez(f"{sys.argv[1]}/slot-{comm.rank}.npz", cells=cells)
