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
``none``  that of a result alone                     none: all begin anew
========  =========================================  ==========================================

Edges that have come or gone by then are in every checkpoint, as one record that grows.

A masked step is one whose messages depend on those received: there `lwlog` logs messages as well,
and a checkpoint by `lwcp` and `lwlog` waits for the next step that is not.

Nothing here communicates: that is `PregelTransport`'s business.

Laws: messages of step i are emitted from the fields after step i, along the edges there were then,
with F of step i - 1, also when that is done again; what a slot keeps of a step is complete before
it says that it has partially committed it; the copy of the checkpoint itself stands for the log of
its step, since a slot that was replaced after that has no other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from . import changes, messages
from .changes import SlotEdges
from .messages import Lane, Received, Records, Sending
from .parts import Part
from .pregel_program import COUNTS, Context, VertexProgram, Vertices, inbox_of, ways
from .references import AnyArray, Mask

RECOVERIES = ("hwcp", "lwcp", "hwlog", "lwlog", "none")
FRESH = -1  # in place of the step that a slot has partially committed

Levels = Sequence[tuple[int, int]]  # of each slot the steps partially and fully committed


class Saved(Protocol):
    """As `ftrma.framework.entries`."""

    def put(self, key: str, value: npt.ArrayLike, kind: str = "value") -> None: ...
    def read(self, key: str) -> AnyArray: ...
    def drop(self, key: str) -> None: ...
    def __contains__(self, key: str) -> bool: ...


class PregelTransport(Protocol):
    """How a slot reaches the others, and the job."""

    def gather(self, value: Any) -> list[Any]:
        """What each slot gives."""

    def send(self, step: int, sending: Sending, to: Sequence[bool]) -> None:
        """Send a step's messages to these slots."""

    def meet(self, step: int, partial: AnyArray) -> list[AnyArray]:
        """All messages of the step are there; what each slot adds to F."""

    def incoming(self, step: int) -> tuple[list[Lane | None], Records]:
        """Messages of each slot, for the receiver's vertices that it sends to (None: there are
        none); and those to any vertex, for its local number, in the order of the slots."""

    def due(self) -> bool:
        """A checkpoint is due by time, as this slot sees it."""

    def checkpoint(self) -> int:
        """Take one; its version, which will be committed or undone; 0: none was."""

    def committed(self) -> int:
        """The newest version that is committed."""

    def confirm(self, version: int) -> bool:
        """Wait until a version is committed; False: it was undone."""

    def place(self, name: str) -> None:
        """Be where tests may strike."""

    def tell(self, report: StepReport) -> None:
        """A step has been taken."""


@dataclass
class StepReport:
    """A step as one slot took it.

    Attributes:
        step: its number.
        kind: "checkpoint": the one an entry begins with, whose messages are sent again; "again":
            up to the last one that somebody had computed before; "normal": any other.
        forwarded: this slot sent what it had sent before.
        seconds: in all, without a checkpoint.
        sending_s: to have its messages: computed, emitted again or read from the log.
        saving_s: for which a checkpoint held it up.
        log_bytes: that have been logged of it.
        active, messages: vertices that go on, and messages, of all slots.
    """

    step: int
    kind: str
    forwarded: bool
    seconds: float = 0
    sending_s: float = 0
    saving_s: float = 0
    log_bytes: int = 0
    active: int = 0
    messages: int = 0


