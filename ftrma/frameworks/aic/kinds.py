"""The interfaces between the parts of an asynchronous run, and the kinds of records in channels.

A *channel* leads from one slot to another and keeps the order of its records. A *record* has a kind
and bytes. `worker.Worker` moves records between channels and a *workload*, which computes; its
*store* keeps the workload's state as snapshots.
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
    RESUME = 2  # the sender has taken its state, and appends data again
    CLEAR = 3  # the sender takes part in a snapshot and appends no data, or has taken its state
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
        limit_bytes: greatest size of a data record.
    """

    me: int
    size: int
    limit_bytes: int

    def append(self, to: int, kind: int, data: Bytes) -> bool:
        """Append a record to the channel to a slot, without waiting.

        Returns:
            False if there is no room for data now. Records of other kinds are accepted in any case;
            until they have left, no data is accepted.
        """

    def take(self) -> tuple[int, int, memoryview] | None:
        """Take the oldest record of a slot; all slots have their turns. None: nothing has come.

        Returns:
            The sender, the kind, and the bytes, which stay valid until `release`.
        """

    def release(self) -> None:
        """Give back the room of the record that was taken."""

    def behind(self) -> bool:
        """Say whether accepted records still wait for room; the other calls move them on."""

    def wait(self, seconds: float) -> None:
        """Wait until something may have come, but no longer than `seconds`."""

    def check(self) -> None:
        """Let other slots see what was appended before; raise Rollback if all slots go back."""


class Workload(Protocol):
    """A slot's part of an asynchronous computation; it never waits for another slot."""

    def compute(self) -> bool:
        """Do a piece of work that takes some milliseconds; False: there is nothing to do."""

    def receive(self, source: int, data: memoryview) -> None:
        """Take a data record into the state."""

    def send(self, append: Append, *, all: bool = False) -> None:
        """Hand on the messages that are due, or all; those that `append` refuses stay here."""

    def passive(self) -> bool:
        """Say whether there is nothing to compute and nothing to send."""

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return the state for a snapshot, as views that are valid until the state changes."""

    def load(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the state of a snapshot; the arrays may be read-only."""

    def status(self) -> Floats:
        """Return numbers that describe the state to slot 0, as many on all slots."""

    def ended(self, statuses: Floats) -> bool:
        """Say, at slot 0, whether all slots shall stop although not all of them are passive.

        Args:
            statuses: the newest status of each slot, (slots, numbers); NaN if none has come.
        """


class Store(Protocol):
    """One slot's part of the snapshots of a workload.

    Attributes:
        generation: number of repairs in which no slot went back; each of them undoes what was not
            committed.
    """

    @property
    def generation(self) -> int: ...

    def ready(self) -> bool:
        """Say whether the newest snapshot is safe, so that another one may begin."""

    def begin(self, arrays: Mapping[str, AnyArray], generation: int) -> bool:
        """Stage arrays; False: try again later, or the store has another generation now."""

    def add(self, arrays: Mapping[str, AnyArray]) -> None:
        """Stage more arrays, with other names, for the snapshot that was begun."""

    def end(self, note: Mapping[str, int]) -> bool:
        """Complete this slot's part; False: a repair has undone it meanwhile.

        Args:
            note: numbers that belong to the snapshot.
        """

    def committed(self) -> int:
        """Return the number of snapshots of this attempt that are safe."""
