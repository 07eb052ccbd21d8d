"""Watches over a launch until it is over, or cannot go on.

`launchcontrol.LaunchControl` hides the differences between one node and several; this module
chooses between its implementations.
"""

from __future__ import annotations

import time

from ..host import timeouts
from ..host.errors import CATASTROPHE
from ..host.outfile import tell
from ..protocol import job_end
from .launch import Launch
from .launchcontrol import LaunchControl
from .noprogress import ProgressWatch
from .onenode import OneNode
from .pace import PaceWatch
from .processlooks import NearLooks
from .severalnodes import SeveralNodes
from .signalforwarding import SignalForwarder
from .stallwatch import StallWatch


class LaunchWatch:
    """Watches over one launch.

    Args:
        signals: forwards signals that are meant for the program.

    Attributes:
        own_end: the end of the job by a process that ended itself; None otherwise.
    """

    def __init__(self, launch: Launch, signals: SignalForwarder) -> None:
        self.launch, self.signals = launch, signals
        self.one, self.several = OneNode(launch), SeveralNodes(launch)
        self.stalls = StallWatch(launch, launch.ctl, NearLooks(launch.ctl))
        self.pace = PaceWatch(launch.ctl, launch.made.paces)
        self.progress = ProgressWatch(launch.made)
        self.looks_far = False
        far, watched = launch.rank_links.far, bool(launch.options.stall)
        far.watched, far.look_s = watched, (self.stalls if watched else self.pace).look_s
        self.own_end: job_end.JobEnd | None = None
        self.undecided = False  # it is not known yet whether a noticed death is a failure
        self.left_since = self.waiting_since = 0.0

    @property
    def control(self) -> LaunchControl:
        """Return the implementation that applies now.

        A job is known to run over several nodes once a rank has come by a connection. From then on
        this holds for all its launches.
        """
        board = self.launch.rank_links
        return self.several if board.spread or self.launch.made.cause else self.one

    def wait(self) -> str:
        """Wait until the launch is over ("") or cannot go on (the reason)."""
        try:
            return self.watch()
        finally:
            self.pace.look(at_once=True)

    def watch(self) -> str:
        """Do as `wait` says."""
        while True:
            self.launch.serve_terminal(0.1)
            self.signals.forward(self.control, self.launch.layout.slots)
            if self.ended_itself():
                return ""
            reason = self.control.check(undecided=self.undecided)
            if reason is None:
                reason = self.hangs()
            if reason is not None:
                return reason

    def hangs(self) -> str | None:
        """Act on slots that hang; return "" if that ends the job, else why it is launched again, or
        None."""
        if self.control is self.several and not self.looks_far:
            self.look_far()
        self.pace.look()
        found = self.stalls.look()
        if found.halt:
            self.own_end = self.launch.made.ends.end(self.control, found.halt)
            return ""
        return found.relaunch or None

    def look_far(self) -> None:
        """From here on, look at the words that other nodes send, instead of this node's
        processes."""
        launch, far = self.launch, self.launch.rank_links.far
        self.looks_far = True
        if far.ctl is None and far.watched:
            tell("warning: there is no shared memory for --stall; nothing is watched")
        if far.ctl is not None:
            self.stalls = StallWatch(launch, far.ctl, far)
            self.pace = PaceWatch(far.ctl, launch.made.paces)

    def ended_itself(self) -> bool:
        """Say whether a process that ended itself, or a lack of input, ends the job; see
        `own_end`."""
        left, failing, waiting = self.control.ended_slots()
        if left:
            self.judge(left, failing=failing, waiting=waiting)
        else:
            self.left_since = self.waiting_since = 0.0
            self.undecided = False
        if killed := self.control.killed_by_signal():
            self.own_end = job_end.end_by_signal(*killed)
        if stuck := self.progress.look():
            self.own_end = stuck
        if lacking := self.launch.stdin.lacking:
            self.own_end = job_end.JobEnd(CATASTROPHE, f"error: {lacking}")
        if self.own_end is None:
            self.own_end = self.launch.made.ends.step(self.control)
        return self.own_end is not None

    def judge(self, left: dict[int, job_end.OwnExit], *, failing: bool, waiting: bool) -> None:
        """Decide whether slots that have ended themselves end the job, as soon as this can be
        known.

        Args:
            failing: other slots have died. waiting: all other slots wait.
        """
        now = time.monotonic()
        self.left_since = self.left_since or now
        self.waiting_since = (self.waiting_since or now) if waiting else 0.0
        settling = now - self.left_since <= job_end.SETTLE_S
        if not settling:
            late = bool(self.waiting_since) and now - self.waiting_since > timeouts.WAITING.s
            self.own_end = job_end.decide_end(
                left, self.launch.layout.slots, failing=failing, waiting=late)
        well = all(how.well for how in left.values())
        launcher_runs = self.launch.mpirun.poll() is None
        self.undecided = settling or (well and not failing and launcher_runs)
