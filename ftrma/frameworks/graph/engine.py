"""Runs vertex programs over the slots of a job, one after another."""

from __future__ import annotations

import math
import os
import sys
import time
import weakref
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import framework
from ...framework import entries, kept
from . import (
    cache,
    data,
    declared_runner,
    phoenix_program,
    phoenix_runner,
    phoenix_transport,
    pregel_program,
    pregel_runner,
)
from .parts import Graph, Part, Partition, check_kind, partition_of
from .pregel_program import VertexProgram
from .pregel_runner import PregelSlot, Saved, StepReport
from .pregel_transport import PregelWindow, pass_by
from .references import AnyArray, Ints
from .spill import Spill, key_of

MOST = 10_000  # steps of a program, unless it says otherwise
LOG_BYTES = 1 << 30  # of a slot's logs
PROGRESS_S = 0.5  # between two lines
PART = ("ids", "ptr", "target", "weight", "targets", "bounds")
PREGEL_RECOVERIES = (*pregel_runner.RECOVERIES, *declared_runner.RECOVERIES)
PHOENIX_RECOVERIES = phoenix_runner.RECOVERIES
RECOVERIES = (*PREGEL_RECOVERIES, *PHOENIX_RECOVERIES)
TOPOLOGIES = ("parity", "files", "loader")


class Result:
    """What a program has left in its fields.

    Attributes:
        ids: the slot's own vertices, ascending.
        reports: of the steps that this process has taken for it, in all entries.

    MPI: local, but for `gather`.
    Fault: a program that is entered again comes by its result again.
    """

    def __init__(self, comm: Any, graph: Graph, ids: npt.NDArray[np.int64],
                 fields: Mapping[str, AnyArray], reports: list[StepReport],
                 wholes: dict[str, AnyArray | None]) -> None:
        self._comm, self._graph, self.ids, self._fields = comm, graph, ids, fields
        self.reports, self._wholes = reports, wholes

    def __getitem__(self, name: str) -> AnyArray:
        """The own vertices' values of a field, in the order of `ids`."""
        return self._fields[name]

    def gather(self, name: str) -> AnyArray | None:
        """All vertices' values of a field, (n,), at slot 0; None elsewhere.

        MPI: collective over all slots.
        """
        if name not in self._wholes:
            parts = self._comm.gather((self.ids, self._fields[name]), root=0)
            self._wholes[name] = None
            if parts is not None:
                whole = np.zeros(self._graph.n, self._fields[name].dtype)
                for ids, values in parts:
                    whole[ids] = values
                self._wholes[name] = whole
        return self._wholes[name]


