"""Every way to synchronize."""

import numpy as np
from common import MPI, comm, done, keep, make, me, n, numbers

TURNS = 100


def fences(kind: str) -> None:
    """Assertions change nothing in what is seen."""
    memory, win = make(kind, 8)
    win.Fence(MPI.MODE_NOPRECEDE)
    win.Put(numbers("fence", 4), (me + 1) % n)
    win.Fence(MPI.MODE_NOSTORE)
    win.Accumulate(numbers("fence", 4), (me + 2) % n)
    win.Fence(MPI.MODE_NOPUT | MPI.MODE_NOSUCCEED)
    keep(f"fence {kind}", memory)
    win.Free()


def flushes(kind: str) -> None:
    """A value that was flushed is seen by whoever is told of it."""
    memory, win = make(kind, 8)
    target, source = (me + 1) % n, (me - 1) % n
    win.Lock_all()
    for turn, flush in enumerate([
        lambda: win.Flush(target), lambda: win.Flush_all(),
        lambda: (win.Flush_local(target), win.Flush(target)),
        lambda: (win.Flush_local_all(), win.Flush_all()),
    ]):
        win.Put(np.full(2, 100.0 * turn + me), target, 2 * turn)
        flush()
        comm.Barrier()
        win.Sync()
        assert (memory[2 * turn : 2 * turn + 2] == 100 * turn + source).all(), (kind, turn)
    win.Unlock_all()
    for t in (target, source):
        win.Lock(t, MPI.LOCK_SHARED)
        win.Flush(t)
        win.Unlock(t)
    comm.Barrier()
    keep(f"flush {kind}", memory)
    win.Free()


def counters(kind: str) -> None:
    """Get, add, Put under an exclusive lock loses nothing; a shared one sees no half update."""
    memory, win = make(kind, 2, "i8")
    old = np.zeros(2, "i8")
    for turn in range(TURNS):
        win.Lock(0, MPI.LOCK_EXCLUSIVE)
        win.Get(old, 0)
        win.Flush(0)
        assert old[0] == old[1]
        old += 1
        win.Put(old[:1], 0, 0)
        win.Flush(0)
        win.Put(old[1:], 0, 1)
        win.Unlock(0)
        if turn % 4 == me % 4:
            win.Lock(0, MPI.LOCK_SHARED)
            win.Get(old, 0)
            win.Unlock(0)
            assert old[0] == old[1] > 0, (kind, old)
    comm.Barrier()
    assert me or memory.tolist() == [n * TURNS] * 2, (kind, memory)
    keep(f"counter {kind}", memory)
    win.Free()


def many_targets(kind: str) -> None:
    """Locks on several targets at once, released in another order; the own part too."""
    memory, win = make(kind, n)
    for t in range(n):
        win.Lock(t, MPI.LOCK_SHARED)
    for t in range(n):
        win.Put(np.full(1, 10.0 + me), t, me)
    for t in reversed(range(n)):
        win.Unlock(t)
    comm.Barrier()
    win.Lock(me, MPI.LOCK_EXCLUSIVE)
    memory *= 2
    win.Unlock(me)
    comm.Barrier()
    win.Lock((me + 1) % n, MPI.LOCK_SHARED, MPI.MODE_NOCHECK)
    got = np.zeros(n)
    win.Get(got, (me + 1) % n)
    win.Unlock((me + 1) % n)
    win.Lock_all(MPI.MODE_NOCHECK)
    win.Accumulate(np.ones(1), (me + 1) % n, me)
    win.Unlock_all()
    comm.Barrier()
    keep(f"targets {kind}", np.array([memory, got]))
    win.Free()


def post_start(kind: str) -> None:
    """Pairs, then one to all; completed by Wait and by Test, in several rounds."""
    memory, win = make(kind, 4 * n)
    every = comm.Get_group()
    left, right = every.Incl([(me - 1) % n]), every.Incl([(me + 1) % n])
    for turn in range(4):
        win.Post(left, MPI.MODE_NOSTORE if turn else 0)
        win.Start(right)
        win.Put(numbers(f"turn {turn}", 2), (me + 1) % n, 2 * turn)
        win.Complete()
        if turn % 2:
            while not win.Test():
                pass
        else:
            win.Wait()
        keep(f"ring {kind} {turn}", memory)
    others = every.Excl([0])
    if me == 0:
        win.Post(others)
        win.Wait()
        keep(f"gather {kind}", memory)
    else:
        zero = every.Incl([0])
        win.Start(zero)
        win.Put(np.full(1, float(me)), 0, 3 * n + me)
        win.Complete()
        zero.Free()
    win.Post(MPI.GROUP_EMPTY)
    win.Start(MPI.GROUP_EMPTY)
    win.Complete()
    win.Wait()
    comm.Barrier()
    keep(f"post {kind}", memory)
    for group in (every, left, right, others):
        group.Free()
    win.Free()


for kind in ("Allocate", "Create"):
    fences(kind)
    flushes(kind)
    counters(kind)
    many_targets(kind)
    post_start(kind)
comm.Barrier()
done()
