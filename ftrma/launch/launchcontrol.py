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
        """Slots whose processes have ended themselves; if others have died; if all others wait."""

    def program_begun(self) -> bool:
        """The program has begun in this launch."""

    def forward_signal(self, number: int, slots: set[int]) -> set[int]:
        """Send a signal to those of these slots whose program handles it; return the others."""

    def unhandled_signals(self) -> list[tuple[int, int]]:
        """Signals and slots of which it was found since that the program does not handle them."""

    def killed_by_signal(self) -> tuple[int, int] | None:
        """A slot that died of a signal that was handed on to it, and the signal."""

    def saved(self, *, halt: bool) -> Saved | None:
        """Tell how much is saved, as far as it is known; None: it is not known yet.

        Args:
            halt: the slots are to take a checkpoint and wait behind it for the end.
        """

    def check(self, *, undecided: bool) -> str | None:
        """Return None while the launch goes on, "" if it is over, else why it cannot go on.

        Args:
            undecided: it is not known yet if a death that was noticed is a failure.
        """

    def finish(self, own_end: JobEnd | None) -> int:
        """End a launch that is over, and return the job's exit status.

        Args:
            own_end: the end of the job by a process that ended itself, if there is one.
        """

    def prepare_next(self, reason: str) -> int | None:
        """End a launch that cannot go on and prepare the next one.

        Returns:
            None, or the job's exit status if there is no next launch; the user was told why.
        """

    def abandon(self) -> None:
        """End a launch, and the job with it: a signal has asked for it."""
