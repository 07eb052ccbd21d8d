"""Graphs as slots have them: who owns a vertex, and the edges that leave what a slot owns.

A slot has all edges of its own vertices, by source, as CSR. Their targets have numbers of its own:
grouped by owner, ascending by id, so that what is sent to a slot is one stretch. Vertices have the
ids 0 to n - 1.

Law: a slot's part follows from the graph and the slot alone, whenever it is made, and by whom.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Edges = tuple[Ints, Ints, Floats | None]  # sources, targets, weights

CHUNK = 1 << 18  # edges that are made at a time
RMAT = (0.57, 0.19, 0.19)  # of Graph500, for the quadrants but the last


class Partition:
    """Which slot owns which vertex.

    Args:
        kind: "hash": vertex v is slot v mod N's; "range": each slot has an equal stretch.
        n: vertices.
        slots: N.

    Raises:
        ValueError: there is no such kind.
    """

    def __init__(self, kind: str, n: int, slots: int) -> None:
        if kind not in ("hash", "range"):
            raise ValueError(f"partition {kind!r}: give \"hash\" or \"range\"")
        self.kind, self.n, self.slots = kind, n, slots
        self.bounds = np.arange(slots + 1, dtype=np.int64) * n // slots

    def owner(self, ids: Ints) -> Ints:
        """Slot of each vertex."""
        if self.kind == "hash":
            return ids % self.slots
        return np.searchsorted(self.bounds, ids, side="right").astype(np.int64) - 1

    def local(self, ids: Ints) -> Ints:
        """Number of each vertex among those of its owner."""
        return ids // self.slots if self.kind == "hash" else ids - self.bounds[self.owner(ids)]

    def ids(self, slot: int) -> Ints:
        """Vertices of a slot, ascending."""
        if self.kind == "hash":
            return np.arange(slot, self.n, self.slots, dtype=np.int64)
        return np.arange(self.bounds[slot], self.bounds[slot + 1], dtype=np.int64)


@dataclass(frozen=True)
class Part:
    """What a slot has of a graph.

    Attributes:
        ids: its vertices, ascending, (k,).
        ptr: where the edges of each begin, (k + 1,).
        target: of each edge, as its number among `targets`, (m,).
        weight: of each edge, (m,); None: the graph has none.
        targets: ids of all that the edges lead to, by owner, then ascending.
        bounds: targets[bounds[s]:bounds[s + 1]] are slot s's.
    """

    ids: Ints
    ptr: Ints
    target: Ints
    weight: Floats | None
    targets: Ints
    bounds: Ints

    @property
    def degree(self) -> Ints:
        """Edges that leave each vertex."""
        return np.diff(self.ptr)

    def to(self, slot: int) -> slice:
        """Which targets are a slot's."""
        return slice(int(self.bounds[slot]), int(self.bounds[slot + 1]))


class Graph:
    """A directed graph, of which each slot makes its own part.

    Args:
        n: vertices.
        chunks: gives all edges, a chunk at a time, the same at each call.
        what: it is, for errors.

    Raises:
        ValueError: there are no vertices, or (when a part is made) an edge leads out of them.
    """

    def __init__(self, n: int, chunks: Callable[[], Iterator[Edges]], what: str) -> None:
        if n < 1:
            raise ValueError(f"{what}: a graph of {n} vertices; it needs one at least")
        self.n, self.chunks, self.what = n, chunks, what

    def part(self, partition: Partition, slot: int) -> Part:
        """What a slot has of it."""
        kept: list[Edges] = []
        for source, target, weight in self.chunks():
            self._check(source, target, weight)
            mine = partition.owner(source) == slot
            kept.append((source[mine], target[mine], None if weight is None else weight[mine]))
        none = np.zeros(0, np.int64)
        source = np.concatenate([none, *(s for s, _, _ in kept)])
        target = np.concatenate([none, *(t for _, t, _ in kept)])
        weights = [w for _, _, w in kept if w is not None]
        ids = partition.ids(slot)
        row = partition.local(source)
        order = np.argsort(row, kind="stable")
        ptr = begins(row, len(ids))
        distinct, number = np.unique(target[order], return_inverse=True)
        owner = partition.owner(distinct)
        by_owner = np.argsort(owner, kind="stable")
        place = np.empty_like(by_owner)
        place[by_owner] = np.arange(len(by_owner))
        return Part(ids, ptr, place[number].astype(np.int64),
                    np.concatenate(weights)[order] if weights else None,
                    distinct[by_owner], begins(owner, partition.slots))

    def _check(self, source: Ints, target: Ints, weight: Floats | None) -> None:
        for name, ids in (("source", source), ("target", target)):
            if len(ids) and not 0 <= ids.min() <= ids.max() < self.n:
                wrong = ids[(ids < 0) | (ids >= self.n)][0]
                raise ValueError(f"{self.what}: an edge has {name} {wrong}; vertices are 0 to "
                                 f"{self.n - 1}")
        if weight is not None and np.isnan(weight).any():
            raise ValueError(f"{self.what}: the weight of an edge is NaN")


