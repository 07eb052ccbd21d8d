"""Decides when a checkpoint is due."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..machine.interval import FIRST_GUESS_BYTES_PER_S, daly_interval


class CheckpointPolicy:
    """The user's wish for the time between checkpoints, and when the last one was.

    Args:
        interval: seconds, "daly" or "never"; 0 means every safepoint.
        mtbf_s: for Daly's interval.

    Attributes:
        delta_s: for which the newest checkpoint held the program up; 0 before it is measured.
        last: when the last one was begun, by the monotonic clock.
    """

    def __init__(self, interval: float | str, mtbf_s: float) -> None:
        self.interval, self.mtbf_s = interval, mtbf_s
        self.delta_s = 0.0
        self.last = time.monotonic()

    @property
    def every(self) -> bool:
        """A checkpoint is taken at every safepoint."""
        return self.interval == 0

    def due(self, size_bytes: Callable[[], int]) -> bool:
        """Say whether the time since the last checkpoint is over.

        Args:
            size_bytes: gives the size of what is protected, from which the time that a checkpoint
                takes is guessed before it is measured.
        """
        if isinstance(self.interval, str):
            if self.interval == "never":
                return False
            delta_s = self.delta_s or max(1e-4, size_bytes() / FIRST_GUESS_BYTES_PER_S)
            return time.monotonic() - self.last >= daly_interval(delta_s, self.mtbf_s)
        return time.monotonic() - self.last >= self.interval