class Engine:
    """Vertex programs in a job, and how they are recovered.

    The first one takes over what is done about failures: all slots enter the program again, and
    come by the runs that have ended at once. With "causal" and "rollback" ftrma recovers the
    program as it does any other.

    Args:
        recovery: "hwcp", "lwcp", "hwlog", "lwlog", "causal", "rollback" or "none"; "phoenix" or
            "cr" for programs of Phoenix's classes; see ``ftrma/frameworks/graph/README.md``.
        checkpoint: steps or rounds between two (int), seconds (float), "daly": as ``ftrma run
            --interval`` has it, or "never": none but that of a result. By default 10; with
            "phoenix" never.
        partition: of the vertices: "hash", "range" or "edges", see
            `parts.Partition`.
        topology: what a slot's part of the graph is taken from when its process is replaced:
            "parity": it is saved with the first checkpoint; "files": it is in `cache`; "loader": it
            is loaded or made again. By default files if there is a cache, else parity for what
            comes from a file; loader with "phoenix", "cr", "causal" and "rollback".
        cache: a directory where each slot leaves its part of a graph, also for later jobs, see
            `cache`.
        spill: a directory where checkpoints go, too, each slot's in a file: a job that has lost
            more than its parity has goes on from there when it is started again, see
            `spill`.
        log_bytes: of a slot's logs, from which on a checkpoint is due.
        progress: slot 0 tells steps on standard error.

    Raises:
        ValueError: a value is none of these.

    MPI: collective over all slots.
    Fault: as `ftrma.framework.claim`.
    """

    def __init__(self, recovery: str = "lwlog", checkpoint: int | float | str | None = None,
                 partition: str = "hash", *, topology: str | None = None,
                 cache: str | os.PathLike[str] | None = None,
                 spill: str | os.PathLike[str] | None = None, log_bytes: int = LOG_BYTES,
                 progress: bool = False) -> None:
        if recovery not in RECOVERIES:
            raise ValueError(f"recovery {recovery!r}: give one of {', '.join(RECOVERIES)}")
        if topology is not None and topology not in TOPOLOGIES:
            raise ValueError(f"topology {topology!r}: give one of {', '.join(TOPOLOGIES)}")
        if topology == "files" and cache is None:
            raise ValueError("topology 'files': give a directory too, as cache")
        declared = recovery in declared_runner.RECOVERIES
        if declared and topology == "parity":
            raise ValueError(f"topology 'parity' with recovery {recovery!r}, which saves no graph; "
                             "give \"loader\", or \"files\" and a cache")
        if declared and spill is not None:
            raise ValueError(f"spill with recovery {recovery!r}, whose checkpoints are ftrma's "
                             "own; give another recovery, or leave spill out")
        if log_bytes < 0:
            raise ValueError(f"log_bytes {log_bytes}: give bytes")
        if checkpoint is None:
            checkpoint = "never" if recovery == "phoenix" else 10
        self.every, self.interval_s = intervals(checkpoint)
        if declared and isinstance(checkpoint, float):
            raise ValueError(f"checkpoint {checkpoint!r} with recovery {recovery!r}: give steps "
                             "between two, \"daly\" or \"never\"; seconds are for ftrma run's "
                             "--interval")
        if recovery == "none":
            self.every, self.interval_s = 0, math.inf
        from ftrma import MPI

        self.comm = MPI.COMM_WORLD
        self.partition = partition
        check_kind(partition)
        self.recovery, self.log_bytes = recovery, log_bytes
        self.topology = topology or ("files" if cache is not None else None)
        self.cache = None if cache is None else os.fspath(cache)
        self.spill = None if spill is None else os.fspath(spill)
        self.progress = progress and self.comm.rank == 0
        self._parts: weakref.WeakKeyDictionary[Graph, Part] = weakref.WeakKeyDictionary()
        self._bounds: weakref.WeakKeyDictionary[Graph, Ints] = weakref.WeakKeyDictionary()
        self._told_s = -math.inf
        if runs.declared not in (None, declared):
            raise ValueError(f"recovery {recovery!r} beside an engine of another kind: those of a "
                             f"program have {' or '.join(declared_runner.RECOVERIES)} all, or none")
        runs.declared = declared
        if not declared:
            framework.claim("graph", forfeit=recovery == "phoenix")

    def load(self, path: str | os.PathLike[str], *, n: int | None = None,
             relabel: bool = False) -> Graph:
        """A graph from a file, see `files.load`."""
        return data.load(path, n=n, relabel=relabel)

    def rmat(self, scale: int, degree: int = 16, seed: int = 1) -> Graph:
        """A power-law graph, see `generate.rmat`."""
        return data.rmat(scale, degree, seed)

    def run(self, graph: Graph, program: VertexProgram | phoenix_program.PhoenixProgram, *,
            most: int = MOST) -> Result:
        """Run a program to its end.

        Args:
            most: steps after which it is an error that it has not ended; of Phoenix's rounds those
                since the newest failure.

        Raises:
            ValueError: the graph has an edge that leads out of it, or a weight that is NaN; the
                program has a name, a combiner or a field that cannot be, or is of another kind
                than the recovery is for.
            RuntimeError: the program has not ended after so many steps, does in `emit` what
                belongs into `update`, or is another one than before a failure.

        MPI: collective over all slots; waits for them in each step.
        Fault: unwinds when all go back; by the entry that follows the run goes on where it was, as
            far as the recovery has it.
        """
        self._check(program)
        run = number()
        if self.recovery in declared_runner.RECOVERIES:
            return self._declared(graph, program, run, most)
        partition = self._partition(graph, run)
        what = self._what(graph, program)
        reports = runs.reports.setdefault(run, [])
        try:
            fields = self._fields(graph, partition, program, run, what, most, reports)
        except pregel_runner.NotEnded:
            self._end(run)
            raise
        self._end(run)
        return Result(self.comm, graph, partition.ids(self.comm.rank), fields, reports, {})

    def _declared(self, graph: Graph, program: Any, run: int, most: int) -> Result:
        """A run of which ftrma recovers what is declared."""
        state = declared_runner.declare(program, run, self._what(graph, program))
        reports = runs.reports.setdefault(run, [])
        bounds = None
        if self.partition == "edges":
            bounds = state.bounds if state.bounds is not None else \
                partition_of("edges", graph, self.comm.size).bounds
            state.bounds = bounds
        partition = Partition(self.partition, graph.n, self.comm.size, bounds)

        def part_of() -> Part:
            framework.kill_place("graph.load")
            return self._made(graph, partition)

        def tell(report: StepReport) -> None:
            reports.append(report)
            self._tell(report)

        never = not self.every and self.interval_s == math.inf
        fields = declared_runner.run(self.comm, partition, part_of, program, self.recovery, state,
                                     run, runs.windows, tell, every=self.every, never=never,
                                     most=most)
        return Result(self.comm, graph, partition.ids(self.comm.rank), fields, reports,
                      state.wholes)

    def _what(self, graph: Graph, program: VertexProgram | phoenix_program.PhoenixProgram) -> int:
        """A number for what is run on what."""
        words = (type(program).__name__, *program.fields.items(), graph.n, self.partition,
                 self.recovery)
        return zlib.crc32(" ".join(map(str, words)).encode())

    def _check(self, program: VertexProgram | phoenix_program.PhoenixProgram) -> None:
        """Refuse a program that cannot be run so."""
        in_rounds = isinstance(program, phoenix_program.PhoenixProgram)
        if in_rounds != (self.recovery in phoenix_runner.RECOVERIES):
            fitting: tuple[str, ...] = phoenix_runner.RECOVERIES
            if isinstance(program, VertexProgram):
                fitting = (*pregel_runner.RECOVERIES, *declared_runner.RECOVERIES)
            raise ValueError(f"{type(program).__name__}: recovery {self.recovery!r} is not for "
                             f"programs of its kind; give one of {', '.join(fitting)}")
        if isinstance(program, phoenix_program.PhoenixProgram):
            phoenix_program.check(program, self.recovery)
        else:
            pregel_program.check(program)

    def _fields(self, graph: Graph, partition: Partition, program: Any, run: int, what: int,
                most: int, reports: list[StepReport]) -> dict[str, AnyArray]:
        """This slot's part of the result: one that a checkpoint has, or run for."""
        files = None
        if self.spill is not None:
            key = key_of(graph, partition, program, self.recovery, run)
            files = Spill(self.comm, self.spill, run, key)
            files.recover(kept)
        saved: Saved = files or entries
        try:
            found = pregel_runner.concluded(program, kept, saved, run, what)
        except pregel_runner.NotEnded:
            pass_by(self.comm)
            raise
        if found is not None:
            pass_by(self.comm)
            return found

        def tell(report: StepReport) -> None:
            reports.append(report)
            self._tell(report)

        def part_of() -> Part:
            found = self._part(graph, partition, run)
            self._save_part(graph, found, run, saved, heavy=False)
            return found

        if isinstance(program, phoenix_program.PhoenixProgram):
            return phoenix_transport.run(
                self.comm, partition, part_of, program, self.recovery, kept, saved, run, what, tell,
                every=self.every, interval_s=self.interval_s, most=most, files=files)
        part = self._part(graph, partition, run)
        lanes = PregelWindow(self.comm, partition, part, program, self.interval_s, tell,
                             files=files)
        slot = PregelSlot(program, part, graph.n, lanes.rows, self.recovery, kept, saved, run, what,
                          self.log_bytes)
        if slot.recovery != self.recovery and self.comm.rank == 0 and framework.attempt() < 2:
            print(f"graph: {type(program).__name__} defines compute() alone, so its messages are "
                  f"saved: recovery is {slot.recovery}", file=sys.stderr, flush=True)
        self._save_part(graph, part, run, saved, heavy=not slot.light)
        try:
            found = pregel_runner.run(slot, lanes, every=self.every, most=most)
        except pregel_runner.NotEnded:
            lanes.free()
            raise
        lanes.free()
        return found

    def _tell(self, report: StepReport) -> None:
        if self.progress and time.monotonic() - self._told_s >= PROGRESS_S:
            self._told_s = time.monotonic()
            told = f"step {report.step}: {report.active} active, {report.messages} messages"
            if self.recovery in phoenix_runner.RECOVERIES:
                told = f"round {report.step}: {report.active} active"
            print(f"graph: {told}", file=sys.stderr, flush=True)

    def _end(self, run: int) -> None:
        """The run has a result, or none by its limit; the next checkpoint belongs to the next."""
        pregel_runner.forget(kept, f"part {run} ")
        for name in PART:
            entries.drop(f"part {run} {name}")
        entries.put("run", run + 1)

    def _partition(self, graph: Graph, run: int) -> Partition:
        """Who owns which vertex in a run; bounds that depend on edges are found once."""
        if self.partition != "edges":
            return partition_of(self.partition, graph, self.comm.size)
        key = f"bounds {run}"
        saved = key in entries
        if key in kept or saved:
            bounds = kept[key] if key in kept else entries.read(key)
        elif (bounds := self._bounds.get(graph)) is None:
            bounds = partition_of("edges", graph, self.comm.size).bounds
        found = Partition("edges", graph.n, self.comm.size, bounds)
        kept[key] = self._bounds[graph] = found.bounds
        if not saved:
            entries.put(key, found.bounds, "static")
        return found

    def _part(self, graph: Graph, partition: Partition, run: int) -> Part:
        """What this slot has of the graph: kept, saved, or made again, alone."""
        framework.kill_place("graph.load")
        key, found = f"part {run} ", self._parts.get(graph)
        if f"{key}ids" in kept:
            arrays: dict[str, Any] = {name: kept.get(key + name) for name in PART}
            found = Part(**arrays)
        elif found is None and f"{key}ids" in entries:
            arrays = dict.fromkeys(PART)
            arrays |= {name: entries.read(key + name).copy() for name in PART
                       if key + name in entries}
            found = Part(**arrays)
        elif found is None:
            found = self._made(graph, partition)
        self._parts[graph] = found
        for name in reversed(PART):  # the first one last: then all are there
            if (array := getattr(found, name)) is not None:
                kept[key + name] = array
        return found

    def _made(self, graph: Graph, partition: Partition) -> Part:
        """What this slot has of the graph, made by it alone, or read from the cache."""
        if self.topology != "files" or self.cache is None:
            return graph.part(partition, self.comm.rank)
        found = cache.read(self.cache, graph, partition, self.comm.rank)
        if found is None:
            found = graph.part(partition, self.comm.rank)
            cache.write(self.cache, graph, partition, self.comm.rank, found)
        return found

    def _save_part(self, graph: Graph, part: Part, run: int, saved: Saved, *,
                   heavy: bool) -> None:
        """Have checkpoints hold what the slot has of the graph, if they are to; files only have
        what changes with each."""
        by_default = graph.file and self.recovery not in phoenix_runner.RECOVERIES
        topology = self.topology or ("parity" if by_default else "loader")
        if not heavy and topology != "parity":
            return
        for name in PART:
            key, array = f"part {run} {name}", getattr(part, name)
            if array is not None and heavy:
                saved.put(key, array)
            elif array is not None and key not in entries:
                entries.put(key, array, "static")


