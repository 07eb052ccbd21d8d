"""Watching over a launch: until it is over, or cannot go on.

What differs with the number of nodes is behind `nodes.Nodes`; here is the choice.
"""

from __future__ import annotations

import time

from ..errors import CATASTROPHE
from ..protocol import job_end
from .handing import ForProgram
from .launch import Launch
from .nodes import Nodes
from .onenode import OneNode
from .severalnodes import SeveralNodes


class Watch:
    """Watches over one launch.

    Args:
        signals: those that are the program's.

    Attributes:
        own_end: how the job ends by a process's own doing; None otherwise.
    """

    def __init__(self, launch: Launch, signals: ForProgram) -> None:
        self.launch, self.signals = launch, signals
        self.one, self.several = OneNode(launch), SeveralNodes(launch)
        self.own_end: job_end.JobEnd | None = None
        self.undecided = False  # whether a death that was noticed is a failure
        self.left_since = self.waiting_since = 0.0

    @property
    def nodes(self) -> Nodes:
        """The way that holds now.

        That a job runs over several nodes is known only once a rank has come by a connection, but
        then for all its launches.
        """
        board = self.launch.switchboard
        return self.several if board.spread or self.launch.made.cause else self.one

    def wait(self) -> str:
        """Wait until the launch is over ("") or cannot go on (the reason)."""
        while True:
            self.launch.serve_terminal(0.1)
            self.signals.hand_on(self.nodes, self.launch.layout.slots)
            if self.ended_itself():
                return ""
            reason = self.nodes.look(undecided=self.undecided)
            if reason is not None:
                return reason

    def ended_itself(self) -> bool:
        """The program ended by a process that ended itself, or lacks input; `own_end` says how."""
        left, failing, waiting = self.nodes.left()
        launch, now = self.launch, time.monotonic()
        self.left_since = (self.left_since or now) if left else 0.0
        self.waiting_since = (self.waiting_since or now) if left and waiting else 0.0
        if left and now - self.left_since > job_end.SETTLE_S:
            late = bool(self.waiting_since) and now - self.waiting_since > job_end.WAITING_S
            self.own_end = job_end.decide_end(
                left, launch.layout.slots, failing=failing, waiting=late)
        settling = bool(left) and now - self.left_since <= job_end.SETTLE_S
        well = bool(left) and all(how.well for how in left.values())
        self.undecided = settling or (well and not failing and launch.mpirun.poll() is None)
        if killed := self.nodes.killed():
            self.own_end = job_end.end_by_signal(*killed)
        if launch.stdin.lacking:
            self.own_end = job_end.JobEnd(CATASTROPHE, f"error: {launch.stdin.lacking}")
        return self.own_end is not None
