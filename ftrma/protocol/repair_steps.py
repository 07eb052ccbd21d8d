"""Actions of a repair round, in the order of the table in `repair`.

Each docstring says who takes the step and who relies on it. Every step may be taken again in a
later round, even if it was cut short before.
"""

from __future__ import annotations

from ..fabric.round_changed import RoundChanged
from ..fabric.view import JobView
from ..native import job, logs, vaults
from ..native.constants import CHECKSUM, HELD_WINDOWS, SLOT, PlanKind
from ..native.shared import Slot, Version
from ..vault.group import forget_vault, own_vault
from . import causal, restoring
from .failure_state import has_begun
from .plan import GO_BACK
from .repair_round import LaunchEnded, RepairRound


def raise_unless_ok(ended: job.Wait) -> None:
    """Raise RoundChanged if a wait was cut short by another failure."""
    if ended is not job.Wait.OK:
        raise RoundChanged


def change_round(now: RepairRound) -> None:
    """Have all processes begin another round, and raise RoundChanged."""
    now.view.raise_alarm(now.number)
    raise RoundChanged


# ---- phase BEGIN ----------------------------------------------------------------------------


def stop_commits(now: RepairRound) -> None:
    """All: forbid commits from here to the end of the repair.

    `settle_vault` relies on it: all see the same committed version.
    """
    now.view.words.forbid_commits()
    job.comm_forget(now.number)
    now.view.visit("repair")


def complete_accesses(now: RepairRound) -> None:
    """All, once in a repair: wait until this process's accesses to other nodes are complete.

    No process accesses a window before the repair's end. A replay relies on this: the put logs of
    the survivors are complete.
    """
    if not now.progress.flushed:
        raise_unless_ok(job.far_quiet(now.number))
    now.progress.flushed = True


# ---- phase GATHERED -------------------------------------------------------------------------


def resume_going_back(now: RepairRound) -> None:
    """All: forget the ending attempt if all went back in an earlier round that was cut short.

    In that round some processes had gone back and others had not. The nodes' agents rely on this
    step: they refuse everything that is left of that attempt.
    """
    last = now.view.plan
    if last.kind in GO_BACK and last.round > now.view.words.repaired_round:
        now.view.end_attempt(last.round)


def refuse_without_threads(now: RepairRound) -> None:
    """Slots: refuse a replay if another thread's call of MPI was cut off.

    The leader reads the refusal when it makes the plan.
    """
    if job.loses_threads():
        slot = now.view.role()[1]
        logs.keep_refusal(f"another thread of slot {slot} was in a call of MPI")
        now.view.words.connect_wanted = 1  # now, or it would need one more repair


def settle_vault(now: RepairRound) -> None:
    """All: bring this process's vault to the committed version.

    A half-done step of a checkpoint is finished if its version was committed, and undone if not.
    Whoever restores a vault of the group relies on this.
    """
    vault, view, version = now.vault, now.view, now.view.words.committed
    if vault is None or not view.words.me.ready:
        return
    if now.holds_slot:
        vaults.stage_undo(vault.c, version)
        vault.words.version, vault.words.complete = version, Version(0)
        view.words.me.staged = version
        view.words.me.staging = 0
    elif now.holds_checksum:
        if view.words.me.summed < version:
            view.words.me.ready = 0  # it took its role while this version was committed without it
        elif view.words.me.folded < version:
            vaults.parity_fold(vault.c, version)
        else:
            vaults.parity_drop(vault.c)
            vault.words.complete = Version(0)
        view.words.me.summed = version
        view.words.me.folded = version


def hold_accesses(now: RepairRound) -> None:
    """The first process of each node: have other nodes' accesses to the node's dead slots wait.

    The replacements rely on this: no access reaches their windows before these are restored.
    """
    now.view.hold_accesses()


# ---- phase SETTLED --------------------------------------------------------------------------


def read_connect_request(now: RepairRound) -> None:
    """All: read whether any process has asked for the slots' communicator (see `connect`)."""
    now.connect_asked = bool(now.view.words.connect_wanted)


def log_answers(now: RepairRound) -> None:
    """All: if this slot waits for an atomic that was already done, have its result logged.

    If the result does not fit into the log, another round begins, because the leader may have
    planned a replay before that was known.
    """
    full_before = has_lost_logs(now.view)
    raise_unless_ok(job.far_answers(now.number))
    if has_lost_logs(now.view) and not full_before:
        change_round(now)


def has_lost_logs(view: JobView) -> bool:
    """Say whether the logs of this process's slot ran over their budget."""
    role, index = view.role()
    marks = view.words.slot(Slot(index)).marks if role == SLOT else ()
    return any(mark.broken & causal.FULL for mark in marks)


def choose_leader(now: RepairRound) -> None:
    """All: choose the lowest living process as leader. If processes disagree, another round
    begins."""
    view = now.view
    now.leader = min(p for p in view.all_procs() if view.alive(p))


def await_plan(now: RepairRound) -> None:
    """All but the leader: wait for the plan of this round."""
    view = now.view
    while view.words.plan_round < now.number:
        seen = view.bell
        if view.requested_round() != now.number:
            raise RoundChanged
        if not view.alive(now.leader):
            change_round(now)
        view.wait_for_bell(seen, 1000)


def end_if_asked(now: RepairRound) -> None:
    """All: leave if the plan, or any process before it, has asked for the end of the launch."""
    if now.view.words.request:
        raise LaunchEnded


def forget_vaults(now: RepairRound) -> None:
    """All: unmap the vaults of the dead, or all if their contents are given up."""
    for proc in list(now.view.mapped_vaults):
        if not now.view.alive(proc) or discards_vaults(now.view):
            forget_vault(now.view, proc)


