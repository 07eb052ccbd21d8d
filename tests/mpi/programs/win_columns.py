"""Strided puts of all ranks into disjoint columns of one array, while its owner writes another.

MPI allows this: no two of the accesses touch the same byte.
"""

import numpy as np
from common import MPI, comm, done, keep, make, me, n

ROWS, ROUNDS = 20_000, 5

for kind in ("Allocate", "Create"):
    memory, win = make(kind, ROWS * (n + 1))
    column = MPI.DOUBLE.Create_vector(ROWS, 1, n + 1).Commit()
    for number in range(1, ROUNDS + 1):
        win.Fence()
        win.Put(np.full(ROWS, 10.0 * number + me), 0, [me, 1, column])
        if me == 0:
            memory[n :: n + 1] = -number
        win.Fence()
        keep(f"{kind} {number}", memory)
    win.Free()
comm.Barrier()
done()
