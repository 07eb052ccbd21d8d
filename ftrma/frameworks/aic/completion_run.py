"""A matrix completion over the slots of a job: its run, its progress, its result on all slots."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ... import framework
from ...framework import kept
from .completion_workload import HEAD, WORK, CompletionWorkload, Rules
from .execution import MOST_MOMENTS, Execution, Moment, Outcome
from .kinds import AnyArray, Floats, Workload
from .matrices import Known
from .modes import SnapshotMode
from .rings import Rings
from .worker import Worker

PROGRESS_S = 0.5  # least time between two lines
PIECE_S = 0.002  # time of a piece of work at a pace that is slower than the machine
JUDGED = 0.25  # epochs between two looks at the error in a process that is alone
# The variables by which launchers tell a process its rank.
LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")

Part = tuple[list[AnyArray], dict[str, float]]


@dataclass(frozen=True)
class CompletionProgress:
    """The progress of a matrix completion, as slot 0 sees it.

    Attributes:
        seconds: time since this attempt began the run.
        updates: number of entries on which a step was taken, by all slots, including those before
            a snapshot that was loaded.
        rmse: the root of the mean square of the errors at the known entries, each before its newest
            step, in the unit of the values; NaN: not all slots have reported yet.
        snapshots: number of snapshots that have begun in this attempt.
        attempt: number of the attempt, from 1; 0: nothing is protected.
        time: time of day, in seconds since the epoch.
        updates_per_s: updates per second since the beginning of this attempt.
    """

    seconds: float
    updates: int
    rmse: float
    snapshots: int
    attempt: int
    time: float
    updates_per_s: float

    def __str__(self) -> str:
        return (f"aic: {self.seconds:.1f} s, rmse {self.rmse:.4g}, {self.updates:,} updates, "
                f"{self.updates_per_s:,.0f} a second, {self.snapshots} snapshots")


class Told:
    """Turns moments of a run into progress, at slot 0.

    Args:
        progress: see `completion.MatrixCompletion`.
        deviation: standard deviation of the values.

    Attributes:
        key: the name under which the progress is kept for later attempts; "": it is not kept.
        history: the progress so far.
    """

    def __init__(self, progress: bool | Callable[[CompletionProgress], object],
                 deviation: float) -> None:
        self._progress, self._deviation = progress, deviation
        self.key = ""
        self.history: list[CompletionProgress] = []
        self._first: tuple[float, int] | None = None  # first seconds and updates of this attempt
        self._told_s = float("-inf")

    def remember(self, key: str) -> None:
        """Begin with the progress of earlier attempts, if this process has taken part in them."""
        self.key = key
        self.history = [CompletionProgress(s, int(u), e, int(k), int(a), when, rate)
                        for s, u, e, k, a, when, rate in kept.get(key, ())]

    def tell(self, moment: Moment) -> None:
        """Take a moment."""
        squares, entries, _, _ = moment.statuses.sum(axis=0)
        seconds, updates = moment.seconds, int(np.nansum(moment.statuses[:, 2]))
        self._first = self._first or (seconds, updates)
        since_s = seconds - self._first[0]
        rate = (updates - self._first[1]) / since_s if since_s > 0 else 0.0
        rmse = self._deviation * float(np.sqrt(squares / entries))
        now = CompletionProgress(seconds, updates, rmse, moment.snapshots, framework.attempt(),
                                 time.time(), rate)
        if len(self.history) >= MOST_MOMENTS:
            del self.history[1::2]
        self.history.append(now)
        if self.key:
            kept[self.key] = np.array([[*vars(past).values()] for past in self.history])
        if callable(self._progress):
            self._progress(now)
        elif self._progress and seconds - self._told_s >= PROGRESS_S:
            self._told_s = seconds
            print(now, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Found:
    """The result of a run: factors of all rows and columns, of scaled values.

    Attributes:
        rows, columns: factors of each row and of each column.
        stats: see `completion.MatrixCompletion`.
        diverged: the errors have grown beyond all bounds on some slot.
        slot: this slot.
    """

    rows: Floats
    columns: Floats
    stats: dict[str, float]
    diverged: bool
    slot: int


def find(rules: Rules, known: Known, snapshot: SnapshotMode | None,
         pace: float | list[float], told: Told) -> Found:
    """Find the factors.

    Args:
        rules: the parameters.
        known: all known entries, of mean 0 and standard deviation 1.
        snapshot, pace: see `completion.MatrixCompletion`.
        told: takes the progress, at slot 0.

    MPI: collective over all slots.
    Fault: raises `Rollback` when all slots go back.
    """
    if not any(name in os.environ for name in LAUNCHED) and "mpi4py.MPI" not in sys.modules:
        (pace_s,) = _paces(pace, 1)
        return _put_together(known, [_mine(_alone(rules, known, pace_s, told))], 0)
    from ftrma import MPI

    comm = MPI.COMM_WORLD
    paces = _paces(pace, comm.size)
    words = ("MatrixCompletion", rules, known.shape, known.digest(), comm.size)
    execution = Execution(comm, words, snapshot, pace_s=paces[comm.rank],
                          tell=told.tell if comm.rank == 0 else None)
    if comm.rank == 0:
        told.remember(f"{execution.prefix}progress")
    outcome = execution.saved() or _carry_out(execution, rules, known, paces[comm.rank])
    return _put_together(known, comm.allgather(_mine(outcome)), comm.rank)


def _paces(pace: float | list[float], size: int) -> list[float]:
    """Return the pace of each slot."""
    paces = [float(pace)] * size if isinstance(pace, int | float) else [*map(float, pace)]
    if len(paces) != size or not 0 <= min(paces) <= max(paces) < np.inf:
        raise ValueError(f"pace={pace!r}: give seconds, or a list of {size}, none negative")
    return paces


def _work(pace_s: float) -> int:
    """Return the number of entries in one piece of work."""
    return max(1, int(min(WORK, PIECE_S / pace_s))) if pace_s else WORK


def _alone(rules: Rules, known: Known, pace_s: float, told: Told) -> Outcome:
    """Find the factors in this process, which no launcher has started."""
    workload = CompletionWorkload(rules, known.share(0, 1), 0, 1, work=_work(pace_s))
    began, judged, computing_s = time.monotonic(), 0, 0.0
    while True:
        before, updates = time.monotonic(), workload.updates
        if not workload.compute():
            break
        if pace_s:
            lasts_s = (workload.updates - updates) * pace_s
            time.sleep(max(0.0, lasts_s - (time.monotonic() - before)))
        computing_s += time.monotonic() - before
        if workload.updates - judged >= len(known.rows) * JUDGED:
            judged, statuses = workload.updates, workload.status()[None]
            told.tell(Moment(time.monotonic() - began, statuses, 0))
            if workload.ended(statuses):
                break
    return Outcome(_result(workload), seconds=time.monotonic() - began, updates=workload.updates,
                   computing_s=computing_s)


def _carry_out(execution: Execution, rules: Rules, known: Known, pace_s: float) -> Outcome:
    me, size = execution.comm.rank, execution.comm.size

    def make(rings: Rings) -> CompletionWorkload:
        return CompletionWorkload(rules, known.share(me, size), me, size, rings.limit_bytes,
                                  _work(pace_s))

    def begin(made: Workload, worker: Worker, saved: Mapping[str, AnyArray] | None) -> None:
        if saved is not None:
            worker.restore(saved)

    def result(made: Workload) -> dict[str, AnyArray]:
        assert isinstance(made, CompletionWorkload)
        return _result(made)

    return execution.carry_out(make, begin, result)


def _result(made: CompletionWorkload) -> dict[str, AnyArray]:
    """Return a slot's part of the result."""
    return {"rows": made.row_factors, "columns": made.columns(),
            "numbers": np.array([made.updates, made.visits, made.diverged], np.int64)}


