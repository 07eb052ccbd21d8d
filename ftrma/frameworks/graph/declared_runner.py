"""Runs vertex programs that ftrma recovers as any other program: their state is declared.

With ``causal`` the lanes are a window that is saved and logged as any other, so a replaced slot is
replayed while the others keep their state. With ``rollback`` the lanes are not logged, and all
slots go back to the checkpoint. Nothing is claimed: the job's policy decides.

Laws: at each safepoint a slot's declared state is that of a whole step. After `protect` a slot that
has found its state again goes on without asking other slots.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import ftrma

from ... import framework
from . import pregel_program
from .messages import Received
from .part_store import PartStore
from .parts import Part, Partition, partition_of
from .pregel_program import VertexProgram
from .pregel_runner import is_last, take_step
from .pregel_slot import PregelSlot
from .pregel_transport import PregelWindow
from .runner import (
    GraphRunner,
    NotEnded,
    RunOutcome,
    Settings,
    StepReport,
    Task,
    check_identity,
    kill_place,
)
from .runs import runs
from .transport import pass_by

SOURCES = ("ids", "counts", "there", "halves")  # the arrays of `PregelWindow.sources`
INBOX = ("values", "got", "ptr")


class DeclaredRunner(GraphRunner[VertexProgram]):
    """Runs a `VertexProgram` whose state ftrma saves and restores."""

    recoveries: ClassVar = ("causal", "rollback")
    programs: ClassVar = VertexProgram
    declares: ClassVar = True

    def __init__(self, comm: Any, settings: Settings) -> None:
        recovery, checkpoint = settings.recovery, settings.checkpoint
        if settings.topology == "parity":
            raise ValueError(f"topology 'parity' with recovery {recovery!r}, which saves no graph; "
                             "give \"loader\", or \"files\" and a cache")
        if isinstance(checkpoint, float):
            raise ValueError(f"checkpoint {checkpoint!r} with recovery {recovery!r}: give steps "
                             "between two, \"daly\" or \"never\"; seconds are for ftrma run's "
                             "--interval")
        super().__init__(comm, settings)
        self.parts = PartStore(comm, settings)

    def claim(self) -> None:
        """Claim nothing."""

    def check(self, program: VertexProgram) -> None:
        pregel_program.check(program)

    def progress(self, report: StepReport) -> str:
        return f"step {report.step}: {report.active} active, {report.messages} messages"

    def run(self, task: Task[VertexProgram]) -> RunOutcome:
        state = declare(task.program, task.run, task.identity)
        partition = self._partition(task, state)
        causal = self.settings.recovery == "causal"
        if state.ended is None:
            sources: Any = tuple(getattr(state, name) for name in SOURCES)
            make = partial(runs.windows.take, self.comm, state) if causal else None
            window = PregelWindow(self.comm, partition, self._part(task, partition), task.program,
                                  None, task.tell, None if state.ids is None else sources, make)
            self._take_steps(window, state, task)
        elif causal:
            runs.windows.take(self.comm, state, state.halves)
        else:
            pass_by(self.comm)
        if not state.ended:
            raise NotEnded(f"the program has not ended after {state.step} steps")
        fields = {name: getattr(state, f"field {name}").copy() for name in task.program.fields}
        return RunOutcome(partition.ids(self.comm.rank), fields, state.wholes, state.edges)

    def _partition(self, task: Task[VertexProgram], state: Any) -> Partition:
        """Return the partition of a run; bounds that depend on edges are declared when found."""
        kind, graph, size = self.settings.partition, task.graph, self.comm.size
        if kind == "edges" and state.bounds is None:
            state.bounds = partition_of(kind, graph, size).bounds
        return Partition(kind, graph.n, size, state.bounds)

    def _part(self, task: Task[VertexProgram], partition: Partition) -> Part:
        kill_place("load")
        return self.parts.make(task.graph, partition)

    def _take_steps(self, window: PregelWindow, state: Any, task: Task[VertexProgram]) -> None:
        """Take the steps of a run, from its beginning or from its declared state."""
        begins, never = state.ids is None, not self.every and self.interval_s == math.inf
        for name, array in zip(SOURCES, window.sources, strict=True):
            setattr(state, name, array)
        # With "none" the slot saves nothing by itself.
        slot = PregelSlot(task.program, window.part, task.graph.n, window.rows, "none", {},
                          framework.entries, task.run, state.what)
        if begins:
            slot.resume(0)
        else:
            load(state, slot)
        first, everybody, more = slot.step, [True] * self.comm.size, True
        while more and slot.step < task.most:
            store(state, slot)
            due = bool(self.every and slot.step != first and slot.step % self.every == 0)
            framework.safepoint(True if due else False if never else None)
            report = StepReport(slot.step + 1, "normal", forwarded=False)
            more = not is_last(take_step(slot, window, report, everybody))
            task.tell(report)
        store(state, slot)
        conclude(state, ended=not more)
        window.kill_place("end")
        window.free()


def declare(program: VertexProgram, run: int, identity: int) -> Any:
    """Declare the state of a run; return it as it was at the checkpoint, or empty.

    Raises:
        RuntimeError: the run was of another program.

    MPI: collective over all slots.
    """
    fields = [f"field {name}" for name in program.fields]
    nothing = dict.fromkeys(["active", "final", "changes", *fields, *SOURCES, *INBOX])
    state = ftrma.protect(f"graph {run}", what=identity, step=0, ended=None, made=None, wholes={},
                          bounds=None, edges=None, **nothing)
    check_identity(run, identity, vars(state)["what"])
    return state


def store(state: Any, slot: PregelSlot) -> None:
    """Declare the step that has been taken, with the messages that have come in it."""
    state.step, state.active = slot.step, slot.now("active")
    state.edges = len(slot.part.target)
    state.final, state.changes = slot.get(f"final {slot.step}").reshape(1), slot.get("changes")
    for name, array in slot.fields().items():
        setattr(state, f"field {name}", array)
    for name in INBOX:
        setattr(state, name, getattr(slot.inbox, name))


def load(state: Any, slot: PregelSlot) -> None:
    """Put the declared state into the slot."""
    names = ["active", *(f"field {name}" for name in slot.program.fields)]
    slot.keep({f"final {state.step}": state.final[0], "changes": state.changes,
               "full": state.step})
    slot.commit(state.step, {name: getattr(state, name) for name in names}, None)
    slot.inbox = Received(*(getattr(state, name) for name in INBOX))


def conclude(state: Any, *, ended: bool) -> None:
    """Declare the fields as the result, and nothing else of the run."""
    for name in ("active", "final", "changes", "ids", "counts", "there", *INBOX):
        setattr(state, name, None)
    state.ended = ended
