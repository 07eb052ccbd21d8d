"""Finds processes that a repair waits for in vain: a signal (SIGSTOP) or a debugger stopped them.

All living processes meet in a repair. A process that computes, or waits outside of MPI, can still
report (``csrc/job/wake.c``). A stopped process cannot, so another process of its node looks for it
with this module. `launch.stoppedprocesses` decides what becomes of it.
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
        name: its role, and its number in that role.
    """

    proc: Proc
    name: str


def stopped(ctl: Control, node: int | None = None) -> list[StoppedProcess]:
    """List the stopped processes that have not come to the pending repair.

    Args:
        ctl: the control file of this node.
        node: number of this node; only its processes are looked at. None: all processes, which are
            on one node.

    Returns:
        The stopped processes; an empty list if no repair is pending.
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
    """Say whether a process of this node is stopped, by a signal or a debugger."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][:1] in ("T", "t")
