"""Parts of programs of apgas that have their checks in themselves.

A program runs at place zero. `tell()` says something to place zero by an `at`, so what `told()` has
is in the order in which it happened. Each program takes the first places that live, so several of
them can follow each other in one job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from apgasrecorder import async_at, at, finish, members, sleep, step, when

from ftrma import apgas
from ftrma.apgas import DeadPlaceException

NAP_S = 0.03
LONG_S = 0.15  # long enough for an exception to arrive too early, if it did


@dataclass(frozen=True)
class Program:
    """A program and what it needs: so many living places; `deaths`: of how many places it is."""

    run: Callable[[], None]
    places: int
    deaths: int


PROGRAMS: dict[str, Program] = {}


def program(places: int, deaths: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Put a function among the programs, under its name."""
    def put(function: Callable[[], None]) -> Callable[[], None]:
        PROGRAMS[function.__name__] = Program(function, places, deaths)
        return function
    return put


def run_program(name: str) -> list[str]:
    """Run a program at place zero; what it has told, in order."""
    _words.clear()
    PROGRAMS[name].run()
    return told()


# ---- what programs use ----------------------------------------------------------------------

_words: list[str] = []  # of place zero
_gates: dict[str, int] = {}  # what tasks of one place tell each other


def told() -> list[str]:
    return list(_words)


def tell(word: str) -> None:
    at(members().root, _tell, word)


def _tell(word: str) -> None:
    _words.append(word)


def living() -> list[int]:
    """All places that live, reserves, too."""
    return [p for p in members().everyone if not apgas.is_dead(p)]


def two() -> tuple[int, int]:
    """Places one and two: the first living ones after place zero."""
    _, first, second, *_ = living()
    return first, second


@contextmanager
def raises(kind: type[Exception]) -> Iterator[list[Any]]:
    """An exception of just this kind comes out of the block, into the list."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__} has come; told: {told()}"


def assert_dead(error: Any, *places: int) -> None:
    """An exception of a finish has DPEs of these places, and nothing else."""
    assert all(isinstance(e, DeadPlaceException) for e in error.exceptions), error.exceptions
    assert {e.place for e in error.exceptions} == set(places), error.exceptions
    assert all(apgas.is_dead(place) for place in places)


def assert_told(*words: str) -> None:
    assert told() == list(words), told()


def fail(word: str) -> None:
    raise ValueError(word)


def die() -> None:
    apgas.kill_here()


def die_telling(word: str) -> None:
    tell(word)
    apgas.kill_here()
    tell("a dead place goes on")


def nap_and_die() -> None:
    sleep(NAP_S)
    die_telling("dies")


def nap_telling(before: str, after: str) -> None:
    tell(before)
    sleep(LONG_S)
    tell(after)


def open_gate(name: str) -> None:
    _gates[name] = _gates.get(name, 0) + 1


def pass_gate(name: str) -> None:
    when(lambda: _gates.get(name, 0) > 0)


def close_gates() -> None:
    """Close the gates that programs before have opened at this place."""
    _gates.clear()


def orphan(parent: int, gate: str) -> None:
    tell("orphan begins")
    async_at(parent, open_gate, gate)
    sleep(LONG_S)
    step()
    tell("orphan ends")


def wait_and_die(second: int) -> None:
    with finish():
        async_at(second, orphan, apgas.here(), "nested")
        pass_gate("nested")
        apgas.kill_here()
