"""Channels between slots: rings in a window, one for each ordered pair.

For each other slot, a slot's part of the window has the ring into which that slot writes, and two
words. The word *tail* says how far that slot has written into the ring; the word *head* says how
far that slot has read from this slot's ring there. A word counts bytes from the beginning of the
run, and has one writer. A record is put and flushed before the tail behind it is put, so a slot
that sees the tail sees the record. All accesses are one-sided, on one node and over several nodes.

A record begins with its size and kind, and takes a whole number of words. It lies in one piece; if
the rest of a ring is too small for it, that rest is skipped.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np

from ... import framework
from .kinds import AnyArray, Bytes, Kind

MEMORY_BYTES = 1 << 26  # size of all rings of a slot; memory is taken only as they are used
LEAST_BYTES, MOST_BYTES = 1 << 15, 1 << 23  # sizes of a ring
HEADER = np.dtype([("bytes", "u4"), ("kind", "u4")])
SKIP = 0  # kind of the rest of a ring that is skipped
SPARE_BYTES = 1 << 12  # room in a ring that data leaves for records of other kinds
LOOK_S, LONG_LOOK_S = 5e-5, 1e-3  # times between two looks of an idle slot, at first and later
WORD = 8


def ring_bytes(slots: int) -> int:
    """Return the size of each ring."""
    return min(MOST_BYTES, max(LEAST_BYTES, MEMORY_BYTES // slots // 4096 * 4096))


def allocate(comm: Any, size: int) -> Any:
    """Return a window that has `size` bytes at this slot, neither saved nor restored.

    MPI: collective over all slots.
    """
    from ftrma import MPI

    info = MPI.Info.Create({"ftrma_protect": "false"})
    found = MPI.Win.Allocate(size, 1, info=info, comm=comm)
    info.Free()
    return found


class Rings:
    """The channels of one slot in one run; implements `kinds.Channels`.

    Args:
        comm: the communicator of the slots.
        size_bytes: size of a ring, a multiple of 8; None: by the number of slots.

    Attributes:
        sent_bytes, sent_records: numbers of bytes and records of data that were sent so far.

    MPI: collective over all slots.
    Fault: `check` raises `Rollback` when all slots go back. The window then stays until the end of
        the attempt.
    """

    def __init__(self, comm: Any, size_bytes: int | None = None) -> None:
        self.me, self.size = comm.rank, comm.size
        self._bytes = size_bytes or ring_bytes(comm.size)
        self.limit_bytes = self._bytes // 2 - SPARE_BYTES
        self.sent_bytes = self.sent_records = 0
        words = 2 * self.size * WORD
        self.window = allocate(comm, words + self.size * self._bytes if self.size > 1 else 0)
        memory: AnyArray = np.zeros(words, "u1")
        if self.size > 1:
            memory = np.frombuffer(self.window.tomemory(), "u1")
            memory[:words] = 0  # a survivor's window has the contents of the previous attempt
        self._tails = memory[:words // 2].view(np.uint64)  # tails of the rings here
        self._heads = memory[words // 2:words].view(np.uint64)  # heads of this slot's rings there
        self._rings = memory[words:].data
        self._read = [0] * self.size  # bytes that were read from each ring here
        self._told = [0] * self.size  # the same, as far as each sender has been told
        self._written = [0] * self.size  # bytes written into this slot's ring at each other slot
        self._shown = [0] * self.size  # the same, as far as the tail there has been put
        self._behind: list[deque[tuple[int, bytes]]] = [deque() for _ in range(self.size)]
        self._own: deque[tuple[int, bytes]] = deque()
        self._taken: tuple[int, int] | None = None  # source and size of the record not released
        self._next = self.me
        self._held: list[Any] = []  # buffers that MPI reads until they are flushed
        self.window.Lock_all()
        comm.Barrier()  # all words are zero

    def free(self) -> None:
        """End the use of the window: the run is over.

        MPI: collective over all slots.
        """
        self.window.Unlock_all()
        del self._tails, self._heads, self._rings
        self.window.Free()

    # -- sending ------------------------------------------------------------------------------

    def append(self, to: int, kind: int, data: Bytes) -> bool:
        """See `kinds.Channels.append`."""
        view: memoryview = np.frombuffer(data, "u1").data if len(data) else memoryview(b"")
        if kind == Kind.DATA:
            if len(view) > self.limit_bytes:
                raise ValueError(f"a record of {len(view)} bytes; {self.limit_bytes} at most")
            if self._behind[to] or not self._put(to, kind, view, SPARE_BYTES):
                return False
            self.sent_bytes += len(view)
            self.sent_records += 1
            return True
        if self._behind[to] or not self._put(to, kind, view, 0):
            self._behind[to].append((kind, bytes(view)))
        return True

    def _put(self, to: int, kind: int, view: memoryview, spare: int) -> bool:
        """Put a record into the ring at a slot; False: there is no room beside `spare` bytes."""
        if to == self.me:
            self._own.append((kind, bytes(view)))
            return True
        need = HEADER.itemsize + -(-len(view) // WORD) * WORD
        at = self._written[to] % self._bytes
        rest = self._bytes - at if need > self._bytes - at else 0
        self.window.Sync()
        free = self._bytes - (self._written[to] - int(self._heads[to]))
        if need + rest + spare > free:
            return False
        if rest:
            self._store(to, at, rest - HEADER.itemsize, SKIP, memoryview(b""))
            at = 0
        self._store(to, at, len(view), kind, view)
        self._written[to] += rest + need
        return True

    def _store(self, to: int, at: int, size: int, kind: int, view: memoryview) -> None:
        record = np.empty(HEADER.itemsize + len(view), "u1")
        record[:HEADER.itemsize].view(HEADER)[0] = (size, kind)
        record[HEADER.itemsize:] = np.frombuffer(view, "u1")
        place = 2 * self.size * WORD + self.me * self._bytes + at
        self.window.Put(record, to, place)
        self._held.append(record)

    def check(self) -> None:
        """See `kinds.Channels.check`; lets other slots see what was appended and taken before."""
        framework.committed()
        for to, behind in enumerate(self._behind):
            while behind and self._put(to, behind[0][0], memoryview(behind[0][1]), 0):
                behind.popleft()
        ahead = [to for to in range(self.size) if self._written[to] > self._shown[to]]
        for to in ahead:
            self.window.Flush(to)
        for to in ahead:
            self._tell(to, self.me, self._written[to])
            self._shown[to] = self._written[to]
        back = [source for source in range(self.size) if self._read[source] > self._told[source]]
        for source in back:
            self._tell(source, self.size + self.me, self._read[source])
            self._told[source] = self._read[source]
        for to in {*ahead, *back}:
            self.window.Flush(to)
        self._held.clear()

    def behind(self) -> bool:
        """Say whether records that were accepted wait for room."""
        return any(self._behind)

    def _tell(self, to: int, word: int, value: int) -> None:
        mine = np.array([value], np.uint64)
        self.window.Put(mine.view("u1"), to, word * WORD)
        self._held.append(mine)

    # -- receiving ----------------------------------------------------------------------------

    def take(self) -> tuple[int, int, memoryview] | None:
        """See `kinds.Channels.take`."""
        assert self._taken is None, "the record before is not released"
        self.window.Sync()
        for source in (*range(self._next, self.size), *range(self._next)):
            found = self._oldest(source)
            if found:
                self._next = (source + 1) % self.size
                return source, *found
        return None

    def _oldest(self, source: int) -> tuple[int, memoryview] | None:
        if source == self.me:
            if not self._own:
                return None
            self._taken = source, 0
            return self._own[0][0], memoryview(self._own[0][1])
        while int(self._tails[source]) > self._read[source]:
            at = source * self._bytes + self._read[source] % self._bytes
            size, kind = np.frombuffer(self._rings[at:at + HEADER.itemsize], HEADER)[0].tolist()
            at += HEADER.itemsize
            whole = HEADER.itemsize + -(-size // WORD) * WORD
            if kind != SKIP:
                self._taken = source, whole
                return kind, self._rings[at:at + size]
            self._read[source] += whole
        return None

    def release(self) -> None:
        """See `kinds.Channels.release`."""
        assert self._taken is not None, "no record is out"
        source, whole = self._taken
        self._taken = None
        if source == self.me:
            self._own.popleft()
        else:
            self._read[source] += whole

    def wait(self, seconds: float) -> None:
        """See `kinds.Channels.wait`."""
        until, look_s = time.monotonic() + seconds, LOOK_S
        self.check()
        while not self._own and time.monotonic() < until:
            self.window.Sync()
            if any(int(tail) > read for tail, read in zip(self._tails, self._read, strict=True)):
                return
            framework.committed()
            time.sleep(min(look_s, max(0.0, until - time.monotonic())))
            look_s = min(LONG_LOOK_S, look_s * 1.5)
