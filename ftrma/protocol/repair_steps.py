"""Actions of a repair round, in the order of the table in `repair`.

Each docstring says who does the step and who relies on it. Every step may be done again in a later
round, also one that was cut short.
"""

from __future__ import annotations

from ..fabric.base import RoundChanged
from ..fabric.world import World
from ..native import job, logs, vaults
from ..native.constants import CHECKSUM, HELD_WINDOWS, SLOT, PlanKind
from ..native.shared import Version
from ..vault.group import forget_vault, own_vault
from . import causal, restoring
from .failure_state import has_begun
from .plan import GO_BACK
from .repair_round import LaunchEnded, RepairRound


def raise_unless_ok(ended: job.Wait) -> None:
    """Raise RoundChanged if a wait was cut short by another failure."""
    if ended is not job.Wait.OK:
        raise RoundChanged


def change_round(number: int) -> None:
    """Have all begin another round; raises RoundChanged."""
    job.raise_alarm(number)
    raise RoundChanged


# ---- phase BEGIN ----------------------------------------------------------------------------


def stop_commits(now: RepairRound) -> None:
    """All: no version is committed from here to the end of the repair.

    `settle_vault` relies on it: the committed version is the same for all.
    """
    now.world.freeze()
    job.comm_forget(now.number)
    now.world.visit("repair")


def complete_accesses(now: RepairRound) -> None:
    """All, once in a repair: wait until the own accesses to other nodes are complete.

    Nobody accesses anything before the repair's end. Who replays relies on it: the put logs of the
    survivors are whole.
    """
    if not now.progress.flushed:
        raise_unless_ok(job.far_quiet(now.number))
    now.progress.flushed = True


# ---- phase GATHERED -------------------------------------------------------------------------


def resume_going_back(now: RepairRound) -> None:
    """All: forget the attempt that ends, if a round was cut short in which all went back.

    Some have gone back in it, some have not. The nodes' agents rely on it: they refuse what is left
    of that attempt.
    """
    last = now.world.plan
    if last.kind in GO_BACK and last.round > now.world.load("repaired"):
        now.world.new_timeline(last.round)


def refuse_without_threads(now: RepairRound) -> None:
    """Slots: refuse a replay if the call of another thread was cut off.

    The leader reads the refusal when it makes the plan.
    """
    if job.loses_threads():
        slot = now.world.role()[1]
        logs.keep_refusal(f"another thread of slot {slot} was in a call of MPI")
        now.world.store("connect", 1)  # in this round, or one more repair would have to do it


def settle_vault(now: RepairRound) -> None:
    """All: bring the own vault to the committed version.

    A step that the commit has decided is finished, another one is undone. Who restores a vault of
    the group relies on it.
    """
    vault, world, version = now.vault, now.world, now.world.committed
    if vault is None or not world.me.ready:
        return
    if now.holds_slot:
        vaults.stage_undo(vault.c, version)
        vault.words.version, vault.words.complete = version, Version(0)
        world.put("staged", version)
        world.put("staging", 0)
    elif now.holds_checksum:
        if world.me.summed < version:
            world.put("ready", 0)  # it took its role while this version was committed without it
        elif world.me.folded < version:
            vaults.parity_fold(vault.c, version)
        else:
            vaults.parity_drop(vault.c)
            vault.words.complete = Version(0)
        world.put("summed", version)
        world.put("folded", version)


def hold_accesses(now: RepairRound) -> None:
    """The first of each node: have other nodes' accesses to its dead slots wait.

    The replacements rely on it: nothing reaches their windows before they are whole.
    """
    now.world.hold()


# ---- phase SETTLED --------------------------------------------------------------------------


def read_connect_request(now: RepairRound) -> None:
    """All: read whether somebody has asked for the slots' communicator (see `connect`)."""
    now.connect_asked = bool(now.world.load("connect"))


def log_answers(now: RepairRound) -> None:
    """All: have the atomic that this slot waits for logged, if it was done.

    If it does not fit into the log, another round begins: the leader may have planned a replay
    before that was known.
    """
    full_before = has_lost_logs(now.world)
    raise_unless_ok(job.far_answers(now.number))
    if has_lost_logs(now.world) and not full_before:
        change_round(now.number)


def has_lost_logs(world: World) -> bool:
    """Say whether the logs of this process's slot ran over their budget."""
    role, index = world.role()
    marks = world.ctl.slots[index].marks if role == SLOT else ()
    return any(mark.broken & causal.FULL for mark in marks)


def choose_leader(now: RepairRound) -> None:
    """All: the lowest living process leads. If they disagree, another round begins."""
    world = now.world
    now.leader = min(p for p in world.procs_of_job() if world.alive(p))


def await_plan(now: RepairRound) -> None:
    """All but the leader: wait for the plan of this round."""
    world = now.world
    while world.load("plan_round") < now.number:
        seen = world.ctl.bell.word
        if world.round_asked() != now.number:
            raise RoundChanged
        if not world.alive(now.leader):
            change_round(now.number)
        job.sleep(seen, 1000)


def end_if_asked(now: RepairRound) -> None:
    """All: leave if the plan, or anybody before it, has asked for the end of the launch."""
    if now.world.ctl.request:
        raise LaunchEnded


def forget_vaults(now: RepairRound) -> None:
    """All: unmap the vaults of the dead, or all if their contents are given up."""
    for proc in list(now.world.mapped):
        if not now.world.alive(proc) or discards_vaults(now.world):
            forget_vault(now.world, proc)


