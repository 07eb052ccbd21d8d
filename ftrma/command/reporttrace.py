"""Summarizes a trace for a report: what each slot did over time, and how long its steps took.

A step is the time between two safepoints of a slot in one attempt; its own part is the time outside
of all calls. A slot whose own part is much longer than that of the others is slow: its core, its
node or its share of the work differs from the others'. Times come from `trace.records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..trace import records
from ..trace.records import LIVE, OWN_EVENTS, What

BINS = 900  # stretches of time in the picture: about one per point
LEVELS = 9  # shades between "computes" and "is in calls"
ABSENT = 0
SLOW = 1.5  # so many times the median of all slots
LEAST_STEPS = 5  # a median of fewer steps says nothing

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pace:
    """Steps of a slot: their number, and the medians of the whole steps and of their own parts."""

    slot: int
    steps: int
    step_s: float
    own_s: float


@dataclass(frozen=True)
class Activity:
    """A trace in short.

    Attributes:
        levels: for each slot and stretch of time: `ABSENT` if it was not in the program; 1 (it
            computes) to `LEVELS` (it is in calls of MPI all the time); the same from LEVELS + 1 on
            if it was replayed.
        paces: paces of the slots that passed enough safepoints.
        records: number of records in the trace.
    """

    levels: Sequence[Sequence[int]]
    paces: Sequence[Pace]
    records: int

    @property
    def slow(self) -> Sequence[Pace]:
        """Return the slots whose steps took much more of their own time than the others'."""
        if len(self.paces) < 2:
            return []
        usual = float(np.median([pace.own_s for pace in self.paces]))
        return [pace for pace in self.paces if pace.own_s > SLOW * usual > 0]


def read(path: str, began_monotonic_s: float | None, total_s: float) -> Activity:
    """Read a trace and summarize it.

    Args:
        began_monotonic_s: when the run began, on the clock of the trace; None: not known.
        total_s: duration of the run.

    Raises:
        ValueError: it is no trace.
    """
    trace = records.read(Path(path))
    found = trace.records
    since_ns = trace.began_ns if began_monotonic_s is None else int(began_monotonic_s * 1e9)
    own = found[np.isin(found["what"], [int(what) for what in OWN_EVENTS])]
    begin = (own["begin_ns"].astype(np.int64) - since_ns) / 1e9
    end = (own["end_ns"].astype(np.int64) - since_ns) / 1e9
    levels, paces = [], []
    for slot in range(trace.slots):
        mine = own["slot"] == slot
        replayed = own["mode"][mine] != LIVE
        levels.append(shades(begin[mine], end[mine], replayed, own["entry"][mine], total_s))
        pace = pace_of(slot, own[mine], begin[mine], end[mine])
        paces += [pace] if pace else []
    return Activity(levels, paces, len(found))


def shades(
    begin: Times, end: Times, replayed: npt.NDArray[np.bool_], entry: npt.NDArray[np.uint64],
    total_s: float,
) -> list[int]:
    """Return the levels of one slot, see `Activity`.

    Args:
        entry: number of the attempt of each call; between two attempts a slot does nothing.
    """
    if not len(begin):
        return [ABSENT] * BINS
    width = max(total_s, 1e-6) / BINS
    inside = covered(begin, end, width)
    again = covered(begin[replayed], end[replayed], width) > 0
    found = 1 + np.minimum((inside * LEVELS).astype(int), LEVELS - 1)
    found = np.where(again, found + LEVELS, found)
    at = np.arange(BINS)
    alive = np.zeros(BINS, bool)
    for number in np.unique(entry):
        of = entry == number
        alive |= (at >= int(begin[of].min() / width)) & (at <= int(end[of].max() / width))
    return [int(level) for level in np.where(alive, found, ABSENT)]


def covered(begin: Times, end: Times, width: float) -> Times:
    """Return the share of each stretch of time that is covered by spans, which may overlap."""
    first = np.clip(begin / width, 0, BINS)
    last = np.clip(end / width, 0, BINS)
    # The integral of the number of open spans, at the borders of the stretches.
    borders = np.arange(BINS + 1)
    started = np.sort(first)
    ended = np.sort(last)
    return np.clip(np.diff(integral(started, borders) - integral(ended, borders)), 0.0, 1.0)


def integral(points: Times, at: npt.NDArray[np.int64]) -> Times:
    """Return for each place the sum of its distances to the sorted points before it."""
    count = np.searchsorted(points, at, side="right")
    sums = np.concatenate([[0.0], np.cumsum(points)])
    return np.asarray(at * count - sums[count], np.float64)


def pace_of(slot: int, own: records.Records, begin: Times, end: Times) -> Pace | None:
    """Return the steps of a slot; None if it has passed too few safepoints."""
    live = own["mode"] == LIVE
    own, begin, end = own[live], begin[live], end[live]
    at = np.flatnonzero(own["what"] == int(What.Safepoint))
    if len(at) <= LEAST_STEPS:
        return None
    same = np.diff(own["entry"][at].astype(np.int64)) == 0
    inside = np.concatenate([[0.0], np.cumsum(np.maximum(end - begin, 0.0))])
    whole = np.diff(begin[at])
    called = np.diff(inside[at])
    whole, called = whole[same], called[same]
    if len(whole) < LEAST_STEPS:
        return None
    own_s = float(np.median(np.maximum(whole - called, 0.0)))
    return Pace(slot, len(whole) + 1, float(np.median(whole)), own_s)
