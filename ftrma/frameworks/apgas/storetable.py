"""The table of a store: who holds and who keeps each shelf, in words that all places share.

A shelf keeps its number for ever. Its *holder* serves accesses, its *keeper* has the file. One word
has both, and the number of the recovery in which the file was made; so all three change at once:
when a replacement has loaded a shelf, and when a new file is whole. Only the file that the word
names counts.

The words begin at 0 in each attempt of the program. So each word is also written into a file, the
copy, from which the next attempt restores the words. Over several nodes each node has such a copy,
and the next attempt uses the newest one: a node that was lost, and is back, has an old copy.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...host import private
from ...host.errors import FtrmaError, NodeLost
from .shelf import Far

FIRST, BLOCK, STORES = 32768, 256, 128  # first word; words of one store; most stores at a time
MOST_SHELVES = 64
# Words of a store. The root alone writes the words before TABLE, a shelf's holder those from there.
GENERATION = 0  # number of the recovery that has opened the store; 0: it is closed
ROUND = 1  # number of the newest recovery that has begun
HALTED = 2  # why a recovery has ended early: 1 + the place that died in it; see `FAILED`
LOST = 3  # mask of the shelves that are lost
SHELVES = 4  # number of shelves
IDENTITY = 5  # a number that tells the store from other stores of its name
ATTEMPT = 6  # the newest attempt of the program that has made or attached the store
SEAT = 16  # 1 + the place that a shelf belongs to; 0: none
TABLE = SEAT + MOST_SHELVES
DIRTY = TABLE + MOST_SHELVES  # 1: something has been committed to the shelf
NO_COPY = (-1, -1)  # in place of attempt and recovery: there is no copy
FAILED = (1 << 63) - 1  # value of HALTED: another error than a death

PLACE_BITS, ROUND_BITS = 20, 24


class Row(NamedTuple):
    """A row of the table: the holder and the keeper of a shelf; -1: there is none."""

    holder: int
    keeper: int
    made: int  # the recovery in which the file was made

    @classmethod
    def of(cls, word: int) -> Row:
        most = (1 << PLACE_BITS) - 1
        return cls((word >> PLACE_BITS + ROUND_BITS) - 1, (word >> ROUND_BITS & most) - 1,
                   word & (1 << ROUND_BITS) - 1)

    def word(self) -> int:
        return ((self.holder + 1) << PLACE_BITS + ROUND_BITS | (self.keeper + 1) << ROUND_BITS
                | self.made)


class Table:
    """The words of a store, as one place sees them.

    Args:
        words: the words that all places share.
        index: index of the store among those of this attempt.
        path: path of the copy, which exists unless `make` is true; None: there is only one place.
        others: the other nodes, which have copies, too.
    """

    def __init__(self, words: Any, index: int, path: Path | None, *, make: bool = False,
                 others: Sequence[Far] = ()) -> None:
        self._words, self.base = words, FIRST + index * BLOCK
        self._copy = self._open(path, make) if path else memoryview(bytearray(BLOCK * 8)).cast("Q")
        self._name, self._others = path.name if path else "", others
        for files, place in others:
            with suppress(NodeLost, FileNotFoundError):  # if there is no copy, `renew` makes it
                if make:
                    files.make(place, self._name, BLOCK * 8)
                else:
                    files.look(place, self._name)
        if make:
            self.put(IDENTITY, secrets.randbits(63))

    def _open(self, path: Path, make: bool) -> memoryview:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags | (os.O_CREAT | os.O_EXCL if make else 0), 0o600)
        try:
            if make:
                os.posix_fallocate(descriptor, 0, BLOCK * 8)
            return memoryview(mmap.mmap(descriptor, BLOCK * 8)).cast("Q")
        finally:
            os.close(descriptor)

    def get(self, word: int) -> int:
        return int(self._words.load(self.base + word))

    def put(self, word: int, value: int) -> None:
        """Write a word, as its only writer; the copy comes first, since a death may come between.
        """
        self._copy[word] = value
        self._send(8 * word, value.to_bytes(8, "little"))
        self._words.store(self.base + word, value)

    def _send(self, at: int, data: Any) -> None:
        """Write bytes into the copies on the other nodes."""
        for files, place in self._others:
            with suppress(NodeLost):
                files.write(place, self._name, at, data)

    def saved(self, word: int) -> int:
        """Return a word of the copy."""
        return self._copy[word]

    def row(self, shelf: int) -> Row:
        return Row.of(self.get(TABLE + shelf))

    def put_row(self, shelf: int, row: Row) -> None:
        self.put(TABLE + shelf, row.word())

    def rows(self) -> list[Row]:
        return [Row.of(int(word)) for word in self._row_of_words(TABLE)]

    def seats(self) -> list[int]:
        """Return the place to which each shelf belongs; -1: none."""
        return [int(word) - 1 for word in self._row_of_words(SEAT)]

    def _row_of_words(self, first: int) -> Any:
        return self._words.read(self.base + first, max(self.get(SHELVES), 1))[:self.get(SHELVES)]

    def renew(self) -> None:
        """Restore the words of an earlier attempt from the copy; the store stays closed."""
        for files, place in self._others:
            with suppress(NodeLost):  # a node that had no copy gets one, too
                files.make(place, self._name, BLOCK * 8)
        self._send(0, self._copy.cast("B"))
        for word, value in enumerate(self._copy):
            if word not in (GENERATION, HALTED):
                self._words.store(self.base + word, value)


def bring(path: Path, others: Sequence[Far]) -> bool:
    """Have the newest copy of a table on this node, from which `Table.renew` writes the words.

    Args:
        path: of the copy here.
        others: the other nodes.

    Returns:
        False: no node has a copy.
    """
    here = path.read_bytes() if path.exists() else b""
    copies = [here]
    for files, place in others:
        with suppress(NodeLost, FileNotFoundError):
            files.look(place, path.name)
            copies.append(bytes(files.read(place, path.name, 0, BLOCK * 8)))
    newest = max(copies, key=_age)
    if _age(newest) > _age(here):
        path.unlink(missing_ok=True)
        with private.make(path) as file:
            file.write(newest)
    return _age(newest) > NO_COPY


def _age(copy: bytes) -> tuple[int, int]:
    """Attempt and recovery of a copy of a table; a greater pair is newer."""
    if len(copy) < BLOCK * 8:
        return NO_COPY
    words = memoryview(copy).cast("Q")
    return words[ATTEMPT], words[ROUND]


def table_path(directory: Path | None, name: str) -> Path | None:
    """Return the path of the copy of a store's table."""
    return directory and directory / f"own-store-{_mark(name)}"


