"""Rounds of one slot, and how it comes back: Phoenix, and what it is compared with.

In a round active vertices operate, which changes their own values and ghosts; ghosts and mirrored
values go to where they belong, all meet, and whose value that changes is active in the next round.
The run ends when nobody was.

A failure is an entry anew. ``phoenix`` goes on from what the survivors have:

1. A fresh slot's vertices are as `init` makes them, or as a checkpoint has them and all active.
2. Ghosts are reduced into the owners' values, all of them, and whom that changes is active; a fresh
   owner takes values that are only mirrored from the ghosts. Then owners fill the mirrors.
3. In a globally-correcting program derived fields are made again, of all vertices, by `reinit`,
   `recompute` and a sync; all are active.
4. A round is taken, whoever is active: another where there are aggregates, which begin anew.

With ``cr`` all slots go back to the checkpoint, or to the begin.

Laws: a ghost of an idempotent field holds all that this slot has ever pushed to it, until the run
ends. Who is active is forgotten only by having operated. All this is done at each entry, even if
no slot was lost: half of a round may have passed. A fresh slot counts as one until its ghosts are
filled.

Nothing here communicates: that is `PhoenixTransport`'s business.

Source: Phoenix, sections 4.2 to 4.5. Other than there, an owner that was not lost keeps the value
of a field that only it writes, and `reinit` sees labels that have been repaired.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .parts import Part
from .phoenix_program import (
    COUNTS,
    Block,
    GloballyCorrecting,
    PhoenixProgram,
    Round,
    SelfStabilizing,
)
from .pregel_runner import NotEnded, Saved, StepReport, check_what, forget
from .references import AnyArray, Ints

RECOVERIES = ("phoenix", "cr")
FRESH, STOPPED, ENDED, KEPT = range(4)  # what a slot has of a run: nothing, no result, one, all
ACTIVE, DUE = COUNTS  # in what all add up in a round, behind the aggregates

Bytes = npt.NDArray[np.uint8]
Level = tuple[int, int]  # of these four, and the round
Received = tuple[Mapping[str, AnyArray], Mapping[str, AnyArray]]  # pushed, mirrored


class PhoenixTransport(Protocol):
    """How a slot reaches the others, and the job."""

    def send(self, turn: int, lanes: Sequence[Bytes]) -> None:
        """Send each slot something; turns count from 0 in each entry."""

    def meet(self, partial: AnyArray) -> list[AnyArray]:
        """All of the turn is there; what each slot adds."""

    def incoming(self, turn: int) -> list[Bytes]:
        """What each slot has sent; more bytes may follow."""

    def due(self) -> bool:
        """A checkpoint is due by time, as this slot sees it."""

    def checkpoint(self) -> int:
        """Take one; its version, which will be committed or undone; 0: none was."""

    def confirm(self, version: int) -> bool:
        """Wait until a version is committed; False: it was undone."""

    def place(self, name: str) -> None:
        """Be where tests may strike."""

    def tell(self, report: StepReport) -> None:
        """A round has been taken."""


def level(kept: Mapping[str, Any], run: int, what: int) -> Level:
    """What this process has of a run, and after which round.

    Raises:
        RuntimeError: that was a run of something else.
    """
    if f"{run} what" not in kept:
        return FRESH, 0
    check_what(run, what, kept[f"{run} what"])
    if f"{run} round" not in kept:
        return STOPPED, 0
    return KEPT if f"{run} active" in kept else ENDED, int(kept[f"{run} round"])


def concluded(program: PhoenixProgram, kept: Mapping[str, Any], run: int,
              levels: Sequence[Level]) -> dict[str, AnyArray] | None:
    """The result of a run that no slot has to come by again.

    Raises:
        NotEnded: the run has ended so.
    """
    states = {state for state, _ in levels}
    if STOPPED in states:
        raise NotEnded(f"run {run} has not ended after as many rounds as it may take")
    if states == {ENDED}:
        return {name: kept[f"{run} field {name}"].copy() for name in program.fields}
    return None


@dataclass
class PhoenixSlot:
    """One slot's part in a run of a program.

    Attributes:
        program, part: what is run, on what.
        n: vertices of the graph.
        rows: own vertices that each slot has ghosts of, in the order of its ghosts.
        recovery: one of RECOVERIES.
        kept: what survives in this process.
        saved: what checkpoints have.
        run: number of the run in the job, from 1.
        what: a number for what is run on what; a run that is gone on with is of the same.
        levels: what each slot has of the run at this entry.
    """

    program: PhoenixProgram
    part: Part
    n: int
    rows: Sequence[Ints]
    recovery: str
    kept: MutableMapping[str, Any]
    saved: Saved
    run: int
    what: int
    levels: Sequence[Level]

    def __post_init__(self) -> None:
        fields = self.program.fields
        self.form = np.dtype([*((name, np.dtype(kind)) for name, kind
                                in self.program.aggregates.items()),
                              *((name, np.dtype(np.int64)) for name in COUNTS)])
        self.final: AnyArray = np.zeros((), self.form)
        self.pushed = [name for name, field in fields.items() if field.reduce is not None]
        self.mirrored = [name for name, field in fields.items() if field.mirror]
        self.lasting = [name for name, field in fields.items() if field.idempotent or field.mirror]
        self.state, _ = level(self.kept, self.run, self.what)
        # Rounds of an entry, whoever is active; in the first one aggregates are 0.
        self.least = 2 if self.program.aggregates else 1

    @property
    def everywhere(self) -> bool:
        """All vertices operate in each round."""
        return isinstance(self.program, SelfStabilizing)

    # -- entering -----------------------------------------------------------------------------

    def resume(self) -> None:
        """Have fields, ghosts and who is active: kept, of a checkpoint, or as they begin."""
        size, declared = len(self.part.ids), self.program.fields
        at = self.checkpointed()
        self.round = max(at, *(i for _, i in self.levels))
        self.begins = at == 0 and all(state == FRESH for state, _ in self.levels)
        self.fields: dict[str, AnyArray] = {name: np.zeros(size, field.dtype)
                                            for name, field in declared.items()}
        self.ghosts: dict[str, AnyArray] = {
            name: np.full(len(self.part.targets), field.neutral(), field.dtype)
            for name, field in declared.items() if field.mirror or field.reduce is not None}
        self.active = np.ones(size, bool)
        if self.state != FRESH:
            self.fields = {name: self.kept[f"{self.run} field {name}"] for name in declared}
        elif at:
            for name in self.labels():
                self.fields[name][...] = self.saved.read(f"field {name}")
            if self.recovery == "cr":
                self.active[...] = self.saved.read("active")
                self.final = self.saved.read("final").copy().reshape(())
        else:
            self.active[...] = False
            self._apply(self.program.init)
        if self.state == KEPT:
            self.ghosts = {name: self.kept[f"{self.run} ghost {name}"] for name in self.ghosts}
            self.active = self.kept[f"{self.run} active"]

    def mends(self) -> bool:
        """What the slots have has to be made fit each other."""
        return self.recovery == "phoenix" and not self.begins

    def mend(self, received: Sequence[Received]) -> None:
        """Take what ghosts have that were not lost."""
        for name in self.lasting:
            field = self.program.fields[name]
            by, values = field.recover or field.reduce, self.fields[name]
            had = np.zeros(len(values), bool)
            for rows, (ghosts, _), (state, _) in zip(self.rows, received, self.levels, strict=True):
                if state != KEPT:
                    continue
                if field.reduce is not None:
                    self._reduce(name, by, rows, ghosts[name])
                elif self.state == FRESH:
                    theirs = ghosts[name]
                    both = by(values[rows], theirs) if by else values[rows]
                    self._set(name, rows, np.where(had[rows], both, theirs))
                    had[rows] = True

    def settle(self) -> None:
        """From here on this slot has all of the run."""
        if self.recovery == "phoenix":
            self.keep({f"field {name}": array for name, array in self.fields.items()})
            self.keep({f"ghost {name}": array for name, array in self.ghosts.items()})
            self.keep({"round": self.round, "active": self.active, "what": self.what})

    def derive(self) -> None:
        """Begin derived fields again, of all vertices."""
        assert isinstance(self.program, GloballyCorrecting)
        self.clear()
        self._apply(self.program.reinit)
        self.active[...] = True
        rows = np.arange(len(self.part.ids))
        block = self._block(rows, self.ghosts)
        self.program.recompute(block, self._context({}))
        self._write(rows, block)

    # -- a round ------------------------------------------------------------------------------

    def operate(self) -> AnyArray:
        """Have active vertices operate; what this slot adds to the round's sums."""
        rows = np.arange(len(self.part.ids)) if self.everywhere else np.flatnonzero(self.active)
        contributed = {name: np.dtype(kind).type(0) for name, kind
                       in self.program.aggregates.items()}
        self.round += 1
        block = self._block(rows, self.ghosts)
        if len(rows):
            self.program.operate(block, self._context(contributed))
        self._write(rows, block)
        self.active[...] = False
        self.active[rows[block._active]] = True
        partial: AnyArray = np.zeros((), self.form)
        for name, value in contributed.items():
            partial[name] = value
        partial[ACTIVE] = block._active.sum() if self.everywhere else len(rows)
        return partial

    def finish(self, received: Sequence[Received], final: AnyArray) -> None:
        """Have what all have done in a round."""
        self.fold(received)
        self.mirror(received)
        self.final = final
        if self.recovery == "phoenix":
            self.keep({"round": self.round})

    def fold(self, received: Sequence[Received]) -> None:
        """Reduce into own values what was pushed, in the order of the slots."""
        for name in self.pushed:
            for rows, (ghosts, _) in zip(self.rows, received, strict=True):
                self._reduce(name, self.program.fields[name].reduce, rows, ghosts[name])
        self.clear()

    def mirror(self, received: Sequence[Received]) -> None:
        """Take over what owners have."""
        for name in self.mirrored:
            field = self.program.fields[name]
            for slot, (_, values) in enumerate(received):
                mine = self.ghosts[name][self.part.to(slot)]
                mine[...] = field.reduce(mine, values[name]) if field.reduce else values[name]

    def clear(self) -> None:
        """Ghosts that add up begin again; the others are never reset."""
        for name in self.pushed:
            field = self.program.fields[name]
            if not field.idempotent:
                self.ghosts[name][...] = field.neutral()

    # -- lanes --------------------------------------------------------------------------------

    def lanes(self, up: Sequence[str], down: Sequence[str]) -> list[Bytes]:
        """For each slot what is sent: ghosts of its vertices, then own values for its ghosts."""
        found = []
        for slot, rows in enumerate(self.rows):
            pieces = [self.ghosts[name][self.part.to(slot)] for name in up]
            pieces += [self.fields[name][rows] for name in down]
            found.append(np.concatenate([np.zeros(0, "u1"), *(p.view("u1") for p in pieces)]))
        return found

    def unpack(self, lanes: Sequence[Bytes], up: Sequence[str],
               down: Sequence[str]) -> list[Received]:
        """What `lanes` of all slots have for this one."""
        found = []
        for slot, (rows, lane) in enumerate(zip(self.rows, lanes, strict=True)):
            ghosts, rest = self._cut(lane, up, len(rows))
            mine = self.part.to(slot)
            found.append((ghosts, self._cut(rest, down, mine.stop - mine.start)[0]))
        return found

    def _cut(self, lane: Bytes, names: Sequence[str],
             size: int) -> tuple[Mapping[str, AnyArray], Bytes]:
        """So many values of each field, and what follows."""
        found: dict[str, AnyArray] = {}
        for name in names:
            kind = np.dtype(self.program.fields[name].dtype)
            length = size * kind.itemsize
            found[name], lane = lane[:length].copy().view(kind), lane[length:]
        return found, lane

    def room(self) -> list[int]:
        """Bytes that each slot's lane to this one needs at most."""
        kinds = {name: np.dtype(field.dtype).itemsize for name, field
                 in self.program.fields.items()}
        up = sum(kinds[name] for name in {*self.pushed, *self.lasting})
        down = sum(kinds[name] for name in self.mirrored)
        mine = [self.part.to(slot) for slot in range(len(self.rows))]
        return [up * len(rows) + down * (at.stop - at.start)
                for rows, at in zip(self.rows, mine, strict=True)]

    # -- checkpoints and the end --------------------------------------------------------------

    def labels(self) -> list[str]:
        """Fields that a checkpoint has: those that cannot be made again."""
        return [name for name, field in self.program.fields.items()
                if self.recovery == "cr" or not field.derived]

    def checkpointed(self) -> int:
        """Round of the newest checkpoint of this run; 0: there is none."""
        if "at" not in self.saved:
            return 0
        run, i, what = (int(x) for x in self.saved.read("at"))
        if run != self.run:
            return 0
        check_what(run, self.what, what)
        return i

    def save(self) -> None:
        """Have the next checkpoint hold this round."""
        for name in self.labels():
            self.saved.put(f"field {name}", self.fields[name])
        if self.recovery == "cr":
            self.saved.put("active", self.active)
            self.saved.put("final", self.final.reshape(1))
        self.saved.put("at", np.array([self.run, self.round, self.what]))

    def conclude(self, *, ended: bool) -> dict[str, AnyArray]:
        """Leave the result behind, and nothing else of the run; with cr in the next checkpoint."""
        result = {name: array.copy() for name, array in self.fields.items()}
        for name in (*(f"field {name}" for name in result), "active", "final", "at"):
            self.saved.drop(name)
        if self.recovery == "cr":
            for name, array in result.items():
                self.saved.put(f"result {self.run} field {name}", array, "static")
            self.saved.put(f"result {self.run}", np.array([self.what, ended]), "static")
            return result
        forget(self.kept, f"{self.run} ")
        if ended:
            self.keep({f"field {name}": array for name, array in self.fields.items()})
            self.keep({"round": self.round})
        self.keep({"what": self.what})
        return result

    # -- how it does it -----------------------------------------------------------------------

    def keep(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.kept[f"{self.run} {name}"] = value

    def _context(self, contributed: dict[str, Any]) -> Round:
        before = {name: self.final[name] for name in self.program.aggregates}
        return Round(self.round, self.n, before, contributed)

    def _block(self, rows: Ints, ghosts: Mapping[str, AnyArray] | None) -> Block:
        values = {name: array[rows] for name, array in self.fields.items()}
        return Block(self.program, self.part, values, rows, ghosts)

    def _write(self, rows: Ints, block: Block) -> None:
        for name, array in self.fields.items():
            array[rows] = block._values[name]

    def _apply(self, method: Any) -> None:
        """Have all vertices do what needs no others."""
        rows = np.arange(len(self.part.ids))
        block = self._block(rows, None)
        method(block)
        self._write(rows, block)
        self.active |= block._active

    def _reduce(self, name: str, by: Any, rows: Ints, theirs: AnyArray) -> None:
        self._set(name, rows, by(self.fields[name][rows], theirs))

    def _set(self, name: str, rows: Ints, values: AnyArray) -> None:
        """Own vertices have new values, and are active if that changes them."""
        changed = self.fields[name][rows] != values
        self.active[rows[changed]] = True
        self.fields[name][rows] = values


def run(slot: PhoenixSlot, way: PhoenixTransport, *, every: int, most: int) -> dict[str, AnyArray]:
    """Run a program to its end, from its begin or from where it was.

    Args:
        every: rounds between checkpoints; 0: none, but with cr that of the result.
        most: rounds of an entry after which it is stopped.

    Returns:
        The slot's fields.

    Raises:
        NotEnded: it has not ended by then.
    """
    turns = itertools.count()

    def exchange(up: Sequence[str], down: Sequence[str], partial: AnyArray, before: str,
                 after: str) -> tuple[AnyArray, list[Received]]:
        turn = next(turns)
        way.place(before)
        way.send(turn, slot.lanes(up, down))
        final = total(way.meet(partial))
        way.place(after)
        return final, slot.unpack(way.incoming(turn), up, down)

    def sync(up: Sequence[str], down: Sequence[str]) -> list[Received]:
        return exchange(up, down, np.zeros((), slot.form), "recover", "recover")[1]

    way.place("recover")
    slot.resume()
    if slot.mends():
        slot.mend(sync(slot.lasting, ()))
    if slot.mirrored:
        slot.mirror(sync((), slot.mirrored))
    slot.settle()
    if slot.mends() and isinstance(slot.program, GloballyCorrecting):
        slot.derive()
        slot.fold(sync(slot.pushed, ()))
    for taken in itertools.count(1):
        report = StepReport(slot.round + 1, "normal", forwarded=False)
        began = time.monotonic()
        way.place("compute")
        partial = slot.operate()
        partial[DUE] = way.due()
        report.sending_s = time.monotonic() - began
        final, received = exchange(slot.pushed, slot.mirrored, partial, "exchange", "sync")
        slot.finish(received, final)
        report.seconds, report.active = time.monotonic() - began, int(final[ACTIVE])
        ended = not final[ACTIVE] and taken >= slot.least
        over = ended or taken >= most
        if not over and (final[DUE] or (every and slot.round % every == 0)):
            slot.save()
            way.checkpoint()
            report.saving_s = time.monotonic() - began - report.seconds
        way.tell(report)
        if over:
            break
    result = slot.conclude(ended=ended)
    while True:
        version = way.checkpoint() if slot.recovery == "cr" else 0
        way.place("end")
        if slot.recovery != "cr" or way.confirm(version):
            break
    if not ended:
        raise NotEnded(f"the program has not ended after {most} rounds")
    return result


def total(partials: Sequence[AnyArray]) -> AnyArray:
    """What all have added up in a round, in the order of the slots."""
    found = np.zeros((), partials[0].dtype)
    for partial in partials:
        for name in found.dtype.names or ():
            found[name] += partial[name]
    return found
