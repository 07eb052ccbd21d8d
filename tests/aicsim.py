"""Slots of ftrma.aic in one process; a number orders their turns, records, repairs and deaths.

Workers, snapshots and the end are the shipped ones; channels, store and clock are of this module. A
record may be slow, a channel full, a slot slow. A process dies at a named place of the code or in
any call; then all slots enter again and load the newest committed snapshot. A repair in place
counts one generation more: each slot comes to it in a call of its own, but before it takes a record
of a slot that has.

Two workloads have a law that each committed snapshot keeps. `Tokens` pass tokens on, each of which
is at one slot. `Sums` spread numbers along combining places, whose total stays.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ftrma.frameworks.aic import modes
from ftrma.frameworks.aic.ending import Reason
from ftrma.frameworks.aic.kinds import Kind
from ftrma.frameworks.aic.snapshots import LOG, unpack
from ftrma.frameworks.aic.worker import HELD, Worker

PLACES = [f"aic.{name}" for name in
          ("append", "drain", "begin", "clear", "half", "staged", "forward", "quiet")]
MODES = ("virtual", "separate", "chandy-lamport", "synchronous", "hybrid", "none")
MOST_TURNS = 60_000
MOST_IDLE = 20_000  # turns in which no slot gets on: nobody ever will
RECORD_BYTES = 8  # of a record, beside its data


class Killed(BaseException):
    """Unwinds the turn in which a process dies."""


class Tokens:
    """Tokens that go from slot to slot until they have made their visits.

    Args:
        sim: with random numbers, and visits that each token makes.
        me: this slot.
    """

    def __init__(self, sim: Simulation, me: int) -> None:
        self.sim, self.me, self.random = sim, me, sim.random
        self.here = [(t, 0) for t in range(sim.tokens) if t % sim.slots == me]
        self.out: dict[int, list[tuple[int, int]]] = {to: [] for to in range(sim.slots)}
        self.done: list[tuple[int, int]] = []

    def compute(self) -> bool:
        for _ in range(self.random.randrange(1, 3)):
            if not self.here:
                return False
            token, visits = self.here.pop(self.random.randrange(len(self.here)))
            if visits + 1 >= self.sim.visits:
                self.done.append((token, visits + 1))
            else:
                self.out[self.random.randrange(self.sim.slots)].append((token, visits + 1))
        return True

    def receive(self, source: int, data: memoryview) -> None:
        self.here += [(int(t), int(v)) for t, v in np.frombuffer(data, "i8").reshape(-1, 2)]

    def send(self, append: Callable[[int, Any], bool], *, all: bool = False) -> None:
        for to, tokens in self.out.items():
            while tokens and (all or self.random.random() < 0.7):
                if not append(to, np.array(tokens[:2], "i8").tobytes()):
                    break
                del tokens[:2]

    def passive(self) -> bool:
        return not self.here and not any(self.out.values())

    def arrays(self) -> dict[str, Any]:
        flat = [token for tokens in self.out.values() for token in tokens]
        return {"here": np.array(self.here, "i8").reshape(-1, 2),
                "out": np.array(flat, "i8").reshape(-1, 2),
                "to": np.array([to for to, tokens in self.out.items() for _ in tokens], "i8"),
                "done": np.array(self.done, "i8").reshape(-1, 2)}

    def load(self, arrays: Mapping[str, Any]) -> None:
        self.here = [(int(t), int(v)) for t, v in arrays["here"]]
        self.done = [(int(t), int(v)) for t, v in arrays["done"]]
        self.out = {to: [] for to in range(self.sim.slots)}
        for to, (token, visits) in zip(arrays["to"], arrays["out"], strict=True):
            self.out[int(to)].append((int(token), int(visits)))

    def status(self) -> Any:
        visits = [v for tokens in (self.here, self.done, *self.out.values()) for _, v in tokens]
        return np.array([sum(visits), self.me], float)

    def ended(self, statuses: Any) -> bool:
        return bool(np.nansum(statuses[:, 0]) > self.sim.enough)

    def law(self, parts: list[dict[str, Any]]) -> str:
        """Say what is wrong with a snapshot; empty if nothing is."""
        found: Counter[int] = Counter()
        for part in parts:
            for name in ("here", "out", "done"):
                found.update(int(t) for t, _ in part[name])
            for name in (LOG, HELD):
                for _, data in unpack(part[name]) if name in part else ():
                    found.update(int(t) for t, _ in np.frombuffer(data, "i8").reshape(-1, 2))
        expected = Counter(range(self.sim.tokens))
        return "" if found == expected else f"tokens {sorted(found.elements())}"


class Sums:
    """Numbers of which each slot keeps a half and sends on a half, combined by target."""

    def __init__(self, sim: Simulation, me: int) -> None:
        self.sim, self.me, self.random = sim, me, sim.random
        self.value = np.zeros(1, "i8")
        self.pending = np.zeros(1 + sim.slots, "i8")  # own, then to each slot
        self.pending[0] = sim.amount * (me + 1)
        self.steps = 0

    def compute(self) -> bool:
        x = int(self.pending[0])
        if not x:
            return False
        self.pending[0] = 0
        self.value[0] += x - x // 2
        self.pending[1 + self.random.randrange(self.sim.slots)] += x // 2
        self.steps += 1
        return True

    def receive(self, source: int, data: memoryview) -> None:
        self.pending[0] += int(np.frombuffer(data, "i8")[0])

    def send(self, append: Callable[[int, Any], bool], *, all: bool = False) -> None:
        for to in range(self.sim.slots):
            x = self.pending[1 + to]
            if x and (all or self.random.random() < 0.5) and append(to, x.tobytes()):
                self.pending[1 + to] = 0

    def passive(self) -> bool:
        return not self.pending.any()

    def arrays(self) -> dict[str, Any]:
        return {"value": self.value, "pending": self.pending}

    def load(self, arrays: Mapping[str, Any]) -> None:
        self.value[:], self.pending[:] = arrays["value"], arrays["pending"]

    def status(self) -> Any:
        return np.array([float(self.value[0])])

    def ended(self, statuses: Any) -> bool:
        return False

    def law(self, parts: list[dict[str, Any]]) -> str:
        """Say what is wrong with a snapshot; empty if nothing is."""
        total = 0
        for part in parts:
            total += int(part["value"].sum() + part["pending"].sum())
            for name in (LOG, HELD):
                for _, data in unpack(part[name]) if name in part else ():
                    total += int(np.frombuffer(data, "i8")[0])
        expected = self.sim.amount * self.sim.slots * (self.sim.slots + 1) // 2
        return "" if total == expected else f"sum {total} instead of {expected}"


class SimChannels:
    """Channels of a slot, with room for a few records each."""

    limit_bytes = 64

    def __init__(self, sim: Simulation, me: int) -> None:
        self.sim, self.me, self.size = sim, me, sim.slots
        self._behind: dict[int, deque[tuple[int, bytes]]] = {to: deque() for to in range(self.size)}
        self._taken = False

    def append(self, to: int, kind: int, data: Any) -> bool:
        self.sim.call(self.me)
        self._move()
        if self._behind[to] or not self._put(to, kind, bytes(data)):
            if kind == Kind.DATA:
                return False
            self._behind[to].append((kind, bytes(data)))
        return True

    def _put(self, to: int, kind: int, data: bytes) -> bool:
        sim, ring = self.sim, self.sim.rings[self.me, to]
        used = sum(len(record[1]) + RECORD_BYTES for record in ring)
        if ring and used + len(data) + RECORD_BYTES > sim.room:
            return False
        after = sim.turn + (sim.random.randrange(60) if sim.random.random() < sim.delays else 0)
        record = (kind, data, sim.store.passed[self.me], after)
        if sim.overtakes and kind != Kind.DATA and sim.random.random() < 0.5:
            ring.appendleft(record)
        else:
            ring.append(record)
        return True

    def _move(self) -> None:
        for to, records in self._behind.items():
            while records and self._put(to, *records[0]):
                records.popleft()

    def take(self) -> Any:
        assert not self._taken, "take before release"
        sim = self.sim
        sim.call(self.me)
        self._move()
        for source in sim.random.sample(range(self.size), self.size):
            ring = sim.rings[source, self.me]
            if ring and ring[0][3] <= sim.turn and sim.random.random() < 0.8:
                if ring[0][2] > sim.store.passed[self.me]:
                    sim.store.come(self.me)
                kind, data, _, _ = ring.popleft()
                self._taken = True
                return source, kind, memoryview(data)
        return None

    def release(self) -> None:
        assert self._taken
        self._taken = False

    def behind(self) -> bool:
        self._move()
        return any(self._behind.values())

    def wait(self, seconds: float) -> None:
        self.sim.call(self.me)
        self._move()
        self.sim.now += 0.001

    def check(self) -> None:
        self.sim.call(self.me)


class Snapshot:
    """A version in the store: parts of slots, and their notes."""

    def __init__(self) -> None:
        self.parts: dict[int, dict[str, Any]] = {}
        self.notes: dict[int, Mapping[str, int]] = {}


class Core:
    """The checkpoints of all slots.

    Attributes:
        passed: generation that each slot has come to.
        versions: those that are committed.
        newest: of each slot: the part that it has staged last, committed or not.
    """

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.generation, self.passed = 0, [0] * sim.slots
        self.versions: list[Snapshot] = []
        self.newest: dict[int, Any] = {}
        self.open = Snapshot()

    def whole(self) -> bool:
        return len(self.open.parts) == self.sim.slots

    def commit(self) -> None:
        """Commit the open version, as checksum ranks do in the background."""
        sim, snapshot = self.sim, self.open
        notes = list(snapshot.notes.values())
        assert all(note == notes[0] for note in notes), f"parts of several snapshots: {notes}"
        wrong = sim.workloads[0].law([snapshot.parts[slot] for slot in range(sim.slots)])
        assert not wrong, f"snapshot {notes[0]}: {wrong}"
        self.versions.append(snapshot)
        self.open = Snapshot()
        sim.counts["committed"] += 1

    def repair(self) -> None:
        """Repair in place: nobody goes back; what is not committed is undone."""
        self.generation += 1
        self.sim.counts["undone" if self.open.parts else "repairs"] += 1
        self.open = Snapshot()

    def come(self, me: int) -> None:
        """Have a slot come to the newest repair."""
        self.passed[me] = self.generation


class SimStore:
    """A slot's part of the store."""

    def __init__(self, sim: Simulation, me: int) -> None:
        self.sim, self.me, self.core = sim, me, sim.store
        self._half: dict[str, Any] | None = None
        self._begun = 0

    @property
    def generation(self) -> int:
        return self.core.passed[self.me]

    def _call(self) -> None:
        self.sim.call(self.me)
        self.core.come(self.me)

    def ready(self) -> bool:
        self._call()
        return not self.core.open.parts

    def begin(self, arrays: Mapping[str, Any], generation: int) -> bool:
        self._call()
        self._repair()
        if self.sim.random.random() < self.sim.refusals:
            return False
        if not self.sim.heedless and self.generation != generation:
            return False
        self._half = {name: np.array(array) for name, array in arrays.items()}
        self._begun = self.generation
        self._repair()
        return True

    def _repair(self) -> None:
        """Have a repair come in the call."""
        if self.sim.repairs and self.sim.random.random() < 0.05:
            self.sim.repair()
            self.core.come(self.me)

    def add(self, arrays: Mapping[str, Any]) -> None:
        assert self._half is not None, "add without begin"
        self._call()
        self._repair()
        self._half.update({name: np.array(array) for name, array in arrays.items()})

    def end(self, note: Mapping[str, int]) -> bool:
        assert self._half is not None, "end without begin"
        self._call()
        self._repair()
        half, self._half = self._half, None
        if self._begun != self.core.passed[self.me]:
            return False
        assert self.me not in self.core.open.parts, "staged twice"
        self.core.open.parts[self.me], self.core.open.notes[self.me] = half, note
        self.core.newest[self.me] = half
        return True

    def committed(self) -> int:
        return len(self.core.versions)


