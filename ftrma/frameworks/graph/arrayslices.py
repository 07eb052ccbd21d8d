"""Arrays in files of which each of several slots reads a share.

A file that is unusual has no slices: `arrayfiles` reads it whole, and reports what is wrong with
it. Slots agree whether a file is unusual, since only one of them may be unable to read it.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any

import numpy as np

from . import arrayfiles, shuffle
from .arrayfiles import Source
from .given import edge_arrays
from .parts import Graph
from .references import AnyArray, EdgeArrays, Ints
from .slices import Sliced

LOCAL_HEAD = 30  # bytes in front of a member's name in a zip file, APPNOTE.TXT 4.3.7
POLYNOMIAL = 0xEDB88320  # the polynomial of CRC-32, bits reversed


@dataclass(frozen=True)
class Member:
    """An array of one dimension in an .npz file.

    Attributes:
        info: its entry in the directory of the file.
        head: number of bytes before its values.
        at: the byte at which it begins in the file, if it is not packed; else None.
    """

    info: zipfile.ZipInfo
    dtype: np.dtype[Any]
    size: int
    head: int
    at: int | None


def members(path: Source) -> dict[str, Member] | None:
    """Return the arrays of a graph that have one dimension; None: the file is unusual."""
    found: dict[str, Member] = {}
    read = {(1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0}
    with zipfile.ZipFile(path) as file, open(path, "rb") as raw:
        for info in file.infolist():
            key = info.filename.removesuffix(".npy")
            if key not in arrayfiles.ARRAYS:
                continue
            with file.open(info) as member:
                shape, _, dtype = read[np.lib.format.read_magic(member)](member)
                head = member.tell()
            if len(shape) > 1 or dtype.hasobject or info.flag_bits & 1:
                return None
            size = int(np.prod(shape, dtype=np.int64))
            if head + size * dtype.itemsize != info.file_size:
                return None
            raw.seek(info.header_offset + LOCAL_HEAD - 4)
            name, extra = (int.from_bytes(raw.read(2), "little") for _ in range(2))
            at = info.header_offset + LOCAL_HEAD + name + extra
            found[key] = Member(info, dtype, size, head,
                                at if info.compress_type == zipfile.ZIP_STORED else None)
    return found


def columns_of(found: dict[str, Member]) -> list[str] | None:
    """Return the names of arrays that have a value for each edge: sources, targets, weights.

    None: the file is no graph, or unusual. "indptr" stands for the sources or targets that follow
    from it.
    """
    if {"indptr", "indices", "shape"} <= set(found):
        names, weight = ["indptr", "indices"], "data"
    elif {"row", "col", "shape"} <= set(found):
        names, weight = ["row", "col"], "data"
    elif {"src", "dst"} <= set(found):
        names, weight = ["src", "dst"], "weight"
    else:
        return None
    if weight in found:
        names.append(weight)
    each = [name for name in names if name != "indptr"]
    if len({found[name].size for name in each}) != 1 or any(
            found[name].dtype.kind not in ("biuf" if name == weight else "iu") for name in each):
        return None
    return names


def arrays(path: Source, name: str, weighted: bool | None, key: str, comm: Any) -> Graph | None:
    """Return the graph of an .npz file, of which each slot reads a share; None: read it whole.

    Raises:
        ValueError: the file cannot be read; raised on all slots.

    MPI: collective over all slots.
    """
    try:
        usual = _usual(path, name, weighted)
    except Exception:  # of zipfile, zlib and NumPy: `arrayfiles`, which reads all, reports errors
        usual = None
    if not all(shuffle.agree(comm, (usual is not None,))[0]) or usual is None:
        return None
    found, names, n, order = usual
    of = _Arrays(path, name, found, names[:2] if weighted is False else names, order, comm)
    sliced = Sliced(comm, f"{key} {weighted}", of.read, of.sums, of.check)
    most, _, count, weight = sliced.look()

    def chunks() -> Iterator[EdgeArrays]:
        return arrayfiles.arrays(path, name, weighted=weighted).chunks()

    return Graph(most + 1 if n is None else n, chunks, name, edges=count, slices=sliced.slices,
                 least_weight=weight)


def _usual(path: Source, name: str,
           weighted: bool | None) -> tuple[dict[str, Member], list[str], int | None, str] | None:
    """Return facts about a file; None: the file is unusual.

    The facts are its arrays, the names of those that have a value for each edge, the number of
    vertices if the file tells it, and "csr" or "csc" if it is a matrix of pointers.
    """
    found = members(path)
    names = None if found is None else columns_of(found)
    if found is None or names is None or (weighted and len(names) < 3):
        return None
    small = arrayfiles.unpack(path, name, ("shape", "format", "n"))
    n, order = _vertices(found, small), "csr"
    if names[0] == "indptr":
        order = bytes(small.get("format", np.array(b"csr")).item()).decode()
        ptr = arrayfiles.unpack(path, name, ("indptr",))["indptr"].astype(np.int64)
        if (np.diff(ptr, prepend=0) < 0).any() or ptr[-1:].tolist() != [found["indices"].size]:
            return None
    if n == 0 or order not in ("csr", "csc") or not found[names[1]].size:
        return None
    return found, names, n, order


def _vertices(found: dict[str, Member], small: dict[str, AnyArray]) -> int | None:
    """Return the number of vertices that the file tells; 0: it is unusual; None: it tells none."""
    if "shape" in found:
        rows, columns = small["shape"].ravel().tolist()
        return int(rows) if rows == columns else 0
    if "n" not in found:
        return None
    return int(small["n"]) if small["n"].size == 1 and small["n"].dtype.kind in "iu" else 0


class _Arrays:
    """The arrays of a graph in an .npz file, by slices.

    If no array is packed, each slot reads its slice of each array. Otherwise each array is unpacked
    by one slot, which sends the others their slices. In both cases the checksums in the file are
    compared.
    """

    def __init__(self, path: Source, name: str, found: dict[str, Member], names: Sequence[str],
                 order: str, comm: Any) -> None:
        self.path, self.name, self.comm, self.order = path, name, comm, order
        self.pointed = names[0] == "indptr"
        self.members = [found[each] for each in names if each != "indptr"]
        self.packed = any(member.at is None for member in self.members)
        self.size = self.members[0].size
        self._sums = [0] * len(self.members)

    def bounds(self, many: int) -> list[int]:
        """Return the first entry of each slice; slices consist of the chunks of `arrayfiles`."""
        stretches = -(-self.size // arrayfiles.CHUNK)
        return [min(stretches * k // many * arrayfiles.CHUNK, self.size) for k in range(many + 1)]

    def read(self, i: int, many: int) -> Iterator[EdgeArrays]:
        """Yield the edges of slice i of `many`.

        MPI: collective over all slots if arrays are packed.
        """
        first, last = self.bounds(many)[i : i + 2]
        rows = self._rows() if self.pointed else None
        for stretch in self._unpacked(many) if self.packed else self._stored(first, last):
            if rows is not None:
                stretch.insert(0, rows(first, first + len(stretch[0])))
                if self.order == "csc":
                    stretch[:2] = stretch[1::-1]
            first += len(stretch[0])
            source, target, *weight = stretch
            yield edge_arrays(source, target, weight[0] if weight else None, self.name)

    def _stored(self, first: int, last: int) -> Iterator[list[AnyArray]]:
        """Yield values first to last - 1 of arrays that are not packed."""
        self._sums = [0] * len(self.members)
        try:
            with open(self.path, "rb") as file:
                for begin in range(first, last, arrayfiles.CHUNK):
                    count = min(arrayfiles.CHUNK, last - begin)
                    yield [self._stretch(file, number, begin, count)
                           for number in range(len(self.members))]
        except OSError as error:
            raise ValueError(f"{self.name}: cannot be read: {error.strerror}") from None

    def _stretch(self, file: IO[bytes], number: int, begin: int, count: int) -> AnyArray:
        member = self.members[number]
        assert member.at is not None
        file.seek(member.at)
        if begin == 0:
            self._sums[number] = zlib.crc32(file.read(member.head))
        file.seek(member.at + member.head + begin * member.dtype.itemsize)
        data = file.read(count * member.dtype.itemsize)
        self._sums[number] = zlib.crc32(data, self._sums[number])
        if len(data) < count * member.dtype.itemsize:
            raise ValueError(f"{self.name}: cannot be read as .npz: it is cut")
        return np.frombuffer(data, member.dtype)

    def sums(self) -> tuple[int, ...]:
        """Return the checksums of the parts of the arrays that this slot has read last."""
        return tuple(self._sums)

    def check(self, sums: list[list[int]]) -> None:
        """Compare the checksums of slices with those of the file.

        Raises:
            ValueError: an array is damaged.
        """
        bounds = self.bounds(self.comm.size)
        for member, found in zip(self.members, sums, strict=True):
            if self.packed:
                continue  # zipfile has compared its checksum
            sizes = [(end - begin) * member.dtype.itemsize for begin, end in pairwise(bounds)]
            whole = found[0]
            for crc, size in zip(found[1:], sizes[1:], strict=True):
                whole = joined(whole, crc, size)
            if whole != member.info.CRC:
                raise ValueError(f"{self.name}: cannot be read as .npz: Bad CRC-32 for file "
                                 f"{member.info.filename!r}")

    def _unpacked(self, many: int) -> Iterator[list[AnyArray]]:
        """Yield this slot's slice of arrays, each of which is unpacked by one slot.

        In a round the next stretch of each array goes to the slots whose slices it touches.
        """
        comm, problem, found = self.comm, "", []
        readers = {number: _Packed(self.path, member) for number, member in enumerate(self.members)
                   if number % many == comm.rank}
        for begin in range(0, self.size, arrayfiles.CHUNK):
            end, sending = min(begin + arrayfiles.CHUNK, self.size), [b""] * many
            for number, reader in readers.items():
                try:
                    data = b"" if problem else reader.read(end - begin, last=end == self.size)
                except Exception as error:  # of zlib and zipfile
                    data, problem = b"", f"{self.name}: cannot be read as .npz: {error}"
                data = data.ljust((end - begin) * self.members[number].dtype.itemsize, b"\0")
                for slot, (low, high) in enumerate(self._overlaps(begin, end, many)):
                    size = self.members[number].dtype.itemsize
                    sending[slot] += data[(low - begin) * size : (high - begin) * size]
            found.append(self._swap(sending, begin, end, many))
        shuffle.agree(comm, (), problem)
        found.reverse()
        while found:
            stretch = found.pop()
            if len(stretch[0]):
                yield stretch

    def _overlaps(self, begin: int, end: int, many: int) -> list[tuple[int, int]]:
        """Return which of the entries begin to end - 1 each slot's slice has."""
        bounds = self.bounds(many)
        return [(min(max(low, begin), end), max(min(high, end), begin))
                for low, high in pairwise(bounds)]

    def _swap(self, sending: list[bytes], begin: int, end: int, many: int) -> list[AnyArray]:
        """Send the bytes of a round; return the entries of each array that have come."""
        low, high = self._overlaps(begin, end, many)[self.comm.rank]
        sizes = [(high - low) * member.dtype.itemsize for member in self.members]
        coming = np.array([sum(sizes[reader::many]) for reader in range(many)], np.int64)
        leaving = np.array([len(data) for data in sending], np.int64)
        came = np.empty(int(coming.sum()), np.uint8)
        self.comm.Alltoallv(shuffle.buffer(np.frombuffer(b"".join(sending), np.uint8), leaving),
                            shuffle.buffer(came, coming))
        places = np.cumsum(coming) - coming
        found = []
        for number, size in enumerate(sizes):
            at = int(places[number % many])
            places[number % many] += size
            found.append(np.frombuffer(came[at : at + size].tobytes(), self.members[number].dtype))
        return found

    def _rows(self) -> Callable[[int, int], Ints]:
        """Return a function for the rows of consecutive entries of a matrix, by its pointers."""
        ptr = arrayfiles.unpack(self.path, self.name, ("indptr",))["indptr"].astype(np.int64)

        def rows(begin: int, end: int) -> Ints:
            row = int(np.searchsorted(ptr, begin, side="right")) - 1
            stop = int(np.searchsorted(ptr, end, side="left"))
            return np.repeat(np.arange(row, stop), np.diff(ptr[row : stop + 1].clip(begin, end)))

        return rows


