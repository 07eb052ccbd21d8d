"""Checkpoints that a program writes to files of its own, as programs do that save themselves.

They stand beside ftrma's: in tmpfs for checkpoints in the memory of nodes, on a disk, with fsync,
for those of a parallel file system.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


class OwnFiles:
    """Files of a slot, written every so many seconds; all slots agree when.

    Args:
        comm: of all slots.
        directory: for the files.
        every_s: seconds between two checkpoints.
        durable: a file is on the disk when its writing ends (fsync).
    """

    def __init__(self, comm: Any, directory: str, every_s: float, *, durable: bool) -> None:
        self.comm, self.every_s, self.durable = comm, every_s, durable
        self.path = Path(directory) / f"slot-{comm.Get_rank()}.npy"
        self.saved_s = time.monotonic()
        self.seconds: list[float] = []  # that each checkpoint has taken

    def save_if_due(self, arrays: Iterable[Any]) -> None:
        """Write a checkpoint if it is time for one; all slots call this together.

        Args:
            arrays: all that has to be saved.
        """
        if not self.comm.bcast(time.monotonic() - self.saved_s >= self.every_s, 0):
            return
        began_s = time.monotonic()
        draft = self.path.with_suffix(".new")
        with draft.open("wb") as file:
            for array in arrays:
                np.save(file, array)
            file.flush()
            if self.durable:
                os.fsync(file.fileno())
        draft.replace(self.path)
        self.comm.Barrier()  # a checkpoint is whole when all have written theirs
        self.saved_s = time.monotonic()
        self.seconds.append(self.saved_s - began_s)
