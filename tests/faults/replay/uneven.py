"""Windows that only some slots make, so that later ones have other numbers at each."""

import sys

import numpy as np

import ftrma
from ftrma import MPI

directory, mode, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
world = MPI.COMM_WORLD
me, n = world.rank, world.size
half = world.Split(me % 2)
first = MPI.Win.Allocate(64, 8, comm=half) if me % 2 == 0 else None
second = MPI.Win.Allocate(64, 8, comm=half)
common = MPI.Win.Allocate(512, 8, comm=world)
state = ftrma.protect("uneven", step=0) if mode != "plain" else None
for step in range(state.step if state else 0, steps):
    if state:
        state.step = step
        ftrma.safepoint()
    for win, size in ((first, half.size), (second, half.size), (common, n)):
        if win is not None:
            rank = win.group.rank
            win.Lock_all()
            win.Accumulate(np.array([me + step]), (rank + 1) % size, (step % 4, 1, MPI.INT64_T))
            win.Put(np.array([step]), (rank + step) % size, (4 + (step + rank) % 4, 1, MPI.INT64_T))
            win.Unlock_all()
    world.Barrier()
parts = [np.frombuffer(w.tomemory(), "i8") for w in (first, second, common) if w is not None]
np.savez(f"{directory}/slot-{me}.npz", *parts)
