"""Graphs from tables: Parquet, Arrow, and columns that come a stretch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import textguess
from .arrayfiles import Source
from .given import edge_arrays
from .parts import Graph
from .references import AnyArray, EdgeArrays
from .slices import Sliced
from .textguess import Wishes

ROWS = 1 << 20  # rows of a group in a Parquet file that one slot reads; a multiple of BATCH
BATCH = 1 << 18  # rows that are read at a time

Frame = tuple[AnyArray, AnyArray, AnyArray | None]  # sources, targets, weights


def table(path: Source, name: str, wishes: Wishes, key: str = "",
          comm: Any = None) -> tuple[Graph, str]:
    """Return the graph of a Parquet or Arrow file, and how its weights are read.

    Columns are chosen by their names, as those of a text with a header.

    Args:
        key, comm: see `slices.Sliced`; if `comm` is None, this slot reads the file alone.

    Raises:
        ValueError: pyarrow is not installed, the file is damaged, or has no such columns.

    MPI: collective over the slots of `comm`.
    """
    try:
        import pyarrow
    except ImportError:
        raise ValueError(f"{name}: pyarrow reads such files: pip install pyarrow, or save the "
                         "edges as .npz or text") from None
    file = _told(name, lambda: _open(path))
    names = file.names
    source, target, weight, told = textguess.columns_of(names, name, wishes)
    if max(source, target, weight or 0) >= len(names):
        raise ValueError(f"{name}: has {len(names)} columns; give those of source and "
                         "target, and perhaps weight")
    wanted = [i for i in (source, target, weight) if i is not None]

    def frames(first: int = 0, last: int | None = None) -> Iterator[Frame]:
        batches = file.batches(wanted, first, file.rows if last is None else last)
        while (batch := _told(name, lambda: next(batches, None))) is not None:
            if any(column.null_count for column in batch):
                raise ValueError(f"{name}: an edge has no value in a column; leave such edges out")
            a, b, *rest = (column.to_numpy(zero_copy_only=False) for column in batch)
            yield a, b, rest[0] if rest else None
        pyarrow.default_memory_pool().release_unused()

    numbers = all(pyarrow.types.is_integer(file.types[i]) for i in wanted[:2])
    if comm is None or comm.size == 1 or wishes.labels or not numbers or not file.rows:
        return of_frames(frames, name, wishes), told

    def read(i: int, many: int) -> Iterator[EdgeArrays]:
        begins = file.begins()
        first, last = (begins[(len(begins) - 1) * k // many] for k in (i, i + 1))
        return _edges(frames(first, last), name, int(wishes.one_based))

    sliced = Sliced(comm, f"{key} rows", read)
    most, least, edges, lightest = sliced.look()
    _check_base(least + int(wishes.one_based), name, wishes)

    def chunks() -> Iterator[EdgeArrays]:
        return _edges(frames(), name, int(wishes.one_based))

    return Graph(most + 1, chunks, name, edges=edges, slices=sliced.slices,
                 least_weight=lightest), told


def _told(name: str, call: Callable[[], Any]) -> Any:
    """Make a call; turn errors of pyarrow into a ValueError with words for users."""
    import pyarrow
    try:
        return call()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{name}: is damaged ({error}); write it anew") from None


class _Parquet:
    """A Parquet file: names and types of its columns, and stretches of its rows."""

    def __init__(self, path: Source) -> None:
        from pyarrow import parquet

        # Threads free their buffers late: measured, 58 MB of 80 MB that were read stayed in use.
        self._file = parquet.ParquetFile(path, memory_map=True, pre_buffer=False)
        schema, head = self._file.schema_arrow, self._file.metadata
        self.names, self.types, self.rows = schema.names, schema.types, head.num_rows
        self._groups = [head.row_group(group).num_rows for group in range(head.num_row_groups)]

    def begins(self) -> list[int]:
        """Return the first rows of the stretches of which slices consist, and the end."""
        found: list[int] = []
        at = 0
        for rows in self._groups:
            found += range(at, at + rows, ROWS)
            at += rows
        return [*found, at]

    def batches(self, wanted: Sequence[int], first: int, last: int) -> Iterator[list[Any]]:
        """Yield some columns of rows first to last - 1; groups of rows are read as a whole."""
        names = [self.names[i] for i in wanted]
        twice = len(set(self.names)) < len(self.names)  # such columns have no name of their own
        begin = 0
        for group, rows in enumerate(self._groups):
            at, begin = begin, begin + rows
            if begin <= first or at >= last:
                continue
            for batch in self._file.iter_batches(
                    min(ROWS, BATCH), row_groups=[group], columns=None if twice else names,
                    use_threads=False):
                low, high = max(first - at, 0), min(last - at, batch.num_rows)
                at += batch.num_rows
                if low < high:
                    yield [(batch.column(i) if twice else batch.column(batch.schema.names.index(n))
                            ).slice(low, high - low) for i, n in zip(wanted, names, strict=True)]


class _Arrow:
    """A file of Arrow; see `_Parquet`."""

    def __init__(self, path: Source) -> None:
        import pyarrow
        from pyarrow import ipc

        self._file = ipc.open_file(pyarrow.memory_map(str(path)))
        schema = self._file.schema
        self.names, self.types = schema.names, schema.types
        self._batches = range(self._file.num_record_batches)
        self._ends = np.cumsum([self._file.get_batch(i).num_rows for i in self._batches]).tolist()
        self.rows = sum(self._ends[-1:])

    def begins(self) -> list[int]:
        return [0, *self._ends]

    def batches(self, wanted: Sequence[int], first: int, last: int) -> Iterator[list[Any]]:
        for i, end in zip(self._batches, self._ends, strict=True):
            if first < end <= last:  # stretches are batches
                batch = self._file.get_batch(i)
                if batch.num_rows:
                    yield [batch.column(column) for column in wanted]


def _open(path: Source) -> Any:
    with open(path, "rb") as file:
        return (_Parquet if file.read(4) == b"PAR1" else _Arrow)(path)


def _edges(frames: Iterator[Frame], name: str, base: int) -> Iterator[EdgeArrays]:
    """Yield edges of ids that are numbers; no chunk is empty."""
    for source, target, weight in frames:
        if len(source):
            a, b, weights = edge_arrays(source, target, weight, name)
            yield (a - base, b - base, weights) if base else (a, b, weights)


def _check_base(least: int, name: str, wishes: Wishes) -> None:
    if least < int(wishes.one_based):
        raise ValueError(f"{name}: an edge has id {least}; ids begin at {int(wishes.one_based)}")


def of_frames(frames: Any, name: str, wishes: Wishes) -> Graph:
    """Return the graph of columns of ids and weights that come a stretch at a time.

    Args:
        frames: yields sources, targets and weights of all edges, a stretch at a time, the same at
            each call. Ids are whole numbers, or other objects, which become `Graph.names`.
    """
    first = next(iter(frames()), None)
    labelled = wishes.labels if wishes.labels is not None else (
        first is not None and any(ids.dtype.kind not in "iu" for ids in first[:2]))
    number: dict[Any, int] = {}
    most, least, edges = -1, 1, 0
    for source, target, weight in frames():
        edges += len(source)
        if labelled:
            for ids in (source, target):
                for word in ids.tolist():
                    number.setdefault(word, len(number))
        elif len(source):
            edge_arrays(source, target, weight, name)  # refuses arrays that are not valid
            most = max(most, int(source.max()), int(target.max()))
            least = min(least, int(source.min()), int(target.min()))
    base = int(wishes.one_based and not labelled)
    _check_base(least, name, wishes)

    def chunks() -> Iterator[EdgeArrays]:
        if not labelled:
            yield from _edges(frames(), name, base)
            return
        for source, target, weight in frames():
            source, target = (np.array([number[word] for word in ids.tolist()], np.int64)
                              for ids in (source, target))
            yield edge_arrays(source, target, weight, name)

    n = len(number) if labelled else most + 1 - base
    if n < 1:
        raise ValueError(f"{name}: has no edges; give n for a graph without any")
    names = None
    if labelled:
        names = np.empty(n, object)
        names[:] = list(number)
    return Graph(n, chunks, name, names, edges=edges)
