"""Reads from the control file what a plan depends on.

That is who holds which role, who lives, and what stands in the way of each way back. `plan` decides
on it.
"""

from __future__ import annotations

from ..errors import no_room
from ..fabric.world import World
from ..native import job, logs
from ..native.shared import Slot
from . import causal, job_end
from .plan import FailureState
from .seating import Seating


def read_seats(world: World) -> Seating:
    """Read who has which role and who lives."""
    # Before the roles: if a spare comes first only because another one has just taken a role, then
    # that role is not vacant any more below.
    spares = world.spares()
    ctl, roles = world.ctl, world.roles
    alive = frozenset(p for p in world.procs_of_job() if world.alive(p))
    return Seating(
        slot_proc=world.holders(),
        checksum_proc=world.servers(),
        slot_group=[roles.slot_group[s] for s in world.slots_of_job()],
        strength=ctl.strength,
        alive=alive,
        ready=frozenset(p for p in alive if ctl.proc[p].ready),
        spares=[p for p in spares if p in alive],
        domains=world.domains,
        aware=world.aware,
    )


def observe(world: World, *, full_memory: str = "") -> FailureState:
    """Read from the control file what `make_plan` needs.

    Args:
        full_memory: as `died_of_full_memory` said before the deaths were reported.
    """
    return FailureState(
        **vars(read_seats(world)),
        committed=world.committed,
        obstacle=obstacle(world),
        hindrance=hindrance(world),
        policy=world.policy,
        claimant=world.claimant,
        forfeit=world.forfeits,
        fresh=world.fresh,
        full_memory=full_memory,
        offered=world.offered,
        hopeless=job_end.killed_repeatedly(world.events()),
    )


def obstacle(world: World) -> str:
    """Say why the lost slots cannot be replayed; empty if they can."""
    if nobody_died(world):
        return ""
    refusal = job.refusal(world.ctl)
    if world.claimant:  # a refusal says why all went back in a round that was cut short
        return refusal or f"{world.claimant} recovers"
    return causal.obstacle(
        world.policy, lost_slots(world), {s: logs_of(world, s) for s in world.slots_of_job()},
        world.committed, world.ctl.log_bytes, refusal,
    )


def lost_slots(world: World) -> list[Slot]:
    """Slots that have begun and have lost their process, or whose replay is not over."""
    now = read_seats(world)
    return [s for s, p in zip(world.slots_of_job(), now.slot_proc, strict=True)
            if (world.ctl.slots[s].replaying or p not in now.ready) and has_begun(world, s)]


def has_deaths(world: World) -> bool:
    """Say whether a death is not reported yet, or a slot not replayed."""
    entries = [world.ctl.proc[p] for p in world.procs_of_job()]
    return (any(entry.state == job.State.DEAD and not entry.reported for entry in entries)
            or any(world.ctl.slots[s].replaying for s in world.slots_of_job()))


def all_roles_ready(world: World) -> bool:
    """Say whether every role has a process that is ready."""
    now = read_seats(world)
    return now.ready >= {*now.slot_proc, *now.checksum_proc}


def nobody_died(world: World) -> bool:
    """Say whether this repair is about no death.

    A round was asked for, or a death was noticed again after its repair.
    """
    last = world.plan
    amid_repair = last.round > world.load("repaired") and not last.calm
    lacking = amid_repair or lost_slots(world) or job.refusal(world.ctl)
    return all_roles_ready(world) and not lacking


def hindrance(world: World) -> str:
    """Say why the MPI library cannot go on without a process; empty if it can."""
    if not job.has_ulfm():
        return "this MPI library has no ULFM and cannot go on without a process"
    if world.load("stumbles") >= job.STUMBLES:
        return "the MPI library cannot make a communicator of the slots any more"
    if world.load("dynamic"):
        return "a window of the MPI library's own (Create_dynamic) does not outlive a process"
    if world.ctl.partitioned:
        return "the MPI library's partitioned communication is lost with a process"
    return ""


def died_of_full_memory(world: World) -> str:
    """Say in words that somebody died because shared memory was full; empty if nobody did.

    Only deaths count that are not reported yet.
    """
    for proc in world.procs_of_job():
        entry = world.ctl.proc[proc]
        if (entry.state == job.State.DEAD and not entry.reported
                and entry.leaving & job.Left.BY_MEMORY):
            return no_room(world.host_of(proc))
    return ""


def has_begun(world: World, slot: Slot) -> bool:
    """Say whether the slot has come to the program in this attempt.

    If not, whoever takes the slot begins the program, and nothing is replayed.
    """
    return world.ctl.slots[slot].entered == world.ctl.attempt


def logs_of(world: World, slot: Slot) -> causal.Logs:
    """Read what a slot's logs are good for since the committed version."""
    if world.policy != "rollback" and not has_begun(world, slot):
        return causal.Logs()
    return causal.Logs(*logs.mark_broken(slot, world.committed))
