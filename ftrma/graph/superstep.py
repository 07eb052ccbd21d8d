"""Supersteps of one slot, and how it comes back: LWCP, LWLog and what they are compared with.

A slot has *partially committed* step s when it has computed it and logged what it takes to send its
messages once more; a step is *fully committed* when all have heard of all, which makes the step's
final value F: aggregates, and whether there is more to do. A failure is an entry anew: survivors
have what they kept, the others what the newest checkpoint, of step c, has of them. From there all
take the steps together again. Who has a step behind it sends what it sent then, to those who need
it; who has not computes it.

What a checkpoint has, and what is logged of a step:

========  =========================================  ==========================================
          checkpoint                                 log of a step, in the sender's memory
========  =========================================  ==========================================
``hwcp``  fields, messages received, all edges       none: all go back to the checkpoint
``lwcp``  fields; messages are emitted again         none
``hwlog`` as hwcp                                    messages sent
``lwlog`` as lwcp                                    fields; messages are emitted again
========  =========================================  ==========================================

Nothing here communicates: that is `Way`'s business.

Laws: messages of step i are emitted from the fields after step i and F of step i - 1, also when
that is done again; what a slot keeps of a step is complete before it says that it has partially
committed it; the copy of the checkpoint itself stands for the log of its step, since a slot that
was replaced after that has no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .data import Part
from .program import AnyArray, Context, Inbox, Mask, Sending, VertexProgram, Vertices, neutral

RECOVERIES = ("hwcp", "lwcp", "hwlog", "lwlog")
FRESH = -1  # in place of the step that a slot has partially committed
COUNTS = [("active", np.int64), ("messages", np.int64)]  # in F, behind the aggregates

Lane = tuple[AnyArray, Mask]  # values, and which of them are messages
Levels = Sequence[tuple[int, int]]  # of each slot the steps partially and fully committed


class Saved(Protocol):
    """As `ftrma.framework.entries`."""

    def put(self, key: str, value: npt.ArrayLike, kind: str = "value") -> None: ...
    def read(self, key: str) -> AnyArray: ...
    def drop(self, key: str) -> None: ...
    def __contains__(self, key: str) -> bool: ...


class Way(Protocol):
    """How a slot reaches the others, and the job."""

    def gather(self, value: Any) -> list[Any]:
        """What each slot gives."""

    def send(self, step: int, sending: Sending, to: Sequence[bool]) -> None:
        """Send a step's messages to these slots."""

    def meet(self, step: int, partial: AnyArray) -> list[AnyArray]:
        """All messages of the step are there; what each slot adds to F."""

    def incoming(self, step: int) -> list[Lane]:
        """Messages of each slot, for the receiver's vertices that it sends to."""

    def checkpoint(self) -> int:
        """Take one; its version, which will be committed (0: there is nothing to protect from)."""

    def committed(self) -> int:
        """The newest version that is committed."""

    def pause(self) -> None:
        """Let some time pass."""

    def place(self, name: str) -> None:
        """Be where tests may strike."""


