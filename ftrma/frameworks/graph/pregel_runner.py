"""Runs vertex programs in steps, with the framework's checkpoints and logs: LWCP, LWLog and others.

`run` is the loop that all slots take together. It reaches the other slots by a `PregelTransport`;
tests run it with a transport that kills.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

from ... import framework
from ...framework import entries
from . import pregel_program
from .claimed_runner import ClaimedRunner
from .messages import Lane, Records, Sending
from .parts import Part, Partition
from .pregel_program import VertexProgram
from .pregel_slot import FRESH, RECOVERIES, Level, PregelSlot
from .pregel_transport import PregelWindow
from .references import AnyArray
from .runner import (
    NotEnded,
    Settings,
    StepReport,
    Task,
    Transport,
    forget,
    intervals,
    save_result,
)


class PregelTransport(Transport, Protocol):
    """Interface by which a slot reaches the other slots and the job."""

    def gather(self, value: Any) -> list[Any]:
        """Return the value of each slot."""

    def send(self, step: int, sending: Sending, to: Sequence[bool]) -> None:
        """Send the messages of a step to these slots."""

    def incoming(self, step: int) -> tuple[list[Lane | None], Records]:
        """Return the messages that have come in a step.

        Returns:
            For each slot its messages to the vertices to which it has edges, None if there are
            none; and the messages to any vertex, by the vertex's local number, in the order of the
            slots.
        """

    def committed(self) -> int:
        """Return the newest version that is committed."""


class PregelRunner(ClaimedRunner[VertexProgram]):
    """Runs a `VertexProgram`; after a failure the recovery says how the next attempt goes on."""

    recoveries: ClassVar = RECOVERIES
    programs: ClassVar = VertexProgram
    saves_parts: ClassVar = True

    def __init__(self, comm: Any, settings: Settings) -> None:
        super().__init__(comm, settings)
        if settings.recovery == "none":
            self.every, self.interval_s = intervals("never")

    def check(self, program: VertexProgram) -> None:
        pregel_program.check(program)

    def progress(self, report: StepReport) -> str:
        return f"step {report.step}: {report.active} active, {report.messages} messages"

    def compute(self, task: Task[VertexProgram], partition: Partition, part_of: Callable[[], Part]
                ) -> dict[str, AnyArray]:
        settings, part = self.settings, part_of()
        window = PregelWindow(self.comm, partition, part, task.program, self.interval_s, task.tell)
        slot = PregelSlot(task.program, part, task.graph.n, window.rows, settings.recovery,
                          framework.kept, entries, task.run, task.identity, settings.log_bytes)
        if slot.recovery != settings.recovery and self.comm.rank == 0 and framework.attempt() < 2:
            print(f"graph: {type(task.program).__name__} defines compute() alone, so its messages "
                  f"are saved: recovery is {slot.recovery}", file=sys.stderr, flush=True)
        self.parts.save(task.graph, part, task.run, entries, heavy=not slot.light)
        try:
            found = run(slot, window, every=self.every, most=task.most)
        except NotEnded:
            window.free()
            raise
        window.free()
        return found


def run(slot: PregelSlot, transport: PregelTransport, *, every: int,
        most: int) -> dict[str, AnyArray]:
    """Run a program to its end, from its beginning or from the state that was recovered.

    Args:
        every: steps between checkpoints; 0: only checkpoints that are due by time or by logs.
        most: steps after which the program is given up.

    Returns:
        The slot's fields.

    Raises:
        NotEnded: the program has not ended after `most` steps.
    """
    attempt = _PregelAttempt(slot, transport, every)
    ended = False
    for i in attempt.steps():
        report, final = attempt.take(i)
        ended = is_last(final)
        over = ended or i >= most
        if attempt.due(i, final) and not over:
            attempt.checkpoint(i, report)
        transport.tell(report)
        if over and i > attempt.start:
            break
    result = {name: array.copy() for name, array in slot.fields().items()}
    slot.conclude(ended=ended)
    save_result(transport)
    forget(slot.kept, f"{slot.run} ")
    if not ended:
        raise NotEnded(f"the program has not ended after {most} steps")
    return result


class _PregelAttempt:
    """The steps that all slots take together, from the recovered state to the program's end.

    Attributes:
        start: step of the checkpoint with which all slots begin; 0: there is none.
        table: for each slot, the step that it has partially committed; the slot needs only the
            messages of later steps.
        reached: the last step that any slot has partially committed.
        newest: the last step whose F is known.
    """

    def __init__(self, slot: PregelSlot, transport: PregelTransport, every: int) -> None:
        self.slot, self.transport, self.every = slot, transport, every
        transport.kill_place("recover")
        levels: list[Level] = transport.gather(slot.level())
        self.start = slot.checkpointed()
        slot.resume(self.start)
        self.table = [step if slot.logs and step != FRESH else self.start for step, _ in levels]
        self.level, self.reached = max(self.table), max(step for step, _ in levels)
        self.newest = self._share_finals(levels)
        self.taken: list[tuple[int, int]] = []  # steps and versions of checkpoints
        self.last, self.is_due = self.start, False

    def _share_finals(self, levels: Sequence[Level]) -> int:
        """Let all slots know F of each step that any slot has fully committed; return the last."""
        slot = self.slot
        newest = max((full for _, full in levels), default=FRESH) if slot.logs else FRESH
        mine = slot.finals() if slot.level()[1] == newest else []
        for finals in self.transport.gather(mine):
            for i, final in finals:
                slot.keep({f"final {i}": final})
        slot.keep({"full": max(newest, int(slot.get("full")))})
        return newest

    def steps(self) -> Iterator[int]:
        """Yield the numbers of the steps; the checkpoint's step first if it is emitted again."""
        return itertools.count(self.start if self.start and self.slot.light else self.start + 1)

    def take(self, i: int) -> tuple[StepReport, AnyArray]:
        """Take step i; return its report and its F."""
        slot = self.slot
        kind = "normal" if i > self.reached else "again"
        report = StepReport(i, "checkpoint" if i == self.start else kind, i <= slot.step)
        due = self.transport.due() or slot.logged() > slot.log_bytes
        known = slot.get(f"final {i}") if i <= max(self.newest, self.start) else None
        to = [step <= i for step in self.table]
        final = take_step(slot, self.transport, report, to, due=due, known=known)
        self.table = [max(step, i) for step in self.table]
        while self.taken and self.taken[0][1] <= self.transport.committed():
            slot.trim(self.taken.pop(0)[0])
        report.log_bytes = slot.logged(i)
        return report, final

    def due(self, i: int, final: AnyArray) -> bool:
        """Say whether a checkpoint is due and can be taken in step i."""
        by_steps = bool(self.every and i // self.every > self.last // self.every)
        self.is_due |= by_steps or bool(final["due"] and i > self.level)
        emitted_again = not (self.slot.light and final["masked"])
        return self.is_due and i > self.start and i >= self.level and emitted_again

    def checkpoint(self, i: int, report: StepReport) -> None:
        """Take a checkpoint of step i."""
        began = time.monotonic()
        self.slot.save(i)
        if version := self.transport.checkpoint():
            self.taken.append((i, version))
        self.last, self.is_due = i, False
        report.saving_s = time.monotonic() - began


def take_step(slot: PregelSlot, transport: PregelTransport, report: StepReport,
              to: Sequence[bool], *, due: bool = False, known: AnyArray | None = None) -> AnyArray:
    """Take a step together with all other slots.

    Args:
        report: a report with the number of the step; times and counts are filled in.
        to: the slots that need this slot's messages.
        due: a checkpoint is due, as this slot sees it.
        known: F of the step, if a slot has it from before a failure.

    Returns:
        F of the step.
    """
    i, began = report.step, time.monotonic()
    transport.kill_place("compute")
    sending = slot.outgoing(i, to, due=due)
    report.sending_s = time.monotonic() - began
    transport.kill_place("emit")
    transport.send(i, sending, to)
    transport.kill_place("exchange")
    partials = transport.meet(slot.partial(i))
    transport.kill_place("sync")
    final = total(slot, i, partials) if known is None else known
    slot.finish(i, final, slot.rows, transport.incoming(i))
    report.seconds = time.monotonic() - began
    report.active, report.messages = int(final["active"]), int(final["messages"])
    return final


def total(slot: PregelSlot, i: int, partials: Sequence[AnyArray]) -> AnyArray:
    """Return F of step i, made from the parts of all slots.

    Raises:
        RuntimeError: the step is masked on some slots and not on others.
    """
    found = slot.summed(partials)
    if found["masked"] not in (0, len(partials)):
        raise RuntimeError(f"step {i} is masked on {found['masked']} of {len(partials)} slots: "
                           "masked() may depend on the step and the aggregates alone")
    return found


def is_last(final: AnyArray) -> bool:
    """Say whether the program has ended with the step of this F."""
    more = final["active"] or final["messages"] or final["wake"]
    return bool(final["stop"] or not more)
