"""Finds the data races of a program: conflicting accesses of a run without an order between them.

All promises of ftrma hold only for programs without data races. Two accesses conflict if they touch
common bytes, one of them writes, and not both are atomic. They race if neither happens before the
other. A happens before B if A is complete at its target (by a flush, an unlock, a fence or a
Complete, a read also by a local flush), and a chain of synchronization leads from there to B's
call. `Races` walks through a run in time with a vector clock for each slot, as FastTrack does
(Flanagan & Freund 2009), here with one component for each slot, its event number. Order comes

* from fences and Free, and from exchanges (collective calls, the making of windows): from all to
  all, or for rooted calls from or to the root alone, as MPI defines it;
* from Post to Start and from Complete to Wait;
* from an unlock to each later lock of that part, unless both are shared;
* from an atomic to each later one on common bytes.

There may be other orders that the trace does not show: by messages and other calls that it does not
follow, and by a slot that polls its own part, between two calls of Sync, Flush, Lock or Unlock,
until a put has arrived. So there are two clocks. The second clock assumes that after such a call a
slot knows everything that any other slot has sent, and that such polling has seen everything that
has arrived. Pairs that are ordered only by the second clock are counted (`Races.assumed`) and not
reported as races.

Loads and stores are not recorded, so only races between two calls are found here. (`check.Trails`
finds stores that are visible in the trails of atomics.)

Cost: the time for each event does not depend on the length of the trace. Accesses that all slots
know of are forgotten, so memory is needed only for the accesses since the last synchronization of
all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .cuts import describe
from .records import ACCESSES, ATOMICS, COMBINING, LIVE, OWN_EVENTS, REPLAY, Record, Trace, What

Clock = npt.NDArray[np.uint64]  # [2, slots]: the order that the trace shows, and the possible one
SHOWN, POSSIBLE = 0, 1

WRITES, READS, ATOMIC_WRITES, ATOMIC_READS = range(4)
CONFLICTS = {WRITES: {WRITES, READS, ATOMIC_WRITES, ATOMIC_READS},
             READS: {WRITES, ATOMIC_WRITES}, ATOMIC_WRITES: {WRITES, READS}, ATOMIC_READS: {WRITES}}
FLUSHES = (What.Flush, What.Flush_all)
LOOKS = (*FLUSHES, What.Sync, What.Lock, What.Unlock, What.Lock_all, What.Unlock_all, What.Wait)
COMPLETING = (*FLUSHES, What.Unlock, What.Unlock_all, What.Fence, What.Free, What.Complete)
# (a, b): an access that races with a past access of kind a also races with one of kind b.
COVERED = {(a, b) for a in CONFLICTS for b in CONFLICTS if CONFLICTS[a] <= CONFLICTS[b]}
CELL = 8  # bytes: atomics on one cell order the accesses around them
MOST_CELLS = 64  # most cells of one atomic: larger ones are data, not signals
SWEEP = 4096  # least number of segments that are made between two sweeps


class Access:
    """An access, and the event that completes it.

    Attributes:
        done: the event of its slot that completes it; 0: it is not complete yet.
    """

    __slots__ = ("done", "fetches", "kind", "r")

    def __init__(self, r: Record) -> None:
        self.r, self.done = r, 0
        self.fetches = r.what == What.Get or r.what in ATOMICS
        if r.what in COMBINING:
            self.kind = ATOMIC_WRITES if r.seq or r.what == What.Accumulate else ATOMIC_READS
        else:
            self.kind = READS if r.what == What.Get else WRITES

    def known(self, clock: Clock) -> bool:
        return 0 < self.done <= int(clock[self.r.slot])


Known = dict[tuple[int, int, bool], Access]  # newest access by slot, kind and whether it fetches


class WindowPart:
    """Accesses to one slot's part of a window with which later ones are compared: disjoint
    segments."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.segments: list[tuple[int, Known]] = []  # its end, and the accesses to it

    def cut(self, low: int, high: int) -> slice:
        """Make [low, high) consist of whole segments, also where there were none."""
        self.split(low)
        self.split(high)
        i = bisect_left(self.begins, low)
        at, first = low, i
        while at < high:
            if i == len(self.begins) or self.begins[i] > at:
                end = min(high, self.begins[i]) if i < len(self.begins) else high
                self.begins.insert(i, at)
                self.segments.insert(i, (end, {}))
            at, i = self.segments[i][0], i + 1
        return slice(first, i)

    def split(self, at: int) -> None:
        i = bisect_left(self.begins, at) - 1
        if i >= 0 and self.begins[i] < at < self.segments[i][0]:
            end, known = self.segments[i]
            self.segments[i] = at, known
            self.begins.insert(i + 1, at)
            self.segments.insert(i + 1, (end, dict(known)))

    def forget(self, floor: Clock) -> None:
        kept = []
        for begin, (end, known) in zip(self.begins, self.segments, strict=True):
            left = {key: a for key, a in known.items() if not a.known(floor)}
            if left:
                kept.append((begin, (end, left)))
        self.begins = [begin for begin, _ in kept]
        self.segments = [segment for _, segment in kept]


