"""The causal recoveries in a trace, and the state from which each of them started.

A recovery starts from the slot's part of a committed version, or from a newer checkpoint that the
slot took alone, on demand (section 6.2 of Besta & Hoefler). A version is a cut through all slots,
so ``seq`` alone says which accesses it holds. A demand checkpoint was taken while others went on
accessing the slot. It certainly contains an access only if the access had its number and was
complete before the copying began; the records of the checkpoint say both. An access that it
certainly contains must not be applied again. All others must be applied, whatever the copy has of
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from .cuts import START, Cut, Violation
from .records import LIVE, OWN_EVENTS, REPLAY, Record, Trace, What


@dataclass(frozen=True)
class Base:
    """The state of a slot from which a replay starts.

    Attributes:
        event, clock: the slot's own, 0 for the start of the attempt.
        seq: for each window the last access to the part that the state may contain; 0 for a window
            made later.
        events: for each slot its last complete event; None if ``seq`` alone decides.
        number: number of the demand checkpoint, from 1 in each attempt; 0 for a version.
        published_ns: end of its last record.
    """

    event: int = 0
    clock: int = 0
    seq: dict[int, int] = field(default_factory=dict)
    events: dict[int, int] | None = None
    number: int = 0
    published_ns: int = 0

    def holds(self, window: int, seq: int, slot: int, event: int) -> bool:
        """Say whether it certainly contains the access with this number, event `event` of
        `slot`."""
        numbered = seq <= self.seq.get(window, 0)
        return numbered and (self.events is None or event <= self.events.get(slot, 0))

    def words(self, window: int, slot: int) -> str:
        """Say how far the state reaches."""
        text = f"its window is there up to seq {self.seq.get(window, 0)}"
        if self.events is not None:
            text += f", slot {slot} up to event {self.events.get(slot, 0)}"
        return text


@dataclass
class CausalRecovery:
    """A causal recovery: a process takes over a slot by replay.

    Attributes:
        begin: its Replay record, which says where it starts and how far it is to go.
        rows: its replayed events, applied accesses and live events, ordered by begin.
        end: its Recovery record, if it has come that far.
        cut: the version from which it started, or the last version committed before its `base`.
        base: the state from which it started; None if it names a demand checkpoint that had not
            been published when it began.
    """

    begin: Record
    rows: list[Record] = field(repr=False)
    end: Record | None
    cut: Cut
    base: Base | None

    @property
    def slot(self) -> int:
        return self.begin.slot

    @property
    def attempt(self) -> int:
        return self.begin.entry

    @property
    def start(self) -> Base:
        assert self.base is not None, "a recovery without a base is not judged further"
        return self.base

    @property
    def end_ns(self) -> int:
        return self.end.begin_ns if self.end else (self.rows or [self.begin])[-1].end_ns

    @property
    def applied(self) -> list[Record]:
        return [r for r in self.rows if r.what == What.Apply]

    @property
    def replayed(self) -> list[Record]:
        return [r for r in self.rows if r.mode == REPLAY and r.what in OWN_EVENTS]

    @property
    def horizon(self) -> int:
        """Return the last event to replay."""
        return self.begin.value1

    @property
    def reached(self) -> int:
        """Return the last event that it has replayed, as far as the trace shows."""
        if self.end:
            return self.horizon
        return max((r.event for r in self.replayed), default=self.start.event)

    @property
    def words(self) -> str:
        demand = f" and demand checkpoint {self.begin.at}" if self.begin.at else ""
        return (
            f"recovery of slot {self.slot} from version {self.cut.version}{demand} by process "
            f"{self.begin.proc}"
        )


def recoveries(trace: Trace, cuts: dict[int, Cut]) -> Iterator[CausalRecovery]:
    """Yield the causal recoveries of a run, finished or not."""
    records = trace.records
    done = (records["mode"] == REPLAY) & np.isin(records["what"], OWN_EVENTS)
    done |= (records["mode"] == LIVE) & np.isin(records["what"], OWN_EVENTS)
    done |= np.isin(records["what"], (What.Apply, What.Recovery))
    published = demands(trace)
    for begin in trace.rows(records["what"] == What.Replay):
        # `cuts.committed` reports a version that could not have been restored.
        cut = cuts.get(begin.value0, None if begin.value0 else START)
        if cut is None:
            continue
        mine = (records["entry"] == begin.entry) & (records["proc"] == begin.proc)
        rows = trace.rows(mine & done & (records["slot"] == begin.slot))
        end = next((r for r in rows if r.what == What.Recovery), None)
        rows = [r for r in rows if r is not end]
        own = published.get((begin.entry, begin.slot), [])
        yield CausalRecovery(begin, rows, end, cut, base_of(begin, cut, own))


def begun_twice_or_never(trace: Trace) -> Iterator[Violation]:
    """Yield violations for replays that do not say exactly once where they start."""
    records = trace.records
    kinds = (What.Apply, What.Replay, What.Recovery)
    begins: dict[tuple[int, int, int], int] = {}
    for r in trace.rows(np.isin(records["what"], kinds) | (records["mode"] == REPLAY)):
        who = r.entry, r.slot, r.proc
        begins[who] = begins.get(who, 0) + (r.what == What.Replay)
        if begins[who] != 1:
            said = "says twice from what" if begins[who] else "does not say from what"
            yield Violation(r.begin_ns, f"process {r.proc} replays slot {r.slot}, but {said}")


def base_of(begin: Record, cut: Cut, own: list[Base]) -> Base | None:
    """Return the state that a recovery started from.

    Args:
        own: the slot's demand checkpoints, by time.
    """
    if not begin.at:
        return of_version(cut, begin.entry, begin.slot)
    # A process may be killed after it recorded a demand checkpoint and before it published it. Then
    # the next process publishes its own checkpoint with the same number.
    before = [d for d in own if d.number == begin.at and d.published_ns <= begin.begin_ns]
    return before[-1] if before else None


def of_version(cut: Cut, attempt: int, slot: int) -> Base:
    """Return the slot's part of a version.

    Events, clock and ``seq`` count from the start of the attempt, whatever the version.
    """
    if not cut.parts or cut.attempt != attempt:
        return Base()
    seq = {window: cut.seq(slot, window) for window in cut.parts[slot]}
    return Base(cut.event(slot), cut.clock(slot), seq)


def demands(trace: Trace) -> dict[tuple[int, int], list[Base]]:
    """Return the demand checkpoints of each slot in each attempt, by time."""
    records = trace.records
    found: dict[tuple[int, int], list[Base]] = {}
    rows = trace.rows((records["what"] == What.Demand) & (records["mode"] == LIVE))

    def one(r: Record) -> tuple[int, ...]:
        return r.entry, r.slot, r.proc, r.value0, r.event

    # The sort keeps records with equal keys in their order in time.
    for _, group in groupby(sorted(rows, key=one), one):
        written = list(group)
        first = written[0]
        events = {r.target: r.value1 for r in written if r.target >= 0}
        found.setdefault((first.entry, first.slot), []).append(Base(
            first.event, first.clock, {r.window: r.seq for r in written if r.window >= 0},
            events | {first.slot: first.event}, first.value0, max(r.end_ns for r in written),
        ))
    for own in found.values():
        own.sort(key=lambda base: base.published_ns)
    return found
