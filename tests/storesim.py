"""A store's places in one process; a number puts tasks, messages and deaths into an order.

Each task has a thread, and one of them runs at a time: from one wait to the next, as tasks of a
place do. Between two of them a message is delivered, a death happens, or is told. A place dies at a
wait, or at one of the named places of its code, where `kill_place` is called.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ftrma.frameworks.apgas import shelf, storepart, storerecovery, storeregistry
from ftrma.host.errors import Rollback

MODULES = (shelf, storepart, storerecovery)  # that call `kill_place`
POINTS = [f"apgas.{point}" for point in
          ("half", "flip", "published", "applied", "load", "mirror", "intent", "open")]
TASK = -1  # kind of the message that starts a task
MOST_STEPS = 60_000


class Killed(BaseException):
    """Unwinds the tasks of a place that is dead; nothing that they do meanwhile is seen."""


class Words:
    """Words that all places share."""

    def __init__(self) -> None:
        self._words = np.zeros(storepart.storetable.FIRST + 1024, np.uint64)

    def load(self, i: int) -> int:
        return int(self._words[i])

    def store(self, i: int, value: int) -> None:
        self._words[i] = value

    def read(self, first: int, count: int) -> Any:
        return self._words[first:first + count].copy()


class Task:
    """A task of a place.

    Attributes:
        until: its place's condition; None: it can run.
        over: it has ended.
        working: for who starts it.
    """

    working = False

    def __init__(self, place: Place, function: Callable[[], Any]) -> None:
        self.place, self.function, self.until = place, function, None
        self.go, self.over, self.error = threading.Lock(), False, None
        self.go.acquire()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.go.acquire()
        try:
            self.place.check()
            self.function()
        except (Killed, Rollback):
            pass
        except BaseException as error:
            self.error = error
        self.over = True
        self.place.sim.back.release()


class Place:
    """A place: its members, mailroom, scheduler and ledger in one.

    Attributes:
        kept: parts of stores, which outlive an attempt.
    """

    def __init__(self, sim: Simulation, me: int) -> None:
        self.sim, self.me, self.kept, self.dead = sim, me, {}, False
        self.everyone = self.possible = sim.everyone
        self.slots = sim.slots
        self.directory, self.members, self.mailroom = sim.directory, self, self
        self.scheduler, self.ledger, self.mail = self, self, sim
        self.enter()

    def enter(self) -> None:
        """Begin in a new attempt."""
        self.handlers: dict[int, Any] = {}
        self.callbacks: list[Any] = []
        self.attempt, self.polled = self.sim.attempt, 0
        with self.sim.be(self):
            self.stores = storeregistry.Stores(self, self.kept)

    def span(self, what: str, **facts: Any) -> contextlib.AbstractContextManager[dict[str, Any]]:
        """Have a block be no span: nobody wants a trace."""
        return contextlib.nullcontext({})

    # Members
    @property
    def root(self) -> int:
        return self.sim.root

    def alive(self, place: int) -> bool:
        return place not in self.sim.told

    def deaths(self, since: int = 0) -> tuple[int, ...]:
        return tuple(self.sim.told[since:])

    def on_failure(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def check(self) -> None:
        if self.dead:
            raise Killed
        if self.sim.rolling:
            raise Rollback

    # Mailroom and ledger
    def handle(self, kind: int, function: Any) -> None:
        self.handlers[kind] = function

    def post(self, to: int, kind: int, payload: Any) -> None:
        if not self.dead:
            data = pickle.dumps(payload, 5)
            self.sim.send(self.me, to, (kind, data))

    def send_uncounted(self, to: int, body: Any) -> None:
        self.post(to, TASK, body)

    # Scheduler
    def wait(self, until: Callable[[], bool]) -> bool:
        sim = self.sim
        task = sim.task
        assert task is not None, "a handler waits"
        while True:
            self.check()
            if until() and sim.random.random() < 0.7:
                return True
            task.until = until
            sim.back.release()
            task.go.acquire()
            task.until = None
            self.check()
            if until():
                return True


class Simulation:
    """Places, their mail, and who dies when.

    Args:
        seed: of all choices.
        directory: for files.
        deaths: so many, at most.
        root_dies: the root may die, too.
        relaunches: so often, at most, all places die at once and the job is launched again.
    """

    def __init__(self, seed: int, directory: Path, slots: int = 4, spares: int = 2, *,
                 deaths: int = 2, root_dies: bool = False, relaunches: int = 0) -> None:
        self.random, self.directory, self.slots = random.Random(seed), directory, slots
        self.everyone = tuple(range(slots + spares))
        self.root, self.attempt, self.rolling = 0, 1, False
        self.left, self.root_dies = deaths, root_dies
        self.relaunches, self.ending = relaunches, False
        self.rate = self.random.choice([0.002, 0.01, 0.03])
        self.focus = self.random.choice([*POINTS, ""])  # where most deaths happen
        self.told: list[int] = []
        self.stalled: dict[tuple[int, int], int] = {}
        self.rings: dict[tuple[int, int], deque[Any]] = {}
        self.words, self.back = Words(), threading.Semaphore(0)
        self.task: Task | None = None
        self.running: Place | None = None
        self.tasks: list[Task] = []
        self.counts: Counter[str] = Counter()
        self.clock = 0
        self.slow = self.random.choice([0, 0.05, 0.2])  # share of messages that are
        self.places = [Place(self, me) for me in self.everyone]

    def be(self, place: Place) -> Any:
        """Have `current` mean a place, inside of a block."""
        return _Be(self, place)

    def patch(self, monkeypatch: Any) -> None:
        """Have the store use this simulation."""
        monkeypatch.setattr(storeregistry, "current", lambda: self.running)
        monkeypatch.setattr(storerecovery.outfile, "tell", lambda text, **_: self.said(text))
        monkeypatch.setattr(shelf, "LEAST_BYTES", 1024)  # so that halves change often
        for module in MODULES:
            monkeypatch.setattr(module, "kill_place", self.visit)

    def send(self, source: int, to: int, message: Any) -> None:
        """Put a message into a ring, which may be slow from then on."""
        self.rings.setdefault((source, to), deque()).append(message)
        if self.random.random() < self.slow:
            self.stalled[source, to] = self.clock + self.random.randrange(600)

    def spawn(self, place: Place, function: Callable[[], Any]) -> Task:
        """Start a task."""
        self.tasks.append(Task(place, function))
        return self.tasks[-1]

    def pause(self) -> None:
        """Let others run."""
        assert self.running
        flag: list[int] = []
        self.running.wait(lambda: bool(flag) or flag.append(1) is not None)

    def close(self) -> None:
        """Let go of all files."""
        for place in self.places:
            for part in [*place.kept.values(), *place.stores.parts.values()]:
                part.files.clear()
                part.table._copy = None
            place.kept.clear()
            place.stores.led.clear()
            place.handlers.clear()

    # Deaths
    def visit(self, name: str) -> None:
        """Be at a named place of the code, where the process may die."""
        self.counts[name] += 1
        chance = 0.2 if name == self.focus else self.rate
        if self.running and not self.running.dead and self._all_die(chance / 4):
            self.counts[f"relaunch at {name}"] += 1
            raise Killed
        if self.running and self._may_die(self.running) and self.random.random() < chance:
            self.counts[f"death at {name}"] += 1
            self.kill(self.running)
            raise Killed

    def _may_die(self, place: Place) -> bool:
        return (self.left > 0 and not place.dead and not self.rolling
                and (self.root_dies or place.me != self.root))

    def kill(self, place: Place) -> None:
        self.left -= 1
        self.counts["deaths"] += 1
        place.dead = True
        for part in place.stores.parts.values():
            part.inbox.clear()

    def _all_die(self, chance: float) -> bool:
        if self.relaunches and not self.rolling and self.random.random() < chance:
            self.relaunches -= 1
            self.ending = True
            for place in self.places:
                place.dead = True
        return self.ending

    def _tell(self, place: Place) -> None:
        self.told.append(place.me)
        if place.me == self.root:
            self.rolling = True
            return
        for other in self.places:
            if not other.dead:
                for callback in other.callbacks:
                    callback(place.me)

    # One step after another
    def run(self) -> None:
        """Run all tasks to their ends.

        Raises:
            AssertionError: nothing can run, though tasks are left; or a task's error.
        """
        for _ in range(MOST_STEPS):
            self.clock += 1
            if self.ending or self._all_die(self.rate / 16):
                self._launch_again()
            if self.rolling:
                self._roll_back()
            if not self.tasks and not any(p.dead and p.me not in self.told for p in self.places):
                return
            if self.random.random() < self.rate / 4:
                found = [p for p in self.places if self._may_die(p)]
                if found:
                    self.kill(self.random.choice(found))
            if not self._step():
                waits = [(t.place.me, t.until) for t in self.tasks]
                raise AssertionError(f"nothing can run; tasks of {waits}")
        raise AssertionError("does not end")

    def _step(self) -> bool:
        choices: list[Callable[[], None]] = []
        for task in self.tasks:
            if self._ready(task):
                choices.append(lambda task=task: self._resume(task))
        for (source, to), ring in self.rings.items():
            stalled = self.stalled.get((source, to), 0) > self.clock
            if ring and not self.places[to].dead and not (stalled and choices):
                choices += 2 * [lambda s=source, to=to: self._deliver(s, self.places[to])]
        untold = [p for p in self.places if p.dead and p.me not in self.told]
        choices += [lambda p=p: self._tell(p) for p in untold]
        if choices:
            self.random.choice(choices)()
        return bool(choices)

    def _ready(self, task: Task) -> bool:
        if task.place.dead or task.until is None:
            return True
        with self.be(task.place):
            try:
                return task.until()
            except Exception:
                return True

    def _resume(self, task: Task) -> None:
        with self.be(task.place):
            self.task = task
            task.go.release()
            self.back.acquire()
            self.task = None
        if task.over:
            self.tasks.remove(task)
            if task.error:
                raise task.error

    def _deliver(self, source: int, place: Place) -> None:
        kind, data = self.rings[source, place.me].popleft()
        with self.be(place):
            payload = pickle.loads(data)
            if kind == TASK:
                function, arguments, _ = payload
                self.spawn(place, lambda: function(*arguments))
                return
            with contextlib.suppress(Killed):
                place.handlers[kind](source, payload)

    def _roll_back(self) -> None:
        """Get all out of their tasks, and begin a new attempt with another root."""
        while self.tasks:
            self._resume(self.tasks[0])
        for place in self.places:
            if place.dead and place.me not in self.told:
                self.told.append(place.me)
        self.counts["rollbacks"] += 1
        self.rings, self.words, self.rolling = {}, Words(), False
        self.attempt += 1
        living = [place for place in self.places if not place.dead]
        if not living:
            return
        self.root = self.next_root([place.me for place in living])
        for place in living:
            place.enter()
        self.begin()

    def _launch_again(self) -> None:
        """Have all places be new processes, of which some spares may be missing."""
        while self.tasks:
            self._resume(self.tasks[0])
        self.close()
        self.counts["relaunches"] += 1
        self.ended()
        self.rings, self.words, self.ending, self.told = {}, Words(), False, []
        self.stalled = {}
        self.everyone = tuple(range(self.random.randint(self.slots, len(self.everyone))))
        self.attempt, self.root = self.attempt + 1, 0
        self.places = [Place(self, me) for me in self.everyone]
        self.begin()

    def ended(self) -> None:
        """Look at what a launch has left; overridden."""

    def said(self, text: str) -> None:
        """Take a line that a user would see; overridden."""

    def next_root(self, living: list[int]) -> int:
        """Choose the root of a new attempt; overridden by who knows the reserves."""
        return living[-1]

    def begin(self) -> None:
        """Start an attempt's tasks; overridden."""


class _Be:
    def __init__(self, sim: Simulation, place: Place) -> None:
        self._sim, self._place = sim, place

    def __enter__(self) -> None:
        self._before, self._sim.running = self._sim.running, self._place

    def __exit__(self, *_: object) -> None:
        self._sim.running = self._before
