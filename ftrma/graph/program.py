"""What a vertex program is written in: blocks of vertices, their messages, the step's context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .data import Part

AnyArray = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class VertexProgram:
    """A program in steps: `update` what vertices have, then `emit` messages from that alone.

    What `emit` reads is what a checkpoint has: so messages need not be saved, they are emitted
    again. Subclasses set the attributes and define both methods, which see a block of vertices at
    once.

    Attributes:
        fields: name and dtype of what each vertex has; zeros at first.
        message: dtype of a message.
        combine: two messages to the same vertex become one: a NumPy ufunc such as np.add.
        aggregates: name and dtype of sums over all vertices; what is contributed in a step is seen
            in the next.

    Source: "Lightweight Fault Tolerance in Large-Scale Distributed Graph Processing", eq. 2 and 3.
    """

    fields: ClassVar[Mapping[str, npt.DTypeLike]] = {}
    message: ClassVar[npt.DTypeLike] = float
    combine: ClassVar[np.ufunc] = np.add
    aggregates: ClassVar[Mapping[str, npt.DTypeLike]] = {}

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        """New values of the fields of those that compute: in step 1 all, later those that have got
        a message or have not voted to halt."""
        raise NotImplementedError

    def emit(self, v: Vertices, ctx: Context) -> None:
        """Send messages, from the fields as `update` has left them; nothing else may be read."""
        raise NotImplementedError


class Context:
    """The step.

    Attributes:
        step: from 1.
        n: vertices of the graph.
    """

    def __init__(self, step: int, n: int, before: Mapping[str, Any],
                 contributed: dict[str, Any] | None) -> None:
        self.step, self.n, self._before, self._contributed = step, n, before, contributed

    def __getitem__(self, name: str) -> Any:
        """What all have contributed to an aggregate in the step before; 0 in the first."""
        return self._before[name]

    def contribute(self, name: str, value: Any) -> None:
        """Add to an aggregate; in `update` only.

        Raises:
            KeyError: there is no such aggregate.
            RuntimeError: in `emit`, which may be done again.
        """
        if self._contributed is None:
            raise RuntimeError(f"contribute({name!r}) in emit(), which may be done again: "
                               "contribute in update()")
        self._contributed[name] += value


class Inbox:
    """Messages to the block's vertices.

    Attributes:
        values: of each vertex all messages combined; the combiner's neutral value where there is
            none, (k,).
        got: whether there was one, (k,).
    """

    def __init__(self, values: AnyArray, got: Mask) -> None:
        self.values, self.got = values, got


class Vertices:
    """A block of vertices. Fields are attributes: arrays of one value each.

    Attributes:
        ids: of the vertices, ascending; degree: edges that leave each, (k,).
    """

    def __init__(self, part: Part, fields: dict[str, AnyArray], rows: npt.NDArray[np.int64],
                 sending: Sending | None) -> None:
        object.__setattr__(self, "_part", part)
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_sending", sending)
        object.__setattr__(self, "_halted", np.zeros(len(rows), bool))

    _part: Part
    _fields: dict[str, AnyArray]
    _rows: npt.NDArray[np.int64]
    _sending: Sending | None
    _halted: Mask

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self._part.ids[self._rows]

    @property
    def degree(self) -> npt.NDArray[np.int64]:
        return self._part.degree[self._rows]

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
        if self._sending is not None:
            raise RuntimeError(f"emit() writes field {name!r}: it may be done again, so all that "
                               "changes is changed in update()")
        self._fields[name][...] = value

    def vote_to_halt(self, which: Mask | None = None) -> None:
        """Do not compute in the next step, unless a message comes; in `update` only.

        Args:
            which: of the block's vertices, (k,) bool; all by default.

        Raises:
            RuntimeError: in `emit`.
            ValueError: that is no mask of the block.
        """
        if self._sending is not None:
            raise RuntimeError("vote_to_halt() in emit(), which may be done again: vote in "
                               "update()")
        self._halted[... if which is None else self._mask("vote_to_halt", which)] = True

    def _mask(self, call: str, mask: Any) -> Mask:
        array: Mask = np.asarray(mask)
        if array.dtype != bool or array.shape != self._rows.shape:
            raise ValueError(f"{call}: a mask of {array.dtype} and shape {array.shape}; give bool, "
                             f"one for each of the block's {len(self)} vertices")
        return array

    def send(self, values: Any, *, weight: str | None = None, where: Mask | None = None) -> None:
        """Send to the targets of all edges of each vertex; in `emit` only.

        Args:
            values: one for each vertex, (k,), or one for all.
            weight: "plus" or "times": with the edge's weight.
            where: of the block's vertices those that send, (k,) bool; all by default.

        Raises:
            RuntimeError: in `update`.
            ValueError: there is no such use of weights, the graph has none, or `where` is no mask.
        """
        if self._sending is None:
            raise RuntimeError("send() in update(): messages are sent in emit(), from the fields")
        values, rows = np.broadcast_to(values, self._rows.shape), self._rows
        if where is not None:
            mask = self._mask("send", where)
            values, rows = values[mask], rows[mask]
        self._sending.send(rows, values, weight)


WEIGHTS: dict[str, Callable[[AnyArray, AnyArray], AnyArray]] = {"plus": np.add,
                                                                "times": np.multiply}


class Sending:
    """Messages of a slot in a step: for each target one, combined in the order of the sources.

    Attributes:
        values, got: of each target of the part, whose order they have.
    """

    def __init__(self, part: Part, program: VertexProgram) -> None:
        self.part, self.program = part, program
        self.values = neutral(program, len(part.targets))
        self.got = np.zeros(len(part.targets), bool)

    def send(self, rows: npt.NDArray[np.int64], values: AnyArray, weight: str | None) -> None:
        part = self.part
        if weight is not None and weight not in WEIGHTS:
            raise ValueError(f"send(weight={weight!r}): give \"plus\" or \"times\"")
        if weight is not None and part.weight is None:
            raise ValueError(f"send(weight={weight!r}): the graph has no weights")
        if len(rows) == len(part.ids):
            edges: Any = slice(None)
            degree = part.degree
        else:
            degree = part.degree[rows]
            ends = np.cumsum(degree)
            edges = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
                part.ptr[rows] - (ends - degree), degree)
        messages = np.repeat(values, degree)
        if weight is not None:
            assert part.weight is not None
            messages = WEIGHTS[weight](messages, part.weight[edges])
        target = part.target[edges]
        # One after another, so that sums of floats are the same whenever they are made.
        self.program.combine.at(self.values, target, messages.astype(self.values.dtype))
        self.got[target] = True


def neutral(program: VertexProgram, size: int) -> AnyArray:
    """So many messages that change nothing."""
    dtype = np.dtype(program.message)
    value: Any = program.combine.identity
    if program.combine in (np.minimum, np.maximum):
        least = program.combine is np.maximum
        if dtype.kind == "f":
            value = -np.inf if least else np.inf
        elif dtype.kind == "b":
            value = not least
        else:
            value = np.iinfo(dtype).min if least else np.iinfo(dtype).max
    return np.full(size, np.array(value).astype(dtype), dtype)


def check(program: VertexProgram) -> None:
    """Refuse a program whose names or combiner cannot be.

    Raises:
        ValueError: with what is wrong.
    """
    name = type(program).__name__
    if not program.fields:
        raise ValueError(f"{name}: declare what a vertex has, such as fields = {{\"rank\": float}}")
    taken = [field for field in program.fields if field.startswith("_") or hasattr(Vertices, field)]
    taken += [field for field in program.aggregates if field in ("active", "messages")]
    if taken:
        raise ValueError(f"{name}: {taken[0]!r} is a name that vertices or steps have already; "
                         "choose another")
    kinds = {**program.fields, **program.aggregates, "message": program.message}
    for field, kind in kinds.items():
        if np.dtype(kind).kind not in "biuf":
            raise ValueError(f"{name}: {field} has dtype {np.dtype(kind)}; give bool, integers or "
                             "floats")
    combine = program.combine
    if not isinstance(combine, np.ufunc) or combine.nin != 2 or (
            combine.identity is None and combine not in (np.minimum, np.maximum)):
        raise ValueError(f"{name}: combine = {combine!r} has no neutral value; give a NumPy ufunc "
                         "such as np.add or np.minimum")
