"""Data races of a program, found in its trace.

Law: two conflicting accesses without order between them are told, and none that have some; what may
have order that the trace does not show is counted, and not told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tracesim import BEGAN_NS, trace_of

from ftrma.trace import races
from ftrma.trace.check import check
from ftrma.trace.races import Races
from ftrma.trace.records import ACCESSES, LIVE, REPLAY, Record, What

SLOTS = 3


class Run:
    """A run of three slots, one call after another; `all` lets slots be in a call together."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.now = BEGAN_NS
        self.events = dict.fromkeys(range(SLOTS), 0)
        self.numbers, self.exchanges = count(1), count(1)
        self.clocks = dict.fromkeys(range(SLOTS), 0)

    def tick(self) -> int:
        self.now += 10
        return self.now

    def add(self, what: What, slot: int, **fields: Any) -> None:
        data = {name: 0 for name in Record._fields} | {
            "begin_ns": self.tick(), "end_ns": self.tick(), "what": what, "mode": LIVE,
            "slot": slot, "proc": slot, "entry": 1, "event": self.events[slot], "window": -1,
            "target": -1, "clock": self.clocks[slot], **fields}
        self.records.append(Record(**data))

    def do(self, slot: int, what: What, target: int = -1, **fields: Any) -> None:
        self.events[slot] += 1
        self.clocks[slot] += what not in (What.Put, What.Get)
        if what in ACCESSES:
            fields = {"at": 0, "bytes": 8, "clock": self.clocks[target],
                      "seq": 0 if what == What.Get else next(self.numbers), **fields}
        self.add(what, slot, **{"target": target, "window": 0, **fields})

    def all(self, what: What, **fields: Any) -> None:
        begins = [self.tick() for _ in range(SLOTS)]
        for slot, begin_ns in enumerate(begins):
            self.do(slot, what, **{"begin_ns": begin_ns, **fields})

    def exchange(self, **fields: Any) -> None:
        self.all(What.Collective, window=-1, at=7, seq=next(self.exchanges), **fields)

    def put(self, slot: int, **fields: Any) -> None:
        self.do(slot, What.Put, 1, **fields)

    def get(self, slot: int, **fields: Any) -> None:
        self.do(slot, What.Get, 1, **fields)

    def atomic(self, slot: int, **fields: Any) -> None:
        self.do(slot, What.Fetch_and_op, 1, **fields)

    def flush(self, slot: int, local: bool = False) -> None:
        self.do(slot, What.Flush, 1, value0=int(not local))

    def lock(self, slot: int, exclusive: bool = True) -> None:
        self.do(slot, What.Lock, 1, value0=int(exclusive))

    def unlock(self, slot: int) -> None:
        self.do(slot, What.Unlock, 1)

    def group(self, slot: int, what: What, *others: int) -> None:
        self.do(slot, what)
        for other in others:
            self.add(What.Peer, slot, target=other)

    def races(self) -> Races:
        return Races(trace_of(self.records, SLOTS), 1)


def fenced(run: Run) -> None:
    for slot in (0, 2):
        run.put(slot)
        run.all(What.Fence)


def in_one_epoch(run: Run) -> None:
    run.put(0)
    run.get(2)
    run.all(What.Fence)


def beside(run: Run) -> None:
    run.put(0)
    run.put(2, at=8)
    run.get(2, at=8, bytes=0)


def overlapping(run: Run) -> None:
    run.put(0, bytes=100)
    run.put(2, at=96)


def readers(run: Run) -> None:
    run.get(0)
    run.get(2)


def flushed_before_the_barrier(run: Run) -> None:
    run.put(0)
    run.flush(0)
    run.exchange()
    run.get(2)


def flushed_behind_the_barrier(run: Run) -> None:
    run.put(0)
    run.exchange()
    run.flush(0)
    run.get(2)


def flushed_locally(run: Run) -> None:
    run.put(0)
    run.flush(0, local=True)
    run.exchange()
    run.get(2)


def got_before_the_barrier(run: Run) -> None:
    run.get(0)
    run.flush(0, local=True)
    run.exchange()
    run.put(2)


def got_by_request(run: Run) -> None:
    run.get(0)
    run.add(What.Request, 0, target=1, window=0)
    run.exchange()
    run.put(2)


def of_one_origin(run: Run) -> None:
    run.put(0)
    run.get(0)


def of_one_origin_flushed(run: Run) -> None:
    run.put(0)
    run.flush(0)
    run.get(0)


def locked(run: Run, first: bool = True, second: bool = True) -> None:
    for slot, exclusive in ((0, first), (2, second)):
        run.lock(slot, exclusive)
        run.put(slot)
        run.unlock(slot)


def from_the_root(run: Run) -> None:
    run.put(0)
    run.flush(0)
    run.exchange(value0=1, value1=0)
    run.get(2)


def to_the_root(run: Run) -> None:
    run.put(0)
    run.flush(0)
    run.exchange(value0=2, value1=1)
    run.get(2)


def beside_the_root(run: Run) -> None:
    run.put(0)
    run.flush(0)
    run.exchange(value0=1, value1=1)
    run.get(2)


def posted(run: Run) -> None:
    for slot in (0, 2):
        run.group(1, What.Post, slot)
        run.group(slot, What.Start, 1)
        run.put(slot)
        run.do(slot, What.Complete)
        run.do(1, What.Wait, value0=1)


def posted_at_once(run: Run) -> None:
    run.group(1, What.Post, 0, 2)
    for slot in (0, 2):
        run.group(slot, What.Start, 1)
        run.put(slot)
        run.do(slot, What.Complete)
    run.do(1, What.Wait, value0=1)


