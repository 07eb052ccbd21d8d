"""Known entries of a matrix: their checks, a slot's share of them, and random ones for trials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..graph import kernels
from ..graph.references import Columns, Ints
from .completion_workload import Share
from .kinds import Floats

BIAS_DAMPING = 5  # additional entries of mean 0 in each row and column; usual are 2 to 25
BIAS_ROUNDS = 10  # measured: later rounds change the third digit
MOST_IDS = 2**32 - 1  # rows or columns: the kernels have no larger numbers


@dataclass(frozen=True)
class Known:
    """Entries of a matrix that have been checked.

    Attributes:
        rows, cols, values: row, column and value of each entry.
        shape: numbers of rows and columns of the matrix.
    """

    rows: Ints
    cols: Ints
    values: Floats
    shape: tuple[int, int]

    def biases(self) -> tuple[Floats, Floats]:
        """Return how much each row and each column that has entries is above the mean.

        Those of rows and columns are found in turn; with few entries they are drawn to 0.
        """
        i, j = self.rows, self.cols
        n, m = (np.bincount(ids, minlength=length) + BIAS_DAMPING
                for ids, length in zip((i, j), self.shape, strict=True))
        above, row = self.values - self.values.mean(), np.zeros(self.shape[0])
        for _ in range(BIAS_ROUNDS):
            column = np.bincount(j, above - row[i], self.shape[1]) / m
            row = np.bincount(i, above - column[j], self.shape[0]) / n
        return row, column

    def digest(self) -> str:
        """Return a hash of these entries; other entries practically never have the same one."""
        found = hashlib.sha256()
        for array in (self.rows, self.cols, self.values):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

    def with_values(self, values: Floats) -> Known:
        """Return the entries with other values."""
        return Known(self.rows, self.cols, values, self.shape)

    def share(self, me: int, size: int) -> Share:
        """Return the entries of a slot's block of rows; all blocks have about as many entries."""
        ends = np.bincount(self.rows, minlength=self.shape[0]).cumsum()
        first, last = (int(np.searchsorted(ends, slot * len(self.rows) / size, "left"))
                       if 0 < slot < size else slot // size * self.shape[0]
                       for slot in (me, me + 1))
        mine = np.flatnonzero((self.rows >= first) & (self.rows < last))
        cols, values = self.cols[mine], self.values[mine]
        ptr, row, value = kernels.csr(cols, self.rows[mine] - first, values, self.shape[1])
        return Share(Columns(ptr, row, value), first, last, np.unique(self.cols), len(self.rows))


# ---- checks -------------------------------------------------------------------------------------


