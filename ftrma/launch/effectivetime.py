"""Computes a job's effective time, the time in which it made lasting progress, from its story.

In four kinds of time there is no progress; all other time counts as progress:

* **starting**: from the beginning of ``ftrma run`` until the slots enter the program.
* **checkpoints**: while the program was held up. A coordinated checkpoint holds up all slots; a
  demand checkpoint holds up one of n slots, and counts as an n-th of its time.
* **recoveries**: from a death to the end of the recovery. In a causal recovery the other slots have
  computed meanwhile, so the effective time is a lower bound.
* **again**: the work that a rollback or a relaunch has thrown away, from the checkpoint to which
  the job has gone back until the death. What a framework has thrown away at a re-entry is not
  known, and counts as kept.

An instant counts once, for the kind that stands first in `KINDS`, so the sum of all kinds and of
the useful time is the total. Times are the machine's time of day: if its clock is set while the job
runs, spans are wrong by that amount, but none goes beyond the job's beginning and end.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from ..fabric.story import Began, Checkpoint, Entered, Event, Recovery

RECOVERIES, CHECKPOINTS, AGAIN, STARTING = "recoveries", "checkpoints", "again", "starting"
KINDS = (RECOVERIES, CHECKPOINTS, AGAIN, STARTING)
GOES_BACK = ("rollback", "relaunch")  # kinds of recoveries after which work is repeated


@dataclass(frozen=True)
class Span:
    """A stretch of time without progress.

    Attributes:
        kind: one of `KINDS`.
        begin, end: seconds since 1970.
    """

    kind: str
    begin: float
    end: float


@dataclass(frozen=True)
class EffectiveTime:
    """The account of a job's time, in seconds.

    Attributes:
        total_s: time since ``ftrma run`` began.
        starting_s, checkpoints_s, recoveries_s, again_s: times without progress, see this module.
    """

    total_s: float
    starting_s: float = 0.0
    checkpoints_s: float = 0.0
    recoveries_s: float = 0.0
    again_s: float = 0.0

    @property
    def useful_s(self) -> float:
        lost_s = self.starting_s + self.checkpoints_s + self.recoveries_s + self.again_s
        return max(0.0, self.total_s - lost_s)

    @property
    def share(self) -> float:
        """Return useful time over total time, between 0 and 1; 1 if the total is 0."""
        return self.useful_s / self.total_s if self.total_s > 0 else 1.0

    def plain(self) -> dict[str, float]:
        """Return the account for JSON."""
        return {**asdict(self), "useful_s": self.useful_s, "share": self.share}


def began(events: Sequence[Event], otherwise: float) -> float:
    """Return when the job began, in seconds since 1970."""
    return next((event.time for event in events if isinstance(event, Began)), otherwise)


def effective_time(events: Sequence[Event], slots: int, until: float) -> EffectiveTime:
    """Account for a job's time from its beginning.

    Args:
        events: the job's events, in order.
        slots: number of slots of the job.
        until: end of the account, seconds since 1970.
    """
    since = began(events, until)
    lost = dict.fromkeys(KINDS, 0.0)
    for span in lost_spans(events, slots, since, until):
        lost[span.kind] += span.end - span.begin
    return EffectiveTime(max(0.0, until - since), **{f"{kind}_s": s for kind, s in lost.items()})


def lost_spans(
    events: Sequence[Event], slots: int, since: float, until: float
) -> Iterator[Span]:
    """Yield all time without progress between two instants, in order, without overlap."""
    clipped = [Span(span.kind, max(span.begin, since), min(span.end, until))
               for span in raw_spans(events, slots, until)]
    yield from apart(span for span in clipped if span.begin < span.end)


def raw_spans(events: Sequence[Event], slots: int, until: float) -> Iterator[Span]:
    """Yield the spans that the events describe; they may overlap."""
    starts: float | None = None  # when a launch began whose slots have not entered yet
    committed: dict[int, float] = {}
    for event in events:
        if isinstance(event, Began):
            starts = event.time if starts is None else starts
        elif isinstance(event, Entered):
            committed.setdefault(event.version, event.time)  # unless it is of an earlier run
            if starts is not None:
                yield Span(STARTING, starts, event.time)
            starts = None
        elif isinstance(event, Checkpoint):
            held_s = event.seconds / (1 if event.slot is None else slots)
            yield Span(CHECKPOINTS, event.time - held_s, event.time)
            if event.slot is None:
                committed[event.version] = event.time
        elif isinstance(event, Recovery):
            died = event.time - event.seconds
            yield Span(RECOVERIES, died, event.time)
            if event.kind in GOES_BACK and event.version in committed:
                yield Span(AGAIN, committed[event.version], died)
    if starts is not None:
        yield Span(STARTING, starts, until)


def apart(spans: Iterable[Span]) -> Iterator[Span]:
    """Cut overlapping spans, so that each instant has the kind that stands first in `KINDS`."""
    ordered = sorted(spans, key=lambda span: span.begin)
    open_ends: dict[str, float] = {}  # for each kind, the end of what has begun
    borders = [span.begin for span in ordered] + [span.end for span in ordered]
    heapq.heapify(borders)
    at, next_span = 0.0, 0
    last: Span | None = None
    while borders:
        border = heapq.heappop(borders)
        kind = next((kind for kind in KINDS if open_ends.get(kind, 0.0) > at), None)
        if kind and border > at:
            if last and last.kind == kind and last.end == at:
                last = Span(kind, last.begin, border)
            else:
                if last:
                    yield last
                last = Span(kind, at, border)
        at = max(at, border)
        while next_span < len(ordered) and ordered[next_span].begin <= at:
            span = ordered[next_span]
            open_ends[span.kind] = max(open_ends.get(span.kind, 0.0), span.end)
            next_span += 1
    if last:
        yield last
