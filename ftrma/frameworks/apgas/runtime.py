"""The run of a program in one process: from `run` until place zero says that the program has ended.

Place zero's main thread runs the program inside of the root finish. All other places serve tasks
until place zero says that all is over. With ``everywhere`` each slot runs the program, place zero
waits for all of them, and reserves serve tasks.

Law: whatever ends an attempt gets all threads of the place out of their tasks, and the next attempt
makes all objects anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ... import framework
from ...host.errors import Rollback
from . import kinds, tasks
from .counting import CountingLedger
from .door import Members
from .errors import Ended, group
from .finish import SharedLedger
from .mailroom import Mailroom, unpack
from .records import MOST_PLACES, Records
from .scheduler import Scheduler
from .scopes import Uncounted

LEDGERS: dict[str, Any] = {"place0": SharedLedger, "none": CountingLedger}


class Ledger(Protocol):
    """Interface by which a place counts finishes and `at`s, resilient or not."""

    nobody: Uncounted

    def root(self) -> Any: ...
    def finish(self, above: Any) -> Any: ...
    def send_task(self, scope: Any, to: int, body: tasks.Body) -> None: ...
    def send_uncounted(self, to: int, body: tasks.Body) -> None: ...
    def call(self, scope: Any, to: int, body: tasks.Body) -> Any: ...
    def main_elsewhere(self) -> Any: ...
    def expect_mains(self) -> None: ...


class Runtime:
    """A place while it runs a program.

    Attributes:
        members: the places, and which of them have died.
        mailroom, scheduler, ledger: messages, tasks and finishes of this place.
        objects: objects of this place to which `GlobalRef` and `PlaceLocal` refer, by their keys.
        removed: functions that are told of deaths, see `control.on_place_removed`.
        everywhere: whether each slot runs the program.
        polled: number of deaths that these functions have been told.
        known: number of places that have been started, when this place last asked.
    """

    def __init__(self, members: Members, finish: str) -> None:
        self.members = members
        self.mailroom = Mailroom(members)
        self.records = Records(members)
        self.scheduler = Scheduler(self.mailroom, self._look, framework.timeline("apgas"))
        self.ledger: Ledger = LEDGERS[finish](self.records, self.mailroom, self.scheduler)
        self.objects: dict[Any, Any] = {}
        self.removed: list[Callable[[int], Any]] = []
        self.polled = 0
        self.everywhere = False
        self.known = len(members.everyone)
        members.on_failure(self._tell_removed)
        self.mailroom.handle_raw(kinds.END, lambda source, view: self.scheduler.close(Ended()))
        self.mailroom.handle_raw(kinds.UNCOUNTED, self._on_uncounted)

    def _look(self) -> bool:
        self.members.check()
        generation = self.members.generation
        settled = self.records.refresh(generation)
        if generation != self.polled:
            self.scheduler.watch()
            self.members.poll()
            self.polled = generation
        return settled

    def _tell_removed(self, place: int) -> None:
        if self.scheduler.timeline:
            self.scheduler.timeline.mark(f"told of the death of place {place}", place=place)
        for function in self.removed:
            self.start_uncounted((function, (place,), {}))

    def start_uncounted(self, body: tasks.Body, source: int | None = None) -> None:
        """Start a task of this place that nobody waits for.

        Args:
            source: the place that has started the task; None: this place.
        """
        nobody, source = self.ledger.nobody, self.members.me if source is None else source
        self.scheduler.spawn(lambda: tasks.run(self.scheduler, nobody, body, "uncounted", source))

    def _on_uncounted(self, source: int, view: Any) -> None:
        try:
            self.start_uncounted(unpack(view, type(view.obj) is bytearray), source)
        except Exception as error:
            tasks.tell(error, self.members.me)

    # -- a program from begin to end ----------------------------------------------------------

    def run(self, main: Callable[[], Any], everywhere: bool) -> Any:
        """Run the program, or serve its tasks, until it has ended."""
        members, self.everywhere = self.members, everywhere
        try:
            if members.me == members.root:
                return self._lead(main, everywhere)
            slot = members.me in members.everyone[:members.slots]
            return self._follow(main if everywhere and slot else None)
        except Rollback as rollback:
            self.scheduler.close(rollback)
            raise
        finally:
            self.scheduler.close(Ended())
            self.scheduler.join()

    def _lead(self, main: Callable[[], Any], everywhere: bool) -> Any:
        root = self.ledger.root()
        if everywhere:
            self.ledger.expect_mains()
        leaving: list[SystemExit] = []

        def program() -> Any:
            try:
                return main()
            except SystemExit as leave:
                leaving.append(leave)

        try:
            program.__qualname__ = tasks.name_of(main)
            value, errors = tasks.execute(self.scheduler, root, (program, (), {}), "main",
                                          self.members.me)
            with self.scheduler.span("finish", root=True):
                root.close()
        except Rollback:
            raise
        except BaseException:
            if self.scheduler.holder is self.scheduler.main:
                self._end_others()
            raise
        self._end_others()
        self.scheduler.wait(lambda: not self.mailroom.outbox)
        if leaving:
            raise leaving[0]
        return _outcome(value, errors, root.errors)

    def _follow(self, main: Callable[[], Any] | None) -> Any:
        value, errors = None, list[Exception]()
        try:
            if main:
                branch = self.ledger.main_elsewhere()
                value, errors = tasks.execute(self.scheduler, branch, (main, (), {}), "main",
                                              self.members.root)
                for error in errors:
                    branch.push(error)
                branch.end()
                self.scheduler.main.scope = None
            self.scheduler.serve(self.scheduler.main)
        except Ended:
            pass
        return _outcome(value, errors, [])

    def _end_others(self) -> None:
        members = self.members
        for place in members.everyone:
            if place != members.me and members.alive(place):
                self.mailroom.send(place, kinds.END, b"")


def _outcome(value: Any, errors: list[Exception], of_tasks: list[Exception]) -> Any:
    """Return the program's value, or raise its exceptions; its own one alone is not grouped."""
    if len(errors) == 1 and not of_tasks:
        raise errors[0]
    if errors or of_tasks:
        raise group([*errors, *of_tasks])
    return value