@dataclass
class PregelSlot:
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
        log_bytes: of logs, from which on a checkpoint is due.
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
    log_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        self.form = np.dtype([(name, np.dtype(kind)) for name, kind
                              in self.program.aggregates.items()]
                             + [(name, np.dtype(np.int64)) for name in COUNTS])
        self.start = 0  # step of the checkpoint that this entry begins with
        self.inbox = self.received()
        self._topology: tuple[int, SlotEdges] | None = None
        self._some: tuple[list[bool], SlotEdges] | None = None
        if self.recovery in ("lwcp", "lwlog") and not ways(self.program)[0]:
            self.recovery = "h" + self.recovery[1:]  # messages can only be saved as they are

    @property
    def light(self) -> bool:
        """Messages are emitted again, rather than saved."""
        return not self.recovery.startswith("hw")

    @property
    def logs(self) -> bool:
        return self.recovery.endswith("log")

    def received(self) -> Received:
        """Of a step in which nobody has sent anything."""
        return messages.receive(self.program, len(self.part.ids), [], [],
                                messages.no_records(self.program))

    def topology(self, i: int) -> SlotEdges:
        """The edges as step i has left them."""
        now = changes.until(self.get("changes"), i)
        if self._topology is None or self._topology[0] != len(now):
            self._topology = len(now), changes.topology(self.part, now)
        return self._topology[1]

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

    def now(self, name: str) -> Any:
        """Of the state after the last step that is partially committed."""
        return self.get(f"state {self.step} {name}")

    def fields(self, i: int | None = None) -> dict[str, AnyArray]:
        """After step i, by default the last one."""
        i = self.step if i is None else i
        return {name: self.get(f"state {i} field {name}") for name in self.program.fields}

    def commit(self, i: int, state: Mapping[str, Any], sent: Sending | None) -> None:
        """Step i is partially committed, with this state; what was sent is logged if it is given.
        In between another step's state is never taken for this one's."""
        self.keep({f"state {i} {name}": value for name, value in state.items()})
        if sent is not None:
            ids, records = sent.records
            self.keep({f"sent {i} values": sent.values, f"sent {i} got": sent.got,
                       f"sent {i} ids": ids, f"sent {i} records": records})
        before, self.kept[f"{self.run} step"] = self.get("step") if self.has("step") else i, i
        if not (self.logs and self.light) and before != i:
            forget(self.kept, f"{self.run} state {before} ")

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
            ptr = self.saved.read("pointers").copy() if self.program.combine is None else None
            self.inbox = Received(self.saved.read("values").copy(), self.saved.read("got").copy(),
                                  ptr)
        if self.logs and self.has("step"):
            self.keep({"changes": changes.until(self.get("changes"), self.step)})
            return
        forget(self.kept, f"{self.run} ")
        size, kinds = len(self.part.ids), self.program.fields
        if step:
            before, now = self.saved.read("finals").copy()
            state = {name: self.saved.read(name).copy()
                     for name in (*(f"field {name}" for name in kinds), "active", "computed")}
            self.keep({f"final {step - 1}": before, f"final {step}": now,
                       "changes": self.saved.read("changes").copy()})
        else:
            state = {f"field {name}": np.zeros(size, kind) for name, kind in kinds.items()}
            state["active"] = np.ones(size, bool)
            self.keep({"final 0": np.zeros((), self.form), "changes": changes.none()})
        self.keep({"what": self.what, "full": step})
        self.commit(step, state, None)

    def finals(self) -> list[tuple[int, AnyArray]]:
        """F of all steps from the one before the checkpoint's on, as far as they are kept."""
        first = max(self.start - 1, 0)
        return [(i, self.get(f"final {i}")) for i in range(first, int(self.get("full")) + 1)]

    # -- a step -------------------------------------------------------------------------------

    def outgoing(self, i: int, to: Sequence[bool], *, due: bool = False) -> Sending:
        """Messages of step i to these slots at least: computed, or those that were sent."""
        if i > self.step:
            return self._compute(i, to if i <= int(self.get("full")) else None, due=due)
        if i == self.start:
            fields = {name: self.saved.read(f"field {name}") for name in self.program.fields}
            return self._emit(i, fields, self.saved.read("computed"), to)
        if not self.has(f"sent {i} values"):
            return self._emit(i, self.fields(i), self.get(f"state {i} computed"), to)
        sending = Sending(self.topology(i), self.program)
        sending.values, sending.got = self.get(f"sent {i} values"), self.get(f"sent {i} got")
        sending.to(self.get(f"sent {i} ids"), self.get(f"sent {i} records"))
        return sending

    def partial(self, i: int) -> AnyArray:
        """What this slot adds to F of step i, if it is known here; else nothing."""
        if self.step == i and self.has(f"state {i} partial"):
            found: AnyArray = self.now("partial")
            return found
        return np.zeros((), self.form)

    def finish(self, i: int, final: AnyArray, rows: Sequence[npt.NDArray[np.int64]],
               incoming: tuple[Sequence[Lane | None], Records]) -> None:
        """Step i is fully committed."""
        self.keep({f"final {i}": final, "full": max(i, int(self.get("full")))})
        if self.step == i:
            self.inbox = messages.receive(self.program, len(self.part.ids), rows, *incoming)

    def _compute(self, i: int, to: Sequence[bool] | None, *, due: bool) -> Sending:
        """Compute a step; where its F is known already, what this slot adds to that need not be
        right, so its messages may be to these slots alone, unless they are logged."""
        program, got = self.program, self.inbox.got
        computed: Mask = self.now("active") | got
        if self.get(f"final {i - 1}")["wake"]:
            computed[:] = True
        rows = rows_of(computed)
        every = len(rows) == len(computed)
        block = {name: array.copy() if every else array[rows]
                 for name, array in self.fields().items()}
        contributed = {name: np.dtype(kind).type(0) for name, kind in program.aggregates.items()}
        ctx = Context(i, self.n, self.before(i), contributed, program.seed)
        masked = self.masked(i)
        inbox, edges = inbox_of(self.inbox, rows), self.topology(i - 1)
        sending = Sending(edges, program) if masked else None
        v = Vertices(edges, block, rows, sending, self.n, self.get("changes"), writes=True)
        (program.compute if masked else program.update)(v, inbox, ctx)
        changed = [self.get("changes"), *v._changes]
        for change in changed[1:]:
            change["step"] = i
        self.keep({"changes": np.concatenate(changed)})
        fields = block
        if not every:
            fields = {name: array.copy() for name, array in self.fields().items()}
            for name, array in fields.items():
                array[rows] = block[name]
        active = np.zeros(len(computed), bool)
        active[rows] = ~v._halted
        if sending is None:
            sending = self._emit(i, fields, computed, to if self.light else None)
        partial = np.zeros((), self.form)
        for name, value in contributed.items():
            partial[name] = value
        counts = (active.sum(), len(sending), ctx._stop, ctx._wake, masked, due)
        for name, value in zip(COUNTS, counts, strict=True):
            partial[name] = value
        state = {**{f"field {name}": array for name, array in fields.items()},
                 "active": active, "computed": computed, "partial": partial}
        self.commit(i, state, sending if self.logs and (masked or not self.light) else None)
        return sending

    def _emit(self, i: int, fields: dict[str, AnyArray], computed: Mask,
              to: Sequence[bool] | None = None) -> Sending:
        rows, edges = rows_of(computed), self.topology(i)
        sending = Sending(self._towards(edges, to), self.program)
        if len(rows) == len(computed):
            block = {name: array.view() for name, array in fields.items()}
        else:
            block = {name: array[rows] for name, array in fields.items()}
        for array in block.values():
            array.flags.writeable = False
        v = Vertices(edges, block, rows, sending, self.n, changes.none(), writes=False)
        self.program.emit(v, Context(i, self.n, self.before(i), None, self.program.seed))
        return sending

    def _towards(self, edges: SlotEdges, to: Sequence[bool] | None) -> SlotEdges:
        """Edges that messages to these slots go along, or more of them."""
        if to is None or all(to) or edges.number is not None:
            return edges
        if self._some is None or self._some[0] != to:
            self._some = list(to), changes.towards(edges, to)
        return self._some[1]

    def before(self, i: int) -> dict[str, Any]:
        """The aggregates that step i sees."""
        final = self.get(f"final {i - 1}")
        return {name: final[name] for name in self.program.aggregates}

    def masked(self, i: int) -> bool:
        """Whether step i is."""
        return bool(self.program.masked(Context(i, self.n, self.before(i), None)))

    def logged(self, i: int | None = None) -> int:
        """Bytes that are logged: of one step, or of all."""
        names = [(f"{self.run} {kind} " if i is None else f"{self.run} {kind} {i} ")
                 for kind in ("state", "sent")] if self.logs else []
        found = [value.nbytes for key, value in self.kept.items() if key.startswith(tuple(names))]
        return sum(found)

    # -- checkpoints --------------------------------------------------------------------------

    def save(self, i: int) -> None:
        """Have the next checkpoint hold step i, which is fully committed."""
        for name, array in self.fields().items():
            self.saved.put(f"field {name}", array)
        self.saved.put("active", self.now("active"))
        self.saved.put("computed", self.now("computed"))
        self.saved.put("finals", np.stack([self.get(f"final {i - 1}"), self.get(f"final {i}")]))
        self.saved.put("changes", self.get("changes"), "append")
        if not self.light:
            self.saved.put("values", self.inbox.values)
            self.saved.put("got", self.inbox.got)
            if self.inbox.ptr is not None:
                self.saved.put("pointers", self.inbox.ptr)
        self.saved.put("at", np.array([self.run, i, self.what]))

    def trim(self, i: int) -> None:
        """A checkpoint of step i is committed: what was logged up to it is not needed."""
        for key in list(self.kept):
            run, kind, number, *_ = [*key.split(), "", ""]
            if run == str(self.run) and (
                    (kind == "sent" and int(number) <= i)
                    or (kind == "state" and int(number) <= i and int(number) != self.step)
                    or (kind == "final" and int(number) < i - 1)):
                del self.kept[key]

    def conclude(self, *, ended: bool) -> None:
        """Have the next checkpoint hold the result, and nothing else of the run."""
        for name, array in self.fields().items():
            self.saved.put(f"result {self.run} field {name}", array, "static")
        self.saved.put(f"result {self.run}", np.array([self.what, ended]), "static")
        for name in (*(f"field {name}" for name in self.program.fields), "active", "computed",
                     "finals", "changes", "values", "got", "pointers", "at"):
            self.saved.drop(name)