class _Packed:
    """An array that is unpacked from its beginning on."""

    def __init__(self, path: Source, member: Member) -> None:
        self.member, self._zip = member, zipfile.ZipFile(path)
        self._file = self._zip.open(member.info)
        self._file.read(member.head)

    def read(self, count: int, *, last: bool) -> bytes:
        """Return the next values; raise an error of zipfile or zlib if the array is damaged."""
        data = self._file.read(count * self.member.dtype.itemsize)
        if last:
            self._file.read(1)  # reading beyond the last byte makes zipfile compare the checksum
            self._file.close()
            self._zip.close()
        return data


def joined(first: int, second: int, size_bytes: int) -> int:
    """Return the CRC-32 of two pieces of data, one after the other, from the CRC-32 of each.

    Args:
        size_bytes: size of the second piece.

    Source: M. Adler, crc32_combine of zlib: the first CRC is multiplied by x to the power of the
    number of bits of the second piece, modulo the polynomial.
    """
    power, square = 1 << 31, 1 << 23  # 1, and x to the power of 8: bit 31 is that of 1
    while size_bytes:
        if size_bytes & 1:
            power = _product(power, square)
        square = _product(square, square)
        size_bytes >>= 1
    return _product(power, first) ^ second


def _product(a: int, b: int) -> int:
    """Return the product of polynomials modulo that of CRC-32; the highest bit stands for 1."""
    found = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            found ^= b
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return found
