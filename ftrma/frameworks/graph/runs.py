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
        attempt: the attempt in which they are counted.
        made: number of runs in it.
        moved: the program's declared state went back to a checkpoint, and `made` was set to match.
        reports: reports of the steps that this process has taken, by run.
        windows: windows of lanes that ftrma saves and logs.
        declared: True: all engines have recoveries that declare their state; False: none has; None:
            there is no engine yet.
    """

    attempt: int = -1
    made: int = 0
    moved: bool = False
    reports: dict[int, list[StepReport]] = field(default_factory=dict)
    windows: LaneWindows = field(default_factory=LaneWindows)
    declared: bool | None = None

    def next(self) -> int:
        """Return the number of the run that begins now, from 1; it is the same after a failure."""
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