def whole(name: str, value: Any, least: int, most: int) -> int:
    """Check a whole number."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or (
            not least <= value <= most):
        raise ValueError(f"{name}={value!r}: give a whole number from {least} to {most}")
    return int(value)


def ids_of(name: str, ids: npt.ArrayLike) -> Ints:
    """Return row or column numbers, one for each entry, after checking them."""
    found = np.asarray(ids)
    if found.ndim != 1:
        raise ValueError(f"{name} has the shape {found.shape}; give one for each entry, (k,)")
    if not len(found):
        return np.empty(0, np.int64)
    if found.dtype.kind not in "iu":
        raise TypeError(f"{name} is of {found.dtype}; give integers, counted from 0")
    return found.astype(np.int64)


def values_of(values: npt.ArrayLike) -> Floats:
    """Return values, one for each entry, after checking them."""
    found = np.asarray(values)
    if found.ndim != 1:
        raise ValueError(f"values has the shape {found.shape}; give one for each entry, (k,)")
    if found.dtype.kind not in "iufb":
        raise TypeError(f"values are of {found.dtype}; give real numbers")
    return found.astype(np.float64)


def known_entries(rows: npt.ArrayLike, cols: npt.ArrayLike, values: npt.ArrayLike,
           shape: tuple[int, int] | None) -> Known:
    """Check entries, and return them."""
    i, j, known = ids_of("rows", rows), ids_of("cols", cols), values_of(values)
    if not len(i) == len(j) == len(known):
        raise ValueError(f"fit: {len(i)} rows, {len(j)} columns and {len(known)} values: give one "
                         "of each for each entry")
    if not len(i):
        raise ValueError("fit: no entries; give one at least")
    bad = np.flatnonzero(~np.isfinite(known))
    if len(bad):
        raise ValueError(f"fit: {len(bad)} values are no finite numbers, the first one is "
                         f"values[{bad[0]}] = {known[bad[0]]}; leave out what is not known")
    if shape is None:
        check_inside("fit", i, j, (MOST_IDS, MOST_IDS))
        return Known(i, j, known, (int(i.max()) + 1, int(j.max()) + 1))
    if len(shape) != 2:
        raise ValueError(f"shape={shape!r}: give the numbers of rows and of columns")
    n, m = (whole("shape", length, 1, MOST_IDS) for length in shape)
    check_inside("fit", i, j, (n, m))
    return Known(i, j, known, (n, m))


def check_inside(what: str, i: Ints, j: Ints, shape: tuple[int, int]) -> None:
    """Check that entries lie in a matrix."""
    bad = np.flatnonzero((i < 0) | (i >= shape[0]) | (j < 0) | (j >= shape[1]))
    if not len(bad):
        return
    first = bad[0]
    remedy = ("give ids from 0 on, as np.unique(ids, return_inverse=True) does"
              if max(shape) == MOST_IDS else
              "give ids from 0 on, or fit with a larger shape=(rows, columns)")
    raise ValueError(f"{what}: entry {first} is row {i[first]}, column {j[first]} of a matrix of "
                     f"{shape[0]} rows and {shape[1]} columns; {remedy}")


# ---- matrices for trials ------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """Entries of a matrix that is known to have factors, for ``fit(*planted(...))``.

    Attributes:
        rows, cols, values: row, column and value of each known entry, (k,).
        held_out: rows, columns and values of other entries, with as much noise.
        shape: numbers of rows and columns of the matrix.
        noise: standard deviation of the noise that was added to the product of the factors.
    """

    rows: Ints
    cols: Ints
    values: Floats
    held_out: tuple[Ints, Ints, Floats]
    shape: tuple[int, int]
    noise: float

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return iter((self.rows, self.cols, self.values))


def planted(n: int, m: int, rank: int = 20, *, density: float = 0.3, noise: float = 0.1,
            seed: int = 0) -> Planted:
    """Make some entries of a random matrix of low rank, whose values have variance 1, plus noise.

    Args:
        n, m: numbers of rows and columns.
        rank: number of factors of each row and column.
        density: share of the entries that are known; a tenth as many other entries are held out.
        noise: standard deviation of the noise that is added to each value.
        seed: equal seeds give equal entries, on all slots.

    Raises:
        ValueError: a size is below 1, or the density is not in (0, 1].

    MPI: local.
    Fault: a death elsewhere has no effect on it.
    """
    n, m = whole("n", n, 1, MOST_IDS), whole("m", m, 1, MOST_IDS)
    rank, seed = whole("rank", rank, 1, 10_000), whole("seed", seed, 0, MOST_IDS)
    if not 0 < density <= 1 or not 0 <= noise < np.inf:
        raise ValueError(f"density={density!r}, noise={noise!r}: give a density above 0 and up to "
                         "1, and a finite noise of at least 0")
    random = np.random.default_rng(seed)
    deviation = rank**-0.25
    left, right = random.normal(0, deviation, (n, rank)), random.normal(0, deviation, (m, rank))
    kept: list[tuple[Ints, Ints]] = []
    out: list[tuple[Ints, Ints]] = []
    block = max(1, 10**7 // m)  # rows at once: 80 MB
    for first in range(0, n, block):
        drawn = random.random((min(block, n - first), m))
        for where, low, high in ((kept, 0.0, density), (out, density, 1.1 * density)):
            i, j = np.nonzero((drawn >= low) & (drawn < high))
            where.append((i + first, j))
    parts = []
    for pieces in (kept, out):
        i, j = (np.concatenate(ids) for ids in zip(*pieces, strict=True))
        product = np.einsum("ij,ij->i", left[i], right[j])
        parts.append((i, j, product + random.normal(0, noise, len(i))))
    return Planted(*parts[0], held_out=parts[1], shape=(n, m), noise=noise)
