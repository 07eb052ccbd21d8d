"""Put logs that are brought from another node: the same records come, in the same order.

The logs are made by C as a slot of a job makes them (`resultlog`), and what has come is read by C
as a replay reads it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI
from filenodes import Nodes, several
from resultlog import HEAD, PUT, PUTS, RECORD, Slot, apart, record_bytes, records_in

from ftrma.fabric import remote_logs
from ftrma.fabric.remote import File, Files
from ftrma.fabric.round_changed import RoundChanged
from ftrma.host.errors import FtrmaError
from ftrma.native import loading, logs
from ftrma.native.shared import Slot as SlotNumber

BUDGET, CHUNK_BYTES = 1 << 18, 4096
SLOT = SlotNumber(0)
HERE, THERE = 0, 1
READER = """
struct ftrma_reader { const void *log; uint32_t chunk, at, head, passed; int damaged; };
int ftrma_log_view(int slot, void **log);
const void *ftrma_log_next(struct ftrma_reader *reader);
"""
Fill = Callable[[Slot], None]


@pytest.fixture(scope="module")
def pair() -> Iterator[Nodes]:
    loading.load()  # whose structs say what a log is
    with several(2) as made:
        yield made


@pytest.fixture
def files(pair: Nodes) -> Iterator[Files]:
    """The way of a process of node 0; another one has slot 0 on node 1."""
    yield pair.files(0, [HERE, THERE])
    pair.files(1, [HERE, THERE]).withdraw(File.LOG, SLOT)
    pair.close_files()
    for node in (HERE, THERE):
        for left in ("control", "log-0"):
            (pair[node].directory / left).unlink(missing_ok=True)


def written(pair: Nodes, fill: Fill) -> bytes:
    """Slot 0 logs something on its node; the file."""
    directory = pair[THERE].directory
    for left in ("control", "log-0"):
        (directory / left).unlink(missing_ok=True)
    apart(lambda: fill(Slot(directory, BUDGET)))
    path = remote_logs.path_of(directory, SLOT)
    pair.files(1, [HERE, THERE]).share(File.LOG, SLOT, path)
    return path.read_bytes()


def fetched(pair: Nodes, files: Files) -> bytes:
    remote_logs.fetch(files, THERE, SLOT, pair[HERE].directory)
    path = remote_logs.path_of(pair[HERE].directory, SLOT)
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_bytes()


def read_by_c(directory: Path, wanted: list[bytes]) -> None:
    """C finds these records where they were brought to."""
    native, inner = loading.load(), FFI()
    inner.cdef(READER)
    lib: Any = inner.dlopen(str(loading.EXTENSION))
    pointer = native.ffi.new("struct ftrma_ctl **")
    control = str(directory / "control").encode()
    assert native.lib.ftrma_ctl_create(control, 3, 2, 1, 1, 2, 16, pointer) == 0
    assert native.lib.ftrma_join(pointer[0], 1, str(directory).encode()) == 0
    log = inner.new("void **")
    assert lib.ftrma_log_view(SLOT, log) == 0
    head = HEAD.unpack_from(inner.buffer(log[0], HEAD.size))[6 + PUTS]
    reader = inner.new("struct ftrma_reader *", {"log": log[0], "head": head})
    found = []
    while (record := lib.ftrma_log_next(reader)) != inner.NULL:
        bytes_ = record_bytes(inner.buffer(record, RECORD.size))
        found.append(bytes(inner.buffer(record, bytes_)))
    assert found == wanted


def put(slot: Slot, payload: bytes) -> None:
    slot.begin(1)
    slot.other(PUT, payload, PUTS)
    slot.lib.ftrma_event_finish()
    slot.events.append((1, []))


def nothing(slot: Slot) -> None:
    """The log of a slot that has just been made."""


def results_alone(slot: Slot) -> None:
    for i in range(500):
        slot.event(i, os.urandom(40))


def one_put(slot: Slot) -> None:
    put(slot, b"one")


def full_chunk(slot: Slot) -> None:
    """Up to a chunk's last byte."""
    put(slot, bytes(range(256)) * 15)
    put(slot, b"x" * (CHUNK_BYTES - 2 * RECORD.size - 256 * 15))


