"""The steps of one slot, and how it comes back after a failure: LWCP, LWLog and others.

A slot has *partially committed* step s when it has computed the step and has logged what it takes
to send the messages of the step once more. A step is *fully committed* when all slots have met
after it, which makes the step's *final value* F: the aggregates, and whether there is more to do.

After a failure all slots begin a new attempt. A survivor has the state that it has kept; any other
slot has its state in the newest checkpoint, that of step c. From there all slots take the steps
together again. A slot that has partially committed a step sends the same messages again, to the
slots that need them; any other slot computes the step.

The recoveries differ in the contents of a checkpoint and of the log of a step:

========  =========================================  ==========================================
          checkpoint                                 log of a step, in the sender's memory
========  =========================================  ==========================================
``hwcp``  fields, messages received, all edges       none: all go back to the checkpoint
``lwcp``  fields; messages are emitted again         none
``hwlog`` fields, messages received, all edges       messages sent
``lwlog`` fields; messages are emitted again         fields; messages are emitted again
``none``  that of a result alone                     none: all begin anew
========  =========================================  ==========================================

Every checkpoint has the edges that were added or dropped before it, as one record that grows.

A *masked* step is a step whose messages depend on those received. `lwlog` logs the messages of a
masked step, and `lwcp` and `lwlog` take no checkpoint before the next step that is not masked.

Nothing here communicates: `pregel_runner` does that.

Laws:

* Messages of step i are emitted from the fields after step i, along the edges that existed then,
  with F of step i - 1, also when they are emitted again.
* A slot completes all that it keeps of a step before it says that it has partially committed the
  step.
* The checkpoint itself serves as the log of its step: a slot that was replaced after the checkpoint
  has no other log of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import changes, messages
from .changes import SlotEdges
from .messages import Contributions, Lane, Received, Records, Sending
from .pregel_program import COUNTS, Context, VertexProgram, Vertices, inbox_of, ways
from .references import AnyArray, Ints, Mask
from .runner import SlotState, check_identity, forget

RECOVERIES = ("hwcp", "lwcp", "hwlog", "lwlog", "none")
FRESH = -1  # instead of a partially committed step: the slot has kept nothing

Fields = dict[str, AnyArray]
Level = tuple[int, int]  # the steps that a slot has partially and fully committed


@dataclass
class PregelSlot(SlotState[VertexProgram]):
    """One slot's part in a run of a vertex program.

    Attributes:
        rows: for each slot, the own vertices to which its messages go.
        log_bytes: size of the logs at which a checkpoint is due.
    """

    counts: ClassVar = COUNTS

    log_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        super().__post_init__()
        self.start = 0  # step of the checkpoint with which this attempt begins
        self.inbox = self.received()
        self._topology: tuple[int, SlotEdges] | None = None
        self._some: tuple[list[bool], SlotEdges] | None = None
        if self.recovery in ("lwcp", "lwlog") and not ways(self.program)[0]:
            self.recovery = "h" + self.recovery[1:]  # messages cannot be emitted again

    @property
    def light(self) -> bool:
        """True if messages are emitted again, rather than saved."""
        return not self.recovery.startswith("hw")

    @property
    def logs(self) -> bool:
        return self.recovery.endswith("log")

    def received(self) -> Received:
        """Return the messages of a step in which no slot has sent any."""
        return messages.receive(self.program, len(self.part.ids), [], [],
                                messages.no_records(self.program))

    def topology(self, i: int) -> SlotEdges:
        """Return the edges as step i has left them."""
        now = changes.until(self.get("changes"), i)
        if self._topology is None or self._topology[0] != len(now):
            self._topology = len(now), changes.topology(self.part, now)
        return self._topology[1]

    # -- what is kept, under names of this run ------------------------------------------------

    @property
    def step(self) -> int:
        """The last step that this slot has partially committed."""
        return int(self.get("step"))

    def now(self, name: str) -> Any:
        """Return an array of the state after the last step that is partially committed."""
        return self.get(f"state {self.step} {name}")

    def fields(self, i: int | None = None) -> Fields:
        """Return the fields after step i, by default after the last step."""
        i = self.step if i is None else i
        return {name: self.get(f"state {i} field {name}") for name in self.program.fields}

    def commit(self, i: int, state: Mapping[str, Any], sent: Sending | None) -> None:
        """Partially commit step i with its state, and log what was sent if it is given.

        State and log are kept before the number of the step changes, so an attempt that ends in
        between leaves the state of the step before in force.
        """
        self.keep({f"state {i} {name}": value for name, value in state.items()})
        if sent is not None:
            ids, records = sent.records
            self.keep({f"sent {i} values": sent.values, f"sent {i} got": sent.got,
                       f"sent {i} ids": ids, f"sent {i} records": records})
        before, self.kept[f"{self.run} step"] = self.get("step") if self.has("step") else i, i
        if not (self.logs and self.light) and before != i:
            forget(self.kept, f"{self.run} state {before} ")

    # -- the begin of an attempt --------------------------------------------------------------

    def level(self) -> Level:
        """Return the steps that are partially and fully committed here; FRESH: nothing is kept."""
        if not self.has("step"):
            return FRESH, FRESH
        check_identity(self.run, self.identity, self.get("what"))
        return self.step, int(self.get("full"))

    def resume(self, step: int) -> None:
        """Begin an attempt at the step of the checkpoint, or at step 0 without one.

        A slot that logs goes on from the state that it has kept, if there is one; all other slots
        take over the checkpoint.
        """
        self.start = step
        if step and not self.light:
            ptr = self.saved.read("pointers").copy() if self.program.combine is None else None
            self.inbox = Received(self.saved.read("values").copy(), self.saved.read("got").copy(),
                                  ptr)
        if self.logs and self.has("step"):
            # Changes of a step that was not finished are undone.
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
            self.keep({"final 0": self.nothing(), "changes": changes.none()})
        self.keep({"what": self.identity, "full": step})
        self.commit(step, state, None)

    def finals(self) -> list[tuple[int, AnyArray]]:
        """Return the kept F of all steps, beginning with the step before the checkpoint."""
        first = max(self.start - 1, 0)
        return [(i, self.get(f"final {i}")) for i in range(first, int(self.get("full")) + 1)]

    # -- a step -------------------------------------------------------------------------------

    def outgoing(self, i: int, to: Sequence[bool], *, due: bool = False) -> Sending:
        """Return the messages of step i to these slots, or to more: computed now, or sent before.
        """
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
        """Return this slot's part of F of step i, or the neutral part if it is not known here."""
        if self.step == i and self.has(f"state {i} partial"):
            found: AnyArray = self.now("partial")
            return found
        return self.nothing()

    def finish(self, i: int, final: AnyArray, rows: Sequence[Ints],
               incoming: tuple[Sequence[Lane | None], Records]) -> None:
        """Fully commit step i, and take the messages that have come in it."""
        self.keep({f"final {i}": final, "full": max(i, int(self.get("full")))})
        if self.step == i:
            self.inbox = messages.receive(self.program, len(self.part.ids), rows, *incoming)

    def _compute(self, i: int, to: Sequence[bool] | None, *, due: bool) -> Sending:
        """Compute step i.

        Args:
            to: the slots that need its messages, if F of the step is known already; then this
                slot's part of F need not be right. None: all slots need them.
        """
        computed = self._computing(i)
        rows = rows_of(computed)
        block = self._block(self.fields(), rows, copies=True)
        contributed = Contributions(self.aggregates)
        ctx = Context(i, self.n, self.before(i), contributed, self.program.seed)
        masked = self.masked(i)
        inbox, edges = inbox_of(self.inbox, rows), self.topology(i - 1)
        sending = Sending(edges, self.program) if masked else None
        v = Vertices(edges, block, rows, sending, self.n, self.get("changes"), writes=True)
        (self.program.compute if masked else self.program.update)(v, inbox, ctx)
        self._keep_changes(i, v)
        fields = self._merged(block, rows)
        active = np.zeros(len(computed), bool)
        active[rows] = ~v._halted
        if sending is None:
            # The log of a heavy recovery has the messages to all slots.
            sending = self._emit(i, fields, computed, to if self.light else None)
        counts = (active.sum(), len(sending), ctx._stop, ctx._wake, masked, due)
        state = {**{f"field {name}": array for name, array in fields.items()}, "active": active,
                 "computed": computed, "partial": self._partial(contributed.values, counts)}
        self.commit(i, state, sending if self.logs and (masked or not self.light) else None)
        return sending

    def _computing(self, i: int) -> Mask:
        """Return a mask of the vertices that compute in step i."""
        found: Mask = self.now("active") | self.inbox.got
        if self.get(f"final {i - 1}")["wake"]:
            found[:] = True
        return found

    def _keep_changes(self, i: int, v: Vertices) -> None:
        """Add the edges that step i has changed to the record."""
        changed = [self.get("changes"), *v._changes]
        for change in changed[1:]:
            change["step"] = i
        self.keep({"changes": np.concatenate(changed)})

    def _merged(self, block: Fields, rows: Ints) -> Fields:
        """Return the fields of all vertices after a block of them has computed."""
        if len(rows) == len(self.part.ids):
            return block
        found = {name: array.copy() for name, array in self.fields().items()}
        for name, array in found.items():
            array[rows] = block[name]
        return found

    def _partial(self, contributed: Mapping[str, Any], counts: Sequence[Any]) -> AnyArray:
        """Return this slot's part of F of the step that it has computed."""
        found = self.nothing()
        for name, value in contributed.items():
            found[name] = value
        for name, value in zip(COUNTS, counts, strict=True):
            found[name] = value
        return found

    def _emit(self, i: int, fields: Fields, computed: Mask,
              to: Sequence[bool] | None = None) -> Sending:
        rows, edges = rows_of(computed), self.topology(i)
        sending = Sending(self._towards(edges, to), self.program)
        block = self._block(fields, rows, copies=False)
        for array in block.values():
            array.flags.writeable = False
        v = Vertices(edges, block, rows, sending, self.n, changes.none(), writes=False)
        self.program.emit(v, Context(i, self.n, self.before(i), None, self.program.seed))
        return sending

    def _block(self, fields: Fields, rows: Ints, *, copies: bool) -> Fields:
        """Return the fields of some vertices: copies, or views if these are all vertices."""
        if len(rows) < len(self.part.ids):
            return {name: array[rows] for name, array in fields.items()}
        return {name: array.copy() if copies else array.view() for name, array in fields.items()}

    def _towards(self, edges: SlotEdges, to: Sequence[bool] | None) -> SlotEdges:
        """Return the edges by which messages reach these slots, or more edges."""
        if to is None or all(to) or edges.number is not None:
            return edges
        if self._some is None or self._some[0] != to:
            self._some = list(to), changes.towards(edges, to)
        return self._some[1]

    def before(self, i: int) -> dict[str, Any]:
        """Return the aggregates that step i sees."""
        final = self.get(f"final {i - 1}")
        return {name: final[name] for name in self.program.aggregates}

    def masked(self, i: int) -> bool:
        """Say whether step i is masked."""
        return bool(self.program.masked(Context(i, self.n, self.before(i), None)))

    def logged(self, i: int | None = None) -> int:
        """Return the number of bytes that are logged, for one step or for all."""
        names = [(f"{self.run} {kind} " if i is None else f"{self.run} {kind} {i} ")
                 for kind in ("state", "sent")] if self.logs else []
        found = [value.nbytes for key, value in self.kept.items() if key.startswith(tuple(names))]
        return sum(found)

    # -- checkpoints --------------------------------------------------------------------------

    def save(self, i: int) -> None:
        """Put step i, which is fully committed, into the next checkpoint."""
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
        self.saved.put("at", np.array([self.run, i, self.identity]))

    def trim(self, i: int) -> None:
        """Delete the logs up to step i, since a checkpoint of that step is committed."""
        for key in list(self.kept):
            run, kind, number, *_ = [*key.split(), "", ""]
            if run == str(self.run) and (
                    (kind == "sent" and int(number) <= i)
                    or (kind == "state" and int(number) <= i and int(number) != self.step)
                    or (kind == "final" and int(number) < i - 1)):
                del self.kept[key]

    def conclude(self, *, ended: bool) -> None:
        """Put the result, and nothing else of the run, into the next checkpoint."""
        self.put_result(self.fields(), ended=ended)
        for name in (*(f"field {name}" for name in self.program.fields), "active", "computed",
                     "finals", "changes", "values", "got", "pointers", "at"):
            self.saved.drop(name)


def rows_of(computed: Mask) -> Ints:
    """Return the vertices of a mask, ascending."""
    return np.arange(len(computed)) if computed.all() else np.flatnonzero(computed)
