"""Asks the program itself whether its state is right, before a checkpoint is taken or used.

If a program's memory was damaged unnoticed, or if the program has diverged, a good checkpoint would
be replaced by a wrong one. With ``--validate module:function`` all slots call a function of the
program at the checkpoint's safepoint, when all have come there. If one of the calls returns False,
no slot stages the version, and the one before stays. A job that goes on from files asks at its
first safepoint. There False sets the files aside, and the supervisor takes an older checkpoint.

The function must not communicate: a safepoint is one event, and a replay passes over it. Each slot
judges its own part; ftrma gathers the answers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ..fabric.story import Refusal
from ..fabric.view import JobView
from ..host.errors import FtrmaError
from ..native.shared import Slot
from .state import State

LOOK_S = 0.0002  # time between looks at the others' answers
MAIN = "__main__"


class Validation:
    """The function that judges a slot's state, in all attempts of the program.

    Args:
        view: of this process.
        spec: "module:function", as the user gave it; the program's own name means its running main
            module.
        program: words of the program, see `script.UserProgram`.
    """

    def __init__(self, view: JobView, spec: str, program: Callable[[], Sequence[str]]) -> None:
        self.view, self.spec, self.program = view, spec, program
        self.function: Callable[[Mapping[str, State]], object] | None = None
        self.asked: tuple[int, bool] = 0, True  # number of the newest safepoint, and its answer
        self.told = False  # a refusal was told; reset when a version is right

    def begin_attempt(self) -> None:
        """Find the function anew: the program's modules are imported anew, too."""
        self.function, self.asked = None, (0, True)

    def holds(self, slot: Slot, ordinal: int, states: Mapping[str, State]) -> bool:
        """Ask all slots at one safepoint; return True if all say that their state is right.

        Args:
            ordinal: of the safepoint.
            states: the states that the program has declared.

        Raises:
            FtrmaError: the function does not exist, or it communicates. Its own exceptions pass
                through.

        MPI: collective over all slots; it waits for their answers.
        Fault: it waits while a dead slot is replayed, and raises Rollback when all slots go back.
        """
        if self.asked[0] == ordinal:
            return self.asked[1]
        mine = self._ask(slot, states)
        wrong = self._gather(ordinal, mine)
        if wrong and slot == 0:
            self._tell(wrong)
        self.told = bool(wrong)
        self.asked = ordinal, not wrong
        return not wrong

    def _ask(self, slot: Slot, states: Mapping[str, State]) -> bool:
        words = self.view.words
        if self.function is None:
            self.function = find(self.spec, self.program())

        def counters() -> tuple[int, ...]:
            own = words.slot(slot)
            return own.clock, own.events, words.me.syncs

        before = counters()
        right = bool(self.function(states))
        if counters() != before:
            raise FtrmaError(f"--validate {self.spec}: the function calls MPI, which it must not: "
                             "each slot judges its own part, and the answers are gathered")
        return right

    def _gather(self, ordinal: int, mine: bool) -> list[int]:
        """Exchange answers, and return the slots whose state is wrong."""
        view = self.view
        view.words.me.verdict = ordinal << 1 | mine
        view.ring()
        while True:
            view.unwind_if_alarmed()
            verdicts = [view.words.process(p).verdict for p in view.slot_holders()]
            if all(verdict >> 1 >= ordinal for verdict in verdicts):
                return [s for s, verdict in enumerate(verdicts)
                        if verdict >> 1 == ordinal and not verdict & 1]
            time.sleep(LOOK_S)

    def _tell(self, wrong: Sequence[int]) -> None:
        view = self.view
        step = view.words.me.step
        view.emit(Refusal(step, tuple(wrong)))
        if not self.told:
            names = " and ".join(f"slot {s}" for s in wrong)
            view.tell(f"warning: {self.spec} says that the state of {names} is wrong at safepoint "
                      f"{step}: no checkpoint is taken of it")


def find(spec: str, program: Sequence[str]) -> Callable[[Mapping[str, State]], object]:
    """Find the function that a user has named.

    Args:
        spec: "module:function".
        program: words of the program; its own module is not imported a second time.

    Raises:
        FtrmaError: it does not exist, or is no function.
    """
    module, _, name = spec.partition(":")
    own = os.path.basename(program[0]).removesuffix(".py") if program else ""
    try:
        found: Any = sys.modules[MAIN] if module in (MAIN, own) else import_module(module)
        function: Any = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise FtrmaError(f"--validate {spec}: {error}; name a module that the program can import, "
                         "and a function in it") from None
    if not callable(function):
        raise FtrmaError(f"--validate {spec}: this is no function, but "
                         f"{type(function).__name__}")
    return function  # type: ignore[no-any-return]
