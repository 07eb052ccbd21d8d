"""Verifies a run from its trace: that it was consistent, or what was inconsistent first.

`check` looks at a run from outside. It knows what the paper and the protocol promise, but not how
the library keeps these promises, so that a mistake of the library cannot hide here. It demands

1. that every committed version is RMA-consistent (`cuts`);
2. that every causal recovery replayed each event and each access once and in cohb order
   (`replays`);
3. that each atomic on a location found the value that the one before it left: old and new values
   form a trail;
4. that in every rollback all slots went back to the same committed version, and nothing of the
   attempt before comes later.

It warns of data races of the program (`races`), which are no fault of the run.

Of all violations only the first in time is reported, since the others may be consequences of it.

Loads and stores of a slot to its own memory are not judged, since they are not recorded. They may
change a location between two atomics; but then the slot has synchronized in between, or they would
race. So a trail may be broken where the slot's clock has advanced, and the report counts those
places. A store directly after the making of a window is a race that programs often have; it is
reported as a race.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from .cuts import Violation, committed, describe, inconsistencies
from .races import races
from .records import (
    ACCESSES,
    ATOMIC_BYTES,
    ATOMICS,
    LIVE,
    OWN_EVENTS,
    WRITING,
    Record,
    Records,
    Trace,
    What,
)
from .recoveries import begun_twice_or_never, recoveries
from .replays import check_replays

MOST_WARNINGS = 10  # warnings that are printed; more are counted


@dataclass
class Report:
    """Counts of everything that was checked, and the first violation.

    Attributes:
        accesses: number of accesses that were made live.
        atomics, locations, breaks: number of atomics with values, of their locations, and of places
            where the owner must have stored in between.
        checkpoints: committed versions.
        recoveries: causal recoveries that ended.
        applied, replayed: number of accesses and of events in all causal recoveries, ended or not.
        rollbacks: number of attempts that began with a rollback or a relaunch.
        warnings: data races of the program, by time.
        assumed: number of pairs of accesses whose order is not shown by the trace.
    """

    accesses: int
    atomics: int
    locations: int
    breaks: int
    checkpoints: int
    recoveries: int
    applied: int
    replayed: int
    rollbacks: int
    violation: Violation | None
    warnings: list[Violation]
    assumed: int

    def plain(self, began_ns: int) -> dict[str, Any]:
        """Return the report for JSON; times are those of the timeline."""

        def placed(what: Violation) -> dict[str, Any]:
            return {"at_ms": (what.at_ns - began_ns) / 1e6, "text": what.text}

        counts = {f.name: getattr(self, f.name) for f in fields(self)
                  if f.name not in ("violation", "warnings")}
        return {"consistent": self.violation is None, **counts,
                "violation": placed(self.violation) if self.violation else None,
                "warnings": [placed(warning) for warning in self.warnings]}

    def lines(self, began_ns: int) -> list[str]:
        """Return the report for users; times are those of the timeline."""

        broken = f", broken {counted(self.breaks, 'time')} where the owner may have stored"
        rows = [
            ("accesses", f"{self.accesses}; {counted(self.atomics, 'atomic')} in trails on "
             f"{counted(self.locations, 'location')}{broken if self.breaks else ''}"),
            ("checkpoints", f"{self.checkpoints}"),
            ("recoveries", f"{self.recoveries} causal; {counted(self.replayed, 'event')} replayed, "
             f"{counted(self.applied, 'access', 'accesses')} applied"),
            ("rollbacks", f"{self.rollbacks}"),
        ]
        if self.assumed:
            rows.append(("assumed", f"{counted(self.assumed, 'pair')} of accesses in order by "
                         "messages, or by a slot that looks at its own part: not recorded"))

        def told(name: str, what: Violation) -> None:
            rows.append((name, f"at {(what.at_ns - began_ns) / 1e6:.3f} ms: {what.text}"))

        for warning in self.warnings[:MOST_WARNINGS]:
            told("warning", warning)
        if len(self.warnings) > MOST_WARNINGS:
            rows.append(("warning", f"{len(self.warnings) - MOST_WARNINGS} more of other slots, "
                         "calls or windows"))
        if self.violation:
            told("violation", self.violation)
        else:
            rows.append(("result", "consistent"))
        return [f"{name:12} {text}" for name, text in rows]


def counted(n: int, one: str, more: str = "") -> str:
    return f"{n} {one if n == 1 else more or one + 's'}"


def check(trace: Trace) -> Report:
    """Verify a run from its trace."""
    # Checksum ranks and spares have no slot, and of their records only the commits matter here.
    records = trace.records
    records = records[(records["slot"] >= 0) | (records["what"] == What.Commit)]
    trace = replace(trace, records=records)
    live = records[(records["mode"] == LIVE) & np.isin(records["what"], OWN_EVENTS)]
    cuts, violations = committed(trace)
    found = list(recoveries(trace, cuts))
    trails = Trails(live, made_in(trace))
    raced, assumed = races(trace)
    violations += [
        *inconsistencies(trace, cuts), *begun_twice_or_never(trace),
        *check_replays(trace, found), *trails.violations, *check_rollbacks(trace),
        *done_twice(live),
    ]
    rollbacks = records[records["what"] == What.Rollback]
    return Report(
        accesses=int(np.isin(live["what"], ACCESSES).sum()),
        atomics=trails.atomics, locations=trails.locations, breaks=trails.breaks,
        checkpoints=len(cuts),
        recoveries=sum(r.end is not None for r in found),
        applied=sum(len(r.applied) for r in found), replayed=sum(len(r.replayed) for r in found),
        rollbacks=len(np.unique(rollbacks["entry"])),
        violation=min(violations, key=lambda v: v.at_ns, default=None),
        warnings=sorted([*trails.stores, *(Violation(*race) for race in raced)],
                        key=lambda v: v.at_ns),
        assumed=assumed,
    )


def made_in(trace: Trace) -> dict[tuple[int, int, int], Record]:
    """Return the making of each part, by attempt, owner and window."""
    rows = trace.rows(trace.records["what"] == What.Made)
    return {(r.entry, r.slot, r.window): r for r in rows}


def done_twice(live: Records) -> Iterator[Violation]:
    """Yield live events that come after a larger number in the same process; the first of each
    process."""
    order = np.lexsort((live["begin_ns"], live["proc"], live["slot"], live["entry"]))
    mine = live[order]
    same = np.ones(max(len(mine) - 1, 0), np.bool_)
    for name in ("entry", "slot", "proc"):
        same &= mine[name][1:] == mine[name][:-1]
    told = set()
    for i in np.flatnonzero(same & (mine["event"][1:] <= mine["event"][:-1])):
        r, previous = (Record._make(mine[k].item()) for k in (i + 1, i))
        if r.proc not in told:
            told.add(r.proc)
            yield Violation(
                r.begin_ns, f"{describe(r)}, was done after event {previous.event} of the same "
                f"process {r.proc}",
            )


# ---- trails ---------------------------------------------------------------------------------


class Trails:
    """The atomics of a run by location: each has to find the value that the one before it left."""

    def __init__(self, live: Records, made: dict[tuple[int, int, int], Record]) -> None:
        self.made = made
        self.stores: list[Violation] = []  # stores that race with the atomics
        self.atomics = self.locations = self.breaks = 0
        self.violations: list[Violation] = []
        writes = live[np.isin(live["what"], WRITING)]
        numbered = writes[(writes["seq"] > 0) & (writes["target"] >= 0)]
        order = np.lexsort(tuple(numbered[n] for n in ("seq", "window", "target", "entry")))
        numbered = numbered[order]
        keys = numbered[["entry", "target", "window"]]
        starts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        for part in np.split(numbered, starts) if len(numbered) else ():
            self.follow([Record._make(row) for row in part.tolist()])

    def follow(self, part: list[Record]) -> None:
        """Follow the trails of one part in one attempt.

        Args:
            part: its writing accesses, ordered by ``seq``.
        """
        with_values = [r for r in part if has_values(r)]
        cells = sorted({c for r in with_values for c in range(r.at, r.at + r.bytes)})
        last = np.full(len(cells), -1)  # for each cell the access that wrote it last
        before: dict[tuple[int, int], int] = {}  # location: its last atomic
        for i, r in enumerate(part):
            if i and part[i - 1].seq == r.seq:
                self.violations.append(Violation(
                    r.begin_ns, f"{describe(r)}, took the number that {describe(part[i - 1])}, "
                    "has in the order of that part",
                ))
            touched = slice(bisect_left(cells, r.at), bisect_left(cells, r.at + r.bytes))
            if has_values(r):
                if i + 1 == r.seq and (last[touched] < 0).all():
                    self.first(r)
                j = before.get((r.at, r.bytes))
                if j is not None and follows(part, j, i) and (last[touched] == j).all():
                    self.step(part[j], r)
                before[r.at, r.bytes] = i
            last[touched] = i
        self.atomics += len(with_values)
        self.locations += len(before)

    def behind_making(self, r: Record) -> bool:
        """Say whether the part's owner had called nothing since the window was made."""
        made = self.made.get((r.entry, r.target, r.window))
        return made is not None and made.clock == r.clock

    def first(self, r: Record) -> None:
        """Judge an atomic whose location no access has changed before."""
        if (r.entry == 1 and r.value0 and self.behind_making(r)
                and self.made[r.entry, r.target, r.window].value0):
            self.stores.append(stored(r, f"found {r.value0}"))

    def step(self, old: Record, new: Record) -> None:
        """Judge an atomic by the previous one on its location."""
        if old.value1 == new.value0:
            return
        if self.behind_making(new):
            self.stores.append(stored(new, f"found {new.value0} where {describe(old)}, had left "
                                      f"{old.value1}"))
            return
        if old.clock != new.clock:
            self.breaks += 1
            return
        self.violations.append(Violation(
            new.begin_ns, f"{describe(new)}, found {new.value0}, but {describe(old)}, had left "
            f"{old.value1}, and nothing came between",
        ))


