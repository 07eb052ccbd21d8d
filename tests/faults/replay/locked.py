"""Exclusive and shared locks; own memory is read and written under the own lock.

What a slot sees in its own counter depends on timing. It tells another slot: at the end both must
agree, whatever it was, and all else is determined.
"""

import numpy as np
from mpi4py import MPI
from steps import STEPS, comm, declare, me, n, save, steps

COUNT, SEEN, TOLD = 0, 8, 8 + STEPS
win = MPI.Win.Allocate(8 * (TOLD + n * STEPS), 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
state = declare(sum=0)
for step in steps(state):
    peer = (me + 1 + step % (n - 1)) % n
    value, seen = np.zeros(1, "i8"), np.zeros(1, "i8")
    win.Lock(peer, MPI.LOCK_EXCLUSIVE)
    win.Get(value, peer, (COUNT, 1, MPI.INT64_T))
    win.Flush(peer)
    win.Put(value + 1 + me, peer, (COUNT, 1, MPI.INT64_T))
    win.Unlock(peer)
    win.Lock(me, MPI.LOCK_EXCLUSIVE)
    cells[SEEN + step] = seen[0] = cells[COUNT]
    cells[COUNT + 1] += 1
    win.Unlock(me)
    state.sum += int(seen[0])
    win.Lock(peer, MPI.LOCK_SHARED)
    win.Rput(seen, peer, (TOLD + me * STEPS + step, 1, MPI.INT64_T)).Wait()
    back = np.zeros(1, "i8")
    win.Flush(peer)
    win.Rget(back, peer, (TOLD + me * STEPS + step, 1, MPI.INT64_T)).Wait()
    win.Unlock(peer)
    assert back[0] == seen[0], (step, back, seen)
comm.Barrier()
win.Lock(me, MPI.LOCK_SHARED)
final = cells.copy()
win.Unlock(me)
everybody = comm.allgather(final)
for other in range(n):
    for step in range(STEPS):
        told = everybody[(other + 1 + step % (n - 1)) % n][TOLD + other * STEPS + step]
        assert told == everybody[other][SEEN + step], (me, other, step)
assert state.sum == final[SEEN:TOLD].sum()
save(counts=final[:2])
comm.Barrier()
win.Free()
