"""Edges in a file of which each of several slots reads a share, once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from . import kernels, shuffle
from .references import EdgeArrays, Floats, Ints

LARGE = 1 << 62  # greater than any id


class Extremes(NamedTuple):
    """The largest and the least id of edges, the number of edges, and the least weight.

    Without edges these are -1, `LARGE`, 0 and infinity. The largest id is -2 if the edges are not
    known. The weight is NaN if there are no weights.
    """

    most: int = -2
    least: int = LARGE
    edges: int = 0
    weight: float = math.inf


def extremes(chunks: Iterator[EdgeArrays]) -> Extremes:
    """Return the extremes of edges."""
    return together([Extremes(-1), *(_extremes(*chunk) for chunk in chunks)])


def _extremes(source: Ints, target: Ints, weight: Floats | None) -> Extremes:
    """Return the extremes of one or more edges."""
    return Extremes(int(max(source.max(), target.max())), int(min(source.min(), target.min())),
                    len(source), math.nan if weight is None else float(np.fmin.reduce(weight)))


def together(found: Sequence[Extremes]) -> Extremes:
    """Return the extremes of all edges, from the extremes of parts of them."""
    mosts, leasts, edges, weights = zip(*found, strict=True)
    bare = any(weight != weight for weight in weights)
    return Extremes(max(mosts), min(leasts), sum(edges), math.nan if bare else min(weights))


class Sliced:
    """The edges of a file, in slices.

    A slice that was looked at is held until it is used, so that it is read once.

    Args:
        comm: the slots that read the file at the same time.
        key: tells the edges, and the file's state, from all others.
        read: called with i and a number of slices, yields the edges of slice i, a chunk at a time;
            no chunk is empty. Slots may communicate in it before the first chunk.
        sums: returns numbers about the data that `read` has read last; `check` gets those of all
            slots, and raises ValueError if the data is not right.
    """

    seen: ClassVar[dict[tuple[str, int, int], Extremes]] = {}  # of whole files, by this process

    def __init__(self, comm: Any, key: str,
                 read: Callable[[int, int], Iterator[EdgeArrays]],
                 sums: Callable[[], tuple[int, ...]] = tuple,
                 check: Callable[[list[list[int]]], None] = lambda sums: None) -> None:
        self.comm, self.key, self.read, self.sums, self.check = comm, key, read, sums, check
        self._held: list[tuple[Any, Any, Floats | None]] | None = None

    def slices(self, i: int, many: int) -> Iterator[EdgeArrays]:
        """Yield the edges of slice i of `many`, see `parts.Graph`."""
        if self._held is None or (i, many) != (self.comm.rank, self.comm.size):
            yield from self.read(i, many)
            return
        held, self._held = self._held, None
        held.reverse()
        while held:
            source, target, weight = held.pop()
            yield source.astype(np.int64), target.astype(np.int64), weight

    def look(self) -> Extremes:
        """Return the extremes of the whole file, which is read if no slot has seen it.

        Raises:
            ValueError: an edge cannot be read; raised on all slots.

        MPI: collective over all slots.
        """
        key, problem = (self.key, self.comm.rank, self.comm.size), ""
        known = self._all(self.seen.get(key, Extremes()))
        found = max(known[0], key=lambda each: each.most)
        if found.most == Extremes().most:
            mine, sums = Extremes(), self.sums()
            try:
                mine = together([Extremes(-1), *self._holding()])
                sums = self.sums()
            except ValueError as error:
                problem = str(error)
            every, all_sums = self._all(mine, sums, problem)
            self.check(all_sums)
            found = together(every)
        self.seen[key] = found
        return found

    def _all(self, mine: Extremes, sums: tuple[int, ...] = (),
             problem: str = "") -> tuple[list[Extremes], list[list[int]]]:
        """Return the extremes of each slot, and for each of the sums a list of all slots' values.
        """
        *columns, weights = shuffle.agree(self.comm, (*mine[:3], *sums, mine.weight), problem)
        return ([Extremes(*each) for each in zip(*columns[:3], weights, strict=True)],
                columns[3:])

    def _holding(self) -> Iterator[Extremes]:
        """Yield the extremes of each chunk of this slot's edges, and hold the edges in short form.
        """
        held: list[tuple[Any, Any, Floats | None]] = []
        for source, target, weight in self.read(self.comm.rank, self.comm.size):
            found = _extremes(source, target, weight)
            short = np.uint32 if found.least >= 0 and found.most < kernels.MOST else np.int64
            held.append((source.astype(short), target.astype(short), weight))
            yield found
        self._held = held