def intervals(checkpoint: int | float | str) -> tuple[int, float | None]:
    """Steps and seconds between two checkpoints: 0 and inf where it is not by these, seconds None
    where it is by the job's interval.

    Raises:
        ValueError: `checkpoint` says neither.
    """
    if checkpoint == "daly":
        return 0, None
    if checkpoint == "never":
        return 0, math.inf
    if isinstance(checkpoint, int) and checkpoint >= 0:
        return checkpoint, math.inf
    if isinstance(checkpoint, float) and 0 < checkpoint < math.inf:
        return 0, checkpoint
    raise ValueError(f"checkpoint {checkpoint!r}: give steps between two (a whole number), seconds "
                     "(with a point), \"daly\" or \"never\"")


@dataclass
class Runs:
    """Runs of an attempt of the program, in their order, whichever engine makes them.

    Attributes:
        attempt: that they are counted in; made: how many.
        moved: state that the program had declared was put back, and with it the number.
        reports: of the steps that this process has taken, by run.
        windows: of the lanes that ftrma recovers.
        declared: ftrma recovers what is declared; None: nobody has said yet.
    """

    attempt: int = -1
    made: int = 0
    moved: bool = False
    reports: dict[int, list[StepReport]] = field(default_factory=dict)
    windows: declared_runner.Windows = field(default_factory=declared_runner.Windows)
    declared: bool | None = None


runs = Runs()


def number() -> int:
    """Of the run that begins now, from 1: the same when it is gone on with."""
    if runs.attempt != framework.attempt():
        runs.attempt, runs.made, runs.moved = framework.attempt(), 0, False
        runs.windows = declared_runner.Windows()
    if runs.declared:
        runs.made += 1
        return runs.made
    if framework.restored() and not runs.moved:
        runs.moved = True
        if "run" in entries:  # during which the checkpoint was taken, or before which
            runs.made = int(entries.read("run")) - 1
    runs.made += 1
    entries.put("run", runs.made)
    return runs.made
