"""Slots of a node store into each other's parts of a shared window."""

import sys

import numpy as np
from mpi4py import MPI

node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
me, n = node.rank, node.size
win = MPI.Win.Allocate_shared(64 * 8, 8, comm=node)
parts = [np.frombuffer(win.Shared_query(r)[0], "i8") for r in range(n)]
parts[me][:] = me
for step in range(3000):
    node.Barrier()
    parts[(me + 1) % n][step % 64] += step
    node.Barrier()
    if step % 5 == me:
        parts[me][:] = np.roll(parts[me], 1)
node.Barrier()
np.savez(f"{sys.argv[1]}/slot-{me}.npz", cells=np.array(parts[me]))
