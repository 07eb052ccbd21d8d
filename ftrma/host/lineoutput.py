"""Writes whole lines of several processes to one terminal, pipe or file.

All ranks share the user's stdout and stderr. Python writes a line in several parts (under
PYTHONUNBUFFERED at once, else in blocks that end anywhere), and the kernel keeps the output of two
processes apart only in files, on terminals, and up to PIPE_BUF bytes in pipes. So `LineOutput`,
which lies under sys.stdout and sys.stderr of ranks, gathers lines and writes them out by `put`,
which locks pipes and other outputs that are neither file nor terminal. The lock is the kernel's, on
the pipe itself: it ends with its holder and is shared by all processes that have the pipe.

A line without its newline goes out by ``flush``, as before an input, or with a carriage return, as
in a progress display. A process that is killed has written all lines that it had ended; the line
that it was writing is whole, too, unless it was longer than PIPE_BUF and the pipe was full.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import stat
import sys
import threading
from typing import Any

HELD_BYTES = 1 << 20  # most bytes kept of a line that does not end, as in binary output

_lock = threading.RLock()  # the kernel's lock belongs to the process, not to a thread


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)  # the child does not have the thread that held it


def put(fd: int, data: bytes) -> None:
    """Write all of these bytes, with no output of other processes in between.

    Raises:
        OSError: nobody reads any more, or there is no room.
    """
    with _lock:
        mode, locked = os.fstat(fd).st_mode, False
        if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):
            with contextlib.suppress(OSError):  # without the lock, long lines can mix
                fcntl.lockf(fd, fcntl.LOCK_EX)
                locked = True
        try:
            while data:
                data = data[_write(fd, data) :]
        finally:
            if locked:
                fcntl.lockf(fd, fcntl.LOCK_UN)


def _write(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:  # another process has made the shared file non-blocking
        room = select.poll()
        room.register(fd, select.POLLOUT)
        room.poll()
        return 0


def end_of_lines(data: bytes | bytearray) -> int:
    """Count the bytes that can be written: up to the last newline, or all if a carriage return
    follows it."""
    end = data.rfind(b"\n") + 1
    return len(data) if data.find(b"\r", end) >= 0 else end


class LineOutput(io.BufferedIOBase):
    """A stream that writes whole lines to a descriptor; each thread has its own lines."""

    def __init__(self, fd: int, name: str) -> None:
        self.name, self.mode = name, "wb"
        self.raw: Any = io.FileIO(fd, "wb", closefd=False)
        self.held: dict[int, bytearray] = {}  # by thread

    def write(self, data: Any, /) -> int:
        if self.closed:
            raise ValueError("write to closed file")
        new = data if isinstance(data, bytes) else memoryview(data).tobytes()
        with _lock:
            me = threading.get_ident()
            held = self.held.setdefault(me, bytearray())
            held += new
            if len(held) > HELD_BYTES:
                self._put(me, len(held))
            elif end_of_lines(new):
                self._put(me, end_of_lines(held))
        return len(new)

    def flush(self) -> None:
        """Write the unfinished lines of this thread, and of threads that have ended."""
        super().flush()  # it raises if this is closed
        with _lock:
            if self.held:
                living = {thread.ident for thread in threading.enumerate()}
                others = living - {threading.get_ident()}
                for thread in self.held.keys() - others:
                    self._put(thread, len(self.held[thread]))

    def _put(self, thread: int, count: int) -> None:
        held = self.held[thread]
        out = bytes(held[:count])
        del held[:count]
        if not held:
            del self.held[thread]
        if out:
            put(self.fileno(), out)

    def fileno(self) -> int:
        return int(self.raw.fileno())

    def isatty(self) -> bool:
        return bool(self.raw.isatty())

    def writable(self) -> bool:
        return True


def install() -> None:
    """Make this process's sys.stdout and sys.stderr write whole lines."""
    for fd, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        if isinstance(before, io.TextIOWrapper):
            before.flush()
            stream = io.TextIOWrapper(
                LineOutput(fd, f"<{name}>"), before.encoding, before.errors, newline="\n",
                write_through=True,
            )
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
