"""Graphs from files of arrays: those of NumPy and scipy.sparse, Parquet and Arrow."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from . import textguess
from .parts import DoesNotFit, Graph, MemoryWatch, check_room, of_edges
from .references import AnyArray, EdgeArrays
from .textguess import Wishes

ARRAYS = {"indptr", "indices", "row", "col", "shape", "format", "data", "src", "dst", "weight", "n"}
EDGE_BYTES = 40  # that an edge of arrays takes at most, on its way to a graph
NPY = b"\x93NUMPY"  # begins a file of a single array
Source = str | os.PathLike[str]


# ---- NumPy and scipy.sparse -----------------------------------------------------------------


class _Unpacked:
    """A member of a zip file; no more of it is read than there is memory for."""

    def __init__(self, file: IO[bytes], size_bytes: int, name: str) -> None:
        self._file, self._size_bytes, self._watch = file, size_bytes, MemoryWatch(name)
        check_room(name, 0, size_bytes)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._watch.took(len(data), self._size_bytes - self._watch.taken - len(data))
        return data


def _check_head(file: IO[bytes], size_bytes: int) -> None:
    """Refuse an array whose header names more bytes than the file has."""
    read = {(1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in read:
        raise ValueError(f"an array in format {version}; expected one that NumPy writes")
    shape, _, dtype = read[version](file)
    if math.prod(shape) * dtype.itemsize > size_bytes:
        raise ValueError(f"an array of shape {shape} in {size_bytes} bytes")


def _unpack(path: Source, name: str) -> dict[str, AnyArray]:
    """Read the arrays of an .npz file that may be a graph's; others are listed, not read."""
    found: dict[str, AnyArray] = {}
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            key = info.filename.removesuffix(".npy")
            found[key] = np.zeros(0)
            if key in ARRAYS:
                with file.open(info) as member:
                    _check_head(member, info.file_size)
                with file.open(info) as member:
                    read: Any = _Unpacked(member, info.file_size, name)
                    found[key] = np.lib.format.read_array(read, allow_pickle=False)
    return found


def arrays(path: Source, name: str, *, weighted: bool | None = None) -> Graph:
    """The graph of an .npz file.

    Args:
        weighted: True: without weights it is refused; False: weights are left out.

    Raises:
        ValueError: it is damaged, has other arrays, or is larger than the memory.
    """
    try:
        with open(path, "rb") as file:
            if file.read(len(NPY)) == NPY:
                raise ValueError("one array; expected the arrays of a graph")
        found = _unpack(path, name)
    except DoesNotFit:
        raise
    except Exception as error:  # of NumPy; of zipfile and zlib if the file is damaged
        raise ValueError(f"{name}: cannot be read as .npz: {error}") from None
    if weighted is False:
        found = {key: array for key, array in found.items() if key not in ("data", "weight")}
    elif weighted and not {"data", "weight"} & set(found):
        raise ValueError(f"{name}: weighted, and it has neither data nor weight")
    edges = max((found[key].size for key in ("indices", "row", "src") if key in found), default=0)
    check_room(name, sum(array.nbytes for array in found.values()), EDGE_BYTES * edges)
    if {"indptr", "indices", "shape"} <= set(found):
        return _sparse(found, name)
    if {"row", "col", "shape"} <= set(found):
        return of_edges(_side(found, name), found["row"], found["col"], found.get("data"), name)
    if {"src", "dst"} <= set(found):
        return _listed(found, name)
    raise ValueError(f"{name}: has {', '.join(sorted(found)) or 'nothing'}; a graph has indptr, "
                     "indices and shape, or row, col and shape, or src and dst")


def _side(found: dict[str, AnyArray], name: str) -> int:
    """The number of rows of a square matrix."""
    shape = found["shape"].ravel().tolist()
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{name}: a matrix of {' x '.join(map(str, shape))}; that of a graph is "
                         "square")
    return int(shape[0])


def _sparse(found: dict[str, AnyArray], name: str) -> Graph:
    """The graph of a matrix that scipy.sparse has saved."""
    indptr = found["indptr"].astype(np.int64)
    if indptr.ndim != 1 or (np.diff(indptr, prepend=0) < 0).any():
        raise ValueError(f"{name}: indptr does not ascend from 0, so it is no matrix in CSR; "
                         "save it anew with scipy.sparse.save_npz")
    ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), found["indices"]
    order = bytes(found.get("format", np.array(b"csr")).item()).decode()
    if order not in ("csr", "csc"):
        raise ValueError(f"{name}: a matrix in format {order}; save it as CSR, CSC or COO")
    source, target = ends if order == "csr" else ends[::-1]
    return of_edges(_side(found, name), source, target, found.get("data"), name)


