"""Edges that are added and dropped during a run: finds the edges that exist in a step.

A program changes the edges that leave its slot's vertices, in `update` or `compute`; messages of
that step already go along the changed edges. All changes form one growing record. So the edges of
any past step follow from the part and the beginning of the record. By it messages of that step can
be emitted again, and a step that was not finished is undone by cutting the record.

Edges have numbers: first those of the part, in its order, then those that were added, in the order
in which they were added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .parts import Part
from .references import AnyArray, Floats, Ints, Numbers

# One edge that was added (edge is -1) or dropped (edge is its number); row is its source's number.
CHANGE = np.dtype([("step", "i8"), ("edge", "i8"), ("row", "i8"), ("target", "i8"),
                   ("weight", "f8")])
Changes = npt.NDArray[np.void]


@dataclass(frozen=True)
class SlotEdges:
    """The edges that leave a slot's vertices in a step.

    Attributes:
        part: the slot's part of the graph.
        ptr, target, weight: the edges of the part that are still there, in the form of `Part`.
        number: number of each of these edges; None: all edges of the part are there.
        row, ids, extra, extra_number: source, target (its id), weight and number of each edge that
            was added, in the order in which they were added.
    """

    part: Part
    ptr: Ints
    target: Numbers
    weight: Floats | None
    number: Ints | None
    row: Ints
    ids: Ints
    extra: Floats
    extra_number: Ints

    @cached_property
    def degree(self) -> Ints:
        """Number of edges that leave each vertex; read-only."""
        found: Ints = np.diff(self.ptr).astype(np.int64)
        if len(self.row):
            found = found + np.bincount(self.row, minlength=len(found))
        found.flags.writeable = False
        return found


class Edges:
    """The edges that leave the vertices of a block of k, in the block's order.

    Attributes:
        ptr: place at which the edges of each vertex begin, (k + 1,).
        row: for each edge the place of its vertex in the block, (m,).
        target: for each edge the id of the vertex to which it leads, (m,).
        place: place of that vertex among `Vertices.targets`, (m,) uint32; 2**32 - 1 for an edge
            that was added.
        weight: weight of each edge, (m,); None: the graph has no weights.
        number: number of each edge, as the slot counts them, (m,).

    An array is made when it is first used.
    """

    def __init__(self, of: SlotEdges, rows: Ints) -> None:
        self._of, self._rows = of, rows
        whole = len(rows) == len(of.ptr) - 1
        self._at: Any = slice(None) if whole else places(of.ptr, rows)
        self._ours = np.flatnonzero(np.isin(of.row, rows))
        degree = of.ptr[rows + 1] - of.ptr[rows]
        row = np.searchsorted(rows, of.row[self._ours])
        self._order: Ints | None = None
        if len(row):
            mine = np.repeat(np.arange(len(rows)), degree)
            self._order = np.argsort(np.concatenate([mine, row]), kind="stable")
            degree = degree + np.bincount(row, minlength=len(rows))
        self.ptr: Ints = of.ptr if whole and not len(row) else np.concatenate(
            [[0], np.cumsum(degree)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.ptr[-1])

    @cached_property
    def row(self) -> Ints:
        return np.repeat(np.arange(len(self._rows)), np.diff(self.ptr))

    @cached_property
    def target(self) -> Ints:
        of = self._of
        return self._all(of.part.targets[of.target[self._at]], of.ids)

    @cached_property
    def place(self) -> Numbers:
        of = self._of
        return self._all(of.target[self._at], np.full(len(of.row), 2**32 - 1, np.uint32))

    @cached_property
    def weight(self) -> Floats | None:
        of = self._of
        return None if of.weight is None else self._all(of.weight[self._at], of.extra)

    @cached_property
    def number(self) -> Ints:
        of = self._of
        mine = np.arange(len(of.target)) if of.number is None else of.number
        return self._all(mine[self._at], of.extra_number)

    def _all(self, mine: AnyArray, came: AnyArray) -> AnyArray:
        """Return values of the block's edges, in order, from those of the part and of added edges.
        """
        if self._order is None:
            return mine
        return np.concatenate([mine, came[self._ours]])[self._order]


def none() -> Changes:
    """Return a record without changes."""
    return np.zeros(0, CHANGE)


def until(changes: Changes, step: int) -> Changes:
    """Return the changes up to a step, which are the beginning of the record."""
    end = int(np.searchsorted(changes["step"], step, side="right"))
    found: Changes = changes[:end]
    return found


def topology(part: Part, now: Changes) -> SlotEdges:
    """Return the edges that exist after some changes."""
    nothing = np.zeros(0, np.int64)
    if not len(now):
        return SlotEdges(part, part.ptr, part.target, part.weight, None, nothing, nothing,
                        np.zeros(0), nothing)
    m = len(part.target)
    came = now[now["edge"] < 0]
    there = np.ones(m + len(came), bool)
    there[now["edge"][now["edge"] >= 0]] = False
    number = np.flatnonzero(there[:m])
    ptr = np.concatenate([[0], np.cumsum(there[:m])])[part.ptr]
    left = came[there[m:]]
    return SlotEdges(part, ptr, part.target[number],
                    None if part.weight is None else part.weight[number], number,
                    left["row"].copy(), left["target"].copy(), left["weight"].copy(),
                    m + np.flatnonzero(there[m:]))


def towards(of: SlotEdges, slots: Sequence[bool]) -> SlotEdges:
    """Return the edges without those of the part that lead to slots outside of a given set."""
    at = np.flatnonzero(np.repeat(slots, np.diff(of.part.bounds))[of.target])
    return replace(of, ptr=np.searchsorted(at, of.ptr), target=of.target[at],
                   weight=None if of.weight is None else of.weight[at],
                   number=at if of.number is None else of.number[at])


def places(ptr: Ints, rows: Ints) -> Ints:
    """Return the places of the edges of some vertices, one vertex after the other."""
    begin, degree = ptr[rows], ptr[rows + 1] - ptr[rows]
    ends = np.cumsum(degree)
    first: Ints = np.repeat(begin - (ends - degree), degree)
    return first + np.arange(len(first))