class Races:
    """The races of one attempt of the program.

    Attributes:
        found: the first accesses that race, for each pair of slots, calls and parts.
        assumed: number of pairs of accesses that are ordered only if orders are assumed that the
            trace does not show.
    """

    def __init__(self, trace: Trace, attempt: int) -> None:
        mine = trace.records[trace.records["entry"] == attempt]
        self.slots = trace.slots
        self.clocks: Clock = np.zeros((trace.slots, 2, trace.slots), np.uint64)
        self.found: dict[tuple[int, ...], tuple[Access, Access]] = {}
        self.assumed = 0
        self.parts: defaultdict[tuple[int, int], WindowPart] = defaultdict(WindowPart)
        self.swept = 0  # number of segments that the last sweep has left
        self.segments = 0
        self.open: defaultdict[tuple[int, int], defaultdict[int, list[Access]]] = defaultdict(
            lambda: defaultdict(list))  # by slot and window, then target: incomplete accesses
        self.published: dict[Any, Clock] = {}
        self.locked: dict[tuple[int, int, int], int] = {}
        self.counts: Counter[Any] = Counter()
        self.groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self.requests: set[tuple[int, int]] = set()
        for r in records_of(mine, (What.Peer, What.Request)):
            if r.what == What.Peer:
                self.groups[r.slot, r.event].append(r.target)
            else:
                self.requests.add((r.slot, r.event))
        # The slots that a slot has named in a group, each with how often this has happened so far.
        self.started: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.exposed: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.walk(events_of(mine))

    # -- walking ------------------------------------------------------------------------------

    def walk(self, events: list[Record]) -> None:
        """Walk through the events in time: an event tells others at its begin, and learns at its
        end."""
        self.left = Counter(key for r in events if (key := exchange(r)))
        times = [(r.begin_ns, 0, i) for i, r in enumerate(events)]
        times += [(r.end_ns, 1, i) for i, r in enumerate(events)]
        times.sort()
        inside: dict[int, int] = {}
        for _, ends, i in times:
            slot = events[i].slot
            if not ends:
                before = inside.get(slot)
                if before is not None:
                    self.end(events[before])
                inside[slot] = i
                self.begin(events[i])
            elif inside.get(slot) == i:
                del inside[slot]
                self.end(events[i])

    def tell(self, key: Any, clock: Clock) -> None:
        if key in self.published:
            np.maximum(self.published[key], clock, out=self.published[key])
        else:
            self.published[key] = clock.copy()

    def learn(self, slot: int, key: Any) -> None:
        told = self.published.get(key)
        if told is not None:
            np.maximum(self.clocks[slot], told, out=self.clocks[slot])

    def begin(self, r: Record) -> None:
        clock = self.clocks[r.slot]
        clock[:, r.slot] = max(r.event, int(clock[SHOWN, r.slot]))
        if r.what in COMPLETING:
            self.complete(r)
        if r.what in ACCESSES:
            self.tell_access(r, clock)
        elif r.what == What.Message:
            self.tell("messages", clock)
        elif r.what in (What.Unlock, What.Unlock_all):
            self.unlock(r, clock)
        elif r.what == What.Post:
            for other in self.groups[r.slot, r.event]:
                self.tell(("post", r.window, r.slot, other, self.next("post", r, other)), clock)
        elif r.what == What.Complete:
            for other, number in self.started.pop((r.slot, r.window), ()):
                self.tell(("complete", r.window, r.slot, other, number), clock)
        else:
            key = self.meeting(r)
            if key and not (r.what == What.Collective and r.value0 == 1 and r.slot != r.value1):
                self.tell(key, clock)

    def tell_access(self, r: Record, clock: Clock) -> None:
        for key in cells(r):
            self.tell(key, clock)
        if r.slot != r.target and r.what != What.Get:
            self.tell(("part", r.target), clock)

    def end(self, r: Record) -> None:
        if r.what in ACCESSES:
            self.access(r)
            for key in cells(r):
                self.learn(r.slot, key)
        elif r.what == What.Message:
            self.learn_possible(r.slot, "messages")
        elif r.what in (What.Lock, What.Lock_all):
            self.lock(r)
        elif r.what == What.Start:
            self.started[r.slot, r.window] = [
                (other, self.next("start", r, other)) for other in self.groups[r.slot, r.event]]
            for other, number in self.started[r.slot, r.window]:
                self.learn(r.slot, key := ("post", r.window, other, r.slot, number))
                self.published.pop(key, None)
        elif r.what == What.Post:
            self.exposed[r.slot, r.window] = [
                (other, self.counts["post", r.slot, other, r.window])
                for other in self.groups[r.slot, r.event]]
        elif r.what == What.Wait and r.value0:
            for other, number in self.exposed.pop((r.slot, r.window), ()):
                self.learn(r.slot, key := ("complete", r.window, other, r.slot, number))
                self.published.pop(key, None)
        else:
            self.leave(r)
        if r.what in LOOKS:
            self.learn_possible(r.slot, ("part", r.slot))

    def next(self, kind: str, r: Record, other: int) -> int:
        self.counts[kind, r.slot, other, r.window] += 1
        return self.counts[kind, r.slot, other, r.window]

    def learn_possible(self, slot: int, key: Any) -> None:
        told = self.published.get(key)
        if told is not None:
            mine = self.clocks[slot, POSSIBLE]
            np.maximum(mine, told[POSSIBLE], out=mine)

    # -- synchronization ----------------------------------------------------------------------

    def meeting(self, r: Record) -> Any:
        """Return the key of a meeting of all members: an exchange, or a numbered fence or Free of a
        window."""
        if r.what in (What.Fence, What.Free):
            return r.what, r.window, self.next("meeting", r, r.what)
        return exchange(r)

    def leave(self, r: Record) -> None:
        if r.what in (What.Fence, What.Free):
            number = self.counts["meeting", r.slot, int(r.what), r.window]
            self.learn(r.slot, (r.what, r.window, number))
            if r.what == What.Fence:
                # No slot leaves a fence before all have left the previous one.
                self.published.pop((r.what, r.window, number - 2), None)
            return
        key = exchange(r)
        if key is None:
            return
        if r.value0 != 2 or r.slot == r.value1:
            self.learn(r.slot, key)
        self.left[key] -= 1
        if not self.left[key]:
            self.published.pop(key, None)

    def lock(self, r: Record) -> None:
        if r.what == What.Lock_all:
            self.learn(r.slot, ("exclusive", r.window))
            return
        self.locked[r.slot, r.window, r.target] = r.value0
        self.learn(r.slot, ("exclusive", r.window, r.target))
        if r.value0:
            self.learn(r.slot, ("shared", r.window, r.target))
            self.learn(r.slot, ("shared", r.window))

    def unlock(self, r: Record, clock: Clock) -> None:
        if r.what == What.Unlock_all:
            self.tell(("shared", r.window), clock)
            return
        exclusive = self.locked.pop((r.slot, r.window, r.target), None)
        if exclusive is None:  # it was locked with MODE_NOCHECK
            return
        if exclusive:
            self.tell(("exclusive", r.window), clock)
        self.tell(("exclusive" if exclusive else "shared", r.window, r.target), clock)

    def complete(self, r: Record) -> None:
        targets = self.open.get((r.slot, r.window))
        if not targets:
            return
        local = r.what in FLUSHES and not r.value0
        for target in [r.target] if r.target >= 0 else list(targets):
            waiting = targets.pop(target, [])
            for a in waiting:
                if a.fetches or not local:
                    a.done = r.event
            if local:
                targets[target] = [a for a in waiting if not a.done]

    # -- accesses -----------------------------------------------------------------------------

    def access(self, r: Record) -> None:
        if not r.bytes or r.target < 0:
            return
        b, clock = Access(r), self.clocks[r.slot]
        part = self.parts[r.target, r.window]
        before = len(part.begins)
        place = part.cut(r.at, r.at + r.bytes)
        seen: set[int] = set()  # an access may be in many segments
        ordered = True
        for _, known in part.segments[place]:
            for key, a in list(known.items()):
                shown = a.known(clock[SHOWN])
                ordered &= shown
                if shown:
                    if (a.kind, b.kind) in COVERED:
                        del known[key]
                elif a.kind in CONFLICTS[b.kind] and id(a) not in seen:
                    seen.add(id(a))
                    self.race(a, b, clock)
            known[r.slot, b.kind, b.fetches] = b
        if ordered and b.kind == WRITES:  # an access ordered after it is ordered after all of them
            part.begins[place] = [r.at]
            part.segments[place] = [(r.at + r.bytes, {(r.slot, b.kind, b.fetches): b})]
        if (r.slot, r.event) in self.requests and b.fetches:
            b.done = r.event  # it is not known when its request was waited for
        else:
            self.open[r.slot, r.window][r.target].append(b)
        self.segments += len(part.begins) - before
        if self.segments > 2 * self.swept + SWEEP:
            self.sweep()

    def race(self, a: Access, b: Access, clock: Clock) -> None:
        if a.known(clock[POSSIBLE]):
            self.assumed += 1
            return
        pair = sorted([(a.r.slot, a.r.what), (b.r.slot, b.r.what)])
        self.found.setdefault((b.r.window, b.r.target, *pair[0], *pair[1]), (a, b))

    def sweep(self) -> None:
        """Forget accesses that all slots know of, since no later access can race with them."""
        floor = self.clocks[:, SHOWN].min(axis=0)
        for part in self.parts.values():
            part.forget(floor)
        known = [key for key, told in self.published.items()
                 if key[0] == "atomic" and (told <= floor).all()]
        for key in known:
            del self.published[key]
        self.segments = self.swept = sum(len(p.begins) for p in self.parts.values())


