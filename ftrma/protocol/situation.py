"""What a repair knows: who has which seat, who lives, what stands in the way of each way back.

Read from the control file, for `plan` to decide on.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import no_room
from ..fabric.world import World
from ..native import job, logs
from ..native.shared import Slot
from . import causal, ends
from .plan import Situation


def seats(world: World) -> Situation:
    """Read who has which seat and who lives."""
    # Before the seats: a spare that comes first only because another has just been seated then
    # sees that seat taken.
    spares = world.spares()
    ctl, roles = world.ctl, world.roles
    alive = frozenset(p for p in world.procs_of_job() if world.alive(p))
    return Situation(
        slot_proc=world.holders(),
        checksum_proc=world.servers(),
        slot_group=[roles.slot_group[s] for s in world.slots_of_job()],
        strength=ctl.strength,
        alive=alive,
        ready=frozenset(p for p in alive if ctl.proc[p].ready),
        spares=[p for p in spares if p in alive],
        committed=world.committed,
    )


def observe(world: World, *, starved: str = "") -> Situation:
    """Read the situation that `plan` needs from the control file.

    Args:
        starved: as `starved` said before the deaths were reported.
    """
    now, ctl, lost = seats(world), world.ctl, lost_slots(world)
    if is_calm(world):
        obstacle = ""
    elif world.claimant:  # why it was in a round that was cut short, or simply so
        obstacle = job.refusal(ctl) or f"{world.claimant} recovers"
    else:
        obstacle = causal.obstacle(
            world.policy, lost, {s: logs_of(world, s) for s in world.slots_of_job()},
            world.committed, ctl.log_bytes, job.refusal(ctl),
        )
    return replace(
        now,
        obstacle=obstacle,
        hindrance=hindrance(world),
        policy=world.policy,
        claimant=world.claimant,
        forfeit=world.forfeits,
        fresh=world.fresh,
        starved=starved,
        offered=world.offered,
        doomed=ends.repeated(world.events()),
        domains=world.domains,
        aware=world.aware,
    )


def lost_slots(world: World) -> list[Slot]:
    """Slots that have begun and lost their process, or that its replacement has not replayed."""
    now = seats(world)
    return [s for s, p in zip(world.slots_of_job(), now.slot_proc, strict=True)
            if (world.ctl.slots[s].replaying or p not in now.ready) and has_begun(world, s)]


def has_deaths(world: World) -> bool:
    """Somebody has died and is not replaced, or not replayed."""
    entries = [world.ctl.proc[p] for p in world.procs_of_job()]
    return (any(entry.state == job.State.DEAD and not entry.reported for entry in entries)
            or any(world.ctl.slots[s].replaying for s in world.slots_of_job()))


def is_whole(world: World) -> bool:
    """Every role has a process that is ready."""
    now = seats(world)
    return now.ready >= {*now.slot_proc, *now.checksum_proc}


def is_calm(world: World) -> bool:
    """Nobody has died: a round was asked for, or a death was noticed again after its repair."""
    last = world.plan
    amid_repair = last.round > world.load("repaired") and not last.calm
    lacking = amid_repair or lost_slots(world) or job.refusal(world.ctl)
    return is_whole(world) and not lacking


def hindrance(world: World) -> str:
    """Why the MPI library cannot go on without a process; empty if it can."""
    if not job.has_ulfm():
        return "this MPI library has no ULFM and cannot go on without a process"
    if world.load("stumbles") >= job.STUMBLES:
        return "the MPI library cannot make a communicator of the slots any more"
    if world.load("dynamic"):
        return "a window of the MPI library's own (Create_dynamic) does not outlive a process"
    if world.ctl.partitioned:
        return "the MPI library's partitioned communication is lost with a process"
    return ""


def starved(world: World) -> str:
    """Say that shared memory was full and somebody died of it, whose death is not reported yet."""
    for proc in world.procs_of_job():
        entry = world.ctl.proc[proc]
        if (entry.state == job.State.DEAD and not entry.reported
                and entry.leaving & job.Left.BY_MEMORY):
            return no_room(world.host_of(proc))
    return ""


def has_begun(world: World, slot: Slot) -> bool:
    """The slot has come to the program in this entry; else whoever takes it just begins."""
    return world.ctl.slots[slot].entered == world.ctl.entry


def logs_of(world: World, slot: Slot) -> causal.Logs:
    """What a slot's logs are good for since the committed version."""
    if world.policy != "rollback" and not has_begun(world, slot):
        return causal.Logs()
    return causal.Logs(*logs.mark_broken(slot, world.committed))
