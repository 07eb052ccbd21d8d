"""The interface that `engine.Engine` runs programs by, and what its implementations share.

A *runner* runs programs of one kind: `pregel_runner.PregelRunner`, `phoenix_runner.PhoenixRunner`
and `declared_runner.DeclaredRunner`. It is made of the settings of an engine, refuses settings and
programs that do not fit, and runs one task after another.
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
    """A step, or a round, as one slot took it.

    Attributes:
        step: its number.
        kind: "checkpoint": the step of the checkpoint that an attempt begins with, whose messages
            are sent again; "again": a step up to the last one that a slot had computed before the
            failure; "normal": any other.
        forwarded: this slot sent what it had sent before.
        seconds: in all, without a checkpoint.
        sending_s: until its messages were there: computed, emitted again or read from the log.
        saving_s: for which a checkpoint held it up.
        log_bytes: that have been logged of it.
        sent_bytes: that this slot sent to others in a round of Phoenix, and before it to mend
            states.
        active, messages: vertices that go on, and messages, of all slots.
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
        checkpoint: as the user gave it; None: the runner's default.
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
            goes on after a failure has the same one.
        most: steps or rounds after which the run is given up.
        tell: takes the report of each step.
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
        fields: their values.
        wholes: values of all vertices by field, as far as they have been gathered.
        edges: that leave its vertices; None if this process has not had them.
    """

    ids: Ints
    fields: Mapping[str, AnyArray]
    wholes: dict[str, AnyArray | None] = field(default_factory=dict)
    edges: int | None = None


class GraphRunner(ABC, Generic[P]):
    """Runs programs of one kind, by one of its recoveries.

    Attributes:
        recoveries: their names, as users give them.
        programs: the class of programs that it runs.
        declares: the state of a run is declared by `ftrma.protect`, and ftrma recovers it; else the
            framework claims the job's failures.
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
        """Take over what is done about failures, if this runner does that itself.

        MPI: collective over all slots.
        """

    @abstractmethod
    def check(self, program: P) -> None:
        """Refuse a program that cannot be run.

        Raises:
            ValueError: with what is wrong.
        """

    @abstractmethod
    def run(self, task: Task[P]) -> RunOutcome:
        """Run a program to its end, or return the result of a run that has ended before a failure.

        Raises:
            NotEnded: it has not ended after as many steps as it may take.
            RuntimeError: the run was of another program, graph or recovery before a failure.

        MPI: collective over all slots; waits for them in each step.
        Fault: unwinds when all go back; the run goes on in the next attempt.
        """

    @abstractmethod
    def progress(self, report: StepReport) -> str:
        """A step in words, for people who wait."""


def intervals(checkpoint: int | float | str) -> tuple[int, float | None]:
    """Steps and seconds between two checkpoints.

    Returns:
        Steps, 0 if they do not decide; seconds, inf if they do not decide, None if the job's
        ``--interval`` decides.

    Raises:
        ValueError: `checkpoint` says neither.
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
    """One slot's part in a run of a program; communicates with nobody.

    Attributes:
        program, part: what is run, on which part of the graph.
        n: vertices of the graph.
        rows: own vertices that each slot has edges to, by their local numbers, in the order of that
            slot's targets.
        recovery: its name.
        kept: survives in this process; names begin with the run's number.
        saved: what checkpoints have.
        run, identity: see `Task`.
    """

    counts: ClassVar[tuple[str, ...]]  # what the slots add up in a step beside the aggregates

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
        """A slot's part of the sums of a step if it adds nothing."""
        found = np.zeros((), self.form)
        for name, kind in self.aggregates.items():
            found[name] = messages.neutral(kind, 1)[0]
        return found

    def summed(self, partials: Sequence[AnyArray]) -> AnyArray:
        """The sums of all slots' parts, in the order of the slots: the same bits each time."""
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
        """Step of the newest checkpoint of this run; 0: there is none."""
        if "at" not in self.saved:
            return 0
        run, step, identity = (int(x) for x in self.saved.read("at"))
        if run != self.run:
            return 0
        check_identity(run, self.identity, identity)
        return step

    def put_result(self, fields: Mapping[str, AnyArray], *, ended: bool) -> None:
        """Have the next checkpoint hold the result of the run."""
        for name, array in fields.items():
            self.saved.put(f"result {self.run} field {name}", array, "static")
        self.saved.put(f"result {self.run}", np.array([self.identity, ended]), "static")


def check_identity(run: int, now: int, then: Any) -> None:
    """Refuse to go on with another program than before a failure.

    Raises:
        RuntimeError: the identities differ.
    """
    if now != int(then):
        raise RuntimeError(f"run {run} of the job was of another program, graph, partition or "
                           "recovery before a failure: a program makes the same runs, in the same "
                           "order, each time it is entered")


def saved_result(program: Any, kept: MutableMapping[str, Any], saved: Saved, run: int,
                 identity: int) -> dict[str, AnyArray] | None:
    """The result of a run, if a checkpoint has it.

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
    """Delete all that is kept under names that begin so."""
    for key in [key for key in kept if key.startswith(beginning)]:
        del kept[key]


# ---- between slots --------------------------------------------------------------------------


class Transport(Protocol):
    """The way of a slot to the others and to the job, as runs of all kinds need it."""

    def meet(self, partial: AnyArray) -> list[AnyArray]:
        """Wait until all that was sent is there; returns each slot's part of the sums."""

    def due(self) -> bool:
        """A checkpoint is due by time, as this slot sees it."""

    def checkpoint(self) -> int:
        """Take a checkpoint; its version, which will be committed or undone; 0: none was taken."""

    def confirm(self, version: int) -> bool:
        """Wait until a version is committed; False: it was undone."""

    def kill_place(self, name: str) -> None:
        """Be at a place where tests may kill."""

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
    """Be at a place of this framework where ``--kill`` strikes."""
    framework.kill_place(f"graph.{name}")
