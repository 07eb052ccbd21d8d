"""Slot 0 reads its stdin line by line and tells all; each line steers the accesses."""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(64 * 8, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
win.Fence()
lines = 0
while True:
    line = comm.bcast(sys.stdin.readline() if me == 0 else None)
    if not line:
        break
    win.Put(np.array([int(line) + me]), (me + lines) % n, lines % 64)
    win.Fence()
    lines += 1
np.savez(f"{sys.argv[1]}/slot-{me}.npz", cells=cells, lines=np.array(lines))
