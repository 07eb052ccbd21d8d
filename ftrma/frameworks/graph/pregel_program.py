"""The classes by which vertex programs are written: blocks of vertices, messages, the context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from . import changes
from .changes import CHANGE, Changes, Edges, SlotEdges
from .fitting import fitted
from .messages import (
    Contributions,
    Received,
    Sending,
    Weighing,
    check_aggregates,
    check_dtypes,
    has_neutral,
)
from .references import AnyArray, Ints, Mask


class VertexProgram:
    """A program in steps: `update` sets the fields of vertices, then `emit` sends messages.

    `emit` computes the messages from the fields alone. A checkpoint has the fields, so messages
    need not be saved: they are emitted again. Subclasses set the attributes and define both
    methods, which get a block of vertices at a time. A step whose messages do not follow from the
    fields is `masked`: there `compute` is called instead of both.

    Attributes:
        fields: name and dtype of each field of a vertex; fields are 0 at first.
        message: dtype of a message; without a combiner it may have several named parts.
        combine: combines two messages to the same vertex into one: a NumPy ufunc such as np.add;
            None: messages are listed.
        aggregates: name and dtype of sums over all vertices; or, instead of the dtype, a pair of it
            and another ufunc than np.add, such as np.maximum or np.logical_or. A step sees what was
            contributed in the previous step.
        seed: seed of `Context.random`.

    Source: "Lightweight Fault Tolerance in Large-Scale Distributed Graph Processing", eq. 1 to 3.
    """

    fields: ClassVar[Mapping[str, npt.DTypeLike]] = {}
    message: ClassVar[npt.DTypeLike] = float
    combine: ClassVar[np.ufunc | None] = np.add
    aggregates: ClassVar[Mapping[str, Any]] = {}
    seed: ClassVar[int] = 0

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        """Set the fields of the vertices that compute.

        In step 1 these are all vertices, later those that have got a message or have not voted to
        halt.
        """
        raise NotImplementedError

    def emit(self, v: Vertices, ctx: Context) -> None:
        """Send messages that follow from the fields after `update` alone; read nothing else."""
        raise NotImplementedError

    def masked(self, ctx: Context) -> bool:
        """Say whether `compute` is called in this step, from its number and the aggregates alone.

        All slots must return the same.
        """
        return ways(self) == (False, True)

    def compute(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        """Set fields, and send messages that may depend on those received.

        The messages of such a step are logged, and no light checkpoint is taken in it.
        """
        raise NotImplementedError


def ways(program: VertexProgram) -> tuple[bool, bool]:
    """Return whether the program has `update` and `emit`, and whether it has `compute`."""
    own = type(program)
    return (own.update is not VertexProgram.update and own.emit is not VertexProgram.emit,
            own.compute is not VertexProgram.compute)


class Context:
    """The step in which a program is.

    Attributes:
        step: number of the step, from 1.
        n: number of vertices of the graph.
    """

    def __init__(self, step: int, n: int, before: Mapping[str, Any],
                 contributed: Contributions | None, seed: int = 0) -> None:
        self.step, self.n, self._before, self._contributed = step, n, before, contributed
        self._seed, self._stop, self._wake = seed, False, False

    def __getitem__(self, name: str) -> Any:
        """Return the sum of what all slots have contributed to an aggregate in the previous step.

        In step 1 it is 0; with another combiner than np.add, the neutral value of that.
        """
        return self._before[name]

    def contribute(self, name: str, value: Any) -> None:
        """Add a value to an aggregate; not allowed in `emit`.

        Raises:
            KeyError: there is no such aggregate.
            RuntimeError: called in `emit`, which may be called again.
            ValueError: the aggregate is of integers, and its dtype does not hold the value or the
                sum.
        """
        self._refuse_again(f"contribute({name!r})", "contribute")
        assert self._contributed is not None
        self._contributed.add(name, value)

    def stop(self) -> None:
        """End the run with this step, whichever vertices are active; not allowed in `emit`.

        Raises:
            RuntimeError: called in `emit`.
        """
        self._refuse_again("stop()", "stop")
        self._stop = True

    def wake_all(self) -> None:
        """Let all vertices compute in the next step, whatever they have voted; not in `emit`.

        Raises:
            RuntimeError: called in `emit`.
        """
        self._refuse_again("wake_all()", "wake them")
        self._wake = True

    def random(self, v: Vertices, draw: int = 0) -> npt.NDArray[np.float64]:
        """Return a random number in [0, 1) for each vertex of the block, (k,).

        It follows from the program's seed, the step, the vertex and `draw`, so it is the same if a
        step is taken again.

        Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators",
        OOPSLA 2014, for the mixing.
        """
        mixed = np.asarray(v.ids, np.uint64)
        for number in (self._seed, self.step, draw):
            mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number % (1 << 64))
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
        return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _refuse_again(self, call: str, what: str) -> None:
        if self._contributed is None:
            raise RuntimeError(f"{call} in emit(), which may be done again: {what} in update()")


class Inbox:
    """Messages to the block's vertices.

    Attributes:
        values: for each vertex the combination of its messages, or the combiner's neutral value if
            it has none, (k,). Without a combiner a list of all messages, ordered by vertex.
        got: mask of the vertices that have got a message, (k,).
        ptr: without a combiner: vertex j has values[ptr[j]:ptr[j + 1]], (k + 1,); else None.
    """

    def __init__(self, values: AnyArray, got: Mask, ptr: Ints | None = None) -> None:
        self.values, self.got, self.ptr = values, got, ptr


def inbox_of(received: Received, rows: Ints) -> Inbox:
    """Return the messages to some of a slot's vertices; the other vertices have got none."""
    if received.ptr is None and len(rows) == len(received.got):
        return Inbox(received.values, received.got)
    if received.ptr is None:
        return Inbox(received.values[rows], received.got[rows])
    ptr = np.concatenate([received.ptr[rows], received.ptr[-1:]])
    return Inbox(received.values, received.got[rows], ptr)


