"""Finds processes that a repair waits for in vain: a signal (SIGSTOP) or a debugger stopped them.

All living processes meet in a repair. One that computes, or waits outside of MPI, reports itself
(``csrc/job/wake.c``); one that is stopped cannot, so a process of its node looks for it here.
`launch.stoppedprocesses` decides what becomes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..native import job
from ..native.constants import ROLE_NAMES
from ..native.shared import Control, Proc


@dataclass(frozen=True)
class StoppedProcess:
    """A living process that a repair waits for in vain.

    Attributes:
        proc: its position in the MPI world.
        name: its role and the number in it.
    """

    proc: Proc
    name: str


def stopped(ctl: Control, node: int | None = None) -> list[StoppedProcess]:
    """List the stopped processes that have not come to the pending repair.

    Args:
        ctl: control file of this node.
        node: number of this node, whose processes are looked at; None: all, on one node.

    Returns:
        Nobody, if no repair is pending.
    """
    alarm = job.load(ctl, "alarm")
    if alarm in (job.load(ctl, "repaired"), job.ENDED):
        return []
    found = []
    for proc in map(Proc, range(ctl.nprocs)):
        p = ctl.proc[proc]
        here = node is None or p.node == node
        if here and p.state == job.ProcessState.ALIVE and p.met >> 8 < alarm and is_stopped(p.pid):
            role, index = job.role_of(ctl, proc)
            found.append(StoppedProcess(proc, f"{ROLE_NAMES[role]} {index}"))
    return found


def is_stopped(pid: int) -> bool:
    """Tell if a process of this node is stopped, by a signal or a debugger."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][:1] in ("T", "t")
