"""Decides what to do about stopped processes that keep a repair waiting.

The same rule holds for one node and several: the user is told at once, and after `timeouts.STOPPED`
the job is launched again. The vault of a stopped process is whole, and the next launch takes it;
killing the process would be one more loss for its group. If a node does not answer at all, its
processes count as stopped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..fabric.absence import StoppedProcess
from ..host import timeouts
from ..host.outfile import tell


class StoppedProcesses:
    """Watches stopped processes, from one repair to the next."""

    def __init__(self) -> None:
        self.since: dict[int, float] = {}  # when a process was first seen stopped
        self.told: set[int] = set()

    def check(self, found: Sequence[StoppedProcess], died: str) -> str:
        """Tell the user of processes that are newly stopped.

        Args:
            found: processes that are stopped now.
            died: the processes that have died, in words.

        Returns:
            Why the job is to be launched again; empty while it is not.
        """
        now = time.monotonic()
        self.since = {one.proc: self.since.get(one.proc, now) for one in found}
        self.told &= self.since.keys()
        soon = timeouts.STOPPED_TOLD.s
        new = [one for one in found
               if now - self.since[one.proc] > soon and one.proc not in self.told]
        if new:
            tell(f"{died}; {_names(new)} does not answer; if that lasts for "
                 f"{timeouts.STOPPED.s:.0f} s, the job is launched again")
            self.told |= {one.proc for one in new}
        late = [one for one in found if now - self.since[one.proc] > timeouts.STOPPED.s]
        return f"{died}, and {_names(late)} does not answer" if late else ""


def _names(some: Sequence[StoppedProcess]) -> str:
    return " and ".join(one.name for one in some)
