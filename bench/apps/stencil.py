"""2-D heat equation by a 5-point Jacobi iteration, its halo rows exchanged with one-sided Puts.

What: an n x n grid is shared out by rows. Each step every slot puts its first and last row into its
neighbours' halo rows and computes the next time level; every few steps the greatest change of any
point is reduced to the residual. The last line on standard output is one JSON object.

Why: it sends many small Puts, keeps all of its grid in a window, and can synchronise in each of the
ways MPI-3 offers (`--mode`), which must not change a single bit of the result.

Invariants: the time level of step s is plane s mod 2; a Put of step s writes only halo rows of that
plane, which their owner reads only after the synchronisation of step s and no longer after that of
step s + 1, so one synchronisation a step is enough. The residual is a maximum and the checksum adds
up rows in global order, so neither depends on the slot count.

Source: W. Gropp, T. Hoefler, R. Thakur, E. Lusk, Using Advanced MPI (2014), chapters 3 and 4, for
the halo exchange in each mode of synchronisation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

import ftrma
from ftrma import MPI
from ftrma.host import outfile

# The share of the difference to its four neighbours that a point takes on in a step; below 1/4 the
# iteration is stable.
DIFFUSION = 0.2
DOUBLE_BYTES = 8
MODES = ("fence", "lock", "lockall", "pscw")

Rows = NDArray[np.float64]


def main(arguments: list[str]) -> int:
    """Run the benchmark; the result is the exit status."""
    comm = MPI.COMM_WORLD
    options = parse(arguments, comm)
    grid = Grid(comm, options.n)
    # The start is wall-clock time in the state: a time with a failure in it contains the recovery.
    state = ftrma.protect("stencil", step=0, residual=math.inf, started_s=time.time())
    exchange = Exchange(grid, options.mode)
    while state.step < options.steps and not reached(state.residual, options.tolerance):
        ftrma.safepoint()
        exchange.halos(state.step % 2)
        step = state.step + 1
        due = step % options.residual_every == 0 or step == options.steps
        change = grid.advance(state.step % 2, due)
        if due:
            state.residual = comm.allreduce(change, op=MPI.MAX)
        state.step = step
    seconds = time.time() - state.started_s
    exchange.close()
    checksum = grid.checksum(state.step % 2)
    if grid.slot == 0:
        report = {
            "benchmark": "stencil",
            "slots": grid.slots,
            "n": options.n,
            "steps": state.step,
            "residual": state.residual,
            "seconds": seconds,
            "checksum": checksum,
            "mode": options.mode,
        }
        print(json.dumps(report), flush=True)
    status = 0 if options.dump is None else dump(options.dump, state, grid)
    grid.free()
    return status


def reached(residual: float, tolerance: float | None) -> bool:
    """The iteration may stop before its last step."""
    return tolerance is not None and residual <= tolerance


class Grid:
    """One slot's rows of the grid, in a window: two planes, each with a halo row at both ends."""

    def __init__(self, comm: Any, n: int) -> None:
        self.comm = comm
        self.n = n
        self.slot = comm.Get_rank()
        self.slots = comm.Get_size()
        self.rows = rows_of(n, self.slots, self.slot)
        count = len(self.rows)
        size_bytes = 2 * (count + 2) * n * DOUBLE_BYTES
        self.window = MPI.Win.Allocate(size_bytes, DOUBLE_BYTES, comm=comm)
        memory = np.frombuffer(self.window.tomemory(), dtype=np.float64)
        self.planes = memory.reshape(2, count + 2, n)
        self.planes[:] = 0
        # The edge of the grid keeps its first value for ever, so both planes begin with it.
        self.planes[:, 1:-1] = initial_rows(n, self.rows)
        # The first and the last row of the grid are edges and are not computed.
        self._begin = 2 if self.slot == 0 else 1
        self._end = count if self.slot == self.slots - 1 else count + 1
        computed = max(0, self._end - self._begin)
        self._sum = np.zeros((computed, n - 2))
        self._scaled = np.zeros((computed, n - 2))

    def advance(self, plane: int, measure: bool) -> float:
        """Compute the other plane from `plane`; with `measure`, return the greatest change."""
        if len(self._sum) == 0:
            return 0.0
        old, new = self.planes[plane], self.planes[1 - plane]
        begin, end = self._begin, self._end
        centre = old[begin:end, 1:-1]
        np.add(old[begin - 1 : end - 1, 1:-1], old[begin + 1 : end + 1, 1:-1], out=self._sum)
        self._sum += old[begin:end, :-2]
        self._sum += old[begin:end, 2:]
        np.multiply(centre, 4.0, out=self._scaled)
        self._sum -= self._scaled
        self._sum *= DIFFUSION
        np.add(centre, self._sum, out=new[begin:end, 1:-1])
        if not measure:
            return 0.0
        return float(np.abs(self._sum, out=self._sum).max())

    def checksum(self, plane: int) -> float:
        """The sum of all points, the same bits for every slot count."""
        # Each row's sum is reduced with zeros from everyone else, which is exact in any order.
        sums = np.zeros(self.n)
        sums[self.rows.start : self.rows.stop] = self.planes[plane, 1:-1].sum(axis=1)
        total = np.empty_like(sums)
        self.comm.Allreduce(sums, total)
        return math.fsum(total.tolist())

    def free(self) -> None:
        """Free the window; every slot must call it."""
        del self.planes
        self.window.Free()