def rows_of(computed: Mask) -> npt.NDArray[np.int64]:
    """Which vertices these are, ascending."""
    return np.arange(len(computed)) if computed.all() else np.flatnonzero(computed)


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


def total(i: int, partials: Sequence[AnyArray]) -> AnyArray:
    """F of step i, from what the slots add to it, in their order.

    Raises:
        RuntimeError: the step is masked on some slots alone.
    """
    found = np.zeros((), partials[0].dtype)
    for partial in partials:
        for name in found.dtype.names or ():
            found[name] += partial[name]
    if found["masked"] not in (0, len(partials)):
        raise RuntimeError(f"step {i} is masked on {found['masked']} of {len(partials)} slots: "
                           "masked() may depend on the step and the aggregates alone")
    return found


def run(slot: PregelSlot, way: PregelTransport, *, every: int, most: int) -> dict[str, AnyArray]:
    """Run a program to its end, from its begin or from where it was.

    Args:
        every: steps between checkpoints; 0: none but those that are due otherwise.
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
    level, reached = max(table), max(step for step, _ in levels)
    newest = max((f for _, f in levels), default=FRESH) if slot.logs else FRESH
    for finals in way.gather(slot.finals() if slot.level()[1] == newest else []):
        for i, final in finals:
            slot.keep({f"final {i}": final})
    slot.keep({"full": max(newest, int(slot.get("full")))})
    taken: list[tuple[int, int]] = []
    last, due = start, False
    for i in steps(start, light=slot.light):
        kind = "checkpoint" if i == start else "again" if i <= reached else "normal"
        report = StepReport(i, kind, i <= slot.step)
        began = time.monotonic()
        way.place("compute")
        to = [step <= i for step in table]
        sending = slot.outgoing(i, to, due=way.due() or slot.logged() > slot.log_bytes)
        report.sending_s = time.monotonic() - began
        way.place("emit")
        way.send(i, sending, to)
        way.place("exchange")
        partials = way.meet(i, slot.partial(i))
        way.place("sync")
        final = slot.get(f"final {i}") if i <= max(newest, start) else total(i, partials)
        slot.finish(i, final, slot.rows, way.incoming(i))
        table = [max(step, i) for step in table]
        while taken and taken[0][1] <= way.committed():
            slot.trim(taken.pop(0)[0])
        more = final["active"] or final["messages"] or final["wake"]
        ended = bool(final["stop"] or not more)
        report.seconds = time.monotonic() - began
        report.active, report.messages = int(final["active"]), int(final["messages"])
        report.log_bytes = slot.logged(i)
        due |= bool(every and i // every > last // every) or bool(final["due"] and i > level)
        takes = due and i > start and i >= level and not (slot.light and final["masked"])
        if takes and not ended and i < most:
            slot.save(i)
            if version := way.checkpoint():
                taken.append((i, version))
            last, due = i, False
            report.saving_s = time.monotonic() - began - report.seconds
        way.tell(report)
        if i > start and (ended or i >= most):
            break
    result = {name: array.copy() for name, array in slot.fields().items()}
    slot.conclude(ended=ended)
    while True:
        version = way.checkpoint()
        way.place("end")
        if way.confirm(version):
            break
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
