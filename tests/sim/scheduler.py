"""Gives processes of a simulated job their turns, by a number: one at a time, in one thread.

A task is a process, or what watches one. It runs until the scheduler takes its turn away, which it
can before any access to a shared word, or until it waits. A task whose process is killed is never
given a turn again: as after SIGKILL, nothing of it runs any more, not even what stands in
``finally``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import greenlet

from .library import words

STEP_NS = 2_000  # of the simulated clock, for each turn
NAP_MOST_NS = 200_000_000  # a wait that nothing ends looks again after this time
# Accesses to shared words in a turn, some of which let all others come between.
TURNS = ((1, 1, 2, 3, 5), (1, 2, 4, 8, 16, 40), (3, 10, 30, 100, 300), (1, 1, 50, 400))


class Task:
    """One that takes turns.

    Attributes:
        process: number of its process in its launch; -1: of none.
        launch: the launch that it belongs to.
        waits: until when it waits, or is frozen; ``struct sim_wait`` in ``words.c``.
        ahead_ns: of the simulated clock, which its node's clock is.
        doomed: turns that it still gets; 0: nobody has counted them.
    """

    __slots__ = ("ahead_ns", "dead", "doomed", "fiber", "launch", "name", "owner", "process",
                 "state", "waits")

    def __init__(self, name: str, run: Callable[[], Any], process: int, launch: int) -> None:
        self.name, self.process, self.launch = name, process, launch
        self.doomed = self.ahead_ns = 0
        self.dead = False
        self.owner: Any = None
        library = words()
        self.waits = library.ffi.new("struct sim_wait *")
        self.state = library.ffi.new("char[]", library.process_bytes)
        library.sim.sim_clear(self.state)
        self.fiber = greenlet.greenlet(run)


class Hung(Exception):
    """The job has not come to an end in the turns that it was given."""


class Scheduler:
    """Gives turns.

    Args:
        seed: of all choices.
        on_call: is asked at visits of places, at interrupts and when a replay ends; runs as the
            task that calls.

    Attributes:
        now_ns: the simulated clock.
        turns: that were given. digest: of whose turns they were.
        tasks: those that can still get a turn.
        current: the task whose turn it is.
        before: called before each turn with its number; may kill and freeze.
        doom: called when a task has got the last of its turns.
    """

    def __init__(self, seed: str, on_call: Callable[[int, int, int], int]) -> None:
        self.random = Random(seed)
        self.lengths = self.random.choice(TURNS)
        self.now_ns = 1_000_000_000
        self.turns = self.digest = 0
        self.tasks: list[Task] = []
        self.left: list[Task] = []  # killed; kept, so that nothing of them runs
        self.errors: list[BaseException] = []
        self.current: Any = None
        self.over = False  # tasks unwind
        self.order: Any = None  # of the tasks that C chooses among; None: it is to be made anew
        self.next_ns = words().ffi.new("uint64_t *")
        self.on_call = on_call
        self.before: Callable[[int], None] = lambda turn: None
        self.doom: Callable[[Task], None] = lambda task: None
        self.hub = greenlet.getcurrent()
        library = words()
        self.sim = library.sim
        self.hook = library.ffi.callback("sim_hook", self._hook, error=1,
                                         onerror=self._keep_error)
        self.sim.sim_begin(self.hook)

    def _keep_error(self, kind: Any, error: Any, trace: Any) -> None:
        if not self.over:
            self.errors.append(error)

    def _hook(self, kind: int, word: Any, value: int, ns: int) -> int:
        if self.over:
            return 1
        if kind == 0:
            self.hub.switch()
            return 0
        if kind == 1:
            self.wait(word or None, value, ns)
            return 0
        return self.on_call(kind, value, ns)

    # -- called by tasks ----------------------------------------------------------------------

    def wait(self, bell: Any, seen: int, ns: int) -> None:
        """Give the turn away until a word changes, or the time is over."""
        if self.over:
            raise greenlet.GreenletExit
        waits = self.current.waits
        if bell is not None:
            if bell[0] != seen:
                self.hub.switch()
                return
            waits.bell, waits.seen = bell, seen
            ns = max(ns, min(NAP_MOST_NS, 100_000 << min(waits.naps, 20)))
        waits.until = self.now_ns + ns
        self.hub.switch()

    def wait_exactly(self, bell: Any, seen: int, ns: int) -> None:
        """Wait likewise, and look again after this time."""
        if self.over:
            raise greenlet.GreenletExit
        waits = self.current.waits
        if bell[0] == seen:
            waits.bell, waits.seen, waits.until = bell, seen, self.now_ns + ns
        self.hub.switch()

    def sleep(self, seconds: float) -> None:
        self.wait(None, 0, int(seconds * 1e9) + 1)

    def clock_ns(self) -> int:
        """Read the clock of the node of the task whose turn it is."""
        return self.now_ns + (self.current.ahead_ns if self.current else 0)

    def point(self) -> None:
        """Let others come between, perhaps: before a file is given another name, say."""
        if self.current is not None and self.random.random() < 0.3:
            self.hub.switch()

    # -- tasks --------------------------------------------------------------------------------

    def add(self, task: Task) -> Task:
        task.fiber.parent = self.hub  # not the task that has made this one
        self.tasks.append(task)
        self.order = None
        return task

    def kill(self, task: Task) -> None:
        task.dead = True
        if task in self.tasks:
            self.tasks.remove(task)
            self.left.append(task)
            self.order = None

    def stop_here(self) -> None:
        """Kill the task whose turn it is, which gets no other one."""
        self.kill(self.current)
        self.hub.switch()

    def end(self) -> None:
        """Have all tasks unwind, so that nothing of them is left in memory.

        The caller has seen to it that waits in C end and that no call into C does anything.
        """
        self.over = True
        for task in [*self.tasks, *self.left]:
            while not task.fiber.dead:
                self.sim.sim_exchange(words().ffi.NULL, task.state)
                if task.fiber:
                    task.fiber.switch()
                else:
                    task.fiber.throw()

    def run(self, most_turns: int, over: Callable[[], bool]) -> None:
        """Give turns until the job is over.

        Raises:
            Hung: it is not over after so many turns, or nobody can get one.
        """
        random, sim = self.random.random, self.sim
        off: Any = None
        while not over():
            task = self._choose(random)
            if self.turns >= most_turns:
                raise Hung(f"after {self.turns} turns")
            self.turns += 1
            self.before(self.turns)
            if task.doomed:
                task.doomed -= 1
                if not task.doomed:
                    self.doom(task)
            if task.dead:
                continue
            self.now_ns += STEP_NS
            sim.sim_exchange(off.state if off else words().ffi.NULL, task.state)
            length = self.lengths[int(random() * len(self.lengths))]
            sim.sim_turn(length, self.now_ns + task.ahead_ns)
            self.digest = (self.digest * 1_000_003 + task.process + 2) & 0xFFFFFFFFFFFF
            off = self.current = task
            task.fiber.switch()
            self.current = None
            if task.fiber.dead:
                self.tasks.remove(task)
                self.order = None

    def _choose(self, random: Callable[[], float]) -> Task:
        while True:
            tasks = self.tasks
            if self.order is None:
                self.order = words().ffi.new("struct sim_wait *[]", [t.waits for t in tasks] or 1)
            chosen = self.sim.sim_choose(self.order, len(tasks), random(), self.now_ns,
                                         self.next_ns)
            if chosen >= 0:
                return tasks[chosen]
            if not tasks:
                raise Hung("nobody is left")
            self.now_ns = self.next_ns[0]
