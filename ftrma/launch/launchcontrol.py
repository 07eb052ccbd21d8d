"""The interface by which a launch is watched and ended, on one node or over several.

`onenode` implements it by the control file, `severalnodes` by the ranks' connections. `launchwatch`
chooses between them, and no other module asks which it is.
"""

from __future__ import annotations

from typing import Protocol

from ..fabric.saved import Saved
from ..protocol.job_end import JobEnd, OwnExit


class LaunchControl(Protocol):
    """Watches one launch, ends it, and prepares the next one."""

    def ended_slots(self) -> tuple[dict[int, OwnExit], bool, bool]:
        """Return how slots' processes have ended themselves; whether others have died; whether all
        others wait."""

    def program_begun(self) -> bool:
        """Say whether the program has begun in this launch."""

    def forward_signal(self, number: int, slots: set[int]) -> set[int]:
        """Send a signal to those of these slots whose program handles it; return the others."""

    def unhandled_signals(self) -> list[tuple[int, int]]:
        """Return signals and slots for which it was found later that the program does not handle
        the signal."""

    def killed_by_signal(self) -> tuple[int, int] | None:
        """Return a slot that died of a signal that was forwarded to it, and the signal."""

    def saved(self, *, halt: bool) -> Saved | None:
        """Return how much is saved; None if that is not known yet.

        Args:
            halt: the slots are to take a checkpoint and wait behind it for the end.
        """

    def check(self, *, undecided: bool) -> str | None:
        """Return None while the launch goes on, "" if it is over, else why it cannot go on.

        Args:
            undecided: it is not known yet whether a death that was noticed is a failure.
        """

    def finish(self, own_end: JobEnd | None) -> int:
        """End a launch that is over, and return the job's exit status.

        Args:
            own_end: the end of the job by a process that ended itself, if there is one.
        """

    def prepare_next(self, reason: str) -> int | None:
        """End a launch that cannot go on and prepare the next one.

        Returns:
            None, or the job's exit status if there is no next launch; then the user was told why.
        """

    def abandon(self) -> None:
        """End a launch, and the job with it, because a signal has asked for that."""
