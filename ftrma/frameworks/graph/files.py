"""Graphs from files: edge lists as text, Matrix Market, and arrays of NumPy and scipy.sparse.

Text is read a stretch at a time, anew for each part that is made, so a slot has no more in memory
than it keeps. Arrays and matrices are whole in each slot.
"""

from __future__ import annotations

import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...host.messages import one_line
from ...host.values import open_file
from . import kernels, parts
from .parts import DoesNotFit, Graph, MemoryWatch, check_room, of_edges
from .references import AnyArray, EdgeArrays

TEXT_BYTES = 1 << 22  # of text that are read at a time; no line may be longer
GZIP = b"\x1f\x8b"  # begins a compressed file, RFC 1952
NPY = b"\x93NUMPY"  # begins a file of a single array
ARRAYS = {"indptr", "indices", "shape", "format", "data", "src", "dst", "weight", "n"}
EDGE_BYTES = 40  # that an edge of a matrix or of arrays takes at most, on its way to a graph
Source = str | os.PathLike[str]


def load(path: Source, *, n: int | None = None, relabel: bool = False) -> Graph:
    """A graph from a file, by its name.

    ``.npz``: as scipy.sparse writes CSR or CSC, or with ``src``, ``dst`` and perhaps ``weight`` and
    ``n``. ``.mtx``: a square matrix, whose rows are sources; its numbers are weights. Any other:
    lines of a source, a target and perhaps a weight, see `kernels.parse`. The last two
    may be compressed, ``.gz``.

    Args:
        n: vertices; by default the number in the file, or one more than the largest id.
        relabel: give the vertices that have edges the ids 0 to k - 1, see `parts.relabel`.

    Raises:
        ValueError: the file is missing, cut, has other contents, or unpacks to more than the
            machine has memory for.
    """
    name = one_line(Path(path).name)
    if relabel and n is not None:
        raise ValueError(f"{name}: n {n} and relabel, which finds out n; leave one of them out")
    kind = Path(name.removesuffix(".gz")).suffix
    _check_file(path, name)
    if kind in (".npz", ".npy"):
        found = _arrays(path, name)
    elif kind == ".mtx":
        found = _matrix(path, name)
    else:
        found = _text(path, name, n)
    state = os.stat(path)
    key = f"{os.path.realpath(path)} {state.st_ino} {state.st_size} {state.st_mtime_ns}"
    found = Graph(found.n if n is None else n, found.chunks, name, file=True,
                  edges=found.edges, key=key)
    return parts.relabel(found) if relabel else found


# ---- text -----------------------------------------------------------------------------------


def _text(path: Source, name: str, n: int | None) -> Graph:
    def chunks() -> Iterator[EdgeArrays]:
        return _edges(path, name)

    if n is not None:
        next(chunks(), None)  # a file that is no text is refused here
        return Graph(n, chunks, name)
    most = max((int(max(source.max(), target.max())) for source, target, _ in chunks()), default=-1)
    if most < 0:
        raise ValueError(f"{name}: has no edges; give n for a graph without any")
    return Graph(most + 1, chunks, name)


def _edges(path: Source, name: str) -> Iterator[EdgeArrays]:
    """All edges of a text, a stretch of lines at a time; no chunk is empty."""
    line0, weighted = 0, None
    for text in _lines(path, name):
        found = kernels.parse(text, name, line0, weighted)
        line0 += text.count(b"\n")
        if len(found[0]):
            weighted = found[2] is not None
            yield found


def _lines(path: Source, name: str) -> Iterator[bytes]:
    """A file's text, cut at ends of lines."""
    try:
        with _open(path) as file:
            rest = b""
            while text := file.read(TEXT_BYTES):
                end = text.rfind(b"\n") + 1
                if end:
                    yield rest + text[:end]
                    rest = text[end:]
                else:
                    rest += text
                if len(rest) > TEXT_BYTES:
                    raise ValueError(f"{name}: a line of more than {TEXT_BYTES} bytes; give lines "
                                     "of source, target and perhaps a weight")
            if rest:
                yield rest
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name}: is damaged ({error}); copy or compress it anew") from None
    except OSError as error:
        raise ValueError(f"{name}: cannot be read: {error.strerror}; give the path of a file that "
                         "every slot can read") from None