# ---- the events of an attempt -----------------------------------------------------------------


def records_of(records: npt.NDArray[np.void], kinds: Iterable[int]) -> list[Record]:
    return [Record._make(row) for row in records[np.isin(records["what"], list(kinds))].tolist()]


def cells(r: Record) -> Iterable[Any]:
    """Return the cells through which an atomic is a signal to later atomics."""
    if r.what not in COMBINING or not 0 < r.bytes <= CELL * MOST_CELLS:
        return ()
    cells = range(r.at // CELL, (r.at + r.bytes - 1) // CELL + 1)
    return [("atomic", r.target, r.window, cell) for cell in cells]


def exchange(r: Record) -> Any:
    return ("exchange", r.at, r.seq) if r.what == What.Collective else None


def events_of(records: npt.NDArray[np.void]) -> list[Record]:
    """Return the events of the slots, each once, and their calls that are not followed.

    The last event of a killed process may have no record; then its replay shows it. That event took
    place directly after the event before it.
    """
    own = records[np.isin(records["what"], OWN_EVENTS) & np.isin(records["mode"], (LIVE, REPLAY))]
    own = own[np.lexsort((own["mode"] != LIVE, own["event"], own["slot"]))]
    first = np.ones(len(own), np.bool_)
    first[1:] = (own["slot"][1:] != own["slot"][:-1]) | (own["event"][1:] != own["event"][:-1])
    own = own[first].copy()
    for i in np.flatnonzero(own["mode"] == REPLAY):
        if i and own["slot"][i - 1] == own["slot"][i]:
            own["begin_ns"][i] = min(own["begin_ns"][i], own["end_ns"][i - 1])
    events = [Record._make(row) for row in own.tolist()]
    messages = records_of(records, [What.Message])
    last = {r.slot: r for r in events}  # its process may have been killed during these calls
    if messages:
        messages += [r._replace(what=What.Message, begin_ns=r.end_ns) for r in last.values()]
    return events + messages


# ---- words ----------------------------------------------------------------------------------


def words(a: Access, b: Access) -> str:
    """Name two accesses that race."""
    low, high = max(a.r.at, b.r.at), min(a.r.at + a.r.bytes, b.r.at + b.r.bytes) - 1
    why = "nothing orders them" if a.done else f"slot {a.r.slot} had not completed the first one"
    return (f"data race: {describe(a.r)}, and {describe(b.r)}, have bytes {low} to {high} in "
            f"common, and {why}")


def races(trace: Trace) -> tuple[list[tuple[int, str]], int]:
    """Return the races of a run, each with its time, and the number of assumed pairs."""
    told: list[tuple[int, str]] = []
    assumed = 0
    for attempt in np.unique(trace.records["entry"]).tolist():
        found = Races(trace, attempt)
        told += [(b.r.begin_ns, words(a, b)) for a, b in found.found.values()]
        assumed += found.assumed
    return sorted(told), assumed
