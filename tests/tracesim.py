"""A small RMA machine that writes traces as a run would: for tests of the checker.

Every step is one event of one slot, or one of all; the machine keeps clocks, order words, counters
and the memory under atomics, takes checkpoints, kills slots, replays them and rolls back. It uses
the format of the trace and nothing of the checker.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ftrma.trace.records import (
    ACCESSES,
    LIVE,
    OWN_EVENTS,
    PROLOGUE,
    RECORD,
    REPLAY,
    Record,
    Trace,
    What,
)

BEGAN_NS = 10**13
ATOMS = (What.Fetch_and_op, What.Compare_and_swap, What.Get_accumulate)
WRITES = (What.Put, What.Accumulate, *ATOMS)


@dataclass
class State:
    """The contents of a checkpoint, for all slots."""

    event: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    clock: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    seq: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    gc: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    gnc: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    memory: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    windows: int = 0


@dataclass
class Demand:
    """A checkpoint that one slot took alone."""

    number: int
    event: int
    clock: int
    seq: dict[int, int]
    events: dict[int, int]

    def holds(self, r: Record) -> bool:
        return r.seq <= self.seq[r.window] and r.event <= self.events[r.slot]


class Job:
    """A job of `slots` slots; window 0 is for puts and accumulates, window 1 for all else."""

    def __init__(self, slots: int = 3, seed: int = 0, *, pieces: bool = False) -> None:
        self.pieces = pieces  # what is applied may come in two
        self.slots, self.rng = slots, random.Random(seed)
        self.now, self.entry, self.version, self.procs = BEGAN_NS, 0, 0, slots
        self.proc = list(range(slots))
        self.state = State()
        self.saved = {0: copy.deepcopy(self.state)}
        self.saved_in = {0: 0}  # entry
        self.demands: dict[int, Demand] = {}  # the newest, since the checkpoint of all
        self.taken: dict[int, int] = defaultdict(int)  # demand checkpoints in this entry
        self.slow: dict[int, Record] = {}  # puts that have read the clock but no number
        self.recovered: set[int] = set()  # causally, since the last checkpoint
        self.records: list[Record] = []
        self.unrecorded: list[Record] = []  # done, but its process was killed before it told

    # -- the program --------------------------------------------------------------------------

    def tick(self) -> int:
        self.now += self.rng.randint(1, 5)
        return self.now

    def add(self, what: What, slot: int, **fields: Any) -> Record:
        begin_ns = fields.pop("begin_ns", 0) or self.tick()
        data = {name: 0 for name in Record._fields} | {
            "begin_ns": begin_ns, "end_ns": self.tick(), "what": what, "mode": LIVE, "slot": slot,
            "proc": self.proc[slot] if slot >= 0 else self.slots + 90, "entry": self.entry,
            "window": -1, "target": -1, **fields,
        }
        self.records.append(Record(**data))
        return self.records[-1]

    def next_event(self, slot: int, what: What) -> int:
        self.settle(slot)
        self.state.event[slot] += 1
        if what not in (What.Put, What.Get):
            self.state.clock[slot] += 1
        return self.state.event[slot]

    def call(self, what: What, slot: int, **fields: Any) -> None:
        """A call that is no access."""
        self.add(what, slot, event=self.next_event(slot, what), **fields)

    def all_call(self, what: What, **fields: Any) -> None:
        for slot in range(self.slots):
            self.call(what, slot, **fields)

    def make_windows(self) -> None:
        for window in (0, 1):
            self.all_call(What.Window, window=window)
        self.state.windows = 2

    def fence(self, window: int = 0) -> None:
        self.all_call(What.Fence, window=window)
        for slot in range(self.slots):
            self.state.gnc[slot, window] += 1

    def flush(self, slot: int, target: int, window: int = 1) -> None:
        self.call(What.Flush, slot, target=target, window=window)
        self.state.gc[slot, window] += 1

    def counters(self, slot: int, window: int) -> dict[str, int]:
        return {"gc": self.state.gc[slot, window], "gnc": self.state.gnc[slot, window]}

    def number(self, target: int, window: int) -> dict[str, int]:
        self.state.seq[target, window] += 1
        return {"seq": self.state.seq[target, window], "clock": self.state.clock[target]}

    def write(
        self, what: What, slot: int, target: int, at: int, size: int = 8, window: int = 0
    ) -> None:
        event = self.next_event(slot, what)
        self.add(what, slot, event=event, target=target, window=window, at=at, bytes=size,
                 **self.number(target, window), **self.counters(slot, window))
        if window == 1:
            self.state.memory[target, at] = self.rng.randint(0, 999)

    def write_slowly(self, slot: int, target: int, at: int) -> None:
        """Read the target's clock now; take the number when the slot goes on."""
        event = self.next_event(slot, What.Put)
        self.slow[slot] = self.add(
            What.Put, slot, event=event, target=target, window=0, at=at, bytes=8,
            clock=self.state.clock[target], **self.counters(slot, 0),
        )
        self.records.pop()

    def settle(self, slot: int) -> None:
        put = self.slow.pop(slot, None)
        if put:
            self.records.append(
                put._replace(seq=self.number(put.target, 0)["seq"], end_ns=self.tick())
            )

    def read(self, slot: int, target: int, at: int) -> None:
        self.add(
            What.Get, slot, event=self.next_event(slot, What.Get), target=target, window=0, at=at,
            bytes=8, **self.counters(slot, 0),
        )

    def atomic(self, slot: int, target: int, at: int, what: What = What.Fetch_and_op) -> None:
        event = self.next_event(slot, what)
        old = self.state.memory[target, at]
        self.state.memory[target, at] = new = (old * 3 + 7 * slot + 1) % 1000
        self.add(
            what, slot, event=event, target=target, window=1, at=at, bytes=8, value0=old,
            value1=new, **self.number(target, 1), **self.counters(slot, 1),
        )

    def look(self, slot: int, target: int, at: int) -> None:
        """An atomic that changes nothing, and takes no number."""
        event, value = self.next_event(slot, What.Get_accumulate), self.state.memory[target, at]
        self.add(
            What.Get_accumulate, slot, event=event, target=target, window=1, at=at, bytes=8,
            value0=value, value1=value, **self.counters(slot, 1),
        )

    def store(self, slot: int, at: int) -> None:
        """The owner changes a location itself, between two calls that make that no race."""
        self.lock(slot, slot)
        self.state.memory[slot, at] = self.rng.randint(0, 999)
        self.unlock(slot, slot)

    def lock(self, slot: int, target: int) -> None:
        self.call(What.Lock, slot, target=target, window=1, value0=1)

    def unlock(self, slot: int, target: int) -> None:
        self.call(What.Unlock, slot, target=target, window=1)
        self.state.gc[slot, 1] += 1

    # -- protection ---------------------------------------------------------------------------

    def stage(self, slots: range) -> None:
        for slot in slots:
            for window in range(self.state.windows) or [-1]:
                self.add(
                    What.Checkpoint, slot, event=self.state.event[slot], window=window,
                    seq=self.state.seq[slot, window], clock=self.state.clock[slot],
                    value0=self.version + 1, **self.counters(slot, window),
                )

    def checkpoint(self, *, complete: bool = True) -> None:
        self.all_call(What.Collective)
        self.all_call(What.Safepoint)
        self.stage(range(self.slots if complete else self.slots - 1))
        if complete:
            self.version += 1
            self.saved[self.version] = copy.deepcopy(self.state)
            self.saved_in[self.version] = self.entry
            self.recovered.clear()
            self.demands.clear()
            for _ in range(2):  # two checksum ranks
                self.add(What.Commit, -1, value0=self.version)

    def demand(self, slot: int, *, behind: int = -1, between: int = -1,
               published: bool = True) -> None:
        """The slot checkpoints alone; a slot `behind` has not said yet that its last event is over.

        The slot `between` makes an access after the numbers were read and before the events are.
        Puts that have read the clock and go on slowly take their number after that. One that is not
        `published` is that of a slot which dies right after it recorded it.
        """
        self.call(What.Safepoint, slot)
        self.taken[slot] += 1
        windows = range(self.state.windows)
        seq = {w: self.state.seq[slot, w] for w in windows}
        if between >= 0:
            self.write(What.Accumulate, between, slot, 16)
        events = {p: self.state.event[p] - (p == behind or p in self.slow)
                  for p in range(self.slots)}
        demand = Demand(
            self.taken[slot], self.state.event[slot], self.state.clock[slot],
            seq, events,
        )
        pairs = [(w, p) for w in windows for p in events if p != slot]
        for window, other in pairs or [(-1, -1)]:
            self.add(
                What.Demand, slot, event=demand.event, clock=demand.clock, window=window,
                target=other, seq=demand.seq.get(window, 0), value0=demand.number,
                value1=demand.events.get(other, 0),
            )
        if published:
            self.demands[slot] = demand
        else:
            self.taken[slot] -= 1

    def demand_while_others_write(self, slot: int) -> None:
        other = (slot + 1) % self.slots
        at = self.rng.choice([0, 8])
        kind = self.rng.choice(["behind", "between", "slow"])
        if kind == "behind":
            self.write(What.Accumulate, other, slot, at)
            self.demand(slot, behind=other)
        elif kind == "between":
            self.demand(slot, between=other)
        else:
            self.write_slowly(other, slot, 512 + at)
            self.demand(slot)

    def base(self) -> State:
        """Events, clocks and numbers at the version; they begin anew after a rollback."""
        here = self.saved_in[self.version] == self.entry
        return self.saved[self.version] if here else State()

    def start(self, slot: int) -> tuple[int, int]:
        """Event and clock that a replay starts from."""
        demand, base = self.demands.get(slot), self.base()
        if demand:
            return demand.event, demand.clock
        return base.event[slot], base.clock[slot]

    def done(self) -> list[Record]:
        """The events of the program in this attempt."""
        found = [r for r in self.records + self.unrecorded if r.entry == self.entry]
        return [r for r in found if r.mode == LIVE and r.what in OWN_EVENTS]

    def mine(self, slot: int, horizon: int) -> list[Record]:
        """A slot's events that a replay repeats, each as it was done last."""
        base = self.start(slot)[0]
        found = {r.event: r for r in self.done() if r.slot == slot and base < r.event <= horizon}
        return [found[e] for e in sorted(found)]

    def logged(self, slot: int, horizon: int) -> list[Record]:
        """The accesses that a replay of the slot applies, by clock and number."""
        base = self.base().seq
        found = [r for r in self.done() if r.target == slot and r.what in WRITES]
        found = [r for r in found if r.seq > base[slot, r.window]]
        demand = self.demands.get(slot)
        found = [r for r in found if not (demand and demand.holds(r))]
        # A slot's puts to itself are made again.
        found = [r for r in found if r.slot != slot or (r.what != What.Put and r.event <= horizon)]
        return sorted(found, key=lambda r: (r.clock, r.seq))

    def recover(self, slot: int, *, horizon: int | None = None, stop: int | None = None) -> None:
        """A new process takes the slot over by replay.

        Args:
            horizon: the last event that was completed; the slot's last by default.
            stop: the process dies after so many replayed events, at times before it recorded the
                last of them.
        """
        horizon = self.state.event[slot] if horizon is None else horizon
        mine, left = self.mine(slot, horizon), self.logged(slot, horizon)
        self.proc[slot], self.procs = self.procs, self.procs + 1
        event, clock = self.start(slot)
        number = self.demands[slot].number if slot in self.demands else 0
        self.add(
            What.Replay, slot, mode=REPLAY, event=event, clock=clock, at=number,
            value0=self.version, value1=horizon,
        )
        for before in range(1, event + 1)[-2:]:
            self.add(What.Window, slot, event=before, mode=PROLOGUE, window=0)
        left = self.apply(slot, left, clock, event)
        for r in mine[:stop]:
            begin_ns = self.tick()
            clock += r.what not in (What.Put, What.Get)
            left = self.apply(slot, left, clock, r.event)
            if stop and r is mine[:stop][-1] and self.rng.random() < 0.3:
                break
            fields = r._asdict() | {"mode": REPLAY, "proc": self.proc[slot], "begin_ns": begin_ns}
            self.add(
                What(fields.pop("what")), fields.pop("slot"), **fields | {"end_ns": self.tick()}
            )
        if stop is None:
            self.apply(slot, left, clock + 1, horizon)
            self.add(What.Recovery, slot)
            self.recovered.add(slot)
            self.state.event[slot] = horizon

    def apply(self, slot: int, left: list[Record], clock: int, event: int) -> list[Record]:
        """Apply what may be seen; an own access waits for its event, with all that is behind it."""
        while left and left[0].clock <= clock and (left[0].slot != slot or left[0].event <= event):
            r, *left = left
            half = self.rng.choice([0, r.bytes // 2]) if self.pieces else 0
            for at, size in ((r.at, half), (r.at + half, r.bytes - half)):
                if size:
                    self.add(
                        What.Apply, slot, mode=REPLAY, window=r.window, at=at, bytes=size,
                        seq=r.seq, clock=r.clock, value0=r.slot, value1=r.event,
                    )
        return left

    def die(self, slot: int) -> None:
        """Kill the slot at a moment of all kinds and bring it back, or roll back."""
        self.slow.pop(slot, None)
        if self.recovered - {slot}:
            self.rollback(slot)
            return
        horizon, last, lost = self.state.event[slot], self.records[-1], None
        if last.slot == slot and last.event == horizon > self.start(slot)[0]:
            moment = self.rng.choice(["between", "unfinished", "unrecorded"])
            if moment == "unfinished" and last.what == What.Put:
                horizon -= 1  # it is in memory and in the trace, and will be made again
            elif moment == "unrecorded" and last.mode == LIVE and last.what in ACCESSES:
                lost = last
        elif self.rng.random() < 0.5:  # within a call that has begun, while others go on
            self.state.clock[slot] += 1
            for other in set(range(self.slots)) - {slot}:
                self.write(What.Put, other, slot, 768 + 8 * other)
            self.state.clock[slot] -= 1
        if self.rng.random() < 0.3:
            self.recover(slot, horizon=horizon, stop=self.rng.randint(0, 3))
        self.recover(slot, horizon=horizon)
        if lost:
            self.records.remove(lost)
            self.unrecorded.append(lost)
        elif horizon == last.event - 1 and last.slot == slot:
            self.write(What.Put, slot, last.target, last.at, last.bytes, last.window)

    def rollback(self, dead: int) -> None:
        self.slow.clear()
        self.proc[dead], self.procs = self.procs, self.procs + 1
        self.entry += 1
        self.recovered.clear()
        self.demands.clear()
        self.taken.clear()
        self.state = State(memory=copy.deepcopy(self.saved[self.version].memory))
        for slot in range(self.slots):
            self.add(What.Rollback, slot, value0=self.version)
        self.make_windows()

    # -- whole runs -----------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        slot, target = rng.randrange(self.slots), rng.randrange(self.slots)
        at = 8 * rng.randrange(3)
        kind = rng.choices(
            ["put", "slow", "over", "accumulate", "get", "atomic", "look", "flush", "fence",
             "locked", "store", "checkpoint", "torn", "demand", "die"],
            [6, 3, 2, 4, 3, 8, 1, 4, 2, 2, 2, 1, 0.3, 1.5, 0.7],
        )[0]
        if kind == "put":
            self.write(What.Put, slot, target, 256 + at, 8)
        elif kind == "slow":
            self.write_slowly(slot, (slot + rng.randrange(1, self.slots)) % self.slots, 512 + at)
        elif kind == "over":
            if slot != target:  # else it would race, as a store would
                self.write(What.Put, slot, target, at, window=1)
        elif kind == "accumulate":
            self.write(What.Accumulate, slot, target, at, rng.choice([8, 16]))
        elif kind == "get":
            self.read(slot, target, at)
        elif kind == "atomic":
            self.atomic(slot, target, at, rng.choice(ATOMS))
        elif kind == "look":
            self.look(slot, target, at)
        elif kind == "flush":
            self.flush(slot, target)
        elif kind == "fence":
            self.fence()
        elif kind == "locked":
            self.lock(slot, target)
            self.atomic(slot, target, at)
            self.unlock(slot, target)
        elif kind == "store":
            self.store(slot, at)
        elif kind == "checkpoint":
            self.checkpoint()
        elif kind == "torn":
            self.checkpoint(complete=False)
            self.rollback(slot)
        elif kind == "demand" and rng.random() < 0.2:
            self.demand(slot, published=False)
            self.die(slot)
        elif kind == "demand":
            self.demand_while_others_write(slot)
        else:
            self.die(slot)

    def end(self) -> None:
        for slot in range(self.slots):
            self.settle(slot)
            self.add(What.End, slot)

    def trace(self) -> Trace:
        return trace_of(self.records, self.slots)


def trace_of(records: list[Record], slots: int = 3) -> Trace:
    array = np.array(records, RECORD)
    array = array[np.argsort(array["begin_ns"], kind="stable")]
    return Trace(slots, int(array["begin_ns"][0]) if len(array) else BEGAN_NS, array)


def write_files(records: list[Record], directory: Path) -> None:
    """The files that the processes would have left, each in the order of its records' ends."""
    for proc in {r.proc for r in records}:
        mine = sorted((r for r in records if r.proc == proc), key=lambda r: r.end_ns)
        np.array(mine, RECORD).tofile(directory / f"trace-{proc}")


def random_job(seed: int, steps: int = 120) -> Job:
    job = Job(slots=2 + seed % 3, seed=seed, pieces=True)
    job.make_windows()
    for _ in range(steps):
        job.step()
    job.end()
    return job
