"""The access log of a process's slot: which accesses are logged, and the file that holds the
log."""

from __future__ import annotations

from ..fabric.view import JobView
from ..native import logs
from ..native.shared import Slot


class SlotLog:
    """The log of one process's slot.

    Args:
        view: this process's view of the job.
        which: "all" or "puts", as `--log` says.

    Attributes:
        slot: the slot whose log this process has mapped; -1: none.
    """

    def __init__(self, view: JobView, which: str) -> None:
        self.view, self.which = view, which
        self.slot = Slot(-1)

    def configure(self) -> None:
        """Tell the extension which accesses are logged."""
        what = logs.Logged.ALL if self.which == "all" else logs.Logged.PUTS
        logs.log_configure(logs.Logged.NONE if self.view.policy == "rollback" else what)

    def map(self, slot: Slot) -> None:
        """Map the log file of a slot, or make it; its memory is allocated when it is made."""
        self.configure()
        if self.slot != slot:
            if not logs.log_map(slot):
                logs.log_make(slot, self.view.words.log_bytes)
            self.view.share_log(slot)
            self.slot = slot
