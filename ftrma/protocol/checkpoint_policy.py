"""Decides when a checkpoint is due, and which ones are written to files."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..machine.interval import FIRST_GUESS_BYTES_PER_S, daly_interval
from ..settings.options import SpillInterval


class CheckpointPolicy:
    """The time between checkpoints that the user wants, and when the last checkpoint was.

    Args:
        interval: seconds, "daly" or "never"; 0 means a checkpoint at every safepoint.
        mtbf_s: for Daly's interval.

    Attributes:
        delta_s: how long the newest checkpoint held the program up; 0 before it is measured.
        last: when the last checkpoint began, by the monotonic clock.
        also: says whether a checkpoint is due for another reason.
        held: says whether no checkpoint may begin now, even if one is due.
    """

    def __init__(self, interval: float | str, mtbf_s: float) -> None:
        self.interval, self.mtbf_s = interval, mtbf_s
        self.delta_s = 0.0
        self.last = time.monotonic()
        self.also: Callable[[], bool] = lambda: False
        self.held: Callable[[], bool] = lambda: False

    @property
    def every(self) -> bool:
        """Say whether a checkpoint is taken at every safepoint."""
        return self.interval == 0

    def due(self, size_bytes: Callable[[], int]) -> bool:
        """Say whether the time since the last checkpoint is over.

        Args:
            size_bytes: returns the size of what is protected. Before the time that a checkpoint
                takes is measured, it is estimated from this size.
        """
        if self.held():
            return False
        if self.also():
            return True
        if isinstance(self.interval, str):
            if self.interval == "never":
                return False
            delta_s = self.delta_s or max(1e-4, size_bytes() / FIRST_GUESS_BYTES_PER_S)
            return time.monotonic() - self.last >= daly_interval(delta_s, self.mtbf_s)
        return time.monotonic() - self.last >= self.interval


class SpillPolicy:
    """Decides at slot 0 which versions are written.

    Args:
        interval: seconds, "daly", or each n-th checkpoint.
        mtbf_s: for Daly's interval.

    Attributes:
        cost_s: time from naming the newest version to writing its manifest; 0 before it is known.
        asked: the program has asked for a checkpoint in files.
    """

    def __init__(self, interval: SpillInterval, mtbf_s: float) -> None:
        self.interval, self.mtbf_s = interval, mtbf_s
        self.last = time.monotonic()
        self.passed = 0  # checkpoints since the last one that was named
        self.cost_s = 0.0
        self.asked = False

    @property
    def due(self) -> bool:
        """Say whether a checkpoint is wanted because one is to be written to files."""
        if self.asked:
            return True
        if self.interval.every:
            return False
        seconds = self.interval.seconds
        if seconds is None:
            seconds = daly_interval(max(self.cost_s, 1.0), self.mtbf_s)
        return time.monotonic() - self.last >= seconds

    def takes(self) -> bool:
        """Say whether the version that is staged next is to be written."""
        self.passed += 1
        every = self.interval.every
        return self.due or bool(every and self.passed >= every)

    def named(self) -> None:
        """Note that a version was named."""
        self.last, self.passed, self.asked = time.monotonic(), 0, False
