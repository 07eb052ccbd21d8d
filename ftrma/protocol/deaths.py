"""Reports deaths in the job's story, and notes what is lost with a process."""

from __future__ import annotations

from ..fabric.story import Failure
from ..fabric.view import JobView
from ..fabric.words import ProcessWords
from ..native import logs
from ..native.constants import CHECKSUM, ROLE_NAMES, SLOT, SPARE
from ..native.shared import Slot
from . import job_end
from .failure_state import has_begun


def report_deaths(view: JobView) -> None:
    """Add each death that is not yet in the job's story to it, once."""
    told = view.claimant if view.tells_deaths else ""
    for p in view.all_procs():
        process = view.words.process(p)
        if not process.dead or process.reported:
            continue
        role, index = view.role_of(p)
        if not view.words.first_to_report(p):
            continue  # another process has just reported it
        at, waited = None, False
        if role == SLOT:
            at, waited = progress_at_death(view, Slot(index), process)
        view.emit(Failure(
            role=ROLE_NAMES[role], index=index, pid=process.pid,
            place=view.place_of_kill(role, index), host=view.host_of(p), at=at,
            waited=waited, step=job_step(view), repair=view.words.repaired_round,
        ))
        if told and role != CHECKSUM and (role, index) != (SLOT, 0):
            view.tell(f"{ROLE_NAMES[role]} {index} died (process {process.pid}); {told} goes on "
                      "without it")
        elif role == SPARE:
            view.tell(f"spare {index} died (process {process.pid}); the program goes on")
            view.report_lost_spare(p)


def report_deaths_of_servers(view: JobView) -> None:
    """Report deaths if a checksum rank or a spare has died.

    Deaths of slots are reported by the leader of a repair, with the roles that they had. Where a
    framework is told of deaths, they cause no repair, and slot 0's process reports them.
    """
    others = set(view.all_procs())
    if view.tells_deaths and view.several_nodes:
        return  # slot 0's process reports them when it tells the framework
    if not view.tells_deaths:
        others -= set(view.slot_holders())
    if any(words.dead and not words.reported for words in map(view.words.process, others)):
        report_deaths(view)


def job_step(view: JobView) -> int | None:
    """Say how far the slots have come, see `job_end.step_of`; None for a framework's own steps."""
    if view.claimant:
        return None
    holders = [view.words.process(p) for p in view.slot_holders()]
    return job_end.step_of(
        (words.step for words in holders),
        (view.words.slot(slot).events or words.syncs
         for slot, words in zip(view.all_slots(), holders, strict=True)))


def progress_at_death(
    view: JobView, slot: Slot, process: ProcessWords
) -> tuple[tuple[int, int], bool]:
    """Say how far a dead slot had come since the committed version, and whether it waited."""
    words, version = view.words.slot(slot), view.words.committed
    mark = words.marks[version & 1]
    events = words.events - mark.events if mark.version == version else -1
    if not words.events or not has_begun(view, slot):
        events = -int(process.syncs)  # without logs no events are counted
    return (version, int(events)), process.waits


def note_lost_results(view: JobView, checksum: int) -> None:
    """Note that the result logs that a dead checksum rank held are lost.

    The first checksum rank of a group holds the result logs of the group's slots.
    """
    group = view.layout.group_of_checksum(checksum)
    if checksum == view.layout.checksums_of(group)[0]:
        for slot in view.layout.members(group):
            logs.results_lost(slot)
