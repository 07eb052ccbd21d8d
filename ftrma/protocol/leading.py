"""The leader's part of a repair round: report the deaths, make the plan, publish it, conclude."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CATASTROPHE
from ..fabric.plans import PublishedPlan
from ..fabric.world import World
from ..native import job, logs
from ..native.constants import PlanKind
from ..native.shared import Proc, Slot
from . import job_end
from .deaths import note_lost_results, report_deaths
from .failure_state import (
    all_roles_ready,
    died_of_full_memory,
    has_begun,
    has_deaths,
    nobody_died,
    observe,
)
from .plan import GO_BACK, IN_PLACE, FailureState, Plan, make_plan
from .repair_round import RepairRound

FROZEN = 1  # in the word `commit`, with the version above it: version 0


def lead(now: RepairRound) -> None:
    """The leader: make the plan of this round. All others wait for it in `await_plan`."""
    world = now.world
    now.progress.died |= not all_roles_ready(world) or has_deaths(world)
    full_memory = died_of_full_memory(world)  # it looks at deaths that are not reported yet
    report_deaths(world)
    for checksum in range(world.ctl.nchecksums):
        if not world.ready(world.roles.checksum_proc[checksum]):
            note_lost_results(world, checksum)
    before, calm = observe(world, full_memory=full_memory), nobody_died(world)
    chosen = make_plan(before)
    dead = dead_slots(world, before)
    in_place = chosen.kind in IN_PLACE
    if in_place:
        put_in_force(world, chosen)
    replayed = tuple(s for s in dead if in_place and world.ctl.slots[s].replaying)
    world.publish_plan(PublishedPlan(
        chosen.kind, now.number, world.committed, chosen.reason, dead, replayed, calm
    ))
    if not in_place:
        ask_for_end(world, chosen.kind)
    world.store("plan_round", now.number)  # last: who waits for this word finds all the rest
    job.ring()
    world.repairing(now.number)


def dead_slots(world: World, before: FailureState) -> tuple[Slot, ...]:
    """Slots whose process has died in this repair, or whose replay is not over.

    Args:
        before: before spares are seated.
    """
    dead = {s for s, p in zip(world.slots_of_job(), before.slot_proc, strict=True)
            if p not in before.alive or world.ctl.slots[s].replaying}
    last = world.plan
    if last.round > world.load("repaired"):  # that round was cut short
        dead.update(last.dead)
    return tuple(sorted(dead))


def put_in_force(world: World, chosen: Plan) -> None:
    """Put a plan by which the job goes on in force: roles, and what goes with them."""
    for proc in world.procs_of_job():
        if not world.alive(proc):
            world.lose_vault(proc)  # its memory died with it
    if chosen.kind in GO_BACK:
        # If this round is started over, all go back in the next one, too.
        logs.keep_refusal(chosen.reason)
    publish(world, chosen)


def publish(world: World, chosen: Plan) -> None:
    """Put the roles of a plan in force by one store."""
    causal = chosen.kind == PlanKind.CAUSAL
    world.store("causal", causal)
    if causal:
        begin_replays(world, chosen.slot_proc)
    if chosen.forfeited:
        world.store("commit", FROZEN)
    ctl = world.ctl
    old, new = ctl.roles[ctl.roles_seq & 1], ctl.roles[(ctl.roles_seq + 1) & 1]
    for s in world.slots_of_job():
        new.slot_proc[s] = chosen.slot_proc[s]
        new.slot_group[s] = old.slot_group[s]
    for c in range(ctl.nchecksums):
        new.checksum_proc[c] = chosen.checksum_proc[c]
    world.store("roles_seq", ctl.roles_seq + 1)


def begin_replays(world: World, slot_proc: Sequence[Proc]) -> None:
    """Prepare the replay of each slot that gets another process.

    Args:
        slot_proc: holders of the slots from now on.
    """
    ctl, holders = world.ctl, world.holders()
    for s, before, after in zip(world.slots_of_job(), holders, slot_proc, strict=True):
        if after == before:
            continue
        # Slot 0 names the next checkpoint's safepoint by how far everybody has come.
        ctl.proc[after].ordinal = ctl.proc[before].ordinal
        # Others may compare it before the replacement has come so far.
        ctl.proc[after].protect_hash = ctl.proc[before].protect_hash
        if has_begun(world, s):
            ctl.slots[s].replaying = 1
            world.store("replays", 1)
    if slot_proc[0] != holders[0]:
        withdraw_target(world, slot_proc[1:])


def withdraw_target(world: World, others: Sequence[Proc]) -> None:
    """Take the target back if a slot has not arrived there; it is named anew.

    Slot 0 names the safepoint of the next checkpoint, and may have died before it had seen that
    nobody had passed it.

    Args:
        others: holders of the other slots.
    """
    if any(world.ctl.proc[proc].arrived < world.load("target") for proc in others):
        world.store("target", 0)
        world.store("wanted", 1)


def ask_for_end(world: World, kind: PlanKind) -> None:
    """Have the supervisor end the launch, since the plan does not go on in place."""
    relaunch = kind == PlanKind.RELAUNCH
    request = job.Request.RELAUNCH if relaunch else job.Request.ABORT
    status = job_end.KILLED if kind == PlanKind.REPEATED else CATASTROPHE
    world.ask_for_end(request, status)


def conclude(now: RepairRound) -> None:
    """The leader: end the repair for all. Commits go on, and the supervisor is told."""
    world = now.world
    world.store("commit", world.committed << 1)
    world.ctl.refusal[0] = b"\0"
    world.store("connect", 0)
    world.store("stumbles", 0)
    world.taken_over()
    world.store("repaired", now.number)
    world.repaired(now.number)
