"""Pickled messages between places, over the rings of the door's mail.

Law: `post` never blocks. A message for which a ring has no room waits in this process, in order,
and is sent when the place looks at its mail again. Messages from one place to another arrive in the
order in which they were posted, each one whole or not at all; messages to a dead place are dropped.

A packed object is the number of its arrays, their sizes, the pickle (protocol 5), and the arrays'
bytes, each part aligned to 16 bytes. A message that is longer than a ring takes is sent in pieces:
the first piece tells kind and size of the message, the others follow it.
"""

from __future__ import annotations

import importlib
import pickle
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from .door import Members
from .kinds import PIECE

ALIGN = 16
COUNT = struct.Struct("<Q")
HEAD = struct.Struct("<QQ")  # kind and size of a message in pieces
BATCH = 256  # messages that are taken before the place looks at its tasks again
# Times between two tries to send a message for which a ring had no room: at first about the time of
# a task, then twice as long after each try for which the reader has taken nothing.
LEAST_WAIT_S, MOST_WAIT_S = 100e-6, 5e-3
NO_ARRAYS = COUNT.pack(0)

Handler = Callable[[int, Any], None]


def pack(value: Any, what: str, prefix: bytes = b"", about: Any = None) -> bytes:
    """Return a prefix, whose size is a multiple of 16, and a pickled value behind it.

    Args:
        value: the value; its arrays are copied once.
        what: the call that packs the value, for the error's text; a format string for `about`.

    Raises:
        TypeError: the value cannot be pickled; the text has the reason and the remedy.
    """
    arrays: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(value, 5, buffer_callback=arrays.append)
    except Exception as error:
        arrays = []
        data = _pack_by_cloudpickle(value, what.format(about), error, arrays)
    if not arrays:
        return prefix + NO_ARRAYS + data
    raws = [array.raw() for array in arrays]
    parts: list[Any] = [prefix, COUNT.pack(len(raws)), COUNT.pack(len(data)),
                        *(COUNT.pack(raw.nbytes) for raw in raws)]
    size = COUNT.size * len(parts[1:])
    for part in (data, *raws):
        parts += [bytes(-size % ALIGN), part]
        size += -size % ALIGN + len(part)
    return b"".join(parts)


def _pack_by_cloudpickle(value: Any, what: str, error: Exception, arrays: list[Any]) -> bytes:
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        raise TypeError(
            f"{what}: {_words(error)}. Give a function that stands at the top of a module or of "
            "the script, and arguments and results that can be pickled; lambdas and functions "
            "inside of functions go with cloudpickle (pip install 'ftrma[apgas]')") from None
    try:
        return bytes(cloudpickle.dumps(value, 5, buffer_callback=arrays.append))
    except Exception as second:
        raise TypeError(f"{what}: {_words(second)}. Give functions, arguments and results that "
                        "can be pickled: no files, locks or windows") from None


