"""The program that `bench micro` runs on both sides: loops of one-sided calls, timed by rank 0.

Rank 0 makes the calls toward rank 1, which waits in a barrier meanwhile and so lets the MPI library
make progress there. Calls that all ranks make together (fences) are looped by all. The last line of
output is one JSON object: seconds per call of each batch.

It imports mpi4py alone, so that nothing of ftrma is loaded on the unprotected side. On the
protected sides a checkpoint now and then, between batches, empties the logs before they are full.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from itertools import cycle, repeat
from typing import Any

import numpy as np
from mpi4py import MPI

LARGE_BYTES = 1 << 20
TARGET = 1
TRIALS = 3
PUT_VALUE = 0x0123456789ABCDEF
# Copies go around in it: far more than a core's own caches hold, and as much as logs grow to.
COLD_BYTES = 128 << 20
# A call leaves no more in a log beside its data: more than any record's head.
RECORD_BYTES = 512
COMPUTE_S = 0.01  # between two looks into the MPI library
PUTS = 64  # behind each other
BUSY = "Put 8 B + Flush, target computes"
# Logs are emptied when so much may be in them; half the budget that the driver gives them.
FULL_BYTES = 128 << 20

Loop = Callable[[int], None]


def main() -> None:
    options = parse()
    comm = MPI.COMM_WORLD
    if options.only_fence:
        found = {"Fence": measure_fence(comm, options)}
    elif options.only_busy:
        found = {BUSY: measure_busy(comm, options)}
    else:
        found = measure_passive(comm, options)
    if comm.Get_rank() == 0:
        print(json.dumps({"ranks": comm.Get_size(), "seconds_per_call": found}), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=51, help="timed loops of each call")
    parser.add_argument("--batch-s", type=float, default=0.001, help="least time of a loop")
    parser.add_argument("--only-fence", action="store_true", help="measure fences alone")
    parser.add_argument("--only-busy", action="store_true",
                        help="measure a put toward a rank that computes, alone")
    return parser.parse_args()


def timed(loop: Loop, count: int) -> float:
    began = time.perf_counter()
    loop(count)
    return time.perf_counter() - began


class Logs:
    """Keeps the logs from getting full: rank 0 counts, the other takes part in checkpoints.

    On the unprotected side it does the same without checkpoints.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.bytes = 0
        self.again = np.zeros(1, dtype=np.int64)

    def prepare(self, loop: Loop, calls: int, data_bytes: int) -> None:
        """Prepare for calls of this loop that are about to be timed (rank 0)."""
        self.bytes += calls * (data_bytes + RECORD_BYTES)
        if self.bytes > FULL_BYTES:
            self._tell(True)
            self.checkpoint()
            self.bytes = (calls + 1) * (data_bytes + RECORD_BYTES)
            loop(1)

    def follow(self) -> None:
        """Take part until rank 0 is done (the others)."""
        while self._tell(False):
            self.checkpoint()

    def done(self) -> None:
        self._tell(False)

    def _tell(self, again: bool) -> bool:
        self.again[0] = again
        self.comm.Bcast(self.again)
        return bool(self.again[0])

    @staticmethod
    def checkpoint() -> None:
        ftrma: Any = sys.modules.get("ftrma")
        if ftrma:
            version = ftrma.stats()["version"]
            ftrma.safepoint()
            while ftrma.stats()["version"] == version:
                time.sleep(0.001)


def batches(
    loop: Loop,
    options: argparse.Namespace,
    agree: Callable[[float], float] = float,
    prepare: Callable[[int], None] = lambda _: None,
) -> list[float]:
    """Seconds per call of each batch; finding the count is the warm-up.

    A count is enough if the fastest of some loops is: one that other work held up says nothing.

    Args:
        loop: makes the call so many times.
        options: of this program.
        agree: gives all who loop together the same time, and so the same count.
        prepare: is called before each timed loop, with its count.
    """

    def once(count: int) -> float:
        prepare(count)
        return agree(timed(loop, count))

    count = 1
    while min(once(count) for _ in range(TRIALS)) < options.batch_s:
        count *= 2
    return [once(count) / count for _ in range(options.batches)]


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


def measure_busy(comm: Any, options: argparse.Namespace) -> list[float]:
    """A put and a flush toward a rank that enters the MPI library every 10 ms only."""
    window: Any = MPI.Win.Allocate(8, 1, comm=comm)
    small, found = np.full(1, PUT_VALUE, dtype=np.int64), [0.0]
    comm.Barrier()
    if comm.Get_rank() == 0:

        def loop(count: int) -> None:
            for _ in repeat(None, count):
                window.Put(small, TARGET)
                window.Flush(TARGET)

        window.Lock_all()
        found = batches(loop, options)
        window.Unlock_all()
        comm.send(None, TARGET)
    elif comm.Get_rank() == TARGET:
        while not comm.Iprobe(0):
            until = time.perf_counter() + COMPUTE_S
            while time.perf_counter() < until:
                np.sqrt(small)
        comm.recv(source=0)
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
    logs = Logs(comm)
    comm.Barrier()
    if comm.Get_rank() == 0:

        def measure(name: str, loop: Loop, data_bytes: int = 8) -> None:
            def prepare(count: int) -> None:
                logs.prepare(loop, count, data_bytes)

            found[name] = batches(loop, options, prepare=prepare)

        for name, loop in flushed_loops(allocated).items():
            allocated.Lock_all()
            measure(name, loop, LARGE_BYTES if "1 MiB" in name else 8 * PUTS)
            allocated.Unlock_all()
        for name, loop in locking_loops(allocated).items():
            measure(name, loop)
        created.Lock_all()
        measure("Put 8 B + Flush, Create", flushed_loops(created)["Put 8 B + Flush"])
        created.Unlock_all()
        logs.done()
    else:
        logs.follow()
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
    """Loops of one access and one flush, and of a copy that one of them is compared with."""
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

    def pipelined(count: int) -> None:
        put = window.Put
        for _ in repeat(None, count):
            for _ in repeat(None, PUTS):
                put(small, TARGET)
            flush(TARGET)

    return {
        "64 Puts 8 B + Flush": pipelined,
        "Put 8 B + Flush": loop_of(window.Put, small, TARGET),
        "Put 1 MiB + Flush": loop_of(window.Put, large, TARGET),
        "memcpy 1 MiB to cold memory": cold_copies(),
        "Get 8 B + Flush": loop_of(window.Get, other, TARGET),
        "Fetch_and_op + Flush": loop_of(window.Fetch_and_op, small, other, TARGET, 0, MPI.SUM),
        "Compare_and_swap + Flush": loop_of(
            window.Compare_and_swap, small, small, other, TARGET, 0
        ),
        "Accumulate 8 B + Flush": loop_of(window.Accumulate, small, TARGET, None, MPI.SUM),
    }


def cold_copies() -> Loop:
    """A loop of copies into memory that is mapped and in no cache."""
    source = np.full(LARGE_BYTES, 7, dtype=np.uint8)
    area = np.zeros((COLD_BYTES // LARGE_BYTES, LARGE_BYTES), dtype=np.uint8)
    area[:] = 1
    places = cycle(area)

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            np.copyto(next(places), source)

    return loop


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
