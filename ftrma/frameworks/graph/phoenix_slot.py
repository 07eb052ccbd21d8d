"""The rounds of one slot, and how it comes back after a failure: Phoenix, and ``cr``.

In a round active vertices operate, which changes their own values and ghosts. Then ghosts go to the
owners and mirrored values to the ghosts, and all slots meet. If that changes the value of a vertex,
the vertex is active in the next round. The run ends with a round in which no vertex was active.

After a failure all slots begin a new attempt. With ``phoenix`` they go on from the state that the
survivors have:

1. The vertices of a fresh slot are as `init` makes and activates them; or they are as a checkpoint
   has them, and all are active.
2. All ghosts are reduced into the owners' values, and a vertex that this changes is active. For
   values that are only mirrored, a fresh owner takes them from the ghosts. Then owners fill the
   mirrors.
3. In a globally correcting program `reinit`, `recompute` and an exchange make the derived fields of
   all vertices again; all vertices are active.
4. A round is taken, whichever vertices are active. Aggregates begin anew, so a program that has
   aggregates takes a second round.

With ``cr`` all slots go back to the checkpoint, or to the beginning.

Laws:

* A ghost of an idempotent field holds all that this slot has ever pushed to it, until the run ends.
* A vertex is active until it has operated.
* Steps 1 to 4 are taken in each attempt, even if no slot was lost, since the previous attempt may
  have ended in the middle of a round.
* A slot counts as fresh until its ghosts are filled.

Nothing here communicates: `phoenix_runner` does that.

Source: Phoenix, sections 4.2 to 4.5. Unlike there, an owner that was not lost keeps the value of a
field that only it writes, and `reinit` sees labels that have been repaired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import phoenix_lanes
from .messages import Contributions
from .phoenix_lanes import HEAD_BYTES, Bytes, Piece
from .phoenix_program import (
    COUNTS,
    Block,
    GloballyCorrecting,
    PhoenixProgram,
    Round,
    SelfStabilizing,
)
from .references import AnyArray, Ints, Mask
from .runner import NotEnded, SlotState, check_identity, forget

RECOVERIES = ("phoenix", "cr")
# A slot has of a run: nothing; no result, since it was given up; its result; the whole state.
FRESH, STOPPED, ENDED, KEPT = range(4)
ACTIVE, DUE = COUNTS  # sums of a round, in addition to the aggregates

Level = tuple[int, int]  # what a slot has of a run, one of these four; and after which round
Received = tuple[Mapping[str, Piece], Mapping[str, Piece]]  # pushed, mirrored


def level(kept: Mapping[str, Any], run: int, identity: int) -> Level:
    """Tell how much this process has of a run, and after which round.

    Raises:
        RuntimeError: the run was of another program.
    """
    if f"{run} what" not in kept:
        return FRESH, 0
    check_identity(run, identity, kept[f"{run} what"])
    if f"{run} round" not in kept:
        return STOPPED, 0
    return KEPT if f"{run} active" in kept else ENDED, int(kept[f"{run} round"])


def kept_result(program: PhoenixProgram, kept: Mapping[str, Any], run: int,
                levels: Sequence[Level]) -> dict[str, AnyArray] | None:
    """Return the result of a run, or None unless all slots have kept their parts.

    Args:
        levels: the levels of all slots, see `level`.

    Raises:
        NotEnded: the run was given up.
    """
    states = {state for state, _ in levels}
    if STOPPED in states:
        raise NotEnded(f"run {run} has not ended after as many rounds as it may take")
    if states == {ENDED}:
        return {name: kept[f"{run} field {name}"].copy() for name in program.fields}
    return None


@dataclass
class PhoenixSlot(SlotState[PhoenixProgram]):
    """One slot's part in a run of a program of Phoenix.

    Attributes:
        rows: for each slot, the own vertices of which it has ghosts, in the order of its ghosts.
        levels: what each slot has of the run when this attempt begins, see `level`.
    """

    counts: ClassVar = COUNTS

    levels: Sequence[Level] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = self.program.fields
        self.final: AnyArray = self.nothing()
        self.pushed = [name for name, field in fields.items() if field.reduce is not None]
        self.mirrored = [name for name, field in fields.items() if field.mirror]
        self.lasting = [name for name, field in fields.items() if field.idempotent or field.mirror]
        self.state, _ = level(self.kept, self.run, self.identity)
        # Rounds that an attempt takes at least; in the first one aggregates are 0.
        self.least = 2 if self.program.aggregates else 1

    @property
    def everywhere(self) -> bool:
        """True if all vertices operate in each round."""
        return isinstance(self.program, SelfStabilizing)

    # -- the begin of an attempt --------------------------------------------------------------

    def resume(self) -> None:
        """Set fields, ghosts and active vertices: those kept, those of a checkpoint, or new ones.
        """
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
        # The values that were last sent: those of ghosts that are never reset, and to mirrors.
        self.sent = {name: array.copy() for name, array in self.ghosts.items()
                     if declared[name].idempotent}
        self.told = {name: self.fields[name].copy() for name in self.mirrored}
        if self.state == KEPT:
            self.ghosts = {name: self.kept[f"{self.run} ghost {name}"] for name in self.ghosts}
            self.active = self.kept[f"{self.run} active"]

    def mends(self) -> bool:
        """Say whether the states of the slots have to be mended, so that they fit each other."""
        return self.recovery == "phoenix" and not self.begins

    def mend(self, received: Sequence[Received]) -> None:
        """Take the values of ghosts, of the slots that were not lost, into own fields."""
        for name in self.lasting:
            field = self.program.fields[name]
            by, values = field.recover or field.reduce, self.fields[name]
            had = np.zeros(len(values), bool)
            for rows, (ghosts, _), (state, _) in zip(self.rows, received, self.levels, strict=True):
                if state != KEPT:
                    continue
                at, theirs = ghosts[name]
                rows = rows[at]
                if field.reduce is not None:
                    self._reduce(name, by, rows, theirs)
                elif self.state == FRESH:
                    both = by(values[rows], theirs) if by else values[rows]
                    self._set(name, rows, np.where(had[rows], both, theirs))
                    had[rows] = True

    def keep_all(self) -> None:
        """Keep the whole state of the run from now on."""
        if self.recovery == "phoenix":
            self.keep({f"field {name}": array for name, array in self.fields.items()})
            self.keep({f"ghost {name}": array for name, array in self.ghosts.items()})
            self.keep({"round": self.round, "active": self.active, "what": self.identity})

    def derive(self) -> None:
        """Make the derived fields of all vertices anew."""
        assert isinstance(self.program, GloballyCorrecting)
        self.clear()
        self._apply(self.program.reinit)
        self.active[...] = True
        rows = np.arange(len(self.part.ids))
        block = self._block(rows, self.ghosts)
        self.program.recompute(block, self._context(Contributions({})))
        self._write(rows, block)

    # -- a round ------------------------------------------------------------------------------

    def operate(self) -> AnyArray:
        """Let active vertices operate; return this slot's part of the sums of the round."""
        rows = np.arange(len(self.part.ids)) if self.everywhere else np.flatnonzero(self.active)
        contributed = Contributions(self.aggregates)
        self.round += 1
        block = self._block(rows, self.ghosts)
        if len(rows):
            self.program.operate(block, self._context(contributed))
        self._write(rows, block)
        self.active[...] = False
        self.active[rows[block._active]] = True
        partial = self.nothing()
        for name, value in contributed.values.items():
            partial[name] = value
        partial[ACTIVE] = block._active.sum() if self.everywhere else len(rows)
        return partial

    def finish(self, received: Sequence[Received], final: AnyArray) -> None:
        """Take over the values and sums of all slots at the end of a round."""
        self.fold(received)
        self.mirror(received)
        self.final = final
        if self.recovery == "phoenix":
            self.keep({"round": self.round})

    def fold(self, received: Sequence[Received]) -> None:
        """Reduce what was pushed into own values, in the order of the slots."""
        for name in self.pushed:
            for rows, (ghosts, _) in zip(self.rows, received, strict=True):
                at, theirs = ghosts[name]
                self._reduce(name, self.program.fields[name].reduce, rows[at], theirs)
        self.clear()

    def mirror(self, received: Sequence[Received]) -> None:
        """Fill the mirrors with the values of the owners."""
        for name in self.mirrored:
            field = self.program.fields[name]
            for slot, (_, values) in enumerate(received):
                mine, (at, theirs) = self.ghosts[name][self.part.to(slot)], values[name]
                mine[at] = field.reduce(mine[at], theirs) if field.reduce else theirs

    def clear(self) -> None:
        """Reset the ghosts whose pushes add up; the others are never reset."""
        for name in self.pushed:
            field = self.program.fields[name]
            if not field.idempotent:
                self.ghosts[name][...] = field.neutral()

    # -- lanes --------------------------------------------------------------------------------

    def lanes(self, up: Sequence[str], down: Sequence[str], *, whole: bool) -> list[Bytes]:
        """Return the bytes for each slot: ghosts of its vertices, then own values for its ghosts.

        Args:
            whole: send all of them; if false, only those that have changed since they were sent.
        """
        ghosts = {name: None if whole else self._unsent(name) for name in up}
        mine = {name: None if whole else self.fields[name] != self.told[name] for name in down}
        found = []
        for slot, rows in enumerate(self.rows):
            at = self.part.to(slot)
            pieces = [(self.ghosts[name][at], None if some is None else some[at])
                      for name, some in ghosts.items()]
            pieces += [(self.fields[name][rows], None if some is None else some[rows])
                       for name, some in mine.items()]
            found.append(phoenix_lanes.pack(pieces))
        for now, before, changed in ((self.ghosts, self.sent, ghosts),
                                     (self.fields, self.told, mine)):
            for name, some in changed.items():
                if name in before:
                    np.copyto(before[name], now[name], where=True if some is None else some)
        return found

    def _unsent(self, name: str) -> Mask:
        """Return a mask of the ghosts whose values their owners do not know."""
        before = self.sent[name] if name in self.sent else self.program.fields[name].neutral()
        found: Mask = self.ghosts[name] != before
        return found

    def unpack(self, lanes: Sequence[Bytes], up: Sequence[str],
               down: Sequence[str]) -> list[Received]:
        """Return the values that the lanes of all slots have for this slot."""
        kinds, found = self.program.fields, list[Received]()
        for slot, (rows, lane) in enumerate(zip(self.rows, lanes, strict=True)):
            at = self.part.to(slot)
            sizes = [len(rows)] * len(up) + [at.stop - at.start] * len(down)
            pieces = phoenix_lanes.unpack(lane, [
                (kinds[name].dtype, size) for name, size in zip((*up, *down), sizes, strict=True)])
            found.append((dict(zip(up, pieces[: len(up)], strict=True)),
                          dict(zip(down, pieces[len(up) :], strict=True))))
        return found

    def room(self) -> list[int]:
        """Return the most bytes that each slot's lane to this slot needs."""
        kinds = {name: np.dtype(field.dtype).itemsize for name, field
                 in self.program.fields.items()}
        up = sum(kinds[name] for name in {*self.pushed, *self.lasting})
        down = sum(kinds[name] for name in self.mirrored)
        mine = [self.part.to(slot) for slot in range(len(self.rows))]
        head = HEAD_BYTES * len([*{*self.pushed, *self.lasting}, *self.mirrored])
        return [head + up * len(rows) + down * (at.stop - at.start)
                for rows, at in zip(self.rows, mine, strict=True)]

    # -- checkpoints and the end --------------------------------------------------------------

    def labels(self) -> list[str]:
        """Return the fields that a checkpoint has: those that cannot be made again."""
        return [name for name, field in self.program.fields.items()
                if self.recovery == "cr" or not field.derived]

    def save(self) -> None:
        """Put the state after this round into the next checkpoint."""
        for name in self.labels():
            self.saved.put(f"field {name}", self.fields[name])
        if self.recovery == "cr":
            self.saved.put("active", self.active)
            self.saved.put("final", self.final.reshape(1))
        self.saved.put("at", np.array([self.run, self.round, self.identity]))

    def conclude(self, *, ended: bool) -> dict[str, AnyArray]:
        """Keep the result, and nothing else of the run; with ``cr`` put it into a checkpoint.

        Returns:
            The result.
        """
        result = {name: array.copy() for name, array in self.fields.items()}
        for name in (*(f"field {name}" for name in result), "active", "final", "at"):
            self.saved.drop(name)
        if self.recovery == "cr":
            self.put_result(result, ended=ended)
            return result
        forget(self.kept, f"{self.run} ")
        if ended:
            self.keep({f"field {name}": array for name, array in self.fields.items()})
            self.keep({"round": self.round})
        self.keep({"what": self.identity})
        return result

    # -- parts of the methods above -----------------------------------------------------------

    def _context(self, contributed: Contributions) -> Round:
        before = {name: self.final[name] for name in self.program.aggregates}
        return Round(self.round, self.n, before, contributed)

    def _block(self, rows: Ints, ghosts: Mapping[str, AnyArray] | None) -> Block:
        values = {name: array[rows] for name, array in self.fields.items()}
        return Block(self.program, self.part, values, rows, ghosts)

    def _write(self, rows: Ints, block: Block) -> None:
        for name, array in self.fields.items():
            array[rows] = block._values[name]

    def _apply(self, method: Any) -> None:
        """Call a method of the program for all vertices that needs no other vertices."""
        rows = np.arange(len(self.part.ids))
        block = self._block(rows, None)
        method(block)
        self._write(rows, block)
        self.active |= block._active

    def _reduce(self, name: str, by: Any, rows: Ints, theirs: AnyArray) -> None:
        self._set(name, rows, by(self.fields[name][rows], theirs))

    def _set(self, name: str, rows: Ints, values: AnyArray) -> None:
        """Give own vertices new values; a vertex that this changes is active."""
        changed = self.fields[name][rows] != values
        self.active[rows[changed]] = True
        self.fields[name][rows] = values
