"""Reads from the control file everything that a plan depends on.

These are: who holds which role, who is alive, and what prevents each kind of recovery. `plan`
decides from them.
"""

from __future__ import annotations

from ..fabric.view import JobView
from ..host.errors import no_room
from ..native import job, logs
from ..native.shared import Slot
from . import causal, job_end
from .plan import FailureState
from .seating import Seating


def read_seats(view: JobView) -> Seating:
    """Read who has which role and who is alive."""
    # Spares are read before the roles: if a spare comes first only because another one has just
    # taken a role, then that role is seen below as taken.
    spares = view.spares()
    layout = view.layout
    alive = frozenset(p for p in view.all_procs() if view.alive(p))
    return Seating(
        slot_proc=view.slot_holders(),
        checksum_proc=view.checksum_holders(),
        slot_group=layout.slot_group,
        strength=layout.strength,
        alive=alive,
        ready=frozenset(p for p in alive if view.words.process(p).ready),
        spares=[p for p in spares if p in alive],
        domains=view.domains,
        aware=view.aware,
    )


def observe(view: JobView, *, full_memory: str = "") -> FailureState:
    """Read from the control file what `make_plan` needs.

    Args:
        full_memory: the result of `died_of_full_memory` from before the deaths were reported.
    """
    return FailureState(
        **vars(read_seats(view)),
        committed=view.words.committed,
        obstacle=obstacle(view),
        hindrance=hindrance(view),
        policy=view.policy,
        claimant=view.claimant,
        forfeit=view.may_forfeit,
        fresh=view.fresh,
        full_memory=full_memory,
        offered=view.takeover_pending,
        lost_with_node=frozenset(p for p in view.all_procs() if view.lost_with_node(p)),
        hopeless=job_end.killed_repeatedly(view.events()),
    )


def obstacle(view: JobView) -> str:
    """Say why the lost slots cannot be replayed; empty if they can."""
    if nobody_died(view):
        return ""
    refusal = view.words.refusal
    if view.claimant:  # a refusal says why all slots went back in a round that was cut short
        return refusal or f"{view.claimant} recovers"
    return causal.obstacle(
        view.policy, lost_slots(view), {s: logs_of(view, s) for s in view.all_slots()},
        view.words.committed, view.words.log_bytes, refusal,
    )


def lost_slots(view: JobView) -> list[Slot]:
    """Return the slots that have begun and lost their process, and those whose replay is not
    over."""
    now = read_seats(view)
    return [s for s, p in zip(view.all_slots(), now.slot_proc, strict=True)
            if (view.words.slot(s).replaying or p not in now.ready) and has_begun(view, s)]


def has_deaths(view: JobView) -> bool:
    """Say whether some death is not reported yet, or some slot's replay is not over."""
    processes = [view.words.process(p) for p in view.all_procs()]
    return (any(process.dead and not process.reported for process in processes)
            or any(view.words.slot(s).replaying for s in view.all_slots()))


def all_roles_ready(view: JobView) -> bool:
    """Say whether every role has a process that is ready."""
    now = read_seats(view)
    return now.ready >= {*now.slot_proc, *now.checksum_proc}


def nobody_died(view: JobView) -> bool:
    """Say whether this repair is about no death.

    This is so if somebody asked for a round, or if a death was noticed again after its repair.
    """
    last = view.plan
    amid_repair = last.round > view.words.repaired_round and not last.calm
    lacking = amid_repair or lost_slots(view) or view.words.refusal
    return all_roles_ready(view) and not lacking


def hindrance(view: JobView) -> str:
    """Say why the MPI library cannot go on without a process; empty if it can."""
    if not job.has_ulfm():
        return "this MPI library has no ULFM and cannot go on without a process"
    if view.words.failed_connects >= job.STUMBLES:
        return "the MPI library cannot make a communicator of the slots any more"
    if view.words.dynamic:
        return "a window of the MPI library's own (Create_dynamic) does not outlive a process"
    if view.words.partitioned:
        return "the MPI library's partitioned communication is lost with a process"
    return ""


def died_of_full_memory(view: JobView) -> str:
    """Say in words that somebody died because shared memory was full; empty if nobody did.

    Only deaths count that are not reported yet.
    """
    for proc in view.all_procs():
        process = view.words.process(proc)
        if process.dead and not process.reported and process.lacked_memory:
            return no_room(view.host_of(proc))
    return ""


def has_begun(view: JobView, slot: Slot) -> bool:
    """Say whether the slot has come to the program in this attempt.

    If it has not, the process that takes the slot begins the program, and nothing is replayed.
    """
    return view.words.slot(slot).entered == view.words.attempt


def logs_of(view: JobView, slot: Slot) -> causal.Logs:
    """Read whether a slot's logs since the committed version can be used for a replay."""
    if view.policy != "rollback" and not has_begun(view, slot):
        return causal.Logs()
    return causal.Logs(*logs.mark_broken(slot, view.words.committed))
