"""From one launch of a job on one node to the next: which vaults go on, and under which names."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import settings
from ..fabric.world import emit, make_control, open_control
from ..host.key import Key
from ..host.outfile import tell
from ..machine.topology import Layout
from ..vault.salvage import catastrophe
from . import failover
from .standardinput import StandardInput

SUPERVISOR_DIED = "ftrma run was killed"


@dataclass
class Job:
    """What all launches of a job share.

    Attributes:
        directory: in shared memory; key: of the job.
        program: its words, see `script`.
        stdin: the user's.
    """

    native: Any
    directory: Path
    key: Key
    layout: Layout
    options: settings.Options
    program: list[str]
    stdin: StandardInput = field(default_factory=StandardInput)

    @property
    def ctl(self) -> Any:
        """The control file of the newest launch."""
        return open_control(self.native, self.directory)


def relaunch(made: Job, reason: str, died: set[int], noticed_ns: int) -> bool:
    """Prepare the next launch and say so; False if nothing is left to go on from."""
    prepared = prepare_relaunch(made, reason, died, noticed_ns)
    if prepared is None:
        return False
    version, slots = prepared
    emit(
        made.directory, "relaunch", reason=reason, version=version, slots=slots,
        noticed_ns=noticed_ns,
    )
    to = f"checkpoint {version}" if version else "the start"
    tell(f"{reason}; launching the job again from {to}")
    return True


def prepare_relaunch(
    made: Job, reason: str, died: set[int], noticed_ns: int
) -> tuple[int, list[int]] | None:
    """Arrange the surviving vaults for the next launch. `died`: before it was ended.

    Returns:
        The version it goes on from and the slots whose vaults are lost; None if nothing is left.

    A vault is lost if its process died by itself while the others lived. When the launcher died,
    the processes died with it and not by themselves: their vaults are as good as they were.
    """
    native, directory, layout = made.native, made.directory, made.layout
    ctl = made.ctl
    roles = ctl.roles[ctl.roles_seq & 1]
    holders = [roles.slot_proc[s] for s in range(layout.slots)]
    holders += [roles.checksum_proc[g] for g in range(layout.checksums)]
    version = int(ctl.commit >> 1)
    together = reason in (SUPERVISOR_DIED, failover.LAUNCHER_DIED, "all processes died")
    lost = []
    for at, p in enumerate(holders):
        gone = p in died and not together
        if gone or not ctl.proc[p].ready or not (directory / f"vault-{p}").exists():
            lost.append(at)
    names = {g: [f"slot {s}" for s in layout.members(g) if s in lost]
             + [f"checksum {c}" for c in layout.checksums_of(g) if layout.slots + c in lost]
             for g in range(layout.groups)}
    failure = catastrophe(names, layout.strength, version) if version else None
    if failure:
        tell(
            f"error: CatastrophicFailure: {reason}, and group {failure.group} lost "
            f"{' and '.join(failure.members)}; checkpoint version {version} cannot be rebuilt. Use "
            "smaller groups (--group-size) with more checksum ranks, and start again"
        )
        return None
    for pattern in ("window-*", "log-*", "demand-*", "comm-*"):
        for path in directory.glob(pattern):
            path.unlink()
    # Whoever is killed in here leaves what `finish_arranging` can finish or take back.
    control = directory / "control.new"
    control.unlink(missing_ok=True)
    new = make_control(native, control, layout, int(ctl.log_bytes))
    new.commit, new.resume, new.nrules = version << 1, 1, ctl.nrules
    new.supervisor, new.arranging = os.getpid(), 1
    new.entry = ctl.entry + 1
    known = ctl.death_ns and ctl.alarm != ctl.repaired and not together
    new.death_ns = ctl.death_ns if known else noticed_ns
    native.ffi.memmove(new.rules, ctl.rules, native.ffi.sizeof(ctl.rules))
    for at in lost:
        new.lost[at] = 1
    for at, p in enumerate(holders):
        if at not in lost:
            (directory / f"vault-{p}").rename(directory / f"kept-{at}")
    control.rename(directory / "control")
    for path in directory.glob("trace-*"):
        if not path.suffix:  # of this launch; the processes of the next have the same numbers
            path.rename(path.with_suffix(f".{ctl.entry}"))
    finish_arranging(made)
    return version, [at for at in lost if at < layout.slots]


def finish_arranging(made: Job) -> None:
    """Give vaults that were put aside for a launch their names in it, or back those they had."""
    directory, ctl = made.directory, made.ctl
    roles = ctl.roles[ctl.roles_seq & 1]
    holders = [roles.slot_proc[s] for s in range(made.layout.slots)]
    holders += [roles.checksum_proc[c] for c in range(made.layout.checksums)]
    if ctl.arranging == 1:
        for path in (*directory.glob("vault-*"), *directory.glob("lost-*")):
            path.unlink()
        ctl.arranging = 2  # from here on vaults are the new launch's
    for at, p in enumerate(holders):
        kept = directory / f"kept-{at}"
        if kept.exists():
            kept.rename(directory / f"vault-{p}")
    ctl.arranging = 0
