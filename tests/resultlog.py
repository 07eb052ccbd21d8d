"""One slot's result log without a job: events are made live, the slot dies, and it is replayed.

The C functions are those that a job uses, on a control file and a log file of their own. `Slot`
remembers what each event learned, and compares with it what a replay is told. What it does to the
extension cannot be undone, so it belongs into a process of its own (`apart`).
"""

from __future__ import annotations

import mmap
import os
import struct
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cffi import FFI

from ftrma.native import loading

CALL, SAFEPOINT = 18, 21  # enum ftrma_what: any call that learns something, and a safepoint
PUTS, RESULTS = 0, 1
PUT, RESULT, REPEAT = 1, 3, 5  # enum ftrma_record_kind
RECORD = struct.Struct("<IBBHIiQQQQQIIII")
HEAD, CHUNK = struct.Struct("<QQIIIIII"), struct.Struct("<II")  # struct ftrma_log, ftrma_chunk
INNER = """
void ftrma_result_log(const void *bytes, size_t n);
int ftrma_result_read(void *bytes, size_t n);
void ftrma_log_append(int log, const void *record, const void *payload, size_t bytes, char *also,
                      int both);
void ftrma_log_trim_committed(void);
"""
Told = tuple[int, list[bytes]]  # what an event is: its call, and what it learned


def apart(work: Callable[[], object]) -> None:
    """Do `work` in a process of its own, and raise here what it raises."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0, "see above"


class Slot:
    """Slot 0 of a job of its own.

    Attributes:
        events: that are complete.
        marks: of each version since the start, the events before it.
    """

    def __init__(self, directory: Path, budget: int) -> None:
        native = loading.load()
        self.lib, self.ffi, self.inner = native.lib, native.ffi, FFI()
        self.inner.cdef(INNER)
        self.log: Any = self.inner.dlopen(str(loading.EXTENSION))
        pointer = self.ffi.new("struct ftrma_ctl **")
        path = str(directory / "control").encode()
        assert self.lib.ftrma_ctl_create(path, 2, 1, 1, 1, 1, 16, pointer) == 0
        self.ctl = pointer[0]
        assert self.lib.ftrma_join(self.ctl, 0, str(directory).encode()) == 0
        assert self.lib.ftrma_log_open(0, 1, budget) == 0
        with (directory / "log-0").open("r+b") as f:
            self.file = mmap.mmap(f.fileno(), 0)
        self.lib.ftrma_set_interrupt(self.ffi.NULL)
        self.lib.ftrma_log_configure(self.lib.FTRMA_LOG_ALL)
        self.lib.ftrma_log_start(0)
        self.events: list[Told] = []
        self.marks = {0: 0}
        self.images = {0: b""}

    # -- live -----------------------------------------------------------------------------------

    def begin(self, call: int, what: int = CALL) -> None:
        assert self.lib.ftrma_event_begin(what, call) == 0
        assert not self.refusal(), self.refusal()

    def learn(self, value: bytes) -> None:
        self.log.ftrma_result_log(value, len(value))

    def event(self, call: int, *values: bytes) -> None:
        self.begin(call)
        for value in values:
            self.learn(value)
        self.lib.ftrma_event_finish()
        self.events.append((call, list(values)))

    def other(self, kind: int, payload: bytes, log: int = RESULTS) -> None:
        """A record of an atomic, or of a put, in the event under way."""
        record = RECORD.pack(0, kind, 0, 0, 0, 0, 0, 0, len(self.events) + 1, 0, 0, 0, 0, 0, 0)
        self.log.ftrma_log_append(log, record, payload, len(payload), self.inner.NULL, 0)

    def trim(self) -> None:
        """Free what nobody needs any more, as far as whole chunks go."""
        self.log.ftrma_log_trim_committed()

    def mark(self, *, commit: bool = True) -> None:
        """A checkpoint inside a safepoint; one that is not committed, or is later."""
        version = self.version + 1
        self.begin(0, SAFEPOINT)
        self.lib.ftrma_log_mark(version, 0)
        image = self.ffi.new("uint8_t[]", 1000)
        size = self.lib.ftrma_counters_save(image, 1000)
        self.images[version] = bytes(image)[:size]
        self.lib.ftrma_event_finish()
        self.events.append((-1, []))
        self.marks[version] = len(self.events)
        if commit:
            self.commit()

    def commit(self) -> None:
        if self.version + 1 in self.marks:
            self.ctl.commit = (self.version + 1) << 1

    @property
    def version(self) -> int:
        return int(self.ctl.commit >> 1)

    def refusal(self) -> str:
        """Why the slot cannot be replayed, if so."""
        return str(self.ffi.string(self.ctl.refusal).decode())

    # -- in a replay ----------------------------------------------------------------------------

    def prepare(self) -> int:
        """A replacement begins; returns the horizon."""
        image, null = self.images[self.version], self.ffi.NULL
        prepare = self.lib.ftrma_replay_prepare
        assert prepare(0, self.version, image, len(image), 0, null, 0) == 0
        assert self.lib.ftrma_replay_anchor() == 0
        del self.events[self.ctl.slots[0].events :]
        self.marks = {v: n for v, n in self.marks.items() if n <= len(self.events)}
        return len(self.events)

    def replay(self, until: int) -> None:
        """Repeat the events since the checkpoint, and compare what they are told."""
        for number in range(self.marks[self.version], until):
            self.replay_one(*self.events[number])

    def replay_one(self, call: int, values: list[bytes]) -> None:
        what = SAFEPOINT if call < 0 else CALL
        assert self.lib.ftrma_event_begin(what, max(call, 0)) == 1
        for value in values:
            room = self.inner.new("char[]", len(value))
            assert self.log.ftrma_result_read(room, len(value)) == 0
            assert self.inner.buffer(room)[:] == value and not self.refusal()
        self.lib.ftrma_event_finish()

    def recover(self) -> None:
        """A replacement replays all up to the horizon; the event that comes next is live."""
        self.replay(self.prepare())

    # -- what a death leaves --------------------------------------------------------------------

    def words(self) -> Any:
        return self.ffi.buffer(self.ffi.addressof(self.ctl.slots[0]))

    def shared(self) -> bytes:
        return self.words()[:] + self.file[:]

    def share(self, state: bytes) -> None:
        words = self.words()
        words[:] = state[: len(words)]
        self.file[:] = state[len(words) :]

    # -- the log itself -------------------------------------------------------------------------

    def records(self) -> list[tuple[int, int]]:
        """Kind and size of each record of results that is in the log now."""
        found = [(RECORD.unpack_from(record)[1], len(record))
                 for record in records_in(self.file[:], RESULTS)]
        return [(kind, size) for kind, size in found if kind in (RESULT, REPEAT)]


def record_bytes(content: Any, at: int = 0) -> int:
    """Bytes of the record at a place, with its payload."""
    _, kind, _, _, payload, *_ = RECORD.unpack_from(content, at)
    assert kind, f"no record at {at}"
    return RECORD.size + (payload + 7) // 8 * 8


def records_in(content: bytes, log: int) -> list[bytes]:
    """The records of a log's file, in their order."""
    _, file_bytes, chunk_bytes, chunks, _, _, *heads = HEAD.unpack_from(content)
    head, found = heads[log], []
    while head:
        next_, fill = CHUNK.unpack_from(content, HEAD.size + (head - 1) * CHUNK.size)
        at = first = file_bytes - (chunks - head + 1) * chunk_bytes
        while at < first + fill:
            size = record_bytes(content, at)
            found.append(content[at : at + size])
            at += size
        head = next_
    return found