def begins(numbers: Ints, size: int) -> Ints:
    """Where each of 0 .. size - 1 begins when these are sorted, and the end, (size + 1,)."""
    counts = np.bincount(numbers, minlength=size)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


# ---- where graphs come from -----------------------------------------------------------------


def of_edges(n: int, source: npt.ArrayLike, target: npt.ArrayLike,
             weight: npt.ArrayLike | None = None, what: str = "edges") -> Graph:
    """A graph of given edges, which each slot has whole.

    Raises:
        ValueError: the arrays differ in length, or ids are no whole numbers.
    """
    ends = [np.asarray(ids) for ids in (source, target)]
    weights = None if weight is None else np.asarray(weight, np.float64)
    lengths = {array.shape for array in (*ends, *([] if weights is None else [weights]))}
    if len(lengths) > 1 or ends[0].ndim != 1:
        shapes = " and ".join(str(shape) for shape in sorted(lengths))
        raise ValueError(f"{what}: arrays of shapes {shapes}; give one entry for each edge in each")
    if any(array.size and array.dtype.kind not in "iu" for array in ends):
        raise ValueError(f"{what}: ids of vertices have to be whole numbers")
    first, second = (array.astype(np.int64) for array in ends)
    return Graph(n, lambda: iter([(first, second, weights)]), what)


def load(path: str | os.PathLike[str]) -> Graph:
    """A graph from a file: ``.npz`` as scipy.sparse writes CSR or CSC, or with ``src``, ``dst`` and
    perhaps ``weight`` and ``n``.

    Raises:
        ValueError: it is missing, cut, or has something else in it.
    """
    name = Path(path).name
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ValueError("one array; expected the arrays of a graph")
        with file:
            found = {key: file[key] for key in file.files}
    except Exception as error:  # NumPy's, or zipfile's and zlib's of one that is damaged
        raise ValueError(f"{name}: cannot be read as .npz: {error}") from None
    if {"indptr", "indices", "shape"} <= set(found):
        indptr = found["indptr"].astype(np.int64)
        ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), found["indices"]
        order = bytes(found.get("format", np.array(b"csr")).item()).decode()
        if order not in ("csr", "csc"):
            raise ValueError(f"{name}: a matrix in format {order}; save it as CSR")
        source, target = ends if order == "csr" else ends[::-1]
        return of_edges(int(max(found["shape"])), source, target, found.get("data"), name)
    if {"src", "dst"} <= set(found):
        source, target = found["src"], found["dst"]
        most = max((int(ids.max()) for ids in (source, target) if ids.size), default=0)
        n = int(found["n"]) if "n" in found else 1 + most
        return of_edges(n, source, target, found.get("weight"), name)
    raise ValueError(f"{name}: has {', '.join(sorted(found)) or 'nothing'}; a graph has indptr, "
                     "indices and shape, or src and dst")


def path(n: int) -> Graph:
    """0 to 1 to 2 ... to n - 1."""
    return of_edges(n, np.arange(n - 1), np.arange(1, n), what="path")


def rmat(scale: int, degree: int = 16, seed: int = 1) -> Graph:
    """A power-law graph of 2**scale vertices with degree * 2**scale edges, with repetitions.

    Each chunk of edges follows from its number alone, so it is the same wherever it is made.

    Source: D. Chakrabarti, Y. Zhan, C. Faloutsos, "R-MAT", SDM 2004; parameters of Graph500.
    """
    if not 0 <= scale <= 40:
        raise ValueError(f"rmat: scale {scale}; give 0 to 40")
    edges = degree << scale

    def chunks() -> Iterator[Edges]:
        for first in range(0, edges, CHUNK):
            count = min(CHUNK, edges - first)
            random = np.random.Generator(np.random.Philox(key=[seed, first]))
            source, target = np.zeros(count, np.int64), np.zeros(count, np.int64)
            for _ in range(scale):
                draw = random.random(count)
                a, b, c = np.cumsum(RMAT)
                source, target = source * 2 + (draw >= b), target * 2 + (
                    ((draw >= a) & (draw < b)) | (draw >= c))
            yield source, target, None

    return Graph(1 << scale, chunks, "rmat")


def symmetric(graph: Graph) -> Graph:
    """The same with each edge in both directions."""

    def chunks() -> Iterator[Edges]:
        for source, target, weight in graph.chunks():
            yield source, target, weight
            yield target, source, weight

    return Graph(graph.n, chunks, graph.what)