def waited_in_vain(run: Run) -> None:
    run.group(1, What.Post, 0)
    run.group(0, What.Start, 1)
    run.put(0)
    run.do(0, What.Complete)
    run.do(1, What.Wait, value0=0)
    run.do(1, What.Fetch_and_op, 1, at=64)
    run.do(2, What.Fetch_and_op, 1, at=64)
    run.put(2)


def signalled(run: Run, seq: int = 5) -> None:
    run.put(0)
    run.flush(0)
    run.atomic(0, at=64)
    run.atomic(2, at=64, seq=seq)
    run.get(2)


def signalled_elsewhere(run: Run) -> None:
    run.put(0)
    run.flush(0)
    run.atomic(0, at=64)
    run.atomic(2, at=72)
    run.get(2)


def atomics(run: Run) -> None:
    run.atomic(0)
    run.atomic(2)
    run.do(1, What.Accumulate, 1)


def atomic_and_put(run: Run) -> None:
    run.atomic(0)
    run.put(2)


def atomic_that_changes_nothing(run: Run) -> None:
    run.atomic(0, seq=0)
    run.get(2)


def messages(run: Run) -> None:
    run.put(0)
    run.flush(0)
    run.add(What.Message, 0, value0=1)
    run.add(What.Message, 2, value0=1)
    run.get(2)


def messages_too_early(run: Run) -> None:
    run.add(What.Message, 2, value0=1)
    run.put(0)
    run.flush(0)
    run.add(What.Message, 0, value0=1)
    run.get(2)


def looking(run: Run) -> None:
    run.put(0)
    run.flush(0)
    run.do(0, What.Put, 2, at=64)
    run.do(2, What.Sync)
    run.get(2)


def freed(run: Run) -> None:
    run.put(0)
    run.all(What.Free)


def killed_in_a_fence(run: Run) -> None:
    """The last event of slot 0 is told by its replacement, behind all that followed."""
    run.put(0)
    run.all(What.Fence)
    lost = next(r for r in run.records if r.what == What.Fence and r.slot == 0)
    run.records.remove(lost)
    run.get(2)
    run.records.append(lost._replace(
        mode=REPLAY, begin_ns=run.tick(), end_ns=run.tick(), proc=SLOTS))


ORDERED = (fenced, beside, readers, flushed_before_the_barrier, got_before_the_barrier,
           got_by_request, of_one_origin_flushed, locked, from_the_root, posted, signalled, atomics,
           atomic_that_changes_nothing, freed, killed_in_a_fence)
RACING = (in_one_epoch, overlapping, flushed_behind_the_barrier, flushed_locally, of_one_origin,
          to_the_root, beside_the_root, posted_at_once, waited_in_vain, signalled_elsewhere,
          atomic_and_put, messages_too_early)


@pytest.mark.parametrize("program", ORDERED)
def test_what_is_ordered_is_no_race(program: Callable[[Run], None]) -> None:
    run = Run()
    program(run)
    found = run.races()
    assert not found.found and not found.assumed


@pytest.mark.parametrize("program", RACING)
def test_a_race_is_told(program: Callable[[Run], None]) -> None:
    run = Run()
    program(run)
    assert len(run.races().found) == 1
    report = check(trace_of(run.records, SLOTS))
    assert report.violation is None and len(report.warnings) == 1
    assert "data race: slot 0's " in report.warnings[0].text


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_locks_that_are_both_shared_order_nothing(first: bool, second: bool) -> None:
    run = Run()
    locked(run, first, second)
    assert bool(run.races().found) == (not first and not second)


@pytest.mark.parametrize("program", [messages, looking])
def test_what_may_be_ordered_is_counted(program: Callable[[Run], None]) -> None:
    run = Run()
    program(run)
    found = run.races()
    assert not found.found and found.assumed == 1
    assert any(line.startswith("assumed      1 pair ")
               for line in check(trace_of(run.records, SLOTS)).lines(BEGAN_NS))


def made_counter(first: int, second: int) -> Run:
    """Slot 1 makes a window and calls nothing; two others count in its part."""
    run = Run()
    run.exchange()
    for slot in range(SLOTS):
        run.add(What.Made, slot, window=0, bytes=8, value0=1)
    run.atomic(0, value0=first, value1=first + 1)
    run.atomic(2, value0=second, value1=second + 1)
    return run


@pytest.mark.parametrize(("first", "second", "found"), [(0, 1, 0), (5, 6, 1), (0, 0, 1)])
def test_stores_behind_the_making_are_told(first: int, second: int, found: int) -> None:
    """Law: a changed first value, or a lost count, is a store of the owner that races."""
    report = check(trace_of(made_counter(first, second).records, SLOTS))
    assert report.violation is None and len(report.warnings) == found
    assert all("slot 1 has stored into its part" in w.text for w in report.warnings)


@pytest.mark.plain
def test_large_runs_take_time_and_memory_as_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: what all know is forgotten; ten times as many events take ten times the calls."""
    monkeypatch.setattr(races, "SWEEP", 100)
    taken = []
    for steps in (30, 300):
        run = Run()
        for step in range(steps):
            for slot in range(SLOTS):
                for i in range(5):
                    run.put(slot, at=(5 * (SLOTS * step + slot) + i) * 8)
            run.all(What.Fence)
        trace = trace_of(run.records, SLOTS)
        calls: list[str] = []
        sys.setprofile(lambda frame, event, arg, to=calls: to.append(event))  # type: ignore[misc]
        try:
            found = Races(trace, 1)
        finally:
            sys.setprofile(None)
        taken.append(len(calls))
        assert not found.found and found.segments <= 150
    assert taken[0] > 1000 and taken[1] < 11 * taken[0]
