"""Serves the user's stdin to each attempt of the program, from its beginning.

A program that is run again from its top (in its own process after a rollback, by a spare, or in
another launch) reads its input again, so the input must be kept.

* A regular file is opened anew for each attempt. At the end the offset of the user's descriptor is
  set to the place where the last attempt has stopped, as if the program had read from that
  descriptor.
* Other input (a pipe, a socket, a terminal) is read by a thread, which keeps it. Each attempt has a
  pipe that holds one piece. The thread puts the next piece there only when the last one was taken,
  after reading it from the user if necessary. So nothing is read far ahead of the program, and an
  attempt gets the same pieces as the attempts before, even if it takes them by ``os.read``.

The first KEPT_BYTES of such input are kept. If a later attempt needs more of it, the attempt cannot
be served; then `StandardInput.lacking` says so in words, and the job ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import stat
import struct
import threading
from array import array

KEPT_BYTES = 64 << 20
PIECE_BYTES = select.PIPE_BUF  # a pipe accepts so many bytes as a whole, or none
BACKGROUND_S = 0.2  # time between looks at a terminal of another process group
OVER = b"\xff" * 4  # an order that is no descriptor


class StandardInput:
    """The supervisor's own stdin, for all launches of one job.

    Attributes:
        lacking: why the newest attempt cannot be served any more; empty while it can be.
    """

    def __init__(self) -> None:
        status = os.fstat(0)
        self.lacking = ""
        self.file = stat.S_ISREG(status.st_mode) or os.path.samestat(status, os.stat(os.devnull))
        self.offset = os.lseek(0, 0, os.SEEK_CUR) if self.file else 0
        self.newest = -1  # for a file: a descriptor of the newest attempt's open file
        self.orders: int | None = None  # a pipe to the thread: descriptors to serve

    def serve(self) -> int:
        """Begin an attempt; return its descriptor, which the caller passes on and closes."""
        if self.file:
            try:
                fd = os.open("/proc/self/fd/0", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # a process with other rights had opened it
                self.file = False
            else:
                os.lseek(fd, self.offset, os.SEEK_SET)
                self._forget_newest()
                self.newest = os.dup(fd)
                return fd
        if self.orders is None:
            inbox, self.orders = os.pipe()
            threading.Thread(target=_Thread(self, inbox).run, name="stdin", daemon=True).start()
        fd, pipe = os.pipe()
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIECE_BYTES)
        os.write(self.orders, pipe.to_bytes(4, "little"))
        return fd

    def serve_far(self, connection: socket.socket) -> None:
        """Begin an attempt on another host; its input goes over this connection, which is closed at
        the end."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE_BYTES)
        connection.settimeout(None)
        pump = threading.Thread(target=_copy, args=(self.serve(), connection), daemon=True)
        pump.start()

    def close(self) -> None:
        """Stop serving. The thread may still be reading; this does not wait for it."""
        if self.newest >= 0:
            os.lseek(0, os.lseek(self.newest, 0, os.SEEK_CUR), os.SEEK_SET)
            self._forget_newest()
        if self.orders is not None:
            os.write(self.orders, OVER)
            os.close(self.orders)
            self.orders = None

    def _forget_newest(self) -> None:
        if self.newest >= 0:
            os.close(self.newest)
            self.newest = -1


def _copy(fd: int, connection: socket.socket) -> None:
    """Send all input until the input or the connection ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    with open(fd, "rb", buffering=0) as source, connection:
        while True:
            try:
                data = source.read(PIECE_BYTES)
            except OSError:  # the program also gets an error, and not an end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            if not data:
                return
            try:
                connection.sendall(data)
            except OSError:
                return


class _Thread:
    """Reads input that is no file, and serves the newest attempt.

    Args:
        stdin: the object to which it belongs. inbox: the pipe for orders.
    """

    def __init__(self, stdin: StandardInput, inbox: int) -> None:
        self.stdin, self.inbox = stdin, inbox
        self.kept = bytearray()
        self.sizes = array("H")  # of the pieces that are kept
        self.read_bytes = 0  # bytes read in all, kept or not
        self.ended = False
        self._begin(-1)

    def _begin(self, pipe: int) -> None:
        self.pipe = pipe  # of the attempt; -1: there is none, or nothing to do for it
        self.room = False  # in the pipe
        self.pieces = self.bytes = 0  # counts of the attempt's input so far

    def run(self) -> None:
        # Only the main thread takes signals. With signals blocked, reading a terminal of another
        # process group fails, instead of stopping the supervisor.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            ready = self._wait()
            if self.inbox in ready:
                self._drop()
                order = os.read(self.inbox, len(OVER))
                if order == OVER:
                    os.close(self.inbox)
                    return
                self._begin(int.from_bytes(order, "little"))
            elif ready.get(self.pipe, 0) & select.POLLERR:
                self._drop()  # nobody reads the pipe any more
            elif not self.room:
                self.room = self.pipe in ready
            elif piece := self._piece(0 in ready):
                self._give(piece)

    def _wait(self) -> dict[int, int]:
        """Wait until there is something to do; return the ready descriptors with their events."""
        poll = select.poll()
        patience_ms: float | None = None
        poll.register(self.inbox, select.POLLIN)
        if self.pipe >= 0:
            poll.register(self.pipe, 0 if self.room else select.POLLOUT)
        if self.pipe >= 0 and self.room:
            if self.ended or self.bytes < self.read_bytes:
                patience_ms = 0
            elif _is_ours():
                poll.register(0, select.POLLIN)
            else:
                patience_ms = BACKGROUND_S * 1e3
        return dict(poll.poll(patience_ms))

    def _piece(self, readable: bool) -> bytes:
        """Return the attempt's next piece; empty if there is none now, or never will be one."""
        if self.bytes < len(self.kept):
            return bytes(self.kept[self.bytes : self.bytes + self.sizes[self.pieces]])
        if self.bytes < self.read_bytes:
            self.stdin.lacking = (
                f"the program has to read its stdin again; {self.read_bytes} bytes were read, and "
                f"of a pipe or terminal only the first {KEPT_BYTES >> 20} MiB are kept: give it as "
                "a file (< FILE), which is read again however long it is"
            )
            self.pipe = -1  # it stays open: the program must not take this for the end
        elif self.ended:
            self._drop()
        elif readable:
            return self._read()
        return b""

    def _read(self) -> bytes:
        try:
            piece = os.read(0, PIECE_BYTES)
        except BlockingIOError:
            return b""
        except OSError:  # the terminal is gone, or we are in the background by now
            self.ended = _is_ours()
            return b""
        self.ended = not piece
        if len(self.kept) == self.read_bytes and self.read_bytes + len(piece) <= KEPT_BYTES:
            self.kept += piece
            self.sizes.append(len(piece))
        self.read_bytes += len(piece)
        return piece

    def _give(self, piece: bytes) -> None:
        self.room = False
        self.pieces += 1
        self.bytes += len(piece)
        with contextlib.suppress(BrokenPipeError):  # the next poll shows it
            os.write(self.pipe, piece)

    def _drop(self) -> None:
        """Stop serving this attempt: it finds the end of the input after its last piece."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1


def _is_ours() -> bool:
    """Return True unless stdin is a terminal and this process is in its background."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True  # it is no terminal, or not this session's
