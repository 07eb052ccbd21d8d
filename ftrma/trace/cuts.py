"""Verifies from the trace that the checkpoints of a run were RMA-consistent.

A coordinated checkpoint is one cut through all slots. Definition 1 of Besta & Hoefler demands that
no two of its parts are ordered by cohb: the cut must not contain an access that only one side knows
of. Every writing access appears twice in a cut: at its origin by the origin's event number, and at
its target by ``seq``, its number among all writes to that part. Both must agree: an access of p to
q is before p's checkpoint if and only if q's checkpoint contains its ``seq``. A get leaves nothing
at its target, so its time is used there: it must not carry data from after the target's checkpoint
into the origin's.

The numbers of the checkpoint itself are judged in the same way: clock, GC and GNC are neither
behind an access that the checkpoint contains nor ahead of one that it does not contain (section
4.1). And no slot holds an exclusive lock (section 3.1.2, LC = 0).

If slots have staged their parts of a version alone, the version is no cut through accesses: a
framework makes its parts consistent. As with any version, all slots must have staged it before it
is committed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .records import ACCESSES, LIVE, WRITING, Record, Records, Trace, What

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Violation:
    """A violation of a promise, described in one sentence.

    Attributes:
        at_ns: when it happened, on the job's clock.
    """

    at_ns: int
    text: str


@dataclass
class Cut:
    """A committed version: for each slot its part of the checkpoint.

    Attributes:
        at_ns: when it was committed.
        parts: for each slot its Checkpoint records by window; -1: it had no window.
    """

    version: int
    attempt: int
    at_ns: int
    parts: dict[int, dict[int, Record]] = field(repr=False)

    def any_of(self, slot: int) -> Record:
        return next(iter(self.parts[slot].values()))

    @property
    def alone(self) -> bool:
        """Say whether a slot has staged its part without waiting for the others."""
        return any(self.any_of(slot).value1 for slot in self.parts)

    def event(self, slot: int) -> int:
        return self.any_of(slot).event

    def clock(self, slot: int) -> int:
        return self.any_of(slot).clock

    def seq(self, slot: int, window: int) -> int:
        """Return the last access to the part that the checkpoint contains; 0 for a window made
        later."""
        part = self.parts[slot].get(window)
        return part.seq if part else 0


# The beginning of every run, when nothing has happened.
START = Cut(0, 0, 0, {})


def part_words(r: Record) -> str:
    return f"slot {r.target}, window {r.window}"


def describe(r: Record) -> str:
    """Name an event of a slot's program."""
    text = f"slot {r.slot}'s {r.name} (event {r.event}"
    if r.what in WRITING:
        text += f", seq {r.seq}"
    text += ")"
    if r.target >= 0:
        text += f" to slot {r.target}"
    if r.window >= 0:
        text += f", window {r.window}" if r.target >= 0 else f" on window {r.window}"
    if r.what in ACCESSES:
        text += f", bytes {r.at} to {r.at + max(r.bytes, 1) - 1}"
    return text


# ---- versions -------------------------------------------------------------------------------


def committed(trace: Trace) -> tuple[dict[int, Cut], list[Violation]]:
    """Return the committed versions, and the violations in committing them.

    A version from which a recovery starts counts as committed, since the process that committed it
    may have died before it could record that.
    """
    what, mode = trace.records["what"], trace.records["mode"]
    chosen = np.isin(what, (What.Commit, What.Replay, What.Rollback)) | (
        (what == What.Checkpoint) & (mode == LIVE)
    )
    staged: dict[int, dict[int, dict[int, Record]]] = {}
    cuts: dict[int, Cut] = {}
    violations = []
    for r in trace.rows(chosen):
        if r.what == What.Checkpoint:
            slots = staged.setdefault(r.value0, {})
            old = slots.get(r.slot, {})
            again = any((o.entry, o.proc, o.event, o.value1)
                        != (r.entry, r.proc, r.event, r.value1) for o in old.values())
            slots[r.slot] = {r.window: r} if again else {**old, r.window: r}
        elif r.value0 and (r.value0 in staged or r.value0 not in cuts):
            slots = staged.pop(r.value0, {})
            problem = incomplete(r, slots, trace.slots)
            if problem:
                violations.append(Violation(r.begin_ns, problem))
            else:
                attempt = next(iter(slots[0].values())).entry
                cuts[r.value0] = Cut(r.value0, attempt, r.begin_ns, slots)
    return cuts, violations


