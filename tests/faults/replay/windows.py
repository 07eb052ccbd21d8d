"""Windows that are made and freed in the loop, from Allocate and from Create; post, start, complete
and wait; derived layouts."""

import numpy as np
from mpi4py import MPI
from steps import comm, declare, me, n, save, steps

lasting = MPI.Win.Allocate(8 * 64, 8, comm=comm)
cells = np.frombuffer(lasting.tomemory(), "i8")
every_other = MPI.INT64_T.Create_vector(4, 1, 2).Commit()
group = comm.Get_group()
left, right = (me - 1) % n, (me + 1) % n
state = declare(sums=np.zeros(40, "i8"))
for step in steps(state):
    brief = MPI.Win.Allocate(8 * (16 + me), 8, comm=comm)
    seen = np.frombuffer(brief.tomemory(), "i8")
    assert not seen.any()
    mine = np.arange(16) * (me + step)
    lent = MPI.Win.Create(mine, 8, comm=comm)
    brief.Fence()
    lent.Fence()
    got = np.zeros(4, "i8")
    brief.Put(np.arange(1, 5) * (me + 1), right, (1, 1, every_other))
    lent.Get(got, left, (1, 1, every_other))
    lent.Accumulate(np.full(2, step), right, (12, 2, MPI.INT64_T))
    lent.Fence()
    brief.Fence()
    lasting.Post(group.Incl([left]))
    lasting.Start(group.Incl([right]))
    lasting.Put(got + seen[:8:2] + mine[12:], right, (step % 16 * 4, 4, MPI.INT64_T))
    lasting.Complete()
    lasting.Wait()
    state.sums[step % 40] = cells.sum() + seen.sum() + mine.sum()
    lent.Free()
    brief.Free()
save(cells=cells, sums=state.sums)
comm.Barrier()
lasting.Free()
