"""The program that `bench micro` runs on both sides: loops of one-sided calls, timed by rank 0.

Rank 0 makes the calls toward rank 1, which waits in a barrier meanwhile and so lets the MPI library
make progress there. Calls that all ranks make together (fences) are looped by all. The last line of
output is one JSON object: seconds per call of each batch.

It imports mpi4py alone, so that nothing of ftrma is loaded on the unprotected side.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np
from mpi4py import MPI

LARGE_BYTES = 1 << 20
TARGET = 1
TRIALS = 3
PUT_VALUE = 0x0123456789ABCDEF

Loop = Callable[[int], None]


def main() -> None:
    options = parse()
    comm = MPI.COMM_WORLD
    if options.only_fence:
        found = {"Fence": measure_fence(comm, options)}
    else:
        found = measure_passive(comm, options)
    if comm.Get_rank() == 0:
        print(json.dumps({"ranks": comm.Get_size(), "seconds_per_call": found}), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=51, help="timed loops of each call")
    parser.add_argument("--batch-s", type=float, default=0.001, help="least time of a loop")
    parser.add_argument("--only-fence", action="store_true", help="measure fences alone")
    return parser.parse_args()


def timed(loop: Loop, count: int) -> float:
    began = time.perf_counter()
    loop(count)
    return time.perf_counter() - began


def batches(
    loop: Loop, options: argparse.Namespace, agree: Callable[[float], float]
) -> list[float]:
    """Seconds per call of each batch; finding the count is the warm-up.

    A count is enough if the fastest of some loops is: one that other work held up says nothing.

    Args:
        loop: makes the call so many times.
        options: of this program.
        agree: gives all who loop together the same time, and so the same count.
    """
    count = 1
    while min(agree(timed(loop, count)) for _ in range(TRIALS)) < options.batch_s:
        count *= 2
    return [timed(loop, count) / count for _ in range(options.batches)]


def measure_fence(comm: Any, options: argparse.Namespace) -> list[float]:
    window = MPI.Win.Allocate(8, 1, comm=comm)

    def loop(count: int) -> None:
        fence = window.Fence
        for _ in repeat(None, count):
            fence()

    comm.Barrier()
    found = batches(loop, options, lambda seconds: float(comm.bcast(seconds)))
    comm.Barrier()
    window.Free()
    return found


def measure_passive(comm: Any, options: argparse.Namespace) -> dict[str, list[float]]:
    """Every call of passive synchronization, on a window from Allocate and one from Create."""
    found: dict[str, list[float]] = {}
    allocated: Any = MPI.Win.Allocate(LARGE_BYTES, 1, comm=comm)
    memory = MPI.Alloc_mem(LARGE_BYTES)
    created: Any = MPI.Win.Create(memory, 1, comm=comm)
    for window in (allocated, created):
        np.frombuffer(window.tomemory(), dtype=np.uint8)[:] = 0
    comm.Barrier()
    if comm.Get_rank() == 0:
        for name, loop in flushed_loops(allocated).items():
            allocated.Lock_all()
            found[name] = batches(loop, options, float)
            allocated.Unlock_all()
        for name, loop in locking_loops(allocated).items():
            found[name] = batches(loop, options, float)
        created.Lock_all()
        loop = flushed_loops(created)["Put 8 B + Flush"]
        found["Put 8 B + Flush, Create"] = batches(loop, options, float)
        created.Unlock_all()
    comm.Barrier()
    if comm.Get_rank() == TARGET:
        for window in (allocated, created):
            # The put of the lock loop and that of the created window came last, in their places.
            last = np.frombuffer(window.tomemory(), dtype=np.int64)[0]
            assert last == PUT_VALUE, f"the window holds {last:#x} instead of {PUT_VALUE:#x}"
    comm.Barrier()
    created.Free()
    allocated.Free()
    MPI.Free_mem(memory)
    return found


def flushed_loops(window: Any) -> dict[str, Loop]:
    """Loops of one access and one flush."""
    small = np.full(1, PUT_VALUE, dtype=np.int64)
    other = np.zeros(1, dtype=np.int64)
    large = np.full(LARGE_BYTES, 7, dtype=np.uint8)
    flush = window.Flush

    def loop_of(access: Callable[..., Any], *arguments: Any) -> Loop:
        def loop(count: int) -> None:
            for _ in repeat(None, count):
                access(*arguments)
                flush(TARGET)

        return loop

    return {
        "Put 8 B + Flush": loop_of(window.Put, small, TARGET),
        "Put 1 MiB + Flush": loop_of(window.Put, large, TARGET),
        "Get 8 B + Flush": loop_of(window.Get, other, TARGET),
        "Fetch_and_op + Flush": loop_of(window.Fetch_and_op, small, other, TARGET, 0, MPI.SUM),
        "Compare_and_swap + Flush": loop_of(
            window.Compare_and_swap, small, small, other, TARGET, 0
        ),
        "Accumulate 8 B + Flush": loop_of(window.Accumulate, small, TARGET, None, MPI.SUM),
    }


def locking_loops(window: Any) -> dict[str, Loop]:
    """Loops that lock and unlock each time."""
    small = np.full(1, PUT_VALUE, dtype=np.int64)

    def lock_all(count: int) -> None:
        lock, unlock = window.Lock_all, window.Unlock_all
        for _ in repeat(None, count):
            lock()
            unlock()

    def lock_put(count: int) -> None:
        lock, put, unlock = window.Lock, window.Put, window.Unlock
        for _ in repeat(None, count):
            lock(TARGET)
            put(small, TARGET)
            unlock(TARGET)

    return {"Lock_all + Unlock_all": lock_all, "Lock + Put 8 B + Unlock": lock_put}


if __name__ == "__main__":
    main()
