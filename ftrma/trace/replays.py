"""Whether causal recoveries replayed each logged access exactly once and in order, by the trace.

A process that takes over slot q starts from q's part of a committed version, or from a newer
checkpoint that q took alone (`attempts`), and executes the program again. Two things make it
what q was. Its own events up to the *horizon*, the last one that q had completed, must be done
again in replay mode: each once, in their order, with the same call at the same place. And the
accesses of others to q since the checkpoint, with q's atomics on itself, must be applied to its
memory: each once, none that the checkpoint holds already, and in cohb order. (An access may come in
several pieces: a layout with holes, or a log that was cut.)

What that order is can be read off the numbers an access carries. Its ``clock``, which is q's as the
origin saw it, says before which synchronization of q it may be seen: never must it be applied
before q's clock has come that far, nor after an access of a larger clock. ``seq`` orders accesses
of the same clock, and atomics and accumulates on common bytes throughout, since there the memory
after each is what was logged. (Plain puts of different clocks to common bytes, in flight at the
same time, race; either order is right.) A slot's clock counts its events that can order others'
accesses: all but puts and gets. Sections 3.2 and 4.3 of Besta & Hoefler, Algorithms 2, 3.

An attempt may be cut short by another failure, or given up because the program does something else
when it is executed again. Then what it did is judged, but for that, and not what it lacks; and it
must not have gone live. A process that was killed may have left its very last event out of its
trace; that one alone is let pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from .attempts import Attempt
from .cuts import Violation, describe, part_words
from .records import (
    ATOMIC_BYTES,
    ATOMICS,
    COMBINING,
    LIVE,
    OWN_EVENTS,
    REPLAY,
    WRITING,
    Record,
    Records,
    Trace,
    What,
)


class Before:
    """What the slots of an entry did live: what a replay has to repeat.

    Attributes:
        to: for each part the accesses by their ``seq``.
        own: for each slot its live events; one that was in flight at a death was done again alike.
        last: for each slot the last event that it is known to have come to.
        horizons: of the replays, with their slots.
    """

    def __init__(self, trace: Trace, entry: int, slots: set[int]) -> None:
        mine: Records = trace.records[trace.records["entry"] == entry]
        self.to: dict[tuple[int, int], dict[int, Record]] = {}
        self.own: dict[int, dict[int, Record]] = {slot: {} for slot in slots}
        self.last = dict.fromkeys(range(trace.slots), 0)
        live = mine[(mine["mode"] == LIVE) & (mine["what"] < OWN_EVENTS.stop)]
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
        """The event may have been the last of a process that was killed before it recorded it."""
        return (slot, event) in self.horizons or self.last.get(slot) == event - 1


def check_replays(trace: Trace, found: list[Attempt]) -> Iterator[Violation]:
    """Yield what is wrong with the causal recoveries; of each the first of every kind."""
    by_entry: dict[int, Before] = {}
    for attempt in found:
        if attempt.entry not in by_entry:
            slots = {a.slot for a in found if a.entry == attempt.entry}
            by_entry[attempt.entry] = Before(trace, attempt.entry, slots)
        before = by_entry[attempt.entry]
        if attempt.base is None:
            yield Violation(
                attempt.begin.begin_ns,
                f"{attempt.words}: that demand checkpoint had not been published when it began",
            )
            continue
        for kind in (applied_right, applied_in_order, applied_all, replayed_right, replayed_all,
                     live_after):
            problem = next(kind(attempt, before), None)
            if problem:
                yield Violation(problem.at_ns, f"{attempt.words}: {problem.text}")


# ---- accesses to the slot -------------------------------------------------------------------


def source(r: Record) -> str:
    """Name an applied access."""
    return (
        f"slot {r.value0}'s access (event {r.value1}, seq {r.seq}) to {part_words(r)}, bytes "
        f"{r.at} to {r.at + max(r.bytes, 1) - 1}"
    )


def applied_right(attempt: Attempt, before: Before) -> Iterator[Violation]:
    """Each applied access is one that was made, is not in the checkpoint, and comes once."""
    ends: dict[tuple[int, int], int] = {}  # of the pieces of an access so far
    for row in attempt.applied:
        r = row._replace(target=attempt.slot)
        if attempt.start.holds(r.window, r.seq, r.value0, r.value1):
            yield Violation(
                r.begin_ns, f"{source(r)}, was applied, but the checkpoint holds it already: "
                f"{attempt.start.words(r.window, r.value0)}",
            )
        if r.at < ends.get((r.window, r.seq), 0):
            yield Violation(r.begin_ns, f"{source(r)}, was applied a second time")
        ends[r.window, r.seq] = r.at + r.bytes
        made = before.to.get((attempt.slot, r.window), {}).get(r.seq)
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


def applied_in_order(attempt: Attempt, before: Before) -> Iterator[Violation]:
    """The order of applying is cohb, and nothing comes before the slot's clock has come so far.

    What is left when the last event below the horizon is done is applied at once; it may have read
    the clock of the event in which the slot died, one more than replay ever sees.
    """
    clock = attempt.start.clock
    own = before.own[attempt.slot]
    left = {e for e in own if attempt.start.event < e <= attempt.reached}
    latest: Record | None = None
    of_window: dict[int, Record] = {}
    combined: dict[int, list[Record]] = {}  # by window, ordered by seq
    for r in attempt.rows:
        if r.mode == REPLAY and r.what in OWN_EVENTS:
            left.discard(r.event)
            clock += r.what not in (What.Put, What.Get)
        if r.what != What.Apply:
            continue
        r = r._replace(target=attempt.slot)
        if r.clock > clock + (not left):
            yield Violation(
                r.begin_ns, f"{source(r)}, which saw the slot at clock {r.clock}, was applied at "
                f"clock {clock}",
            )
        made = before.to.get((attempt.slot, r.window), {}).get(r.seq)
        late = latest if latest and latest.clock > r.clock else None
        same = of_window.get(r.window)
        if same and same.clock == r.clock and same.seq > r.seq:
            late = late or same
        if made and made.what in COMBINING:
            others = combined.setdefault(r.window, [])
            place = bisect_left(others, r.seq, key=lambda o: o.seq)
            late = late or next(
                (o for o in others[place:] if o.seq > r.seq and overlap(o, r)), None
            )
            others.insert(place, r)
        if late:
            yield Violation(
                r.begin_ns, f"{source(r)}, at clock {r.clock} was applied after {source(late)}, at "
                f"clock {late.clock}, which comes later in cohb order",
            )
        latest = of_window[r.window] = r


def overlap(a: Record, b: Record) -> bool:
    """Two accesses to one part have bytes in common."""
    return a.at < b.at + b.bytes and b.at < a.at + a.bytes


def applied_all(attempt: Attempt, before: Before) -> Iterator[Violation]:
    """Every access to the slot since the checkpoint that was made before the repair was applied."""
    if not attempt.end:
        return
    pieces: dict[tuple[int, int], list[Record]] = {}
    for r in attempt.applied:
        pieces.setdefault((r.window, r.seq), []).append(r)
    own = before.own[attempt.slot].values()
    freed = {r.window for r in own if r.what == What.Free and r.event <= attempt.horizon}
    for (slot, window), made in before.to.items():
        if slot != attempt.slot or window in freed:
            continue  # nobody will look at a window that is gone
        # Accesses wait from the repair until the slot is live, so their seq is larger.
        top = max((s for w, s in pieces if w == window), default=0)
        for seq in sorted(made):
            r, found = made[seq], pieces.get((window, seq))
            if found:
                begin, end = found[0].at, found[-1].at + found[-1].bytes
                if (begin, end) != (r.at, r.at + r.bytes):
                    yield Violation(attempt.end_ns, f"{describe(r)}, was applied in part only: "
                                    f"bytes {begin} to {end - 1}")
            elif (
                not attempt.start.holds(window, seq, r.slot, r.event)
                and must_be_applied(attempt, r)
                and (seq < top or r.done_ns < attempt.end_ns)
            ):
                yield Violation(attempt.end_ns, f"{describe(r)}, was not applied")


def must_be_applied(attempt: Attempt, r: Record) -> bool:
    """It was logged, with something in it, and has changed something. A slot's puts to itself are
    made again instead, and so is all that it did above the horizon."""
    if r.what in ATOMICS and r.bytes <= ATOMIC_BYTES and r.value0 == r.value1:
        return False
    if r.slot != attempt.slot:
        return r.bytes > 0
    done = attempt.start.event < r.event <= attempt.horizon
    return r.bytes > 0 and r.what in COMBINING and done


# ---- the slot's own events ------------------------------------------------------------------


def replayed_right(attempt: Attempt, before: Before) -> Iterator[Violation]:
    """Each replayed event was done before, in the same way, and comes once and in its order."""
    previous = attempt.start.event
    for r in attempt.replayed:
        made = before.own[attempt.slot].get(r.event)
        if 0 < r.event <= attempt.start.event:
            yield Violation(
                r.begin_ns, f"{describe(r)}, was replayed, but lies before the checkpoint at event "
                f"{attempt.start.event}",
            )
        elif r.event <= previous:
            again = "a second time" if r.event == previous else f"after event {previous}"
            yield Violation(r.begin_ns, f"{describe(r)}, was replayed {again}")
        elif r.event > attempt.horizon:
            yield Violation(
                r.begin_ns, f"{describe(r)}, was replayed, but lies above the horizon, event "
                f"{attempt.horizon}",
            )
        elif made is None and not before.unrecorded(attempt.slot, r.event):
            yield Violation(r.begin_ns, f"{describe(r)}, was replayed, but never made")
        elif attempt.end and made is not None and shape(made) != shape(r):
            yield Violation(
                r.begin_ns, f"{describe(r)}, was replayed, but what the slot had done is "
                f"{describe(made)}",
            )
        previous = max(previous, r.event)


def shape(r: Record) -> tuple[int, ...]:
    return r.what, r.window, r.target, r.at, r.bytes


def replayed_all(attempt: Attempt, before: Before) -> Iterator[Violation]:
    """Every event of the slot between the checkpoint and the horizon was replayed."""
    if not attempt.end:
        return
    seen = {r.event for r in attempt.replayed}
    for event, made in sorted(before.own[attempt.slot].items()):
        if attempt.start.event < event <= attempt.horizon and event not in seen:
            yield Violation(
                attempt.end_ns, f"{describe(made)}, was not replayed; the horizon is event "
                f"{attempt.horizon}",
            )


def live_after(attempt: Attempt, before: Before) -> Iterator[Violation]:
    """What lies at or below the horizon has taken effect and is not done again; nothing else is
    done before all of it has been replayed."""
    for r in attempt.rows:
        if r.mode != LIVE or r.what not in OWN_EVENTS:
            continue
        if not attempt.end:
            yield Violation(r.begin_ns, f"{describe(r)}, was done, though the replay had no end")
        elif r.event <= attempt.horizon:
            yield Violation(
                r.begin_ns, f"{describe(r)}, was done a second time, though the horizon is event "
                f"{attempt.horizon}",
            )