def has_values(r: Record) -> bool:
    """Say whether it is an atomic whose old and new value are recorded."""
    return r.what in ATOMICS and 0 < r.bytes <= ATOMIC_BYTES


def follows(part: list[Record], j: int, i: int) -> bool:
    """Say whether no number is missing between two accesses to a part.

    A missing number belongs to an access that a killed process could not record any more.
    """
    return i - j == part[i].seq - part[j].seq


def stored(r: Record, seen: str) -> Violation:
    return Violation(
        r.begin_ns, f"data race: slot {r.target} has stored into its part of window {r.window} "
        f"right behind its making, and nothing orders that with {describe(r)}, which {seen}",
    )


# ---- rollbacks ------------------------------------------------------------------------------


def check_rollbacks(trace: Trace) -> Iterator[Violation]:
    """Yield the violations of rollbacks."""
    records = trace.records
    rollbacks = trace.rows(records["what"] == What.Rollback)
    for attempt in sorted({r.entry for r in rollbacks}):
        back = [r for r in rollbacks if r.entry == attempt]
        other = next((r for r in back if r.value0 != back[0].value0), None)
        if other:
            yield Violation(
                other.begin_ns, f"slot {other.slot} went back to version {other.value0}, slot "
                f"{back[0].slot} to version {back[0].value0}",
            )
        # A slot begins the next attempt after all have left the one before.
        since = back[0].begin_ns
        old = (records["slot"] >= 0) & (records["entry"] < attempt) & (records["end_ns"] > since)
        for r in trace.rows(np.flatnonzero(old)[:1]):
            yield Violation(
                r.end_ns, f"{describe(r)}, of attempt {r.entry} of the program ended after "
                f"slot {back[0].slot} had gone back and begun attempt {attempt}",
            )
