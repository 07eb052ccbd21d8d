"""Wakes the program's main thread, so that it comes to a repair or leaves an attempt that is over.

The thread comes to a repair by its calls of MPI. If it waits in Python, for a queue, a lock, a
future, a child or the clock, it makes no call, and it may wait for a thread that ended with the
failure. So the watching thread sends it a signal (``csrc/job/wake.c``), whose handler does the same
as a call of MPI: it has the failure repaired. If that was possible in place, the wait goes on; if
not, the handler raises Rollback. The signal is a real-time signal that has no handler when the
program is first run. If the program changes the handler, the signal is not sent.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from ..host import lineoutput, timeouts
from ..native import job
from .script import __file__ as entry

OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
# Code of ftrma that an exception may leave at any place, as it may leave the program's: frameworks,
# and printing, which may wait for a reader.
LIKE_ITS_OWN = (os.path.join(OURS, "frameworks") + os.sep, lineoutput.__file__)


class Waking:
    """The signal that wakes the main thread, and its handler.

    Args:
        unwind_if_alarmed: has a pending failure repaired, and raises Rollback unless that was
            possible in place.
    """

    def __init__(self, unwind_if_alarmed: Callable[[], None]) -> None:
        self.unwind_if_alarmed = unwind_if_alarmed
        self.number = _free_signal()
        if self.number:
            signal.signal(self.number, self._handle)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Allow the signal while the program runs."""
        if self.number and signal.getsignal(self.number) == self._handle:
            job.wake_by(self.number, timeouts.ABSENT.s)
        job.wake_allow(True)
        try:
            yield
        finally:
            job.wake_allow(False)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if _in_program(frame) and not job.is_inside():
            self.unwind_if_alarmed()


def _free_signal() -> int:
    """Return the last real-time signal that has no handler; 0 if all have one.

    The very last one is left out, since memory debuggers use it.
    """
    return next((number for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN - 1, -1)
                 if signal.getsignal(number) is signal.SIG_DFL), 0)


def _in_program(frame: FrameType | None) -> bool:
    """Say whether code of the program, or of a library that it has called, is being executed.

    Code of ftrma checks for failures by itself, and an exception must not leave it at an arbitrary
    place.
    """
    while frame:
        file = frame.f_code.co_filename
        if file == entry:
            return True
        if file.startswith(OURS) and not file.startswith(LIKE_ITS_OWN):
            return False
        frame = frame.f_back
    return False
