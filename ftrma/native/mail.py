"""Calls into ``csrc/job/mail.c``: messages, words and deaths that the processes of a job share.

Only one thread of a process at a time may use its `Mail`.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import extension as c
from .constants import number

if TYPE_CHECKING:
    import numpy.typing as npt

WORDS = 1 << 24  # memory is allocated as they are used
RINGS_BYTES = 1 << 28  # most bytes of all rings of a job; memory is allocated as they are used
MOST_RING_BYTES, LEAST_RING_BYTES = 1 << 20, 1 << 14


class Sent(IntEnum):
    """Results of `Mail.append`."""

    OK, FULL, DEAD = number("OK"), number("MAIL_FULL"), number("MAIL_DEAD")


SENT = {int(sent): sent for sent in Sent}  # a lookup takes less time than a call


class Spots(NamedTuple):
    """Offsets in a mail's file, in bytes; ``csrc/ftrma.h`` describes them."""

    generation: int
    deaths: int
    bells: int
    dead: int
    joined: int
    place_bytes: int
    written: int
    read: int
    pair_bytes: int
    data: int
    words: int
    file_bytes: int
    ring_bytes: int


def ring_bytes(processes: int) -> int:
    """Return the size of a ring; a job has one ring for each ordered pair of processes."""
    fair = RINGS_BYTES // processes**2 // 4096 * 4096
    return min(MOST_RING_BYTES, max(LEAST_RING_BYTES, fair))


def find_spots(processes: int) -> Spots:
    """Return the offsets in the file of a mail of so many processes."""
    found, size = c.ffi.new("struct ftrma_mail_spots *"), ring_bytes(processes)
    c.lib.ftrma_mail_find(processes, size, WORDS, found)
    places = {name: int(getattr(found, name)) for name in Spots._fields if name != "ring_bytes"}
    return Spots(**places, ring_bytes=size)


def create(path: Path, processes: int) -> None:
    """Create the file of a mail, for processes 0 .. processes - 1.

    Raises:
        NoRoom: no shared memory is left. FtrmaError: anything else.
    """
    size = ring_bytes(processes)
    c.check(c.lib.ftrma_mail_create(os.fsencode(path), processes, size, WORDS), "making mail")


def give_back(path: Path) -> None:
    """Free the memory of the rings and words of a mail whose attempt is over, and its name.

    Processes map the file until they end, so the memory would not be freed by the removal alone.
    The head keeps its contents: the thread that tells deaths may look there at any time.
    """
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as whole:
        spots = find_spots(int.from_bytes(whole[24:28], "little"))
        if len(whole) == spots.file_bytes:
            whole.madvise(mmap.MADV_REMOVE, spots.data, spots.file_bytes - spots.data)
    path.unlink()


class Words:
    """Words of 64 bits that all processes see; each has one writer at a time.

    A process that loads a word sees everything that the writer did before it stored the word.

    Attributes:
        count: number of words; they are 0 at first.
    """

    def __init__(self, words: Any, count: int) -> None:
        self._words, self.count = words, count
        # Without this, a call would spend half of its time finding these functions and checking
        # numbers twice.
        self._load, self._store, self._add = (
            c.lib.ftrma_load, c.lib.ftrma_store, c.lib.ftrma_word_add)

    def load(self, at: int) -> int:
        """Read a word."""
        if not 0 <= at < self.count:
            self._refuse(at)
        return self._load(self._words + at)  # type: ignore[no-any-return]

    def store(self, at: int, value: int) -> None:
        """Write a word, as its only writer."""
        if not 0 <= at < self.count:
            self._refuse(at)
        self._store(self._words + at, value)

    def add(self, at: int, n: int = 1) -> int:
        """Add to a word, as its only writer; return the new value."""
        if not 0 <= at < self.count:
            self._refuse(at)
        return self._add(self._words + at, n)  # type: ignore[no-any-return]

    def read(self, first: int, count: int) -> npt.NDArray[np.uint64]:
        """Copy a row of words, each as it is at some moment, read in order."""
        self._known(first + max(count, 1) - 1)
        copy = np.empty(count, np.uint64)
        there = c.ffi.cast("uint64_t *", c.ffi.from_buffer(copy))
        c.lib.ftrma_words_read(self._words + self._known(first), count, there)
        return copy

    def equal(self, first: int, second: int, count: int) -> bool:
        """Say whether two rows of words are equal; the first one is read before the second.

        Args:
            count: number of words of a row, at most 4096.
        """
        self._known(max(first, second) + max(count, 1) - 1)
        words = self._words
        return bool(c.lib.ftrma_words_equal(words + first, words + second, count))

    def _known(self, at: int) -> int:
        if not 0 <= at < self.count:
            self._refuse(at)
        return at

    def _refuse(self, at: int) -> None:
        raise IndexError(f"word {at}: there are {self.count}")