def a_byte_more(slot: Slot) -> None:
    full_chunk(slot)
    put(slot, b"y")


def puts_amid_results(slot: Slot) -> None:
    """Chunks of both logs by turns, and puts of more than one."""
    picked = random.Random(20141117)
    for i in range(200):
        put(slot, picked.randbytes(picked.choice([1, 8, 100, 3000 if i % 40 == 0 else 64])))
        slot.event(i, picked.randbytes(picked.choice([8, 200])))
    put(slot, picked.randbytes(5 * CHUNK_BYTES))


def trimmed(slot: Slot) -> None:
    """The first chunks are given back, and taken again."""
    for _ in range(3):
        for i in range(60):
            put(slot, os.urandom(300))
            slot.event(i, os.urandom(100))
        slot.mark()
        slot.trim()
    put(slot, b"behind the mark")


@pytest.mark.plain
@pytest.mark.parametrize("fill,least,chunks", [
    (nothing, 0, 0), (results_alone, 0, 0), (one_put, 1, 1), (full_chunk, 2, 1),
    (a_byte_more, 3, 2), (puts_amid_results, 201, 8), (trimmed, 2, 1),
])
def test_all_records_of_puts_come(
    pair: Nodes, files: Files, fill: Fill, least: int, chunks: int
) -> None:
    """Law: what is brought has the records of puts that the slot's file has, so many chunks and
    records at least, byte for byte and in the same order, and nothing of the other log."""
    there = written(pair, fill)
    records = records_in(there, PUTS)
    assert len(records) >= least
    here = fetched(pair, files)
    assert len(here) == len(there) and records_in(here, PUTS) == records
    apart(lambda: read_by_c(pair[HERE].directory, records))

    list_bytes = logs.log_sizes(there[: HEAD.size])[0]
    spans = [(0, HEAD.size + list_bytes), *logs.put_log_spans(there)]
    assert len(spans) - 1 >= chunks
    rest = bytearray(here)
    for at, size in spans:
        rest[at : at + size] = bytes(size)
    assert not any(rest)


def test_a_trimmed_log_begins_later(pair: Nodes, files: Files) -> None:
    """Law: records whose chunks were given back do not come."""
    written(pair, trimmed)
    events = [RECORD.unpack_from(record)[8] for record in records_in(fetched(pair, files), PUTS)]
    assert events == sorted(events) and 120 < events[0] < events[-1] == 364


def test_a_log_brought_again_is_as_it_is_now(pair: Nodes, files: Files) -> None:
    """Law: what was brought before is gone, also where it was longer."""
    written(pair, puts_amid_results)
    before = fetched(pair, files)
    remote_logs.path_of(pair[HERE].directory, SLOT).write_bytes(b"\xff" * (len(before) + 4096))
    written(pair, one_put)
    again = fetched(pair, files)
    assert len(again) == len(before)
    (record,) = records_in(again, PUTS)
    assert record[RECORD.size :].rstrip(b"\0") == b"one"
    assert again.count(b"\xff" * 64) == 0


def test_a_log_that_does_not_come(pair: Nodes, files: Files) -> None:
    """Law: a call to another round ends it, and so does a file that nobody has."""
    written(pair, one_put)
    files.ring()
    with pytest.raises(RoundChanged):
        fetched(pair, files)
    files.clear_alarm()
    assert len(records_in(fetched(pair, files), PUTS)) == 1
    files.patience_s = 0.2
    with pytest.raises(FtrmaError, match="no answer"):
        remote_logs.fetch(files, THERE, SlotNumber(3), pair[HERE].directory)
    assert not remote_logs.path_of(pair[HERE].directory, SlotNumber(3)).exists()
