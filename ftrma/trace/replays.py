"""Verifies from the trace that causal recoveries replayed each logged access once and in order.

A process that takes over slot q starts from q's part of a committed version, or from a newer
checkpoint that q took alone (`recoveries`), and executes the program again. Two things bring it to
q's state. First, q's own events up to the *horizon*, the last event that q had completed, are
repeated in replay mode: each once, in order, with the same call at the same place. Second, the
accesses of others to q since the checkpoint, and q's atomics on itself, are applied to its memory:
each once, in cohb order, and none that the checkpoint already contains. (An access may come in
several pieces because of a layout with holes, or a log that was cut.)

The order follows from the numbers of an access. Its ``clock``, which is q's clock as the origin saw
it, says after which synchronization of q the access may be seen: it must not be applied before q's
clock has come that far, nor after an access with a larger clock. ``seq`` orders accesses with the
same clock. It also orders all atomics and accumulates on common bytes, since the memory after each
of these was logged. (Plain puts with different clocks to common bytes that are in flight at the
same time race; either order is right.) A slot's clock counts its events that can order others'
accesses: all but puts and gets. See sections 3.2 and 4.3 of Besta & Hoefler, Algorithms 2 and 3.

A recovery may be cut short by another failure, or given up because the program does something else
when it is executed again. Such a recovery is judged by what it did and not by what is missing; a
changed program does not count as its fault, but it must not have gone live. The very last event of
a killed process may be missing in its trace, and only that event.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from .cuts import Violation, describe, part_words
from .records import (
    ATOMIC_BYTES,
    ATOMICS,
    COMBINING,
    LIVE,
    OWN_EVENTS,
    REPLAY,
    TICKING,
    WRITING,
    Record,
    Records,
    Trace,
    What,
)
from .recoveries import CausalRecovery


class Before:
    """The live events of the slots in one attempt of the program, which a replay has to repeat.

    Attributes:
        to: for each part the accesses to it, by their ``seq``.
        own: for each slot its live events; an event that was in flight at a death was repeated in
            the same way.
        last: for each slot the last event to which it is known to have come.
        horizons: slot and horizon of each replay.
    """

    def __init__(self, trace: Trace, attempt: int, slots: set[int]) -> None:
        mine: Records = trace.records[trace.records["entry"] == attempt]
        self.to: dict[tuple[int, int], dict[int, Record]] = {}
        self.own: dict[int, dict[int, Record]] = {slot: {} for slot in slots}
        self.last = dict.fromkeys(range(trace.slots), 0)
        live = mine[(mine["mode"] == LIVE) & np.isin(mine["what"], OWN_EVENTS)]
        for r in map(Record._make, live.tolist()):
            if r.slot in slots:
                self.own[r.slot].setdefault(r.event, r)
            if r.target in slots and r.what in WRITING and r.seq:
                self.to.setdefault((r.target, r.window), {})[r.seq] = r
            self.last[r.slot] = max(r.event, self.last[r.slot])
        ends = mine[mine["what"] == What.Replay][["slot", "value1"]].tolist()
        self.horizons = set(ends)
        for slot, horizon in ends:
            self.last[slot] = max(horizon, self.last[slot])

    def unrecorded(self, slot: int, event: int) -> bool:
        """Say whether the event may have been the last of a process that was killed before
        recording it."""
        return (slot, event) in self.horizons or self.last.get(slot) == event - 1


def check_replays(trace: Trace, found: list[CausalRecovery]) -> Iterator[Violation]:
    """Yield the violations of causal recoveries: the first of every kind for each recovery."""
    by_attempt: dict[int, Before] = {}
    for recovery in found:
        if recovery.attempt not in by_attempt:
            slots = {a.slot for a in found if a.attempt == recovery.attempt}
            by_attempt[recovery.attempt] = Before(trace, recovery.attempt, slots)
        before = by_attempt[recovery.attempt]
        if recovery.base is None:
            yield Violation(
                recovery.begin.begin_ns,
                f"{recovery.words}: that demand checkpoint had not been published when it began",
            )
            continue
        for kind in (applied_right, applied_in_order, applied_all, replayed_right, replayed_all,
                     live_after):
            problem = next(kind(recovery, before), None)
            if problem:
                yield Violation(problem.at_ns, f"{recovery.words}: {problem.text}")


# ---- accesses to the slot -------------------------------------------------------------------


def source(r: Record) -> str:
    """Name an applied access."""
    return (
        f"slot {r.value0}'s access (event {r.value1}, seq {r.seq}) to {part_words(r)}, bytes "
        f"{r.at} to {r.at + max(r.bytes, 1) - 1}"
    )


def applied_right(recovery: CausalRecovery, before: Before) -> Iterator[Violation]:
    """Demand that each applied access was made, is not in the checkpoint, and was applied once."""
    ends: dict[tuple[int, int], int] = {}  # end of the pieces of each access so far
    for row in recovery.applied:
        r = row._replace(target=recovery.slot)
        if recovery.start.holds(r.window, r.seq, r.value0, r.value1):
            yield Violation(
                r.begin_ns, f"{source(r)}, was applied, but the checkpoint holds it already: "
                f"{recovery.start.words(r.window, r.value0)}",
            )
        if r.at < ends.get((r.window, r.seq), 0):
            yield Violation(r.begin_ns, f"{source(r)}, was applied a second time")
        ends[r.window, r.seq] = r.at + r.bytes
        made = before.to.get((recovery.slot, r.window), {}).get(r.seq)
        if made is None:
            if not before.unrecorded(r.value0, r.value1):
                yield Violation(r.begin_ns, f"{source(r)}, was applied, but never made")
        elif (made.slot, made.event, made.clock) != (r.value0, r.value1, r.clock) or not (
            made.at <= r.at and r.at + r.bytes <= made.at + made.bytes
        ):
            yield Violation(
                r.begin_ns, f"{source(r)}, at clock {r.clock} was applied, but what was made is "
                f"{describe(made)}, at clock {made.clock}",
            )


def applied_in_order(recovery: CausalRecovery, before: Before) -> Iterator[Violation]:
    """Demand that accesses are applied in cohb order, and none before the slot's clock has come
    there.

    Accesses that are left after the last event of the replay are applied together. Such an access
    may have read the clock of the event in which the slot died, which is one more than the replay
    ever sees.
    """
    clock = recovery.start.clock
    own = before.own[recovery.slot]
    left = {e for e in own if recovery.start.event < e <= recovery.reached}
    order = AppliedOrder(before, recovery.slot)
    for row in recovery.rows:
        if row.mode == REPLAY and row.what in OWN_EVENTS:
            left.discard(row.event)
            clock += row.what in TICKING
        if row.what != What.Apply:
            continue
        r = row._replace(target=recovery.slot)
        if r.clock > clock + (not left):
            yield Violation(
                r.begin_ns, f"{source(r)}, which saw the slot at clock {r.clock}, was applied at "
                f"clock {clock}",
            )
        late = order.add(r)
        if late:
            yield Violation(
                r.begin_ns, f"{source(r)}, at clock {r.clock} was applied after {source(late)}, at "
                f"clock {late.clock}, which comes later in cohb order",
            )


class AppliedOrder:
    """The accesses that a recovery has applied so far."""

    def __init__(self, before: Before, slot: int) -> None:
        self._before, self._slot = before, slot
        self._latest: Record | None = None
        self._of_window: dict[int, Record] = {}  # latest access to each window
        self._combined: dict[int, list[Record]] = {}  # atomics and accumulates, by seq

    def add(self, r: Record) -> Record | None:
        """Add an access; return one that was applied before it but comes later in cohb order."""
        same, late = self._of_window.get(r.window), None
        if self._latest and self._latest.clock > r.clock:
            late = self._latest
        elif same and same.clock == r.clock and same.seq > r.seq:
            late = same
        made = self._before.to.get((self._slot, r.window), {}).get(r.seq)
        if made and made.what in COMBINING:
            combined = self._add_combined(r)
            late = late or combined
        self._latest = self._of_window[r.window] = r
        return late

    def _add_combined(self, r: Record) -> Record | None:
        """Add an atomic; return one on common bytes that was added before but comes later."""
        others = self._combined.setdefault(r.window, [])
        place = bisect_left(others, r.seq, key=lambda o: o.seq)
        late = next((o for o in others[place:] if o.seq > r.seq and overlap(o, r)), None)
        others.insert(place, r)
        return late


def overlap(a: Record, b: Record) -> bool:
    """Say whether two accesses to one part have bytes in common."""
    return a.at < b.at + b.bytes and b.at < a.at + a.bytes


def applied_all(recovery: CausalRecovery, before: Before) -> Iterator[Violation]:
    """Demand that every access made after the checkpoint and before the repair was applied."""
    if not recovery.end:
        return
    pieces: dict[tuple[int, int], list[Record]] = {}
    for r in recovery.applied:
        pieces.setdefault((r.window, r.seq), []).append(r)
    own = before.own[recovery.slot].values()
    freed = {r.window for r in own if r.what == What.Free and r.event <= recovery.horizon}
    for (slot, window), made in before.to.items():
        if slot == recovery.slot and window not in freed:  # nobody looks at a freed window
            found = {seq: those for (w, seq), those in pieces.items() if w == window}
            yield from lacking(recovery, window, made, found)


def lacking(recovery: CausalRecovery, window: int, made: dict[int, Record],
            found: dict[int, list[Record]]) -> Iterator[Violation]:
    """Yield the accesses to one part that were not applied, or only in part.

    Args:
        made: the accesses to the part, by their ``seq``.
        found: the pieces of each access that were applied.
    """
    # Accesses made after the repair wait until the slot is live, so their seq is larger.
    top = max(found, default=0)
    for seq in sorted(made):
        r = made[seq]
        if seq in found:
            begin, end = found[seq][0].at, found[seq][-1].at + found[seq][-1].bytes
            if (begin, end) != (r.at, r.at + r.bytes):
                yield Violation(recovery.end_ns, f"{describe(r)}, was applied in part only: bytes "
                                f"{begin} to {end - 1}")
        elif (
            not recovery.start.holds(window, seq, r.slot, r.event)
            and must_be_applied(recovery, r)
            and (seq < top or r.done_ns < recovery.end_ns)
        ):
            yield Violation(recovery.end_ns, f"{describe(r)}, was not applied")


def must_be_applied(recovery: CausalRecovery, r: Record) -> bool:
    """Say whether the access was logged, has data, and has changed memory.

    A slot's puts to itself are repeated instead, as are its events above the horizon.
    """
    if r.what in ATOMICS and r.bytes <= ATOMIC_BYTES and r.value0 == r.value1:
        return False
    if r.slot != recovery.slot:
        return r.bytes > 0
    done = recovery.start.event < r.event <= recovery.horizon
    return r.bytes > 0 and r.what in COMBINING and done


# ---- the slot's own events ------------------------------------------------------------------


def replayed_right(recovery: CausalRecovery, before: Before) -> Iterator[Violation]:
    """Demand that each replayed event was done before in the same way, and comes once and in
    order."""
    previous = recovery.start.event
    for r in recovery.replayed:
        made = before.own[recovery.slot].get(r.event)
        if 0 < r.event <= recovery.start.event:
            yield Violation(
                r.begin_ns, f"{describe(r)}, was replayed, but lies before the checkpoint at event "
                f"{recovery.start.event}",
            )
        elif r.event <= previous:
            again = "a second time" if r.event == previous else f"after event {previous}"
            yield Violation(r.begin_ns, f"{describe(r)}, was replayed {again}")
        elif r.event > recovery.horizon:
            yield Violation(
                r.begin_ns, f"{describe(r)}, was replayed, but lies above the horizon, event "
                f"{recovery.horizon}",
            )
        elif made is None and not before.unrecorded(recovery.slot, r.event):
            yield Violation(r.begin_ns, f"{describe(r)}, was replayed, but never made")
        elif recovery.end and made is not None and shape(made) != shape(r):
            yield Violation(
                r.begin_ns, f"{describe(r)}, was replayed, but what the slot had done is "
                f"{describe(made)}",
            )
        previous = max(previous, r.event)


def shape(r: Record) -> tuple[int, ...]:
    return r.what, r.window, r.target, r.at, r.bytes


def replayed_all(recovery: CausalRecovery, before: Before) -> Iterator[Violation]:
    """Demand that every event of the slot between checkpoint and horizon was replayed."""
    if not recovery.end:
        return
    seen = {r.event for r in recovery.replayed}
    for event, made in sorted(before.own[recovery.slot].items()):
        if recovery.start.event < event <= recovery.horizon and event not in seen:
            yield Violation(
                recovery.end_ns, f"{describe(made)}, was not replayed; the horizon is event "
                f"{recovery.horizon}",
            )


def live_after(recovery: CausalRecovery, before: Before) -> Iterator[Violation]:
    """Demand that live events are above the horizon, and come after the end of the replay.

    Events at or below the horizon have taken effect already.
    """
    for r in recovery.rows:
        if r.mode != LIVE or r.what not in OWN_EVENTS:
            continue
        if not recovery.end:
            yield Violation(r.begin_ns, f"{describe(r)}, was done, though the replay had no end")
        elif r.event <= recovery.horizon:
            yield Violation(
                r.begin_ns, f"{describe(r)}, was done a second time, though the horizon is event "
                f"{recovery.horizon}",
            )
