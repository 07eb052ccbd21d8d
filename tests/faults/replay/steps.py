"""The frame of `test_causal`'s programs: they run with or without declared state.

Arguments: the directory for results, the mode, the number of steps. In the mode "plain" a program
is an ordinary one of mpi4py and never imports ftrma; in "top" and "bottom" it declares its state
and calls safepoint() at the top or at the end of its loop.
"""

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

DIRECTORY, MODE, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
with open(f"{DIRECTORY}/entered-{os.getpid()}.txt", "a") as f:
    f.write("x")


def declare(**fields: Any) -> Any:
    """State with a step counter, declared to ftrma unless the program is a plain one."""
    if MODE == "plain":
        return SimpleNamespace(step=0, **fields)
    import ftrma

    return ftrma.protect("state", step=0, **fields)


def steps(state: Any) -> Iterator[int]:
    """The numbers of the steps that are still to be done."""
    if MODE != "plain":
        import ftrma
    while state.step < STEPS:
        if MODE == "top":
            ftrma.safepoint()
        yield state.step
        state.step += 1
        if MODE == "bottom":
            ftrma.safepoint()


def save(**arrays: Any) -> None:
    np.savez(f"{DIRECTORY}/slot-{me}.npz", **arrays)
