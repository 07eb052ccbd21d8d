"""Reads from a control file how much of a job would outlive its end.

The supervisor uses it for a job that is to end (`launch.askedends`). On one node it reads the
control file itself; over several nodes slot 0's process reads it and reports by the link (`link`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..native import job
from ..native.constants import CLAIM_REENTRY
from ..native.shared import Control


@dataclass(frozen=True)
class Saved:
    """Versions of a job, and where they are saved.

    Attributes:
        committed: newest version that the vaults can be brought to; 0: none.
        spilled: newest version whose files are all written; 0: none.
        behind: version behind whose safepoint all slots wait for the end; 0: they do not wait.
        alone: a framework has its slots take versions without a safepoint, so they do not wait for
            the end anywhere.
        named: newest version that is, or is to be, in files; if it is older than `behind`, version
            `behind` could not be written.
        over: the program has come to its own end.
    """

    committed: int = 0
    spilled: int = 0
    behind: int = 0
    alone: bool = False
    over: bool = False
    named: int = 0


def read(ctl: Control) -> Saved:
    """Read these words from a control file, those first that are written last."""
    halting, taken = job.load(ctl, "halting"), job.load(ctl, "taken")
    committed, spilled = job.load(ctl, "commit") >> 1, job.load(ctl, "spilled")
    behind = 0
    if halting and taken >= halting:
        holders = ctl.roles[ctl.roles_seq & 1].slot_proc
        staged = {int(ctl.proc[holders[slot]].staged) for slot in range(ctl.nslots)}
        behind = committed if staged == {committed} else 0
    return Saved(committed, spilled, behind, bool(ctl.claim & CLAIM_REENTRY),
                 ctl.alarm == job.ENDED, job.load(ctl, "spill"))
