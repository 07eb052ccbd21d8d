"""Mail of a framework over several nodes (`native.mail`): one file on each, written by agents.

A ring lies on the node of its reader, and the authoritative words lie on the node of slot 0's
process, the *root*. A process accesses its own node's file in memory, and the other files by an
origin of its own. A store on another node returns when the agent has carried it out. A message is
appended by two requests: the bytes, and then the count that publishes them.

The root alone tells deaths (`death_order`).

Laws: all processes see the stores of one process in their order, of words and messages alike, as
they do on one node. No call waits for a node that is lost.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..host.errors import FtrmaError, Rollback
from ..native import wire
from ..native.mail import Mail, Sent, Spots, Words
from ..native.wire import Buffer, FileHow, Ledger, Origin, Unfinished, WireResult
from .remote import File, name_of

if TYPE_CHECKING:
    import numpy.typing as npt

RECORD = struct.Struct("<II")  # bytes and kind of a message, in front of it in a ring
SKIP = b"\xff\xff\xff\xff"  # in place of a record: the next one is at the ring's beginning
ROLLBACK_MOST_S = 10.0  # how long an alarm may take to be known that another node has raised
FIRST_TRY_MS, MOST_MS = 20, 1000  # between two looks for deaths; a dead agent is replaced sooner
WORD = struct.Struct("<Q")
OWN_FILES, HASH = 0x90000000, 0x0fffffff  # windows of a framework's own files
PIECE_BYTES = 1 << 20


class Post:
    """A process's way to the mail files of other nodes.

    Args:
        origin: an origin that nothing else uses.
        nodes: the node of each process.
        node: this process's node.
        first: the target that stands for node 0.
        attempt: the attempt to which the files belong.
        spots: offsets of the parts of a file.
        check: raises Rollback if all slots go back.
        is_lost: says whether no process of a node is alive.
    """

    def __init__(self, origin: Origin, nodes: Sequence[int], node: int, first: int, attempt: int,
                 spots: Spots, check: Callable[[], object], is_lost: Callable[[int], bool]) -> None:
        self.origin, self.nodes, self.node, self.spots = origin, nodes, node, spots
        self.check, self.is_lost = check, is_lost
        self._first, self._attempt = first, attempt
        self._lock = threading.Lock()  # the root's thread that tells deaths uses the origin, too
        self._closed = False
        for each in {*nodes}:
            self._locate(each)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Use the origin exclusively; a thread of an attempt that is over cannot use it any
        more."""
        with self._lock:
            if self._closed:
                raise Rollback("a process failed")
            yield

    def _locate(self, node: int) -> None:
        """Set where a node's file is; rejected requests are then sent again."""
        self.origin.locate(self._first + node, node, self._attempt)

    def _persist(self, node: int, call: Callable[[], object], *, through_alarm: bool = False,
                 gone: Callable[[], bool] = lambda: False) -> bool:
        """Repeat a call until it succeeds; return False if the node is lost.

        Args:
            gone: says whether the call can never succeed because the file is gone; then
                FileNotFoundError is raised.
        """
        try_ms = FIRST_TRY_MS
        check = (lambda: None) if through_alarm else self.check
        while True:
            self.origin.set_timeout(try_ms)
            try:
                call()
                return True
            except Unfinished as error:
                if error.result is WireResult.ALARM:
                    self.origin.clear_alarm()
                elif error.result is not WireResult.TIMEOUT:
                    check()
                    self.origin.retry()
                    raise FtrmaError(f"mail to another node: {error}") from None
            check()
            if self.is_lost(node):
                return False
            self._locate(node)  # its file may not have existed before
            if gone():
                raise FileNotFoundError
            try_ms = min(2 * try_ms, MOST_MS)

    def get(self, of: int, offset: int, size_bytes: int) -> bytes:
        """Read bytes of the file on a process's node.

        Raises:
            Rollback: all slots go back. FtrmaError: the node is lost, or refuses this process.
        """
        return self.getv(of, [(offset, size_bytes)])

    def getv(self, of: int, runs: Sequence[tuple[int, int]]) -> bytes:
        """Read stretches of the file on a process's node, and join them."""
        found, node = bytearray(), self.nodes[of]
        target, window = self._first + node, name_of(File.MAIL, of)
        with self._turn():
            for offset, size in runs:
                room = bytearray(size)
                if not self._persist(node, lambda: self.origin.get_into(
                        target, window, offset, room)):  # noqa: B023
                    self._await_rollback(of)
                found += room
        return bytes(found)

    def _await_rollback(self, of: int) -> NoReturn:
        """Wait for the alarm that the loss of the root's node raises."""
        deadline = time.monotonic() + ROLLBACK_MOST_S
        while time.monotonic() < deadline:
            self.check()
            time.sleep(0.001)
        raise FtrmaError(f"mail: the node of process {of} is lost")

    def store(self, of: int, puts: Sequence[tuple[int, Buffer]],
              sets: Sequence[tuple[int, int]] = (), *, wait: bool = True) -> bool:
        """Write into the file on a process's node, and then raise words there.

        Args:
            puts: offsets, and the bytes to write there.
            sets: offsets of words, and their new values; each rings the process's bell.
            wait: wait until the agent has done it; without this, `push` has to follow.

        Returns:
            False: the node is lost.
        """
        node = self.nodes[of]
        target, window = self._first + node, name_of(File.MAIL, of)
        with self._turn():
            for offset, data in puts:
                if not self._persist(node, lambda: self.origin.put(
                        target, window, offset, data)):  # noqa: B023
                    return False
            for offset, value in sets:
                if not self._persist(node, lambda: self.origin.set_word(
                        target, window, offset, value)):  # noqa: B023
                    return False
            return not wait or self._persist(node, lambda: self.origin.flush(target))

    def push(self, node: int) -> bool:
        """Try to complete all stores to a node; say whether they are complete."""
        target = self._first + node
        with self._turn():
            if self.origin.pending(target):
                self._locate(node)
                self.origin.set_timeout(FIRST_TRY_MS)
                try:
                    self.origin.flush(target)
                except Unfinished:
                    return False
        return True

    def close(self) -> None:
        """Close the origin, after calls that wait in other threads have ended."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self.origin.close()

    # -- files of a framework's own ---------------------------------------------------------------

    def ask_for_file(self, of: int, name: str, how: FileHow, size_bytes: int = 0) -> int | None:
        """Look at, make or remove a file on a process's node; see `wire.Origin.file`.

        Returns:
            The file's length in bytes, or a negative errno value; None if the node is lost.
        """
        node, told = self.nodes[of], [0]

        def ask() -> None:
            told[0] = self.origin.file(self._first + node, window_of(name), how, name, size_bytes)

        with self._turn():
            return told[0] if self._persist(node, ask) else None

    def read_file(self, of: int, name: str, offset: int, room: Buffer) -> bool:
        """Fill a buffer with bytes of a file that was looked at; return False if the node is lost.

        Raises:
            FileNotFoundError: it is there no more, or has become shorter.
        """
        node, end = self.nodes[of], offset + memoryview(room).nbytes
        with self._turn():
            return self._persist(node, lambda: self.origin.get_into(
                self._first + node, window_of(name), offset, room),
                gone=lambda: self._is_shorter(node, name, end))

    def write_file(self, of: int, name: str, offset: int, data: Buffer) -> bool:
        """Write into a file that was made, and wait until this is done, whatever fails meanwhile.

        Returns:
            False: the node is lost.

        Raises:
            FileNotFoundError: it is there no more, or has become shorter.
        """
        node, view = self.nodes[of], memoryview(data).cast("B")
        target, window, end = self._first + node, window_of(name), offset + len(view)
        vain: list[str] = []

        def make_room() -> bool:
            # The bytes that were sent stay in front of all later requests, so they must be
            # accepted.
            if self._is_shorter(node, name, end):
                vain.append(name)
                with contextlib.suppress(Unfinished):
                    self.origin.file(target, window, FileHow.MAKE, name, end)
            return False

        with self._turn():
            for at in range(0, len(view), PIECE_BYTES):
                piece = view[at:at + PIECE_BYTES]
                if not self._persist(node, lambda: self.origin.put(
                        target, window, offset + at, piece), through_alarm=True):  # noqa: B023
                    return False
            if not self._persist(node, lambda: self.origin.flush(target), through_alarm=True,
                                 gone=make_room):
                return False
            if vain:
                self._persist(node, lambda: self.origin.file(target, window, FileHow.REMOVE, name),
                              through_alarm=True)
                raise FileNotFoundError(name)
        return True

    def _is_shorter(self, node: int, name: str, size_bytes: int) -> bool:
        """Say whether a file has fewer bytes; False if its agent does not answer at once."""
        try:
            return self.origin.file(self._first + node, window_of(name), FileHow.LOOK,
                                    name) < size_bytes
        except Unfinished:
            return False


def window_of(name: str) -> int:
    """Return the number of the window that stands for a file; a second file of that number is
    refused."""
    return OWN_FILES | zlib.crc32(name.encode()) & HASH


class NodesWords(Words):
    """The words of the root's file, as a process on another node sees them.

    A word that this process has added to has no other writer as long as this process lives.
    """

    def __init__(self, words: Words, post: Post, root: int) -> None:
        self.count, self._post, self._root = words.count, post, root
        self._base = post.spots.words
        self._own: dict[int, int] = {}  # values of words that this process has added to

    def _at(self, at: int) -> int:
        return self._base + WORD.size * self._known(at)

    def load(self, at: int) -> int:
        return int(WORD.unpack(self._post.get(self._root, self._at(at), WORD.size))[0])

    def store(self, at: int, value: int) -> None:
        self._post.store(self._root, [(self._at(at), WORD.pack(value))])
        self._own.pop(at, None)

    def add(self, at: int, n: int = 1) -> int:
        value = (self._own[at] if at in self._own else self.load(at)) + n
        self.store(at, value)
        self._own[at] = value
        return value

    def read(self, first: int, count: int) -> npt.NDArray[np.uint64]:
        self._known(first + max(count, 1) - 1)
        if not count:
            return np.empty(0, np.uint64)
        raw = self._post.get(self._root, self._at(first), WORD.size * count)
        return np.frombuffer(raw, np.uint64).copy()

    def equal(self, first: int, second: int, count: int) -> bool:
        self._known(max(first, second) + max(count, 1) - 1)
        if not count:
            return True
        size = WORD.size * count
        rows = self._post.getv(self._root, [(self._at(first), size), (self._at(second), size)])
        return rows[:size] == rows[size:]


class NodesMail(Mail):
    """One process's end of a mail over several nodes.

    Args:
        path: this node's file.
        me: this process.
        root: the process on whose node the words are.

    Calls that reach other nodes raise Rollback if all slots go back meanwhile.
    """

    def __init__(self, path: Path, me: int, post: Post, root: int) -> None:
        super().__init__(path, me)
        self.me, self.post, self.root = me, post, root
        self._here = [node == post.node for node in post.nodes]
        self._written = [0] * len(post.nodes)  # bytes that were ever sent, by reader
        self._read = [0] * len(post.nodes)  # bytes that the reader has taken, as far as is known
        if not self._here[root]:
            self.words = NodesWords(self.words, post, root)

    def append(self, to: int, kind: int, data: Any) -> Sent:
        if not 0 <= to < len(self._here) or self._here[to] or len(data) > self.limit_bytes:
            return super().append(to, kind, data)
        if not self.alive(to):
            return Sent.DEAD
        spots, pair = self.post.spots, to * len(self._here) + self.me
        body = RECORD.pack(len(data), kind) + data
        body += bytes(-len(body) % 8)
        written, size = self._written[to], spots.ring_bytes
        at = written % size
        skipped = size - at if at + len(body) > size else 0
        end = written + skipped + len(body)
        if end - self._read[to] > size:
            read = spots.read + pair * spots.pair_bytes
            self._read[to] = WORD.unpack(self.post.get(to, read, WORD.size))[0]
            if end - self._read[to] > size:
                return Sent.FULL
        ring = spots.data + pair * size
        puts = [(ring + at, SKIP), (ring, body)] if skipped else [(ring + at, body)]
        publish = spots.written + pair * spots.pair_bytes, end
        if not self.post.store(to, puts, [publish]):
            return Sent.DEAD
        self._written[to] = end
        return Sent.OK

    def ring(self, to: int) -> None:
        if self._here[to]:
            super().ring(to)
        elif self.alive(to):
            self.post.store(to, [], [(self.post.spots.generation, 0)])

    def join(self) -> None:
        super().join()
        if not self._here[self.root]:
            self.post.store(self.root, [], [(self._spot_of_joined(self.me), 1)])

    def joined(self, process: int) -> bool:
        if self._here[self.root]:
            return super().joined(process)
        return any(self.post.get(self.root, self._spot_of_joined(process), WORD.size))

    def _spot_of_joined(self, process: int) -> int:
        return self.post.spots.joined + process * self.post.spots.place_bytes


def share(ledger: Ledger, path: Path, *, target: int, attempt: int, processes: Sequence[int],
          spots: Spots) -> None:
    """Let other nodes write into this node's file, which is a part for each of its processes.

    Files of earlier attempts are not written to any more.
    """
    for process in processes:
        window = name_of(File.MAIL, process)
        for before in range(1, attempt):
            wire.ledger_unshare(ledger, window, target, before)
        wire.ledger_share(
            ledger, window=window, target=target, generation=attempt, file=path.name,
            size_bytes=spots.file_bytes, head_bytes=spots.data,
            bells=spots.bells + process * spots.place_bytes)
