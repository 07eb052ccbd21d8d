"""Request-based operations, completed in every way there is."""

import numpy as np
from common import MPI, PROTECTED, comm, done, keep, make, me, n, numbers

Request = MPI.Request


def transfers(kind: str) -> None:
    memory, win = make(kind, 60)
    target = (me + 1) % n
    win.Lock_all()
    win.Rput(numbers("one" + kind, 5), target, 2).Wait()
    many = [win.Rput(numbers(f"{kind}{i}", 3), target, 10 + 3 * i) for i in range(5)]
    Request.Waitall(many)
    assert all(r == MPI.REQUEST_NULL for r in many)
    vector = MPI.DOUBLE.Create_vector(5, 1, 2).Commit()
    last = win.Rput([numbers("v" + kind, 5), 5, MPI.DOUBLE], target, [30, 1, vector])
    while not last.Test():
        pass
    win.Flush_all()
    comm.Barrier()
    got = np.zeros((3, 60))
    requests = [win.Rget(got[i], (me + i) % n) for i in range(3)]
    while requests.count(MPI.REQUEST_NULL) < 3:
        index = Request.Waitany(requests)
        assert requests[index] == MPI.REQUEST_NULL
    comm.Barrier()
    win.Unlock_all()
    keep(f"memory {kind}", memory)
    keep(f"got {kind}", got)
    win.Free()


def arithmetic(kind: str) -> None:
    memory, win = make(kind, 20, "i8")
    win.Lock_all()
    requests = [win.Raccumulate(numbers(f"a{t}", 6, "i8"), t, 1) for t in range(n)]
    requests += [win.Raccumulate(numbers(f"b{t}", 6, "i8"), t, 9, MPI.BXOR) for t in range(n)]
    Request.Waitall(requests)
    win.Flush_all()
    comm.Barrier()
    old = np.zeros(20, "i8")
    win.Rget_accumulate(np.full(20, me, "i8"), old, (me + 1) % n, op=MPI.REPLACE).Wait()
    win.Flush_all()
    comm.Barrier()
    seen = np.zeros(20, "i8")
    win.Rget_accumulate([None, 0, MPI.INT64_T], seen, (me + 2) % n, op=MPI.NO_OP).Wait()
    win.Unlock_all()
    keep(f"arithmetic {kind} memory", memory)
    keep(f"arithmetic {kind} seen", seen)
    sums = sum(numbers(f"a{(me + 1) % n}", 6, "i8", rank) for rank in range(n))
    bits = [numbers(f"b{(me + 1) % n}", 6, "i8", rank) for rank in range(n)]
    if PROTECTED or kind == "Allocate":  # Open MPI fetches what was there before some of the XORs
        assert (old[1:7] == sums).all(), (kind, old, sums)
        assert (old[9:15] == np.bitwise_xor.reduce(bits)).all(), (kind, old, bits)
        assert not old[[0, 7, 8, 15, 16, 17, 18, 19]].any(), (kind, old)
    win.Free()


def nowhere(kind: str) -> None:
    """To PROC_NULL: complete at once, nothing is touched."""
    memory, win = make(kind, 4)
    values, got = np.full(4, 7.0), np.full(4, 8.0)
    win.Lock_all()
    requests = [
        win.Rput(values, MPI.PROC_NULL), win.Rget(got, MPI.PROC_NULL),
        win.Raccumulate(values, MPI.PROC_NULL),
        win.Rget_accumulate(values, got, MPI.PROC_NULL),
    ]
    Request.Waitall(requests)
    assert all(r == MPI.REQUEST_NULL for r in requests)
    win.Unlock_all()
    keep(f"nowhere {kind}", np.concatenate([memory, got]))
    win.Free()


for kind in ("Allocate", "Create"):
    transfers(kind)
    arithmetic(kind)
    nowhere(kind)
comm.Barrier()
done()
