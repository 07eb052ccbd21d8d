"""Shelves: the contents of a shelf, and the file at the keeper that holds a second copy of them.

A file has two halves. Records are appended to one of them. When a record finds no room, the state
after its commit is written as one record into the other half, which counts from then on. Each half
has one word that publishes: it says how many bytes of the half count, and has a serial, which tells
the newer half. So a holder may die at any instruction, and the file holds exactly what was
committed.

A record is one commit: keys with values, intents of `set2` for other shelves, numbers of intents
that were answered, the last number applied from each shelf, and the last number given out. A state
is written in the form of a commit, too. Each record has a check over its words and one over its
large values.

If the keeper is on another node, the file lies there, and agents write and read it (`Far`).

Law: a half that was cut at any byte is read as it was published, or is refused.

Source: Resilient X10, section 4.2.2 (a replica at the next place) and 4.2.3 (a log of `set2`).
"""

from __future__ import annotations

import marshal
import mmap
import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...framework import kill_place
from ...host.errors import NO_ROOM, FtrmaError, NodeLost, NoRoom, Rollback
from .door import Files
from .values import Kept, own

Key: TypeAlias = "tuple[str, str]"  # name of a map, key in it
Intent: TypeAlias = "tuple[int, str, str, Kept | None]"  # shelf, map, key and value of a `set2`

MAGIC = b"ftrmashf"
HEAD_BYTES = 64  # head of a half: magic, then the word that publishes
# Head of a record: check of what follows, size of the words, size of the record, sum of the large
# values.
RECORD = struct.Struct("<IIQQ")
LARGE_BYTES = 1 << 12  # values of this size or more are not in the words, but follow them
LEAST_BYTES = 1 << 18  # least size of a half
SPARE_BYTES = 1 << 26  # most room in a half besides a state, unless a fourth of the state is more
UNIT_BITS = 36  # bits of the published length, in units of 8 bytes; the other bits are the serial
MODULUS = (1 << 64) - 1


class BrokenShelf(FtrmaError):
    """A shelf's file does not hold what its word says: memory is damaged, or the file is cut."""


@dataclass
class Change:
    """One commit, or a whole state.

    Attributes:
        writes: new values by key; None: the key is deleted.
        intents: values that other shelves are to get, by number of the intent.
        drops: numbers of intents that were answered.
        applied: last number of an intent that was applied here, by the shelf it came from.
        number: last number that was given to an intent.
    """

    writes: dict[Key, Kept | None] = field(default_factory=dict)
    intents: dict[int, Intent] = field(default_factory=dict)
    drops: tuple[int, ...] = ()
    applied: dict[int, int] = field(default_factory=dict)
    number: int = 0


class State:
    """The contents of a shelf, as its commits have made them in order."""

    def __init__(self) -> None:
        self.values: dict[Key, Kept] = {}
        self.intents: dict[int, Intent] = {}
        self.applied: dict[int, int] = {}
        self.number = 0

    def make(self, change: Change, ours: bool = False) -> None:
        """Make a commit; arrays are copied, into the arrays that they replace if these fit.

        Args:
            ours: nobody else uses the arrays, so they are not copied.
        """
        for key, value in change.writes.items():
            old = None if ours else self.values.get(key)
            if value is None:
                self.values.pop(key, None)
            elif ours:
                self.values[key] = value
            elif isinstance(old, np.ndarray) and _fits(old, value):
                np.copyto(old, value)
            else:
                self.values[key] = own(value)
        if change.drops:
            for number in change.drops:
                self.intents.pop(number, None)
        if change.intents:
            self.intents.update({n: (s, m, k, v if v is None or ours else own(v))
                                 for n, (s, m, k, v) in change.intents.items()})
        if change.applied:
            self.applied.update(change.applied)
        self.number = max(self.number, change.number)

    def after(self, change: Change) -> Change:
        """Return the state after a commit, in the form of one commit."""
        writes = {**self.values, **change.writes}
        intents = {n: i for n, i in self.intents.items() if n not in change.drops}
        return Change({key: value for key, value in writes.items() if value is not None},
                      {**intents, **change.intents}, (), {**self.applied, **change.applied},
                      max(self.number, change.number))


def _fits(old: Any, new: Any) -> bool:
    return (not isinstance(new, bytes) and old.dtype == new.dtype and old.shape == new.shape
            and old.strides == new.strides)


# Records ------------------------------------------------------------------------------------------


