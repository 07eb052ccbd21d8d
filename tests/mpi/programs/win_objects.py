"""Windows as objects: communicators, several at once, attributes, names, groups, Free."""

import numpy as np
from common import MPI, comm, done, keep, make, me, n, numbers


def ring(label: str, memory: np.ndarray, win: MPI.Win) -> None:
    """Everybody of the window's group puts to its right."""
    group = win.Get_group()
    rank, size = group.rank, group.size
    group.Free()
    win.Fence()
    win.Put(numbers(label, memory.size), (rank + 1) % size)
    win.Fence()
    keep(label, memory)


def communicators(kind: str) -> None:
    """On half of the ranks in reverse order, on a duplicate, on one rank, all at the same time."""
    half = comm.Split(me % 2, -me)
    twin = comm.Dup()
    some = comm.Create(comm.group.Excl([0]))
    made = [(half, 5), (twin, 6), (MPI.COMM_SELF, 7), (comm, 8), (half, 9)]
    if me:
        made.insert(2, (some, 4))
    windows = [make(kind, size, on=on) for on, size in made]
    for i, (memory, win) in enumerate(windows):
        ring(f"{kind} {i}", memory, win)
    for (on, _), (_, win) in zip(made, windows, strict=True):
        group, expected = win.Get_group(), on.Get_group()
        assert MPI.Group.Compare(group, expected) == MPI.IDENT
        assert group.rank == on.rank and group.size == on.size
        group.Free(), expected.Free()
    for _, win in windows:
        win.Free()
        assert win == MPI.WIN_NULL
    for made_ in (half, twin, *([some] if me else [])):
        made_.Free()


def apart(kind: str) -> None:
    """An access to one window leaves all others as they are, also with epochs open on each."""
    windows = [make(kind, 10) for _ in range(4)]
    for _, win in windows:
        win.Lock_all()
    windows[2][1].Put(np.full(10, 2.0 + me), (me + 1) % n)
    windows[0][1].Accumulate(np.full(10, 1.0), (me + 1) % n)
    for _, win in reversed(windows):
        win.Unlock_all()
    comm.Barrier()
    keep(f"apart {kind}", np.array([memory for memory, _ in windows]))
    for _, win in windows[::-1]:
        win.Free()


def attributes(kind: str) -> None:
    """The predefined attributes, the program's own, the name, the error handler."""
    memory, win = make(kind, 3 + me, "f8", 8 * (me + 1))
    base, size, unit = win.attrs
    assert size == 8 * (3 + me) and unit == 8 * (me + 1), (kind, size, unit)
    assert base == memory.ctypes.data == win.Get_attr(MPI.WIN_BASE), kind
    assert win.Get_attr(MPI.WIN_SIZE) == size and win.Get_attr(MPI.WIN_DISP_UNIT) == unit
    flavor = {"Allocate": MPI.WIN_FLAVOR_ALLOCATE, "Create": MPI.WIN_FLAVOR_CREATE}[kind]
    assert win.flavor == flavor and win.model in (MPI.WIN_UNIFIED, MPI.WIN_SEPARATE), kind
    win.Set_name(f"the window of {me}")
    assert win.name == f"the window of {me}"
    win.name = ""
    assert win.Get_name() == ""
    dropped = []
    key = MPI.Win.Create_keyval(delete_fn=lambda w, k, v: dropped.append(v))
    win.Set_attr(key, [me])
    assert win.Get_attr(key) == [me]
    win.Set_errhandler(MPI.ERRORS_RETURN)
    handler = win.Get_errhandler()
    assert handler == MPI.ERRORS_RETURN
    info = win.Get_info()
    assert info != MPI.INFO_NULL
    info.Free()
    win.Free()
    assert dropped == [[me]]
    MPI.Win.Free_keyval(key)


def again() -> None:
    """Make and free many, of changing kinds and sizes: the handles come back, the data is new."""
    seen = []
    for i in range(60):
        memory, win = make(("Allocate", "Create")[i % 3 == 2], 1 + i * i % 97)
        win.Lock_all()
        win.Put(np.full(memory.size, float(i + me)), (me + 1) % n)
        win.Unlock_all()
        comm.Barrier()
        assert (memory == i + (me - 1) % n).all(), i
        seen.append(memory[-1])
        comm.Barrier()
        win.Free()
    keep("again", np.array(seen))


def unequal() -> None:
    """Sizes from nothing to much; Create without memory."""
    memory, win = make("Allocate", 1000 * me)
    nothing = MPI.Win.Create(None, 1, comm=comm)
    assert nothing.attrs[1] == 0
    nothing.Fence()
    nothing.Fence()
    nothing.Free()
    win.Fence()
    if n > 1:
        win.Put(numbers("unequal", 10), n - 1, me * 20)
    win.Fence()
    keep("unequal", memory)
    win.Free()


for kind in ("Allocate", "Create"):
    communicators(kind)
    apart(kind)
    attributes(kind)
again()
unequal()
comm.Barrier()
done()
