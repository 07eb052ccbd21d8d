"""The program that `bench recovery` kills: a window of a given size and a step counter.

Every step begins with a safepoint and changes one page of the window; the one checkpoint that
matters holds the whole window. The last line of output is one JSON object: the times at which slot
0 came out of the fences, on the machine's monotonic clock (after a rollback those since then), and
the time of copying the window's size in memory.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np

import ftrma
from ftrma import MPI

STEPS = 30
COPIES = 7


def memcpy_s(size_bytes: int) -> float:
    """Median seconds of copying that many bytes between warm arrays, the other slots waiting."""
    source = np.random.default_rng(1).integers(0, 256, size_bytes, np.uint8)
    target = np.zeros_like(source)
    times = []
    for _ in range(COPIES):
        began = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def main() -> None:
    size_bytes = int(sys.argv[1])
    comm = MPI.COMM_WORLD
    me = comm.Get_rank()
    window = MPI.Win.Allocate(size_bytes, 1, comm=comm)
    memory = np.frombuffer(window.tomemory(), np.uint8)
    memory[:] = np.random.default_rng(me).integers(0, 256, size_bytes, np.uint8)
    state = ftrma.protect("recovery", step=0)
    fenced_s = []
    while state.step < STEPS:
        while ftrma.stats()["version"] < state.step:  # the checksum rank has caught up
            pass
        ftrma.safepoint()
        memory[state.step * 4096] ^= 1
        window.Fence()
        fenced_s.append(time.monotonic())
        state.step += 1
    copied_s = memcpy_s(size_bytes) if me == 0 else 0.0
    comm.Barrier()
    if me == 0:
        print(json.dumps({"fenced_s": fenced_s, "memcpy_s": copied_s}), flush=True)


main()
