"""Accumulates and atomics from all ranks at once."""

import numpy as np
from common import MPI, PROTECTED, comm, done, keep, make, me, n, numbers

TURNS = 200


BITS = {"BXOR": np.bitwise_xor, "BAND": np.bitwise_and, "BOR": np.bitwise_or}
LOGIC = {"LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor}
ORDER = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}
WHOLE = {**ORDER, **BITS, **LOGIC}
TABLE = {"i4": WHOLE, "i8": WHOLE, "u1": WHOLE, "f8": ORDER, "f4": ORDER,
         "c16": {"SUM": np.add, "PROD": np.multiply}, "?": LOGIC}


def reductions(kind: str) -> None:
    """Whole numbers, so that the order in which the origins come makes no difference."""
    for code, names in TABLE.items():
        memory, win = make(kind, 24, code)
        for name, function in names.items():
            label = f"{kind} {code} {name}"
            win.Fence()
            memory[:] = expected = numbers("old" + label, 24, code)
            win.Fence()
            values = [(numbers(label, 8, rank=rank) % 3 + 1).astype(code) for rank in range(n)]
            for target in range(n):
                win.Accumulate(values[me], target, 2, getattr(MPI, name))
                win.Accumulate(values[me][:1], target, 12, getattr(MPI, name))
            win.Fence()
            for one in values:
                expected[2:10] = function(expected[2:10], one)
                expected[12] = function(expected[12], one[0])
            # Open MPI computes bitwise operations wrongly on such windows.
            if PROTECTED or not (kind == "Create" and code == "i8" and name in BITS):
                assert (memory == expected).all(), (label, memory, expected)
        win.Free()


def replaces(kind: str) -> None:
    """REPLACE with one origin a target, NO_OP with many; what they fetch."""
    memory, win = make(kind, 10, "i8")
    old, seen = np.zeros(10, "i8"), np.zeros(10, "i8")
    memory[:] = numbers("before", 10, "i8")
    win.Fence()
    win.Get_accumulate(numbers("after", 10, "i8"), old, (me + 1) % n, op=MPI.REPLACE)
    win.Fence()
    win.Get_accumulate([None, 0, MPI.INT64_T], seen, (me + 2) % n, op=MPI.NO_OP)
    win.Fence()
    win.Accumulate(numbers("third", 3, "i8"), (me + 1) % n, 4, MPI.REPLACE)
    win.Accumulate(old, MPI.PROC_NULL)
    win.Fence()
    for label, values in (("memory", memory), ("old", old), ("seen", seen)):
        keep(f"replace {kind} {label}", values)
    win.Free()


def pairs(kind: str) -> None:
    """MAXLOC on a pair type, a predefined type with a hole; Open MPI crashes in it."""
    if not PROTECTED:
        return
    dtype = np.dtype([("value", "f8"), ("at", "i4")], align=True)
    memory, win = make(kind, 4, dtype)
    mine = np.zeros(4, dtype)
    mine["value"], mine["at"] = numbers("pairs", 4) % 7, me
    win.Fence()
    for target in range(n):
        win.Accumulate([mine, 4, MPI.DOUBLE_INT], target, (0, 4, MPI.DOUBLE_INT), MPI.MAXLOC)
    win.Fence()
    values = np.array([numbers("pairs", 4, rank=rank) % 7 for rank in range(n)])
    assert (memory["value"] == values.max(0)).all(), (kind, memory, values)
    assert (memory["at"] == values.argmax(0)).all(), (kind, memory, values)
    win.Free()


def tickets(kind: str) -> None:
    """Fetch-and-add hands out every number once; to every target, several types."""
    for code in ("i4", "i8", "u8", "f8", "u2"):
        memory, win = make(kind, 3, code)
        one, got = np.ones(1, code), np.zeros((TURNS, n), code)
        win.Lock_all()
        for turn in range(TURNS):
            for target in range(n):
                win.Fetch_and_op(one, got[turn, target : target + 1], target, 1)
        win.Unlock_all()
        comm.Barrier()
        assert memory[1] == n * TURNS and memory[0] == memory[2] == 0, (kind, code, memory)
        every = np.array(comm.allgather(got[:, 0]))
        assert sorted(every.ravel().tolist()) == list(range(n * TURNS)), (kind, code)
        assert (np.diff(got, axis=0) > 0).all(), (kind, code)
        keep(f"tickets {kind} {code}", memory)
        win.Free()


def lock_free_counter(kind: str) -> None:
    """A counter made of compare-and-swap alone, which fails when another rank was faster."""
    memory, win = make(kind, 1, "i8")
    seen, next_, found = (np.zeros(1, "i8") for _ in range(3))
    win.Lock_all()
    for _ in range(TURNS):
        while True:
            next_[0] = seen[0] + 1
            win.Compare_and_swap(next_, seen, found, 0, 0)
            win.Flush(0)
            if found[0] == seen[0]:
                break
            seen[0] = found[0]
    win.Unlock_all()
    comm.Barrier()
    assert me or memory[0] == n * TURNS, (kind, memory)
    keep(f"counter {kind}", memory)
    win.Free()


def swaps(kind: str) -> None:
    """Compare-and-swap on small types touches its own bytes alone; swap by REPLACE; NO_OP reads."""
    for code in ("u1", "i2", "i4", "i8"):
        memory, win = make(kind, 8, code)
        memory[:] = np.arange(8)
        new, old, got = np.array([77], code), np.array([3], code), np.zeros(3, code)
        win.Fence()
        win.Compare_and_swap(new, old, got[0:1], (me + 1) % n, 3)
        win.Compare_and_swap(new, old, got[1:2], (me + 1) % n, 4)
        win.Compare_and_swap(new, old, got[2:3], MPI.PROC_NULL, 4)
        win.Fence()
        win.Fetch_and_op(new, got[2:3], (me + 2) % n, 6, MPI.REPLACE)
        win.Fetch_and_op(new, old, (me + 1) % n, 7, MPI.NO_OP)
        win.Fence()
        keep(f"swaps {kind} {code}", np.concatenate([memory, got, old]))
        win.Free()


for kind in ("Allocate", "Create"):
    reductions(kind)
    replaces(kind)
    pairs(kind)
    tickets(kind)
    lock_free_counter(kind)
    swaps(kind)
comm.Barrier()
done()