class Record:
    """A commit as it is written.

    Attributes:
        size: bytes of the record.
    """

    def __init__(self, change: Change) -> None:
        self._large: list[Any] = []
        self._words = marshal.dumps((
            [(*key, _described(value, self._large)) for key, value in change.writes.items()],
            [(number, *intent[:3], _described(intent[3], self._large))
             for number, intent in change.intents.items()],
            change.drops, list(change.applied.items()), change.number), 2)
        self.size = _padded(RECORD.size + len(self._words))
        for raw in self._large:
            self.size += _padded(len(raw))

    def buffers(self) -> list[Any]:
        """Return the record as buffers; each of them is to begin at a multiple of 8 bytes."""
        total = sum(map(_sum, self._large)) & MODULUS
        head = RECORD.pack(0, len(self._words), self.size, total)[4:]
        check = zlib.crc32(self._words, zlib.crc32(head))
        return [check.to_bytes(4, "little") + head + self._words, *self._large]


def unpack(data: memoryview, at: int) -> tuple[Change, int]:
    """Read the record that begins at a byte; return it and the byte at which the next one begins.

    Raises:
        BrokenShelf: the record is cut or damaged.
    """
    if at + RECORD.size > len(data):
        raise BrokenShelf(f"a shelf's record at byte {at} is cut")
    check, count, size, total = RECORD.unpack_from(data, at)
    begin = at + RECORD.size
    if size < RECORD.size + count or at + size > len(data):
        raise BrokenShelf(f"a shelf's record at byte {at} is cut")
    if zlib.crc32(data[at + 4:begin + count]) != check:
        raise BrokenShelf(f"a shelf's record at byte {at} does not match its check")
    large = _Large(data, at + _padded(RECORD.size + count), at + size)
    writes, intents, drops, applied, number = marshal.loads(data[begin:begin + count])
    change = Change({(m, k): large.value(what) for m, k, what in writes},
                    {n: (s, m, k, large.value(what)) for n, s, m, k, what in intents},
                    drops, dict(applied), number)
    if large.total & MODULUS != total:
        raise BrokenShelf(f"large values of a shelf's record at byte {at} do not match their check")
    return change, at + size


def _described(value: Kept | None, large: list[Any]) -> Any:
    """Return the words that stand for a value; append a large value to the list."""
    if value is None or (isinstance(value, bytes) and len(value) < LARGE_BYTES):
        return value
    if isinstance(value, bytes):
        large.append(value)
        return len(value)
    flat = value if value.flags.c_contiguous else value.T
    about = value.dtype.str, value.shape, bool(value.flags.c_contiguous)
    if value.nbytes < LARGE_BYTES:
        return (*about, flat.tobytes())
    large.append(flat.reshape(-1).view(np.uint8).data)
    return (*about, value.nbytes)


class _Large:
    """Reads the large values of a record, one after the other."""

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self._data, self._at, self._end, self.total = data, at, end, 0

    def value(self, what: Any) -> Kept | None:
        """Return the value that `_described` has described."""
        if what is None or isinstance(what, bytes):
            return what
        if isinstance(what, int):
            return bytes(self._raw(what))
        dtype, shape, in_c, raw = what
        raw = self._raw(raw) if isinstance(raw, int) else raw
        return np.ndarray(shape, dtype, raw, order="C" if in_c else "F").copy("K")

    def _raw(self, size: int) -> memoryview:
        raw = self._data[self._at:self._at + size]
        self._at += _padded(size)
        if self._at > self._end:
            raise BrokenShelf("a shelf's record is shorter than its values")
        self.total += _sum(raw)
        return raw


def _padded(size: int) -> int:
    return (size + 7) & ~7