class Simulation:
    """Slots, their channels, and what happens to them.

    Args:
        seed: of all choices.
        mode: of `MODES`.
        tuned: attributes that are not drawn.

    Attributes:
        heedless: the store begins parts of void snapshots (a rule that is left out).
        overtakes: records of the protocol may overtake data (a rule that is left out).
        mixed: slots load the newest part that each has staged (a rule that is left out).
        counts: what has happened.
    """

    def __init__(self, seed: int, mode: str, **tuned: Any) -> None:
        self.random = choose = random.Random(f"{seed} {mode}")
        self.overtakes = self.mixed = self.heedless = False
        self.slots = tuned.get("slots") or choose.choice([1, 2, 2, 3, 3, 4])
        self.mode = self._mode(mode, tuned.pop("how", {}))
        self.tokens, self.visits = choose.randrange(1, 7), choose.choice([5, 10, 40])
        self.amount = 2 ** choose.choice([8, 16, 30])
        endless = choose.random() < 0.3
        self.enough = choose.choice([10, 50]) * self.tokens if endless else 10**9
        if endless:
            self.visits = 10**9
        self.make = choose.choice([Tokens, Sums])
        self.room = choose.choice([24, 48, 48, 200, 2000])
        self.delays = choose.choice([0, 0.05, 0.3])
        self.refusals = choose.choice([0, 0.5])
        self.weights = [choose.choice([1, 1, 1, 0.05]) for _ in range(self.slots)]
        self.deaths = choose.choice([0, 0, 1, 3])
        self.repairs = choose.choice([0, 0, 1, 4])
        self.rate = choose.choice([0.0005, 0.005])
        self.focus = choose.choice(PLACES)  # where most deaths happen
        self.commits = choose.choice([0.5, 0.02])  # how fast they are
        self.ask_s = choose.choice([0.001, 0.05])
        vars(self).update(tuned)
        self.now, self.turn = 0.0, 0
        self.counts: Counter[str] = Counter()
        self.rings: dict[tuple[int, int], deque[Any]] = {}
        self.store = Core(self)
        self._enter()

    def _mode(self, name: str, tuned: dict[str, Any]) -> Any:
        choose = self.random
        if name == "none":
            return None
        options: dict[str, Any] = {"seconds": choose.choice([1e-9, 0.05, 0.2])}
        if choose.random() < 0.3:
            options = choose.choice([{"updates": choose.randrange(1, 20)}, {"seconds": "daly"}])
        options = dict(tuned or options)
        if name == "hybrid":
            options["patience_s"] = choose.choice([0, 0.005, 0.05])
            options["aggregate"] = choose.random() < 0.7
        if name == "separate":
            return modes.VirtualSnapshot(**options, aggregate=False)
        return modes.MODES[name](**options)

    def _enter(self) -> None:
        """Begin an attempt: all slots load the newest committed snapshot."""
        self.rings = {(a, b): deque() for a in range(self.slots) for b in range(self.slots)}
        self.workloads = [self.make(self, me) for me in range(self.slots)]
        self.workers = [Worker(SimChannels(self, me), self.workloads[me], SimStore(self, me),
                               self.mode, clock=lambda: self.now, visit=self.visitor(me),
                               due=lambda: self.random.random() < 0.01)
                        for me in range(self.slots)]
        for worker in self.workers:
            worker.ending.ask_s = self.ask_s
        self.left: set[int] = set()
        self.decided = False
        self.store.passed = [self.store.generation] * self.slots
        self.store.open = Snapshot()
        for me, worker in enumerate(self.workers):
            if self.mixed and me in self.store.newest:
                worker.restore(self.store.newest[me])
            elif self.store.versions:
                worker.restore(self.store.versions[-1].parts[me])

    def visitor(self, me: int) -> Callable[[str], None]:
        def visit(name: str) -> None:
            self.counts[name] += 1
            if self.deaths and self.random.random() < (0.1 if name == self.focus else 0):
                self._die(name)
        return visit

    def repair(self) -> None:
        self.repairs -= 1
        self.store.repair()

    def call(self, me: int) -> None:
        """Be in a call of a slot, in which it may die or come to a repair."""
        if self.store.passed[me] < self.store.generation and self.random.random() < 0.1:
            self.store.come(me)
        if self.deaths and self.random.random() < self.rate / 10:
            self._die("call")

    def _die(self, where: str) -> None:
        self.deaths -= 1
        self.counts[f"death at {where}"] += 1
        raise Killed

    def run(self) -> None:
        """Take turns until all slots have left the run.

        Raises:
            AssertionError: a law does not hold.
        """
        moved, newest = 0, 0
        while len(self.left) < self.slots:
            self.turn += 1
            done = sum(worker.updates + worker.received + worker.sent for worker in self.workers)
            if done != newest:
                moved, newest = self.turn, done
            assert self.turn < MOST_TURNS and self.turn - moved < MOST_IDLE, "does not end"
            self.now += self.random.random() * 0.002
            if self.store.whole() and self.random.random() < self.commits:
                self.store.commit()
            if self.repairs and self.random.random() < self.rate:
                self.repair()
            me = self.random.choices(range(self.slots), self.weights)[0]
            if me not in self.left:
                self._turn(me)
        assert not any(self.rings.values()), "records are left behind"
        assert not any(worker.snapshots and worker.snapshots.epoch for worker in self.workers)
        assert not self.store.open.parts or self.store.whole(), "a part of no snapshot is staged"
        self._law()

    def _turn(self, me: int) -> None:
        try:
            over = not self.workers[me].turn()
        except Killed:
            if self.store.whole() and self.random.random() < 0.5:
                self.store.commit()
            self._enter()
            return
        if over:
            self.left.add(me)
        if not self.decided and any(worker.reason for worker in self.workers):
            self.decided = True
            if self.workers[0].reason == Reason.QUIESCENT:
                self._law()
                assert all(workload.passive() for workload in self.workloads), "ends early"
                assert not any(record[0] == Kind.DATA for ring in self.rings.values()
                               for record in ring), "ends with data under way"

    def _law(self) -> None:
        parts = [dict(worker._arrays()) for worker in self.workers]
        wrong = "" if any(r[0] == Kind.DATA for ring in self.rings.values() for r in ring) \
            else self.workloads[0].law(parts)
        assert not wrong, f"at the end: {wrong}"