class Mail:
    """One process's end of the job's mail, which has a ring from each process to each other.

    Attributes:
        limit_bytes: most bytes of a message.
        files: the way to files on other nodes; None: all processes are on one node.
        words: the words that all processes share.
    """

    OK, FULL, DEAD = Sent.OK, Sent.FULL, Sent.DEAD
    files: Any = None

    def __init__(self, path: Path, me: int) -> None:
        opened = c.ffi.new("struct ftrma_mail **")
        c.check(c.lib.ftrma_mail_open(os.fsencode(path), me, opened), f"opening {path.name}")
        self._mail = opened[0]
        count = c.ffi.new("uint64_t *")
        words = c.lib.ftrma_mail_words(self._mail, count)
        self.words = Words(words, int(count[0]))
        self.limit_bytes = int(c.lib.ftrma_mail_limit(self._mail))
        self._from, self._kind = c.ffi.new("int *"), c.ffi.new("uint32_t *")
        self._data, self._bytes = c.ffi.new("const void **"), c.ffi.new("uint64_t *")
        self._bell = c.lib.ftrma_mail_bell

    def attach(self) -> None:
        """Add deaths that this process notices, and earlier ones, to this mail's list."""
        c.lib.ftrma_mail_attach(self._mail)

    def append(self, to: int, kind: int, data: Any) -> Sent:
        """Append a message to a ring, completely or not at all, without waiting for anybody.

        Raises:
            FtrmaError: the message has more than `limit_bytes`, or there is no such process.
        """
        view = c.ffi.from_buffer(data)
        sent = c.lib.ftrma_mail_append(self._mail, to, kind, view, len(view))
        if sent < 0:
            c.check(sent, f"a message of {len(view)} bytes to process {to}")
        return SENT[sent]

    def take(self) -> tuple[int, int, memoryview] | None:
        """Take the oldest message of the next source that has one, sources in turn; None if there
        is none.

        Returns:
            Source, kind, and the bytes, which are valid until `release`.
        """
        taken = c.lib.ftrma_mail_take(self._mail, self._from, self._kind, self._data, self._bytes)
        if not taken:
            return None
        data = memoryview(c.ffi.buffer(self._data[0], self._bytes[0]))
        return self._from[0], self._kind[0], data

    def release(self) -> None:
        """Free the memory of the message that was taken."""
        c.lib.ftrma_mail_release(self._mail)

    def holds(self, source: int) -> bool:
        """Say whether a message of a source is not taken yet."""
        return bool(c.lib.ftrma_mail_holds(self._mail, source))

    def ring(self, to: int) -> None:
        """End a process's wait without a message."""
        c.lib.ftrma_mail_ring(self._mail, to)

    @property
    def bell(self) -> int:
        """Return a word that changes at each message, ring, death and alarm."""
        return self._bell(self._mail)  # type: ignore[no-any-return]

    def wait(self, seen: int, timeout_s: float) -> None:
        """Wait until `bell` differs from `seen`, or the time is over."""
        c.lib.ftrma_mail_wait(self._mail, seen, max(0, int(timeout_s * 1e6)))

    @property
    def started(self) -> int:
        """Return how many processes were started later than the job."""
        return int(c.lib.ftrma_mail_started(self._mail))

    @started.setter
    def started(self, count: int) -> None:
        c.lib.ftrma_mail_start(self._mail, count)

    def join(self) -> None:
        """Note that this process takes its mail from now on."""
        c.lib.ftrma_mail_join(self._mail)

    def joined(self, process: int) -> bool:
        """Say whether a process has ever taken its mail."""
        return bool(c.lib.ftrma_mail_joined(self._mail, process))

    def note_death(self, process: int) -> None:
        """Add a death to the list, once."""
        c.lib.ftrma_mail_note_death(self._mail, process)

    @property
    def generation(self) -> int:
        """Return the number of deaths so far."""
        return int(c.lib.ftrma_mail_generation(self._mail))

    def deaths(self, since: int = 0) -> tuple[int, ...]:
        """Return the processes that have died, in the same order for all, without the first `since`
        ones."""
        last = self.generation
        return tuple(int(c.lib.ftrma_mail_death(self._mail, i)) for i in range(since, last))

    def alive(self, process: int) -> bool:
        """Say whether no death of a process is known."""
        return not c.lib.ftrma_mail_dead(self._mail, process)
