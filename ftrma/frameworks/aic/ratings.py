"""Known entries of a matrix, read from files of ratings or sparse matrices."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from ..graph.references import Ints
from .kinds import Floats

COMMENTS = ("#", "%")


@dataclass(frozen=True)
class Ratings:
    """Entries of a file, for ``fit(*load_ratings(...))``. Rows and columns are numbered from 0.

    Attributes:
        rows, cols, values: row, column and value of each entry, (k,).
        row_ids, column_ids: the id in the file of each row and of each column, ascending.
        read_as: a text that says how the file was read.
    """

    rows: Ints
    cols: Ints
    values: Floats
    row_ids: Ints
    column_ids: Ints
    read_as: str

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.row_ids), len(self.column_ids)

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return iter((self.rows, self.cols, self.values))


def load_ratings(path: str | os.PathLike[str]) -> Ratings:
    """Read entries of a matrix from a file.

    Ids are whole numbers and may have gaps: each id that occurs is a row or a column.

    Args:
        path: a sparse matrix (.npz of scipy.sparse, .mtx); an .npz file with the arrays rows, cols
            and values; or text, perhaps .gz, whose lines have a row, a column and a value,
            separated by blanks, tabs, commas, semicolons or double colons. Further columns are
            ignored; so are a first line without numbers, and lines that begin with # or %.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is none of these, or has no entries; the text has the remedy.

    MPI: local; each slot reads the whole file.
    Fault: a death elsewhere has no effect on it.
    """
    name = os.fspath(path)
    if name.endswith((".npz", ".mtx", ".mtx.gz")):
        (rows, cols, values), what = _arrays(name), ""
    else:
        (rows, cols, values), what = _text(name)
    if not len(rows) == len(cols) == len(values):
        raise ValueError(f"{name}: {len(rows)} rows, {len(cols)} columns and {len(values)} values; "
                         "give one of each for each entry")
    if not len(rows):
        raise ValueError(f"{name}: no entries; give lines of a row, a column and a value")
    row_ids, i = np.unique(rows, return_inverse=True)
    column_ids, j = np.unique(cols, return_inverse=True)
    read_as = f"{len(values):,} entries, {len(row_ids):,} rows x {len(column_ids):,} columns{what}"
    return Ratings(i.astype(np.int64), j.astype(np.int64), np.asarray(values, np.float64), row_ids,
                   column_ids, read_as)


def _arrays(name: str) -> tuple[Any, Any, Any]:
    """Return the entries of a file of arrays."""
    import scipy.io
    import scipy.sparse

    try:
        if not name.endswith(".npz"):
            found = scipy.sparse.coo_array(scipy.io.mmread(name))
            return found.row, found.col, found.data
        with np.load(name, allow_pickle=False) as file:
            if {"rows", "cols", "values"} <= {*file}:
                return file["rows"], file["cols"], file["values"]
        found = scipy.sparse.load_npz(name).tocoo()
        return found.row, found.col, found.data
    except (ValueError, KeyError) as error:
        raise ValueError(f"{name}: {error}; give a sparse matrix, or the arrays rows, cols and "
                         "values") from None


def _text(name: str) -> tuple[tuple[Ints, Ints, Floats], str]:
    """Return the entries of a text, and how it was read."""
    with gzip.open(name, "rt") if name.endswith(".gz") else open(name) as file:
        try:
            first, header = _first(file)
            comma = next((mark for mark in ("::", ",", ";") if mark in first), None)
            columns = len(first.replace("::", ",").split(comma and ","))
            lines: Iterable[str] = _lines(first, file)
            if comma == "::":
                lines, comma = (line.replace("::", ",") for line in lines), ","
            table = np.loadtxt(lines, np.float64, delimiter=comma, comments=list(COMMENTS),
                               usecols=(0, 1, 2), ndmin=2)
        except (ValueError, UnicodeDecodeError, EOFError) as error:
            raise ValueError(f"{name}: {error}; give lines of a row, a column and a value"
                             ) from None
    ids = table[:, :2]
    bad = np.flatnonzero(~(np.abs(ids) < 2**53).all(axis=1) | (ids != np.floor(ids)).any(axis=1))
    if len(bad):
        raise ValueError(f"{name}: entry {bad[0]} is row {ids[bad[0], 0]:g}, column "
                         f"{ids[bad[0], 1]:g}; give ids that are whole numbers")
    what = (", a header" * header) + f", columns 1 to 3 of {columns}" * (columns > 3)
    return (ids[:, 0].astype(np.int64), ids[:, 1].astype(np.int64), table[:, 2]), what


def _lines(first: str, rest: TextIO) -> Iterator[str]:
    yield first
    yield from rest


def _first(file: TextIO) -> tuple[str, bool]:
    """Return the first line of entries, and whether a header is in front of it."""
    header = False
    for line in file:
        if not line.strip() or line.startswith(COMMENTS):
            continue
        try:
            [float(word) for word in line.replace(",", " ").replace(";", " ").replace(
                "::", " ").split()[:3]]
        except ValueError:
            if header:
                raise ValueError(f"{line.strip()[:40]!r} are no numbers") from None
            header = True
            continue
        return line, header
    raise ValueError("no entries")
