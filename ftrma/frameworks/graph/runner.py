"""The interface by which `engine.Engine` runs programs, and what its implementations share.

A *runner* runs programs of one kind: `pregel_runner.PregelRunner`, `phoenix_runner.PhoenixRunner`
and `declared_runner.DeclaredRunner`. It is made from the settings of an engine, refuses settings
and programs that do not fit, and runs one task after another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ... import framework
from . import fitting, messages
from .parts import Graph, Part
from .references import AnyArray, Ints

P = TypeVar("P")


@dataclass
class StepReport:
    """A report of a step, or of a round, as one slot took it.

    Attributes:
        step: number of the step.
        kind: "checkpoint": the step of the checkpoint with which an attempt begins, whose messages
            are sent again; "again": a later step, up to the last one that a slot had computed
            before the failure; "normal": any other step.
        forwarded: this slot has sent its earlier messages again.
        seconds: time of the step, without a checkpoint.
        sending_s: time until its messages were ready: computed, emitted again or read from the log.
        saving_s: time for which a checkpoint held the step up.
        log_bytes: size of the step's log.
        sent_bytes: bytes that this slot sent to others in a round of Phoenix, and before the round
            to mend states.
        active, messages: numbers of vertices that go on, and of messages, of all slots.
    """

    step: int
    kind: str
    forwarded: bool
    seconds: float = 0
    sending_s: float = 0
    saving_s: float = 0
    log_bytes: int = 0
    sent_bytes: int = 0
    active: int = 0
    messages: int = 0


class NotEnded(RuntimeError):
    """A program has taken as many steps as it may, on all slots."""


@dataclass(frozen=True)
class Settings:
    """The settings of an engine, see `engine.Engine`.

    Attributes:
        checkpoint: the value that the user gave; None: the runner's default.
    """

    recovery: str
    checkpoint: int | float | str | None
    partition: str
    topology: str | None
    cache: str | None
    log_bytes: int


@dataclass(frozen=True)
class Task(Generic[P]):
    """A run of a program on a graph.

    Attributes:
        run: number of the run in the job, from 1.
        identity: number that tells program, graph, partition and recovery from others. A run that
            goes on after a failure has the same number.
        most: steps or rounds after which the run is given up.
        tell: is called with the report of each step.
    """

    graph: Graph
    program: P
    run: int
    identity: int
    most: int
    tell: Callable[[StepReport], None]


@dataclass(frozen=True)
class RunOutcome:
    """This slot's result of a run.

    Attributes:
        ids: the slot's own vertices, ascending.
        fields: values of these vertices, by field.
        wholes: values of all vertices, by field, for the fields that have been gathered.
        edges: number of edges that leave the vertices; None if this process has not had the edges.
    """

    ids: Ints
    fields: Mapping[str, AnyArray]
    wholes: dict[str, AnyArray | None] = field(default_factory=dict)
    edges: int | None = None


class GraphRunner(ABC, Generic[P]):
    """Runs programs of one kind, by one of its recoveries.

    Attributes:
        recoveries: names of the recoveries, as users give them.
        programs: the class of programs that it runs.
        declares: the state of a run is declared by `ftrma.protect`, and ftrma recovers it; if
            false, the framework claims the job's failures.
        every, interval_s: steps and seconds between checkpoints, see `intervals`.

    Raises:
        ValueError: settings do not fit each other.
    """

    recoveries: ClassVar[tuple[str, ...]]
    programs: ClassVar[type[Any]]
    declares: ClassVar[bool] = False

    def __init__(self, comm: Any, settings: Settings) -> None:
        self.comm, self.settings = comm, settings
        checkpoint = settings.checkpoint
        self.every, self.interval_s = intervals(
            self.default_checkpoint() if checkpoint is None else checkpoint)

    def default_checkpoint(self) -> int | str:
        return 10

    @abstractmethod
    def claim(self) -> None:
        """Claim the job's failures, if this runner deals with them itself.

        MPI: collective over all slots.
        """

    @abstractmethod
    def check(self, program: P) -> None:
        """Refuse a program that cannot be run.

        Raises:
            ValueError: the program is refused; the text says what is wrong.
        """

    @abstractmethod
    def run(self, task: Task[P]) -> RunOutcome:
        """Run a program to its end, or return the result of a run that has ended before a failure.

        Raises:
            NotEnded: the program has not ended after as many steps as it may take.
            RuntimeError: the run was of another program, graph or recovery before a failure.

        MPI: collective over all slots; waits for them in each step.
        Fault: raises `Rollback` when all slots go back; the run goes on in the next attempt.
        """

    @abstractmethod
    def progress(self, report: StepReport) -> str:
        """Return a line about a step, for progress on the terminal."""


def intervals(checkpoint: int | float | str) -> tuple[int, float | None]:
    """Return the steps and the seconds between two checkpoints.

    Returns:
        Steps, 0 if steps do not decide; seconds, inf if seconds do not decide, None if the job's
        ``--interval`` decides.

    Raises:
        ValueError: `checkpoint` is neither of both.
    """
    if checkpoint == "daly":
        return 0, None
    if checkpoint == "never":
        return 0, math.inf
    if isinstance(checkpoint, int) and checkpoint >= 0:
        return checkpoint, math.inf
    if isinstance(checkpoint, float) and 0 < checkpoint < math.inf:
        return 0, checkpoint
    raise ValueError(f"checkpoint {checkpoint!r}: give steps between two (a whole number), seconds "
                     "(with a point), \"daly\" or \"never\"")


# ---- one slot's state -----------------------------------------------------------------------


class Saved(Protocol):
    """The interface of `ftrma.framework.entries`."""

    def put(self, key: str, value: npt.ArrayLike, kind: str = "value") -> None: ...
    def read(self, key: str) -> AnyArray: ...
    def drop(self, key: str) -> None: ...
    def __contains__(self, key: str) -> bool: ...


@dataclass
class SlotState(Generic[P]):
    """One slot's part in a run of a program; it does not communicate.

    Attributes:
        program, part: the program, and the slot's part of the graph.
        n: number of vertices of the graph.
        rows: for each slot, the own vertices to which it has edges, by their local numbers, in the
            order of that slot's targets.
        recovery: name of the recovery.
        kept: values that survive in this process; their names begin with the run's number.
        saved: the entries of checkpoints.
        run, identity: see `Task`.
    """

    counts: ClassVar[tuple[str, ...]]  # sums of a step over the slots, besides the aggregates

    program: P
    part: Part
    n: int
    rows: Sequence[Ints]
    recovery: str
    kept: MutableMapping[str, Any]
    saved: Saved
    run: int
    identity: int = 0

    def __post_init__(self) -> None:
        self.aggregates = messages.aggregates_of(self.program)
        self.form = np.dtype([*((name, np.dtype(kind.message))
                                for name, kind in self.aggregates.items()),
                              *((name, np.dtype(np.int64)) for name in self.counts)])

    def nothing(self) -> AnyArray:
        """Return a slot's part of the sums of a step if it adds nothing."""
        found = np.zeros((), self.form)
        for name, kind in self.aggregates.items():
            found[name] = messages.neutral(kind, 1)[0]
        return found

    def summed(self, partials: Sequence[AnyArray]) -> AnyArray:
        """Return the sums of all slots' parts, in the order of the slots: the same bits each time.
        """
        found = self.nothing()
        for partial in partials:
            for name in found.dtype.names or ():
                by = self.aggregates[name].combine if name in self.aggregates else np.add
                found[name] = fitting.combined(by, found[name], partial[name],
                                               f"aggregate {name!r}")
        return found

    def keep(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.kept[f"{self.run} {name}"] = value

    def get(self, name: str) -> Any:
        return self.kept[f"{self.run} {name}"]

    def has(self, name: str) -> bool:
        return f"{self.run} {name}" in self.kept

    def checkpointed(self) -> int:
        """Return the step of the newest checkpoint of this run; 0: there is none."""
        if "at" not in self.saved:
            return 0
        run, step, identity = (int(x) for x in self.saved.read("at"))
        if run != self.run:
            return 0
        check_identity(run, self.identity, identity)
        return step

    def put_result(self, fields: Mapping[str, AnyArray], *, ended: bool) -> None:
        """Put the result of the run into the next checkpoint."""
        for name, array in fields.items():
            self.saved.put(f"result {self.run} field {name}", array, "static")
        self.saved.put(f"result {self.run}", np.array([self.identity, ended]), "static")


def check_identity(run: int, now: int, then: Any) -> None:
    """Refuse to go on with another run than before a failure.

    Raises:
        RuntimeError: the identities differ.
    """
    if now != int(then):
        raise RuntimeError(f"run {run} of the job was of another program, graph, partition or "
                           "recovery before a failure: a program makes the same runs, in the same "
                           "order, each time it is entered")


def saved_result(program: Any, kept: MutableMapping[str, Any], saved: Saved, run: int,
                 identity: int) -> dict[str, AnyArray] | None:
    """Return the result of a run, or None if no checkpoint has it.

    Raises:
        NotEnded: the run was given up.
        RuntimeError: that run was of another program.
    """
    if f"result {run}" not in saved:
        return None
    before, ended = saved.read(f"result {run}")
    check_identity(run, identity, before)
    forget(kept, f"{run} ")
    if not ended:
        raise NotEnded(f"run {run} has not ended after as many steps as it may take")
    return {name: saved.read(f"result {run} field {name}").copy() for name in program.fields}


def forget(kept: MutableMapping[str, Any], beginning: str) -> None:
    """Delete all values that are kept under names with a given beginning."""
    for key in [key for key in kept if key.startswith(beginning)]:
        del kept[key]


# ---- between slots --------------------------------------------------------------------------


class Transport(Protocol):
    """Interface by which a slot reaches the other slots and the job, for runs of all kinds."""

    def meet(self, partial: AnyArray) -> list[AnyArray]:
        """Wait until all that was sent has arrived; return each slot's part of the sums."""

    def due(self) -> bool:
        """Say whether a checkpoint is due by time, as this slot sees it."""

    def checkpoint(self) -> int:
        """Take a checkpoint; return its version, which may still be undone; 0: none was taken."""

    def confirm(self, version: int) -> bool:
        """Wait until a version is committed; False: it was undone."""

    def kill_place(self, name: str) -> None:
        """Mark a place where tests may kill the process."""

    def tell(self, report: StepReport) -> None:
        """Hand on the report of a step."""


def save_result(transport: Transport) -> None:
    """Take checkpoints until one is committed, so that the result outlives any failure."""
    while True:
        version = transport.checkpoint()
        transport.kill_place("end")
        if transport.confirm(version):
            return


def kill_place(name: str) -> None:
    """Mark a place of this framework where ``--kill`` may kill the process."""
    framework.kill_place(f"graph.{name}")
