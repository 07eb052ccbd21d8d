"""The programs' common part: communicator, windows to work on, results to compare.

The programs are ordinary mpi4py programs. Only where Open MPI's own one-sided communication gives
wrong results or crashes do they ask whether they are protected: there, nothing can be compared, and
they assert what must hold.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

SEED = 61803
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
RESULTS = Path(sys.argv[1])
PROTECTED = "FTRMA_JOB" in os.environ
memories: dict[str, np.ndarray] = {}


def numbers(label: str, count: int, dtype: Any = "f8", rank: int | None = None) -> np.ndarray:
    """Small whole numbers, so that sums and products are exact; the same in every run."""
    seed = [SEED, me if rank is None else rank, zlib.crc32(label.encode())]
    values = np.random.default_rng(seed).integers(1, 100, count)
    if np.dtype(dtype).kind == "c":
        return (values + 1j * values[::-1]).astype(dtype)
    return (values % 2 if np.dtype(dtype).kind == "b" else values).astype(dtype)


def make(
    kind: str, count: int, dtype: Any = "f8", unit: int | None = None, on: MPI.Comm = comm
) -> tuple[np.ndarray, MPI.Win]:
    """A window of `count` elements whose memory starts as zeros, and this memory."""
    dtype = np.dtype(dtype)
    unit = dtype.itemsize if unit is None else unit
    if kind == "Allocate":
        win = MPI.Win.Allocate(count * dtype.itemsize, unit, comm=on)
        memory = np.frombuffer(win.tomemory(), dtype)
        memory[:] = 0
    else:
        memory = np.zeros(count, dtype)
        win = MPI.Win.Create(memory, unit, comm=on)
    on.Barrier()
    return memory, win


def keep(label: str, memory: np.ndarray) -> None:
    """Note a final memory, to be compared over runs."""
    assert label not in memories, label
    memories[label] = np.array(memory)


def done() -> None:
    """Write what was kept; the program has come to its end."""
    np.savez(RESULTS / f"memory-{me}.npz", **memories)
