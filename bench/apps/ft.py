"""NAS Parallel Benchmark FT: a 3-D heat equation by FFT, its transposes made with one-sided Puts.

What: the initial field is transformed once; each iteration multiplies it by the evolution factors
in frequency space, transforms a copy back and adds up 1024 points of it. The last line on standard
output is one JSON object; the exit status is 0 if the checksums agree with the published ones.

Why: nearly all of its communication is large Puts between fences, so it shows what protecting
windows costs, and its checksums show that a protected run is right.

Invariants: between two safepoints nothing is carried but the declared state and the windows; no
epoch is open at a safepoint; every sum is added up in an order that depends on the slot count
alone, so two runs on as many slots give the same bits.

Source: D. Bailey et al., The NAS Parallel Benchmarks, RNR-94-007 (kernel FT) and NPB 3.4. As
there, the time covers the initial field, the factors, the forward transform and the iterations,
after one untimed warm-up.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import npb
import numpy as np
import ownfiles
import scipy.fft
from numpy.typing import NDArray

import ftrma
from ftrma import MPI
from ftrma.host import outfile

# A chunk of planes is transformed, packed and sent while it is still in the second-level cache.
CHUNK_BYTES = 512 * 1024
# Rows transposed at a time while packing: two cache lines' worth of every column.
TRANSPOSE_ROWS = 16
COMPLEX_BYTES = 16

Planes = NDArray[np.complex128]


def main(arguments: list[str]) -> int:
    """Run the benchmark; the result is the exit status."""
    comm = MPI.COMM_WORLD
    options = parse(arguments, comm.Get_rank())
    problem = npb.PROBLEMS[options.problem_class]
    iterations = options.iterations or problem.iterations
    solver = Solver(comm, problem)
    state = ftrma.protect(
        "ft",
        repeat=0,
        step=0,
        began_each=np.zeros(options.repeat + 1),
        seconds_each=np.zeros(options.repeat),
        u0=solver.new_field(),
        sums=np.zeros((options.repeat, iterations), dtype=np.complex128),
    )
    own = ownfiles.OwnFiles(comm, options.save, options.every, durable=options.durable)
    while state.repeat <= options.repeat:
        if options.save:
            own.save_if_due([state.u0, state.sums, *solver.memories])
        advance(state, solver, iterations)
    verified = worst(npb.verify(problem, sums) for sums in state.sums)
    status = 1 if verified is False else 0
    if comm.Get_rank() == 0:
        seconds_each = state.seconds_each.tolist()
        report = {
            "benchmark": "ft",
            "class": options.problem_class,
            "slots": comm.Get_size(),
            "verified": verified,
            "seconds": min(seconds_each),
            "seconds_each": seconds_each,
            "began_each": state.began_each[1:].tolist(),
            "mops": npb.mops(problem, iterations, min(seconds_each)),
            "iterations": iterations,
            "saved_seconds": own.seconds,
        }
        print(json.dumps(report), flush=True)
    if options.dump is not None:
        status = dump(options.dump, comm.Get_rank(), state, solver) or status
    solver.free()
    return status


def advance(state: Any, solver: Solver, iterations: int) -> None:
    """Do one step of the current repetition; repetition 0 is the warm-up, of one step.

    Step 0 makes the field and transforms it forward, steps 1 to `iterations` are NPB's iterations,
    and one more closes the repetition. A safepoint begins each; all but the first lie within the
    repetition's time, one for each transform.
    The start is kept as wall-clock time in the state: a time with a failure in it contains the
    recovery and the work done twice.
    """
    ftrma.safepoint()
    last_step = iterations if state.repeat > 0 else 0
    if state.step > last_step:
        if state.repeat > 0:
            began_s = state.began_each[state.repeat]
            state.seconds_each[state.repeat - 1] = time.time() - began_s
        state.repeat += 1
        state.step = 0
        return
    if state.step == 0:
        solver.comm.Barrier()
        state.began_each[state.repeat] = time.time()
        solver.start(state.u0)
    else:
        state.sums[state.repeat - 1, state.step - 1] = solver.iterate(state.u0)
    state.step += 1


class Solver:
    """One slot's part of the field and the transforms over all slots.

    Two windows receive: the first transpose of a transform puts into the first, the second into
    the second, so a window is read only while nobody can put into it. One send buffer serves both,
    because the fence that ends a transpose ends the Puts that read the buffer.
    """

    def __init__(self, comm: Any, problem: npb.Problem) -> None:
        grid = npb.slot_grid(problem, comm.Get_size())
        if grid is None:
            usable = npb.usable_slots_near(problem, comm.Get_size())
            fail(
                f"ft: {comm.Get_size()} slots cannot share out a grid of "
                f"{problem.nx} x {problem.ny} x {problem.nz} points evenly; "
                f"use another number, for instance {usable}",
                comm.Get_rank(),
            )
        self.comm = comm
        self.problem = problem
        self.pencils = npb.Pencils(problem, *grid, comm.Get_rank())
        self.field = npb.InitialField(problem, self.pencils.real_ranges[1])
        self.factors = npb.evolution_factors(problem, *self.pencils.frequency_ranges)
        self.points = npb.checksum_indices(problem, *self.pencils.real_ranges)
        size = problem.points // comm.Get_size()
        self.size = size
        self.send = np.zeros(size, dtype=np.complex128)
        longest_plane = max(problem.nx, problem.ny, problem.nz) ** 2
        self.work = np.zeros(max(longest_plane, CHUNK_BYTES // COMPLEX_BYTES), dtype=np.complex128)
        self.windows: list[Any] = [
            MPI.Win.Allocate(size * COMPLEX_BYTES, COMPLEX_BYTES, comm=comm) for _ in range(2)
        ]
        self.memories: list[Planes] = [
            np.frombuffer(window.tomemory(), dtype=np.complex128) for window in self.windows
        ]
        for memory in self.memories:
            memory[:] = 0

    def new_field(self) -> Planes:
        """A zeroed array for the field in frequency space, [x, y, z] with all of z."""
        x_range, y_range = self.pencils.frequency_ranges
        return np.zeros((len(x_range), len(y_range), self.problem.nz), dtype=np.complex128)

    def start(self, u0: Planes) -> None:
        """Put the transform of the initial field into `u0`."""
        npb.evolution_factors(self.problem, *self.pencils.frequency_ranges, out=self.factors)
        z_start = self.pencils.real_ranges[0].start

        def load(first: int, _: int, planes: Planes) -> None:
            self.field.fill(z_start + first, planes)

        shape = (self.problem.nz, self.problem.ny, self.problem.nx)
        self._transform(load, u0, shape, (self.pencils.row, self.pencils.column), scipy.fft.fft)

    def iterate(self, u0: Planes) -> complex:
        """Evolve `u0` in place by one iteration, transform a copy back, return its checksum."""

        def load(first: int, end: int, planes: Planes) -> None:
            part = u0[first:end]
            part *= self.factors[first:end]
            planes[:] = part

        shape = (self.problem.nx, self.problem.ny, self.problem.nz)
        # The send buffer is free again when the last axis is transformed, so it takes the result.
        z_range, y_range = self.pencils.real_ranges
        result = self.send.reshape(len(z_range), len(y_range), self.problem.nx)
        peers = (self.pencils.column, self.pencils.row)
        self._transform(load, result, shape, peers, scipy.fft.ifft)
        return self._checksum(result)

    def free(self) -> None:
        """Free the windows; every slot must call it."""
        self.memories = []
        for window in self.windows:
            window.Free()

    def _transform(
        self,
        load: Callable[[int, int, Planes], None],
        result: Planes,
        shape: tuple[int, int, int],
        peers: tuple[npb.Peers, npb.Peers],
        transform: Callable[..., Planes],
    ) -> None:
        """Transform an array [a, b, c] of global `shape` along all axes into `result`[c, b, a].

        At the start a slot owns all of c, a range of a and one of b; the first exchange gives it
        all of b for a range of c, the second all of a. `load` makes planes of the array.
        """
        a_size, b_size, c_size = shape
        a_part = a_size // len(peers[1].slots)
        b_part = b_size // len(peers[0].slots)
        c_part = c_size // len(peers[0].slots)
        b_next = b_size // len(peers[1].slots)
        got = self._exchange(0, peers[0], (a_part, b_part, c_size), load, transform)

        def gather(first: int, end: int, planes: Planes) -> None:
            # Received as [peer, a, c, b of the peer]; wanted as [c, a, b].
            lines = planes.reshape(end - first, a_part, len(peers[0].slots), b_part)
            np.copyto(lines, got[:, :, first:end].transpose(2, 1, 0, 3))

        last = self._exchange(1, peers[1], (c_part, a_part, b_size), gather, transform)
        for first, end in chunks(c_part, b_next * a_size):
            # Received as [peer, c, b, a of the peer]; wanted as [c, b, a].
            planes = result[first:end]
            lines = planes.reshape(end - first, b_next, len(peers[1].slots), a_part)
            np.copyto(lines, last[:, first:end].transpose(1, 2, 0, 3))
            transform_lines(transform, planes)

    def _exchange(
        self,
        stage: int,
        peers: npb.Peers,
        shape: tuple[int, int, int],
        load: Callable[[int, int, Planes], None],
        transform: Callable[..., Planes],
    ) -> Planes:
        """Transform the lines of an array [batch, row, line] and give each peer its part of them.

        The result is what the peers gave this slot, as [peer, batch, part of the line, row]. Each
        chunk of planes is sent as soon as it is packed, while the next one is transformed.
        """
        batch, rows, line = shape
        part = line // len(peers.slots)
        send = self.send.reshape(len(peers.slots), batch, part, rows)
        window = self.windows[stage]
        # The two assertions keep every epoch within the transpose: none is open at a safepoint.
        window.Fence(MPI.MODE_NOPRECEDE)
        for first, end in chunks(batch, rows * line):
            planes = self.work[: (end - first) * rows * line].reshape(end - first, rows, line)
            load(first, end, planes)
            transform_lines(transform, planes)
            offset = (peers.me * batch + first) * part * rows
            for position in peers.order:
                piece = send[position, first:end]
                transpose(planes[:, :, position * part : (position + 1) * part], piece)
                window.Put(
                    [piece, piece.size, MPI.C_DOUBLE_COMPLEX],
                    peers.slots[position],
                    [offset, piece.size, MPI.C_DOUBLE_COMPLEX],
                )
        window.Fence(MPI.MODE_NOSUCCEED)
        return self.memories[stage].reshape(len(peers.slots), batch, part, rows)

    def _checksum(self, result: Planes) -> complex:
        # Each slot adds its share to its own entry, so the reduction adds zeros to it and is exact
        # in whatever order the MPI library chooses; the entries are then added in slot order.
        shares = np.zeros(self.comm.Get_size(), dtype=np.complex128)
        shares[self.comm.Get_rank()] = result.reshape(-1)[self.points].sum()
        total = np.empty_like(shares)
        self.comm.Allreduce(shares, total)
        return complex(sum(total.tolist())) / self.problem.points


def chunks(batch: int, plane_size: int) -> Iterator[tuple[int, int]]:
    """Share `batch` planes of `plane_size` points out into chunks that fit the cache."""
    step = max(1, CHUNK_BYTES // (plane_size * COMPLEX_BYTES))
    for first in range(0, batch, step):
        yield first, min(first + step, batch)


def transform_lines(transform: Callable[..., Planes], planes: Planes) -> None:
    """Transform the contiguous last axis of `planes` in place, without a scale factor."""
    norm = "backward" if transform is scipy.fft.fft else "forward"
    done = transform(planes, norm=norm, overwrite_x=True, workers=1)
    # SciPy may use the input for the output, and does so today, but does not promise it.
    if not np.may_share_memory(done, planes):
        planes[:] = done


def transpose(planes: Planes, out: Planes) -> None:
    """Copy `planes`[i, j, k] to `out`[i, k, j], a few rows at a time to stay in the cache."""
    for first in range(0, planes.shape[1], TRANSPOSE_ROWS):
        end = first + TRANSPOSE_ROWS
        out[:, :, first:end] = planes[:, first:end].transpose(0, 2, 1)


def worst(verdicts: Iterator[bool | None]) -> bool | None:
    """False if any verdict is false, else None if any is unknown, else True."""
    found = set(verdicts)
    return False if False in found else None if None in found else True


def dump(directory: str, slot: int, state: Any, solver: Solver) -> int:
    """Write what the slot ends with, for comparison bit by bit; the result is the exit status."""
    try:
        os.makedirs(directory, exist_ok=True)
        with outfile.opened(os.path.join(directory, f"slot-{slot}.npz")) as file:
            np.savez(
                file,
                u0=state.u0,
                window0=solver.memories[0],
                window1=solver.memories[1],
                sums=state.sums,
            )
    except OSError as error:
        outfile.tell(
            f"--dump {directory}: cannot write the file of slot {slot}: "
            f"{outfile.why(error)}; or name another directory", who="ft",
        )
        return 1
    return 0


def parse(arguments: list[str], slot: int) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(slot)
    parser.add_argument(
        "--class", dest="problem_class", default="S", choices=sorted(npb.PROBLEMS),
        help="problem class of NPB (default S)",
    )
    parser.add_argument("--iterations", type=int, metavar="N", help="instead of the class's own")
    parser.add_argument("--repeat", type=int, default=1, metavar="R", help="timed runs (default 1)")
    parser.add_argument("--dump", metavar="DIR", help="write the final data to DIR/slot-<slot>.npz")
    parser.add_argument("--save", default="", metavar="DIR",
                        help="write checkpoints to files there, as a program without ftrma does")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS",
                        help="between two of these (default 1)")
    parser.add_argument("--durable", action="store_true", help="write them with fsync")
    options = parser.parse_args(arguments)
    for name in ("iterations", "repeat"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} {value} is too small; give a whole number from 1 up")
    return options


class Parser(argparse.ArgumentParser):
    """An argument parser that speaks on slot 0 only: every slot reads the same command line."""

    def __init__(self, slot: int) -> None:
        super().__init__(prog="ft", description="NAS Parallel Benchmark FT over one-sided Puts")
        self._slot = slot

    def _print_message(self, message: str, file: Any = None) -> None:
        if self._slot == 0:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """End with one line instead of the usage."""
        fail(f"ft: {message}", self._slot)


def fail(message: str, slot: int) -> NoReturn:
    """End every slot with status 2; slot 0 says why. All slots must come here together."""
    if slot == 0:
        print(message, file=sys.stderr, flush=True)
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
