"""The job's directory between two launches on one node: vaults get their names in the next one.

Whoever is killed in here leaves what `finish_arranging` finishes or takes back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..fabric.control_file import make_control
from ..native import job
from ..native.constants import NAME_BYTES
from ..native.job import Takeover
from ..native.shared import Proc
from .job import Job


def holders(made: Job) -> list[Proc]:
    """Processes of the newest launch by the role they hold: slots, then checksum ranks."""
    ctl = made.ctl
    roles = ctl.roles[ctl.roles_seq & 1]
    slots = [roles.slot_proc[s] for s in range(made.layout.slots)]
    return slots + [roles.checksum_proc[c] for c in range(made.layout.checksums)]


def arrange(made: Job, lost: Sequence[int], version: int, died_ns: int) -> None:
    """Give the next launch its control file, and the vaults that are left.

    Args:
        lost: roles without one, as positions in `holders`.
        version: that it goes on from; at 0 vaults begin empty, whatever is left.
        died_ns: when the failure was that it goes on from.
    """
    directory, ctl = made.directory, made.ctl
    for pattern in ("window-*", "demand-*", "comm-*"):
        for path in directory.glob(pattern):
            path.unlink()
    for path in directory.glob("log-*"):  # their memory is of use again, what is in them is not
        path.rename(path.with_name(path.name.replace("log-", "room-")))
    control = directory / "control.new"
    control.unlink(missing_ok=True)
    new = make_control(control, made.layout, ctl.log_bytes)
    new.commit, new.resume, new.nrules = version << 1, 1, ctl.nrules
    new.supervisor, new.takeover = os.getpid(), Takeover.CLEARING
    new.attempt, new.death_ns = ctl.attempt + 1, died_ns
    job.write_bytes(new.claimant, job.read_bytes(ctl.claimant, NAME_BYTES))
    new.claim = ctl.claim
    job.copy_rules(new, ctl)
    for at in lost:
        new.lost[at] = 1
    for at, p in enumerate(holders(made)):
        if at not in lost:
            made.vault(p).rename(directory / f"kept-{at}")
    control.rename(directory / "control")
    for path in directory.glob("trace-*"):
        if not path.suffix:  # of this launch; the processes of the next have the same numbers
            path.rename(path.with_suffix(f".{ctl.attempt}"))
    finish_arranging(made)


def finish_arranging(made: Job) -> None:
    """Give vaults that were put aside for a launch their names in it, or back those they had."""
    directory, ctl = made.directory, made.ctl
    if ctl.takeover == Takeover.CLEARING:
        for path in (*directory.glob("vault-*"), *directory.glob("lost-*")):
            path.unlink()
        ctl.takeover = Takeover.NAMING  # from here on vaults are the new launch's
    for at, p in enumerate(holders(made)):
        kept = directory / f"kept-{at}"
        if kept.exists():
            kept.rename(made.vault(p))
    if ctl.takeover == Takeover.NAMING:
        ctl.takeover = Takeover.OFFERED
