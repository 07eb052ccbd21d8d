"""Reports deaths in the job's story, and notes what is lost with a process."""

from __future__ import annotations

from ..fabric.story import Failure
from ..fabric.world import World
from ..native import job, logs
from ..native.constants import FAILPOINTS, ROLE_NAMES, SLOT, SPARE
from ..native.shared import Control, Process, Slot
from .failure_state import has_begun


def report_deaths(world: World) -> None:
    """Put every death that is not yet in the job's story there, once."""
    for p in world.procs_of_job():
        entry = world.ctl.proc[p]
        if entry.state != job.State.DEAD or entry.reported:
            continue
        role, index = job.role_of(world.ctl, p)
        if not job.exchange(entry, "reported", 0, 1):
            continue  # another process has just reported it
        at, waited = progress_at_death(world, Slot(index), entry) if role == SLOT else (None, False)
        world.emit(Failure(
            role=ROLE_NAMES[role], index=index, pid=entry.pid,
            place=place_of_kill(world.ctl, role, index), host=world.host_of(p), at=at,
            waited=waited,
        ))
        if role == SPARE:
            world.tell(f"spare {index} died (process {entry.pid}); the program goes on")
            world.lost_spare(p)


def report_deaths_of_servers(world: World) -> None:
    """Report deaths if a checksum rank or a spare has died.

    The leader of a repair reports the deaths of slots, with the roles that they had.
    """
    holders = set(world.holders())
    if any(
        world.ctl.proc[p].state == job.State.DEAD and not world.ctl.proc[p].reported
        for p in world.procs_of_job()
        if p not in holders
    ):
        report_deaths(world)


def progress_at_death(world: World, slot: Slot, entry: Process) -> tuple[tuple[int, int], bool]:
    """Say how far a dead slot had come since the committed version, and whether it waited."""
    words, version = world.ctl.slots[slot], world.committed
    mark = words.marks[version & 1]
    events = words.events - mark.events if mark.version == version else -1
    if not words.events or not has_begun(world, slot):
        events = -int(entry.syncs)  # without logs no events are counted
    return (version, int(events)), bool(entry.waiting or job.is_in_call(entry))


def place_of_kill(ctl: Control, role: int, index: int) -> str:
    """Name the place where a ``--kill`` rule struck; "unknown" for a death from outside."""
    names = {number: name for name, number in FAILPOINTS.items()}
    for i in range(ctl.nrules):
        rule = ctl.rules[i]
        if rule.fired == 1 and rule.role == role and rule.index == index:
            rule.fired = 2
            return names.get(rule.failpoint) or job.text(rule.name)
    return "unknown"


def note_lost_results(world: World, checksum: int) -> None:
    """Note that the result logs are lost which a dead checksum rank held.

    The first checksum rank of a group holds those of the group's slots.
    """
    group = world.group_of_checksum(checksum)
    if checksum == world.checksums_of(group)[0]:
        for slot in world.members(group):
            logs.results_lost(slot)
