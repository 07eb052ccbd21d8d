"""Repair: rounds until one ends with everybody.

A round is a table of steps. Each step belongs to a phase, and all living processes meet at the
beginning of each phase, so a step can rely on what all have done in the phases before. Another
failure ends a round at its next meeting, and the next round begins. No process leaves a repair
unless all do. `plan` decides how the failure is repaired.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from ..fabric.round_changed import RoundChanged
from ..fabric.story import Phases
from ..fabric.view import JobView
from ..native import job
from ..vault.group import own_vault
from ..vault.vault import Vault
from . import leading
from . import repair_steps as steps
from .repair_round import Repaired, RepairProgress, RepairRound


class Phase(IntEnum):
    """Phases of a round. All processes meet at the beginning of each phase but the first."""

    BEGIN = 0
    GATHERED = 1  # all living processes have come
    SETTLED = 2  # every vault is at the committed version
    SEATED = 3  # every role has a living process
    SLOTS_RESTORED = 4  # every slot's vault is whole
    RESTORED = 5  # every vault is whole
    READY = 6  # all can go on


assert max(Phase) == job.LAST_PHASE


def everybody(now: RepairRound) -> bool:
    return True


def leader(now: RepairRound) -> bool:
    return now.leads


def others(now: RepairRound) -> bool:
    return not now.leads


def slots(now: RepairRound) -> bool:
    return now.holds_slot


def slots_if_causal(now: RepairRound) -> bool:
    return now.causal and now.holds_slot


def lost_slots(now: RepairRound) -> bool:
    return now.vault_lost and now.holds_slot


def checksum_ranks(now: RepairRound) -> bool:
    return now.holds_checksum


def everybody_if_going_back(now: RepairRound) -> bool:
    return not now.causal


class Step(NamedTuple):
    """An action that some processes take after the meeting of a phase."""

    phase: Phase
    who: Callable[[RepairRound], bool]
    action: Callable[[RepairRound], None]


STEPS = (
    Step(Phase.BEGIN, everybody, steps.stop_commits),
    Step(Phase.BEGIN, everybody, steps.complete_accesses),
    Step(Phase.GATHERED, everybody, steps.resume_going_back),
    Step(Phase.GATHERED, slots, steps.refuse_without_threads),
    Step(Phase.GATHERED, everybody, steps.settle_vault),
    Step(Phase.GATHERED, everybody, steps.hold_accesses),
    Step(Phase.SETTLED, everybody, steps.read_connect_request),
    Step(Phase.SETTLED, everybody, steps.log_answers),
    Step(Phase.SETTLED, everybody, steps.choose_leader),
    Step(Phase.SETTLED, leader, leading.lead),
    Step(Phase.SETTLED, others, steps.await_plan),
    Step(Phase.SETTLED, everybody, steps.end_if_asked),
    Step(Phase.SETTLED, everybody, steps.forget_vaults),
    Step(Phase.SETTLED, everybody, steps.take_role),
    Step(Phase.SEATED, everybody, steps.begin_restoring),
    Step(Phase.SEATED, slots_if_causal, steps.repair_windows),
    Step(Phase.SEATED, slots_if_causal, steps.fetch_logs),
    Step(Phase.SEATED, lost_slots, steps.restore_slot),
    Step(Phase.SLOTS_RESTORED, checksum_ranks, steps.restore_parity),
    Step(Phase.RESTORED, everybody, steps.connect),
    Step(Phase.RESTORED, everybody_if_going_back, steps.go_back),
    Step(Phase.RESTORED, slots, steps.share_communicator),
    Step(Phase.RESTORED, everybody, steps.release_accesses),
    Step(Phase.READY, leader, leading.conclude),
    Step(Phase.READY, everybody, steps.clean_up),
)


def repair(view: JobView, vault: Vault | None) -> tuple[Vault | None, Repaired]:
    """Run repair rounds until all processes finish one.

    Args:
        view: this process's view of the job.
        vault: this process's vault; a spare's is empty with its memory allocated ahead, or None.

    Returns:
        The vault of this process's role from now on, and how the failure was repaired.

    Raises:
        LaunchEnded: the job is given up or launched again, and nothing is left to do here.
    """
    progress = RepairProgress()
    while True:
        now = RepairRound(view, view.begin_round(), vault, progress)
        try:
            run_steps(now)
            return now.vault, outcome(now)
        except RoundChanged:
            if view.is_ending():
                return now.vault, program_ended(now)
            progress.eventful |= view.plan.round >= now.number and not view.plan.calm
            if vault is None and view.words.me.ready and view.vault_path(view.proc).exists():
                vault = own_vault(view, create=False)


def program_ended(now: RepairRound) -> Repaired:
    """Say that nothing is to be repaired, since the program has ended on all slots.

    Over several nodes, one node may notice a death while another node ends the job.
    """
    nothing = Phases(detect=0.0, repair=0.0, restore=0.0)
    return Repaired(False, now.number, "causal", now.view.words.committed, 0.0, nothing,
                    silent=True, died=False)


def run_steps(now: RepairRound) -> None:
    """Do this process's steps of a round.

    Raises:
        RoundChanged: another failure came.
        LaunchEnded: as `repair`.
    """
    phase = Phase.BEGIN
    for step in STEPS:
        if step.phase != phase:
            phase = step.phase
            # Only before the plan may a role's holder be dead.
            now.view.meet(now.number, phase, planned=phase >= Phase.SEATED)
            now.met_s[phase] = time.monotonic()
        if step.who(now):
            step.action(now)


def outcome(now: RepairRound) -> Repaired:
    """Say how the failure was repaired, after the last step of a round."""
    view, progress = now.view, now.progress
    gathered, seated, restored = (
        now.met_s[p] for p in (Phase.GATHERED, Phase.SEATED, Phase.RESTORED))
    since = time.monotonic() - gathered
    # The death of a lost node's last process may be noticed at the end of the repair.
    seconds = max((job.now_ns() - view.words.death_ns) / 1e9, since)
    phases = Phases(
        detect=seconds - since,
        repair=(seated - gathered) + (time.monotonic() - restored),
        restore=restored - seated,
    )
    back = "reentry" if view.claimant else "rollback"
    silent = view.plan.calm and not progress.went_back and not progress.eventful
    return Repaired(
        now.leads, now.number, back if progress.went_back else "causal", view.words.committed,
        seconds, phases, silent=silent, died=progress.died,
    )
