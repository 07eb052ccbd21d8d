"""The messages of a step, as a slot sends them, and as a slot receives them.

Messages along edges of the part are combined at once, into one for each target. All other messages
are records, an id and a value each: messages to vertices of any id, messages along edges that were
added, and all messages of a program that does not combine.

Law: messages are always combined or listed in the same order, that of the slots and of a slot's
sources, also when they are sent again. So sums of floats have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from . import kernels
from .changes import SlotEdges, places
from .fitting import check_sums, check_weights, combined, fitted, largest, may_overflow
from .references import USES, AnyArray, Floats, Ints, Mask

Lane = tuple[AnyArray, Mask | None]  # values, and a mask of those that are messages; None: all
# "plus", "times", or a function that makes messages from the senders' values and the weights.
Weighing = str | Callable[[AnyArray, Floats], AnyArray]
Records = tuple[Ints, AnyArray]  # the vertex that gets each record, and values


class MessageKind(Protocol):
    """Declaration of a program's messages, or of a field that is pushed."""

    @property
    def message(self) -> npt.DTypeLike: ...
    @property
    def combine(self) -> np.ufunc | None: ...


@dataclass(frozen=True)
class Aggregate:
    """Declaration of an aggregate, a value to which all slots contribute; a `MessageKind`."""

    message: npt.DTypeLike
    combine: np.ufunc = np.add


def aggregates_of(program: Any) -> dict[str, Aggregate]:
    """Return the aggregates of a program by name.

    Each is declared by a dtype, or by a pair of a dtype and the ufunc that combines.
    """
    return {name: Aggregate(*declared) if isinstance(declared, tuple) else Aggregate(declared)
            for name, declared in program.aggregates.items()}


class Contributions:
    """Contributions of a slot to the aggregates of a step.

    Attributes:
        values: the combined contributions to each aggregate so far; at first the neutral value.
    """

    def __init__(self, aggregates: Mapping[str, Aggregate]) -> None:
        self._aggregates = aggregates
        self.values = {name: neutral(kind, 1)[0] for name, kind in aggregates.items()}

    def add(self, name: str, value: Any) -> None:
        """Combine a value with the earlier ones; KeyError: there is no such aggregate."""
        self.values[name] = combined(self._aggregates[name].combine, self.values[name], value,
                                     f"aggregate {name!r}")


def nothing(kind: MessageKind, size: int) -> tuple[AnyArray, Mask]:
    """Return the values and the mask for `size` vertices without messages."""
    return neutral(kind, size), np.zeros(size, bool)


def check_dtypes(name: str, kinds: Mapping[str, npt.DTypeLike]) -> None:
    """Refuse fields, aggregates or messages of a program that are not numbers.

    Raises:
        ValueError: a dtype is refused; the text names the program and the field.
    """
    for field, kind in kinds.items():
        if np.dtype(kind).kind not in "biuf":
            raise ValueError(f"{name}: {field} has dtype {np.dtype(kind)}; give bool, integers or "
                             "floats")


def check_aggregates(program: Any) -> None:
    """Refuse aggregates that are not numbers, or whose ufunc has no neutral value.

    Raises:
        ValueError: an aggregate is refused; the text names the program and the aggregate.
    """
    name, aggregates = type(program).__name__, aggregates_of(program)
    check_dtypes(name, {key: kind.message for key, kind in aggregates.items()})
    for key, kind in aggregates.items():
        if not has_neutral(kind.combine):
            raise ValueError(f"{name}: aggregate {key} is combined by {kind.combine!r}, which has "
                             "no neutral value; give a NumPy ufunc such as np.maximum")


def has_neutral(combine: Any) -> bool:
    """Say whether it is a ufunc of two values with a neutral value, as `neutral` returns it."""
    return isinstance(combine, np.ufunc) and combine.nin == 2 and (
        combine.identity is not None or combine in (np.minimum, np.maximum))


def no_records(kind: MessageKind) -> Records:
    return np.zeros(0, np.int64), np.zeros(0, kind.message)


def neutral(kind: MessageKind, size: int) -> AnyArray:
    """Return `size` messages that change nothing."""
    dtype = np.dtype(kind.message)
    if kind.combine is None:
        return np.zeros(size, dtype)
    value: Any = kind.combine.identity
    if kind.combine in (np.minimum, np.maximum):
        least = kind.combine is np.maximum
        if dtype.kind == "f":
            value = -np.inf if least else np.inf
        elif dtype.kind == "b":
            value = not least
        else:
            value = np.iinfo(dtype).min if least else np.iinfo(dtype).max
    return np.full(size, np.array(value).astype(dtype), dtype)


def weighed(use: Weighing, values: AnyArray, weight: Floats) -> AnyArray:
    """Return the messages along edges with these weights.

    Raises:
        ValueError: a function returns another number of messages.
    """
    if not callable(use):
        return USES[use](values, weight)
    found: AnyArray = np.asarray(use(values, weight))
    if found.shape != values.shape:
        raise ValueError(f"send(weight={use!r}): gives {found.shape} messages for {len(values)} "
                         "edges; give one for each")
    return found


