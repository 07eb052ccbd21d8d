"""One step in the middle puts more than a small budget of logs holds."""

import sys

import numpy as np

import ftrma
from ftrma import MPI

WORDS, STEPS, HEAVY = 512, 14, 5
comm = MPI.COMM_WORLD
me, n = comm.Get_rank(), comm.Get_size()
window = MPI.Win.Allocate(8 * WORDS, 8, comm=comm)
memory = np.frombuffer(window.tomemory(), np.int64)
memory[:] = 0
state = ftrma.protect("overrun", step=0)
while state.step < STEPS:
    ftrma.safepoint()
    window.Fence()
    for k in range(1500 if state.step == HEAVY else 12):
        window.Put(np.array([1000 * state.step + k + me], np.int64), (me + 1) % n, k % WORDS)
    window.Fence()
    memory[-1] += memory[:-1].sum() % 1009
    window.Fence()
    state.step += 1
np.savez(f"{sys.argv[1]}/slot-{me}.npz", memory=memory)
