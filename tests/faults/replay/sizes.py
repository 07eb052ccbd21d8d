"""Transfers whose sides differ in size: what is there for more than comes keeps what it has.

What comes last fills but a part of an element, on the target's side (puts, accumulates) and on the
origin's (gets, results of accumulates); one target's room ends behind its part.
"""

import numpy as np
from mpi4py import MPI
from steps import comm, declare, me, n, save, steps


def tame(values: np.ndarray) -> np.ndarray:
    """Return numbers that parts of elements have changed as ordinary ones."""
    return np.nan_to_num(np.abs(values), posinf=0) % 997


ROOM = 48
D = MPI.DOUBLE
every_other = D.Create_vector(3, 1, 2).Commit()
backward = D.Create_vector(2, 1, -3).Commit()
crossed = D.Create_indexed_block(1, [2, 0]).Commit()
mixed = MPI.Datatype.Create_struct([1, 1, 1], [16, 0, 6], [D, MPI.INT, MPI.SHORT]).Commit()
lent = np.zeros(ROOM)
made = MPI.Win.Allocate(8 * ROOM, 8, comm=comm)
parts = (np.frombuffer(made.tomemory()), lent)
wins = (made, MPI.Win.Create(lent, 8, comm=comm))
right = (me + 1) % n
state = declare(x=np.sqrt(np.arange(ROOM) + me), learned=np.zeros((4, 8)))
for step in steps(state):
    for win, part in zip(wins, parts, strict=True):
        part[:] = state.x
        win.Fence()
        values = np.sqrt(state.x[:8] + step)
        win.Put([values, 1, D], right, [0, 3, D])
        win.Put([values, 5, D], right, [2, 4, every_other])
        win.Put([values, 2, crossed], right, [12, 3, every_other])
        win.Put([values, 13, MPI.BYTE], right, [30, 2, mixed])
        win.Put([values, 2, D], right, [ROOM - 2, 9, D])
        win.Accumulate([values, 4, D], right, [20, 2, every_other])
        win.Rput([values, 2, D], right, [37, 3, backward]).Wait()
        win.Fence()
        learned = -np.ones((4, 8))
        win.Get([learned[0], 4, every_other], right, [0, 4, D])
        win.Rget([learned[1], 8, D], right, [3, 2, every_other]).Wait()
        win.Get([learned[2], 3, mixed], right, [30, 11, MPI.BYTE])
        win.Fence()
        win.Get_accumulate([values, 4, D], [learned[3], 8, D], right, [12, 2, every_other])
        win.Fence()
        state.learned += tame(learned)
        state.x = np.sqrt(1 + tame(part)) + state.learned.sum() / 1e4
save(x=state.x, learned=state.learned, made=parts[0], lent=lent)
comm.Barrier()
for win in wins:
    win.Free()
