"""The classes by which Phoenix's programs are written: four kinds of programs, fields, blocks.

A vertex has one owner, a slot. Each slot that has an edge to the vertex has a proxy of it, a
*ghost*. A value that is pushed is first reduced into ghosts, and from there into the owner's value.
A mirrored field goes from the owner to the ghosts, from which it is pulled.

After a failure no slot goes back. Lost vertices begin as `init` makes them, and are repaired from
their ghosts. A run without failures might never reach such a state, but the program has to reach
its result from it. The class of a program says from which states it reaches its result.

Source: R. Dathathri, G. Gill, L. Hoang, K. Pingali, "Phoenix: A Substrate for Resilient Distributed
Graph Analytics", ASPLOS 2019, sections 3.2 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from . import kernels, messages
from .fitting import check_weights, fitted
from .parts import Part
from .references import USES, AnyArray, Ints, Mask

COUNTS = ("active", "due")  # sums of a round, in addition to the aggregates
# With these, reducing a value twice has the same result as reducing it once.
IDEMPOTENT = (np.minimum, np.maximum, np.fmin, np.fmax, np.logical_and, np.logical_or,
              np.bitwise_and, np.bitwise_or)


@dataclass(frozen=True)
class Field:
    """Declares a field, of which each vertex has one value.

    Attributes:
        dtype: bool, integers or floats.
        reduce: combines a pushed value with the value of a vertex: a NumPy ufunc such as
            np.minimum; None: values are not pushed.
        recover: combines the values of several ghosts when their owner is lost; an idempotent
            ufunc, by default `reduce`.
        derived: `reinit` and `recompute` make the field from the other fields.
        mirror: ghosts have the owner's value, too, so that it can be pulled, and a lost value comes
            back.
    """

    dtype: npt.DTypeLike
    reduce: np.ufunc | None = None
    recover: np.ufunc | None = None
    derived: bool = False
    mirror: bool = False

    @property
    def idempotent(self) -> bool:
        """True if the field is pushed, and pushing a value once more changes nothing."""
        return self.reduce in IDEMPOTENT

    def neutral(self) -> Any:
        """Return the value that changes nothing when it is pushed; 0 if the field is not pushed."""
        return messages.neutral(self, 1)[0]

    @property
    def message(self) -> npt.DTypeLike:
        """See `messages.MessageKind`."""
        return self.dtype

    @property
    def combine(self) -> np.ufunc | None:
        """See `messages.MessageKind`."""
        if self.reduce is np.fmin:
            return np.minimum
        return np.maximum if self.reduce is np.fmax else self.reduce


class PhoenixProgram:
    """A program in rounds, of one of the four classes below.

    Attributes:
        fields: name and `Field` of each field of a vertex.
        aggregates: see `pregel_program.VertexProgram`; the next round sees them.
    """

    fields: ClassVar[Mapping[str, Field]] = {}
    aggregates: ClassVar[Mapping[str, Any]] = {}

    def init(self, v: Block) -> None:
        """Set the first values of the fields, and activate the vertices that begin."""
        raise NotImplementedError

    def operate(self, v: Block, ctx: Round) -> None:
        """Do the work of the active vertices in a round.

        A vertex is active in the next round if it activates itself, or if a pushed value changes
        its value.
        """
        raise NotImplementedError


class SelfStabilizing(PhoenixProgram):
    """A program that reaches its result from any state.

    All vertices operate in each round. The run ends with a round in which no vertex activates
    itself.
    """


class LocallyCorrecting(PhoenixProgram):
    """A program that reaches its result if each vertex has allowed values, whatever others have.

    The values that `init` sets are allowed.
    """


class GloballyCorrecting(PhoenixProgram):
    """A program that reaches its result if derived fields fit the other fields.

    After a failure `reinit` and `recompute` make the derived fields of all vertices anew, and all
    vertices are active.
    """

    def reinit(self, v: Block) -> None:
        """Set the derived fields as `init` does; do not write other fields."""
        raise NotImplementedError

    def recompute(self, v: Block, ctx: Round) -> None:
        """Push to derived fields what all rounds together have pushed, computed from other fields.
        """
        raise NotImplementedError


class GloballyConsistent(PhoenixProgram):
    """A program that reaches its result only from states of a run without failures.

    It needs ``recovery="cr"``.
    """


class Round:
    """The round in which a program is.

    Attributes:
        round: number of the round, from 1; after a failure it is not reset.
        n: number of vertices of the graph.
    """

    def __init__(self, number: int, n: int, before: Mapping[str, Any],
                 contributed: messages.Contributions) -> None:
        self.round, self.n, self._before, self._contributed = number, n, before, contributed

    def __getitem__(self, name: str) -> Any:
        """Return the sum of what all slots have contributed to an aggregate in the previous round.

        It is 0 in the first round, and in the first round after a failure unless all slots have
        gone back to a checkpoint.
        """
        return self._before[name]

    def contribute(self, name: str, value: Any) -> None:
        """Add a value to an aggregate.

        Raises:
            KeyError: there is no such aggregate.
        """
        self._contributed.add(name, value)


class Block:
    """A block of vertices. Fields are attributes: arrays with a value for each vertex, writable.

    Attributes:
        ids: ids of the vertices, ascending.
        degree: number of edges that leave each vertex, (k,).
        strength: sum of the weights of these edges, (k,).
    """

    def __init__(self, program: PhoenixProgram, part: Part, values: dict[str, AnyArray], rows: Ints,
                 ghosts: Mapping[str, AnyArray] | None) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_part", part)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_ghosts", ghosts)
        object.__setattr__(self, "_active", np.zeros(len(rows), bool))

    _program: PhoenixProgram
    _part: Part
    _values: dict[str, AnyArray]
    _rows: Ints
    _ghosts: Mapping[str, AnyArray] | None  # None: no other vertex can be reached yet
    _active: Mask

    @property
    def ids(self) -> Ints:
        return self._part.ids[self._rows]

    @property
    def degree(self) -> Ints:
        return self._part.degree[self._rows]

    @property
    def strength(self) -> npt.NDArray[np.float64]:
        return self._part.strength[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> AnyArray:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(self._unknown(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(self._unknown(name))
        field = self._values[name]
        field[...] = fitted(value, field.dtype, f"field {name!r}")

    def _unknown(self, name: str) -> str:
        return f"vertices have no field {name!r}; fields are {', '.join(self._values) or 'none'}"

    def activate(self, where: Mask | None = None) -> None:
        """Let vertices operate in the next round, too.

        Args:
            where: mask of the vertices, (k,) bool; by default all of the block.

        Raises:
            ValueError: `where` is no mask of the block.
        """
        self._active[... if where is None else self._mask("activate", where)] = True

    def push(self, field: str, values: Any, *, weight: str | None = None,
             where: Mask | None = None) -> None:
        """Reduce the value of each vertex into the values of the targets of all of its edges.

        Args:
            field: field of the targets; it must have a `reduce`.
            values: one value for each vertex, (k,), or one for all.
            weight: "plus" or "times": the edge's weight is added to the value, or multiplies it.
            where: mask of the vertices that push, (k,) bool; by default all of the block.

        Raises:
            RuntimeError: called in `init` or `reinit`.
            ValueError: the field is not pushed, there is no such use of weights, the graph has no
                weights, or `where` is no mask of the block.
        """
        reduce = self._field("push", field).reduce
        if reduce is None:
            raise ValueError(f"push({field!r}): give the field a reduce=, such as np.minimum")
        dtype, what = self._values[field].dtype, f"field {field!r}"
        values, rows = np.broadcast_to(fitted(values, dtype, what), self._rows.shape), self._rows
        check_weights(self._part.weight if weight else None, dtype, what)
        if where is not None:
            mask = self._mask("push", where)
            values, rows = values[mask], rows[mask]
        self._check_weight("push", weight)
        ghosts, part = self._reached("push")[field], self._part
        some = None if len(rows) == len(part.ids) else rows
        kernels.scatter(reduce, ghosts, None, part.ptr, part.target, part.weight, weight, some,
                        values)

    def pull(self, field: str, *, reduce: np.ufunc = np.add,
             weight: str | None = None) -> AnyArray:
        """Return for each vertex the reduced values of the targets of its edges, (k,).

        Args:
            field: a field that is mirrored and not pushed; its values are those after the previous
                round.
            reduce: combines the values; a vertex without edges gets its neutral value.
            weight: "plus" or "times": the edge's weight is added to each value, or multiplies it.

        Raises:
            RuntimeError: called in `init` or `reinit`.
            ValueError: the field is not mirrored, or it is pushed; there is no such use of weights,
                or the graph has no weights.
        """
        edges, ptr = self._edges(self._rows)
        values = self._mirrored("pull", field)[self._part.target[edges]]
        self._check_weight("pull", weight)
        if weight is not None and self._part.weight is not None:
            values = USES[weight](values, self._part.weight[edges])
        found = np.full(len(self), Field(values.dtype, reduce).neutral(), values.dtype)
        some = np.flatnonzero(np.diff(ptr))
        if len(some):
            found[some] = reduce.reduceat(values, ptr[some])
        return found

    def neighbours(self, field: str) -> tuple[Ints, AnyArray]:
        """Return the values of the targets of each vertex's edges, edge by edge.

        Args:
            field: a field as for `pull`; or "ids", the ids of the targets; or "weights", the
                weights of the edges.

        Returns:
            ptr, values: vertex i has values[ptr[i]:ptr[i + 1]].

        Raises:
            RuntimeError, ValueError: see `pull`.
        """
        edges, ptr = self._edges(self._rows)
        if field == "weights":
            self._check_weight("neighbours", "times")
            assert self._part.weight is not None
            return ptr, self._part.weight[edges]
        there = self._part.targets if field == "ids" else self._mirrored("neighbours", field)
        return ptr, there[self._part.target[edges]]

    # -- parts of the methods above -----------------------------------------------------------

    def _field(self, call: str, name: str) -> Field:
        try:
            return self._program.fields[name]
        except KeyError:
            raise ValueError(f"{call}({name!r}): {self._unknown(name)}") from None

    def _reached(self, call: str) -> Mapping[str, AnyArray]:
        if self._ghosts is None:
            raise RuntimeError(f"{call}() in init() or reinit(), which make a vertex's values from "
                               "nothing but the vertex: do it in operate() or recompute()")
        return self._ghosts

    def _mirrored(self, call: str, name: str) -> AnyArray:
        field = self._field(call, name)
        if not field.mirror or field.reduce is not None:
            raise ValueError(f"{call}({name!r}): the field has to be one with mirror=True and "
                             "without reduce=")
        return self._reached(call)[name]

    def _mask(self, call: str, mask: Any) -> Mask:
        array: Mask = np.asarray(mask)
        if array.dtype != bool or array.shape != self._rows.shape:
            raise ValueError(f"{call}: a mask of {array.dtype} and shape {array.shape}; give bool, "
                             f"one for each of the block's {len(self)} vertices")
        return array

    def _edges(self, rows: Ints) -> tuple[Any, Ints]:
        """Return an index of the edges of these vertices, and the first place of each vertex."""
        part = self._part
        if len(rows) == len(part.ids):
            return slice(None), part.ptr
        degree = part.degree[rows]
        ptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
        return np.arange(ptr[-1]) + np.repeat(part.ptr[rows] - ptr[:-1], degree), ptr

    def _check_weight(self, call: str, weight: str | None) -> None:
        if weight is not None and weight not in USES:
            raise ValueError(f"{call}(weight={weight!r}): give \"plus\" or \"times\"")
        if weight is not None and self._part.weight is None:
            raise ValueError(f"{call}(weight={weight!r}): the graph has no weights; leave weight= "
                             "out, or give the edges some")


def check(program: PhoenixProgram, recovery: str) -> None:
    """Refuse a program that cannot be recovered, or whose names are not allowed.

    Raises:
        ValueError: the program is refused; the text says what is wrong.
    """
    name = type(program).__name__
    if not isinstance(program, SelfStabilizing | LocallyCorrecting | GloballyCorrecting
                      | GloballyConsistent):
        raise ValueError(f"{name}: derive it from SelfStabilizing, LocallyCorrecting, "
                         "GloballyCorrecting or GloballyConsistent, which say how it is recovered")
    if recovery == "phoenix" and isinstance(program, GloballyConsistent):
        raise ValueError(f"{name}: a globally consistent program needs checkpoints of all slots: "
                         "give recovery=\"cr\"")
    if not program.fields:
        raise ValueError(f"{name}: declare what a vertex has, such as fields = "
                         "{\"distance\": Field(float, reduce=np.minimum)}")
    taken = [field for field in program.fields if field.startswith("_") or hasattr(Block, field)]
    taken += [field for field in program.aggregates if field in COUNTS]
    if taken:
        raise ValueError(f"{name}: {taken[0]!r} is a name that vertices or rounds have already; "
                         "choose another")
    for field, declared in program.fields.items():
        if not isinstance(declared, Field):
            raise ValueError(f"{name}: {field} is {declared!r}; give a Field")
    messages.check_dtypes(name, {field: declared.dtype
                                 for field, declared in program.fields.items()})
    messages.check_aggregates(program)
    for field, declared in program.fields.items():
        _check_ufuncs(f"{name}: {field}", declared)
        _check_class(f"{name}: {field}", declared, program)


def _check_ufuncs(what: str, field: Field) -> None:
    """Refuse a `reduce` or `recover` that is not allowed."""
    for use, by in (("reduce", field.reduce), ("recover", field.recover)):
        if by is not None and not _has_neutral(by):
            raise ValueError(f"{what} has {use}={by!r}, which has no neutral value; give a NumPy "
                             "ufunc such as np.minimum")
    if field.recover is not None and field.recover not in IDEMPOTENT:
        raise ValueError(f"{what} has recover={field.recover.__name__}, by which a value would "
                         "count as often as it has ghosts; give an idempotent one such as "
                         "np.maximum")


def _has_neutral(by: Any) -> bool:
    return isinstance(by, np.ufunc) and by.nin == 2 and (
        by.identity is not None or by in IDEMPOTENT)


def _check_class(what: str, field: Field, program: PhoenixProgram) -> None:
    """Refuse a field that a program of this class could not repair."""
    if field.derived and not isinstance(program, GloballyCorrecting):
        raise ValueError(f"{what} is derived; only a GloballyCorrecting program has a recompute() "
                         "that derives it")
    if field.mirror and field.reduce is not None and not field.idempotent:
        raise ValueError(f"{what} is mirrored and reduced by {field.reduce.__name__}; give one of "
                         "the two, or an idempotent reduce")
    if field.derived or not isinstance(program, LocallyCorrecting | GloballyCorrecting):
        return
    if field.reduce is not None and not field.idempotent:
        raise ValueError(f"{what} is reduced by {field.reduce.__name__}, so what is lost of it "
                         "cannot be pushed again; make it derived=True in a GloballyCorrecting "
                         "program, or give an idempotent reduce")
    if field.reduce is None and field.recover is None:
        raise ValueError(f"{what} is neither idempotent nor derived; give recover=, an idempotent "
                         "ufunc such as np.maximum, or derived=True")
