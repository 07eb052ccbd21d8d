"""Tells the user about a slot: windows that are not protected, full logs, and recoveries."""

from __future__ import annotations

from ..fabric.story import Recovery
from ..fabric.view import JobView
from ..native.shared import Slot
from .recovery_words import recovery_line


class Notices:
    """Lines for the user about the slot of one process.

    Attributes:
        slot: the slot of the process.
        unprotected: kinds of windows that the program has made and that are not protected.
    """

    def __init__(self, view: JobView) -> None:
        self.view = view
        self.slot = Slot(-1)
        self.unprotected: set[str] = set()

    def warn_unprotected(self, name: str) -> None:
        """Warn once in a job about a kind of window that is not protected."""
        if name not in self.unprotected and self.slot == 0:
            self.view.tell(
                f"warning: a window from {name} is not protected; after a failure it comes back "
                "empty. Use Win.Allocate or Win.Create to have it restored"
            )
        self.unprotected.add(name)

    def tell_full_logs(self, needed_bytes: int) -> None:
        """Say that the logs are full, or have room again; each is said once in a job, by one slot.

        Args:
            needed_bytes: how much the slot would have logged, if there is room again; 0 if the logs
                are full.
        """
        stage = 1 + bool(needed_bytes)
        if not self.view.words.first_to_tell_full(stage):
            return
        if needed_bytes:
            self.view.tell(
                f"slot {self.slot} would have logged {needed_bytes} bytes between two checkpoints; "
                f"with --log-budget {2 * needed_bytes} it can be replayed at any time"
            )
            return
        version = self.view.words.committed
        back = f"checkpoint {version}" if version else "the start"
        self.view.tell(
            f"slot {self.slot}: its access logs have used their budget of "
            f"{self.view.words.log_bytes} bytes. Until a safepoint() lets a checkpoint be taken, a "
            f"failure rolls everybody back to {back}; a larger --log-budget avoids this"
        )

    def tell_recovery(self, recovery: Recovery, *, died: bool = True) -> None:
        """Put a recovery in the job's story, and write one line about it.

        Args:
            died: some process had died; if not, communicators had to be made again.
        """
        self.view.emit(recovery)
        self.view.tell(recovery_line(
            recovery, spares=len(self.view.spares()), claimant=self.view.claimant, died=died
        ))
