"""Places, tasks and finishes: the calls that programs make."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, TypeVar

from . import tasks
from .errors import group
from .placegroup import PlaceGroup
from .runtime import Runtime, current
from .scheduler import Worker

T = TypeVar("T")


def here() -> int:
    """Return the id of this place; no other place ever has the same id.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    return current().members.me


def places() -> PlaceGroup:
    """Return the living slots: the places that are active when the program begins.

    MPI: local.
    Fault: places whose death is known here are left out.
    """
    members = current().members
    return PlaceGroup(p for p in members.everyone[:members.slots] if members.alive(p))


def reserves() -> PlaceGroup:
    """Return the living reserves: the job's spares, which run tasks like all other places.

    MPI: local.
    Fault: places whose death is known here are left out.
    """
    members = current().members
    return PlaceGroup(p for p in members.everyone[members.slots:] if members.alive(p))


def add_places(count: int) -> PlaceGroup:
    """Start more places without waiting for them; they are reserves at once.

    A task that is sent to a new place runs as soon as the place has come up. New places run the
    script up to `run`, as all places do, and then serve tasks. They have no MPI.

    Args:
        count: number of places to start. In all there can be twice as many places as at the
            beginning of the program.

    Returns:
        The new places.

    Raises:
        ValueError: there is no room for so many places.
        RuntimeError: called inside of `atomic`.

    MPI: waits for place zero.
    Fault: a place that cannot be started counts as dead, and the reason is printed on the terminal.
        If place zero dies, all places that were added end.
    """
    members = current().members
    return at(members.root, _start_places, count)


def _start_places(count: int) -> PlaceGroup:
    members = current().members
    room = len(members.possible) - len(members.everyone)
    if not isinstance(count, int) or not 0 <= count <= room:
        raise ValueError(f"add_places({count!r}): there is room for {room} more places; start the "
                         "job with more of them (-n, --spares)")
    return PlaceGroup(members.start(count))


def add_places_and_wait(count: int) -> PlaceGroup:
    """Start more places, and wait until each has come up or has died.

    Args, Raises: as `add_places`.

    Returns:
        The new places that are alive.

    MPI: waits for place zero and the new places.
    Fault: places that cannot be started, or die meanwhile, are left out.
    """
    added, members = add_places(count), current().members

    def up() -> bool:
        return all(members.mail.joined(p) or not members.alive(p) for p in added)

    _task()[0].scheduler.wait(up)
    return PlaceGroup(p for p in added if members.alive(p))


def is_dead(place: int) -> bool:
    """Say whether a place's death is known here.

    Raises:
        ValueError: there has never been such a place.

    MPI: local.
    Fault: a death becomes known some milliseconds after it has happened.
    """
    runtime = current()
    return not runtime.members.alive(_known(runtime, place, "is_dead"))


def kill_here() -> None:
    """Kill this place by SIGKILL, to test how a program survives a death.

    MPI: local.
    Fault: the call is itself the death of this place; it never returns.
    """
    os.kill(os.getpid(), signal.SIGKILL)


def on_place_removed(function: Callable[[int], Any]) -> None:
    """Have a function called with each place that dies, as a task that nobody waits for.

    MPI: local; each place that wants to be told calls it.
    Fault: each death is told once, in the same order at all places. Earlier deaths are told, too.
    """
    runtime = current()
    runtime.removed.append(function)
    for place in runtime.members.deaths()[:runtime.polled]:
        runtime.start_uncounted((function, (place,), {}))


class finish(AbstractContextManager[None]):  # programs read it as a statement
    """Wait at the end of a ``with`` block for all tasks that it has started, and for theirs.

    Raises:
        MultipleExceptions: at the end of the block, if the block or a task has raised an exception,
            or if a task was lost with its place.
        RuntimeError: entered inside of `atomic`.

    MPI: waits for the places that take part.
    Fault: a place that dies is not waited for; MultipleExceptions has a DeadPlaceException for it.
        Tasks at living places are waited for, even if the places that have started them are dead.
    """

    def __enter__(self) -> None:
        runtime = current()
        self._worker = runtime.scheduler.current()
        runtime.scheduler.refuse("finish")
        self._outer = self._worker.scope
        self._timeline = timeline = runtime.scheduler.timeline
        if timeline is not None:
            self._span = timeline.begin("finish", self._worker.line)
        self._finish = self._worker.scope = runtime.ledger.finish(
            self._outer or runtime.ledger.nobody)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        worker = self._worker
        if error is not None and not isinstance(error, Exception):
            worker.scope = self._outer
            return
        if worker.scope is not self._finish:
            raise RuntimeError("finishes are left in another order than they were entered, or by "
                               "another task: write `with apgas.finish():`")
        if self._timeline is None:
            self._finish.close()
        else:
            with self._timeline.span("wait", worker.line):
                self._finish.close()
        worker.scope = self._outer
        errors = self._finish.errors if error is None else [error, *self._finish.errors]
        if self._timeline is not None:
            self._timeline.end(self._span, errors=len(errors))
        if errors:
            raise group(errors) from None