def _mine(outcome: Outcome) -> Part:
    """Return a slot's part of the result, and its numbers of the run."""
    arrays = [outcome.arrays[name] for name in ("rows", "columns", "numbers")]
    if outcome.ended_before:
        return arrays, {}
    return arrays, {
        "seconds": outcome.seconds, "attempts": framework.attempt(),
        "snapshots": len(outcome.snapshots), "records": outcome.records, "bytes": outcome.bytes,
        "snapshot_bytes": sum(s.size_bytes for s in outcome.snapshots),
        "snapshot_entries": sum(getattr(s, "entries", 0) for s in outcome.snapshots),
        "computing_s": outcome.computing_s, "idle_s": outcome.idle_s}


def _put_together(known: Known, parts: list[Part], slot: int) -> Found:
    """Return the result, put together from the parts of all slots."""
    rows, tokens, numbers = zip(*(arrays for arrays, _ in parts), strict=True)
    whole = np.concatenate(tokens)
    ids = whole[:, 0].astype(np.int64)
    assert len(np.unique(ids)) == len(ids), "each column is at one slot"
    columns = np.zeros((known.shape[1], whole.shape[1] - HEAD))
    columns[ids] = whole[:, HEAD:]
    updates, visits, diverged = np.sum(numbers, axis=0).tolist()
    stats: dict[str, float] = {"updates": updates, "visits": visits}
    for name in parts[0][1]:
        each = [told[name] for _, told in parts]
        stats[name] = each[0] if name in ("seconds", "attempts", "snapshots") else sum(each)
    return Found(np.concatenate(rows), columns, stats, bool(diverged), slot)
