"""`Executor`: the interface of `concurrent.futures` over places.

A submitted function waits at its submitter until a place is free, so no place has a long queue
while others are idle. The result comes back as a message. When a place dies, the futures of its
functions get a `DeadPlaceException`; or the functions are called again elsewhere, if the user has
allowed it.

A place runs one task at a time. A thread that blocked while it waits for a future would keep
messages from being taken. So futures wait by the scheduler, also under
`concurrent.futures.as_completed` and `concurrent.futures.wait`. Coroutines can await them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from . import control, kinds, mailroom, placemanager, runtime
from .errors import DeadPlaceException, RemoteError

T = TypeVar("T")

AHEAD = 2  # functions sent to a place at a time: the next one is there when one has ended
AWAIT_S = 2e-4  # between two looks at the mail in a coroutine


class _Event:
    """Stands in for the event on which `concurrent.futures` waits: other tasks run meanwhile."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return _wait(self.is_set, timeout)


class _Waiters(list[Any]):
    """The waiters that `concurrent.futures.wait` and `as_completed` add to a future."""

    def append(self, waiter: Any) -> None:
        if not isinstance(waiter.event, _Event):
            waiter.event = _Event()
        super().append(waiter)


def _wait(until: Callable[[], bool], timeout: float | None) -> bool:
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    return runtime.current().scheduler.wait(until, deadline)


