"""A program that mixes every kind of access: gets that steer puts, accumulates, atomics, locks.

Its result is a pure function of the slot count: what each slot writes in a step depends only on
what it read under a lock or behind a fence. Two windows, one from Allocate and one from Create; a
Split and a Dup communicator; declared state of several types.
"""

import sys
from pathlib import Path

import numpy as np

import ftrma
from ftrma import MPI

STEPS = 12


def main(directory: str) -> None:
    world = MPI.COMM_WORLD
    me, n = world.rank, world.size
    half = world.Split(me % 2, me)
    twin = world.Dup()
    size = 1000 + 37 * me  # uneven parts
    table = MPI.Win.Allocate(size * 8, 8, comm=world)
    cells = np.frombuffer(table.tomemory(), "i8")
    own = np.zeros(64, "i8")
    counters = MPI.Win.Create(own, 8, comm=twin)
    cells[:] = np.arange(size) * (me + 1)
    noise = np.random.default_rng(me)
    state = ftrma.protect("mixed", step=0, trace=np.zeros(STEPS, "i8"), noise=noise, tags=["start"])
    world.Barrier()
    while state.step < STEPS:
        step, peer = state.step, (me + 1 + state.step) % n
        table.Fence()
        got = np.zeros(8, "i8")
        table.Get(got, peer, (step * 8, 8, MPI.INT64_T))
        table.Fence()
        draw = int(state.noise.integers(1 << 30))
        where = 200 + int(abs(got.sum() + draw) % 200)
        table.Accumulate(np.full(4, draw, "i8"), peer, (500, 4, MPI.INT64_T), op=MPI.BXOR)
        table.Put(got + draw, me, (where, 8, MPI.INT64_T))
        table.Fence(MPI.MODE_NOSUCCEED)
        old = np.zeros(1, "i8")
        counters.Lock(0, MPI.LOCK_SHARED)
        counters.Fetch_and_op(np.array([draw]), old, 0, 0, op=MPI.SUM)
        counters.Flush(0)
        counters.Unlock(0)
        counters.Lock(peer, MPI.LOCK_EXCLUSIVE)
        value = np.zeros(1, "i8")
        counters.Get(value, peer, (8 + me, 1, MPI.INT64_T))
        counters.Flush(peer)
        counters.Put(value + step + 1, peer, (8 + me, 1, MPI.INT64_T))
        counters.Unlock(peer)
        total = np.zeros(1, "i8")
        half.Allreduce(np.array([draw]), total)
        state.trace[step] = total[0] + twin.allreduce(step)
        state.tags.append(step)
        state.step += 1
        world.Barrier()
        ftrma.safepoint()
    world.Barrier()
    assert state.tags == ["start", *range(STEPS)]
    np.savez(
        Path(directory) / f"slot-{me}.npz", cells=cells, own=own, trace=state.trace,
        draw=state.noise.integers(1 << 30),
    )
    world.Barrier()
    counters.Free()
    table.Free()


main(sys.argv[1])
