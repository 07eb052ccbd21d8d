"""Derived datatypes at the origin, at the target and at both."""

import numpy as np
from common import MPI, comm, done, keep, make, me, n, numbers

ROOM = 120  # doubles of a part


def layouts() -> dict[str, tuple[MPI.Datatype, int, int]]:
    """Datatypes of doubles: (type, first element, how many fit). Each holds 12 doubles."""
    f8 = MPI.DOUBLE
    struct = MPI.Datatype.Create_struct([2, 1], [0, 32], [f8, f8]).Create_resized(0, 48)
    backward = f8.Create_vector(12, 1, -2)
    types = {
        "vector": (f8.Create_vector(4, 3, 5), 3),
        "hvector": (f8.Create_hvector(6, 2, 40), 2),
        "subarray": (f8.Create_subarray([4, 4, 5], [2, 3, 2], [1, 0, 2]), 0),
        "columns": (f8.Create_subarray([6, 6], [4, 3], [2, 1], order=MPI.ORDER_F), 1),
        "indexed": (f8.Create_indexed([3, 1, 6, 2], [30, 2, 10, 50]), 4),
        "block": (f8.Create_indexed_block(4, [44, 0, 17]), 0),
        "hindexed": (f8.Create_hindexed([5, 7], [-40, 96]), 9),
        "structs": (struct.Create_contiguous(4), 6),
        "backward": (backward, 40),
        "dup": (f8.Create_contiguous(12).Dup(), 5),
        "plain": (f8.Create_contiguous(12), 1),
    }
    return {name: (t.Commit(), at, 1) for name, (t, at) in types.items()}


def place(memory: np.ndarray, at: int) -> memoryview:
    """The memory from element `at` on."""
    return memory[at:]


def put_and_get(kind: str) -> None:
    """Every layout against every other, each pair in its own epoch."""
    types = layouts()
    memory, win = make(kind, ROOM)
    for i, (here, (origin, _, _)) in enumerate(types.items()):
        for there, (target_type, at, _) in types.items():
            if here in ("hindexed", "backward"):
                continue  # their data lies before the address of the buffer
            win.Fence()
            memory[:] = -1
            values = numbers(here + there, ROOM)
            win.Fence()
            win.Put([values, 1, origin], (me + 1) % n, [at, 1, target_type])
            win.Fence()
            got = np.full(ROOM, -2.0)
            win.Get([got, 1, origin], (me + 2) % n, [at, 1, target_type])
            win.Fence()
            keep(f"{kind} {here} to {there} {i}", memory)
            keep(f"{kind} {here} from {there} {i}", got)
    win.Free()


def several(kind: str) -> None:
    """Counts above 1 of resized types, also with a shrunken extent that interleaves them."""
    f8 = MPI.DOUBLE
    column = f8.Create_vector(6, 1, 6).Create_resized(0, 8).Commit()
    pair = MPI.Datatype.Create_struct([1, 1], [0, 16], [f8, f8]).Create_resized(0, 24).Commit()
    memory, win = make(kind, ROOM)
    win.Fence()
    win.Put([numbers("t", 36), 36, f8], (me + 1) % n, [2, 6, column])  # transposes
    win.Put([numbers("p", 30), 10, pair], (me + 1) % n, [60, 10, pair])
    win.Fence()
    keep(f"{kind} several", memory)
    win.Fence()
    bytes_ = MPI.BYTE.Create_vector(8, 3, 5).Commit()
    win.Put([numbers("b", 24, "u1"), 24, MPI.BYTE], (me + 1) % n, [100, 1, bytes_])
    win.Fence()
    keep(f"{kind} bytes", memory)
    win.Free()


def accumulates(kind: str) -> None:
    """Arithmetic through derived types, every origin at once; whole numbers keep it exact."""
    types = layouts()
    memory, win = make(kind, ROOM)
    for there, (target_type, at, _) in types.items():
        for op in (MPI.SUM, MPI.MAX):
            win.Fence()
            memory[:] = numbers("old" + there, ROOM)
            values, old = numbers("new" + there, 40), np.zeros(12)
            win.Fence()
            vector = types["vector"][0]
            win.Accumulate([values, 1, vector], (me + 1) % n, [at, 1, target_type], op)
            win.Accumulate([values, 12, MPI.DOUBLE], (me + 2) % n, [at, 1, target_type], op)
            win.Fence()
            win.Get_accumulate(
                [values, 12, MPI.DOUBLE],
                [old, 12, MPI.DOUBLE],
                (me + 1) % n,
                [at, 1, target_type],
                MPI.REPLACE,
            )
            win.Fence()
            keep(f"{kind} {there} {op == MPI.SUM}", memory)
            keep(f"{kind} {there} {op == MPI.SUM} old", old)
    win.Free()


for kind in ("Allocate", "Create"):
    put_and_get(kind)
    several(kind)
    accumulates(kind)
comm.Barrier()
done()
