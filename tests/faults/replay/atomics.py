"""One lock for all, flushes, and every kind of atomic, on the own part too.

Slots draw tickets: who gets which depends on timing, so results are told as what does not: each
ticket is used once, by the slot that has drawn it.
"""

import numpy as np
from mpi4py import MPI
from steps import STEPS, comm, declare, me, n, save, steps

TICKET, SWAPPED, FLOATS, VECTOR, SELF, BOARD = 0, 1, 2, 10, 20, 24
CELLS = BOARD + n * STEPS
win = MPI.Win.Allocate(8 * CELLS, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
every_other = MPI.INT64_T.Create_vector(3, 1, 2).Commit()
state = declare(drawn=np.zeros(STEPS, "i8"), tries=0)
win.Lock_all()
for step in steps(state):
    target = (me + step) % n  # the own part, every n-th time
    one, old = np.ones(1, "i8"), np.zeros(1, "i8")
    win.Accumulate(np.full(3, me + 1), target, (VECTOR, 1, every_other))
    win.Fetch_and_op(one, old, target, TICKET)
    win.Flush(target)
    state.drawn[step] = old[0]
    mark = np.array([1 + me * STEPS + step])
    win.Put(mark, target, (BOARD + int(old[0]), 1, MPI.INT64_T))
    win.Flush_local(target)
    found = -np.ones(1, "i8")
    while found[0] != old[0]:
        old[:] = found if state.tries or found[0] >= 0 else 0
        win.Compare_and_swap(old + step, old, found, target, SWAPPED)
        win.Flush(target)
        state.tries += 1
    wide, before = np.array([0.25, 0.5]), np.zeros(2)
    win.Accumulate(wide, target, (FLOATS, 2, MPI.DOUBLE))
    win.Get_accumulate(wide, before, target, (FLOATS + 2, 2, MPI.DOUBLE))
    win.Rget_accumulate(wide, before, target, (FLOATS + 2, 2, MPI.DOUBLE), op=MPI.NO_OP).Wait()
    win.Raccumulate(np.array([0.1 * step]), target, (FLOATS + 4 + me, 1, MPI.DOUBLE)).Wait()
    win.Flush_all()
    win.Accumulate(mark, me, (SELF, 1, MPI.INT64_T))
    win.Fetch_and_op(mark, old, me, SELF + 1, op=MPI.BXOR)
    win.Flush(me)
    if step % 4 == 3:
        comm.Barrier()
        win.Sync()
        assert cells[SELF] >= cells[SELF + 1]
        comm.Barrier()
win.Flush_all()
comm.Barrier()
win.Sync()
final = cells.copy()
boards = comm.allgather(final[BOARD:])
for step in range(STEPS):
    ticket = boards[(me + step) % n][state.drawn[step]]
    assert ticket == 1 + me * STEPS + step, (me, step, ticket)
save(cells=final[:BOARD], tickets=np.sort(final[BOARD:]))
win.Unlock_all()
comm.Barrier()
win.Free()
