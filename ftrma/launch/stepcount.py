"""Counts a job's steps over all its attempts; a step is a safepoint.

A slot counts its safepoints anew in each attempt, which begins at a checkpoint. So the number of
steps is that of the checkpoint plus those since then. A run that goes on from files of an earlier
run counts only its own steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..fabric.story import Checkpoint, Entered, Event, Recovery


class StepCount:
    """The count of steps, as it follows from a job's events.

    Attributes:
        base: steps before the current attempt.
        at: steps at each committed version.
        since: time and steps at the newest event that is at least `least_s` old and after which the
            number of steps is known; None if there is none.
    """

    def __init__(self, events: Iterable[Event], now: float = 0.0, least_s: float = 0.0) -> None:
        self.base, self.at = 0, {0: 0}
        self.since: tuple[float, int] | None = None
        for event in events:
            if isinstance(event, Checkpoint):
                if event.slot is None and event.step:
                    self.at[event.version] = self.base + event.step
                    if now - event.time >= least_s:
                        self.since = event.time, self.at[event.version]
            elif isinstance(event, Entered) or (
                    isinstance(event, Recovery) and event.kind != "causal"):
                self.base = self.at.get(event.version, 0)
                self.since = event.time, self.base

    def rate(self, step: int, now: float, least_s: float) -> float | None:
        """Return the steps per second since `since`; None if that is less than `least_s` ago."""
        if self.since is None or now - self.since[0] < least_s:
            return None
        return max(0.0, (step - self.since[1]) / (now - self.since[0]))