class Vertices:
    """A block of vertices. Fields are attributes: arrays with one value for each vertex.

    Attributes:
        ids: ids of the vertices, ascending.
        degree: number of edges that leave each vertex, (k,); read-only.
        edges: these edges. In `update` and `compute` they are as the previous step has left them.
    """

    def __init__(self, topology: SlotEdges, fields: dict[str, AnyArray], rows: Ints,
                 sending: Sending | None, n: int, before: Changes, *, writes: bool) -> None:
        block = {"_topology": topology, "_fields": fields, "_rows": rows, "_sending": sending,
                 "_n": n, "_before": before, "_writes": writes, "_changes": [], "_edges": None,
                 "_halted": np.zeros(len(rows), bool)}
        for name, value in block.items():
            object.__setattr__(self, name, value)

    _topology: SlotEdges
    _fields: dict[str, AnyArray]
    _rows: Ints
    _sending: Sending | None
    _n: int
    _before: Changes  # changes of edges by earlier steps
    _writes: bool
    _changes: list[Changes]
    _edges: Edges | None
    _halted: Mask

    @property
    def ids(self) -> Ints:
        return self._topology.part.ids[self._rows]

    @property
    def degree(self) -> Ints:
        found = self._topology.degree
        if len(found) > len(self._rows):
            found = found[self._rows]
            found.flags.writeable = False
        return found

    @property
    def edges(self) -> Edges:
        if self._edges is None:
            object.__setattr__(self, "_edges", Edges(self._topology, self._rows))
        assert self._edges is not None
        return self._edges

    @property
    def targets(self) -> Ints:
        """Ids of all vertices to which edges of the slot led at first; read-only."""
        return self._topology.part.targets

    @property
    def owners(self) -> Ints:
        """The slots that own the `targets`, ascending."""
        bounds = self._topology.part.bounds
        return np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> AnyArray:
        try:
            return self._fields[name]
        except KeyError:
            have = ", ".join(self._fields) or "none"
            raise AttributeError(f"vertices have no field {name!r}; fields are {have}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            have = ", ".join(self._fields) or "none"
            raise AttributeError(f"vertices have no field {name!r}; fields are {have}")
        if not self._writes:
            raise RuntimeError(f"emit() writes field {name!r}: it may be done again, so all that "
                               "changes is changed in update()")
        field = self._fields[name]
        field[...] = fitted(value, field.dtype, f"field {name!r}")

    def vote_to_halt(self, which: Mask | None = None) -> None:
        """Let vertices compute no more until they get a message; not allowed in `emit`.

        Args:
            which: mask of the vertices, (k,) bool; by default all of the block.

        Raises:
            RuntimeError: called in `emit`.
            ValueError: `which` is no mask of the block.
        """
        self._refuse_again("vote_to_halt()", "vote")
        self._halted[... if which is None else self._mask("vote_to_halt", which)] = True

    def drop_edges(self, which: Mask) -> None:
        """Remove edges of the block; messages of this step do not use them. Not in `emit`.

        Args:
            which: mask of `edges`, (m,) bool.

        Raises:
            RuntimeError: called in `emit`.
            ValueError: `which` is no mask of the edges.
        """
        self._refuse_again("drop_edges()", "drop them")
        mask, of = np.asarray(which), self.edges
        if mask.dtype != bool or mask.shape != of.row.shape:
            raise ValueError(f"drop_edges: a mask of {mask.dtype} and shape {mask.shape}; give "
                             f"bool, one for each of the block's {len(of)} edges")
        gone = np.zeros(int(mask.sum()), CHANGE)
        gone["edge"] = of.number[mask]
        self._changes.append(gone)

    def add_edges(self, rows: npt.ArrayLike, targets: npt.ArrayLike,
                  weight: npt.ArrayLike | None = None) -> None:
        """Add edges; messages of this step already use them. Not in `emit`.

        Args:
            rows: the sources of the edges, as places in the block.
            targets: ids of the vertices to which they lead, as many.
            weight: weight of each edge, or one for all, by default 1; only if the graph has
                weights.

        Raises:
            RuntimeError: called in `emit`.
            ValueError: there are no such vertices, or the graph has no weights.
        """
        self._refuse_again("add_edges()", "add them")
        row, target = (np.asarray(array, np.int64).ravel() for array in (rows, targets))
        if row.shape != target.shape:
            raise ValueError(f"add_edges: {len(row)} sources and {len(target)} targets")
        if len(row) and not 0 <= row.min() <= row.max() < len(self):
            raise ValueError(f"add_edges: places {row.min()} to {row.max()} in a block of "
                             f"{len(self)} vertices")
        self._check_ids("add_edges", target)
        if weight is not None and self._topology.weight is None:
            raise ValueError("add_edges: weights, and the graph has none")
        came = np.zeros(len(row), CHANGE)
        came["edge"], came["row"], came["target"] = -1, self._rows[row], target
        came["weight"] = 1 if weight is None else weight
        if np.isnan(came["weight"]).any():
            raise ValueError("add_edges: the weight of an edge is NaN")
        self._changes.append(came)

    def send(self, values: Any, *, weight: Weighing | None = None,
             where: Mask | None = None) -> None:
        """Send the value of each vertex along all of its edges; not allowed in `update`.

        Args:
            values: one value for each vertex, (k,), or one for all.
            weight: "plus" or "times": the edge's weight is added to the value, or multiplies it; or
                a function that returns the messages for arrays of the senders' values and of the
                weights, edge by edge.
            where: mask of the vertices that send, (k,) bool; by default all.

        Raises:
            RuntimeError: called in `update`.
            ValueError: there is no such use of weights, the graph has no weights, or `where` is no
                mask of the block.
        """
        sending = self._to_send("send()")
        values, rows = np.broadcast_to(values, self._rows.shape), self._rows
        if where is not None:
            mask = self._mask("send", where)
            values, rows = values[mask], rows[mask]
        if self._changes:  # by this compute()
            sending.topology = changes.topology(self._topology.part,
                                                np.concatenate([self._before, *self._changes]))
        sending.along(rows, values, weight)

    def send_to(self, ids: npt.ArrayLike, values: Any) -> None:
        """Send messages to any vertices; not allowed in `update`.

        Args:
            ids: ids of the targets, (m,); a vertex is named once for each message to it.
            values: one value for each target, (m,), or one for all.

        Raises:
            RuntimeError: called in `update`.
            ValueError: there are no such vertices.
        """
        sending, to = self._to_send("send_to()"), np.array(ids, np.int64).ravel()
        self._check_ids("send_to", to)
        sending.to(to, np.array(np.broadcast_to(values, to.shape)))

    def _mask(self, call: str, mask: Any) -> Mask:
        array: Mask = np.asarray(mask)
        if array.dtype != bool or array.shape != self._rows.shape:
            raise ValueError(f"{call}: a mask of {array.dtype} and shape {array.shape}; give bool, "
                             f"one for each of the block's {len(self)} vertices")
        return array

    def _check_ids(self, call: str, ids: Ints) -> None:
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._n:
            wrong = ids[(ids < 0) | (ids >= self._n)][0]
            raise ValueError(f"{call}: vertex {wrong}; vertices are 0 to {self._n - 1}")

    def _refuse_again(self, call: str, what: str) -> None:
        if not self._writes:
            raise RuntimeError(f"{call} in emit(), which may be done again: {what} in update()")

    def _to_send(self, call: str) -> Sending:
        if self._sending is None:
            raise RuntimeError(f"{call} in update(): messages are sent in emit(), from the fields")
        return self._sending


def check(program: VertexProgram) -> None:
    """Refuse a program whose names, methods or combiner are not allowed.

    Raises:
        ValueError: the program is refused; the text says what is wrong.
    """
    name = type(program).__name__
    if not program.fields:
        raise ValueError(f"{name}: declare what a vertex has, such as fields = {{\"rank\": float}}")
    if not any(ways(program)):
        raise ValueError(f"{name}: define update and emit, or compute")
    taken = [field for field in program.fields if field.startswith("_") or hasattr(Vertices, field)]
    taken += [field for field in program.aggregates if field in COUNTS]
    if taken:
        raise ValueError(f"{name}: {taken[0]!r} is a name that vertices or steps have already; "
                         "choose another")
    message: Any = np.dtype(program.message)
    parts = {f"message {part}": message[part] for part in message.names or ()}
    if parts and program.combine is not None:
        raise ValueError(f"{name}: messages of several parts are not combined; give combine = None "
                         "and take them from the list")
    check_dtypes(name, {**program.fields, **(parts or {"message": message})})
    check_aggregates(program)
    if program.combine is not None and not has_neutral(program.combine):
        raise ValueError(f"{name}: combine = {program.combine!r} has no neutral value; give a "
                         "NumPy ufunc such as np.add or np.minimum, or None")


# Sums of a step over the slots, in addition to the aggregates: vertices that have not voted to
# halt; messages; slots that stop, that wake all, whose step is masked, that see a checkpoint due.
COUNTS = ("active", "messages", "stop", "wake", "masked", "due")