def take_role(now: RepairRound) -> None:
    """All: take the role that the plan gives this process, with a vault for it.

    The vault is empty if the role is new, or if all vaults are given up.
    """
    view = now.view
    view.reach_holders()
    job.arm()
    role, _ = view.role()
    if role not in (SLOT, CHECKSUM):
        return
    view.rename_vault()
    vault = now.vault
    if vault is not None and discards_vaults(view) and (view.words.me.ready or vault.used):
        view.words.me.ready = 0
        vault.renew(view.vault_path(view.proc))
        view.share_vault()
        if role == CHECKSUM:  # the program may have views of a slot's vault
            vault.release()
    now.vault = own_vault(view, create=True) if vault is None else vault
    now.vault_lost = not view.words.me.ready


def discards_vaults(view: JobView) -> bool:
    """Say whether all enter the program again without a committed version.

    If there was a committed version before, it is given up, and nothing that vaults hold is of use.
    """
    return view.plan.kind == PlanKind.REENTRY and not view.words.committed


# ---- phases SEATED and SLOTS_RESTORED -------------------------------------------------------


def begin_restoring(now: RepairRound) -> None:
    """All: read whether the plan is a causal recovery."""
    now.view.visit("restore")
    now.causal = bool(now.view.words.causal)


def repair_windows(now: RepairRound) -> None:
    """Survivors, in a causal recovery: undo or finish in this process's windows the accesses that a
    dead slot of this node left half done.

    The replay relies on this. If the outcome forbids the replay, the next round makes another plan.
    """
    view, (_, index) = now.view, now.view.role()
    if view.words.slot(Slot(index)).replaying:
        return
    lost = [slot for slot in view.slots_here() if view.words.slot(slot).replaying]
    if not all([logs.windows_settle(slot) for slot in lost]):
        change_round(now)


def fetch_logs(now: RepairRound) -> None:
    """Replacements, in a causal recovery: bring the put logs of the other slots to this node.

    Nobody writes to the logs meanwhile. A slot that has not come to the program yet has put
    nothing: it has no log, or one of an attempt that has ended. A replacement that is in the middle
    of its replay has the logs already.
    """
    view, (_, index) = now.view, now.view.role()
    if not view.words.slot(Slot(index)).replaying or logs.mode() is not logs.Mode.LIVE:
        return
    with view.report_work():
        for slot in view.all_slots():
            begun = slot != index and has_begun(view, slot)
            if begun:
                view.fetch_log(slot)
            logs.replay_view(slot, wanted=begun)


def restore_slot(now: RepairRound) -> None:
    """Replacements of slots: compute the lost vault. Afterwards checksum ranks find all members
    whole."""
    assert now.vault
    with now.view.report_work():
        restoring.rebuild_lost(now.view, now.vault)


def restore_parity(now: RepairRound) -> None:
    """Checksum ranks: bring the parity to the committed version, and make it sound."""
    assert now.vault
    with now.view.report_work():
        restoring.restore_parity(now.view, now.vault, lost=now.vault_lost)


# ---- phase RESTORED -------------------------------------------------------------------------


def connect(now: RepairRound) -> None:
    """All: give the slots their communicator back.

    Over several nodes this takes the MPI library a second or more, so it is done only if some
    process has asked for it.
    """
    view = now.view
    if view.several_nodes and not now.connect_asked:
        job.comm_defer()
        return
    result = job.comm_build(now.number)
    if not result:
        return
    if result != job.Wait.ALARM and view.requested_round() == now.number:
        view.words.failed_connects = view.words.failed_connects + 1
    change_round(now)


def go_back(now: RepairRound) -> None:
    """All, if the plan goes back: clear what belongs to the attempt that ends here.

    The next attempt relies on this. The leader alone clears what all slots share.
    """
    view = now.view
    view.visit("reset")
    now.progress.went_back = True
    job.attempt_end()
    me = view.words.me
    me.ordinal = me.arrived = me.verdict = me.protect_hash = 0
    if view.leads_node:
        job.boards_clear()
    if now.leads:
        clear_attempt(view)
    view.end_attempt(now.number)


def clear_attempt(view: JobView) -> None:
    """The leader: clear the words of all slots, and number the next attempt."""
    words = view.words
    for s in view.all_slots():
        slot = words.slot(s)
        slot.replaying = slot.demand = slot.asked = 0
        for i in range(HELD_WINDOWS):
            slot.held[i] = 0
        for mark in slot.marks:  # so it stays until the slot has entered again
            mark.version = Version(2**64 - 1)
    words.checkpoint_target = words.checkpoint_taken = words.checkpoint_wanted = 0
    words.halting = 0
    words.replays = 0
    if view.keeps_seats:
        view.tell_deaths(False)  # a death is a failure again until all have claimed anew
    view.begin_attempt(words.attempt + 1)


def share_communicator(now: RepairRound) -> None:
    """Slots: open the areas of the slots' communicator to the slots of other nodes.

    Those slots rely on this in their next collective call.
    """
    job.world_open()


def release_accesses(now: RepairRound) -> None:
    """The first process of each node: let the accesses that `hold_accesses` has held go on.

    Accesses to a slot that is replayed wait until it is live.
    """
    now.view.release_accesses(causally=now.causal)


# ---- phase READY ----------------------------------------------------------------------------


def clean_up(now: RepairRound) -> None:
    """All: remove what is not needed any more after this repair."""
    now.view.remove_moved_vaults()
    now.view.leave_round(now.number)
