"""Carries a job on one node from one launch to the next: which vaults are lost, which version
counts."""

from __future__ import annotations

from ..fabric import story
from ..fabric.story import Relaunch
from ..host.errors import CatastrophicFailure
from ..host.outfile import tell
from ..native.constants import CLAIM_FORFEIT
from ..native.job import Takeover
from ..native.shared import Version
from ..protocol.salvage import catastrophe
from .job import ALL_DIED, HALTED, LAUNCHER_DIED, SUPERVISOR_DIED, Job
from .noprogress import step_of
from .vaulthandover import hand_over, role_holders


def relaunch(made: Job, reason: str, died: set[int], noticed_ns: int) -> bool:
    """Prepare the next launch and tell the user; return False if nothing is left to go on from.

    Args:
        died: processes that were dead before the launch was ended.
        noticed_ns: when it was found that the launch cannot go on, by CLOCK_MONOTONIC.
    """
    ctl = made.ctl
    # In these cases the processes died because of the launcher or the supervisor, so their vaults
    # are good.
    together = reason in (HALTED, SUPERVISOR_DIED, LAUNCHER_DIED, ALL_DIED)
    lost = lost_roles(made, set() if together else died)
    failure = beyond_repair(made, lost)
    forfeited = failure is not None and bool(ctl.claim & CLAIM_FORFEIT)
    if failure and not forfeited:
        tell(
            f"error: CatastrophicFailure: {reason}, and group {failure.group} lost "
            f"{' and '.join(failure.members)}; checkpoint version {failure.version} cannot be "
            "rebuilt. Use smaller groups (--group-size) with more checksum ranks, and start again"
        )
        return False
    known = ctl.death_ns and ctl.alarm != ctl.repaired and not together
    step, repair = step_of(ctl), int(ctl.repaired)
    version = 0 if forfeited else ctl.commit >> 1
    hand_over(made, lost, version, ctl.death_ns if known else noticed_ns)
    slots = tuple(at for at in lost if at < made.layout.slots)
    story.emit(made.directory, Relaunch(
        reason=reason, slots=slots, version=version, noticed_ns=noticed_ns, step=step,
        repair=repair,
    ))
    to = f"checkpoint {version}" if version else "the start"
    tell(f"{reason}; launching the job again from {to}")
    return True


def lost_roles(made: Job, died: set[int]) -> list[int]:
    """Return the roles whose vaults are lost, as positions in `vaulthandover.role_holders`.

    A launch that ends before it has taken over all vaults leaves the vaults that it was offered.
    They belong to no process yet, so none is lost by the death of a process.

    Args:
        died: processes that died by themselves while the others lived.
    """
    ctl = made.ctl
    offered = ctl.takeover == Takeover.OFFERED
    lost = []
    for at, p in enumerate(role_holders(made)):
        whole = ctl.proc[p].ready or (offered and not ctl.lost[at])
        if p in (() if offered else died) or not whole or not made.vault(p).exists():
            lost.append(at)
    return lost


def beyond_repair(made: Job, lost: list[int]) -> CatastrophicFailure | None:
    """Return the error of a group that has lost more than can be rebuilt; None if none has, or
    without a checkpoint."""
    layout, version = made.layout, Version(made.ctl.commit >> 1)
    names = {g: [f"slot {s}" for s in layout.members(g) if s in lost]
             + [f"checksum {c}" for c in layout.checksums_of(g) if layout.slots + c in lost]
             for g in range(layout.groups)}
    return catastrophe(names, layout.strength, version) if version else None