def take_role(now: RepairRound) -> None:
    """All: take the role that the plan gives this process, with a vault for it.

    The vault is empty if the role is new, or if all vaults are given up.
    """
    world = now.world
    world.take_seat()
    job.arm()
    role, _ = world.role()
    if role not in (SLOT, CHECKSUM):
        return
    world.name_vault()
    vault = now.vault
    if vault is not None and discards_vaults(world) and (world.me.ready or vault.used):
        world.put("ready", 0)
        vault.renew(world.vault_path(world.proc))
        world.place_vault()
        if role == CHECKSUM:  # the program may have views of a slot's vault
            vault.release()
    now.vault = own_vault(world, create=True) if vault is None else vault
    now.vault_lost = not world.me.ready


def discards_vaults(world: World) -> bool:
    """Say whether all enter the program again without a committed version.

    There may have been one before: then it is given up, and nothing that vaults hold is of use.
    """
    return world.plan.kind == PlanKind.REENTRY and not world.committed


# ---- phases SEATED and SLOTS_RESTORED -------------------------------------------------------


def begin_restoring(now: RepairRound) -> None:
    """All: read whether the plan is a causal recovery."""
    now.world.visit("restore")
    now.causal = bool(now.world.load("causal"))


def repair_windows(now: RepairRound) -> None:
    """Survivors, in a causal recovery: undo or finish in the own windows what a dead slot of this
    node left half done.

    The replay relies on it. If that forbids the replay, the next round plans something else.
    """
    world, (_, index) = now.world, now.world.role()
    if world.ctl.slots[index].replaying:
        return
    here = world.ctl.proc[world.proc].node
    lost = [slot for slot, proc in zip(world.slots_of_job(), world.holders(), strict=True)
            if world.ctl.slots[slot].replaying and world.ctl.proc[proc].node == here]
    if not all([logs.windows_settle(slot) for slot in lost]):
        change_round(now.number)


def fetch_logs(now: RepairRound) -> None:
    """Replacements, in a causal recovery: bring the put logs of the other slots to this node.

    Nobody writes to the logs meanwhile. A slot that has not come to the program yet has put
    nothing: it has no log, or one of an attempt that has ended. In a repair amid its replay a
    replacement has the logs already.
    """
    world, (_, index) = now.world, now.world.role()
    if not world.ctl.slots[index].replaying or logs.mode() is not logs.Mode.LIVE:
        return
    with world.working():
        for slot in world.slots_of_job():
            begun = slot != index and has_begun(world, slot)
            if begun:
                world.fetch_log(slot)
            logs.replay_view(slot, wanted=begun)


def restore_slot(now: RepairRound) -> None:
    """Replacements of slots: compute the lost vault. Checksum ranks need all members after it."""
    assert now.vault
    with now.world.working():
        restoring.rebuild_lost(now.world, now.vault)


def restore_parity(now: RepairRound) -> None:
    """Checksum ranks: have the parity at the committed version, and sound."""
    assert now.vault
    with now.world.working():
        restoring.restore_parity(now.world, now.vault, lost=now.vault_lost)


# ---- phase RESTORED -------------------------------------------------------------------------


def connect(now: RepairRound) -> None:
    """All: give the slots their communicator back.

    Over several nodes this takes the MPI library a second or more, so it is done only if somebody
    has asked for it.
    """
    world = now.world
    if world.load("nodes") > 1 and not now.connect_asked:
        job.comm_defer()
        return
    result = job.comm_build(now.number)
    if not result:
        return
    if result != job.Wait.ALARM and world.round_asked() == now.number:
        world.store("stumbles", world.load("stumbles") + 1)
    change_round(now.number)


def go_back(now: RepairRound) -> None:
    """All, if all go back: clear what belongs to the attempt that ends here.

    The next attempt relies on it. What all slots share is cleared by the leader alone.
    """
    world = now.world
    world.visit("reset")
    now.progress.went_back = True
    job.attempt_end()
    for word in ("ordinal", "arrived", "protect_hash"):
        world.put(word, 0)
    if world.leads_node:
        job.boards_clear()
    if now.leads:
        clear_attempt(world)
    world.new_timeline(now.number)


def clear_attempt(world: World) -> None:
    """The leader: clear the words of all slots, and number the next attempt."""
    for s in world.slots_of_job():
        slot = world.ctl.slots[s]
        slot.replaying = slot.demand = slot.asked = 0
        for i in range(HELD_WINDOWS):
            slot.held[i] = 0
        for mark in slot.marks:  # until the slot has entered the program again
            mark.version = Version(2**64 - 1)
    for word in ("target", "taken", "wanted", "replays"):
        world.store(word, 0)
    world.begin_entry(world.ctl.attempt + 1)


def share_communicator(now: RepairRound) -> None:
    """Slots: let other nodes' slots reach what the slots' communicator exchanges.

    They rely on it in their next collective call.
    """
    job.world_open()


def release_accesses(now: RepairRound) -> None:
    """The first of each node: let accesses go on that `hold_accesses` has held.

    Those to a slot that is replayed wait until it is live.
    """
    now.world.let_on(causally=now.causal)


# ---- phase READY ----------------------------------------------------------------------------


def clean_up(now: RepairRound) -> None:
    """All: remove what was needed before this repair alone."""
    now.world.tidy()
    job.set_round(now.number)
