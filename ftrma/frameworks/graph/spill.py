"""Checkpoints of a run in files too: for a job that loses more than its parity, or its machines.

Each slot leaves what it saves in files of its own, one for each checkpoint, and removes the file
before when all slots have the new one. The last file holds the result. A job that is started again
by the same command goes on from the newest checkpoint that all slots have a file of. Within a job
the checkpoints in memory are newer, or equal.

A file has a key: of the graph (`parts.Graph.key`), the partition, the recovery, the number of the
run, the program with its attributes and the text of its module, and the command line. If any of
these has changed, the run begins anew, and is told to. The run also begins anew if a file was
damaged, or was not written by a job of this user, as its tag tells (`cache`).

Law: files of a checkpoint that all slots have stay until all slots have files of a later one.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import inspect
import os
import pickle
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import ftrma

from ... import framework
from ...host import outfile
from . import cache
from .parts import Graph, Partition
from .references import AnyArray

PREFIX = "ftrma-graph-run-"
END = "end"  # in place of the step of a result
OTHERS = ("what is there is of another program, graph, command line or number of slots, or not of "
          "all slots")


def key_of(graph: Graph, partition: Partition, program: Any, recovery: str, run: int) -> str:
    """A key that tells a run from all others, in all jobs.

    Raises:
        ValueError: nothing tells the graph or the program from others.
    """
    kind = type(program)
    if not graph.key:
        raise ValueError(f"spill: nothing tells the graph ({graph.what}) from others; give it a "
                         "key=, or leave spill out")
    try:
        attributes = pickle.dumps(vars(program), protocol=5)
    except Exception as error:
        raise ValueError(f"spill: attributes of {kind.__name__} cannot be compared with those of "
                         f"an earlier job: {error}; leave spill out") from error
    text = b""
    with contextlib.suppress(OSError, TypeError), open(inspect.getfile(kind), "rb") as file:
        text = file.read()
    words = repr((ftrma.__version__, np.__version__, graph.key, graph.n, partition.key, recovery,
                  run, kind.__module__, kind.__qualname__, sys.argv))
    return hashlib.sha256(words.encode() + b"\0" + attributes + b"\0" + text).hexdigest()


class Spill:
    """Has the interface of `ftrma.framework.entries`; `write` puts the entries of a run into files.

    Args:
        comm: of the slots.
        directory: of the files; made if it is missing.
        run: its number.
        key: see `key_of`.

    MPI: local, but for `write` and `recover`.
    Fault: these two unwind when all go back.
    """

    def __init__(self, comm: Any, directory: str, run: int, key: str) -> None:
        self.comm, self.directory, self.run, self.key = comm, directory, run, key
        self.values: dict[str, tuple[AnyArray, str]] = {}
        self.runs = os.path.join(os.path.abspath(directory), f"{PREFIX}{run}-")
        self.beginning = f"{self.runs}{key[:24]}-{comm.rank}-"

    def put(self, key: str, value: npt.ArrayLike, kind: str = "value") -> None:
        self.values[key] = np.asarray(value), kind
        framework.entries.put(key, value, kind)

    def read(self, key: str) -> AnyArray:
        if framework.attempt():
            return framework.entries.read(key)
        return self.values[key][0]

    def drop(self, key: str) -> None:
        self.values.pop(key, None)
        framework.entries.drop(key)

    def __contains__(self, key: str) -> bool:
        return key in (framework.entries if framework.attempt() else self.values)

    def write(self) -> None:
        """Write the checkpoint that has just been taken to a file.

        A file that cannot be written is told on standard error, and is no failure.

        MPI: collective over all slots.
        """
        step = str(int(self.values["at"][0][1])) if "at" in self.values else END
        if step == END and not self.values[f"result {self.run}"][0][1]:
            return  # it may be given more steps
        problem = cache.leave(self._path(step), self.key, {
            f"{kind} {name}": value for name, (value, kind) in self.values.items()
            if step != END or name.startswith("result ")}, lasting=True)
        problems = self.comm.allgather(problem)
        if not any(problems):
            for other in self._files():
                if other != step:
                    with contextlib.suppress(OSError):
                        os.unlink(self._path(other))
        elif self.comm.rank == 0:
            slot = next(slot for slot, problem in enumerate(problems) if problem)
            self._tell(f"goes on without a file of this checkpoint: slot {slot}: {problems[slot]}")

    def recover(self, kept: Mapping[str, Any]) -> None:
        """Begin with the newest checkpoint that all have files of, if no slot has kept the run.

        MPI: collective over all slots.
        """
        found = self.comm.allgather(set(self._files()) if self._is_fresh(kept) else None)
        if None in found:
            return
        step, arrays, problem = self._newest(set.intersection(*found))
        if arrays is None:
            problem = next(filter(None, self.comm.allgather(problem)), OTHERS)
            if self.comm.rank == 0 and glob.glob(f"{glob.escape(self.runs)}*.npz"):
                self._tell(f"begins anew: {problem}")
            return
        for name, value in arrays.items():
            kind, _, key = name.partition(" ")
            self.put(key, value, kind)
        if self.comm.rank == 0:
            self._tell("goes on from there: " + ("it has ended" if step == END
                                                 else f"{step} steps are done"))
        while not framework.confirm(framework.safepoint(take=True)):
            pass  # a checkpoint may be given up or undone while others are replaced

    def _is_fresh(self, kept: Mapping[str, Any]) -> bool:
        """Neither this process nor a checkpoint in memory has anything of the run."""
        if f"result {self.run}" in framework.entries:
            return False
        if any(key.startswith(f"{self.run} ") for key in kept):
            return False
        return ("at" not in framework.entries
                or int(framework.entries.read("at")[0]) != self.run)

    def _newest(self, steps: set[str]) -> tuple[str, dict[str, AnyArray] | None, str]:
        """The newest of some steps whose file serves on all slots.

        Returns:
            The step, this slot's arrays, and why another file did not serve; "", None if none does.

        MPI: collective over all slots.
        """
        problem = ""
        for step in sorted(steps, key=_order, reverse=True):
            arrays, why = cache.fetch(self._path(step), self.key)
            problem = problem or why
            if all(self.comm.allgather(arrays is not None)):
                return step, arrays, problem
        return "", None, problem

    def _tell(self, what: str) -> None:
        outfile.tell(f"files in {self.directory}: run {self.run} {what}", who="graph")

    def _path(self, step: str) -> str:
        return f"{self.beginning}{step}.npz"

    def _files(self) -> list[str]:
        """The steps that this slot has a file of."""
        pattern = re.compile(rf"-(\d+|{END})\.npz")
        paths = glob.glob(f"{glob.escape(self.beginning)}*.npz")
        return [match[1] for path in paths
                if (match := pattern.fullmatch(path, len(self.beginning) - 1))]


def _order(step: str) -> float:
    return float("inf") if step == END else int(step)
