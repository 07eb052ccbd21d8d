"""Vertex programs as programs of ftrma's own kind: what a slot has is declared, and ftrma recovers.

By `causal` the lanes are a window that is saved and logged, as any other: a replaced slot is
replayed while the others keep what they have. By `rollback` nothing is logged of them, and all go
back to the checkpoint. Nothing is claimed: the policy is the job's.

Laws: between two safepoints a slot's state is a step's, whole; after `protect` a slot that has
found its state again asks nobody before it goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ftrma

from ... import framework
from .messages import Received
from .parts import Part, Partition
from .pregel_program import VertexProgram
from .pregel_runner import NotEnded, PregelSlot, StepReport, check_what, total
from .pregel_transport import PregelWindow, pass_by, window
from .references import AnyArray, Ints

RECOVERIES = ("causal", "rollback")
LANES = ("ids", "counts", "there", "halves")
INBOX = ("values", "got", "ptr")


class Windows:
    """The windows of lanes that are saved and logged, of an attempt of the program.

    A run takes over the newest one if its lanes have room in it, else it makes one. None is freed:
    a slot that is replayed from a later checkpoint makes those that are there, in their order, and
    cannot make one that has gone.
    """

    def __init__(self) -> None:
        self.all: list[tuple[Ints, Any]] = []  # half of each slot's part, window

    def take(self, comm: Any, state: Any, halves: Ints) -> Any:
        """The window of the run with this state.

        MPI: collective over all slots where one is made.
        """
        if state.made is None:
            state.made = not self.all or bool((halves > self.all[-1][0]).any())
        if state.made:
            self.all.append((halves, window(comm, 2 * int(halves[comm.rank]), protected=True)))
        return self.all[-1][1]


def declare(program: VertexProgram, run: int, what: int) -> Any:
    """What a slot has of a run, as it was at the checkpoint, or nothing yet.

    Raises:
        RuntimeError: it is of something else.

    MPI: collective over all slots.
    """
    fields = [f"field {name}" for name in program.fields]
    nothing = dict.fromkeys(["active", "final", "changes", *fields, *LANES, *INBOX])
    state = ftrma.protect(f"graph {run}", what=what, step=0, ended=None, made=None, wholes={},
                          bounds=None, **nothing)
    check_what(run, what, vars(state)["what"])
    return state


def store(state: Any, slot: PregelSlot) -> None:
    """Declare the step that has been taken, with what has come in it."""
    state.step, state.active = slot.step, slot.now("active")
    state.final, state.changes = slot.get(f"final {slot.step}").reshape(1), slot.get("changes")
    for name, array in slot.fields().items():
        setattr(state, f"field {name}", array)
    for name in INBOX:
        setattr(state, name, getattr(slot.inbox, name))


def load(state: Any, slot: PregelSlot) -> None:
    """Have the slot be where it is declared to be."""
    names = ["active", *(f"field {name}" for name in slot.program.fields)]
    slot.keep({f"final {state.step}": state.final[0], "changes": state.changes,
               "full": state.step})
    slot.commit(state.step, {name: getattr(state, name) for name in names}, None)
    slot.inbox = Received(*(getattr(state, name) for name in INBOX))


def conclude(state: Any, *, ended: bool) -> None:
    """The fields are the result; nothing else of the run is needed."""
    for name in ("active", "final", "changes", "ids", "counts", "there", *INBOX):
        setattr(state, name, None)
    state.ended = ended


def run(comm: Any, partition: Partition, part: Callable[[], Part], program: VertexProgram,
        recovery: str, state: Any, number: int, windows: Windows,
        tell: Callable[[StepReport], None], *, every: int, never: bool,
        most: int) -> dict[str, AnyArray]:
    """Run a program to its end, from its begin or from where its state was.

    Args:
        comm: of the slots.
        partition: of the vertices; `part` makes what this slot has of the graph.
        recovery: one of RECOVERIES.
        state: by `declare`; `number` is that of the run.
        windows: of this attempt.
        tell: what is done with reports.
        every: steps between checkpoints; 0: they come as the job's interval has it, or `never`.
        most: steps after which it is stopped.

    Returns:
        The slot's fields.

    Raises:
        NotEnded: it has not ended by then.

    MPI: collective over all slots; waits for them in each step.
    Fault: as `ftrma.safepoint`.
    """
    if state.ended is None:
        met = None if state.ids is None else tuple(getattr(state, name) for name in LANES)
        made = partial(windows.take, comm, state) if recovery == "causal" else None
        lanes = PregelWindow(comm, partition, part(), program, None, tell, met, made)
        _run(lanes, state, number, every, never, most)
    elif recovery == "causal":
        windows.take(comm, state, state.halves)
    else:
        pass_by(comm)
    if not state.ended:
        raise NotEnded(f"the program has not ended after {state.step} steps")
    return {name: getattr(state, f"field {name}").copy() for name in program.fields}


def _run(lanes: PregelWindow, state: Any, number: int, every: int, never: bool, most: int) -> None:
    begins, size = state.ids is None, lanes.comm.size
    for name, array in zip(LANES, lanes.met, strict=True):
        setattr(state, name, array)
    # It saves nothing by itself.
    slot = PregelSlot(lanes.program, lanes.part, lanes.partition.n, lanes.rows, "none", {},
                framework.entries, number, state.what)
    if begins:
        slot.resume(0)
    else:
        load(state, slot)
    begin, everybody, more = slot.step, [True] * size, True
    while more and slot.step < most:
        store(state, slot)
        due = bool(every and slot.step != begin and slot.step % every == 0)
        framework.safepoint(True if due else False if never else None)
        more = _step(slot, lanes, everybody)
    store(state, slot)
    conclude(state, ended=not more)
    lanes.place("end")
    lanes.free()


def _step(slot: PregelSlot, lanes: PregelWindow, everybody: Sequence[bool]) -> bool:
    """Take a step; whether there is more to do."""
    report, began = StepReport(slot.step + 1, "normal", forwarded=False), time.monotonic()
    lanes.place("compute")
    sending = slot.outgoing(report.step, everybody)
    report.sending_s = time.monotonic() - began
    lanes.place("emit")
    lanes.send(report.step, sending, everybody)
    lanes.place("exchange")
    partials = lanes.meet(report.step, slot.partial(report.step))
    lanes.place("sync")
    final = total(report.step, partials)
    slot.finish(report.step, final, slot.rows, lanes.incoming(report.step))
    report.seconds = time.monotonic() - began
    report.active, report.messages = int(final["active"]), int(final["messages"])
    lanes.tell(report)
    return bool((final["active"] or final["messages"] or final["wake"]) and not final["stop"])
