"""Runs delta-accumulative programs over the slots of a job."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import framework
from ...framework import entries, kept
from ..graph.part_store import PartStore
from ..graph.parts import Graph, Part, Partition, check_kind
from ..graph.references import Ints
from ..graph.runner import Settings
from .delta_program import DeltaProgram, check_eps, check_program, check_weights
from .delta_workload import STATUS, DeltaWorkload
from .execution import MOST_MOMENTS, Execution, Moment, Outcome, peeks
from .kinds import AnyArray, Workload
from .modes import SnapshotMode, VirtualSnapshot
from .rings import Rings
from .worker import Worker

PROGRESS_S = 0.5  # least time between two lines
MOST_PER_VERTEX = 100_000  # updates for each vertex, on average, after which a run is given up
DEFAULT_SNAPSHOT = VirtualSnapshot(seconds=2.0)


@dataclass(frozen=True)
class Progress:
    """The progress of a run, as slot 0 sees it.

    Attributes:
        seconds: time since this attempt began the run.
        updates: number of updates of vertices in this attempt, by all slots.
        pending: sum of the absolute values of all deltas and messages that were not handed on;
            messages in channels are not included.
        bound: a bound on the sum of all errors of values; inf if the program has no `factor`.
        total: sum of all values that are finite.
        snapshots: number of snapshots that have begun in this attempt.
        attempt: number of the attempt, from 1; 0: nothing is protected.
        time: time of day, in seconds since the epoch.
    """

    seconds: float
    updates: int
    pending: float
    bound: float
    total: float
    snapshots: int
    attempt: int
    time: float


class Result:
    """The values of a program that has ended.

    Attributes:
        ids: the slot's own vertices, ascending, (k,) int64.
        values: their values, (k,).
        bound: a bound on the sum of the errors of all values, from what was left below eps: n eps /
            (1 - factor); 0 for minima and maxima with eps 0; inf if the program has no `factor`.
        stats: numbers of the run, of all slots together: "seconds", "updates", "messages",
            "records", "bytes", "snapshots", "snapshot_bytes", "snapshot_entries", "computing_s",
            "idle_s", and "attempts". For a run that had ended before a failure only "ended_before".
        outcome: the run as this slot has seen it.
        history: at slot 0 the progress in all attempts that its process has taken part in. Of a
            long run some moments are left out, most of them early ones.

    MPI: local, but for `gather`.
    Fault: a program that is entered again gets the same result again.
    """

    def __init__(self, comm: Any, n: int, ids: Ints, values: AnyArray, bound: float,
                 stats: Mapping[str, float], outcome: Outcome, history: list[Progress]) -> None:
        self._comm, self._n, self.ids, self.values = comm, n, ids, values
        self.bound, self.stats, self.outcome, self.history = bound, stats, outcome, history

    def gather(self) -> AnyArray | None:
        """Return all values, (n,), at slot 0; None at the other slots.

        MPI: collective over all slots.
        """
        parts = self._comm.gather((self.ids, self.values), root=0)
        if parts is None:
            return None
        whole = np.zeros(self._n, self.values.dtype)
        for ids, values in parts:
            whole[ids] = values
        return whole


@dataclass(frozen=True)
class PeekedValues:
    """A slot's part of a snapshot of a run that goes on.

    Attributes:
        snapshot: number of the snapshot, from 1 in each attempt.
        ids: the slot's own vertices, (k,) int64.
        values: their values in the snapshot, (k,).
        bound: this slot's part of a bound: the sum of the parts of all slots bounds the sum of all
            errors of values. inf if the program has no `factor`.
    """

    snapshot: int
    ids: Ints
    values: AnyArray
    bound: float


def run(program: DeltaProgram, graph: Graph, *, eps: float = 1e-6, portion: float = 0.2,
        send_portion: float = 0.01, send_seconds: float = 0.5,
        snapshot: SnapshotMode | None = DEFAULT_SNAPSHOT, recovery: str = "all",
        partition: str = "hash", topology: str | None = None,
        cache: str | os.PathLike[str] | None = None,
        pace: float | list[float] = 0.0,
        progress: bool | Callable[[Progress], object] = False, most_updates: float | None = None,
        seed: int = 1) -> Result:
    """Run a delta-accumulative program until no vertex has a priority above `eps`.

    Args:
        program: the program.
        graph: a graph of `ftrma.graph`; each slot makes its own part.
        eps: a vertex waits while its priority is not above this, 0 or more.
        portion: portion of the vertices that are updated at a time, the most urgent ones, above 0;
            1: all vertices in turn.
        send_portion: messages to a slot leave when this portion of its vertices have one, from 0 to
            1,
        send_seconds: or when so many seconds have passed since the last ones left, or when nothing
            else is left to do.
        snapshot: how snapshots are taken; None: no snapshots, so a failure begins the run anew.
        recovery: "all": after a failure all slots load the newest snapshot; "survivors": survivors
            keep their values, and only the vertices of lost slots begin anew, or from the newest
            snapshot.
        partition, topology, cache: as for `ftrma.graph.Engine`.
        pace: least number of seconds for an update of a vertex, reached by sleeping, to emulate
            slow machines; a list has one number for each slot.
        progress: True: slot 0 prints the progress on standard error; or a function that slot 0
            calls with it.
        most_updates: number of updates by this slot after which it reports that deltas do not
            shrink; by default 100,000 for each vertex.
        seed: seed of the samples by which urgent vertices are found.

    Raises:
        ValueError: an argument, the program or the graph is wrong; the text has the remedy.
        RuntimeError: deltas do not shrink, or are no numbers; or another program was run before a
            failure.

    MPI: collective over all slots; no slot waits for another one until the end. Claims the job's
        failures.
    Fault: raises `Rollback` when all slots go back. In the next attempt the run goes on from the
        newest snapshot.
    """
    from ftrma import MPI

    comm = MPI.COMM_WORLD
    check_program(program, recovery)
    _check(eps, portion, send_portion, send_seconds, snapshot, partition, topology)
    paces = [float(pace)] * comm.size if isinstance(pace, int | float) else [*map(float, pace)]
    if len(paces) != comm.size or min(paces) < 0:
        raise ValueError(f"pace {pace!r}: give seconds, or a list of {comm.size}, none negative")
    words = (type(program).__name__, np.dtype(program.dtype), graph.n, graph.edges, partition,
             comm.size, eps)
    execution = Execution(comm, words, snapshot, pace_s=paces[comm.rank])
    tells = _Tells(program, progress, f"{execution.prefix}history")
    execution.tell = tells.tell
    parts = PartStore(comm, Settings("aic", None, partition, topology,
                                     None if cache is None else os.fspath(cache), 0),
                      by_default=True)
    placed = parts.partition(graph, execution.run)
    ids = placed.ids(comm.rank)
    outcome = execution.saved()
    if outcome is None:
        part = parts.part(graph, placed, execution.run)
        check_weights(program, part, graph.what)
        if snapshot is not None:
            parts.save(graph, part, execution.run, entries, heavy=False)
        options = dict(eps=eps, portion=portion, send_portion=send_portion,
                       send_seconds=send_seconds, seed=seed, pace_s=paces[comm.rank],
                       most_updates=most_updates or MOST_PER_VERTEX * max(1, len(part.ids)))
        outcome = _carry_out(execution, program, graph, placed, part, recovery, options)
    parts.end(execution.run)
    values = outcome.arrays["value"]
    exact = eps == 0 and type(program).accumulate is not np.add
    bound = 0.0 if exact else _bound(program, eps * graph.n)
    return Result(comm, graph.n, ids, values, bound, _stats(comm, outcome), outcome,
                  tells.history)


def _check(eps: float, portion: float, send_portion: float, send_seconds: float,
           snapshot: SnapshotMode | None, partition: str, topology: str | None) -> None:
    for name, value, least, most in (("portion", portion, 0, 1),
                                     ("send_portion", send_portion, 0, 1),
                                     ("send_seconds", send_seconds, 0, np.inf)):
        if not least <= value <= most or (name == "portion" and value == 0):
            raise ValueError(f"{name} {value}: give {'more than ' if name == 'portion' else ''}"
                             f"{least} {'or more' if most == np.inf else f'to {most}'}")
    if snapshot is not None and not isinstance(snapshot, SnapshotMode):
        raise ValueError(f"snapshot {snapshot!r}: give None, or one such as "
                         "VirtualSnapshot(seconds=2)")
    if topology not in (None, "parity", "files", "loader"):
        raise ValueError(f"topology {topology!r}: give \"parity\", \"files\" or \"loader\"")
    check_kind(partition)


def _carry_out(execution: Execution, program: DeltaProgram, graph: Graph, placed: Partition,
               part: Part, recovery: str, options: Mapping[str, Any]) -> Outcome:
    comm = execution.comm
    key = f"{execution.prefix}value"
    survivor = recovery == "survivors" and key in kept
    values: AnyArray | None = kept[key] if survivor else None
    survivors = recovery == "survivors" and any(comm.allgather(survivor))
    asked = comm.alltoall([part.targets[part.to(slot)] for slot in range(comm.size)])
    rows = [placed.local(ids) for ids in asked]

    def make(rings: Rings) -> DeltaWorkload:
        made = DeltaWorkload(program, part, graph.n, rows, comm.rank, rings.limit_bytes,
                             **options)
        check_eps(program, options["eps"], made.pending[:made.k])
        execution.view = lambda peek: PeekedValues(
            peek.number, part.ids, peek.arrays["value"],
            bound=_bound(program, made.amount(peek.arrays["pending"])))
        return made

    def begin(made: Workload, worker: Worker, saved: Mapping[str, AnyArray] | None) -> None:
        assert isinstance(made, DeltaWorkload)
        if survivors:
            found = values if values is not None else saved["value"] if saved else made.value
            made.begin_from(found.copy())
        elif saved is not None:
            worker.restore(saved)
        if recovery == "survivors":
            kept[key] = made.value

    def result(made: Workload) -> dict[str, AnyArray]:
        assert isinstance(made, DeltaWorkload)
        if key in kept:
            del kept[key]
        return {"value": made.value}

    return execution.carry_out(make, begin, result)


def _bound(program: DeltaProgram, pending: float) -> float:
    """Return a bound on the sum of all errors: each pending delta goes on as a geometric series."""
    return np.inf if program.factor is None else pending / (1 - program.factor)


def _stats(comm: Any, outcome: Outcome) -> dict[str, float]:
    """Return the numbers of a run, of all slots together.

    MPI: collective over all slots.
    """
    if outcome.ended_before:
        return {"ended_before": True}
    mine = {"updates": outcome.updates, "records": outcome.records, "bytes": outcome.bytes,
            "messages": outcome.messages, "computing_s": outcome.computing_s,
            "idle_s": outcome.idle_s,
            "snapshot_bytes": sum(s.size_bytes for s in outcome.snapshots),
            "snapshot_entries": sum(getattr(s, "entries", 0) for s in outcome.snapshots)}
    every = comm.allgather(mine)
    found: dict[str, float] = {name: sum(slot[name] for slot in every) for name in mine}
    return {"seconds": outcome.seconds, "snapshots": len(outcome.snapshots),
            "attempts": framework.attempt(), **found}


class _Tells:
    """Turns moments of a run into progress, at slot 0.

    Args:
        key: the name under which the progress is kept for later attempts.
    """

    def __init__(self, program: DeltaProgram, progress: bool | Callable[[Progress], object],
                 key: str) -> None:
        self.program, self.progress, self._key = program, progress, key
        self._told_s = float("-inf")

    @property
    def history(self) -> list[Progress]:
        rows = kept[self._key].tolist() if self._key in kept else []
        return [Progress(s, int(u), p, b, t, int(k), int(a), when)
                for s, u, p, b, t, k, a, when in rows]

    def tell(self, moment: Moment) -> None:
        status = dict(zip(STATUS, np.nansum(moment.statuses, axis=0).tolist(), strict=True))
        now = Progress(moment.seconds, int(status["updates"]), status["pending"],
                       _bound(self.program, status["pending"]), status["values"],
                       moment.snapshots, framework.attempt(), time.time())
        row = np.array([list(vars(now).values())], np.float64)
        past = kept[self._key] if self._key in kept else row[:0]
        thin = 2 if len(past) >= MOST_MOMENTS else 1
        kept[self._key] = np.concatenate([past[::thin], row])
        if callable(self.progress):
            self.progress(now)
        elif self.progress and moment.seconds - self._told_s >= PROGRESS_S:
            self._told_s = moment.seconds
            error = "" if np.isinf(now.bound) else f", error <= {now.bound:.3g}"
            print(f"aic: {now.seconds:.1f} s, {now.updates:,} updates, {now.pending:.3g} pending"
                  f"{error}, {now.snapshots} snapshots", file=sys.stderr, flush=True)


def peek() -> Any:
    """Read this slot's part of the newest snapshot, while a run goes on.

    Other threads than the one that called `run` wait until the worker answers, which takes some
    milliseconds, or until a snapshot that is being taken is safe.

    Returns:
        For `run` a `PeekedValues`; for a `MatrixCompletion` an `execution.Peek`; None: there is no
        snapshot yet, or no run.

    MPI: local; may wait for this slot's worker.
    Fault: returns None if all slots go back.
    """
    return peeks.read()
