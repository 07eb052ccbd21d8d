"""Signals to ``ftrma run`` that are the program's: SIGUSR1 and SIGUSR2, a batch system's warning.

A slot gets one only if its program handles it: it would die of it otherwise, all slots at once, and
that is no failure that a repair could do anything about. A program that is about to begin, or to
begin anew, has a moment for it to set its handler.
"""

from __future__ import annotations

import signal
import time

from ..host.outfile import tell
from ..host.signals import SET_S
from .nodes import Nodes


class ForProgram:
    """Those that have come, on their way to the slots."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.left: dict[int, tuple[float, set[int]]] = {}  # since when; slots that have not got it
        self.told: set[int] = set()

    def keep(self, number: int, _frame: object) -> None:
        """Handler of these signals."""
        self.came.append(number)

    def hand_on(self, nodes: Nodes, slots: int) -> None:
        """Hand on what can be; what a program has not handled for long is told, once."""
        if not nodes.begun():
            return
        now = time.monotonic()
        while self.came:
            self.left[self.came.pop(0)] = now, set(range(slots))
        for number, (since, rest) in list(self.left.items()):
            rest = nodes.hand_on(number, rest)
            late = bool(rest) and now - since > SET_S
            if late:
                self.tell(number, rest, slots)
            if late or not rest:
                del self.left[number]
            else:
                self.left[number] = since, rest
        for number, slot in nodes.unheeded():
            self.tell(number, {slot}, slots)

    def give_up(self, slots: int) -> None:
        """The job is over: nobody handles what is left."""
        for number, (_, rest) in self.left.items():
            self.tell(number, rest, slots)

    def tell(self, number: int, rest: set[int], slots: int) -> None:
        """Say that a signal does not come to some slots."""
        if number not in self.told:
            self.told.add(number)
            name = signal.Signals(number).name
            who = "the program" if len(rest) == slots else (
                "slot " + " and slot ".join(map(str, sorted(rest))))
            tell(f"warning: {name} has come and is not handed on to {who}, which does not handle "
                 "it and would die of it")