def _words(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def unpack(data: Any, owned: bool = False) -> Any:
    """Return the value that was packed.

    Args:
        data: packed bytes, without the prefix.
        owned: the arrays may stay in the memory of `data`; if false, `data` is copied.
    """
    (count,) = COUNT.unpack_from(data)
    if not count:
        return pickle.loads(memoryview(data)[COUNT.size:])
    view = memoryview(data if owned else bytearray(data))
    sizes = [COUNT.unpack_from(view, COUNT.size * (1 + i))[0] for i in range(count + 1)]
    at, parts = COUNT.size * (count + 2), []
    for size in sizes:
        at += -at % ALIGN
        parts.append(view[at:at + size])
        at += size
    return pickle.loads(parts[0], buffers=parts[1:])


class Mailroom:
    """The messages that come to this place and leave it.

    Only the running task may use it: the mail belongs to the thread that has the baton.
    """

    def __init__(self, members: Members) -> None:
        self.members = members
        self.mail = members.mail
        self.outbox: dict[int, deque[tuple[int, Any]]] = {}  # by place; kind 0: a function to call
        self._handlers: dict[int, tuple[Handler, bool]] = {}
        self._early: dict[int, list[tuple[int, bytes]]] = {}
        self._pieces: dict[int, tuple[int, bytearray, int]] = {}  # kind, memory, bytes so far
        self.handling = False
        self._wait_s = LEAST_WAIT_S

    # -- out ----------------------------------------------------------------------------------

    def post(self, to: int, kind: int, payload: Any) -> None:
        """Send a value to a place, this one or another one.

        Raises:
            TypeError: the value cannot be pickled.
        """
        self.send(to, kind, pack(payload, "a message to place {}", about=to))

    def send(self, to: int, kind: int, data: bytes) -> None:
        """Send bytes to a place."""
        if len(data) > self.mail.limit_bytes:
            self._send_pieces(to, kind, data)
        elif to in self.outbox:
            self.outbox[to].append((kind, data))
        elif self.mail.append(to, kind, data) == self.mail.FULL:
            self.outbox[to] = deque([(kind, data)])

    def _send_pieces(self, to: int, kind: int, data: bytes) -> None:
        view, room = memoryview(data), self.mail.limit_bytes
        queue = self.outbox.setdefault(to, deque())
        first = room - HEAD.size
        queue.append((PIECE, HEAD.pack(kind, len(data)) + view[:first]))
        queue.extend((PIECE, view[at:at + room]) for at in range(first, len(data), room))
        self.flush()

    def then(self, to: int, function: Callable[[], None]) -> None:
        """Call a function as soon as all messages to a place are in its ring, or dropped."""
        if to in self.outbox:
            self.outbox[to].append((0, function))
        else:
            function()

    def flush(self) -> None:
        """Send the messages that wait, as far as the rings have room."""
        append, full = self.mail.append, self.mail.FULL
        self._wait_s = min(2 * self._wait_s, MOST_WAIT_S)
        for to, queue in list(self.outbox.items()):
            while queue:
                kind, data = queue[0]
                if kind and append(to, kind, data) == full:
                    break
                queue.popleft()
                self._wait_s = LEAST_WAIT_S
                if not kind:
                    data()
            if not queue:
                del self.outbox[to]

    # -- in -----------------------------------------------------------------------------------

    def handle(self, kind: int, function: Handler) -> None:
        """Have a function called with the source and the value of each message of a kind.

        It is called between tasks, for each source in the order of its messages, and must neither
        wait nor raise. Messages that came before this call are handed to it at once.
        """
        self._register(kind, function, raw=False)

    def handle_raw(self, kind: int, function: Handler) -> None:
        """Have a function called with the bytes instead: a view that is valid during the call.

        If the message came in pieces, it is a view of a bytearray that belongs to the message.
        """
        self._register(kind, function, raw=True)

    def _register(self, kind: int, function: Handler, raw: bool) -> None:
        self._handlers[kind] = (function, raw)
        for source, data in self._early.pop(kind, []):
            self._deliver(source, kind, memoryview(data))

    def pump(self) -> bool:
        """Take the mail that has come; say whether none is left."""
        if self.outbox:
            self.flush()
        mail = self.mail
        for _ in range(BATCH):
            found = mail.take()
            if found is None:
                return True
            self.handling = True
            try:
                source, kind, view = found
                if kind == PIECE:
                    self._assemble(source, view)
                else:
                    self._deliver(source, kind, view)
            finally:
                self.handling = False
                mail.release()
        return False

    def _assemble(self, source: int, view: Any) -> None:
        if source not in self._pieces:
            kind, size = HEAD.unpack_from(view)
            whole, at, view = bytearray(size), 0, view[HEAD.size:]
        else:
            kind, whole, at = self._pieces.pop(source)
        end = at + len(view)
        whole[at:end] = view
        if end < len(whole):
            self._pieces[source] = kind, whole, end
        else:
            self._deliver(source, kind, memoryview(whole), owned=True)

    def _deliver(self, source: int, kind: int, view: Any, owned: bool = False) -> None:
        known = self._handlers.get(kind)
        if known is None:
            self._early.setdefault(kind, []).append((source, bytes(view)))
        elif known[1]:
            known[0](source, view)
        else:
            known[0](source, unpack(view, owned))

    def patience_s(self, timeout_s: float) -> float:
        """Return how long to wait for mail: less while a message waits for room in a ring."""
        return min(timeout_s, self._wait_s) if self.outbox else timeout_s
