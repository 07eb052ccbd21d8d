"""Graphs as slots have them: the owners of vertices, and the edges that leave a slot's vertices.

A slot has all edges that leave its own vertices, by source, as CSR. Each slot numbers the targets
of its edges: grouped by owner, then ascending by id, so that all values for one slot are one
stretch. Vertices have the ids 0 to n - 1.

Law: a slot's part follows from the graph and the slot alone, whichever process makes it, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...host.cgroup import available_bytes
from . import edgekernels, kernels
from .memory import DoesNotFit, MemoryWatch, gib
from .references import AnyArray, Columns, EdgeArrays, Floats, Ints, Mask, Numbers

KINDS = ("hash", "range", "edges")  # of partitions
PLACED = {"hash": "mixed rounds", "range": "range"}  # in keys of files: changes with the owners
MOST_VERTICES = 2**44  # more than any job has memory for; no product of such numbers wraps


def check_kind(kind: str) -> None:
    """Refuse an unknown kind of partition.

    Raises:
        ValueError: the kind is unknown; the text has the known kinds.
    """
    if kind not in KINDS:
        raise ValueError(f"partition {kind!r}: give {', '.join(map(repr, KINDS))}")


class Partition:
    """Says which slot owns each vertex; `partition_of` makes the partition of a graph.

    Args:
        kind: "hash": of N consecutive vertices each slot owns one, in a mixed order, so that all
            slots have about as many edges; "range": each slot owns a stretch of equal length;
            "edges": each slot owns a stretch with about as many edges.
        n: number of vertices.
        slots: N.
        bounds: for "edges": slot s owns vertices bounds[s] to bounds[s + 1] - 1, (N + 1,).

    Raises:
        ValueError: there is no such kind, bounds are missing or are not valid, or there are too
            many vertices.
    """

    def __init__(self, kind: str, n: int, slots: int, bounds: npt.ArrayLike | None = None) -> None:
        check_kind(kind)
        if (bounds is not None) != (kind == "edges"):
            raise ValueError(f"partition {kind!r} {'needs' if bounds is None else 'has no'} "
                             "bounds: partition_of() finds them")
        if n > MOST_VERTICES:
            raise ValueError(f"a graph of {n} vertices: more than 2**44; give a smaller one, or "
                             "relabel it (load has relabel=True) if few vertices have edges")
        self.kind, self.n, self.slots = kind, n, slots
        self.bounds: Ints = np.arange(slots + 1, dtype=np.int64) * n // slots
        if bounds is not None:
            self.bounds = np.array(bounds, np.int64)
            if len(self.bounds) != slots + 1 or self.bounds[0] != 0 or self.bounds[-1] != n or (
                    np.diff(self.bounds) < 0).any():
                raise ValueError(f"partition {kind!r}: bounds {self.bounds} of {slots} slots and "
                                 f"{n} vertices; give {slots + 1}, ascending from 0 to {n}")

    @property
    def key(self) -> str:
        """Text that tells the partition from all others."""
        return f"{self.bounds.tolist() if self.kind == 'edges' else PLACED[self.kind]} {self.slots}"

    @property
    def owners(self) -> tuple[int, int, Ints | None]:
        """Vertices, slots and perhaps bounds, as `edgekernels` takes them."""
        return self.n, self.slots, None if self.kind == "hash" else self.bounds

    def owner(self, ids: Ints) -> Ints:
        """Return the slot of each vertex."""
        if self.kind == "hash":
            return edgekernels.owners(ids, self.slots)
        return np.searchsorted(self.bounds, ids, side="right").astype(np.int64) - 1

    def owns(self, slot: int, ids: Ints) -> Mask:
        """Return a mask of the vertices that a slot owns."""
        if self.kind == "hash":
            found: Mask = self.owner(ids) == slot
        else:
            found = (ids >= self.bounds[slot]) & (ids < self.bounds[slot + 1])
        return found

    def local(self, ids: Ints) -> Ints:
        """Return the number of each vertex among those of its owner."""
        return ids // self.slots if self.kind == "hash" else ids - self.bounds[self.owner(ids)]

    def ids(self, slot: int) -> Ints:
        """Return the vertices of a slot, ascending."""
        if self.kind == "hash":
            begins = np.arange(0, self.n, self.slots, dtype=np.int64)
            found = begins + (slot - edgekernels.owners(begins, self.slots)) % self.slots
            return found[found < self.n]
        return np.arange(self.bounds[slot], self.bounds[slot + 1], dtype=np.int64)


@dataclass(frozen=True)
class Part:
    """A slot's part of a graph.

    Attributes:
        ids: the slot's vertices, ascending, (k,).
        ptr: index at which the edges of each vertex begin, (k + 1,).
        target: target of each edge, as its number among `targets`, (m,).
        weight: weight of each edge, (m,); None: the graph has no weights.
        targets: ids of all vertices to which the edges lead, by owner, then ascending.
        bounds: slot s owns targets[bounds[s]:bounds[s + 1]].
    """

    ids: Ints
    ptr: Ints
    target: Numbers
    weight: Floats | None
    targets: Ints
    bounds: Ints

    @cached_property
    def degree(self) -> Ints:
        """Number of edges that leave each vertex."""
        return np.diff(self.ptr)

    @cached_property
    def strength(self) -> Floats:
        """Sum of the weights of the edges that leave each vertex.

        Raises:
            ValueError: the graph has no weights.
        """
        if self.weight is None:
            raise ValueError("strength: the graph has no weights; give the edges some")
        row = np.repeat(np.arange(len(self.ids)), self.degree)
        return np.bincount(row, self.weight, len(self.ids)).astype(np.float64)

    @cached_property
    def columns(self) -> Columns:
        """The edges by target, made at the first use."""
        return kernels.by_target(self.ptr, self.target, self.weight, len(self.targets))

    def to(self, slot: int) -> slice:
        """Return the stretch of targets that a slot owns."""
        return slice(int(self.bounds[slot]), int(self.bounds[slot + 1]))


Slices = Callable[[int, int], Iterator[EdgeArrays]]


class Graph:
    """A directed graph, of which each slot makes its own part.

    Args:
        n: number of vertices.
        chunks: yields all edges, a chunk at a time, the same at each call; all chunks have weights,
            or none has.
        what: a word for the graph, for errors.
        names: the original ids of its vertices, (n,), if it was relabelled, or if ids are words.
        file: its edges are read from a file, which may be gone when they are needed again.
        edges: the approximate number of edges; 0: it is not known.
        key: a text that tells the graph from all other graphs, in all jobs, or a function that
            returns it; "": there is no such text.
        read_as: a text that says how its file was read.
        slices: called with i and a number of slices, yields slice i in chunks; the slices together
            have the chunks of `chunks`, in the same order. None: edges are read whole.
        least_weight: the least weight; NaN: there are no weights; None: it is not known.

    Raises:
        ValueError: there are no vertices; or, when edges are looked at, an edge has an end that is
            no vertex.
    """

    def __init__(self, n: int, chunks: Callable[[], Iterator[EdgeArrays]], what: str,
                 names: AnyArray | None = None, *, file: bool = False, edges: int = 0,
                 key: str | Callable[[], str] = "", read_as: str = "",
                 slices: Slices | None = None, least_weight: float | None = None) -> None:
        if n < 1:
            raise ValueError(f"{what}: a graph of {n} vertices; it needs one at least")
        self.n, self.chunks, self.what, self.names = n, chunks, what, names
        self.file, self.edges, self._key, self.read_as = file, edges, key, read_as
        self.slices, self.least_weight = slices, least_weight

    @cached_property
    def key(self) -> str:
        """Text that tells the graph from all others; computed when it is first used."""
        return self._key if isinstance(self._key, str) else self._key()

    def through(self, change: Callable[[Ints, Ints, Floats | None], Iterator[EdgeArrays]]
                ) -> tuple[Callable[[], Iterator[EdgeArrays]], Slices | None]:
        """Return `chunks` and `slices` of a graph whose chunks are made from those of this one."""
        def changed(chunks: Iterator[EdgeArrays]) -> Iterator[EdgeArrays]:
            for chunk in chunks:
                yield from change(*chunk)

        slices = self.slices
        return (lambda: changed(self.chunks()),
                None if slices is None else lambda i, many: changed(slices(i, many)))

    def derived(self, what: str) -> Callable[[], str]:
        """Return a function that returns the key of a graph that is made from this one."""
        return lambda: self.key and f"{what} {self.key}"

    def part(self, partition: Partition, slot: int) -> Part:
        """Make a slot's part of the graph.

        Raises:
            ValueError: an edge has an end that is no vertex, a weight is NaN, the part has 2**32
                vertices or targets, or it needs more memory than the machine has.
        """
        if self.n // partition.slots >= kernels.MOST:
            raise ValueError(f"{self.what}: {self.n} vertices on {partition.slots} slots, which "
                             "have less than 2**32 each; relabel it if few of them have edges")
        self.check_room(partition.slots)
        watch = MemoryWatch(self.what)
        rows, targets, weights = [np.zeros(0, np.uint32)], [np.zeros(0, self.short)], []
        for source, target, weight in self.chunks():
            self.check(source, target, weight)
            mine = np.flatnonzero(partition.owns(slot, source))
            rows.append(partition.local(source[mine]).astype(np.uint32))
            targets.append(target[mine].astype(self.short))
            if weight is not None:
                weights.append(weight[mine])
            size = len(mine) * (4 + targets[0].itemsize + (0 if weight is None else 8))
            watch.took(size, 2 * (watch.taken + size))  # the pieces will be joined, then sorted
        return self.assemble(partition, slot, np.concatenate(rows), np.concatenate(targets),
                             np.concatenate(weights) if weights else None)

    @property
    def short(self) -> type[np.uint32 | np.int64]:
        """The smallest dtype that holds all ids."""
        return np.uint32 if self.n <= kernels.MOST else np.int64

    def assemble(self, partition: Partition, slot: int, row: Numbers, target: AnyArray,
                 weight: Floats | None) -> Part:
        """Make a slot's part from its edges, which are in the order of the graph.

        Args:
            row: number of each edge's source among the slot's vertices.
            target: id of each edge's target; the array may be changed.
        """
        bounds, distinct, numbers = edgekernels.number(*partition.owners, target)
        ids = partition.ids(slot)
        ptr, numbers, weight = kernels.csr(row, numbers, weight, len(ids))
        return Part(ids, ptr, numbers, weight, distinct, bounds)

    def degrees(self, chunks: Iterator[EdgeArrays] | None = None) -> Ints:
        """Return the number of edges that leave each vertex, (n,).

        Args:
            chunks: the edges that are counted; by default all edges, which are then read.

        Raises:
            ValueError: see `part`.
        """
        self.check_room_for_degrees()
        found = np.zeros(self.n, np.int64)
        for source, target, weight in self.chunks() if chunks is None else chunks:
            self.check(source, target, weight)
            np.add.at(found, source, 1)
        return found

    def check_room_for_degrees(self) -> None:
        """Refuse a graph with so many vertices that the numbers of their edges do not fit."""
        need, free = 8 * self.n, available_bytes()
        if need > free:
            raise DoesNotFit(f"{self.what}: {self.n} vertices do not fit: to count their edges "
                             f"takes {gib(need)}, and the machine has {gib(free)} free; relabel "
                             "the graph if few vertices have edges, or give another partition")

    def check_room(self, slots: int) -> None:
        """Refuse a graph whose parts need more than the memory that is left, see `part`."""
        # A vertex takes 5 bytes; an edge of the slot takes a row and a target, twice.
        need, free = 5 * self.n + 16 * self.edges // slots, available_bytes()
        if need > free:
            raise DoesNotFit(f"{self.what}: {self.n} vertices and {self.edges} edges do not fit: "
                             f"each of {slots} slots takes {gib(need)} at first, and "
                             f"its machine has {gib(free)} free; use more slots on more machines, "
                             "or relabel the graph if few vertices have edges")

    def check(self, source: Ints, target: Ints, weight: Floats | None) -> None:
        """Refuse edges with an end that is no vertex, and weights that are NaN."""
        for name, ids in (("source", source), ("target", target)):
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.n:
                wrong = ids[(ids < 0) | (ids >= self.n)][0]
                raise ValueError(f"{self.what}: an edge has {name} {wrong}; vertices are 0 to "
                                 f"{self.n - 1}")
        if weight is not None and np.isnan(weight).any():
            raise ValueError(f"{self.what}: the weight of an edge is NaN")


def partition_of(kind: str, graph: Graph, slots: int, degrees: Ints | None = None) -> Partition:
    """Return the partition of a graph over a number of slots.

    With "edges" a slot has at most an equal share of the edges, plus the edges of one vertex.

    Args:
        degrees: the graph's degrees, for "edges"; by default all edges are read to count them.

    Raises:
        ValueError: there is no such kind, or an edge of the graph is not valid.
    """
    if kind != "edges":
        return Partition(kind, graph.n, slots)
    before = np.concatenate([[0], np.cumsum(graph.degrees() if degrees is None else degrees)])
    shares = before[-1] * np.arange(1, slots) // slots
    bounds = [0, *np.searchsorted(before, shares).tolist(), graph.n]
    return Partition(kind, graph.n, slots, bounds)


def symmetric(graph: Graph) -> Graph:
    """Return the graph with each edge in both directions."""

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        yield source, target, weight
        yield target, source, weight

    chunks, slices = graph.through(change)
    return Graph(graph.n, chunks, graph.what, graph.names, file=graph.file, edges=2 * graph.edges,
                 key=graph.derived("symmetric"), read_as=graph.read_as, slices=slices)


def relabel(graph: Graph, ids: Ints | None = None) -> Graph:
    """Return the graph with ids 0 to k - 1 for the vertices that have edges.

    New ids are in the order of the old ids, which are the new graph's `names`.

    Args:
        ids: old ids of these vertices, see `vertices_with_edges`; by default all edges are read to
            find them.

    Raises:
        ValueError: the graph has no edges.
    """
    names = vertices_with_edges(graph, graph.chunks()) if ids is None else ids

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        yield np.searchsorted(names, source), np.searchsorted(names, target), weight

    if not len(names):
        raise ValueError(f"{graph.what}: has no edges, so no vertices when it is relabelled")
    chunks, slices = graph.through(change)
    return Graph(len(names), chunks, graph.what,
                 names if graph.names is None else graph.names[names], file=graph.file,
                 edges=graph.edges, key=graph.derived("relabelled"), read_as=graph.read_as,
                 slices=slices)


def vertices_with_edges(graph: Graph, chunks: Iterator[EdgeArrays]) -> Ints:
    """Return the vertices at which these edges of a graph begin or end, ascending, each once."""
    found, watch = np.zeros(0, np.int64), MemoryWatch(graph.what)
    for source, target, _ in chunks:
        found = np.union1d(found, np.concatenate([source, target]))
        watch.took(found.nbytes - watch.taken, 2 * found.nbytes)
    return found
