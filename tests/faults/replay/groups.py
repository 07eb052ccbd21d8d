"""A program that works in communicators derived from the world, and in windows on them.

Its memory at the end follows from the number of slots and steps. ``plain`` declares nothing,
``late`` makes its communicators behind `protect`, ``top`` before it.
"""

import sys

import numpy as np

import ftrma
from ftrma import MPI


class Groups:
    """Communicators of each kind, and a window on one of them."""

    def __init__(self, world: MPI.Intracomm) -> None:
        me, n = world.rank, world.size
        self.twin = world.Dup()
        self.half = world.Split(me % 2, -me)
        self.node = self.twin.Split_type(MPI.COMM_TYPE_SHARED)
        self.grid = self.node.Create_cart([n // 2, 2], periods=[True, False])
        self.row = self.grid.Sub([False, True])
        first = world.group.Range_incl([(0, n - 2, 1)])
        self.few = world.Create(first)
        self.win = MPI.Win.Allocate(64 * 8, 8, comm=self.half)


def step_of(groups: Groups, cells: np.ndarray, step: int) -> None:
    """Something that depends on all communicators, in `cells` of the window."""
    half, grid, me = groups.half, groups.grid, groups.twin.rank
    drawn = groups.twin.bcast(me * step, root=step % half.size)
    got = np.array([half.allreduce(me + step) + drawn])
    groups.win.Fence()
    groups.win.Put(got, (half.rank + 1) % half.size, step % 64)
    groups.win.Fence()
    here = sum(groups.row.allgather(int(cells.sum()))) + grid.coords[0] + 10 * grid.Shift(0, 1)[1]
    short = grid.Split(me // 2)  # comes and goes in each step
    twin = short.Dup()
    here += twin.scan(step)
    twin.Free()
    if groups.few != MPI.COMM_NULL:
        here += groups.few.reduce(step, root=0) or 0
    groups.win.Lock(0, MPI.LOCK_SHARED)
    groups.win.Accumulate(np.array([short.allreduce(here) % 1000003]), 0, 63)
    groups.win.Unlock(0)
    short.Free()
    groups.node.Barrier()


def main(directory: str, mode: str, steps: int) -> None:
    world = MPI.COMM_WORLD
    groups = Groups(world) if mode != "late" else None
    state = ftrma.protect("groups", step=0) if mode != "plain" else None
    groups = groups or Groups(world)
    cells = np.frombuffer(groups.win.tomemory(), "i8")
    for step in range(state.step if state else 0, steps):
        if state:
            state.step = step
            ftrma.safepoint()
        step_of(groups, cells, step)
    np.savez(f"{directory}/slot-{world.rank}.npz", cells=cells)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
