"""Runs a program of apgas in real processes without MPI, has some of them killed, reads histories.

`Kill("apgas.append", 3)` is what ``--kill 2@apgas.append:3`` is in a job: the process dies by
SIGKILL where it comes to this named place for the third time.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apgasrecorder
from apgaschecker import Event, check
from placeprocesses import Ended, run_places

from ftrma.apgas import DeadPlaceException, MultipleExceptions
from ftrma.framework import Members
from ftrma.frameworks.apgas import records as ledger
from ftrma.frameworks.apgas import runtime
from ftrma.native import mail


class Kill(NamedTuple):
    """A place where a process dies: at the time-th of its visits to a named place of the code."""

    point: str
    time: int = 1


class Slow(NamedTuple):
    """A process that stops amid its loads, stores and messages: a race is lost often then.

    Attributes:
        number: draws where.
        share: of loads, stores and messages.
        places: that do so; empty: all.
        longest_s: of a stop.
        calls: before which of them.
    """

    number: int
    share: float = 0.02
    places: tuple[int, ...] = ()
    longest_s: float = 3e-3
    calls: tuple[str, ...] = ("load", "add", "store", "read", "append")


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        value: of the program at place zero; with `everywhere` the texts of its exceptions, if there
            are any.
        dead: the places that were killed.
        events: that all places have written.
    """

    value: Any
    dead: tuple[int, ...]
    events: list[Event]

    def violations(self, delay_s: float = 5.0) -> list[str]:
        """Return all that the checker finds; tests that wait for nothing else judge a delay."""
        return check(self.events, self.dead, delay_s)


def run_apgas(
    main: Callable[[], Any], places: int, *, spares: int = 0, finish: str = "place0",
    kills: Mapping[int, Kill] | None = None, slow: Slow | None = None, records: int = 0,
    everywhere: bool = False, timeout_s: float = 20.0,
) -> Outcome:
    """Run a program in so many places; every place but the killed ones must come to its end.

    Args:
        kills: who dies where.
        slow: who stops now and then amid the protocol.
        records: so many of finishes has each place, so that they are used again soon; 0: as many
            as usual.
        everywhere: each place runs the program.
    """
    kills = kills or {}
    with tempfile.TemporaryDirectory(prefix="history-") as home:
        def place(members: Members) -> Any:
            apgasrecorder.start(Path(home))
            if members.me in kills:
                die_at(kills[members.me])
            if slow and members.me in (slow.places or members.everyone):
                dawdle(random.Random(slow.number * 100 + members.me), slow)
            if records:
                ledger.MOST_RECORDS = records
            try:
                return runtime.run_at(members, main, finish=finish, everywhere=everywhere)
            except (DeadPlaceException, MultipleExceptions) as error:
                if not everywhere:
                    raise
                leaves = error.leaves() if isinstance(error, MultipleExceptions) else [error]
                return [apgasrecorder.text(leaf) for leaf in leaves]

        results = run_places(places, place, spares=spares, timeout_s=timeout_s)
        dead = tuple(p for p, result in enumerate(results) if isinstance(result, Ended))
        assert all(results[p].signal == signal.SIGKILL for p in dead), results
        return Outcome(results[0], dead, apgasrecorder.read(Path(home)))


def die_at(kill: Kill) -> None:
    """Have this process die at a named place, as a rule of ``--kill`` does in a job."""
    visits: Counter[str] = Counter()

    def kill_place(name: str) -> None:
        visits[name] += 1
        if (name, visits[name]) == kill:
            os.kill(os.getpid(), signal.SIGKILL)

    for name, module in list(sys.modules.items()):
        ours = name == "ftrma.framework" or name.startswith("ftrma.frameworks.apgas.")
        if ours and hasattr(module, "kill_place"):
            module.kill_place = kill_place  # type: ignore[attr-defined]


def dawdle(chance: random.Random, slow: Slow) -> None:
    """Have this process stop for a moment before some of its loads, stores and messages.

    What is a race of nanoseconds otherwise is then lost often.
    """
    def slowly(method: Callable[..., Any]) -> Callable[..., Any]:
        def stopping(*args: Any) -> Any:
            if chance.random() < slow.share:
                time.sleep(chance.random() * slow.longest_s)
            return method(*args)
        return stopping

    for name in slow.calls:
        kind = mail.Mail if name == "append" else mail.Words
        setattr(kind, name, slowly(getattr(kind, name)))