@dataclass
class Slot:
    """One slot's part in a run of a program.

    Attributes:
        program, part: what is run, on what.
        n: vertices of the graph.
        rows: of each slot's messages the own vertices that they are for.
        recovery: one of RECOVERIES.
        kept: what survives in this process.
        saved: what checkpoints have.
        run: number of the run in the job, from 1.
        what: a number for what is run on what; a run that is gone on with is of the same.
    """

    program: VertexProgram
    part: Part
    n: int
    rows: Sequence[npt.NDArray[np.int64]]
    recovery: str
    kept: MutableMapping[str, Any]
    saved: Saved
    run: int
    what: int = 0

    def __post_init__(self) -> None:
        self.form = np.dtype([(name, np.dtype(kind)) for name, kind
                              in self.program.aggregates.items()] + COUNTS)
        self.start = 0  # step of the checkpoint that this entry begins with
        self.inbox: Lane = self.nothing()

    @property
    def light(self) -> bool:
        """Messages are emitted again, rather than saved."""
        return self.recovery.startswith("lw")

    @property
    def logs(self) -> bool:
        return self.recovery.endswith("log")

    def nothing(self) -> Lane:
        return neutral(self.program, len(self.part.ids)), np.zeros(len(self.part.ids), bool)

    # -- what is kept, under names of this run ------------------------------------------------

    def keep(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.kept[f"{self.run} {name}"] = value

    def get(self, name: str) -> Any:
        return self.kept[f"{self.run} {name}"]

    def has(self, name: str) -> bool:
        return f"{self.run} {name}" in self.kept

    @property
    def step(self) -> int:
        """Partially committed."""
        return int(self.get("step"))

    def fields(self) -> dict[str, AnyArray]:
        return {name: self.get(f"field {name}") for name in self.program.fields}

    # -- entering -----------------------------------------------------------------------------

    def level(self) -> tuple[int, int]:
        """Steps that are partially and fully committed here; FRESH where nothing is kept."""
        if not self.has("step"):
            return FRESH, FRESH
        check_what(self.run, self.what, self.get("what"))
        return self.step, int(self.get("full"))

    def checkpointed(self) -> int:
        """Step of the newest checkpoint of this run; 0: there is none."""
        if "at" not in self.saved:
            return 0
        run, step, what = (int(x) for x in self.saved.read("at"))
        if run != self.run:
            return 0
        check_what(run, self.what, what)
        return step

    def resume(self, step: int) -> None:
        """Begin at a checkpoint: with it, where nothing is kept or what is kept does not serve."""
        self.start = step
        if step and not self.light:
            self.inbox = self.saved.read("values").copy(), self.saved.read("got").copy()
        if self.logs and self.has("step"):
            return
        forget(self.kept, f"{self.run} ")
        size, kinds = len(self.part.ids), self.program.fields
        if step:
            before, now = self.saved.read("finals").copy()
            self.keep({f"field {name}": self.saved.read(f"field {name}").copy() for name in kinds})
            self.keep({"active": self.saved.read("active").copy(), f"final {step - 1}": before,
                       f"final {step}": now})
        else:
            self.keep({f"field {name}": np.zeros(size, kind) for name, kind in kinds.items()})
            self.keep({"active": np.ones(size, bool), "final 0": np.zeros((), self.form)})
        self.keep({"what": self.what, "full": step, "step": step})

    def finals(self) -> list[tuple[int, AnyArray]]:
        """F of all steps from the one before the checkpoint's on, as far as they are kept."""
        first = max(self.start - 1, 0)
        return [(i, self.get(f"final {i}")) for i in range(first, int(self.get("full")) + 1)]

    # -- a step -------------------------------------------------------------------------------

    def outgoing(self, i: int) -> Sending:
        """Messages of step i: computed, or those that were sent."""
        if i > self.step:
            return self._compute(i)
        if i == self.start:
            fields = {name: self.saved.read(f"field {name}") for name in self.program.fields}
            return self._emit(i, fields, self.saved.read("computed"))
        if self.light:
            fields = {name: self.get(f"log {i} field {name}") for name in self.program.fields}
            return self._emit(i, fields, self.get(f"log {i} computed"))
        sending = Sending(self.part, self.program)
        sending.values, sending.got = self.get(f"log {i} values"), self.get(f"log {i} got")
        return sending

    def partial(self, i: int) -> AnyArray:
        """What this slot adds to F of step i, if it is known here; else nothing."""
        found: AnyArray = np.zeros((), self.form)
        return self.get("partial") if self.step == i and self.has("partial") else found

    def finish(self, i: int, final: AnyArray, incoming: Sequence[Lane]) -> None:
        """Step i is fully committed."""
        self.keep({f"final {i}": final, "full": max(i, int(self.get("full")))})
        if self.step == i:
            values, got = self.nothing()
            for rows, (theirs, there) in zip(self.rows, incoming, strict=True):
                at = rows[there]
                values[at] = self.program.combine(values[at], theirs[there])
                got[at] = True
            self.inbox = values, got

    def _compute(self, i: int) -> Sending:
        values, got = self.inbox
        computed = self.get("active") | got
        rows = np.flatnonzero(computed)
        block = {name: array[rows] for name, array in self.fields().items()}
        contributed = {name: np.dtype(kind).type(0) for name, kind
                       in self.program.aggregates.items()}
        v = Vertices(self.part, block, rows, None)
        self.program.update(v, Inbox(values[rows], got[rows]),
                            Context(i, self.n, self.before(i), contributed))
        fields = {name: array.copy() for name, array in self.fields().items()}
        for name, array in fields.items():
            array[rows] = block[name]
        active = np.zeros(len(computed), bool)
        active[rows] = ~v._halted
        sending = self._emit(i, fields, computed)
        partial = np.zeros((), self.form)
        for name, value in contributed.items():
            partial[name] = value
        partial["active"], partial["messages"] = active.sum(), sending.got.sum()
        log: dict[str, Any] = {}
        if self.logs and self.light:
            log = {**{f"field {name}": array for name, array in fields.items()},
                   "computed": computed}
        elif self.logs:
            log = {"values": sending.values, "got": sending.got}
        self.keep({f"log {i} {name}": value for name, value in log.items()})
        self.keep({f"field {name}": array for name, array in fields.items()})
        self.keep({"active": active, "computed": computed, "partial": partial})
        self.keep({"step": i})  # last: from here on the step is partially committed
        return sending

    def _emit(self, i: int, fields: dict[str, AnyArray], computed: Mask) -> Sending:
        rows, sending = np.flatnonzero(computed), Sending(self.part, self.program)
        block = {name: array[rows] for name, array in fields.items()}
        for array in block.values():
            array.flags.writeable = False
        v = Vertices(self.part, block, rows, sending)
        self.program.emit(v, Context(i, self.n, self.before(i), None))
        return sending

    def before(self, i: int) -> dict[str, Any]:
        """The aggregates that step i sees."""
        final = self.get(f"final {i - 1}")
        return {name: final[name] for name in self.program.aggregates}

    # -- checkpoints --------------------------------------------------------------------------

    def save(self, i: int) -> None:
        """Have the next checkpoint hold step i, which is fully committed."""
        for name, array in self.fields().items():
            self.saved.put(f"field {name}", array)
        self.saved.put("active", self.get("active"))
        self.saved.put("computed", self.get("computed"))
        self.saved.put("finals", np.stack([self.get(f"final {i - 1}"), self.get(f"final {i}")]))
        if not self.light:
            self.saved.put("values", self.inbox[0])
            self.saved.put("got", self.inbox[1])
            self.saved.put("edges", self.part.target)
            self.saved.put("pointers", self.part.ptr)
        self.saved.put("at", np.array([self.run, i, self.what]))

    def trim(self, i: int) -> None:
        """A checkpoint of step i is committed: what was logged up to it is not needed."""
        for key in [key for key in self.kept if key.startswith(f"{self.run} log ")]:
            if int(key.split()[2]) <= i:
                del self.kept[key]
        for key in [key for key in self.kept if key.startswith(f"{self.run} final ")]:
            if int(key.split()[2]) < i - 1:
                del self.kept[key]

    def conclude(self, *, ended: bool) -> None:
        """Have the next checkpoint hold the result, and nothing else of the run."""
        for name, array in self.fields().items():
            self.saved.put(f"result {self.run} field {name}", array, "static")
        self.saved.put(f"result {self.run}", np.array([self.what, ended]), "static")
        for name in (*(f"field {name}" for name in self.program.fields), "active", "computed",
                     "finals", "values", "got", "edges", "pointers", "at"):
            self.saved.drop(name)


class NotEnded(RuntimeError):
    """A program has taken as many steps as it may, on all slots."""


def check_what(run: int, now: int, then: Any) -> None:
    """Refuse to go on with something else.

    Raises:
        RuntimeError: what is run now is not what was.
    """
    if now != int(then):
        raise RuntimeError(f"run {run} of the job was of another program, graph, partition or "
                           "recovery before a failure: a program makes the same runs, in the same "
                           "order, each time it is entered")


def concluded(program: VertexProgram, kept: MutableMapping[str, Any], saved: Saved, run: int,
              what: int) -> dict[str, AnyArray] | None:
    """The result of a run, if a checkpoint has it.

    Raises:
        NotEnded: the run has ended so.
        RuntimeError: that was a run of something else.
    """
    if f"result {run}" not in saved:
        return None
    before, ended = saved.read(f"result {run}")
    check_what(run, what, before)
    forget(kept, f"{run} ")
    if not ended:
        raise NotEnded(f"run {run} has not ended after as many steps as it may take")
    return {name: saved.read(f"result {run} field {name}").copy() for name in program.fields}


def forget(kept: MutableMapping[str, Any], beginning: str) -> None:
    """Let go of all that is kept under names that begin so."""
    for key in [key for key in kept if key.startswith(beginning)]:
        del kept[key]


def total(partials: Sequence[AnyArray]) -> AnyArray:
    """F of a step, from what the slots add to it, in their order."""
    found = np.zeros((), partials[0].dtype)
    for partial in partials:
        for name in found.dtype.names or ():
            found[name] += partial[name]
    return found


def run(slot: Slot, way: Way, *, every: int, most: int) -> dict[str, AnyArray]:
    """Run a program to its end, from its begin or from where it was.

    Args:
        every: steps between checkpoints; 0: none but that of the result.
        most: steps after which it is stopped.

    Returns:
        The slot's fields.

    Raises:
        NotEnded: it has not ended by then.
    """
    way.place("recover")
    levels: Levels = way.gather(slot.level())
    start = slot.checkpointed()
    slot.resume(start)
    table = [step if slot.logs and step != FRESH else start for step, _ in levels]
    newest = max((f for _, f in levels), default=FRESH) if slot.logs else FRESH
    for finals in way.gather(slot.finals() if slot.level()[1] == newest else []):
        for i, final in finals:
            slot.keep({f"final {i}": final})
    taken: list[tuple[int, int]] = []
    for i in steps(start, light=slot.light):
        way.place("compute")
        sending = slot.outgoing(i)
        way.place("emit")
        way.send(i, sending, [step <= i for step in table])
        way.place("exchange")
        partials = way.meet(i, slot.partial(i))
        way.place("sync")
        final = slot.get(f"final {i}") if i <= max(newest, start) else total(partials)
        slot.finish(i, final, way.incoming(i))
        table = [max(step, i) for step in table]
        while taken and taken[0][1] <= way.committed():
            slot.trim(taken.pop(0)[0])
        ended = not final["active"] and not final["messages"]
        if i > start and (ended or i >= most):
            break
        if every and i > start and i % every == 0 and max(table) == i:
            slot.save(i)
            if version := way.checkpoint():
                taken.append((i, version))
    result = {name: array.copy() for name, array in slot.fields().items()}
    slot.conclude(ended=bool(ended))
    version = way.checkpoint()
    way.place("end")
    while way.committed() < version:
        way.pause()
    forget(slot.kept, f"{slot.run} ")
    if not ended:
        raise NotEnded(f"the program has not ended after {most} steps")
    return result


def steps(start: int, *, light: bool) -> Iterator[int]:
    """The steps of an entry: the checkpoint's own first where its messages are emitted again."""
    i = start if light and start else start + 1
    while True:
        yield i
        i += 1
