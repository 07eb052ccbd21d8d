"""The functions of `kernels` in NumPy and Python, written to be easy to read.

They are used if C has no loop for a dtype or a combiner. Tests compare both bit by bit (where one
has a NaN, the other must have a NaN).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
EdgeArrays = tuple[Ints, Ints, Floats | None]  # sources, targets, weights

USES: dict[str, Callable[[AnyArray, AnyArray], AnyArray]] = {"plus": np.add,
                                                             "times": np.multiply}
MOST_ID = 2**63 - 1


@dataclass(frozen=True)
class Columns:
    """Edges by target; those of a target are in ascending order of their rows.

    Attributes:
        ptr: place at which the edges to each target begin, (targets + 1,).
        row: row of each edge, (m,).
        edge_weight: weight of each edge, (m,), or None.
    """

    ptr: Ints
    row: Numbers
    edge_weight: Floats | None


class Dealt(NamedTuple):
    """Edges grouped by the owners of their sources.

    Attributes:
        sizes: number of edges of each slot, (slots,).
        row: for each edge the number of its source among its owner's vertices, (m,).
        target: id of the target of each edge, (m,).
        weight: weight of each edge, (m,), or None.
    """

    sizes: Ints
    row: Numbers
    target: AnyArray
    weight: Floats | None


def scatter(combine: np.ufunc, values: AnyArray, got: Mask | None, ptr: Ints, target: Numbers,
            weight: Floats | None, op: str | None, rows: Ints | None, x: AnyArray) -> None:
    """See `kernels.scatter`."""
    if rows is None:
        edges: Any = slice(int(ptr[0]), int(ptr[-1]))
        degree = np.diff(ptr)
    else:
        degree = ptr[rows + 1] - ptr[rows]
        ends = np.cumsum(degree)
        edges = np.arange(ends[-1] if len(ends) else 0) + np.repeat(ptr[rows] - (ends - degree),
                                                                    degree)
    _combine(combine, values, got, target[edges], np.repeat(x, degree), op,
             None if weight is None else weight[edges])


def gather(combine: np.ufunc, values: AnyArray, got: Mask | None, by: Columns, x: AnyArray,
           sending: Mask | None, op: str | None = None, *, first: int = 0,
           last: int | None = None) -> None:
    """See `kernels.gather`."""
    ptr = by.ptr[first : None if last is None else last + 1]
    edges: Any = np.arange(ptr[0], ptr[-1])
    target = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    if sending is not None:
        sends = sending[by.row[edges]]
        edges, target = edges[sends], target[sends]
    _combine(combine, values, got, target, x[by.row[edges]], op,
             None if by.edge_weight is None else by.edge_weight[edges])


def fold(combine: np.ufunc, values: AnyArray, got: Mask | None, rows: Ints, theirs: AnyArray,
         there: Mask | None) -> None:
    """See `kernels.fold`."""
    if there is not None:
        rows, theirs = rows[there], theirs[there]
    _combine(combine, values, got, rows, theirs, None, None)


def visit(entries: Columns, rows: Floats, columns: Floats, which: Ints, step: Floats,
          regularization: float, squares: Floats) -> None:
    """See `kernels.visit`."""
    assert entries.edge_weight is not None
    with np.errstate(all="ignore"):
        for c, number in enumerate(which):
            column, keep = columns[c], 1 - step[c] * regularization
            squares[c] = 0.0
            for e in range(entries.ptr[number], entries.ptr[number + 1]):
                row = rows[entries.row[e]]
                error = entries.edge_weight[e] - _in_lanes(row * column)
                by = step[c] * error
                squares[c] += error * error
                row[:], column[:] = keep * row + by * column, keep * column + by * row


def _in_lanes(products: Floats) -> np.float64:
    """Return a sum in the order in which C adds: in four lanes, then these."""
    lanes = np.zeros((1 + -(-len(products) // 4), 4))
    lanes[1:].flat[:len(products)] = products
    a, b, c, d = np.cumsum(lanes, axis=0)[-1]
    return np.float64((a + b) + (c + d))


def _combine(combine: np.ufunc, values: AnyArray, got: Mask | None, target: AnyArray,
             messages: AnyArray, op: str | None, weight: Floats | None) -> None:
    with np.errstate(all="ignore"):
        if op is not None:
            assert weight is not None
            messages = USES[op](messages, weight)
        # In order, one after the other, so that sums of floats always have the same bits.
        combine.at(values, target, messages.astype(values.dtype))
    if got is not None:
        got[target] = True


def by_target(ptr: Ints, target: Numbers, weight: Floats | None, size: int) -> Columns:
    """See `kernels.by_target`."""
    row = np.repeat(np.arange(len(ptr) - 1, dtype=np.uint32), np.diff(ptr))
    return Columns(*csr(target, row, weight, size))


def csr(row: Numbers, target: Numbers, weight: Floats | None,
        size: int) -> tuple[Ints, Numbers, Floats | None]:
    """See `kernels.csr`."""
    counts = np.bincount(row, minlength=size)
    if len(counts) > size:
        raise ValueError(f"row {row.max()} of {size}")
    order = np.argsort(row, kind="stable")
    return (np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), target[order],
            None if weight is None else weight[order])


def distinct(ptr: Ints, target: Numbers, size: int) -> tuple[Ints, Numbers]:
    """See `kernels.distinct`."""
    rows = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    row, target = np.divmod(np.unique(rows * size + target), size)
    counts = np.bincount(row, minlength=len(ptr) - 1)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), target.astype(np.uint32)


def triangles(ptr: Ints, target: Numbers, lists: Ints, member: Numbers) -> Ints:
    """See `kernels.triangles`."""
    rows = [set(mine.tolist()) for mine in np.split(target, ptr[1:-1])]
    above = [set(theirs.tolist()) for theirs in np.split(member, lists[1:-1])]
    return np.array([sum(len(above[u] & mine) for u in mine) for mine in rows], np.int64)


def rmat(seed: int, scale: int, pairs: npt.NDArray[np.uint8], first: int,
         count: int) -> tuple[Ints, Ints]:
    """See `edgekernels.rmat`."""
    draws = (scale + 1) // 2
    number = np.arange(first, first + count, dtype=np.uint64) * np.uint64(-(-draws // 4))
    start = _mix(np.array([seed], np.uint64))
    source, target = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for draw in range(draws):
        if draw % 4 == 0:
            number += np.uint64(1)
            word = _mix(start + number * np.uint64(0x9E3779B97F4A7C15))
        pair = pairs[word & np.uint64(0xFFFF)]
        word = word >> np.uint64(16)
        source, target = source << 2 | pair >> 2, target << 2 | pair & 3
    return source >> scale % 2, target >> scale % 2


def owners(ids: Ints, slots: int) -> Ints:
    """See `edgekernels.owners`."""
    rounds, rest = np.divmod(ids, slots)
    begins = (_mix(rounds.astype(np.uint64)) >> np.uint64(32)) * np.uint64(slots) >> np.uint64(32)
    return (rest + begins.astype(np.int64)) % slots


def _owners(ids: Ints, slots: int, bounds: Ints | None) -> Ints:
    if bounds is None:
        return owners(ids, slots)
    return np.searchsorted(bounds, ids, side="right").astype(np.int64) - 1


def deal(n: int, slots: int, bounds: Ints | None, source: Ints, target: Ints,
         weight: Floats | None) -> Dealt | None:
    """See `edgekernels.deal`; targets are int64 if n is more than 2**32."""
    if any(len(ids) and not 0 <= ids.min() <= ids.max() < n for ids in (source, target)):
        return None
    owner = _owners(source, slots, bounds)
    order = np.argsort(owner, kind="stable")
    local = source // slots if bounds is None else source - bounds[owner]
    return Dealt(np.bincount(owner, minlength=slots).astype(np.int64),
                 local[order].astype(np.uint32),
                 target[order].astype(np.uint32 if n <= 2**32 else np.int64),
                 None if weight is None else weight[order].astype(np.float64))


def number(n: int, slots: int, bounds: Ints | None,
           target: AnyArray) -> tuple[Ints, Ints, AnyArray]:
    """See `edgekernels.number`; changes nothing."""
    distinct, numbers = np.unique(target.astype(np.int64), return_inverse=True)
    owner = _owners(distinct, slots, bounds)
    order = np.argsort(owner, kind="stable")
    place = np.empty(len(order), np.uint32)
    place[order] = np.arange(len(order))
    begins = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=slots))])
    return begins.astype(np.int64), distinct[order], place[numbers]


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)