def incomplete(r: Record, slots: dict[int, dict[int, Record]], total: int) -> str:
    """Say why a version cannot have been committed or restored, as `r` claims; empty if it can."""
    done = "committed" if r.what == What.Commit else f"taken for slot {r.slot}'s {r.name.lower()}"
    missing = next((s for s in range(total) if s not in slots), None)
    if missing is not None:
        return f"version {r.value0} was {done}, but slot {missing} had not staged it"
    parts = [next(iter(slots[s].values())) for s in range(total)]
    other = next((p for p in parts if p.entry != parts[0].entry), None)
    if other:
        return (
            f"version {r.value0} was {done}, but slot 0 had staged it in attempt {parts[0].entry} "
            f"and slot {other.slot} in attempt {other.entry}"
        )
    return ""


# ---- Definition 1 ---------------------------------------------------------------------------


class AccessColumns:
    """Accesses by field, and for each access the part that `owner` ("slot" or "target") names.

    All versions are compared with them, so everything that does not depend on a version is computed
    once.
    """

    def __init__(self, records: Records, owner: str) -> None:
        self.records = records
        names = ("slot", "target", "event", "seq", "clock", "gc", "gnc", "begin_ns", "end_ns")
        self.of = {name: np.ascontiguousarray(records[name]) for name in names}
        pairs = records[owner].astype(np.int64) << 32 | records["window"].astype(np.int64)
        keys, self.part = np.unique(pairs, return_inverse=True)
        self.parts = [(key >> 32, key & 0xFFFFFFFF) for key in keys.tolist()]

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.of[name]

    def first(self, bad: Mask) -> Record | None:
        found = np.flatnonzero(bad)
        return Record._make(self.records[found[0]].item()) if len(found) else None


class LiveEvents:
    """The live events of one attempt, with which its versions are compared.

    Attributes:
        writes, foreign: accesses with a number, and those of them to another slot; by the target's
            part.
        gets, accesses: gets, and all accesses; by the origin's part.
        locks: exclusive locks, with the event that released each (infinite: none did).
        freed: the event in which a slot freed a window.
    """

    def __init__(self, records: Records, attempt: int) -> None:
        mine = records[(records["entry"] == attempt) & (records["mode"] == LIVE)]
        reaching = np.isin(mine["what"], ACCESSES) & (mine["target"] >= 0)
        accesses = mine[reaching & (mine["window"] >= 0)]
        writes = accesses[np.isin(accesses["what"], WRITING) & (accesses["seq"] > 0)]
        self.writes = AccessColumns(writes, "target")
        self.foreign = AccessColumns(writes[writes["slot"] != writes["target"]], "target")
        self.gets = AccessColumns(accesses[accesses["what"] == What.Get], "slot")
        self.accesses = AccessColumns(accesses, "slot")
        locks = mine[np.isin(mine["what"], (What.Lock, What.Unlock))]
        self.locks = exclusive(locks[np.argsort(locks["event"], kind="stable")])
        freed = mine[mine["what"] == What.Free][["slot", "window", "event"]].tolist()
        self.freed = {(slot, window): event for slot, window, event in freed}


def exclusive(locks: Records) -> list[tuple[Record, float]]:
    """Return the exclusive locks, each with the event that released it."""
    held: dict[tuple[int, int, int], Record] = {}
    found = []
    for r in map(Record._make, locks.tolist()):
        was = held.pop((r.slot, r.window, r.target), None)
        if was:
            found.append((was, float(r.event)))
        if r.what == What.Lock and r.value0:
            held[r.slot, r.window, r.target] = r
    return found + [(r, math.inf) for r in held.values()]


def inconsistencies(trace: Trace, cuts: dict[int, Cut]) -> Iterator[Violation]:
    """Yield the first violation of each version that has one."""
    lived: dict[int, LiveEvents] = {}
    for cut in cuts.values():
        if cut.alone:
            continue
        if cut.attempt not in lived:
            lived[cut.attempt] = LiveEvents(trace.records, cut.attempt)
        problem = inconsistency(cut, lived[cut.attempt])
        if problem:
            yield Violation(cut.at_ns, f"version {cut.version} is not RMA-consistent: {problem}")


def inconsistency(cut: Cut, lived: LiveEvents) -> str:
    """Say why a version is not RMA-consistent; empty if it is."""
    return (
        half_known(cut, lived) or future_read(cut, lived) or wrong_clock(cut, lived)
        or wrong_counters(cut, lived) or lock_held(cut, lived)
    )


