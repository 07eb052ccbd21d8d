"""Communicators of every kind that is derived from the world, and what is done on them.

Each rank computes from all ranks' places what is to be there: the same on one node, on several and
without ftrma.
"""

import socket

import numpy as np
from common import MPI, comm, done, keep, me, n

LARGE = 3 * (1 << 18) // 8 + 5  # doubles; several areas of a derived communicator
hosts = comm.allgather(socket.gethostname())


def members(made: MPI.Intracomm) -> list[int]:
    """The world's ranks in it, in its order."""
    return list(MPI.Group.Translate_ranks(made.group, None, comm.group))


def use(label: str, made: MPI.Intracomm, expected: list[int]) -> None:
    """Collective calls and a window, on a communicator of these ranks."""
    assert members(made) == expected and made.size == len(expected), (label, members(made))
    assert expected[made.rank] == me, label
    assert made.allgather(me) == expected, label
    assert made.allreduce(me) == sum(expected), label
    last = made.size - 1
    data = np.arange(float(LARGE)) + expected[last] if made.rank == last else np.zeros(LARGE)
    made.Bcast(data, last)
    assert (data == np.arange(float(LARGE)) + expected[last]).all(), label
    each = LARGE // made.size
    to = np.repeat([100.0 * me + other for other in expected], each)
    got = np.empty(each * made.size)
    made.Alltoall(to, got)
    assert (got == np.repeat([100.0 * other + me for other in expected], each)).all(), label
    got[:] = to
    made.Alltoall(MPI.IN_PLACE, got)
    assert (got == np.repeat([100.0 * other + me for other in expected], each)).all(), label
    win = MPI.Win.Allocate(8 * made.size, 8, comm=made)
    cells = np.frombuffer(win.tomemory(), "i8")
    cells[:] = 0
    win.Fence()
    for target in range(made.size):
        win.Put(np.array([me + 1]), target, made.rank)
    win.Fence()
    assert cells.tolist() == [other + 1 for other in expected], label
    keep(label, cells)
    win.Free()
    right, left = (made.rank + 1) % made.size, (made.rank - 1) % made.size
    assert made.sendrecv(me, right, source=left) == expected[left], label


def shared(made: MPI.Intracomm) -> None:
    """Neighbours store into each other's memory."""
    win = MPI.Win.Allocate_shared(8, 8, comm=made)
    part, _ = win.Shared_query((made.rank + 1) % made.size)
    win.Fence()
    np.frombuffer(part, "i8")[0] = me
    win.Fence()
    own = np.frombuffer(win.tomemory(), "i8")[0]
    assert own == members(made)[made.rank - 1], own
    win.Free()


def main() -> None:
    everyone = list(range(n))
    twin = comm.Dup()
    use("dup", twin, everyone)
    half = twin.Split(me % 2, -me)
    use("split", half, [r for r in reversed(everyone) if r % 2 == me % 2])
    deep = half.Dup()
    use("dup of split", deep, [r for r in reversed(everyone) if r % 2 == me % 2])
    some = comm.Split(MPI.UNDEFINED if me == 0 else 3, me)
    assert (some == MPI.COMM_NULL) == (me == 0)
    if me:
        use("split without", some, everyone[1:])
    one = comm.Split(me)
    assert one.size == 1 and one.allreduce(me) == me
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    assert members(node) == [r for r in everyone if hosts[r] == hosts[me]]
    shared(node)
    group = comm.group.Excl([1])
    few = comm.Create(group)
    assert (few == MPI.COMM_NULL) == (me == 1)
    if me != 1:
        use("create", few, [0, *everyone[2:]])
    grid = comm.Create_cart([n // 2, 2], periods=[True, False])
    assert (grid == MPI.COMM_NULL) == (me >= n // 2 * 2)
    if grid != MPI.COMM_NULL:
        use("cart", grid, everyone[: n // 2 * 2])
        column = grid.Sub([True, False])
        use("sub", column, [r for r in everyone[: n // 2 * 2] if r % 2 == me % 2])
        column.Free()
        grid.Free()
    for turn in range(100):  # they come and go
        short = comm.Split((me + turn) % 2, me)
        assert short.allreduce(me) == sum(r for r in everyone if (r + turn) % 2 == (me + turn) % 2)
        short.Free()
    for made in (twin, half, deep, some, one, node, few):
        if made != MPI.COMM_NULL:
            made.Free()
    comm.Barrier()


main()
done()