def _listed(found: dict[str, AnyArray], name: str) -> Graph:
    """The graph of arrays of sources and targets."""
    source, target = found["src"], found["dst"]
    most = max((int(ids.max()) for ids in (source, target)
                if ids.size and ids.dtype.kind in "iu"), default=0)
    n: Any = found.get("n", 1 + most)
    if "n" in found and (n.size != 1 or n.dtype.kind not in "iu"):
        raise ValueError(f"{name}: n is {n.dtype} of shape {n.shape}; give a whole number")
    return of_edges(int(n), source, target, found.get("weight"), name)


# ---- Parquet and Arrow ----------------------------------------------------------------------


def table(path: Source, name: str, wishes: Wishes) -> tuple[Graph, str]:
    """The graph of a Parquet or Arrow file, and how its weights are read.

    Columns are chosen by their names, as those of a text with a header are.

    Raises:
        ValueError: pyarrow is not installed, the file is damaged, or has no such columns.
    """
    try:
        import pyarrow as arrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise ValueError(f"{name}: pyarrow reads such files: pip install pyarrow, or save the "
                         "edges as .npz or text") from None

    def frames() -> Iterator[Any]:
        try:
            with open(path, "rb") as file:
                magic = file.read(4)
                file.seek(0)
                if magic == b"PAR1":
                    yield from parquet.ParquetFile(file).iter_batches(1 << 20)
                else:
                    reader = ipc.open_file(file)
                    for i in range(reader.num_record_batches):
                        yield reader.get_batch(i)
        except (arrow.ArrowException, OSError) as error:
            raise ValueError(f"{name}: is damaged ({error}); write it anew") from None

    try:
        with open(path, "rb") as file:
            magic = file.read(4)
            file.seek(0)
            schema = (parquet.read_schema(file) if magic == b"PAR1" else
                      ipc.open_file(file).schema)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{name}: is damaged ({error}); write it anew") from None
    source, target, weight, told = textguess.columns_of(schema.names, name, wishes)
    if max(source, target, weight or 0) >= len(schema.names):
        raise ValueError(f"{name}: has {len(schema.names)} columns; give those of source and "
                         "target, and perhaps weight")

    def arrays_of() -> Iterator[tuple[AnyArray, AnyArray, AnyArray | None]]:
        for batch in frames():
            wanted = [batch.column(i) for i in (source, target, weight) if i is not None]
            if any(column.null_count for column in wanted):
                raise ValueError(f"{name}: an edge has no value in a column; leave such edges out")
            a, b, *rest = (column.to_numpy(zero_copy_only=False) for column in wanted)
            yield a, b, rest[0] if rest else None

    return of_frames(arrays_of, name, wishes), told


def of_frames(frames: Any, name: str, wishes: Wishes) -> Graph:
    """The graph of columns of ids, and of weights, that come a stretch at a time.

    Args:
        frames: gives sources, targets and weights of all edges, a stretch at a time, the same at
            each call. Ids are whole numbers, or any others, which become `Graph.names`.
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
            of_edges(1, source, target, weight, name)  # refuses what cannot be
            most = max(most, int(source.max()), int(target.max()))
            least = min(least, int(source.min()), int(target.min()))
    base = int(wishes.one_based and not labelled)
    if least < base:
        raise ValueError(f"{name}: an edge has id {least}; ids begin at {base}")

    def chunks() -> Iterator[EdgeArrays]:
        for source, target, weight in frames():
            if labelled:
                source, target = (np.array([number[word] for word in ids.tolist()], np.int64)
                                  for ids in (source, target))
            made = of_edges(1, source, target, weight, name)
            a, b, weights = next(made.chunks())
            yield (a - base, b - base, weights) if base else (a, b, weights)

    n = len(number) if labelled else most + 1 - base
    if n < 1:
        raise ValueError(f"{name}: has no edges; give n for a graph without any")
    names = None
    if labelled:
        names = np.empty(n, object)
        names[:] = list(number)
    return Graph(n, chunks, name, names, edges=edges)
