"""The program's main thread comes to a repair, and leaves an attempt that is over, whatever it
waits in.

It comes by its calls of MPI. One that waits in Python meanwhile, for a queue, a lock, a future, a
child or the clock, makes none, and what it waits for may be a thread that is gone with the failure.
So the watching thread sends it a signal (``csrc/job/wake.c``), whose handler does what a call of
MPI does: it has the failure repaired, and raises Rollback unless that was possible in place; then
the wait goes on. It is a real-time signal that nobody has used when the program is entered. One
whose handler the program has changed is not sent.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from ..host import lineoutput
from ..native import job
from .script import __file__ as entry

OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
# Of ours, but like a program's: a framework, and printing, which may wait for who reads it.
LIKE_ITS_OWN = (os.path.join(OURS, "graph") + os.sep, lineoutput.__file__)


class Waking:
    """What the signal does.

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
        """While it is open the program runs."""
        if self.number and signal.getsignal(self.number) == self._handle:
            job.wake_by(self.number)
        job.wake_allow(True)
        try:
            yield
        finally:
            job.wake_allow(False)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if _in_program(frame) and not job.is_inside():
            self.unwind_if_alarmed()


def _free_signal() -> int:
    """The last real-time signal that has no handler, but for the very last, which debuggers of
    memory use; 0: all have."""
    return next((number for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN - 1, -1)
                 if signal.getsignal(number) is signal.SIG_DFL), 0)


def _in_program(frame: FrameType | None) -> bool:
    """The program's own code is being executed, or a library's for it; ftrma's looks at failures
    by itself, and must not be left anywhere."""
    while frame:
        file = frame.f_code.co_filename
        if file == entry:
            return True
        if file.startswith(OURS) and not file.startswith(LIKE_ITS_OWN):
            return False
        frame = frame.f_back
    return False
