"""Snapshots of a run in files too: for a job that loses more than its parity, or its machines.

Each slot leaves its part of each snapshot in a file of its own, once the snapshot is safe in memory
and before the next one is staged. A job that is started again by the same command goes on from the
newest snapshot that all slots have a file of. The last file has the result.

A slot stages snapshot e only when it has tried to leave its part of e - 1, and a snapshot is safe
only when all have staged it. So a slot that leaves e may remove what is older than e - 1, if all
have files of e - 1: a look into the directory, which all slots see, tells. Before a run goes on
from a snapshot, files of later ones are removed: a part of another history must not meet parts of
this one.

Law: files of a snapshot that all slots have stay until all slots have files of a later one.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Mapping
from typing import Any

from ...host import outfile
from ..graph import cache
from .kinds import AnyArray

PREFIX = "ftrma-aic-run-"
END = "end"  # in place of the number of a snapshot


class SnapshotFiles:
    """The files of one slot in a run.

    Args:
        comm: of the slots.
        directory: of the files; made if it is missing.
        run: its number.
        key: tells the run from all others, in all jobs.

    MPI: local, but for `recover` and `end`.
    Fault: these two unwind when all go back.
    """

    def __init__(self, comm: Any, directory: str, run: int, key: str) -> None:
        self.comm, self.directory, self.run, self.key = comm, directory, run, key
        self.beginning = os.path.join(os.path.abspath(directory), f"{PREFIX}{run}-{key[:24]}-")
        self._told = False

    def leave(self, number: int, arrays: Mapping[str, AnyArray]) -> None:
        """Write this slot's part of a snapshot, and remove what is not needed any more.

        A file that cannot be written is told, once, and is no failure.
        """
        problem = cache.leave(self._path(number), self.key, arrays, lasting=True)
        if problem and not self._told:
            self._told = True
            self._tell(f"slot {self.comm.rank} goes on without a file of snapshot {number}: "
                       f"{problem}")
        before = number - 1
        if all(os.path.exists(self._path(before, slot)) for slot in range(self.comm.size)):
            self._remove(lambda other: other < before)

    def end(self, arrays: Mapping[str, AnyArray]) -> None:
        """Write the result, and remove the snapshots when all slots have written it.

        MPI: collective over all slots.
        """
        problem = cache.leave(self._path(END), self.key, arrays, lasting=True)
        problems = self.comm.allgather(problem)
        if not any(problems):
            self._remove(lambda number: True)
        elif self.comm.rank == 0:
            slot = next(slot for slot, problem in enumerate(problems) if problem)
            self._tell(f"has ended without a file of the result: slot {slot}: {problems[slot]}")

    def recover(self) -> tuple[int | str, dict[str, AnyArray]] | None:
        """Read the newest snapshot, or result, that all slots have a file of.

        Returns:
            Its number, or END, and this slot's arrays; None: there is none.

        MPI: collective over all slots.
        """
        found = self.comm.allgather(self._files())
        problem = ""
        for number in sorted(set.intersection(*found), key=_order, reverse=True):
            arrays, why = cache.fetch(self._path(number), self.key)
            every = self.comm.allgather((arrays is not None, why))
            problem = problem or next((why for _, why in every if why), "")
            if arrays is not None and all(there for there, _ in every):
                self._remove(lambda other, number=number: other > _order(number))
                if self.comm.rank == 0:
                    self._tell("has ended: its result is there" if number == END
                               else f"goes on from snapshot {number}")
                self.comm.Barrier()  # what is later is gone before anything is written
                return number, arrays
        self._remove(lambda number: True)
        if self.comm.rank == 0 and any(found):
            self._tell("begins anew: " + (problem or "not all slots have files of one snapshot"))
        self.comm.Barrier()
        return None

    def _remove(self, old: Any) -> None:
        """Remove this slot's files of snapshots whose numbers are so."""
        for number in self._files() - {END}:
            if old(number):
                with contextlib.suppress(OSError):
                    os.unlink(self._path(number))

    def _tell(self, what: str) -> None:
        outfile.tell(f"files in {self.directory}: run {self.run} {what}", who="aic")

    def _path(self, number: int | str, slot: int | None = None) -> str:
        return f"{self.beginning}{self.comm.rank if slot is None else slot}-{number}.npz"

    def _files(self) -> set[int | str]:
        """Numbers of the snapshots that this slot has a file of, and END."""
        beginning = f"{self.beginning}{self.comm.rank}-"
        pattern = re.compile(rf"(\d+|{END})\.npz")
        found = (pattern.fullmatch(path[len(beginning):])
                 for path in glob.glob(f"{glob.escape(beginning)}*.npz"))
        return {END if match[1] == END else int(match[1]) for match in found if match}


def _order(number: int | str) -> float:
    return float("inf") if number == END else float(number)
