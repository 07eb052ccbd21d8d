"""Hands the vaults of a launch on one node over to the next launch by giving them new names.

If the process is killed in the middle, `finish_handover` puts the directory in order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..fabric.control_file import make_control
from ..native import job
from ..native.constants import CLAIM_SEATED, CLAIM_TOLD, NAME_BYTES
from ..native.job import Takeover
from ..native.shared import Proc
from .job import Job


def role_holders(made: Job) -> list[Proc]:
    """Return the processes of the newest launch by their roles: slots, then checksum ranks."""
    ctl = made.ctl
    roles = ctl.roles[ctl.roles_seq & 1]
    slots = [roles.slot_proc[s] for s in range(made.layout.slots)]
    return slots + [roles.checksum_proc[c] for c in range(made.layout.checksums)]


def hand_over(made: Job, lost: Sequence[int], version: int, died_ns: int) -> None:
    """Give the next launch its control file and the vaults that are left.

    Args:
        lost: roles without a vault, as positions in `role_holders`.
        version: the version from which the next launch goes on; at 0 all vaults begin empty.
        died_ns: when the failure happened, by CLOCK_MONOTONIC.
    """
    directory, ctl = made.directory, made.ctl
    for pattern in ("window-*", "demand-*", "comm-*"):
        for path in directory.glob(pattern):
            path.unlink()
    for path in directory.glob("log-*"):  # their memory is used again, but not their contents
        path.rename(path.with_name(path.name.replace("log-", "room-")))
    control = directory / "control.new"
    control.unlink(missing_ok=True)
    new = make_control(control, made.layout, ctl.log_bytes)
    new.commit, new.resume, new.nrules = version << 1, 1, ctl.nrules
    new.supervisor, new.takeover = os.getpid(), Takeover.CLEARING
    new.attempt, new.death_ns = ctl.attempt + 1, died_ns
    job.write_bytes(new.claimant, job.read_bytes(ctl.claimant, NAME_BYTES))
    new.claim = ctl.claim & ~(CLAIM_TOLD | CLAIM_SEATED)  # until its slots have claimed
    job.copy_rules(new, ctl)
    for at in lost:
        new.lost[at] = 1
    for at, p in enumerate(role_holders(made)):
        if at not in lost:
            made.vault(p).rename(directory / f"kept-{at}")
    control.rename(directory / "control")
    for path in directory.glob("trace-*"):
        if not path.suffix:  # of this launch; processes of the next one have the same numbers
            path.rename(path.with_suffix(f".{ctl.attempt}"))
    finish_handover(made)


def finish_handover(made: Job) -> None:
    """Give vaults that were put aside their names in the next launch, or their old names back."""
    directory, ctl = made.directory, made.ctl
    if ctl.takeover == Takeover.CLEARING:
        for path in (*directory.glob("vault-*"), *directory.glob("lost-*")):
            path.unlink()
        ctl.takeover = Takeover.NAMING  # from here on vaults are the new launch's
    for at, p in enumerate(role_holders(made)):
        kept = directory / f"kept-{at}"
        if kept.exists():
            kept.rename(made.vault(p))
    if ctl.takeover == Takeover.NAMING:
        ctl.takeover = Takeover.OFFERED