def _sum(raw: Any) -> int:
    """Return the sum of the 64-bit words; a CRC was measured to take twelve times as long."""
    whole = len(raw) & ~7
    words = np.frombuffer(raw, np.uint64, whole // 8)
    return int(np.add.reduce(words)) + int.from_bytes(raw[whole:], "little")


# Files --------------------------------------------------------------------------------------------


class _Half:
    """A half of a file, as its writer sees it."""

    def __init__(self, path: Path) -> None:
        self.path, self.capacity, self.used, self.serial = path, 0, 0, 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)

    def grow(self, size: int) -> None:
        """Make room for a number of bytes; the half's contents are forgotten.

        Raises:
            NoRoom: shared memory is full; nothing has changed.
        """
        try:
            os.posix_fallocate(self._file, 0, size)
        except OSError as error:
            raise NoRoom(f"store: {NO_ROOM}") from error
        self._map = mmap.mmap(self._file, size, mmap.MAP_SHARED)
        self._bytes = memoryview(self._map)
        self._words = self._bytes[:HEAD_BYTES].cast("Q")
        self._bytes[:8] = MAGIC
        self.capacity = size
        self._touched = 0

    def release(self) -> None:
        """Give the memory back; the half does not count any more."""
        self._bytes = self._words = memoryview(b"")
        del self._map
        os.ftruncate(self._file, 0)
        self.capacity = 0

    def add(self, record: Record) -> None:
        """Write a record after the bytes that count; it does not count yet."""
        at = self.used
        for buffer in record.buffers():
            self._write(at, buffer)
            at += _padded(len(buffer))
        self._end = at

    def _write(self, at: int, buffer: Any) -> None:
        end = at + len(buffer)
        if end <= self._touched or len(buffer) < LARGE_BYTES:
            self._bytes[at:end] = buffer
            return
        # The first use of a page by the map costs a fault, more than twice as much as this call.
        left = memoryview(buffer).cast("B")
        while left:
            left = left[os.pwrite(self._file, left, end - len(left)):]
        self._touched = max(self._touched, end)

    def publish(self, serial: int) -> None:
        """Make all that was written count."""
        self.used, self.serial = self._end, serial
        self._words[1] = serial << UNIT_BITS | self.used >> 3

    def __del__(self) -> None:
        os.close(self._file)


class Far(NamedTuple):
    """The node of a file that is not on this node.

    Attributes:
        files: access to files of other nodes.
        keeper: a place on that node.
    """

    files: Files
    keeper: int


class _FarHalf:
    """A half of a file on another node, as its writer sees it; see `_Half`.

    Calls raise NodeLost if that node is lost.
    """

    def __init__(self, path: Path, far: Far) -> None:
        self.path, self._far = path, far
        self.capacity, self.used, self.serial = 0, 0, 0

    def reach(self, far: Far) -> None:
        """Go on with the file in another attempt of the program."""
        self._far = far
        with suppress(FileNotFoundError):  # the keeper is dead
            far.files.look(far.keeper, self.path.name)

    def grow(self, size: int) -> None:
        self._far.files.make(self._far.keeper, self.path.name, size)
        self._write(0, MAGIC)
        self.capacity = size

    def release(self) -> None:
        # The commit is already published: nothing may keep its holder from changing the dictionary.
        with suppress(NodeLost, Rollback):
            self._far.files.make(self._far.keeper, self.path.name, 0)
        self.capacity = 0

    def add(self, record: Record) -> None:
        at = self.used
        for buffer in record.buffers():
            self._write(at, buffer)
            at += _padded(len(buffer))
        self._end = at

    def publish(self, serial: int) -> None:
        self._write(len(MAGIC), (serial << UNIT_BITS | self._end >> 3).to_bytes(8, "little"))
        self.used, self.serial = self._end, serial

    def _write(self, at: int, data: Any) -> None:
        self._far.files.write(self._far.keeper, self.path.name, at, data)


