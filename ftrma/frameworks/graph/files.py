"""Graphs from files: finds the kind of a file, and unpacks the text of text files.

The kind of a file is recognized by its content, not by its name. `textedges`, `arrayfiles`,
`arrayslices` and `tablefiles` read the kinds.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import itertools
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ...host.messages import one_line
from ...host.values import open_file
from . import arrayfiles, arrayslices, parts, shuffle, tablefiles, textedges
from .arrayfiles import Source
from .parts import Graph
from .textform import COMMENTS
from .textguess import Wishes

TEXT_BYTES = 1 << 22  # bytes of text that are read at a time; no line may be longer
SAMPLE_BYTES = 1 << 16  # bytes from which the form of a text is guessed
BOM = b"\xef\xbb\xbf"
PACKED: dict[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": (".gz", gzip.open),  # RFC 1952
    b"BZh": (".bz2", bz2.open),
    b"\xfd7zXZ\x00": (".xz", lzma.open)}
ZSTD = b"\x28\xb5\x2f\xfd"
TABLES = (b"PAR1", b"ARRO")


def load(path: Source, *, n: int | None = None, relabel: bool = False,
         columns: Sequence[int | str] | None = None, skip: int | None = None,
         separator: str | None = None, weighted: bool | None = None, one_based: bool = False,
         labels: bool | None = None, comm: Any = None) -> Graph:
    """Load a graph from a file, whose kind is recognized by its content.

    Arrays of ``.npz``: as scipy.sparse writes CSR, CSC or COO, or ``src``, ``dst`` and perhaps
    ``weight`` and ``n``. Parquet and Arrow (with pyarrow). Text: Matrix Market, METIS, DIMACS, or
    an edge in each line, see `textguess`; it may be packed by gzip, bzip2 or xz. `Graph.read_as`
    says what was guessed.

    Args:
        n: number of vertices; by default the number in the file, or one more than the largest id.
        relabel: give the vertices that have edges the ids 0 to k - 1, see `parts.relabel`.
        columns: columns of source, target and perhaps weight: numbers from 0 on, or names.
        skip: number of lines at the beginning of a text that are left out; by default a line of
            names is left out.
        separator: a character between the fields of a text.
        weighted: True: there are weights; False: weights are ignored.
        one_based: the least id is 1, and becomes 0.
        labels: ids are words, which become the graph's `names`.
        comm: the slots that all load this file now. Each of them reads a share of the file if it is
            a text that is not packed, has arrays, or is a table; facts about the whole graph are
            put together from all slots.

    MPI: local without `comm`; with it, collective over its slots.

    Raises:
        ValueError: the file is missing, cut, has other contents, or unpacks to more than the
            machine has memory for.
    """
    name = one_line(Path(path).name)
    wishes = Wishes(None if columns is None else tuple(columns), skip, separator, weighted,
                    one_based, labels)
    if relabel and n is not None:
        raise ValueError(f"{name}: n {n} and relabel, which finds out n; leave one of them out")
    wishes.check(name)
    _check_file(path, name)
    state = os.stat(path)
    key = f"{os.path.realpath(path)} {state.st_ino} {state.st_size} {state.st_mtime_ns}"
    if wishes != Wishes():
        key += f" {wishes}"
    found, told = _found(path, name, n, wishes, key, comm)
    found = Graph(found.n if n is None else n, found.chunks, name, found.names, file=True,
                  edges=found.edges, key=key, read_as=told, slices=found.slices,
                  least_weight=found.least_weight)
    if not relabel:
        return found
    sliced = comm is not None and found.slices is not None
    return parts.relabel(found, shuffle.ids_with_edges(comm, found) if sliced else None)


def _found(path: Source, name: str, n: int | None, wishes: Wishes, key: str,
           comm: Any) -> tuple[Graph, str]:
    """Return the graph of a file, and a text that says how it is read."""
    with open(path, "rb") as file:
        begin = file.read(8)
    if begin.startswith(ZSTD):
        raise ValueError(f"{name}: is packed by zstd; unpack it (unzstd), or use gzip or xz")
    if begin.startswith((b"PK", arrayfiles.NPY)) or Path(name).suffix in (".npz", ".npy"):
        _no_text(name, wishes)
        found = None if comm is None or comm.size == 1 else arrayslices.arrays(
            path, name, wishes.weighted, key, comm)
        return found or arrayfiles.arrays(path, name, weighted=wishes.weighted), ""
    if begin.startswith(TABLES):
        if wishes.skip is not None or wishes.separator is not None:
            raise ValueError(f"{name}: is no text: skip and separator are for text")
        made, told = tablefiles.table(path, name, wishes, key, comm)
        ids = "ids are words" if made.names is not None else f"{int(wishes.one_based)}-based"
        return made, f"directed, {made.n:,} vertices, {ids}, {told}"
    sample, whole, returns = _sample(path, name)

    def lines(first: int = 0, last: int | None = None) -> Iterator[bytes]:
        return _lines(path, name, first, last, returns=returns)

    blocks = 0 if returns or _packing(path) else -(-os.path.getsize(path) // TEXT_BYTES)
    first = sample[: TEXT_BYTES - len(BOM)].count(b"\n")
    text = textedges.Text(lines, name, sample, whole, blocks, first, key, comm)
    return textedges.graph_of(text, n, wishes)


def _no_text(name: str, wishes: Wishes) -> None:
    for wish in ("columns", "skip", "separator", "labels"):
        if getattr(wishes, wish):
            raise ValueError(f"{name}: {wish}, which is for text and tables; the arrays of a file "
                             "have names")
    if wishes.one_based:
        raise ValueError(f"{name}: one_based, which is for text and tables; subtract 1 when you "
                         "save the arrays")


def _sample(path: Source, name: str) -> tuple[bytes, bool, bool]:
    """Return the first lines of a text, and two facts about it.

    Returns:
        Lines, of which at least one is no comment, if possible; whether these are all lines;
        whether lines end with a CR alone.
    """
    with _open(path) as file, _told(name):
        size, text = SAMPLE_BYTES, b""
        while True:
            text += file.read(size - len(text))
            whole = len(text) < size
            returns = b"\r" in text and b"\n" not in text.removesuffix(b"\r\n")
            lines = text.removeprefix(BOM)
            if returns:
                lines = lines.replace(b"\r", b"\n")
            if not whole:
                lines = lines[: lines.rfind(b"\n") + 1]
            if whole or size >= TEXT_BYTES or any(
                    line.strip() and not line.startswith((*COMMENTS, b"c"))
                    for line in lines.split(b"\n")):
                return lines, whole, returns
            size *= 4


def _lines(path: Source, name: str, first: int = 0, last: int | None = None, *,
           returns: bool = False) -> Iterator[bytes]:
    """Yield a file's text, cut at ends of lines: the lines that end in some of its blocks.

    Args:
        first, last: blocks first to last - 1 of `TEXT_BYTES` each; None: to the end.
        returns: lines end with a CR alone.
    """
    if first == last:
        return
    with _told(name), _open(path) as file:
        rest = b""
        if first:
            file.seek((first - 1) * TEXT_BYTES)
            before = file.read(TEXT_BYTES)
            rest = before[before.rfind(b"\n") + 1 :]
        for block in itertools.count(first):
            text = file.read(TEXT_BYTES) if block != last else b""
            if not text:
                break
            if block == 0:
                text = text.removeprefix(BOM)
            if returns:
                text = text.replace(b"\r", b"\n")
            end = text.rfind(b"\n") + 1
            if end:
                yield b"".join([rest, memoryview(text)[:end]])
                rest = text[end:]
            else:
                rest += text
            if len(rest) > TEXT_BYTES:
                raise ValueError(f"{name}: a line of more than {TEXT_BYTES} bytes; give lines "
                                 "of source, target and perhaps a weight")
        if rest and not file.read(1):
            yield rest  # behind the last end of a line


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """Turn errors of reading into a ValueError with words for users."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise ValueError(f"{name}: is damaged ({error}); copy or compress it anew") from None
    except OSError as error:
        if error.errno is None:  # an error of bz2
            raise ValueError(f"{name}: is damaged ({error}); copy or compress it anew") from None
        raise ValueError(f"{name}: cannot be read: {error.strerror}; give the path of a file that "
                         "every slot can read") from None


def _check_file(path: Source, name: str) -> None:
    """Refuse a path that is no regular file: a graph is read several times, a FIFO would block."""
    try:
        open_file(Path(path)).close()
    except IsADirectoryError:
        raise ValueError(f"{name}: is a directory; give a file") from None
    except OSError as error:
        raise ValueError(f"{name}: cannot be read: {error.strerror}; give the path of a file that "
                         "every slot can read") from None


def _packing(path: Source) -> Any:
    """Return the function that opens a packed file; None: the file is not packed."""
    with open(path, "rb") as file:
        begin = file.read(8)
    return next((opener for magic, (suffix, opener) in PACKED.items()
                 if begin.startswith(magic) or Path(path).suffix == suffix), None)


def _open(path: Source) -> IO[bytes]:
    opener: Any = _packing(path) or open
    found: IO[bytes] = opener(path, "rb")
    return found
