"""The names of `ftrma.apgas`, each of which writes down what it does: histories for a checker.

A program that takes `finish`, `at`, `async_at` and so on from here leaves a file per place, a line
per event (`tests/apgaschecker.py` has the table). Each line is one write to an open file, so that
it outlives a SIGKILL of its process. Until `start()` nothing is written.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apgaschecker import DPE, MAIN, Event

from ftrma import apgas
from ftrma.apgas import DeadPlaceException, MultipleExceptions
from ftrma.frameworks.apgas import runtime

ROOT = "R"  # the finish around the whole program, of which nothing is written


@dataclass
class Context:
    """Work of a thread: the task, the scopes that wait for it, the finish of its asyncs."""

    task: str
    chain: tuple[str, ...]
    counted: str


class Pen:
    """The file of this process, and the numbers of its tasks and scopes."""

    directory: Path | None = None
    file: int | None = None
    told = 0
    numbers = itertools.count(1)
    at_event: Callable[[str], None] = staticmethod(lambda kind: None)  # for deaths at any event


class Threads(threading.local):
    """The context of each thread; a thread without one runs the program itself."""

    context = Context(MAIN, (ROOT,), ROOT)


threads = Threads()


def start(directory: Path) -> None:
    """Write this process's history into a file of this directory, from its first event on."""
    Pen.directory, Pen.file, Pen.told, Pen.numbers = directory, None, 0, itertools.count(1)
    threads.context = Context(MAIN, (ROOT,), ROOT)


def members() -> Any:
    return runtime.current().members


def record(kind: str, subject: str, /, **more: Any) -> None:
    """Write an event, and before it the deaths that this place has learnt of."""
    if Pen.directory is None:
        return
    if Pen.file is None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        Pen.file = os.open(Pen.directory / f"{members().me}.history", flags, 0o600)
    deaths = members().deaths(Pen.told)
    Pen.told += len(deaths)
    for place in deaths:
        _write("told", str(place), {})
    _write(kind, subject, more)
    Pen.at_event(kind)


def _write(kind: str, subject: str, more: dict[str, Any]) -> None:
    assert Pen.file is not None
    line = json.dumps([members().attempt, time.time_ns(), kind, subject, more]) + "\n"
    os.write(Pen.file, line.encode())


def read(directory: Path) -> list[Event]:
    """The events that all places have written."""
    return [event for path in sorted(directory.glob("*.history"))
            for event in parse(path.stem, path.read_text())]


def parse(place: str, lines: str) -> list[Event]:
    """The events of a place's file; a line cut off by a death does not count."""
    found = []
    for line in lines.splitlines(keepends=True):
        if line.endswith("\n"):
            attempt, at_ns, kind, subject, more = json.loads(line)
            found.append(Event(int(place), at_ns, kind, subject, more, attempt))
    return found


def text(error: BaseException) -> str:
    """An exception in a line of a history."""
    if isinstance(error, DeadPlaceException):
        return f"{DPE}{error.place}"
    return f"{type(error).__name__}: {str(error)[:80]}"


def _texts(errors: Iterable[BaseException]) -> dict[str, Any]:
    errors = list(errors)
    return {"dpes": sorted({e.place for e in errors if isinstance(e, DeadPlaceException)}),
            "errors": [text(e) for e in errors if not isinstance(e, DeadPlaceException)]}


def _name() -> str:
    return f"{apgas.here()}.{next(Pen.numbers)}"


@contextmanager
def waiting() -> Iterator[None]:
    """Others of this place may run meanwhile."""
    task = threads.context.task
    record("pause", task)
    try:
        yield
    finally:
        record("resume", task)


@contextmanager
def finish() -> Iterator[None]:
    mine, scope, own = threads.context, f"finish {_name()}", []
    record("open", scope, kind="finish", task=mine.task)
    try:
        with apgas.finish():
            threads.context = Context(mine.task, (*mine.chain, scope), scope)
            try:
                yield
            except Exception as error:
                own.append(text(error))
                raise
            finally:
                threads.context = mine
                record("wait", scope)
                record("pause", mine.task)
    except MultipleExceptions as error:
        record("close", scope, **_texts(error.exceptions), own=own)
        record("resume", mine.task)
        raise
    record("close", scope, dpes=[], errors=[])
    record("resume", mine.task)


def _spawning(place: int) -> tuple[str, Context]:
    """The name and context of a new async, whose spawn is written."""
    mine, task = threads.context, f"task {_name()}"
    chain = mine.chain[:mine.chain.index(mine.counted) + 1]
    record("spawn", task, scope=mine.counted, to=place, chain=chain)
    return task, Context(task, chain, mine.counted)


def async_(function: Callable[..., Any], *args: Any) -> None:
    task, context = _spawning(apgas.here())
    apgas.async_(_run, context, function, *args)
    record("spawned", task)


def async_at(place: int, function: Callable[..., Any], *args: Any) -> None:
    task, context = _spawning(place)
    apgas.async_at(place, _run, context, function, *args)
    record("spawned", task)


def at(place: int, function: Callable[..., Any], *args: Any) -> Any:
    mine, scope, task = threads.context, f"at {_name()}", f"body {_name()}"
    chain = (*mine.chain, scope)
    record("open", scope, kind="at", task=mine.task)
    record("spawn", task, scope=scope, to=place, chain=chain)
    record("wait", scope)
    record("pause", mine.task)
    outcome: dict[str, Any] = {}
    try:
        value = apgas.at(place, _run, Context(task, chain, mine.counted), function, *args)
        outcome = {"dpes": [], "errors": [], "value": True}
        return value
    except Exception as error:
        outcome = _texts([error])
        raise
    finally:
        if outcome:
            record("close", scope, **outcome)
            record("spawned", task)
            record("resume", mine.task)


def _run(context: Context, function: Callable[..., Any], *args: Any) -> Any:
    """The body of a task, wherever it has come to."""
    before, threads.context = threads.context, context
    record("begin", context.task)
    try:
        value = function(*args)
    except Exception as error:
        record("end", context.task, error=text(error))
        raise
    else:
        record("end", context.task, error="")
        return value
    finally:
        threads.context = before


def everywhere(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function as this place's program, where each place runs one; its end is written."""
    threads.context = Context(f"{MAIN} {apgas.here()}", (ROOT,), ROOT)
    value = function(*args)
    record("end", threads.context.task, error="")
    return value


def step() -> None:
    """Write that this task goes on."""
    record("step", threads.context.task)


def sleep(seconds: float) -> None:
    with waiting():
        apgas.sleep(seconds)


def when(condition: Callable[[], Any]) -> None:
    with waiting():
        apgas.when(condition)


def yield_() -> None:
    with waiting():
        apgas.yield_()
