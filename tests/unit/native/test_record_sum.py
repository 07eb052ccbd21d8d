"""Bits of a log that change: no reader takes a record whose bytes are not those that were appended.

The records are appended by C as a slot of a job appends them (`resultlog`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI
from resultlog import CHUNK, HEAD, PUT, PUTS, RECORD, Slot, apart, records_in

from ftrma.native import loading

READER = """
struct ftrma_reader { const void *log; uint32_t chunk, at, head, passed; int damaged; };
int ftrma_log_view(int slot, void **log);
const void *ftrma_log_next_whole(struct ftrma_reader *reader);
"""
# Bytes that a record's sum leaves out: `order`, and clock and seq, which `order` is the sum of.
LATE = (*range(6, 8), *range(40, 56))
SIZES = (0, 1, 8, 20, 64, 65, 400)


class Reader:
    """Reads the records of puts in slot 0's log."""

    def __init__(self) -> None:
        self.inner = FFI()
        self.inner.cdef(READER)
        self.lib: Any = self.inner.dlopen(str(loading.EXTENSION))
        log = self.inner.new("void **")
        assert self.lib.ftrma_log_view(0, log) == 0
        self.log = log[0]

    def read(self) -> tuple[int, bool]:
        """Number of whole records, and whether a damaged one follows."""
        head = HEAD.unpack_from(self.inner.buffer(self.log, HEAD.size))[6 + PUTS]
        reader = self.inner.new("struct ftrma_reader *", {"log": self.log, "head": head})
        count = 0
        while self.lib.ftrma_log_next_whole(reader) != self.inner.NULL:
            count += 1
        return count, bool(reader.damaged)


def filled(directory: Path) -> tuple[Slot, int]:
    """A slot that has logged a put of each of SIZES bytes; where its first record lies."""
    slot = Slot(directory, 1 << 18)
    for size in SIZES:
        slot.begin(1)
        slot.other(PUT, os.urandom(size), PUTS)
        slot.lib.ftrma_event_finish()
        slot.events.append((1, []))
    _, file_bytes, chunk_bytes, chunks, _, _, *heads = HEAD.unpack_from(slot.file[:])
    assert CHUNK.unpack_from(slot.file[:], HEAD.size + (heads[PUTS] - 1) * CHUNK.size)[0] == 0
    return slot, file_bytes - (chunks - heads[PUTS] + 1) * chunk_bytes


def bits_of(record: bytes) -> Iterator[int]:
    """Each bit that the sum covers: all but LATE, and the padding behind the payload."""
    payload = RECORD.unpack_from(record)[4]
    for byte in (*range(RECORD.size), *range(RECORD.size, RECORD.size + payload)):
        if byte not in LATE:
            yield from range(8 * byte, 8 * byte + 8)


def test_each_bit_is_noticed(tmp_path: Path) -> None:
    """Law: whichever bit changes, the records before are read, and no other one is."""

    def work() -> None:
        slot, at = filled(tmp_path)
        reader = Reader()
        assert reader.read() == (len(SIZES), False)
        for before, record in enumerate(records_in(slot.file[:], PUTS)):
            for bit in bits_of(record):
                place = at + bit // 8
                slot.file[place] ^= 1 << bit % 8
                assert reader.read() == (before, True), (before, bit)
                slot.file[place] ^= 1 << bit % 8
            at += len(record)
        assert reader.read() == (len(SIZES), False)

    apart(work)


@pytest.mark.parametrize("size", [8, 4096, 16384, 32767, 32768, 50_000, 100_001])
def test_a_long_payload(size: int, tmp_path: Path) -> None:
    """Law: so it is with payloads that are copied in slices, and in several records."""

    def work() -> None:
        slot = Slot(tmp_path, 1 << 23)
        slot.begin(1)
        payload = os.urandom(size)
        slot.other(PUT, payload, PUTS)
        reader = Reader()
        found = records_in(slot.file[:], PUTS)
        logged = b"".join(r[RECORD.size :][: RECORD.unpack_from(r)[4]] for r in found)
        assert logged == payload and reader.read() == (len(found), False)
        last = slot.file.rfind(payload[-8:])
        slot.file[last + 7] ^= 16
        assert reader.read() == (len(found) - 1, True)

    apart(work)
