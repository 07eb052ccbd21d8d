"""A model of causal recovery: slots on a simulated RMA machine, logs, horizon, replay.

Each slot is a generator that yields wherever another slot may run or death may come: between the
two words of a put, between the steps of an atomic, between arriving at a barrier and leaving it,
between an effect and the note that it is complete, and anywhere in the replay.  What `yield` gives
back is the condition without which the slot cannot go on.

Some slots checkpoint alone in between (`model_demand`); a replay begins at the newest checkpoint.

Invariant: when a recovered slot goes live, its part and its local state are those that the events
so far, one at a time in the order in which they took effect, lead to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import replace

from unit.protocol.model_demand import held, snapshot
from unit.protocol.model_programs import (
    ATOMIC,
    COLLECTIVE,
    DATA,
    LOCAL,
    WINDOWS,
    Op,
    Program,
    Sequential,
    Value,
    combined,
    finish,
    operand,
    place,
    total,
)
from unit.protocol.model_words import Checkpoint, Process, Record, Result, Rules, Shared, Wrong

Steps = Generator[Callable[[], bool] | None, None, None]
Learning = Generator[Callable[[], bool] | None, None, Value | None]


class Machine:
    """Runs a program under a schedule and a list of deaths.

    Args:
        schedule: a seed, or the slots to step in turn (then lowest first).
        deaths: (slot, steps): the slot dies instead of taking its step of that number; the steps
            of those in its place count on.
    """

    def __init__(
        self,
        program: Program,
        schedule: int | list[int] = 0,
        deaths: list[tuple[int, int]] | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.program, self.rules = program, rules or Rules()
        self.n = len(program)
        self.shared = [Shared() for _ in program]
        self.processes = [Process() for _ in program]
        self.running: list[Steps | None] = [self.execute(q) for q in range(self.n)]
        self.blocked: list[Callable[[], bool] | None] = [None] * self.n
        self.down: set[int] = set()  # dead, or being replayed
        self.deaths = list(deaths or [])
        self.schedule = list(schedule) if isinstance(schedule, list) else []
        self.random = None if isinstance(schedule, list) else random.Random(schedule)
        self.switching = self.random.choice([1.0, 0.4, 0.1]) if self.random else 1.0
        self.steps = [0] * self.n
        self.history: list[tuple[str, int, int]] = []
        self.count = 0  # of arrivals, for those who count
        self.outcomes: list[str] = []
        self.checkpoint = self.snapshot()

    # ---- the scheduler -------------------------------------------------------------------------

    def run(self) -> Machine:
        """Run to the end and compare with the events one at a time."""
        last = 0
        while any(self.running):
            ready = [q for q in range(self.n) if self.ready(q)]
            if not ready:
                raise Wrong("deadlock")
            last = self.choose(ready, last)
            if (last, self.steps[last]) in self.deaths:
                self.die(last)
            else:
                self.step(last)
            if sum(self.steps) > 20000:
                raise Wrong("endless")
        self.compare(range(self.n))
        return self

    def ready(self, q: int) -> bool:
        blocked = self.blocked[q]
        return self.running[q] is not None and (blocked is None or blocked())

    def choose(self, ready: list[int], last: int) -> int:
        if self.random is None:
            while self.schedule:
                wanted = self.schedule.pop(0)
                if wanted in ready:
                    return wanted
            return ready[0]
        if last in ready and self.random.random() > self.switching:
            return last
        return self.random.choice(ready)

    def step(self, q: int) -> None:
        self.steps[q] += 1
        running = self.running[q]
        assert running is not None
        try:
            self.blocked[q] = next(running)
        except StopIteration:
            self.running[q] = self.blocked[q] = None

    def die(self, q: int) -> None:
        """SIGKILL: the process and its put log are gone; a replacement begins sometime."""
        self.steps[q] += 1
        self.shared[q].records, self.shared[q].whole = [], False
        if self.down - {q}:
            self.roll_back("two slots are dead")
            return
        self.down.add(q)
        self.running[q], self.blocked[q] = self.recover(q), None

    def compare(self, slots: range | list[int]) -> None:
        """Compare parts and states with the events so far, one at a time."""
        truth = Sequential(self.program)
        for step, q, event in self.history:
            truth.take(step, q, event)
        for q in slots:
            truth.catch_up(q)
            part = [self.shared[q].value(at) for at in range(DATA + 1)]
            if part != truth.parts[q]:
                raise Wrong(f"slot {q}: part {part}, should be {truth.parts[q]}")
            if self.processes[q].state != truth.states[q]:
                raise Wrong(f"slot {q}: {self.processes[q].state}, should be {truth.states[q]}")

    # ---- events --------------------------------------------------------------------------------

    def execute(self, q: int) -> Steps:
        """The program of slot q from its process's state on, live or in replay."""
        me, own = self.shared[q], self.processes[q]
        while own.state.pc < len(self.program[q]):
            op = self.program[q][own.state.pc]
            at, learned = place(op, own.state), None
            if op.kind in LOCAL:
                yield None
                if op.kind == "load":
                    learned = me.value(at)
                else:
                    me.part[at][:] = operand(op, own.state)
                own.state = finish(op, own.state, learned)
                continue
            if own.replaying and own.event >= me.horizon:
                yield from self.go_live(q)
            yield None
            own.clock += self.counts(op)
            own.round += op.kind in COLLECTIVE
            own.chain = hash((own.chain, op, at, operand(op, own.state)))
            if own.replaying:
                learned = yield from self.answer(q, op, at)
            else:
                me.clock, me.chain[(own.event + 1) % 2] = own.clock, own.chain
                self.free(q)
                yield None
                learned = yield from self.live(q, op, at)
                yield None
            if not (own.replaying and self.rules.keep_horizon):
                me.horizon = own.event + 1
            own.event += 1
            own.state = finish(op, own.state, learned)
        if own.replaying:
            yield from self.go_live(q)

    def counts(self, op: Op) -> int:
        """Say whether the clock counts an operation: what others can notice by right."""
        atomic = op.kind in ATOMIC
        return int(self.rules.clock_counts_atomics if atomic else op.kind not in {"put", "get"})

    def live(self, q: int, op: Op, at: int) -> Learning:
        if op.kind in {"put", "get"}:
            return (yield from self.plain(q, op, at))
        if op.kind in ATOMIC:
            return (yield from self.atomic(q, op, at))
        if op.kind in COLLECTIVE:
            return (yield from self.collective(q, op))
        if op.kind in {"lock", "lock_shared", "unlock"}:
            yield from self.lock(q, op)
        self.did(q)
        if op.kind == "demand":
            own = self.processes[q]
            after = replace(own, event=own.event + 1, state=finish(op, own.state, None), pending=[])
            yield from snapshot(self.shared, q, after, self.rules)
        return None

    def did(self, q: int, step: str = "do") -> None:
        self.history.append((step, q, self.processes[q].event + 1))

    def enter(self, q: int, target: int) -> Steps:
        """Begin an access: say so first, then look at the gate."""
        me, to = self.shared[q], self.shared[target]
        while target != q and self.rules.wait:
            me.inside = target
            yield None
            if not to.gate:
                return
            me.inside = None
            yield lambda: not to.gate

    def plain(self, q: int, op: Op, at: int) -> Learning:
        me, own, to = self.shared[q], self.processes[q], self.shared[op.target]
        yield from self.enter(q, op.target)
        if op.kind == "get":
            self.did(q)
            first = to.part[at][0]
            yield None
            learned = (first, to.part[at][1])
            me.results[own.event + 1] = Result(learned)
            yield None
            me.inside = None
            return learned
        clock = to.clock
        yield None
        record = self.record(q, op, at, operand(op, own.state), clock)
        self.did(q)
        yield None
        if op.target != q:
            me.records.append(record)
        for i in range(2):
            yield None
            to.part[at][i] = record.value[i]
        yield None
        me.inside = None
        return None

    def atomic(self, q: int, op: Op, at: int) -> Learning:
        """An accumulate or atomic; the serializing lock is held around clock, number and value."""
        me, own, to = self.shared[q], self.processes[q], self.shared[op.target]
        yield from self.enter(q, op.target)
        clock = to.clock
        yield None
        window = at % WINDOWS
        while to.serial[window] is not None:
            me.inside = op.target if self.rules.waiting_too else None
            yield lambda: to.serial[window] is None
            me.inside = op.target
        to.serial[window] = q
        yield None
        if self.rules.clock_under_lock:
            clock = to.clock
        yield None
        old = to.value(at)
        record = self.record(q, op, at, combined(op, own.state, old), clock)
        yield None
        result = me.results[own.event + 1] = Result(old, record, done=False)
        if op.target != q:
            me.records.append(record)
        yield None
        self.did(q)
        for i in range(2):
            to.part[at][i] = record.value[i]
            yield None
        result.done = True
        yield None
        me.atomic_done = own.event + 1
        yield None
        to.serial[window] = None
        yield None
        me.inside = None
        return old

    def record(self, q: int, op: Op, at: int, value: Value, clock: int) -> Record:
        """Take the access's number."""
        numbers = self.shared[op.target].numbers
        numbers[at % WINDOWS] += 1
        event = self.processes[q].event + 1
        return Record(q, op.target, at, value, clock, numbers[at % WINDOWS], event)

    def lock(self, q: int, op: Op) -> Steps:
        me, to = q, self.shared[op.target]
        if op.kind == "unlock":
            self.did(q, "arrive")
            to.owner = None if to.owner == me else to.owner
            to.holders.discard(me)
        elif not (self.rules.mine and (to.owner == me or me in to.holders)):
            shared = op.kind == "lock_shared"
            while to.owner is not None or (to.holders and not shared):
                yield lambda: to.owner is None and (shared or not to.holders)
            if shared:
                to.holders.add(me)
            else:
                to.owner = me
        yield None

    def collective(self, q: int, op: Op) -> Learning:
        me, own = self.shared[q], self.processes[q]
        goal = own.round
        buffer = goal % 2 if self.rules.two_buffers else 0
        me.given[buffer] = operand(op, own.state)
        yield None
        self.did(q, "arrive")
        me.arrived = goal
        self.count += 1
        yield None
        if self.rules.words:
            yield lambda: all(s.arrived >= goal for s in self.shared)
        else:
            yield lambda: self.count >= goal * self.n
        if op.kind == "safepoint":
            own.staged = goal
            yield lambda: (self.checkpoint.processes[q].round >= goal
                           or all(p.staged >= goal for p in self.processes))
            if self.checkpoint.processes[q].round < goal:
                self.commit(op)
            return None
        self.did(q)
        if op.kind == "fence":
            return None
        learned = total([s.given[buffer] for s in self.shared])
        me.results[own.event + 1] = Result(learned)
        return learned

    # ---- checkpoints and rollback --------------------------------------------------------------

    def snapshot(self) -> Checkpoint:
        return Checkpoint([replace(p, pending=[]) for p in self.processes],
                          [[s.value(at) for at in range(DATA + 1)] for s in self.shared],
                          [list(s.numbers) for s in self.shared], len(self.history))

    def commit(self, op: Op) -> None:
        """Everybody has arrived at the safepoint and nobody has left: one step in the model."""
        for q in range(self.n):
            self.did(q)
        self.checkpoint = self.snapshot()
        for me, own in zip(self.shared, self.checkpoint.processes, strict=True):
            own.event, own.state = own.event + 1, finish(op, own.state, None)
            me.results, me.records, me.whole, me.demand = {}, [], True, None

    def free(self, q: int) -> None:
        """Drop what checkpoints on demand hold from the slot's put log."""
        me = self.shared[q]
        me.records = [r for r in me.records
                      if not held(self.shared[r.target].demand, r, self.rules)]

    def roll_back(self, reason: str) -> None:
        self.outcomes.append(reason)
        self.down.clear()
        del self.history[self.checkpoint.history :]
        self.count = self.n * self.checkpoint.processes[0].round
        for q in range(self.n):
            own = self.processes[q] = replace(self.checkpoint.processes[q], pending=[])
            part = [list(value) for value in self.checkpoint.parts[q]]
            numbers = list(self.checkpoint.numbers[q])
            self.shared[q] = Shared(part, own.clock, numbers, horizon=own.event,
                                    arrived=own.round, chain=[own.chain] * 2)
            self.running[q], self.blocked[q] = self.execute(q), None

    # ---- causal recovery -----------------------------------------------------------------------

    def recover(self, q: int) -> Steps:
        """In place of a dead slot: put in order what it left, restore, then replay."""
        me = self.shared[q]
        yield None
        me.gate = True
        yield None
        if self.rules.repair_first:
            self.repair(q)
        yield None
        if self.rules.drain:
            yield lambda: all(s.inside != q for s in self.shared)
        if not self.rules.repair_first:
            self.repair(q)
        if not all(s.whole for s in self.shared if s is not me):
            self.roll_back("the put log of another slot is incomplete")
            yield None  # a rollback ends this process; nobody steps it again
        self.restore(q)
        yield None
        yield from self.execute(q)

    def repair(self, q: int) -> None:
        """Decide the fate of the event under way; drop what was logged above the horizon."""
        me = self.shared[q]
        me.inside = None
        me.horizon = max(me.horizon, self.checkpoint.processes[q].event)
        if me.demand and self.rules.published_counts:
            me.horizon = max(me.horizon, me.demand.process.event)
        last = me.results.get(me.horizon + 1)
        written = last.written if last else None
        if last and written and not last.done and self.rules.undo:
            if self.shared[written.target].serial[written.at % WINDOWS] == q:
                self.shared[written.target].part[written.at][:] = last.value
        elif written and self.rules.done_counts:
            me.horizon += 1
        for other in self.shared:
            other.serial = [None if s == q else s for s in other.serial]
        me.results = {e: r for e, r in me.results.items() if e <= me.horizon}
        # Operations above the horizon take effect when they are executed again.  An arrival stays:
        # it says only that what came before may be seen.
        self.history = [h for h in self.history
                        if h[0] == "arrive" or h[1] != q or h[2] <= me.horizon]

    def restore(self, q: int) -> None:
        me, demand, numbers = self.shared[q], self.shared[q].demand, self.checkpoint.numbers[q]
        base = demand.process if demand else self.checkpoint.processes[q]
        me.part = [list(v) for v in (demand.part if demand else self.checkpoint.parts[q])]
        records = [r for s in self.shared for r in s.records if r.target == q]
        records += [r.written for r in me.results.values() if r.written and r.written.target == q]
        if demand and not self.rules.unheld_again:
            records = [r for r in records if r.clock >= base.clock]
        own = self.processes[q] = replace(base, replaying=True, pending=[
            r for r in records
            if r.number > numbers[r.at % WINDOWS] and not held(demand, r, self.rules)
        ])
        if self.rules.by_number:
            own.pending.sort(key=lambda r: r.number)
        self.apply(q, None if self.rules.all_at_once else own.clock)

    def apply(self, q: int, clock: int | None) -> None:
        """Write the pending records up to a clock (None: all) to the part."""
        own, later = self.processes[q], []
        for record in own.pending:
            if clock is None or record.clock + self.rules.shift <= clock:
                self.shared[q].part[record.at][:] = record.value
            else:
                later.append(record)
        own.pending = later

    def answer(self, q: int, op: Op, at: int) -> Learning:
        """An event below the horizon: it took effect, and what it told is in the log."""
        me, own = self.shared[q], self.processes[q]
        yield None
        learned = None
        own_put = op.target == q and self.rules.own_puts
        if op.kind == "put" and (own_put or not self.rules.suppress):
            self.shared[op.target].part[at][:] = operand(op, own.state)
        elif op.kind in ATOMIC and not self.rules.suppress:
            to = self.shared[op.target]
            to.part[at][:] = combined(op, own.state, to.value(at))
        if op.kind in {"get", "allreduce"} | ATOMIC:
            result = me.results.get(own.event + 1)
            if result is None:
                raise Wrong(f"slot {q}: event {own.event + 1} {op} has no answer in the log")
            learned = result.value
        self.apply(q, own.clock)
        return learned

    def go_live(self, q: int) -> Steps:
        me, own = self.shared[q], self.processes[q]
        yield None
        self.apply(q, None)
        if own.event and own.chain != me.chain[own.event % 2]:
            raise Wrong(f"slot {q}: its events up to {own.event} differ from those before")
        self.compare([q])
        yield None
        # The dead may have begun the next event: its clock was read, and never goes back.
        me.clock = max(me.clock, own.clock) if self.rules.clock_stays else own.clock
        me.gate, own.replaying = False, False
        self.down.discard(q)
        self.outcomes.append("causal")
