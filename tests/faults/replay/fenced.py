"""Fences: gets that steer later puts, accumulates of whole and of broken numbers, collectives.

Each slot has one other slot to write to in a step, so every bit of the result is determined.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from steps import comm, declare, me, n, save, steps

size = 300 + 11 * me  # uneven parts
win = MPI.Win.Allocate(8 * size, 8, comm=comm)
cells = np.frombuffer(win.tomemory())
own = np.zeros(64, "i8")
counts = MPI.Win.Create(own, 8, comm=comm)
cells[:] = np.arange(size) * 0.5 + me
comm.Barrier()
state = declare(trace=np.zeros((40, 4)))
for step in steps(state):
    peer = (me + 1 + step % (n - 1)) % n
    got = np.zeros(6)
    win.Fence()
    win.Get(got, peer, (step % 40, 6, MPI.DOUBLE))
    win.Fence()
    where = 100 + int(got.sum() * 8) % 90
    win.Put(got * 0.7 + step, peer, (where, 6, MPI.DOUBLE))
    win.Put(got[:2], me, (196 + step % 2, 2, MPI.DOUBLE))
    win.Accumulate(np.full(2, 0.1 * (step + 1)), peer, (210 + 2 * me, 2, MPI.DOUBLE))
    win.Accumulate(np.full(3, 0.25 * (me + 1)), 0, (230, 3, MPI.DOUBLE))  # exact in any order
    counts.Fence()
    counts.Accumulate(np.array([where, step]), peer, (step % 30, 2, MPI.INT64_T))
    counts.Accumulate(np.array([step]), 1, (40, 1, MPI.INT64_T), op=MPI.BXOR)
    counts.Fence()
    win.Fence()
    cells[:60] = 0.5 * cells[:60] + cells[100:160] * 0.125 + own[step % 30]
    word = comm.bcast({"sum": got.sum()} if me == step % n else None, root=step % n)
    high, row = np.zeros(1), np.full(3, cells[210] + me)
    comm.Allreduce(cells[:1], high, op=MPI.MAX)
    comm.Bcast(row, root=(step + 1) % n)
    state.trace[step % 40] = comm.allreduce(got[0]), word["sum"], high[0], row[2]
    cells[60:64] += state.trace[step % 40]
    win.Fence()
if me == 0 and "FTRMA_JOB" in os.environ:
    sizes = [os.stat(p).st_blocks * 512 for p in Path(os.environ["FTRMA_JOB"]).glob("log-*")]
    (Path(sys.argv[1]) / "log-bytes.json").write_text(json.dumps(sizes))
save(cells=cells, own=own, trace=state.trace)
comm.Barrier()
counts.Free()
win.Free()
