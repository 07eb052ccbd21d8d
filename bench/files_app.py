"""The program that `bench files` runs: each step changes all of a window.

The last line of output is one JSON object: seconds of all steps behind the first checkpoint, and
the time of the first step, by the machine's monotonic clock. With a directory, each slot also
writes the window to a file of its own every so many seconds, with fsync, as programs do that save
themselves; all slots agree when.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "apps"))

from ownfiles import OwnFiles

import ftrma
from ftrma import MPI


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("size", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--own", default="")
    parser.add_argument("--every", type=float, default=5.0)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    me = comm.Get_rank()
    window = MPI.Win.Allocate(options.size, 1, comm=comm)
    memory = np.frombuffer(window.tomemory(), np.uint64)
    memory[:] = np.random.default_rng(me).integers(0, 2**60, len(memory), np.uint64)
    state = ftrma.protect("files", step=0)
    entered_s, began_s = time.monotonic(), 0.0
    own = OwnFiles(comm, options.own, options.every, durable=True)
    while state.step < options.steps:
        ftrma.safepoint()
        if not began_s:  # the first checkpoint takes memory, once and for all
            comm.Barrier()
            began_s = time.monotonic()
        for part in np.array_split(memory, 16):
            part *= np.uint64(0x9E3779B97F4A7C15)
            part += np.uint64(state.step)
        window.Fence()
        state.step += 1
        if options.own:
            own.save_if_due([memory])
    comm.Barrier()
    if me == 0:
        print(json.dumps({"seconds": time.monotonic() - began_s, "entered_s": entered_s}),
              flush=True)


main()
