"""Graphs that are computed: each chunk of edges follows from its number alone.

So a slot that makes its part again, alone, makes an equal part; if the slots make their parts
together, each of them makes a share of the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import numpy.typing as npt

from . import edgekernels
from .parts import Graph
from .references import EdgeArrays

CHUNK = 1 << 16  # edges of R-MAT that are made at a time; measured to be the fastest
VERTICES = 1 << 12  # vertices whose edges are made at a time
RMAT = (0.57, 0.19, 0.19, 0.05)  # of Graph500
WORD = 2**64


def path(n: int) -> Graph:
    """Return the path 0, 1, 2 ... n - 1."""

    def edges(first: int) -> EdgeArrays:
        ids = np.arange(first, min(first + VERTICES, n - 1))
        return ids, ids + 1, None

    return _made(n, edges, range(0, n - 1, VERTICES), "path", edges=n - 1, key="path")


def _made(n: int, make: Callable[[int], EdgeArrays], firsts: range, what: str, *, edges: int = 0,
          key: str) -> Graph:
    """Return a graph whose chunks of edges are made by their numbers; a slice is some chunks."""

    def slices(i: int, many: int) -> Iterator[EdgeArrays]:
        return map(make, firsts[len(firsts) * i // many : len(firsts) * (i + 1) // many])

    return Graph(n, lambda: map(make, firsts), what, edges=edges, key=key, slices=slices)


def grid(rows: int, columns: int) -> Graph:
    """Return a grid: vertex r * columns + c has edges to those above, left, right and below it.

    Raises:
        ValueError: there is no vertex.
    """
    if rows < 1 or columns < 1:
        raise ValueError(f"grid: {rows} rows of {columns}; give 1 or more")
    n = rows * columns

    def edges(first: int) -> EdgeArrays:
        ids = np.arange(first, min(first + VERTICES, n))
        row, column = np.divmod(ids, columns)
        there = np.stack([row > 0, column > 0, column < columns - 1, row < rows - 1], axis=1)
        to = ids[:, None] + np.array([-columns, -1, 1, columns])
        return np.repeat(ids, there.sum(axis=1)), to[there], None

    return _made(n, edges, range(0, n, VERTICES), "grid", edges=4 * n, key=f"grid {rows}")


def rmat(scale: int, degree: int = 16, seed: int = 1) -> Graph:
    """Return a power-law graph of 2**scale vertices and degree * 2**scale edges, with repetitions.

    Raises:
        ValueError: the scale is not 0 to 40, or the degree is negative.

    Source: D. Chakrabarti, Y. Zhan, C. Faloutsos, "R-MAT", SDM 2004; parameters of Graph500.
    """
    if not 0 <= scale <= 40:
        raise ValueError(f"rmat: scale {scale}; give 0 to 40")
    if degree < 0:
        raise ValueError(f"rmat: degree {degree}; give 0 or more")
    edges = degree << scale

    def make(first: int) -> EdgeArrays:
        return (*edgekernels.rmat(seed % WORD, scale, pairs(), first, min(CHUNK, edges - first)),
                None)

    return _made(1 << scale, make, range(0, edges, CHUNK), "rmat", edges=edges,
                 key=f"rmat {degree} {seed}")


@cache
def pairs() -> npt.NDArray[np.uint8]:
    """Return, for each number of 16 random bits, two quadrants, one within the other, (65536,).

    An entry has two bits of the source, then two of the target.
    """
    chance = np.multiply.outer(RMAT, RMAT).ravel()
    ends = np.round(np.cumsum(chance) * 65536).astype(np.int64)
    outer, inner = np.divmod(np.arange(16), 4)
    bits = (outer >> 1) * 8 + (inner >> 1) * 4 + (outer & 1) * 2 + (inner & 1)
    return np.repeat(bits.astype(np.uint8), np.diff(ends, prepend=0))


def lognormal(n: int, mu: float, sigma: float, seed: int = 1) -> Graph:
    """Return a graph whose vertices have exp(N(mu, sigma)) edges each, to random vertices.

    The number of edges is rounded, and is at most n - 1.

    Raises:
        ValueError: sigma is negative, or mu or sigma is no number.
    """
    if not (np.isfinite(mu) and np.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"lognormal: mu {mu}, sigma {sigma}; give numbers, sigma not negative")

    def edges(first: int) -> EdgeArrays:
        random = np.random.Generator(np.random.Philox(key=[seed % WORD, first]))
        ids = np.arange(first, min(first + VERTICES, n))
        with np.errstate(over="ignore"):
            degree = np.rint(np.exp(random.normal(mu, sigma, len(ids))))
        degree = degree.clip(0, n - 1).astype(np.int64)
        source = np.repeat(ids, degree)
        return source, random.integers(0, n, len(source)), None

    return _made(n, edges, range(0, n, VERTICES), "lognormal",
                 key=f"lognormal {mu!r} {sigma!r} {seed}")


def power_law(n: int, alpha: float = 2.3, seed: int = 1) -> Graph:
    """Return a graph whose vertices have d edges with a probability as d**-alpha, to random ones.

    Each vertex has at least 1 edge and at most n - 1.

    Raises:
        ValueError: there is no vertex, or alpha is not above 1.
    """
    if not 1 < alpha < np.inf:
        raise ValueError(f"power_law: alpha {alpha}; give a number above 1")

    def edges(first: int) -> EdgeArrays:
        random = np.random.Generator(np.random.Philox(key=[seed % WORD, first]))
        ids = np.arange(first, min(first + VERTICES, n))
        degree = random.zipf(alpha, len(ids)).clip(1, max(1, n - 1))
        source = np.repeat(ids, degree)
        return source, random.integers(0, n, len(source)), None

    return _made(n, edges, range(0, n, VERTICES), "power_law",
                 key=f"power_law {alpha!r} {seed}")