class Future(futures.Future[T]):
    """The result of a function that runs at another place; coroutines can await it.

    MPI: local.
    Fault: has the exception `DeadPlaceException` if the place died and no retry is left.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiters = _Waiters()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it, or raise what the function has raised.

        Raises:
            TimeoutError: the result has not come in time.
            CancelledError: the future was cancelled.
            DeadPlaceException: the place of the function died.

        MPI: local; other tasks run meanwhile.
        Fault: raises if the place dies and no retry is left.
        """
        _wait(self.done, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the function; return its exception, or None if there is none.

        Raises:
            TimeoutError, CancelledError: as in `result`.

        MPI: local; other tasks run meanwhile.
        Fault: returns a `DeadPlaceException` if the place dies and no retry is left.
        """
        _wait(self.done, timeout)
        return super().exception(0)

    def __await__(self) -> Generator[Any, None, T]:
        while not self.done():
            runtime.current().scheduler.yield_()
            if not self.done():
                yield from asyncio.sleep(AWAIT_S).__await__()
        return super().result(0)


@dataclass
class _Call:
    """A submitted function."""

    future: Future[Any]
    packed: Any
    retries: int
    place: int = -1


@dataclass
class _Calls:
    """The calls of this process in one attempt, by ticket."""

    by_ticket: dict[int, tuple[Executor, _Call]] = field(default_factory=dict)
    tickets: Iterator[int] = field(default_factory=itertools.count)

    def take(self, source: int, message: tuple[int, bool, Any]) -> None:
        """Take a result; a result that comes after its call was given up is dropped."""
        ticket, well, packed = message
        found = self.by_ticket.pop(ticket, None)
        if found is None:
            return
        executor, call = found
        executor._ended(call)
        try:
            value = mailroom.unpack(memoryview(packed))
        except Exception as error:
            well, value = False, RemoteError(f"place {source} has sent what cannot be unpickled: "
                                             f"{type(error).__name__}: {error}")
        if well:
            call.future.set_result(value)
        else:
            call.future.set_exception(value)
        executor._fill()

    def dead(self, place: int) -> None:
        """Deal with the calls of a dead place, once all its messages have been taken."""
        mail = runtime.current().members.mail

        def give_up() -> None:
            runtime.current().scheduler.wait(lambda: not mail.holds(place))
            for ticket, (executor, call) in list(self.by_ticket.items()):
                if call.place == place:
                    del self.by_ticket[ticket]
                    executor._lost(call)

        runtime.current().scheduler.spawn(give_up)


_calls: WeakKeyDictionary[Any, _Calls] = WeakKeyDictionary()  # by attempt


def _of_attempt() -> _Calls:
    here = runtime.current()
    calls = _calls.get(here)
    if calls is None:
        calls = _calls[here] = _Calls()
        here.mailroom.handle(kinds.FUTURE, calls.take)
        here.members.on_failure(calls.dead)
    return calls


class Executor(futures.Executor):
    """Runs functions at places, by the interface of `concurrent.futures.Executor`.

    Args:
        places: the places that run functions. None: all active places but this one, or this place
            if it is the only one.
        retries: how often a function is called again elsewhere after its place has died. The
            function may have run in part, so give this only for functions that may run twice.

    Raises:
        ValueError: there are no places, or `retries` is negative.

    MPI: local.
    Fault: if a place dies, the executor goes on with the places that are left.
    """

    def __init__(self, places: Iterable[int] | None = None, *, retries: int = 0) -> None:
        me = runtime.current().members.me
        if places is None:
            places = [place for place in placemanager.group() if place != me] or [me]
        self.places = tuple(places)
        if not self.places:
            raise ValueError("Executor: give one or more places")
        if retries < 0:
            raise ValueError(f"retries={retries}: give 0 or more")
        self.retries = retries
        self._busy = dict.fromkeys(self.places, 0)
        self._queue: deque[_Call] = deque()
        self._shut = False

    def submit(self, function: Callable[..., T], /, *arguments: Any,
               **keywords: Any) -> Future[T]:
        """Have a function called at one of the places; return the future of its result.

        Raises:
            TypeError: the function or an argument cannot be pickled.
            RuntimeError: the executor is shut down.

        MPI: local.
        Fault: if the place dies and no retry is left, the future has a `DeadPlaceException`.
        """
        if self._shut:
            raise RuntimeError("submit: the executor is shut down")
        packed = mailroom.pack((function, arguments, keywords), "submit")
        future: Future[T] = Future()
        self._queue.append(_Call(future, np.frombuffer(packed, np.uint8), self.retries))
        self._fill()
        return future

    def map(self, function: Callable[..., T], *iterables: Iterable[Any],
            timeout: float | None = None, chunksize: int = 1) -> Iterator[T]:
        """Call a function with the items of iterables; yield the results in the order of the items.

        Args:
            timeout: seconds until the last result; None: no limit.
            chunksize: number of items that are sent to a place at once.

        Raises:
            TimeoutError: a result has not come in time.
            DeadPlaceException: a place died and no retry is left for its items.

        MPI: local.
        Fault: the iterator raises when it comes to a result that is lost.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize={chunksize}: give 1 or more")
        end = math.inf if timeout is None else time.monotonic() + timeout
        items = zip(*iterables, strict=False)
        chunks = iter(lambda: list(itertools.islice(items, chunksize)), [])
        waiting = deque([self.submit(_call_chunk, function, chunk) for chunk in chunks])

        def results() -> Iterator[T]:
            try:
                while waiting:
                    left = None if end == math.inf else end - time.monotonic()
                    yield from waiting[0].result(left)
                    waiting.popleft()
            finally:
                for future in waiting:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions.

        Args:
            wait: wait until the functions that were submitted have ended.
            cancel_futures: cancel the functions that were not yet sent to a place.

        MPI: local; with `wait`, waits for the places that run functions.
        Fault: as `submit`.
        """
        self._shut = True
        if cancel_futures:
            for call in self._queue:
                call.future.cancel()
            self._fill()
        if wait:
            _wait(lambda: not self._queue and not any(self._busy.values()), None)

    # -- where calls go

    def _fill(self) -> None:
        """Send waiting calls to places that are free."""
        here = runtime.current()
        while self._queue:
            living = [place for place in self.places if here.members.alive(place)]
            if not living:
                call = self._queue.popleft()
                if call.place >= 0 or call.future.set_running_or_notify_cancel():
                    call.future.set_exception(DeadPlaceException(self.places[-1]))
                continue
            place = min(living, key=self._busy.__getitem__)
            if self._busy[place] >= AHEAD:
                return
            call = self._queue.popleft()
            if call.place < 0 and not call.future.set_running_or_notify_cancel():
                continue
            self._send(place, call)

    def _send(self, place: int, call: _Call) -> None:
        calls = _of_attempt()
        ticket = next(calls.tickets)
        call.place = place
        self._busy[place] += 1
        calls.by_ticket[ticket] = self, call
        try:
            control.uncounted_async_at(place, _run, runtime.current().members.me, ticket,
                                       call.packed)
        except DeadPlaceException:
            if calls.by_ticket.pop(ticket, None):
                self._lost(call)

    def _ended(self, call: _Call) -> None:
        self._busy[call.place] -= 1

    def _lost(self, call: _Call) -> None:
        """Deal with a call whose place died."""
        self._ended(call)
        if call.retries > 0:
            call.retries -= 1
            self._queue.appendleft(call)
        else:
            call.future.set_exception(DeadPlaceException(call.place))
        self._fill()


def _run(submitter: int, ticket: int, packed: Any) -> None:
    """Call a function here, and send its result back."""
    try:
        function, arguments, keywords = mailroom.unpack(memoryview(packed))
        well, value = True, function(*arguments, **keywords)
    except Exception as error:
        well, value = False, error
    try:
        answer = mailroom.pack(value, "the result of a submitted function")
    except TypeError as error:
        value = error if well else RemoteError(f"{type(value).__name__}: {value}")
        well, answer = False, mailroom.pack(value, "an exception")
    runtime.current().mailroom.post(submitter, kinds.FUTURE,
                                    (ticket, well, np.frombuffer(answer, np.uint8)))


def _call_chunk(function: Callable[..., T], chunk: list[tuple[Any, ...]]) -> list[T]:
    return [function(*arguments) for arguments in chunk]
