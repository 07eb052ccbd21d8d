"""The baton of a place: one task runs at a time, and a task that waits hands the baton on.

Each task has a thread of a pool. The thread that has the *baton* runs; each of the others is parked
at a lock of its own. A task that waits *pumps*: on its own stack it takes mail and checks the
conditions of parked threads, until its own condition holds or something else can run. A new task
never runs on the stack of a task that waits, since the waiting task could not go on before the new
one had ended; the new task gets a thread of the pool. A thread whose task has ended pumps, too, and
runs new tasks itself, which saves a switch of threads.

Of the parked threads whose condition holds, the one that has waited longest goes on first. If only
`awake` can tell that a condition has become true, the condition is not checked before; so thousands
of `at` may wait inside of one another. From the first death on, all conditions are checked.

Laws: conditions are checked after all mail that is there has been taken, and the bell is read
before both, so no wake-up is lost. A rollback, or the program's end, gets all threads out of their
tasks: parked threads wake and raise it.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import insort
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...host import timeouts
from .door import Mail, Timeline
from .mailroom import Mailroom

IDLE_S = 1.0  # longest sleep, in case a ring of the bell is lost; the bell wakes earlier

Until = Callable[[], bool]


class Worker:
    """A thread of the pool, or the main thread.

    Attributes:
        lock: taken while the thread is parked or runs; whoever hands over the baton releases it.
        work: the function that the thread runs next, if it is idle.
        until, deadline: the condition for which its task waits, and the end of its patience.
        turn: number of this wait; greater than the numbers of waits that began before it.
        away: the thread is in a call that blocks, without the baton.
        ready: the condition held when the baton was handed over, and nothing has run since.
        scope: scope of the task that the thread runs (`scopes`); None: the task has none.
        line: line of its tasks in the timeline of a trace.
    """

    __slots__ = ("away", "deadline", "ident", "line", "lock", "ready", "scope", "thread", "turn",
                 "until", "work")

    def __init__(self, line: int = 0) -> None:
        self.line = line
        self.lock = threading.Lock()
        self.lock.acquire()
        self.work: Callable[[], None] | None = None
        self.until: Until | None = None
        self.deadline = math.inf
        self.turn = 0
        self.ready = self.away = False
        self.scope: Any = None
        self.thread: threading.Thread | None = None
        self.ident = threading.get_ident()


class Scheduler:
    """The tasks of a place.

    Args:
        mailroom: the messages of the place; whoever waits takes them.
        look: looks at deaths; called in each round of a wait if something may have come. It raises
            what ends the attempt. It returns False if it has to be called again once mail has been
            taken.
        timeline: timeline of the trace; None: no trace is wanted.
    """

    def __init__(self, mailroom: Mailroom, look: Callable[[], bool],
                 timeline: Timeline | None = None) -> None:
        self.timeline = timeline
        self.mailroom = mailroom
        self.mail: Mail = mailroom.mail
        self.place = mailroom.members.me
        self.look = look
        self.main = Worker()
        self.holder = self.main
        self.queue: deque[Callable[[], None] | Worker] = deque()  # those that can run now
        self.parked: list[Worker] = []  # those that wait for a condition, by their turns
        self.told: set[Worker] = set()  # those whose condition is checked only after `awake`
        self.watchful = False  # a place has died, so all conditions are checked
        self._turns = 0
        self.idle: list[Worker] = []
        self.threads: list[threading.Thread] = []
        self.over: BaseException | None = None
        self.atomic_depth = 0
        self._queue_next = False  # the last turn went to a parked worker
        self._bell: int | None = None  # the bell when all mail had last been taken

    # -- what tasks call ----------------------------------------------------------------------

    def current(self) -> Worker:
        """Return the worker of the calling task.

        Raises:
            RuntimeError: the calling thread runs no task.
        """
        holder = self.holder
        if holder.ident != threading.get_ident():
            if self.over:
                raise self.over
            raise RuntimeError("apgas is used by tasks alone: a thread that the program has "
                               "started has none; start a task by async_()")
        return holder

    def wait(self, until: Until, deadline: float = math.inf, *, told: bool = False) -> bool:
        """Wait until a condition holds, while other tasks run.

        Args:
            until: the condition. It is called often, also by other threads of the place while they
                have the baton, and must not wait. If it raises, the exception is raised here.
            deadline: a time of `time.monotonic()`.
            told: whoever makes the condition true calls `awake`, as long as no place has died. Such
                a wait has no deadline.

        Returns:
            True if the condition holds, False if the deadline is over.

        Raises:
            RuntimeError: inside of `atomic`, or in a handler of messages.
        """
        me = self.current()
        self.refuse("waiting")
        while not until():
            if time.monotonic() >= deadline:
                return False
            chosen = self._choose(until, deadline)
            if chosen is not None:
                me.until, me.deadline, me.ready = until, deadline, False
                self._park(me, told)
                self._switch(me, chosen)
                me.until = None
                if me.ready:
                    return True
        return True

    def _park(self, me: Worker, told: bool = False) -> None:
        self._turns += 1
        me.turn = self._turns
        # The conditions of other workers may have taken mail since this one was checked.
        if told and not self.watchful and not (me.until and me.until()):
            self.told.add(me)
        else:
            self.parked.append(me)

    def awake(self, worker: Worker) -> None:
        """Have the condition of a worker checked, if it is parked: it has become true."""
        if worker in self.told:
            self.told.remove(worker)
            insort(self.parked, worker, key=_turn)

    def watch(self) -> None:
        """Have all conditions checked from now on: a place has died."""
        self.watchful = True
        for worker in list(self.told):
            self.awake(worker)

    def refuse(self, what: str) -> None:
        """Raise if the task must not wait here."""
        if self.over:
            raise self.over
        if self.atomic_depth:
            raise RuntimeError(f"{what} inside of atomic: others could not run meanwhile; wait "
                               "before or behind it")
        if self.mailroom.handling:
            raise RuntimeError(f"{what} in a handler of messages: start a task for it")

    def yield_(self) -> None:
        """Let all other tasks run that can."""
        me = self.current()
        self.refuse("yield_()")
        self._round(self.mail.bell)
        ready = self._ready()
        if ready is None and not self.queue:
            return
        self.queue.append(me)
        self._switch(me, ready if ready is not None else self.queue.popleft())

    def sleep(self, seconds: float) -> None:
        """Let other tasks run for some time."""
        self.wait(_never, time.monotonic() + seconds)

    def leave(self) -> None:
        """Hand the baton on and keep running, in a call that blocks; `come_back` must follow."""
        me = self.current()
        self.refuse("blocking()")
        me.away = True
        me.until = lambda: not me.away
        self._park(me)
        self._hand(_nothing)

    def come_back(self, me: Worker) -> None:
        """Wait for the baton."""
        me.away = False
        self.mail.ring(self.place)
        me.lock.acquire()
        if self.over:
            raise self.over
        me.until = None

    def spawn(self, function: Callable[[], None]) -> None:
        """Have a thread of the pool run a function in its turn; the function must not raise."""
        self.queue.append(function)

    def span(self, what: str, **facts: Any) -> AbstractContextManager[dict[str, Any]]:
        """Have a ``with`` block of the running task be a span of the timeline, if there is one."""
        if self.timeline is None:
            return nullcontext({})
        return self.timeline.span(what, self.holder.line, **facts)

    # -- the pump -----------------------------------------------------------------------------

    def _round(self, bell: int) -> None:
        """Look at deaths and take mail, unless nothing has come since the last round."""
        if bell != self._bell or self.mailroom.outbox:
            settled = self.look()
            self._bell = bell if self.mailroom.pump() and settled else None
        if self.over:
            raise self.over

    def _ready(self) -> Worker | None:
        """Take a parked worker whose condition holds or raises, or whose deadline is over."""
        first: Worker | None = None  # the one with the earliest deadline
        found: Worker | None = None
        for worker in self.parked:
            try:
                worker.ready = worker.until is not None and worker.until()
            except Exception:
                found = worker  # it checks its condition again, and raises
                break
            if worker.ready:
                found = worker
                break
            if worker.deadline < (first.deadline if first else math.inf):
                first = worker
        if found is None and first is not None and first.deadline <= time.monotonic():
            found = first
        if found is not None:
            self.parked.remove(found)
        return found

    def _choose(self, until: Until | None, deadline: float = math.inf
                ) -> Callable[[], None] | Worker | None:
        """Wait until something can run; return it, or None: `until` holds or the time is over."""
        mail = self.mail
        while True:
            bell = mail.bell
            self._round(bell)
            if until is not None and (until() or self._is_next(deadline)):
                return None
            # Tasks that wake one another must not keep those in the queue from running.
            worker = None if self.queue and self._queue_next else self._ready()
            self._queue_next = worker is not None
            if worker is not None:
                return worker
            if self.queue:
                return self.queue.popleft()
            end = min((worker.deadline for worker in self.parked), default=math.inf)
            end = min(end, deadline)
            timeout = IDLE_S if end == math.inf else max(0.0, min(IDLE_S, end - time.monotonic()))
            if self._bell is not None:
                mail.wait(bell, self.mailroom.patience_s(timeout))
                if mail.bell == bell:
                    self._bell = None  # the time is over: check all conditions, ring or no ring

    def _is_next(self, deadline: float) -> bool:
        """Say whether the deadline is over, and no parked worker has an earlier one."""
        return (deadline <= time.monotonic()
                and all(worker.deadline >= deadline for worker in self.parked))

    def _switch(self, me: Worker, chosen: Callable[[], None] | Worker) -> None:
        """Hand the baton on, and wait until it comes back."""
        if chosen is me:
            return
        self._hand(chosen)
        me.lock.acquire()
        if self.over:
            raise self.over

    def _hand(self, chosen: Callable[[], None] | Worker) -> None:
        if isinstance(chosen, Worker):
            self.holder = chosen
            chosen.lock.release()
        elif self.idle:
            worker = self.idle.pop()
            worker.work = chosen
            self.holder = worker
            worker.lock.release()
        else:
            worker = Worker(len(self.threads) + 1)
            worker.work = chosen
            thread = threading.Thread(target=self._pooled, args=(worker,), daemon=True,
                                      name=f"apgas {len(self.threads) + 1}")
            worker.thread = thread
            self.threads.append(thread)
            worker.lock.release()
            thread.start()

    # -- threads of the pool ------------------------------------------------------------------

    def _pooled(self, worker: Worker) -> None:
        worker.ident = threading.get_ident()
        worker.lock.acquire()
        self.holder = worker
        try:
            self.serve(worker)
        except BaseException as error:  # what ends the attempt, or a mistake of ours
            self.close(error)

    def serve(self, worker: Worker) -> None:
        """Run tasks, and pump between them, until all is over."""
        while True:
            work, worker.work = worker.work, None
            if work is None:
                chosen = self._choose(None)
                if isinstance(chosen, Worker):
                    self.idle.append(worker)
                    self._switch(worker, chosen)
                    continue
                work = chosen
            assert work is not None
            work()
            worker.scope = None
            if self.over:
                raise self.over

    # -- the end ------------------------------------------------------------------------------

    def close(self, error: BaseException) -> None:
        """Get all threads out of their tasks: parked threads raise this error."""
        if self.over is None:
            self.over = error
        others = [*self.parked, *self.told, *self.idle,
                  *(w for w in self.queue if isinstance(w, Worker))]
        self.parked, self.told, self.idle = [], set(), []
        self.queue.clear()
        for worker in others:
            worker.lock.release()

    def join(self) -> None:
        """Wait for the threads of the pool to end, once all is over."""
        deadline = time.monotonic() + timeouts.SWITCH.s
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def _turn(worker: Worker) -> int:
    return worker.turn


def _never() -> bool:
    return False


def _nothing() -> None:
    pass
