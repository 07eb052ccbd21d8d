"""Graphs from files: edge lists as text, Matrix Market, and arrays of NumPy and scipy.sparse.

Text is read a stretch at a time, anew for each part that is made, so a slot has in memory what it
keeps. Arrays and matrices are whole in each slot.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from . import kernels, parts
from .parts import Graph, of_edges
from .references import Edges

TEXT_BYTES = 1 << 22  # of text that are read at a time; no line may be longer
GZIP = b"\x1f\x8b"  # what a compressed file begins with, RFC 1952
Source = str | os.PathLike[str]


def load(path: Source, *, n: int | None = None, relabel: bool = False) -> Graph:
    """A graph from a file, by its name.

    ``.npz``: as scipy.sparse writes CSR or CSC, or with ``src``, ``dst`` and perhaps ``weight`` and
    ``n``. ``.mtx``: a square matrix, whose rows are sources; its numbers are weights. Any other:
    lines of a source, a target and perhaps a weight, see `ftrma.graph.kernels.parse`. The last two
    may be compressed, ``.gz``.

    Args:
        n: vertices; by default what the file says, or one more than the largest id.
        relabel: give those that have edges the ids 0 to k - 1, see `ftrma.graph.parts.relabel`.

    Raises:
        ValueError: the file is missing, cut, or has something else in it.
    """
    name = Path(path).name
    if relabel and n is not None:
        raise ValueError(f"{name}: n {n} and relabel, which finds out n; leave one of them out")
    kind = Path(name.removesuffix(".gz")).suffix
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
    def chunks() -> Iterator[Edges]:
        return _edges(path, name)

    if n is not None:
        next(chunks(), None)  # what is no file, or no text, is told here
        return Graph(n, chunks, name)
    most = max((int(max(source.max(), target.max())) for source, target, _ in chunks()), default=-1)
    if most < 0:
        raise ValueError(f"{name}: has no edges; give n for a graph without any")
    return Graph(most + 1, chunks, name)


def _edges(path: Source, name: str) -> Iterator[Edges]:
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
    except IsADirectoryError:
        raise ValueError(f"{name}: is a directory; give a file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name}: is damaged ({error}); copy or compress it anew") from None
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

    try:
        rows, columns, _, form, field, _ = io.mminfo(path)
    except Exception as error:  # scipy's, or those of a file that is missing or damaged
        raise ValueError(f"{name}: cannot be read as .mtx: {error}") from None
    if form != "coordinate" or field == "complex":
        raise ValueError(f"{name}: a matrix of {field} numbers in {form} format; save it with "
                         "real, integer or pattern ones in coordinate format")
    if rows != columns:
        raise ValueError(f"{name}: a matrix of {rows} x {columns}; that of a graph is square")
    try:
        found: Any = io.mmread(path)
    except Exception as error:
        raise ValueError(f"{name}: cannot be read as .mtx: {error}") from None
    weight = None if field == "pattern" else found.data
    return of_edges(rows, found.row, found.col, weight, name)


def _arrays(path: Source, name: str) -> Graph:
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
        if indptr.ndim != 1 or (np.diff(indptr, prepend=0) < 0).any():
            raise ValueError(f"{name}: indptr does not ascend from 0, so it is no matrix in CSR; "
                             "save it anew with scipy.sparse.save_npz")
        ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), found["indices"]
        order = bytes(found.get("format", np.array(b"csr")).item()).decode()
        if order not in ("csr", "csc"):
            raise ValueError(f"{name}: a matrix in format {order}; save it as CSR")
        source, target = ends if order == "csr" else ends[::-1]
        return of_edges(int(max(found["shape"])), source, target, found.get("data"), name)
    if {"src", "dst"} <= set(found):
        source, target = found["src"], found["dst"]
        most = max((int(ids.max()) for ids in (source, target)
                    if ids.size and ids.dtype.kind in "iu"), default=0)
        n = found.get("n", np.array(1 + most))
        if n.size != 1 or n.dtype.kind not in "iu":
            raise ValueError(f"{name}: n is {n.dtype} of shape {n.shape}; give a whole number")
        return of_edges(int(n.item()), source, target, found.get("weight"), name)
    raise ValueError(f"{name}: has {', '.join(sorted(found)) or 'nothing'}; a graph has indptr, "
                     "indices and shape, or src and dst")