_current: Runtime | None = None
_ran: Members | None = None  # the members that have run a program in this attempt


def current() -> Runtime:
    """Return the runtime of the program that runs in this process.

    Raises:
        RuntimeError: no program runs.
    """
    if _current is None:
        raise RuntimeError("no apgas program runs here: call this in what apgas.run(main) runs")
    return _current


def run_at(members: Members, main: Callable[[], Any], *, finish: str = "place0",
           everywhere: bool = False) -> Any:
    """Run a program as one of the given members: see `run`."""
    global _current, _ran
    if _current is not None and not _current.scheduler.over:
        raise RuntimeError("apgas.run inside of a program of apgas.run: one runs at a time")
    if _ran is members:
        raise RuntimeError("apgas.run for the second time in a job: have one main() do both")
    _ran = members
    _current = Runtime(members, finish)
    try:
        return _current.run(main, everywhere)
    finally:
        _current = None


def run(main: Callable[[], Any], *, finish: str = "place0", everywhere: bool = False) -> Any:
    """Run a program over all places of the job.

    Each process of ``ftrma run`` is a place, and so is each of its spares: the slots are active at
    first, the spares reserves. Every process calls this, in its main thread. Place zero runs the
    program; the others serve its tasks until it has ended. Outside of ``ftrma run`` the process is
    the only place.

    Args:
        main: the program, a function without arguments. It ends when all its tasks have ended.
        finish: "place0": finishes survive the death of any place but place zero; if place zero
            dies, all places run the program again. "none": a death ends everything that waits for
            other places with a DeadPlaceException, and tasks may go on after their finish.
        everywhere: each slot runs the program, as in an MPI program, and place zero waits for all
            of them.

    Returns:
        The program's value at the places that run it; None at the other places.

    Raises:
        MultipleExceptions: at place zero, the exceptions of the program and its tasks. An exception
            of the program itself is raised as it is if it is the only one.
        ValueError: there is no such finish.
        TypeError: `main` cannot be called.
        RuntimeError: a program is running, or one has run before in this job. Outside of
            ``ftrma run`` programs may run one after the other.
        FtrmaError: there are several processes that ``ftrma run`` has not started.

    MPI: collective over all slots; spares take part.
    Fault: the program is told of deaths by DeadPlaceException. If place zero dies, all places leave
        their tasks by `Rollback` and run the program again.
    """
    if not callable(main):
        raise TypeError(f"run({main!r}): give a function without arguments, as apgas.run(main)")
    if finish not in LEDGERS:
        raise ValueError(f"run(finish={finish!r}): the finish is "
                         + " or ".join(f'"{name}"' for name in LEDGERS))
    members = framework.claim("apgas", "told", forfeit=True, most=MOST_PLACES)
    assert members is not None
    return run_at(members, main, finish=finish, everywhere=everywhere)
