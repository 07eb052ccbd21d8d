"""What is done otherwise where a job runs over several nodes: watching a launch, and what follows.

`onenode` looks at the control file, `severalnodes` at the ranks' connections; `watch` chooses, and
nobody else asks which it is.
"""

from __future__ import annotations

from typing import Protocol

from ..protocol.job_end import JobEnd, OwnExit


class Nodes(Protocol):
    """How one launch is watched and ended, and how the job goes on from it."""

    def left(self) -> tuple[dict[int, OwnExit], bool, bool]:
        """Slots whose processes have ended themselves; others have failed; all others wait."""

    def begun(self) -> bool:
        """The program has begun in this launch."""

    def hand_on(self, number: int, slots: set[int]) -> set[int]:
        """Send this signal to those of these slots whose program handles it; those to whom it
        could not be sent yet."""

    def unheeded(self) -> list[tuple[int, int]]:
        """Signals, and slots, that have said meanwhile that their program does not handle them."""

    def killed(self) -> tuple[int, int] | None:
        """A slot that died of a signal that was handed on to it, and the signal."""

    def look(self, *, undecided: bool) -> str | None:
        """None while the launch goes on, "" if it is over, else why it cannot go on.

        Args:
            undecided: whether a death that was noticed is a failure is not known yet.
        """

    def finish(self, own_end: JobEnd | None) -> int:
        """End a launch that is over; the job's exit status, unless a process's own doing says it.

        Args:
            own_end: how the job ends by a process's own doing.
        """

    def go_on(self, reason: str) -> int | None:
        """End a launch that cannot go on and prepare the next one.

        Returns:
            None, or the job's exit status if there is to be no next launch; it was told why.
        """

    def abandon(self) -> None:
        """End a launch, and the job with it, as a signal wants it."""
