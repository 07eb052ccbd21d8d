"""The end of a run: slot 0 counts in waves, and ends it when nothing can happen any more.

In a *wave* slot 0 asks all slots (ASK), and each answers (REPORT) with the numbers of data records
that it has appended and taken, and whether it is passive. The run is over if in two successive
waves all slots are passive, and all four sums are equal: of the records appended and of those
taken, in both waves. Then between the waves no slot has appended or taken anything, so no record
was under way, and no slot has been woken. One wave does not suffice: a record may pass from a slot
that is asked late to a slot that has been asked early.

The workload may also ask for an end, by the statuses of all slots. In both cases slot 0 appends END
to all channels, and each other slot does so at the first END that it takes. A slot leaves when it
has taken END from all slots; then channels are empty, and all messages are in the state. A slot
with an open snapshot appends END only when the snapshot is closed. It will be closed: each slot
appends its STAGED before its END, which is its last record.

Source: F. Mattern, "Algorithms for distributed termination detection", Distributed Computing 1987.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .kinds import Channels, Floats, Kind

ASK_S = 0.05  # between two waves, unless one was quiet; chosen: 20 small records a second
STATUS_SHARE = 0.02  # greatest share of slot 0's time for making its status (chosen)
_ASK = struct.Struct("=qq")
_REPORT = struct.Struct("=qqqqq")


class Reason(IntEnum):
    """The reasons for which a run ends."""

    QUIESCENT = 1  # nothing is left to do
    ENDED = 2  # the workload has asked for it, by the statuses of all slots


class Counts(NamedTuple):
    """A slot's report in a wave.

    Attributes:
        passive: the slot has nothing to compute and nothing to send.
        sent: number of data records that it has appended.
        received: number of data records that it has taken.
        updates: number of updates that it has made.
    """

    passive: bool
    sent: int
    received: int
    updates: int


class Ending:
    """A slot's part in the end of a run.

    Args:
        channels: the channels of the slot.
        clock: returns the time in seconds.
        ended: says from the statuses of all slots whether the workload asks for an end.

    Attributes:
        reason: why the run ends, if this slot has heard of the end; None: it goes on.
        statuses: the newest statuses of all slots, at slot 0; NaN if none has come.
        updates: number of updates of all slots, by the newest reports, at slot 0.
        waves: number of complete waves, at slot 0.
        told: number of these waves that had statuses.
        ask_s: seconds between two waves.
    """

    def __init__(self, channels: Channels, clock: Callable[[], float],
                 ended: Callable[[Floats], bool]) -> None:
        self._channels, self._clock, self._ended = channels, clock, ended
        self.reason: Reason | None = None
        self.statuses: Floats = np.empty((channels.size, 0))
        self.updates = 0
        self.waves, self.told, self.ask_s = 0, 0, ASK_S
        self._statuses_due_s, self._full = clock(), False  # the wave under way has statuses
        self._reports: dict[int, Counts] = {}
        self._asked_s: float | None = None
        self._asking = False  # a wave is under way
        self._sums: tuple[int, int] | None = None  # sums of the newest wave, if all were passive
        self._said = False  # this slot has appended its END
        self._ends: set[int] = set()

    # At slot 0
    def step(self) -> None:
        """Begin a new wave, if it is time."""
        if not self.reason and not self._asking and self._time_to_ask():
            self._asking, self._asked_s, self._reports = True, self._clock(), {}
            self._full = self._asked_s >= self._statuses_due_s
            for to in range(self._channels.size):
                self._channels.append(to, Kind.ASK, _ASK.pack(self.waves, self._full))

    def _time_to_ask(self) -> bool:
        if self._sums is not None or self._asked_s is None:
            return True
        return self._clock() - self._asked_s >= self.ask_s

    def _count(self) -> None:
        """Evaluate a wave that is complete."""
        self._asking = False
        self.waves += 1
        self.told += self._full
        reports = self._reports.values()
        sums = sum(r.sent for r in reports), sum(r.received for r in reports)
        self.updates = sum(r.updates for r in reports)
        quiet = all(r.passive for r in reports) and sums[0] == sums[1]
        if quiet and self._confirmed(sums):
            self.reason = Reason.QUIESCENT
        elif self._ended(self.statuses):
            self.reason = Reason.ENDED
        self._sums = sums if quiet else None

    def _confirmed(self, sums: tuple[int, int]) -> bool:
        """Say whether the previous wave had the same sums."""
        return sums == self._sums

    # At all slots
    def receive(self, source: int, kind: int, data: memoryview, counts: Callable[[], Counts],
                status: Callable[[], Floats]) -> None:
        """Take a record of the kinds ASK, REPORT and END.

        Args:
            source: sender of the record.
            kind: kind of the record.
            data: bytes of the record.
            counts: makes this slot's report.
            status: makes the workload's status; it may take long, so not each wave asks for it.
        """
        if kind == Kind.ASK:
            wave, full = _ASK.unpack(data)
            began = self._clock()
            numbers = np.asarray(status() if full else [], np.float64)
            if full:
                spent_s = self._clock() - began
                self._statuses_due_s = began + spent_s / STATUS_SHARE
            self._channels.append(source, Kind.REPORT,
                                  _REPORT.pack(wave, *counts()) + numbers.tobytes())
        elif kind == Kind.REPORT:
            _, passive, *others = _REPORT.unpack_from(data)
            numbers = np.frombuffer(data, np.float64, offset=_REPORT.size)
            if self.statuses.shape[1] != numbers.size and self._full:
                self.statuses = np.full((self._channels.size, numbers.size), np.nan)
            if self._full:
                self.statuses[source] = numbers
            self._reports[source] = Counts(bool(passive), *others)
            if len(self._reports) == self._channels.size:
                self._count()
        else:
            self._ends.add(source)
            self.reason = self.reason or Reason(data[0])

    def leave(self) -> bool:
        """Append END to all channels, once; say whether all have done so, and this slot can leave.
        """
        assert self.reason
        if not self._said:
            self._said = True
            for to in range(self._channels.size):
                self._channels.append(to, Kind.END, bytes([self.reason]))
        return len(self._ends) == self._channels.size and not self._channels.behind()
