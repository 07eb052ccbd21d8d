"""Runs vertex programs over the slots of a job, one after another."""

from __future__ import annotations

import os
import sys
import time
import zlib
from typing import Any

from ... import framework
from ...host import outfile
from . import data, shuffle
from .declared_runner import DeclaredRunner
from .parts import Graph, check_kind
from .phoenix_program import PhoenixProgram
from .phoenix_runner import PhoenixRunner
from .pregel_program import VertexProgram
from .pregel_runner import PregelRunner
from .references import Ints
from .results import Result
from .runner import GraphRunner, Settings, StepReport, Task
from .runs import runs

MOST = 10_000  # most steps of a program, unless `run` is told otherwise
LOG_BYTES = 1 << 30  # size of a slot's logs at which a checkpoint is due
PROGRESS_S = 0.5  # least time between two lines
RUNNERS: tuple[type[GraphRunner[Any]], ...] = (PregelRunner, DeclaredRunner, PhoenixRunner)
PREGEL_RECOVERIES = (*PregelRunner.recoveries, *DeclaredRunner.recoveries)
PHOENIX_RECOVERIES = PhoenixRunner.recoveries
RECOVERIES = (*PREGEL_RECOVERIES, *PHOENIX_RECOVERIES)
TOPOLOGIES = ("parity", "files", "loader")


