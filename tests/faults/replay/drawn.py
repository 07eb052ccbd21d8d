"""A program that a number has drawn: windows, datatypes, epochs and accesses of all kinds.

Its last argument is the number. It has no race, so that its memory is the same however it is run.
In each window a slot has a region for each origin, in which that one alone puts and swaps, a region
for sums, and a region of its own, which it writes itself, behind a barrier, and others get.
"""

import random
import sys
from typing import Any

import numpy as np
from mpi4py import MPI
from steps import comm, declare, me, n, save, steps

NUMBER = int(sys.argv[4])
KINDS = {"i4": MPI.INT32_T, "i8": MPI.INT64_T, "f8": MPI.DOUBLE}
dice = random.Random(NUMBER)  # the same on all slots
cells = dice.choice([1 << 6, 1 << 10, 1 << 14, 1 << 17, 1 << 19])
dtype = dice.choice(list(KINDS))
kind, word = KINDS[dtype], np.dtype(dtype).itemsize
summed, owned = n * cells, (n + 1) * cells
group = comm.Get_group()


def make(how: str) -> tuple[MPI.Win, Any]:
    if how == "allocate":
        win = MPI.Win.Allocate((n + 2) * cells * word, word, comm=comm)
        return win, np.frombuffer(win.tomemory(), dtype)
    memory = np.zeros((n + 2) * cells, dtype)
    return MPI.Win.Create(memory, word, comm=comm), memory


windows = [make(dice.choice(["allocate", "create"])) for _ in range(dice.choice([1, 1, 2]))]
for _, memory in windows:
    memory[:] = (np.arange(len(memory)) * (me + 1)) % 1000
state = declare(seen=np.zeros(4, "i8"))
comm.Barrier()


def access(win: MPI.Win, what: str, target: int, at: int, many: int, value: int) -> Any:
    """Begin one access; what must live until the epoch's end, and is what it got, if it got any."""
    data = ((np.arange(many) + value) % 1000).astype(dtype)
    put = me * cells + at
    if what == "put":
        win.Put(data, target, (put, many, kind))
    elif what == "strided":
        every_other = kind.Create_vector((many + 1) // 2, 1, 2).Commit()
        win.Put((data, (many + 1) // 2, kind), target, (put, 1, every_other))
        every_other.Free()
    elif what == "rput":
        win.Rput(data, target, (put, many, kind)).Wait()
    elif what == "sum":
        win.Accumulate((data, kind), target, (summed + at, many, kind), op=MPI.SUM)
    elif what == "fetch":
        fetched = np.zeros(1, dtype)  # which says who came first
        win.Fetch_and_op((data, 1, kind), (fetched, kind), target, summed, op=MPI.SUM)
        return (data, fetched), None
    elif what == "swap":
        got = np.zeros(many, dtype)
        win.Get_accumulate((data, kind), (got, kind), target, (put, many, kind), op=MPI.REPLACE)
        return data, got
    elif what == "rget":
        got = np.zeros(many, dtype)
        win.Rget(got, target, (owned + at, many, kind)).Wait()
        return data, got
    else:
        got = np.zeros(many, dtype)
        win.Get(got, target, (owned + at, many, kind))
        return data, got
    return data, None


def epoch(win: MPI.Win, mode: str, planned: list[tuple[Any, ...]]) -> list[Any]:
    """Do the accesses that are planned for this slot; what they got."""
    requests = mode in ("lock", "lock_all")
    touched: set[int] = set()
    kept = []
    if mode == "fence":
        win.Fence()
    elif mode == "post":
        win.Post(group)
        win.Start(group)
    else:
        comm.Barrier()
    if mode == "lock_all":
        win.Lock_all()
    for what, target, at, many, value in planned:
        if mode == "lock":
            win.Lock(target, MPI.LOCK_SHARED)
        what = what if requests else what.removeprefix("r")
        if what in ("put", "rput", "strided", "swap"):
            if target in touched and not requests:
                what = "sum"  # two in one region would have no order
            elif mode == "lock_all":
                win.Flush(target)
            touched.add(target)
        kept.append(access(win, what, target, at, many, value))
        if mode == "lock":
            win.Unlock(target)
    if mode == "fence":
        win.Fence()
    elif mode == "post":
        win.Complete()
        win.Wait()
    elif mode == "lock_all":
        win.Unlock_all()
    comm.Barrier()
    return [got for _, got in kept if got is not None]


for step in steps(state):
    dice = random.Random(f"{NUMBER} {step}")
    win, memory = dice.choice(windows)
    mode = dice.choice(["fence", "fence", "lock", "lock_all", "post"])
    plans: list[list[tuple[Any, ...]]] = [[] for _ in range(n)]
    for planned in plans:
        for _ in range(dice.randrange(1, 6)):
            what = dice.choice(["put", "put", "strided", "rput", "sum", "fetch", "swap", "get",
                                "rget"])
            at = dice.randrange(cells)
            many = min(dice.choice([1, 3, cells // 4 + 1, cells]), cells - at)
            planned.append((what, dice.randrange(n), at, many, dice.randrange(1000)))
    for got in epoch(win, mode, plans[me]):
        seen = int(state.seen[step % 4]) * 31 + int(got.sum()) + int(got[-1])
        state.seen[step % 4] = seen % 1000003
    memory[owned + step % cells] = state.seen[step % 4] % 1000
    comm.Barrier()

save(seen=state.seen, **{f"window{i}": memory for i, (_, memory) in enumerate(windows)})
comm.Barrier()
