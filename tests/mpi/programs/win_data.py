"""Put and Get of all element types at various displacement units; empty parts; PROC_NULL."""

import numpy as np
from common import MPI, comm, done, keep, make, me, n, numbers


def count_of(rank: int) -> int:
    """The last part is empty."""
    return 0 if rank == n - 1 else 64 + rank


def neighbours(kind: str, dtype: np.dtype) -> None:
    """Displacement units differ from part to part."""
    label = f"{kind} {dtype.str}"
    memory, win = make(kind, count_of(me), dtype, dtype.itemsize * (1 + me % 2))
    target = (me + 1) % n
    values = numbers(label, 5, dtype)
    got = np.zeros(count_of((me + 2) % n), dtype)
    win.Fence()
    if count_of(target):
        win.Put(values, target, [7, 5, MPI._typedict[dtype.char]])
    win.Put(np.empty(0, dtype), n - 1)
    if me == n - 1:
        win.Put(values, 0, 20)
    win.Put(numbers(label + "all", 2, dtype), 0, (30 + 3 * me, 2, MPI._typedict[dtype.char]))
    win.Fence()
    win.Get(got, (me + 2) % n)
    win.Put(values, MPI.PROC_NULL)
    win.Get(values[:1].copy(), MPI.PROC_NULL)
    win.Fence()
    keep(label, memory)
    keep(label + " got", got)
    win.Free()


def odd_units(kind: str) -> None:
    """A part of 100 bytes addressed in units of 3, with integers that are not aligned."""
    memory, win = make(kind, 100, "u1", 3)
    win.Fence()
    win.Put(numbers("odd" + kind, 4, "i4"), (me + 1) % n, [5, 4, MPI.INT32_T])
    win.Put(numbers("last" + kind, 1, "u1"), (me + 1) % n, 33)
    win.Fence()
    got = np.zeros(4, "i4")
    win.Get(got, (me + 2) % n, [5, 4, MPI.INT32_T])
    win.Fence()
    keep(f"odd {kind}", memory)
    keep(f"odd {kind} got", got)
    win.Free()


def to_oneself(kind: str) -> None:
    """Bytes through different predefined types of one size; the own part."""
    memory, win = make(kind, 16, "f8")
    win.Fence()
    win.Put([numbers("self", 8, "f8"), 64, MPI.BYTE], me, (1, 64, MPI.BYTE))
    win.Put([numbers("ints", 4, "i8"), 4, MPI.INT64_T], me, (10, 4, MPI.LONG))
    win.Fence()
    got = np.zeros(16)
    win.Get(got, me)
    win.Fence()
    keep(f"self {kind}", memory)
    keep(f"self {kind} got", got)
    win.Free()


def large(kind: str) -> None:
    """One megabyte and a bit, so that no copy fits a page or a pipe."""
    size = (1 << 20) + 24
    memory, win = make(kind, size, "u1", 1)
    values = np.frombuffer(np.random.default_rng(me).bytes(size - 8), "u1")
    win.Fence()
    win.Put(values, (me + 1) % n, 3)
    win.Fence()
    keep(f"large {kind}", memory)
    win.Free()


for kind in ("Allocate", "Create"):
    for code in ("i4", "f8", "c16", "?", "u1", "i8", "f4"):
        neighbours(kind, np.dtype(code))
    odd_units(kind)
    to_oneself(kind)
    large(kind)
comm.Barrier()
done()
