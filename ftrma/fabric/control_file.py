"""Makes a job's directory and the control file in it, and decides their sizes."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from ..host import cgroup
from ..host.errors import FtrmaError
from ..machine.placement import Placement
from ..machine.topology import Layout
from ..native import job, logs, vaults
from ..native.constants import FAILPOINTS
from ..native.logs import check_budget
from ..native.shared import Control, Proc

ADDRESS_BYTES = 64 << 40  # half of a process's address space on x86-64


def capacity_blocks(processes: int, layout: Layout) -> int:
    """Return the capacity of a new vault: all memory of the machine, since the file is sparse.

    A process may map all vaults of its node and images of all vaults of its group at the same time.
    If they would not fit into its address space together, a vault has a smaller capacity.

    Args:
        processes: number of processes on this node.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4096
    share = ADDRESS_BYTES // (processes + layout.group_size + layout.strength)
    return min(memory, share // vaults.block_bytes(layout.group_size))


LOG_BYTES = 64 << 20  # default budget: lasts for seconds in a program that only puts
LOG_SHARE = 8  # all logs together take at most this part of the free shared memory by default


def log_bytes(directory: Path, slots: int, least: int) -> int:
    """Return the default budget of each slot's logs, in bytes."""
    room, allowed = os.statvfs(directory), cgroup.room_bytes()
    free = room.f_bavail * room.f_frsize
    share = (free if allowed is None else min(free, allowed)) // LOG_SHARE // slots
    return max(least, min(LOG_BYTES, share))


def make_control(
    path: Path, layout: Layout, log_budget: int | None = None, processes: int | None = None
) -> Control:
    """Make a job's control file.

    Args:
        log_budget: budget of each slot's logs in bytes; None: the default.
        processes: number of processes on this node; None: all of the job.
    """
    ctl = job.make_control(path, layout.processes, layout.slots, layout.groups, layout.strength,
                           layout.group_size,
                           capacity_blocks(processes or layout.processes, layout))
    ctl.log_bytes = log_budget or log_bytes(path.parent, layout.slots, logs.log_least())
    for slot in range(layout.slots):
        ctl.roles[0].slot_group[slot] = layout.group_of(slot)
    return ctl


def write_roles(ctl: Control, placement: Placement) -> None:
    """Write the roles that a launch begins with."""
    table = ctl.roles[ctl.roles_seq & 1]
    for s, p in enumerate(placement.slot_proc):
        table.slot_proc[s] = Proc(p)
    for c, p in enumerate(placement.checksum_proc):
        table.checksum_proc[c] = Proc(p)
    for number, p in enumerate(placement.spares):
        ctl.proc[p].spare = number


def make_job_directory(
    layout: Layout, log_budget: int | None = None, base: str = "/dev/shm"
) -> Path:
    """Make a job's directory with its control file."""
    check_budget(log_budget)
    directory = Path(base) / f"ftrma-{os.getuid()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir(mode=0o700)  # fails if it exists, so it is nobody else's
        make_control(directory / "control", layout, log_budget)
        job.make_story(directory / "events")
    except (OSError, FtrmaError) as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise FtrmaError(
            f"no shared memory for the job ({error}): make room in {base} and see that it is "
            "writable"
        ) from error
    return directory


def place_of_kill(ctl: Control, role: int, index: int) -> str:
    """Return the place where a ``--kill`` rule struck a role, only once; "unknown" if none did."""
    names = {number: name for name, number in FAILPOINTS.items()}
    for i in range(ctl.nrules):
        rule = ctl.rules[i]
        if rule.fired == 1 and rule.role == role and rule.index == index:
            rule.fired = 2
            return names.get(rule.failpoint) or job.text(rule.name)
    return "unknown"
