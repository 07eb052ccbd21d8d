"""Reads and changes vaults and logs of processes on other nodes.

Each process enters its files in the ledger of its node, as plain parts (``csrc/wire/wire.h``); a
process of another node asks that node's agent for them. Behind the slots each node is a target of
its own, and these files are its parts. So a file is named by its node, its kind and a number.

Invariant: callers read a file only while nobody changes it. Every wait ends: when the bytes come,
when the alarm rings, or after a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path

from ..host import timeouts
from ..host.errors import FtrmaError
from ..native import wire
from ..native.shared import Proc
from ..native.wire import Buffer, Ledger, Origin, Unfinished, WireResult
from .round_changed import RoundChanged

FIRST_TRY_S = 0.5  # an agent is replaced within 0.2 s
NAMED = 0x80000000  # names of windows and boards are different


class File(IntEnum):
    """Kinds of files.

    A vault has the number of its process; a vault without a process has a number behind those of
    all processes. A mail has the number of the process that receives it. Other files have the
    number of their slot.
    """

    VAULT, LOG, DEMAND, MAIL = range(4)


class Files:
    """A process's way to files on other nodes, for one thread at a time.

    Args:
        origin: the origin by which agents are asked. It serves nothing else, since its alarm is not
            that of the process's accesses.
        ledger: this node's ledger; the node's files lie beside it.
        nodes: the node of each process.
        node: this process's node.
        first: the target that stands for node 0.

    Attributes:
        patience_s: how long a read waits for its bytes.
        reading: whether a read is waiting for its bytes.
        pieces: number of pieces that have come, in all reads.
        alarmed: says whether the alarm, which may ring late, is about a new failure.

    Fault: an agent's death makes a call slower. A node's death is noticed elsewhere, by a process
    that calls `ring`.
    """

    def __init__(
        self, origin: Origin, ledger: Ledger, nodes: Sequence[int], node: int, first: int
    ) -> None:
        self.origin, self.ledger = origin, ledger
        self.nodes, self.node, self.first = nodes, node, first
        self.patience_s = timeouts.AGENT_FILES.s
        self.reading, self.pieces = False, 0
        self.alarmed: Callable[[], bool] = lambda: True
        for each in {*nodes}:
            self._seat(each)

    def _seat(self, node: int) -> None:
        """Set where a node's files are; rejected messages are then sent again."""
        self.origin.locate(self.first + node, node, 1)

    def here(self, proc: Proc) -> bool:
        """Say whether a process is on this node."""
        return self.nodes[proc] == self.node

    # -- this node's files ----------------------------------------------------------------------

    def share(self, kind: File, number: int, path: Path) -> None:
        """Let others read a file of this node; it replaces any earlier file of that name.

        Call it again when the file is made anew or has become longer.
        """
        self.withdraw(kind, number)
        window, target = name_of(kind, number), self.first + self.node
        index = wire.ledger_reserve(self.ledger, window, target)
        wire.ledger_place(self.ledger, index, window=window, target=target, generation=1,
                          file=path.name, at=0, size_bytes=path.stat().st_size)

    def share_vault(self, proc: Proc, path: Path) -> None:
        """Let others read the vault of a process of this node, see `share`."""
        self.share(File.VAULT, proc, path)

    def withdraw(self, kind: File, number: int) -> None:
        """Stop letting others read a file of this node; the agent frees the memory for it."""
        target = self.first + self.node
        index = wire.ledger_find(self.ledger, name_of(kind, number), target, 1)
        if index >= 0:
            wire.ledger_release(self.ledger, index)

    # -- other nodes' files ---------------------------------------------------------------------

    def read(self, node: int, kind: File, number: int, offset: int, room: Buffer) -> None:
        """Fill a buffer with a file's bytes from an offset on.

        Raises:
            RoundChanged: the alarm rang, or roles are in force that this process does not know yet.
            FtrmaError: the agent refused the read, or the bytes did not come.
        """
        doing, view = f"reading {kind.name.lower()} {number}", memoryview(room)
        get = partial(self.origin.get_into, self.first + node, name_of(kind, number))
        self.reading = True
        try:
            for at in range(0, len(view), wire.PAYLOAD_BYTES):
                piece = view[at : at + wire.PAYLOAD_BYTES]
                self._persist(node, doing, partial(get, offset + at, piece))
                self.pieces += 1
        finally:
            self.reading = False

    def write(self, node: int, kind: File, number: int, offset: int, data: Buffer) -> None:
        """Change a file's bytes, and wait until the file has them.

        Raises:
            RoundChanged: the alarm rang. Unless it rang before anything was sent, the file has the
                bytes nevertheless: they must not arrive in a later round, when the file's owner may
                have written others.
            FtrmaError: the agent refused the write, or did not acknowledge it.
        """
        target, doing = self.first + node, f"mending {kind.name.lower()} {number}"
        self._persist(node, doing, partial(self.origin.number, target))  # go on from there
        self.origin.put(target, name_of(kind, number), offset, data)
        if self._persist(node, doing, partial(self.origin.flush, target), through_alarm=True):
            self.origin.ring()
            raise RoundChanged

    def _persist(
        self, node: int, doing: str, call: Callable[[], object], *, through_alarm: bool = False
    ) -> bool:
        """Repeat a call until it succeeds; return whether the alarm rang.

        An agent does not answer for a part that does not exist, or not yet, so the call is
        repeated.
        """
        deadline, try_s, alarmed = time.monotonic() + self.patience_s, FIRST_TRY_S, False
        while True:
            left_s = max(0.001, deadline - time.monotonic())
            self.origin.set_timeout(round(1000 * min(try_s, left_s)))
            try:
                call()
                return alarmed
            except Unfinished as error:
                self._seat(node)
                if error.result is WireResult.ALARM and through_alarm:
                    self.origin.clear_alarm()
                    alarmed = True
                    continue
                if error.result is WireResult.ALARM and not self.alarmed():
                    self.origin.clear_alarm()
                    continue
                if error.result in (WireResult.ALARM, WireResult.STALE):
                    raise RoundChanged from None
                if error.result is not WireResult.TIMEOUT:
                    self.origin.retry()
                    raise FtrmaError(f"{doing} on node {node}: {error}") from None
            if time.monotonic() >= deadline:
                raise FtrmaError(f"{doing} on node {node}: no answer within {self.patience_s:g} s")
            try_s *= 2

    # -- the alarm ------------------------------------------------------------------------------

    def ring(self) -> None:
        """End every read, in any thread, until `clear_alarm` is called."""
        self.origin.ring()

    def clear_alarm(self) -> None:
        """Silence the alarm. Do this before the number of a new round is read, or that round's
        alarm is lost."""
        self.origin.clear_alarm()


def name_of(kind: File, number: int) -> int:
    """Make the name of a file, in place of a window's number."""
    assert 0 <= number < 1 << 16
    return NAMED | kind << 16 | number
