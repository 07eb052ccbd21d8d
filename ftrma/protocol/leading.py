"""The leader's part of a repair round: report the deaths, make the plan, publish it, conclude."""

from __future__ import annotations

from collections.abc import Sequence

from ..fabric.plans import PublishedPlan
from ..fabric.view import JobView
from ..host.errors import CATASTROPHE
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
    view = now.view
    now.progress.died |= not all_roles_ready(view) or has_deaths(view)
    full_memory = died_of_full_memory(view)  # it looks at deaths that are not reported yet
    report_deaths(view)
    for checksum in range(view.layout.checksums):
        if not view.ready(view.checksum_holders()[checksum]):
            note_lost_results(view, checksum)
    before, calm = observe(view, full_memory=full_memory), nobody_died(view)
    chosen = make_plan(before)
    dead = dead_slots(view, before)
    in_place = chosen.kind in IN_PLACE
    if in_place:
        put_in_force(view, chosen)
    replayed = tuple(s for s in dead if in_place and view.words.slot(s).replaying)
    view.publish_plan(PublishedPlan(
        chosen.kind, now.number, view.words.committed, chosen.reason, dead, replayed, calm
    ))
    if not in_place:
        ask_for_end(view, chosen.kind, chosen.reason)
    view.words.plan_round = now.number  # last: processes that wait for it find the rest
    view.ring()
    view.report_plan(now.number)


def dead_slots(view: JobView, before: FailureState) -> tuple[Slot, ...]:
    """Slots whose process has died in this repair, or whose replay is not over.

    Args:
        before: the state before spares are seated.
    """
    dead = {s for s, p in zip(view.all_slots(), before.slot_proc, strict=True)
            if p not in before.alive or view.words.slot(s).replaying}
    last = view.plan
    if last.round > view.words.repaired_round:  # that round was cut short
        dead.update(last.dead)
    return tuple(sorted(dead))


def put_in_force(view: JobView, chosen: Plan) -> None:
    """Put in force a plan by which the job goes on: the roles, and what belongs to them."""
    for proc in view.all_procs():
        if not view.alive(proc):
            view.put_vault_aside(proc)  # its memory died with it
    if chosen.kind in GO_BACK:
        # If this round is cut short, all slots go back in the next one, too.
        logs.keep_refusal(chosen.reason)
    publish(view, chosen)


def publish(view: JobView, chosen: Plan) -> None:
    """Put the roles of a plan in force by one store."""
    causal = chosen.kind == PlanKind.CAUSAL
    view.words.causal = causal
    if causal:
        begin_replays(view, chosen.slot_proc)
    if chosen.forfeited:
        view.words.forfeit()
    view.set_holders(chosen.slot_proc, chosen.checksum_proc)


def begin_replays(view: JobView, slot_proc: Sequence[Proc]) -> None:
    """Prepare the replay of each slot that gets another process.

    Args:
        slot_proc: holders of the slots from now on.
    """
    words, holders = view.words, view.slot_holders()
    for s, before, after in zip(view.all_slots(), holders, slot_proc, strict=True):
        if after == before:
            continue
        # Slot 0 chooses the next checkpoint's safepoint by how far each process has come.
        words.process(after).ordinal = words.process(before).ordinal
        words.process(after).step = words.process(before).step
        # Others may compare this hash before the replacement has come that far.
        words.process(after).protect_hash = words.process(before).protect_hash
        if has_begun(view, s):
            words.slot(s).replaying = 1
            words.replays = 1
    if slot_proc[0] != holders[0]:
        withdraw_target(view, slot_proc[1:])


def withdraw_target(view: JobView, others: Sequence[Proc]) -> None:
    """Withdraw the target of the next checkpoint if a slot has not arrived there; a new one is
    named.

    Slot 0 names this target, and may have died before it had checked that no slot had passed it.

    Args:
        others: holders of the other slots.
    """
    if any(view.words.process(proc).arrived < view.words.checkpoint_target for proc in others):
        view.words.checkpoint_target = 0
        view.words.checkpoint_wanted = 1


def ask_for_end(view: JobView, kind: PlanKind, reason: str) -> None:
    """Have the supervisor end the launch, since the plan does not go on in place."""
    relaunch = kind == PlanKind.RELAUNCH
    request = job.Request.RELAUNCH if relaunch else job.Request.ABORT
    status = job_end.KILLED if kind == PlanKind.REPEATED else CATASTROPHE
    why = job_end.why_given_up(kind, reason) or reason
    view.ask_for_end(request, status, why)


def conclude(now: RepairRound) -> None:
    """The leader: end the repair for all. Commits go on, and the supervisor is told."""
    view = now.view
    view.words.allow_commits()
    view.words.clear_refusal()
    view.words.connect_wanted = 0
    view.words.failed_connects = 0
    view.finish_takeover()
    view.words.repaired_round = now.number
    view.report_repaired(now.number)
