"""Checkpoints of a run in files too: for a job that loses more than parity has, or its machines.

Each slot leaves what it saves in a file of its own, for each checkpoint one, and removes the one
before when all have theirs; a result is the last one. A job that is started again by the same
command goes on from the newest one that all slots have. Within a job checkpoints in memory are
newer, or equal.

A file says what it is of: the graph (`parts.Graph.key`), the partition, the recovery,
the run's number, the program with its attributes and the text of its module, and the command line.
If any is another now, the run begins anew, and is told to. So it does where a file was damaged, or
was not written by a job of this user, which the tag tells (`cache`).

Law: what all slots have a file of stays until all have one of something later.
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
    """What tells a run from all others, in all jobs.

    Raises:
        ValueError: nothing does.
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
    bounds = partition.bounds.tolist() if partition.kind == "edges" else partition.kind
    words = repr((ftrma.__version__, np.__version__, graph.key, graph.n, bounds, partition.slots,
                  recovery, run, kind.__module__, kind.__qualname__, sys.argv))
    return hashlib.sha256(words.encode() + b"\0" + attributes + b"\0" + text).hexdigest()


class Spill:
    """As `ftrma.framework.entries`, for one run: what is put comes to files as well, by `write`.

    Args:
        comm: of the slots.
        directory: of the files; made if it is missing.
        run: its number; `key` is by `key_of`.

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
        """Leave in a file what the checkpoint has that has just been taken. What stands in the way
        of that is told, and no failure.

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
        """Begin with what files have, where nobody has anything of the run.

        MPI: collective over all slots.
        """
        fresh = (f"result {self.run}" not in framework.entries
                 and not any(key.startswith(f"{self.run} ") for key in kept)
                 and ("at" not in framework.entries
                      or int(framework.entries.read("at")[0]) != self.run))
        found = self.comm.allgather(set(self._files()) if fresh else None)
        if None in found:
            return
        arrays, problem = None, ""
        for step in sorted(set.intersection(*found), key=_order, reverse=True):
            arrays, why = cache.fetch(self._path(step), self.key)
            problem = problem or why
            if all(self.comm.allgather(arrays is not None)):
                break
        else:
            problem = next(filter(None, self.comm.allgather(problem)), OTHERS)
            if self.comm.rank == 0 and glob.glob(f"{glob.escape(self.runs)}*.npz"):
                self._tell(f"begins anew: {problem}")
            return
        for name, value in (arrays or {}).items():
            kind, _, key = name.partition(" ")
            self.put(key, value, kind)
        if self.comm.rank == 0:
            self._tell("goes on from there: " + ("it has ended" if step == END
                                                 else f"{step} steps are done"))
        while not framework.confirm(framework.safepoint(take=True)):
            pass  # it may be given up or undone while others are replaced

    def _tell(self, what: str) -> None:
        outfile.tell(f"files in {self.directory}: run {self.run} {what}", who="graph")

    def _path(self, step: str) -> str:
        return f"{self.beginning}{step}.npz"

    def _files(self) -> list[str]:
        """Steps of which this slot has a file."""
        pattern = re.compile(rf"-(\d+|{END})\.npz")
        paths = glob.glob(f"{glob.escape(self.beginning)}*.npz")
        return [match[1] for path in paths
                if (match := pattern.fullmatch(path, len(self.beginning) - 1))]


def _order(step: str) -> float:
    return float("inf") if step == END else int(step)
