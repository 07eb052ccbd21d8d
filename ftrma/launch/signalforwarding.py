"""Forwards signals that ``ftrma run`` gets for the program: SIGUSR1 and SIGUSR2.

Batch systems use them to warn of the end of an allocation. A slot gets a signal only if its program
handles it: otherwise all slots would die of it at once, and no repair could help. A program that is
about to begin, or to begin anew, has `timeouts.HANDLER` to set its handler.
"""

from __future__ import annotations

import signal
import time

from ..host import timeouts
from ..host.outfile import tell
from .launchcontrol import LaunchControl


class SignalForwarder:
    """Signals that have come, on their way to the slots."""

    def __init__(self) -> None:
        self.arrived: list[int] = []
        # For each signal: since when it is pending, and the slots that have not got it yet.
        self.pending: dict[int, tuple[float, set[int]]] = {}
        self.told: set[int] = set()

    def note(self, number: int, _frame: object) -> None:
        """Handle a signal by keeping it for `forward`."""
        self.arrived.append(number)

    def forward(self, control: LaunchControl, slots: int) -> None:
        """Send the signals to slots that handle them; tell the user once about slots that do
        not."""
        if not control.program_begun():
            return
        now = time.monotonic()
        while self.arrived:
            self.pending[self.arrived.pop(0)] = now, set(range(slots))
        for number, (since, rest) in list(self.pending.items()):
            rest = control.forward_signal(number, rest)
            late = bool(rest) and now - since > timeouts.HANDLER.s
            if late:
                self.tell(number, rest, slots)
            if late or not rest:
                del self.pending[number]
            else:
                self.pending[number] = since, rest
        for number, slot in control.unhandled_signals():
            self.tell(number, {slot}, slots)

    def tell_undelivered(self, slots: int) -> None:
        """Tell the user of signals that are left when the job is over."""
        for number, (_, rest) in self.pending.items():
            self.tell(number, rest, slots)

    def tell(self, number: int, rest: set[int], slots: int) -> None:
        """Tell the user that a signal does not reach some slots."""
        if number not in self.told:
            self.told.add(number)
            name = signal.Signals(number).name
            who = "the program" if len(rest) == slots else (
                "slot " + " and slot ".join(map(str, sorted(rest))))
            tell(f"warning: {name} has come and is not handed on to {who}, which does not handle "
                 "it and would die of it")
