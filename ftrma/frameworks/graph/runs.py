"""The runs of a program, counted: a run has the same number in each attempt."""

from __future__ import annotations

from dataclasses import dataclass, field

from ... import framework
from ...framework import entries
from .pregel_transport import LaneWindows
from .runner import StepReport


@dataclass
class Runs:
    """The runs of an attempt of the program, in their order, whichever engine makes them.

    Attributes:
        attempt: the attempt that they are counted in.
        made: how many there are in it.
        moved: the program has put back state that it had declared, and `made` has followed.
        reports: of the steps that this process has taken, by run.
        windows: windows of lanes that ftrma saves and logs.
        declared: all engines have recoveries that declare their state, or none has; None: there is
            no engine yet.
    """

    attempt: int = -1
    made: int = 0
    moved: bool = False
    reports: dict[int, list[StepReport]] = field(default_factory=dict)
    windows: LaneWindows = field(default_factory=LaneWindows)
    declared: bool | None = None

    def next(self) -> int:
        """The number of the run that begins now, from 1; the number that it had before a failure.
        """
        if self.attempt != framework.attempt():
            self.attempt, self.made, self.moved = framework.attempt(), 0, False
            self.windows = LaneWindows()
        if self.declared:
            self.made += 1
            return self.made
        if framework.restored() and not self.moved:
            self.moved = True
            if "run" in entries:  # the run in which, or before which, the checkpoint was taken
                self.made = int(entries.read("run")) - 1
        self.made += 1
        entries.put("run", self.made)
        return self.made


runs = Runs()
