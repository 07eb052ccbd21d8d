"""The interfaces between the parts of an asynchronous run, and the kinds of records in channels.

A *channel* leads from one slot to another, first in, first out. A *record* in it has a kind and
bytes. `worker.Worker` moves records between channels and a *workload*, which computes, and has a
*store* keep the workload's state as snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Bytes = bytes | bytearray | memoryview | AnyArray
Append = Callable[[int, Bytes], bool]


class Kind(IntEnum):
    """The kinds of records."""

    DATA = 1  # messages of the workload
    RESUME = 2  # the sender's state is taken, and it appends data again
    CLEAR = 3  # the sender takes part in a snapshot, and appends no data; or its state is taken
    STAGED = 4  # the sender has staged its part
    READY = 5  # the sender has stopped, and its channels are empty
    ASK = 6  # slot 0 asks for counts
    REPORT = 7  # counts, and the workload's status, for slot 0
    END = 8  # slot 0 ends the run; the last record of the sender


class Channels(Protocol):
    """The channels of a slot, see `rings.Rings`.

    Attributes:
        me: this slot.
        size: number of slots.
        limit_bytes: of a data record, at most.
    """

    me: int
    size: int
    limit_bytes: int

    def append(self, to: int, kind: int, data: Bytes) -> bool:
        """Append a record to the channel to a slot; waits for nobody.

        Returns:
            False: there is no room for data now. Records of other kinds are taken in any case, and
            no data is taken before they have left.
        """

    def take(self) -> tuple[int, int, memoryview] | None:
        """Take the oldest record of a slot, of all slots in turn; None: nothing has come.

        Returns:
            The sender, the kind, and the bytes, which stay until `release`.
        """

    def release(self) -> None:
        """Give back the room of the record that was taken."""

    def behind(self) -> bool:
        """Say that records are kept back for want of room; calls of the others move them on."""

    def wait(self, seconds: float) -> None:
        """Wait until something may have come, at most so long."""

    def check(self) -> None:
        """Have others see what was appended before; raise Rollback if all go back."""


class Workload(Protocol):
    """A slot's part of an asynchronous computation; it waits for nobody."""

    def compute(self) -> bool:
        """Do a piece of work that takes some milliseconds; False: there is nothing to do."""

    def receive(self, source: int, data: memoryview) -> None:
        """Take a data record into the state."""

    def send(self, append: Append, *, all: bool = False) -> None:
        """Hand on the messages that are due, or all; those that `append` refuses stay here."""

    def passive(self) -> bool:
        """Say that there is nothing to compute and nothing to send."""

    def arrays(self) -> Mapping[str, AnyArray]:
        """List the state that a snapshot has: views, valid until the state changes."""

    def load(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the state of a snapshot, which may have been read-only."""

    def status(self) -> Floats:
        """Describe the state to slot 0: as many numbers on all slots."""

    def ended(self, statuses: Floats) -> bool:
        """Say, at slot 0, that all are to stop although not all are passive.

        Args:
            statuses: the newest one of each slot, (slots, numbers); NaN where none has come.
        """


class Store(Protocol):
    """Snapshots of a workload, as one slot stores its part of them.

    Attributes:
        generation: repairs in which nobody went back; each undoes what is not committed.
    """

    @property
    def generation(self) -> int: ...

    def ready(self) -> bool:
        """Say that the newest snapshot is safe, so another one may begin."""

    def begin(self, arrays: Mapping[str, AnyArray], generation: int) -> bool:
        """Stage arrays; False: not now, ask again, or the generation is not this one any more."""

    def add(self, arrays: Mapping[str, AnyArray]) -> None:
        """Stage more arrays, of other names, of the snapshot that was begun."""

    def end(self, note: Mapping[str, int]) -> bool:
        """Complete this slot's part; False: a repair has undone it meanwhile.

        Args:
            note: numbers that belong to the snapshot.
        """

    def committed(self) -> int:
        """Number of snapshots that are safe, of this attempt."""
