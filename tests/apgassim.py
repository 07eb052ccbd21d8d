"""Places of ftrma.apgas as threads of one process, of which one runs at a time, as a number draws.

The code is that of real places, with a real mail. At each load and store of a shared word and at
each message another place may go on, and places die there; a death is told some time later. A seed
gives the whole run, but for the order in which Python's sets are walked.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mailmaps import unmap

from ftrma.framework import Members
from ftrma.frameworks.apgas import runtime
from ftrma.frameworks.apgas.errors import Ended
from ftrma.native import loading, mail
from ftrma.program.deathmail import MemberFacts

MOST_STEPS = 400_000
SWITCH = 0.3  # chance that another place goes on at a step
STUCK_S = 20.0


class Killed(Ended):
    """The end of a thread of a place that has died."""


class SimWords:
    """Words whose users stop at each access."""

    def __init__(self, words: Any, step: Callable[[], None]) -> None:
        self._words, self._step, self.count = words, step, words.count

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._words, name)

        def call(*args: Any) -> Any:
            self._step()
            return method(*args)

        setattr(self, name, call)
        return call

    def equal(self, first: int, second: int, count: int) -> bool:
        """Compare two rows, of which the first one is read before the second, a step between."""
        self._step()
        row = self._words.read(first, count)
        self._step()
        return bool((row == self._words.read(second, count)).all())


class SimMail:
    """Mail whose users stop at each message, and let others go on while they wait."""

    def __init__(self, own: mail.Mail, step: Callable[[], None]) -> None:
        self._own, self._step = own, step
        self.words = SimWords(own.words, step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    @property
    def bell(self) -> int:
        return self._own.bell

    def append(self, *args: Any) -> Any:
        self._step()
        return self._own.append(*args)

    def take(self) -> Any:
        self._step()
        return self._own.take()

    def wait(self, seen: int, timeout_s: float) -> None:
        for _ in range(50):
            if self._own.bell != seen:
                return
            self._step()


class Simulation:
    """Runs a program over places until place zero has ended it.

    Args:
        kills: for a place, at which of its steps it dies.

    Attributes:
        now: number of steps so far, of all places.
        dead: places that have died.
        result: of place zero.
    """

    def __init__(self, places: int, seed: int, kills: dict[int, int]) -> None:
        loading.load()
        self.count, self.kills, self.random = places, dict(kills), random.Random(seed)
        # Some places are slow in some runs, and so is who tells deaths: steps until one is told.
        self.weights = [self.random.choice((1.0, 1.0, 0.1, 0.01)) for _ in range(places)]
        self.told_after = self.random.choice((3, 30, 200))
        self.now = 0
        self.dead: set[int] = set()
        self.ended: set[int] = set()
        self.untold: list[int] = []
        self.steps = [0] * places
        self.gates = [threading.Semaphore(0) for _ in range(places)]
        self.runtimes: list[runtime.Runtime] = []
        self.result: Any = None
        self.over = threading.Event()
        self.failed: BaseException | None = None

    def run(self, main: Callable[[], Any], finish: str = "place0") -> Any:
        """Run a program; returns its value.

        Raises:
            AssertionError: it has not ended after many steps. Any: what a place has raised.
        """
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            path = Path(directory) / "mail"
            mail.create(path, self.count)
            self.teller = mail.Mail(path, 0)
            for me in range(self.count):
                own: Any = SimMail(mail.Mail(path, me), lambda me=me: self.step(me))
                facts = MemberFacts(me, range(self.count), (), self.count, 1, path.parent)
                self.runtimes.append(runtime.Runtime(Members(own, facts), finish))
            threads = [threading.Thread(target=self._live, args=(me, main), daemon=True)
                       for me in range(self.count)]
            for thread in threads:
                thread.start()
            self._go_on(0)
            assert self.over.wait(STUCK_S), "the places hang"
            for thread in threads:
                thread.join(STUCK_S)
            if not any(thread.is_alive() for thread in threads):
                unmap(path)
        runtime._current = None
        if self.failed:
            raise self.failed
        return self.result

    def _live(self, me: int, main: Callable[[], Any]) -> None:
        self.gates[me].acquire()
        self.runtimes[me].scheduler.main.ident = threading.get_ident()
        try:
            value = self.runtimes[me].run(main, False)
            if me == 0:
                self.result = value
        except Killed:
            pass
        except BaseException as error:
            self.failed = self.failed or error
            self.over.set()
        self._leave(me)

    def _leave(self, me: int) -> None:
        """Let the others go on without this place."""
        if me in self.ended:
            return
        self.ended.add(me)
        others = [p for p in range(self.count) if p not in self.ended]
        if not others or self.failed:
            self.over.set()
            for place in others:
                self.gates[place].release()
        else:
            self._go_on(self._next(others))

    def _next(self, places: list[int]) -> int:
        return self.random.choices(places, [self.weights[p] for p in places])[0]

    def _go_on(self, place: int) -> None:
        runtime._current = self.runtimes[place]
        self.gates[place].release()

    def step(self, me: int) -> None:
        """Be between two accesses of a place: it may die here, and others may go on."""
        if not self.runtimes or me in self.ended or len(self.runtimes) < self.count:
            if me in self.dead:
                raise Killed
            return
        self.now += 1
        self.steps[me] += 1
        if self.failed or self.now > MOST_STEPS:
            self.failed = self.failed or AssertionError("the places go on for ever")
            self.over.set()
            self.dead.add(me)
            raise Killed
        if self.steps[me] == self.kills.get(me):
            self.dead.add(me)
            self.untold.append(me)
            self.runtimes[me].scheduler.over = Killed()
            self._leave(me)
            raise Killed
        if self.untold and self.random.random() < 1 / self.told_after:
            self.teller.note_death(self.untold.pop(0))
        if self.random.random() < SWITCH:
            other = self._next([p for p in range(self.count) if p not in self.ended])
            if other != me:
                self._go_on(other)
                self.gates[me].acquire()