class Sending:
    """Messages of a slot in a step.

    Attributes:
        values, got: the message to each target of the part, in the part's order, and a mask of the
            targets that have a message; both are empty without a combiner.
        records: all other messages.
    """

    def __init__(self, topology: SlotEdges, kind: MessageKind) -> None:
        self.topology, self.kind = topology, kind
        size = 0 if kind.combine is None else len(topology.part.targets)
        self.values, self.got = nothing(kind, size)
        self._records: list[Records] = []

    @property
    def records(self) -> Records:
        ids, values = no_records(self.kind)
        if len(self._records) == 1:
            return self._records[0]
        return (np.concatenate([ids, *(ids for ids, _ in self._records)]),
                np.concatenate([values, *(values for _, values in self._records)]))

    def __len__(self) -> int:
        """Return the number of messages that leave the slot."""
        return int(self.got.sum()) + sum(len(ids) for ids, _ in self._records)

    def to(self, ids: Ints, values: AnyArray) -> None:
        """Send to vertices of these ids."""
        if len(ids):
            fitted(values, self.kind.message, "message")
            self._records.append((ids, values.astype(self.kind.message)))

    def along(self, rows: Ints, values: AnyArray, weight: Weighing | None) -> None:
        """Send the value of each of these vertices, which are ascending, along all of its edges."""
        of = self.topology
        if weight is not None and weight not in USES and not callable(weight):
            raise ValueError(f"send(weight={weight!r}): give \"plus\", \"times\" or a function")
        if weight is not None and of.weight is None:
            raise ValueError(f"send(weight={weight!r}): the graph has no weights")
        if not callable(weight):
            fitted(values, self.kind.message, "message")
            check_weights(of.weight if weight else None, self.kind.message, "message")
        if self.kind.combine is None:
            at = places(of.ptr, rows)
            messages = np.repeat(values, of.ptr[rows + 1] - of.ptr[rows])
            if weight is not None and of.weight is not None:
                messages = weighed(weight, messages, of.weight[at])
            self.to(of.part.targets[of.target[at]], messages)
        elif callable(weight):
            assert of.weight is not None
            at = places(of.ptr, rows)
            messages = weighed(weight, np.repeat(values, of.ptr[rows + 1] - of.ptr[rows]),
                               of.weight[at])
            fitted(messages, self.kind.message, "message")
            kernels.scatter(self.kind.combine, self.values, self.got, np.arange(len(at) + 1),
                            of.target[at], None, None, None, messages)
        else:
            # Edges are visited by source. Measured on rmat(18): if all vertices send, an edge takes
            # 1.2 ns, by source or by target; if some send, at most 1.4 ns by source and 1.7 ns by
            # target. Sorting edges by target takes 5 ns for each.
            some = None if len(rows) == len(of.ptr) - 1 else rows
            got: Mask | None = self.got
            if some is None and of.number is None:  # then an edge leads to each target
                self.got[:], got = True, None
            self._check_sums(rows, values, weight)
            kernels.scatter(self.kind.combine, self.values, got, of.ptr, of.target, of.weight,
                            weight, some, values)
        if len(of.row):
            place = np.full(len(of.part.ids), -1)
            place[rows] = np.arange(len(rows))
            ours = place[of.row] >= 0
            messages = values[place[of.row[ours]]]
            if weight is not None:
                messages = weighed(weight, messages, of.extra[ours])
            self.to(of.ids[ours], messages)


    def _check_sums(self, rows: Ints, values: AnyArray, weight: Weighing | None) -> None:
        """Refuse sums of integers along edges that overflow."""
        of, dtype = self.topology, self.values.dtype
        if self.kind.combine is not np.add or dtype.kind != "i" or weight is not None:
            return
        edges = int((of.ptr[rows + 1] - of.ptr[rows]).sum())
        if may_overflow(np.add, dtype, largest(self.values) + edges * largest(values)):
            sums = self.values.astype(np.float64)
            kernels.scatter(np.add, sums, None, of.ptr, of.target, None, None, rows,
                            values.astype(np.float64))
            check_sums(sums, dtype)


@dataclass(frozen=True)
class Received:
    """The messages that a slot has received in a step, for its k vertices.

    Attributes:
        values: for each vertex the combination of its messages; without a combiner all messages,
            ordered by vertex.
        got: mask of the vertices that have got a message, (k,).
        ptr: without a combiner: the place at which the messages of each vertex begin, (k + 1,).
    """

    values: AnyArray
    got: Mask
    ptr: Ints | None = None


def receive(kind: MessageKind, size: int, rows: Sequence[Ints], lanes: Sequence[Lane | None],
            records: Records) -> Received:
    """Combine or list the messages of all slots.

    Args:
        size: number of vertices of this slot.
        rows: for each slot, the vertices to which its lane leads.
        lanes: the lane of each slot; None: it is empty.
        records: records of all slots in their order, with the local numbers of their vertices.
    """
    place, sent = records
    if kind.combine is None:
        order = np.argsort(place, kind="stable")
        count = np.bincount(place, minlength=size)
        ptr = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        return Received(sent[order], count > 0, ptr)
    values, got = nothing(kind, size)
    _check_received(kind, size, rows, lanes, records)
    for at, lane in zip(rows, lanes, strict=True):
        if lane is not None:
            kernels.fold(kind.combine, values, got, at, *lane)
    if len(place):
        kind.combine.at(values, place, sent)
        got[place] = True
    return Received(values, got)


def _check_received(kind: MessageKind, size: int, rows: Sequence[Ints],
                    lanes: Sequence[Lane | None], records: Records) -> None:
    """Refuse sums of integers that overflow when the messages of all slots come together."""
    dtype = np.dtype(kind.message)
    if kind.combine is not np.add or dtype.kind != "i":
        return
    place, sent = records
    bound = sum(largest(lane[0]) for lane in lanes if lane is not None) + len(sent) * largest(sent)
    if may_overflow(np.add, dtype, bound):
        sums = np.zeros(size)
        for at, lane in zip(rows, lanes, strict=True):
            if lane is not None:
                kernels.fold(np.add, sums, None, at, lane[0].astype(np.float64), lane[1])
        np.add.at(sums, place, sent.astype(np.float64))
        check_sums(sums, dtype)