def _check_file(path: Source, name: str) -> None:
    """Refuse a path of no regular file: a graph is read several times, and a FIFO would block."""
    try:
        open_file(Path(path)).close()
    except IsADirectoryError:
        raise ValueError(f"{name}: is a directory; give a file") from None
    except OSError as error:
        raise ValueError(f"{name}: cannot be read: {error.strerror}; give the path of a file that "
                         "every slot can read") from None


def _open(path: Source) -> IO[bytes]:
    with open(path, "rb") as file:
        packed = file.read(len(GZIP)) == GZIP or Path(path).suffix == ".gz"
    return gzip.open(path) if packed else open(path, "rb")  # type: ignore[return-value]


# ---- arrays ---------------------------------------------------------------------------------


def _matrix(path: Source, name: str) -> Graph:
    from scipy import io  # slow to import, and rarely needed

    for _ in _lines(path, name):
        pass  # a line that alone would take the memory is refused
    try:
        rows, columns, entries, form, field, symmetry = io.mminfo(path)
    except Exception as error:  # of scipy, or of a file that is damaged
        raise ValueError(f"{name}: cannot be read as .mtx: {error}") from None
    if form != "coordinate" or field == "complex":
        raise ValueError(f"{name}: a matrix of {field} numbers in {form} format; save it with "
                         "real, integer or pattern ones in coordinate format")
    if rows != columns:
        raise ValueError(f"{name}: a matrix of {rows} x {columns}; that of a graph is square")
    check_room(name, 0, EDGE_BYTES * entries * (1 if symmetry == "general" else 2))
    try:
        found: Any = io.mmread(path)
    except Exception as error:
        raise ValueError(f"{name}: cannot be read as .mtx: {error}") from None
    weight = None if field == "pattern" else found.data
    return of_edges(rows, found.row, found.col, weight, name)


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


def _arrays(path: Source, name: str) -> Graph:
    try:
        with open(path, "rb") as file:
            if file.read(len(NPY)) == NPY:
                raise ValueError("one array; expected the arrays of a graph")
        found = _unpack(path, name)
    except DoesNotFit:
        raise
    except Exception as error:  # of NumPy; of zipfile and zlib if the file is damaged
        raise ValueError(f"{name}: cannot be read as .npz: {error}") from None
    edges = max((found[key].size for key in ("indices", "src") if key in found), default=0)
    check_room(name, sum(array.nbytes for array in found.values()), EDGE_BYTES * edges)
    if {"indptr", "indices", "shape"} <= set(found):
        return _sparse(found, name)
    if {"src", "dst"} <= set(found):
        return _listed(found, name)
    raise ValueError(f"{name}: has {', '.join(sorted(found)) or 'nothing'}; a graph has indptr, "
                     "indices and shape, or src and dst")


def _sparse(found: dict[str, AnyArray], name: str) -> Graph:
    """The graph of a matrix that scipy.sparse has saved."""
    indptr = found["indptr"].astype(np.int64)
    if indptr.ndim != 1 or (np.diff(indptr, prepend=0) < 0).any():
        raise ValueError(f"{name}: indptr does not ascend from 0, so it is no matrix in CSR; "
                         "save it anew with scipy.sparse.save_npz")
    ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), found["indices"]
    order = bytes(found.get("format", np.array(b"csr")).item()).decode()
    if order not in ("csr", "csc"):
        raise ValueError(f"{name}: a matrix in format {order}; save it as CSR")
    source, target = ends if order == "csr" else ends[::-1]
    return of_edges(int(max(found["shape"])), source, target, found.get("data"), name)


def _listed(found: dict[str, AnyArray], name: str) -> Graph:
    """The graph of arrays of sources and targets."""
    source, target = found["src"], found["dst"]
    most = max((int(ids.max()) for ids in (source, target)
                if ids.size and ids.dtype.kind in "iu"), default=0)
    n: Any = found.get("n", 1 + most)
    if "n" in found and (n.size != 1 or n.dtype.kind not in "iu"):
        raise ValueError(f"{name}: n is {n.dtype} of shape {n.shape}; give a whole number")
    return of_edges(int(n), source, target, found.get("weight"), name)
