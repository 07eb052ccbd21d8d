"""Runs programs of Phoenix in rounds: after a failure no slot goes back, but with ``cr`` all do.

`run` is the loop that all slots take together. It reaches the other slots by a `PhoenixTransport`;
tests run it with a transport that kills.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import numpy as np

from ... import framework
from ...framework import entries, kept
from . import phoenix_program
from .claimed_runner import ClaimedRunner
from .parts import Part, Partition
from .phoenix_lanes import Bytes
from .phoenix_program import GloballyCorrecting, PhoenixProgram
from .phoenix_slot import (
    ACTIVE,
    DUE,
    RECOVERIES,
    PhoenixSlot,
    Received,
    kept_result,
    level,
)
from .phoenix_transport import PhoenixWindow
from .references import AnyArray
from .runner import NotEnded, StepReport, Task, Transport, save_result
from .transport import pass_by


class PhoenixTransport(Transport, Protocol):
    """Interface by which a slot reaches the other slots and the job."""

    def send(self, turn: int, lanes: Sequence[Bytes]) -> int:
        """Send bytes to each slot; return how many go to other slots.

        Turns are counted from 0 in each attempt.
        """

    def incoming(self, turn: int) -> list[Bytes]:
        """Return the bytes of each slot; more bytes may follow them."""


class PhoenixRunner(ClaimedRunner[PhoenixProgram]):
    """Runs a `PhoenixProgram`; after a failure the next attempt first mends the states."""

    recoveries: ClassVar = RECOVERIES
    programs: ClassVar = PhoenixProgram
    saves_parts: ClassVar = False

    def default_checkpoint(self) -> int | str:
        return "never" if self.settings.recovery == "phoenix" else super().default_checkpoint()

    def claim(self) -> None:
        framework.claim("graph", forfeit=self.settings.recovery == "phoenix")

    def check(self, program: PhoenixProgram) -> None:
        phoenix_program.check(program, self.settings.recovery)

    def progress(self, report: StepReport) -> str:
        return f"round {report.step}: {report.active} active"

    def compute(self, task: Task[PhoenixProgram], partition: Partition,
                part_of: Callable[[], Part]) -> dict[str, AnyArray]:
        comm, program, recovery = self.comm, task.program, self.settings.recovery
        levels = comm.allgather(level(kept, task.run, task.identity))
        found = kept_result(program, kept, task.run, levels)
        if found is not None:
            pass_by(comm)
            return found
        part = part_of()
        self.parts.save(task.graph, part, task.run, entries, heavy=False)
        asked = comm.alltoall([part.targets[part.to(slot)] for slot in range(comm.size)])
        slot = PhoenixSlot(program, part, partition.n, [partition.local(ids) for ids in asked],
                           recovery, kept, entries, task.run, task.identity, levels)
        window = PhoenixWindow(comm, self.interval_s, task.tell, slot.room())
        try:
            found = run(slot, window, every=self.every, most=task.most)
        except NotEnded:
            window.free()
            raise
        window.free()
        if comm.rank == 0:
            framework.note(run=task.run, rounds=slot.round)
        return found


def run(slot: PhoenixSlot, transport: PhoenixTransport, *, every: int,
        most: int) -> dict[str, AnyArray]:
    """Run a program to its end, from its beginning or from the state that was recovered.

    Args:
        every: rounds between checkpoints; 0: only the result is saved, with ``cr``.
        most: rounds of an attempt after which the program is given up.

    Returns:
        The slot's fields.

    Raises:
        NotEnded: the program has not ended after `most` rounds.
    """
    attempt = _PhoenixAttempt(slot, transport)
    attempt.begin()
    for taken in itertools.count(1):
        report, final = attempt.take_round()
        ended = not final[ACTIVE] and taken >= slot.least
        over = ended or taken >= most
        if not over and (final[DUE] or (every and slot.round % every == 0)):
            began = time.monotonic()
            slot.save()
            transport.checkpoint()
            report.saving_s = time.monotonic() - began
        transport.tell(report)
        if over:
            break
    result = slot.conclude(ended=ended)
    if slot.recovery == "cr":
        save_result(transport)
    else:
        transport.kill_place("end")
    if not ended:
        raise NotEnded(f"the program has not ended after {most} rounds")
    return result


class _PhoenixAttempt:
    """The turns that all slots take together: first those that mend states, then one per round."""

    def __init__(self, slot: PhoenixSlot, transport: PhoenixTransport) -> None:
        self.slot, self.transport, self._turns = slot, transport, itertools.count()
        self._sent_bytes = 0  # since the last report

    def begin(self) -> None:
        """Bring the slot to a state from which rounds can be taken."""
        slot = self.slot
        self.transport.kill_place("recover")
        slot.resume()
        if slot.mends():
            slot.mend(self._sync(slot.lasting, ()))
        if slot.mirrored:
            slot.mirror(self._sync((), slot.mirrored))
        slot.keep_all()
        if slot.mends() and isinstance(slot.program, GloballyCorrecting):
            slot.derive()
            slot.fold(self._sync(slot.pushed, ()))

    def take_round(self) -> tuple[StepReport, AnyArray]:
        """Take a round; return its report and its sums."""
        slot, began = self.slot, time.monotonic()
        report = StepReport(slot.round + 1, "normal", forwarded=False)
        self.transport.kill_place("compute")
        partial = slot.operate()
        partial[DUE] = self.transport.due()
        report.sending_s = time.monotonic() - began
        final, received = self._exchange(slot.pushed, slot.mirrored, partial, "exchange", "sync",
                                         whole=False)
        slot.finish(received, final)
        report.seconds, report.active = time.monotonic() - began, int(final[ACTIVE])
        report.sent_bytes, self._sent_bytes = self._sent_bytes, 0
        return report, final

    def _sync(self, up: Sequence[str], down: Sequence[str]) -> list[Received]:
        """Exchange values without taking a round."""
        return self._exchange(up, down, np.zeros((), self.slot.form), "recover", "recover",
                              whole=True)[1]

    def _exchange(self, up: Sequence[str], down: Sequence[str], partial: AnyArray, before: str,
                  after: str, *, whole: bool) -> tuple[AnyArray, list[Received]]:
        """Send ghosts to their owners and own values to ghosts, and meet.

        Args:
            up, down: fields whose ghosts are sent, and fields whose own values are sent.
            partial: this slot's part of the sums.
            before, after: names of the places where tests may kill.
            whole: also send values that have not changed since they were sent.

        Returns:
            The sums, and the values of each slot.
        """
        turn = next(self._turns)
        self.transport.kill_place(before)
        self._sent_bytes += self.transport.send(turn, self.slot.lanes(up, down, whole=whole))
        final = self.slot.summed(self.transport.meet(partial))
        self.transport.kill_place(after)
        return final, self.slot.unpack(self.transport.incoming(turn), up, down)