class Engine:
    """Runs vertex programs in a job, and recovers them after failures.

    The first engine claims the job's failures: after a failure all slots enter the program again,
    and runs that have ended give their results at once. With "causal" and "rollback" nothing is
    claimed, and ftrma recovers the program as it does any other.

    Args:
        recovery: "hwcp", "lwcp", "hwlog", "lwlog", "causal", "rollback" or "none"; "phoenix" or
            "cr" for programs of Phoenix's classes; see ``ftrma/docs/graphs.md``.
        checkpoint: the interval between two checkpoints: steps or rounds (int); seconds (float);
            "daly": as ``ftrma run --interval`` says; or "never": only results are saved. By default
            10; with "phoenix" never.
        partition: how vertices are divided: "hash", "range" or "edges", see `parts.Partition`.
        topology: the origin of a slot's part of the graph when its process is replaced. "parity":
            the part is saved with the first checkpoint; "files": it is in `cache`; "loader": it is
            loaded or made again. By default "files" if there is a cache, else "parity" for a graph
            that comes from a file; "loader" for other graphs, and with "phoenix", "cr", "causal"
            and "rollback".
        cache: a directory where each slot leaves its part of a graph, also for later jobs, see
            `cache`.
        log_bytes: size of a slot's logs at which a checkpoint is due.
        progress: slot 0 prints the steps on standard error.

    Raises:
        ValueError: a value is not one of these, or two do not fit each other.

    MPI: collective over all slots.
    Fault: as `ftrma.framework.claim`.
    """

    def __init__(self, recovery: str = "lwlog", checkpoint: int | float | str | None = None,
                 partition: str = "hash", *, topology: str | None = None,
                 cache: str | os.PathLike[str] | None = None,
                 log_bytes: int = LOG_BYTES, progress: bool = False) -> None:
        if recovery not in RECOVERIES:
            raise ValueError(f"recovery {recovery!r}: give one of {', '.join(RECOVERIES)}")
        if topology is not None and topology not in TOPOLOGIES:
            raise ValueError(f"topology {topology!r}: give one of {', '.join(TOPOLOGIES)}")
        if topology == "files" and cache is None:
            raise ValueError("topology 'files': give a directory too, as cache")
        if log_bytes < 0:
            raise ValueError(f"log_bytes {log_bytes}: give bytes")
        check_kind(partition)
        from ftrma import MPI

        self.comm = MPI.COMM_WORLD
        settings = Settings(recovery, checkpoint, partition, topology, _path(cache), log_bytes)
        made = next(kind for kind in RUNNERS if recovery in kind.recoveries)
        self.runner = made(self.comm, settings)
        self.progress = progress and self.comm.rank == 0
        self._told_s = float("-inf")
        if runs.declared not in (None, made.declares):
            raise ValueError(f"recovery {recovery!r} beside an engine of another kind: those of a "
                             f"program have {' or '.join(DeclaredRunner.recoveries)} all, or none")
        runs.declared = made.declares
        self.runner.claim()

    def load(self, source: Any, **options: Any) -> Graph:
        """Load a graph from a file or an object, see `objects.load`.

        If it was guessed how to read the file, slot 0 prints the guess on standard error.

        Args:
            source: the path of a file; a matrix or array of scipy.sparse; a graph of NetworkX or
                igraph; a table of pandas, polars or Arrow; arrays of sources, targets and perhaps
                weights. All slots give equal objects.
            options: options of `files.load`: n, relabel, columns, skip, separator, weighted,
                one_based, labels.

        MPI: collective over all slots; local with "causal" and "rollback".
        """
        comm = None if self.runner.declares else self.comm  # others take no part in a replay
        found = data.load(source, comm=comm, **options)
        if found.read_as and self.comm.rank == 0 and framework.attempt() <= 1:
            outfile.tell(f"{found.what} read as: {found.read_as}", who="graph")
        return found

    def rmat(self, scale: int, degree: int = 16, seed: int = 1) -> Graph:
        """Make a power-law graph, see `generate.rmat`."""
        return data.rmat(scale, degree, seed)

    def degrees(self, graph: Graph) -> Ints:
        """Return the number of edges that leave each vertex, (n,); each slot reads a share of them.

        Raises:
            ValueError: an edge has an end that is no vertex, a weight is NaN, or there are more
                vertices than there is memory for; raised on all slots.

        MPI: collective over all slots; local with "causal" and "rollback".
        """
        if self.runner.declares or graph.slices is None or self.comm.size == 1:
            return graph.degrees()
        return shuffle.degrees(self.comm, graph)

    def run(self, graph: Graph, program: VertexProgram | PhoenixProgram, *,
            most: int = MOST) -> Result:
        """Run a program to its end.

        Args:
            most: greatest number of steps that the program may take; for Phoenix, of rounds since
                the newest failure.

        Raises:
            ValueError: an edge has an end that is no vertex, or a weight is NaN; the program has a
                name, a combiner or a field that is not allowed; or the recovery is not for programs
                of its kind.
            RuntimeError: the program has not ended after `most` steps (`NotEnded`), does in `emit`
                what belongs into `update`, or is another program than before a failure.

        MPI: collective over all slots; waits for them in each step.
        Fault: raises `Rollback` when all slots go back. In the next attempt the run goes on from
            the state that the recovery has saved.
        """
        self._check(program)
        run = runs.next()
        reports = runs.reports.setdefault(run, [])

        def tell(report: StepReport) -> None:
            reports.append(report)
            self._tell(report)

        settings = self.runner.settings
        words = (type(program).__name__, *program.fields.items(), graph.n, graph.edges,
                 settings.partition, settings.recovery)
        identity = zlib.crc32(" ".join(map(str, words)).encode())
        found = self.runner.run(Task(graph, program, run, identity, most, tell))
        return Result(self.comm, graph, found.ids, found.fields, reports, found.wholes,
                      found.edges)

    def _check(self, program: Any) -> None:
        """Refuse a program that the runner cannot run."""
        if isinstance(program, type):
            raise ValueError(f"{program.__name__} is a class: give an object of it, "
                             f"{program.__name__}()")
        name = type(program).__name__
        if not isinstance(program, self.runner.programs):
            fitting = [recovery for kind in RUNNERS if isinstance(program, kind.programs)
                       for recovery in kind.recoveries]
            if not fitting:
                raise ValueError(f"{name}: derive it from VertexProgram, or from one of Phoenix's "
                                 "classes")
            raise ValueError(f"{name}: recovery {self.runner.settings.recovery!r} is not for "
                             f"programs of its kind; give one of {', '.join(fitting)}")
        self.runner.check(program)

    def _tell(self, report: StepReport) -> None:
        if self.progress and time.monotonic() - self._told_s >= PROGRESS_S:
            self._told_s = time.monotonic()
            print(f"graph: {self.runner.progress(report)}", file=sys.stderr, flush=True)


def _path(given: str | os.PathLike[str] | None) -> str | None:
    return None if given is None else os.fspath(given)