class Exchange:
    """The halo exchange of a step, synchronised in one of the modes."""

    def __init__(self, grid: Grid, mode: str) -> None:
        self._grid = grid
        self._window = grid.window
        self._mode = mode
        self._neighbours = [
            slot for slot in (grid.slot - 1, grid.slot + 1) if 0 <= slot < grid.slots
        ]
        self._group = None
        if mode == "pscw":
            world = grid.comm.Get_group()
            self._group = world.Incl(self._neighbours)
            world.Free()
        if mode == "lockall":
            self._window.Lock_all()
        # A lock waits for nobody: without this a Put could come before its target has initialised.
        grid.comm.Barrier()

    def halos(self, plane: int) -> None:
        """Put the outermost own rows of `plane` into the neighbours' halo rows, and synchronise."""
        getattr(self, f"_{self._mode}")(plane)

    def close(self) -> None:
        """End what is open for the whole run."""
        if self._mode == "lockall":
            self._window.Unlock_all()
        if self._group is not None:
            self._group.Free()

    def _fence(self, plane: int) -> None:
        # The two assertions keep every epoch within the step: none is open at a safepoint.
        self._window.Fence(MPI.MODE_NOPRECEDE)
        for neighbour in self._neighbours:
            self._put(plane, neighbour)
        self._window.Fence(MPI.MODE_NOSUCCEED)

    def _lock(self, plane: int) -> None:
        for neighbour in self._neighbours:
            self._window.Lock(neighbour, MPI.LOCK_EXCLUSIVE)
            self._put(plane, neighbour)
            self._window.Unlock(neighbour)
        self._grid.comm.Barrier()
        # A lock of the own memory makes what others put into it visible to plain loads.
        self._window.Lock(self._grid.slot, MPI.LOCK_SHARED)
        self._window.Unlock(self._grid.slot)

    def _lockall(self, plane: int) -> None:
        # Own rows were computed by plain stores: the first Sync orders those before the exchange,
        # the second makes what the neighbours put visible to plain loads.
        self._window.Sync()
        for neighbour in self._neighbours:
            self._put(plane, neighbour)
            self._window.Flush(neighbour)
        self._grid.comm.Barrier()
        self._window.Sync()

    def _pscw(self, plane: int) -> None:
        self._window.Post(self._group)
        self._window.Start(self._group)
        for neighbour in self._neighbours:
            self._put(plane, neighbour)
        self._window.Complete()
        self._window.Wait()

    def _put(self, plane: int, neighbour: int) -> None:
        grid = self._grid
        upper = neighbour < grid.slot
        row = grid.planes[plane, 1 if upper else -2]
        # The upper neighbour's last halo row lies behind its own rows, which may be more or fewer.
        its_rows = len(rows_of(grid.n, grid.slots, neighbour))
        halo = its_rows + 1 if upper else 0
        offset = (plane * (its_rows + 2) + halo) * grid.n
        self._window.Put([row, grid.n, MPI.DOUBLE], neighbour, [offset, grid.n, MPI.DOUBLE])


def rows_of(n: int, slots: int, slot: int) -> range:
    """The global rows of a slot; the first slots have one row more where n is uneven."""
    each, left = divmod(n, slots)
    begin = slot * each + min(slot, left)
    return range(begin, begin + each + (1 if slot < left else 0))


def initial_rows(n: int, rows: range) -> Rows:
    """A fixed pattern inside, a hot upper edge, and cold edges elsewhere."""
    i = np.arange(rows.start, rows.stop)[:, None]
    j = np.arange(n)[None, :]
    values: Rows = (37 * i + 101 * j) % 97 / 97.0
    values[:, [0, -1]] = 0.0
    values[np.flatnonzero(i[:, 0] == n - 1)] = 0.0
    values[np.flatnonzero(i[:, 0] == 0)] = 1.0
    return values


def dump(directory: str, state: Any, grid: Grid) -> int:
    """Write what the slot ends with, for comparison bit by bit; the result is the exit status.

    The clock in the state is left out, since it differs from run to run.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        with outfile.opened(os.path.join(directory, f"slot-{grid.slot}.npz")) as file:
            np.savez(
                file,
                step=state.step,
                residual=state.residual,
                window=grid.planes,
            )
    except OSError as error:
        outfile.tell(
            f"--dump {directory}: cannot write the file of slot {grid.slot}: "
            f"{outfile.why(error)}; or name another directory", who="stencil",
        )
        return 1
    return 0


def parse(arguments: list[str], comm: Any) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(comm.Get_rank())
    parser.add_argument("--n", type=int, default=256, help="points a side (default 256)")
    parser.add_argument("--steps", type=int, default=200, help="steps at most (default 200)")
    parser.add_argument(
        "--residual-every", type=int, default=10, metavar="STEPS", help="(default 10)"
    )
    parser.add_argument("--tolerance", type=float, help="stop when the residual is not above it")
    parser.add_argument("--mode", choices=MODES, default="fence", help="(default fence)")
    parser.add_argument("--dump", metavar="DIR", help="write the final data to DIR/slot-<slot>.npz")
    options = parser.parse_args(arguments)
    least = {"n": max(3, comm.Get_size()), "steps": 1, "residual_every": 1}
    for name, minimum in least.items():
        value = getattr(options, name)
        if value < minimum:
            option = name.replace("_", "-")
            parser.error(f"--{option} {value} is too small; give a whole number from {minimum} up")
    if options.tolerance is not None and not options.tolerance >= 0:
        parser.error(f"--tolerance {options.tolerance} is not usable; give a number from 0 up")
    return options


class Parser(argparse.ArgumentParser):
    """An argument parser that speaks on slot 0 only: every slot reads the same command line."""

    def __init__(self, slot: int) -> None:
        super().__init__(prog="stencil", description="2-D heat equation with one-sided halo Puts")
        self._slot = slot

    def _print_message(self, message: str, file: Any = None) -> None:
        if self._slot == 0:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """End with one line instead of the usage; every slot comes here together."""
        if self._slot == 0:
            print(f"stencil: {message}", file=sys.stderr, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
