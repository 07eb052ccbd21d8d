"""Edges in a file of which each of several slots reads a share, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from . import kernels, shuffle
from .references import EdgeArrays, Floats

LARGE = 1 << 62  # more than any id
UNSEEN = (-2, LARGE, 0)

Extremes = tuple[int, int, int]  # the largest id, the least one, and the number of edges


def extremes(chunks: Iterator[EdgeArrays]) -> Extremes:
    """The extremes of edges; -1 and a large number if there is none."""
    most, least, count = -1, LARGE, 0
    for source, target, _ in chunks:
        most = max(most, int(source.max()), int(target.max()))
        least = min(least, int(source.min()), int(target.min()))
        count += len(source)
    return most, least, count


class Sliced:
    """The edges of a file, in slices.

    A slice that was looked at is held until it is used, so that it is read once.

    Args:
        comm: of the slots that read the file at the same time.
        key: tells the edges, and the file's state, from all others.
        read: gives the edges of slice i of so many, a chunk at a time; no chunk is empty. Slots may
            communicate in it, in front of the first chunk.
        sums: gives numbers of what `read` has read last, by which `check` knows whether all of it
            is right; `check` raises ValueError if it is not.
    """

    seen: ClassVar[dict[tuple[str, int, int], Extremes]] = {}  # by this process, of whole files

    def __init__(self, comm: Any, key: str,
                 read: Callable[[int, int], Iterator[EdgeArrays]],
                 sums: Callable[[], tuple[int, ...]] = tuple,
                 check: Callable[[list[list[int]]], None] = lambda sums: None) -> None:
        self.comm, self.key, self.read, self.sums, self.check = comm, key, read, sums, check
        self._held: list[tuple[Any, Any, Floats | None]] | None = None

    def slices(self, i: int, many: int) -> Iterator[EdgeArrays]:
        """The edges of slice i of so many, see `parts.Graph`."""
        if self._held is None or (i, many) != (self.comm.rank, self.comm.size):
            yield from self.read(i, many)
            return
        held, self._held = self._held, None
        held.reverse()
        while held:
            source, target, weight = held.pop()
            yield source.astype(np.int64), target.astype(np.int64), weight

    def look(self) -> Extremes:
        """The extremes of the whole file, which is read if none of the slots has seen it.

        Raises:
            ValueError: an edge cannot be read; on all slots.

        MPI: collective over all slots.
        """
        key, problem = (self.key, self.comm.rank, self.comm.size), ""
        mosts, leasts, counts = shuffle.agree(self.comm, self.seen.get(key, UNSEEN))
        found = max(mosts), min(leasts), max(counts)
        if found == UNSEEN:
            mine, sums = UNSEEN, self.sums()
            try:
                mine = extremes(self._holding())
                sums = self.sums()
            except ValueError as error:
                problem = str(error)
            mosts, leasts, counts, *all_sums = shuffle.agree(self.comm, (*mine, *sums), problem)
            self.check(all_sums)
            found = max(mosts), min(leasts), sum(counts)
        self.seen[key] = found
        return found

    def _holding(self) -> Iterator[EdgeArrays]:
        """This slot's edges, which are held, in short."""
        held: list[tuple[Any, Any, Floats | None]] = []
        for source, target, weight in self.read(self.comm.rank, self.comm.size):
            fits = all(ids.min() >= 0 and ids.max() < kernels.MOST for ids in (source, target))
            short = np.uint32 if fits else np.int64
            held.append((source.astype(short), target.astype(short), weight))
            yield source, target, weight
        self._held = held