def async_(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Start a task at this place; it runs when the running task waits or ends.

    Args:
        function: is called with the arguments, which are not copied.

    Raises:
        TypeError: `function` cannot be called.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    runtime, worker = _task()
    body = _body("async_", function, args, kwargs)
    _start(runtime, worker, body)


def _start(runtime: Runtime, worker: Worker, body: tasks.Body) -> None:
    if worker.scope is None:
        runtime.start_uncounted(body)
        return
    scheduler, scope = runtime.scheduler, worker.scope.begin()
    scheduler.spawn(lambda: tasks.run(scheduler, scope, body, "task", runtime.members.me))


def async_at(place: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Start a task at a place, and go on without waiting for it.

    Args:
        place: where the task runs. If it is this place, the arguments are not copied.
        function: is called there with the arguments; all are pickled, functions by their names.

    Raises:
        ValueError: there has never been such a place.
        TypeError: `function` cannot be called, or something cannot be pickled.

    MPI: local.
    Fault: if the place is dead, or dies before the task has ended, the enclosing finish gets a
        DeadPlaceException.
    """
    runtime, worker = _task()
    _known(runtime, place, "async_at")
    body = _body("async_at", function, args, kwargs)
    if place == runtime.members.me:
        _start(runtime, worker, body)
    else:
        runtime.ledger.send_task(worker.scope or runtime.ledger.nobody, place, body)


def uncounted_async_at(place: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Start a task at a place that no finish waits for.

    If the task raises an exception, the exception is written to standard error. If the task still
    runs when the program ends, it is ended.

    Raises:
        ValueError: there has never been such a place.
        TypeError: `function` cannot be called, or something cannot be pickled.

    MPI: local.
    Fault: if the place dies, the task is lost, and nobody is told.
    """
    runtime, _ = _task()
    _known(runtime, place, "uncounted_async_at")
    body = _body("uncounted_async_at", function, args, kwargs)
    if place == runtime.members.me:
        runtime.start_uncounted(body)
    else:
        runtime.ledger.send_uncounted(place, body)


def at(place: int, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function at a place and return its value.

    Tasks that the function starts belong to the finish around this call; `at` itself does not wait
    for them.

    Args:
        place: where the function is called. If it is this place, this is a plain call.
        function: is called there with the arguments; all are pickled, functions by their names.

    Raises:
        DeadPlaceException: the place is dead, or dies before the value has come.
        ValueError: there has never been such a place.
        TypeError: `function` cannot be called, or something cannot be pickled.
        RuntimeError: called inside of `atomic`.
        Exception: whatever the function raises; RemoteError if that cannot be pickled.

    MPI: waits for the place.
    Fault: raises DeadPlaceException if the place dies. By then all that the call has begun at
        living places has ended, apart from tasks of the finish around it.
    """
    runtime, worker = _task()
    runtime.scheduler.refuse("at()")
    _known(runtime, place, "at")
    body = _body("at", function, args, kwargs)
    if place == runtime.members.me:
        return function(*args, **kwargs)
    scope, scheduler = worker.scope or runtime.ledger.nobody, runtime.scheduler
    if scheduler.timeline is None:
        return runtime.ledger.call(scope, place, body)  # type: ignore[no-any-return]
    with scheduler.span(f"at {tasks.name_of(function)}", to_place=place):
        return runtime.ledger.call(scope, place, body)  # type: ignore[no-any-return]


class blocking(AbstractContextManager[None]):  # programs read it as a statement
    """Let other tasks of this place run while a ``with`` block waits in MPI, or for a file.

    Without it, a place that waits in a collective call of MPI runs no tasks. Other places may need
    these tasks before they come to the same call, so all would wait for ever. The block must not
    call functions of apgas.

    Raises:
        RuntimeError: entered inside of `atomic`.

    MPI: local.
    Fault: if place zero has died, the end of the block raises `Rollback`.
    """

    def __enter__(self) -> None:
        scheduler = current().scheduler
        self._worker = scheduler.current()
        scheduler.leave()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None or isinstance(error, Exception):
            current().scheduler.come_back(self._worker)


def sleep(seconds: float) -> None:
    """Let other tasks run for some time; `time.sleep` would stop the whole place.

    Raises:
        RuntimeError: called inside of `atomic`.

    MPI: local.
    Fault: raises `Rollback` if place zero dies.
    """
    _task()[0].scheduler.sleep(seconds)


def yield_() -> None:
    """Let all other tasks of this place run that can, and take the messages that have come.

    A task that computes for long should call it now and then, since its place runs nothing else
    meanwhile.

    Raises:
        RuntimeError: called inside of `atomic`.

    MPI: local.
    Fault: raises `Rollback` if place zero has died.
    """
    _task()[0].scheduler.yield_()


def when(condition: Callable[[], bool]) -> AbstractContextManager[None]:
    """Wait until a condition holds; as a ``with`` statement, it also begins an `atomic` block.

    Args:
        condition: says whether to go on, from what other tasks of this place change. It is called
            often and must not wait; if it raises an exception, `when` raises it.

    Raises:
        RuntimeError: called inside of `atomic`.

    MPI: local.
    Fault: raises `Rollback` if place zero dies. No other death ends the wait; the condition may ask
        `is_dead`.
    """
    _task()[0].scheduler.wait(condition)
    return atomic()


@contextmanager
def atomic() -> Iterator[None]:
    """Make sure that no other task of this place runs during a ``with`` block.

    Other tasks run only while a task waits. So the block refuses each call that would wait.

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    scheduler = _task()[0].scheduler
    scheduler.atomic_depth += 1
    try:
        yield
    finally:
        scheduler.atomic_depth -= 1


# -- what the calls look at ----------------------------------------------------------------------


def _task() -> tuple[Runtime, Worker]:
    runtime = current()
    return runtime, runtime.scheduler.current()


def _known(runtime: Runtime, place: Any, call: str) -> int:
    index = runtime.records.index.get(place, len(runtime.records.everyone))
    if index >= runtime.known:
        runtime.known = len(runtime.members.everyone)
    if index >= runtime.known or isinstance(place, bool):
        known = ", ".join(map(str, runtime.members.everyone))
        raise ValueError(f"{call}({place!r}): there is no such place; places are {known}")
    return int(place)


def _body(call: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tasks.Body:
    if not callable(function):
        raise TypeError(f"{call}({function!r}): {type(function).__name__} is no function; give the "
                        "function and behind it its arguments")
    return function, args, kwargs