def by_slot(cut: Cut, name: str, slots: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Spread a field of each slot's checkpoint over an array of slots."""
    values = [getattr(cut.any_of(s), name) for s in range(len(cut.parts))]
    spread: npt.NDArray[np.uint64] = np.array(values, np.uint64)[slots]
    return spread


def by_part(
    cut: Cut, name: str, lived: LiveEvents, columns: AccessColumns
) -> tuple[npt.NDArray[np.uint64], Mask, Mask]:
    """Spread a field of each part's checkpoint over accesses.

    Returns:
        The values, 0 if the checkpoint does not contain the part; a mask of the accesses whose part
        it contains; and a mask of those whose part was freed by then, so that nothing is known of
        it.
    """
    values = np.zeros(len(columns.parts), np.uint64)
    held, gone = np.zeros((2, len(values)), np.bool_)
    for i, (slot, window) in enumerate(columns.parts):
        part = cut.parts[slot].get(window)
        values[i] = getattr(part, name) if part else 0
        held[i] = bool(part)
        gone[i] = not part and lived.freed.get((slot, window), math.inf) < cut.event(slot)
    return values[columns.part], held[columns.part], gone[columns.part]


def half_known(cut: Cut, lived: LiveEvents) -> str:
    """Find an access that is in the checkpoint of only one of its two sides."""
    w = lived.writes
    before = w["event"] < by_slot(cut, "event", w["slot"])
    seq, _, gone = by_part(cut, "seq", lived, w)
    r = w.first((before != (w["seq"] <= seq)) & ~gone)
    if not r:
        return ""
    inside = r.event < cut.event(r.slot)
    return (
        f"{describe(r)}, comes {'before' if inside else 'after'} slot {r.slot}'s checkpoint at "
        f"event {cut.event(r.slot)}, but slot {r.target}'s, which holds that window up to seq "
        f"{cut.seq(r.target, r.window)}, has it {'not' if inside else 'already'}"
    )


def future_read(cut: Cut, lived: LiveEvents) -> str:
    """Find a get that carries data from after one checkpoint into another, or the reverse."""
    g = lived.gets
    before = g["event"] < by_slot(cut, "event", g["slot"])
    begun, done = (by_slot(cut, name, g["target"]) for name in ("begin_ns", "end_ns"))
    r = g.first(np.where(before, g["begin_ns"] > done, g["end_ns"] < begun))
    if not r:
        return ""
    inside = r.event < cut.event(r.slot)
    return (
        f"{describe(r)}, comes {'before' if inside else 'after'} slot {r.slot}'s checkpoint at "
        f"event {cut.event(r.slot)}, but was made {'after' if inside else 'before'} slot "
        f"{r.target}'s"
    )


def wrong_clock(cut: Cut, lived: LiveEvents) -> str:
    """Find a checkpoint whose clock contradicts the clocks that others have read."""
    w = lived.foreign
    held = w["event"] < by_slot(cut, "event", w["slot"])
    clock = by_slot(cut, "clock", w["target"])
    r = w.first(np.where(held, w["clock"] > clock, w["clock"] < clock))
    if not r:
        return ""
    behind = r.event < cut.event(r.slot)
    return (
        f"slot {r.target}'s checkpoint has clock {cut.clock(r.target)}, which is "
        f"{'behind' if behind else 'ahead of'} the {r.clock} that {describe(r)}, has read "
        f"{'before' if behind else 'after'} it"
    )


def wrong_counters(cut: Cut, lived: LiveEvents) -> str:
    """Find a checkpoint whose GC or GNC contradicts the slot's own accesses."""
    a = lived.accesses
    before = a["event"] < by_slot(cut, "event", a["slot"])
    for name in ("gc", "gnc"):
        count, held, _ = by_part(cut, name, lived, a)
        r = a.first(held & np.where(before, a[name] > count, a[name] < count))
        if r:
            behind = r.event < cut.event(r.slot)
            return (
                f"slot {r.slot}'s checkpoint at event {cut.event(r.slot)} has {name.upper()} "
                f"{getattr(cut.parts[r.slot][r.window], name)} of window {r.window}, which is "
                f"{'behind' if behind else 'ahead of'} the {getattr(r, name)} of {describe(r)}"
            )
    return ""


def lock_held(cut: Cut, lived: LiveEvents) -> str:
    """Find a slot that takes its checkpoint while it holds an exclusive lock."""
    for r, released in lived.locks:
        if r.event < cut.event(r.slot) < released:
            return (
                f"slot {r.slot} took its checkpoint at event {cut.event(r.slot)} while it held the "
                f"exclusive lock of {part_words(r)}, from event {r.event}"
            )
    return ""
