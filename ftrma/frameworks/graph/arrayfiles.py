"""Graphs from files of arrays, as NumPy and scipy.sparse write them; the files are read whole."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Collection, Iterator
from typing import IO, Any

import numpy as np

from .given import of_edges
from .memory import DoesNotFit, MemoryWatch, check_room
from .parts import Graph
from .references import AnyArray, EdgeArrays

ARRAYS = {"indptr", "indices", "row", "col", "shape", "format", "data", "src", "dst", "weight", "n"}
CHUNK = 1 << 18  # edges of a chunk, whichever module reads it
EDGE_BYTES = 40  # most bytes that an edge of arrays takes on its way to a graph
NPY = b"\x93NUMPY"  # begins a file of a single array
Source = str | os.PathLike[str]


class _Unpacked:
    """A member of a zip file; reading stops when the memory does not suffice."""

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


def unpack(path: Source, name: str, keys: Collection[str] = ARRAYS) -> dict[str, AnyArray]:
    """Read some arrays of an .npz file, by default those of a graph; others are only listed."""
    found: dict[str, AnyArray] = {}
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            key = info.filename.removesuffix(".npy")
            found[key] = np.zeros(0)
            if key in keys:
                with file.open(info) as member:
                    _check_head(member, info.file_size)
                with file.open(info) as member:
                    read: Any = _Unpacked(member, info.file_size, name)
                    found[key] = np.lib.format.read_array(read, allow_pickle=False)
    return found


def arrays(path: Source, name: str, *, weighted: bool | None = None) -> Graph:
    """Return the graph of an .npz file.

    Args:
        weighted: True: a file without weights is refused; False: weights are ignored.

    Raises:
        ValueError: the file is damaged, has other arrays, or is larger than the memory.
    """
    try:
        with open(path, "rb") as file:
            if file.read(len(NPY)) == NPY:
                raise ValueError("one array; expected the arrays of a graph")
        found = unpack(path, name)
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
    made = _graph(found, name)

    def chunks() -> Iterator[EdgeArrays]:
        for source, target, weight in made.chunks():
            for begin in range(0, len(source), CHUNK):
                here = slice(begin, begin + CHUNK)
                yield source[here], target[here], None if weight is None else weight[here]

    return Graph(made.n, chunks, name, edges=made.edges)


def _graph(found: dict[str, AnyArray], name: str) -> Graph:
    """Return the graph of arrays, by their names."""
    if {"indptr", "indices", "shape"} <= set(found):
        return _sparse(found, name)
    if {"row", "col", "shape"} <= set(found):
        return of_edges(_side(found, name), found["row"], found["col"], found.get("data"), name)
    if {"src", "dst"} <= set(found):
        return _listed(found, name)
    raise ValueError(f"{name}: has {', '.join(sorted(found)) or 'nothing'}; a graph has indptr, "
                     "indices and shape, or row, col and shape, or src and dst")


def _side(found: dict[str, AnyArray], name: str) -> int:
    """Return the number of rows of a square matrix."""
    shape = found["shape"].ravel().tolist()
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{name}: a matrix of {' x '.join(map(str, shape))}; that of a graph is "
                         "square")
    return int(shape[0])


def _sparse(found: dict[str, AnyArray], name: str) -> Graph:
    """Return the graph of a matrix that scipy.sparse has saved."""
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
    """Return the graph of arrays of sources and targets."""
    source, target = found["src"], found["dst"]
    most = max((int(ids.max()) for ids in (source, target)
                if ids.size and ids.dtype.kind in "iu"), default=0)
    n: Any = found.get("n", 1 + most)
    if "n" in found and (n.size != 1 or n.dtype.kind not in "iu"):
        raise ValueError(f"{name}: n is {n.dtype} of shape {n.shape}; give a whole number")
    return of_edges(int(n), source, target, found.get("weight"), name)
