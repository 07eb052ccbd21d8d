"""Who keeps a repair waiting because it is stopped: by SIGSTOP, or by a debugger.

All who live meet in a repair, and one that is stopped would be waited for silently. Who computes,
or waits for something outside of MPI, says so by itself (``csrc/job/wake.c``); who is stopped is
seen by others of its node. `launch.patience` decides what becomes of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..native import job
from ..native.constants import ROLE_NAMES
from ..native.shared import Control, Proc


@dataclass(frozen=True)
class Stopped:
    """A living process that a repair waits for in vain.

    Attributes:
        proc: its position in the MPI world.
        name: of its role.
    """

    proc: Proc
    name: str


def stopped(ctl: Control, node: int | None = None) -> list[Stopped]:
    """Who has not come to the repair that is pending and is stopped; nobody if none is.

    Args:
        ctl: control file of this node.
        node: whose processes are looked at, which must be this one; None: all, on one node.
    """
    alarm = job.load(ctl, "alarm")
    if alarm in (job.load(ctl, "repaired"), job.ENDED):
        return []
    found = []
    for proc in map(Proc, range(ctl.nprocs)):
        p = ctl.proc[proc]
        here = node is None or p.node == node
        if here and p.state == job.State.ALIVE and p.met >> 8 < alarm and is_stopped(p.pid):
            role, index = job.role_of(ctl, proc)
            found.append(Stopped(proc, f"{ROLE_NAMES[role]} {index}"))
    return found


def is_stopped(pid: int) -> bool:
    """A process of this node is stopped, by a signal or a debugger."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][:1] in ("T", "t")
