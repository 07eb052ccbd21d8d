"""Results of programs: one slot's part, gathered, as a table, and in files."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ...host import outfile
from .parts import Graph
from .references import AnyArray
from .runner import StepReport

TABLES = (".csv", ".tsv", ".parquet", ".npz")  # files that have the vertices, too
ROWS = 1 << 16  # rows of a table that are written at a time


class Result:
    """The fields of a program that has ended.

    Attributes:
        ids: the slot's own vertices, ascending.
        edges: number of edges that leave these; None if this process has not had the edges.
        reports: reports of the steps that this process has taken in the run, in all attempts.

    MPI: local, but for methods that say otherwise.
    Fault: a program that is entered again gets the same result again.
    """

    def __init__(self, comm: Any, graph: Graph, ids: npt.NDArray[np.int64],
                 fields: Mapping[str, AnyArray], reports: list[StepReport],
                 wholes: dict[str, AnyArray | None], edges: int | None) -> None:
        self._comm, self._graph, self.ids, self._fields = comm, graph, ids, fields
        self.reports, self._wholes, self.edges = reports, wholes, edges

    def __getitem__(self, name: str) -> AnyArray:
        """Return the own vertices' values of a field, in the order of `ids`."""
        return self._fields[name]

    def gather(self, name: str) -> AnyArray | None:
        """Return all vertices' values of a field, (n,), at slot 0; None at the other slots.

        MPI: collective over all slots.
        """
        if name not in self._wholes:
            parts = self._comm.gather((self.ids, self._fields[name]), root=0)
            self._wholes[name] = None
            if parts is not None:
                whole = np.zeros(self._graph.n, self._fields[name].dtype)
                for ids, values in parts:
                    whole[ids] = values
                self._wholes[name] = whole
        return self._wholes[name]

    def frame(self, *names: str) -> Any:
        """Return fields of all vertices as a pandas.DataFrame at slot 0; None at the other slots.

        Args:
            names: names of fields; by default all. The first column has the vertices.

        Raises:
            ValueError: pandas is not installed.

        MPI: collective over all slots.
        """
        columns = self._columns(names)
        if columns is None:
            return None
        try:
            import pandas
        except ImportError:
            raise ValueError("frame: pip install pandas, or use gather or save") from None
        return pandas.DataFrame(columns)

    def top(self, name: str, count: int = 10, *, least: bool = False) -> list[tuple[Any, Any]]:
        """Return the vertices with the largest values of a field, and these values, at slot 0.

        If values are equal, the vertex with the lower number comes first. The other slots get [].

        Args:
            least: return the vertices with the smallest values instead.

        MPI: collective over all slots.
        """
        columns = self._columns((name,))
        return [] if columns is None else first_of(columns, count, least=least)

    def save(self, path: str | os.PathLike[str], *names: str) -> None:
        """Write fields of all vertices to a file; slot 0 does it, see `write`.

        Raises:
            ValueError: there is no such field, or no such kind of file.
            OSError: the file cannot be written; raised at slot 0 alone.

        MPI: collective over all slots.
        """
        columns = self._columns(names)
        if columns is not None:
            write(os.fspath(path), columns)

    def _columns(self, names: Sequence[str]) -> dict[str, AnyArray] | None:
        """Return the vertices and some of their fields, at slot 0; None at the other slots."""
        for name in names:
            if name not in self._fields:
                raise ValueError(f"field {name!r}: there are {', '.join(self._fields)}")
        wholes = {name: self.gather(name) for name in names or self._fields}
        return None if self._comm.rank else columns_of(self._graph, wholes)


def columns_of(graph: Graph, wholes: Mapping[str, Any]) -> dict[str, AnyArray]:
    """Return a table: a column ``vertex`` with the ids that the user knows, and one per field."""
    vertices = np.arange(graph.n) if graph.names is None else graph.names
    return {"vertex": vertices, **wholes}


def first_of(columns: Mapping[str, AnyArray], count: int, *,
             least: bool = False) -> list[tuple[Any, Any]]:
    """Return the vertices with the largest or smallest values of a table's second column, and these
    values."""
    vertices, values = list(columns.values())[:2]
    order = np.argsort(values, kind="stable")
    if not least:  # the first vertex with a value shall come first here, too
        order = len(values) - 1 - np.argsort(values[::-1], kind="stable")[::-1]
    order = order[:count]
    return list(zip(vertices[order].tolist(), values[order].tolist(), strict=True))


def write(path: str, columns: Mapping[str, AnyArray]) -> None:
    """Write a table to a file, which is replaced if it exists.

    The suffix says how: ``.csv`` and ``.tsv``: text with names in its first line; ``.parquet``:
    Parquet, by pyarrow; ``.npz``: an array of each column; any other: a NumPy file of the values
    alone, in the order of the vertices, for which the table must have one field.

    Raises:
        ValueError: a package is missing, or there are several fields for a file that holds one.
        OSError: the file cannot be written.
    """
    kind = os.path.splitext(path)[1]
    if kind == ".parquet" and find_spec("pyarrow") is None:
        raise ValueError(f"{path}: pyarrow writes Parquet: pip install pyarrow, or name a .csv or "
                         ".npz file")
    if kind not in TABLES and len(columns) > 2:
        raise ValueError(f"{path}: holds one field; name that field, or a .npz, .csv or .parquet "
                         f"file for {', '.join(list(columns)[1:])}")
    with outfile.opened(path) as file:
        if kind in (".csv", ".tsv"):
            _write_text(file, columns, "," if kind == ".csv" else "\t")
        elif kind == ".parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(_plain(columns)), file)
        elif kind == ".npz":
            np.savez(file, **_plain(columns))
        else:
            np.save(file, list(columns.values())[1])


def _plain(columns: Mapping[str, AnyArray]) -> dict[str, Any]:
    """Return the columns, with text in place of objects."""
    return {name: array.astype(str) if array.dtype == object else array
            for name, array in columns.items()}


def _write_text(file: IO[bytes], columns: Mapping[str, AnyArray], separator: str) -> None:
    text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="", write_through=True)
    into = csv.writer(text, delimiter=separator, lineterminator="\n")
    into.writerow(columns)
    size = len(next(iter(columns.values())))
    for first in range(0, size, ROWS):
        into.writerows(zip(*(array[first : first + ROWS].tolist() for array in columns.values()),
                           strict=True))
    text.detach()