def shelf_path(directory: Path, name: str, identity: int, shelf: int, made: int) -> Path:
    """Return the path of the file of a shelf that was made in a recovery."""
    return directory / f"own-shelf-{_mark(name)}-{identity:x}-{shelf}-{made}-"


def sweep(directory: Path, name: str, kept: Iterable[Path]) -> None:
    """Remove the files of a store's shelves on this node that no row of its table names."""
    names = {path.name for path in kept}
    for path in directory.glob(f"own-shelf-{_mark(name)}-*"):
        if path.name[:-1] not in names:  # without the letter of its half
            path.unlink(missing_ok=True)


def remove(directory: Path, name: str) -> None:
    """Remove all files of a store on this node."""
    for path in directory.glob(f"own-*-{_mark(name)}*"):
        path.unlink(missing_ok=True)


def of_mask(mask: int) -> tuple[int, ...]:
    """Return the shelves whose bits are set in a mask."""
    return tuple(shelf for shelf in range(mask.bit_length()) if mask >> shelf & 1)


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def check_shelves(count: int) -> None:
    """Refuse a number of shelves that is 0, or greater than the number of rows of a table.

    Raises:
        FtrmaError: there are too many shelves, or none.
    """
    if not 0 < count <= MOST_SHELVES:
        raise FtrmaError(f"store: {count} places; a store is for 1 to {MOST_SHELVES} active places")
