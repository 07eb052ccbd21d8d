"""Runs programs of `ftrma.apgas` in real processes without MPI, with deaths at named places."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from placeprocesses import Ended, run_places

from ftrma import framework
from ftrma.framework import Members
from ftrma.frameworks.apgas import runtime

Kill = tuple[int, str, int]  # a place dies when it comes to a named place for the nth time

KILLED = Ended(signal.SIGKILL)


def strike_at(me: int, kills: Iterable[Kill]) -> None:
    """Have this process die at named places."""
    seen: Counter[str] = Counter()
    mine = {(name, nth) for place, name, nth in kills if place == me}

    def visit(name: str) -> None:
        seen[name] += 1
        if (name, seen[name]) in mine:
            os.kill(os.getpid(), signal.SIGKILL)

    framework.kill_place = visit


def run_program(places: int, main: Callable[[], Any], *, spares: int = 0,
                kills: Iterable[Kill] = (), surely: bool = True, timeout_s: float = 20.0,
                **options: Any) -> Any:
    """Run a program; returns its value.

    Args:
        kills: places that die.
        surely: all of them do; false: if they come so far.

    Raises:
        AssertionError: other places have died than those that were to die.
    """
    kills = tuple(kills)

    def be_place(members: Members) -> Any:
        strike_at(members.me, kills)
        return runtime.run_at(members, main, **options)

    ends = run_places(places, be_place, spares=spares, timeout_s=timeout_s)
    dead = {place for place, end in enumerate(ends) if isinstance(end, Ended)}
    due = {place for place, _, _ in kills}
    assert dead == due if surely else dead <= due, ends
    assert all(ends[place] == KILLED for place in dead), ends
    return ends[0]