class ShelfFile:
    """The file of a shelf, for the one place that writes it.

    Args:
        path: path of the file; the names of its halves have one letter more. They must not exist.
        state: the state with which the file begins.
        far: the node where the file lies; None: this node.

    Raises:
        NoRoom: shared memory is full. FileExistsError: the file exists already.
        NodeLost: the node of the file is lost.
    """

    def __init__(self, path: Path, state: State, far: Far | None = None) -> None:
        self.path, self._far, self._room = path, far, 0
        self._halves = [self._make_half(0)]
        self._now = self._halves[0]
        self._write_whole(self._now, Record(state.after(Change())), 1)

    def _make_half(self, which: int) -> _Half | _FarHalf:
        path = _half(self.path, which)
        return _FarHalf(path, self._far) if self._far else _Half(path)

    def reach(self, far: Far | None) -> None:
        """Go on with a file on another node in another attempt of the program."""
        self._far = far
        for half in self._halves:
            if far and isinstance(half, _FarHalf):
                with suppress(NodeLost):
                    half.reach(far)

    def append(self, change: Change, state: State) -> None:
        """Commit a change to the file.

        Args:
            state: the state before the change. If no room is left for the change alone, the state
                after the change is written.

        Raises:
            NoRoom: shared memory is full; the file is unchanged.
            NodeLost: the node of the file is lost.
        """
        record = Record(change)
        half = self._now
        if half.used + record.size <= half.capacity:
            half.add(record)
            kill_place("apgas.half")
            half.publish(half.serial)
            return
        if len(self._halves) == 1:
            self._halves.append(self._make_half(1))
        other = self._halves[half is self._halves[0]]
        self._write_whole(other, Record(state.after(change)), half.serial + 1)
        self._now = other
        if half.capacity > SPARE_BYTES:
            half.release()

    def _write_whole(self, half: _Half | _FarHalf, record: Record, serial: int) -> None:
        need = HEAD_BYTES + record.size
        # Room for commits behind a state grows with their number: zeroed pages are dear, and a
        # shelf may hold much that never changes.
        most = min(need, max(SPARE_BYTES, need >> 2))
        spare = max(need >> 3, min(2 * self._room, most))
        if half.capacity < need + spare // 2:
            half.grow(max(LEAST_BYTES, need + spare))
        self._room = half.capacity - need
        half.used = HEAD_BYTES  # the earlier contents are older than the other half, so not read
        half.add(record)
        kill_place("apgas.flip")
        half.publish(serial)


def read(path: Path, far: Far | None = None) -> State:
    """Read a shelf's file, to which nobody writes any more.

    Args:
        far: the node where the file lies; None: this node.

    Raises:
        FileNotFoundError: there is no such file.
        BrokenShelf: the file is damaged.
    """
    newest: tuple[int, memoryview] | None = None
    for which in (0, 1):
        with suppress(FileNotFoundError, NodeLost):
            half = _half(path, which)
            word, data = _fetch_half(half.name, far) if far else _open_half(half)
            if word and (newest is None or word >> UNIT_BITS > newest[0] >> UNIT_BITS):
                newest = word, data
    if newest is None:
        raise FileNotFoundError(path)
    word, data = newest
    end = (word & (1 << UNIT_BITS) - 1) << 3
    if end > len(data):
        raise BrokenShelf(f"{path.name}: {end} bytes were published, and {len(data)} are there")
    return read_records(data[:end])


def is_there(path: Path, far: Far | None = None) -> bool:
    """Say that a node has the file of a shelf; see `read`."""
    first = _half(path, 0)
    if not far:
        return first.exists()
    try:
        far.files.look(far.keeper, first.name)
    except (FileNotFoundError, NodeLost):
        return False
    return True


def read_records(data: memoryview) -> State:
    """Read the records of a half; `data` ends where the published bytes end.

    Raises:
        BrokenShelf: a record is damaged.
    """
    state, at = State(), HEAD_BYTES
    while at < len(data):
        change, at = unpack(data, at)
        state.make(change, ours=True)
    return state


def _open_half(path: Path) -> tuple[int, memoryview]:
    """Return the word that publishes, and the bytes of a half."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if not size:  # the half was made, but not used yet
            return 0, memoryview(b"")
        if size < HEAD_BYTES:
            raise BrokenShelf(f"{path.name} has {size} bytes only")
        data = memoryview(mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ))
    finally:
        os.close(descriptor)
    if data[:8] != MAGIC:
        return 0, data
    return int.from_bytes(data[8:16], "little"), data


def _fetch_half(name: str, far: Far) -> tuple[int, memoryview]:
    """Return the word that publishes, and the published bytes, of a half on another node."""
    files, size = far.files, far.files.look(far.keeper, name)
    if not size:
        return 0, memoryview(b"")
    if size < HEAD_BYTES:
        raise BrokenShelf(f"{name} has {size} bytes only")
    head = files.read(far.keeper, name, 0, HEAD_BYTES)
    word = int.from_bytes(head[8:16], "little") if head[:8] == MAGIC else 0
    end = (word & (1 << UNIT_BITS) - 1) << 3
    return word, memoryview(files.read(far.keeper, name, 0, min(size, end)))


def remove(path: Path, far: Far | None = None) -> None:
    """Remove a shelf's file if it exists; arguments as in `read`."""
    for which in (0, 1):
        with suppress(FileNotFoundError, NodeLost):
            if far:
                far.files.remove(far.keeper, _half(path, which).name)
            else:
                os.unlink(_half(path, which))


def _half(path: Path, which: int) -> Path:
    return path.with_name(f"{path.name}{'ab'[which]}")

