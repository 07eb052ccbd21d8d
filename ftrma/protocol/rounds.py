"""Repair: rounds until one ends with everybody.

Each round is gather, settle, plan, rebuild, reconnect; a failure inside starts the next one. No
process leaves unless all do. What is to be done is decided in `plan`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import CATASTROPHE
from ..fabric.base import RoundChanged
from ..fabric.plans import PublishedPlan
from ..fabric.story import Failure, Phases, Scrub
from ..fabric.world import World
from ..native import job, logs, vaults
from ..native.constants import (
    CHECKSUM,
    FAILPOINTS,
    HELD_WINDOWS,
    ROLE_NAMES,
    SLOT,
    SPARE,
    PlanKind,
)
from ..native.shared import Control, Proc, Process, Slot, Version
from ..vault.group import forget_vault, own_vault, rebuild_parity, rebuild_slot, scrub
from ..vault.vault import Vault
from . import causal, ends
from .checkpoints import Repaired
from .plan import GO_BACK, IN_PLACE, Plan, plan
from .situation import has_begun, has_deaths, is_calm, is_whole, observe, starved

FROZEN = 1  # in `commit`, with the version above it: none


class Ended(BaseException):
    """The job ends here for this process; its supervisor does the rest."""


def publish(world: World, chosen: Plan) -> None:
    """Put a plan's seats in force by one store."""
    ctl = world.ctl
    world.store("causal", chosen.kind == PlanKind.CAUSAL)
    seated = zip(world.slots_of_job(), world.holders(), chosen.slot_proc, strict=True)
    for s, before, after in seated:
        if chosen.kind == PlanKind.CAUSAL and after != before:
            # Slot 0 names the next checkpoint's safepoint by how far everybody has come.
            ctl.proc[after].ordinal = ctl.proc[before].ordinal
            # Others may compare it before the replacement has come so far.
            ctl.proc[after].protect_hash = ctl.proc[before].protect_hash
            if has_begun(world, s):
                ctl.slots[s].replaying = 1
                world.store("replays", 1)
    if chosen.kind == PlanKind.CAUSAL and chosen.slot_proc[0] != world.holders()[0]:
        take_target_back(world, chosen.slot_proc[1:])
    if chosen.forfeited:
        world.store("commit", FROZEN)
    old, new = ctl.roles[ctl.roles_seq & 1], ctl.roles[(ctl.roles_seq + 1) & 1]
    for s in world.slots_of_job():
        new.slot_proc[s] = chosen.slot_proc[s]
        new.slot_group[s] = old.slot_group[s]
    for c in range(ctl.nchecksums):
        new.checksum_proc[c] = chosen.checksum_proc[c]
    world.store("roles_seq", ctl.roles_seq + 1)


def take_target_back(world: World, others: Sequence[Proc]) -> None:
    """Slot 0, which names the safepoint of the next checkpoint, may have died before it had seen
    that nobody had passed it: where somebody is not there, all go on and it is named anew."""
    if any(world.ctl.proc[proc].arrived < world.load("target") for proc in others):
        world.store("target", 0)
        world.store("wanted", 1)


@dataclass
class Done:
    """What a process has done in the rounds of one repair so far.

    Attributes:
        flushed: what it has accessed is there; nobody accesses anything before the repair's end.
        reset: it has gone back. Others may have left that round, which was this process's last but
            for a further failure: whatever follows, it goes back.
        eventful: a round was about a death; the last one may be about none.
        died: the same, as the leader sees it.
    """

    flushed: bool = False
    died: bool = False
    reset: bool = False
    eventful: bool = False


def repair(world: World, vault: Vault | None) -> tuple[Vault | None, Repaired]:
    """Run repair rounds until one ends with everybody.

    Args:
        world: of this process.
        vault: of this process; a spare's is empty, with its memory taken ahead, or None.

    Returns:
        The vault of its role from now on, and how the failure was repaired.

    Raises:
        Ended: the job is given up or relaunched; nothing is left to do here.
    """
    done = Done()
    while True:
        number = world.begin_round()
        try:
            world.freeze()
            job.comm_forget(number)
            world.visit("repair")
            if not done.flushed:
                quiet(job.far_quiet(number))
            done.flushed = True
            vault, repaired = _round(world, vault, number, done)
            return vault, replace(repaired, silent=repaired.silent and not done.eventful)
        except RoundChanged:
            done.eventful |= world.plan.round >= number and not world.plan.calm
            if vault is None and world.me.ready and world.vault_path(world.proc).exists():
                vault = own_vault(world, create=False)


def _round(
    world: World, vault: Vault | None, number: int, done: Done
) -> tuple[Vault | None, Repaired]:
    world.meet(number, 1, planned=False)
    gathered = time.monotonic()
    if begun := going_back(world):  # in a round that was cut short: some have, some have not
        world.new_timeline(begun)
    role, index = world.role()
    if role == SLOT and job.loses_threads():
        logs.keep_refusal(f"another thread of slot {index} was in a call of MPI")
        world.store("connect", 1)  # now, as later that would be one more repair
    settle(world, vault)
    world.hold()
    world.meet(number, 2, planned=False)
    connecting = bool(world.load("connect"))
    take_answers(world, number)
    leader = min(p for p in world.procs_of_job() if world.alive(p))
    if leader == world.proc:
        done.died |= not is_whole(world) or has_deaths(world)
        lead(world, number)
        world.repairing(number)
    else:
        await_plan(world, number, leader)
    if world.ctl.request:
        raise Ended
    for proc in list(world.mapped):
        if not world.alive(proc) or begins_anew(world):
            forget_vault(world, proc)
    world.take_seat()
    vault, lost = take_role(world, vault)
    world.meet(number, 3)
    planned = time.monotonic()
    world.visit("restore")
    causally = bool(world.load("causal"))
    with world.working():
        if causally:
            settle_windows(world, number)
            fetch_logs(world)
        if lost and world.role()[0] == SLOT:
            rebuild_lost(world, vault)
    world.meet(number, 4)
    if world.role()[0] == CHECKSUM:
        with world.working():
            restore_parity(world, vault, lost)  # needs all members
    world.meet(number, 5)
    restored = time.monotonic()
    connect(world, number, connecting)
    if not causally:
        world.visit("reset")
        done.reset = True
        reset(world, leader == world.proc)
        world.new_timeline(number)
    if world.role()[0] == SLOT:
        job.world_open()  # before anybody on another node writes there
    world.let_on(causally=causally)
    world.meet(number, 6)
    if leader == world.proc:
        world.store("commit", world.committed << 1)
        world.ctl.refusal[0] = b"\0"
        world.store("connect", 0)
        world.store("stumbles", 0)
        world.taken_over()
        world.store("repaired", number)
        world.repaired(number)
    world.tidy()
    job.set_round(number)
    death = (job.now_ns() - world.ctl.death_ns) / 1e9
    phases = Phases(
        detect=max(0.0, death - (time.monotonic() - gathered)),
        repair=(planned - gathered) + (time.monotonic() - restored),
        restore=restored - planned,
    )
    back = "reentry" if world.claimant else "rollback"
    kind = back if done.reset else "causal"
    return vault, Repaired(
        leader == world.proc, kind, world.committed, death, phases,
        silent=world.plan.calm and not done.reset, died=done.died,
    )


def going_back(world: World) -> int:
    """The round in which all were about to go back, if it has not ended with everybody, or 0."""
    last = world.plan
    begun = last.kind in GO_BACK and last.round > world.load("repaired")
    return last.round if begun else 0


def quiet(ended: job.Wait) -> None:
    """Accesses to other nodes are complete, or another failure came first."""
    if ended is not job.Wait.OK:
        raise RoundChanged


def take_answers(world: World, number: int) -> None:
    """Have the atomic that this slot waits for logged, if it was done.

    Where it did not fit into the log, who leads may have planned a replay before that was known.
    """
    full = has_lost_logs(world)
    quiet(job.far_answers(number))
    if has_lost_logs(world) and not full:
        job.raise_alarm(number)
        raise RoundChanged


def has_lost_logs(world: World) -> bool:
    role, index = world.role()
    marks = world.ctl.slots[index].marks if role == SLOT else ()
    return any(mark.broken & causal.FULL for mark in marks)


def settle_windows(world: World, number: int) -> None:
    """Settle what a dead slot left half done in its node's windows, each slot there in its own.

    If that forbids the replay that is planned, the next round plans something else.
    """
    ctl, (role, index) = world.ctl, world.role()
    if role == SLOT and not ctl.slots[index].replaying:
        here = ctl.proc[world.proc].node
        lost = [slot for slot, proc in zip(world.slots_of_job(), world.holders(), strict=True)
                if ctl.slots[slot].replaying and ctl.proc[proc].node == here]
        if not all([logs.windows_settle(slot) for slot in lost]):
            job.raise_alarm(number)
            raise RoundChanged


def fetch_logs(world: World) -> None:
    """The replacement of a slot has those logs here that it will read, while nobody writes.

    A slot that has not come to the program yet has put nothing; its log is not there, or is of the
    time before all went back. In a repair amid its replay it has them already.
    """
    role, index = world.role()
    if role == SLOT and world.ctl.slots[index].replaying and logs.mode() is logs.Mode.LIVE:
        for slot in world.slots_of_job():
            begun = slot != index and has_begun(world, slot)
            if begun:
                world.fetch_log(slot)
            logs.replay_view(slot, wanted=begun)


def settle(world: World, vault: Vault | None) -> None:
    """Bring the own vault to the committed version: finish what was decided, undo what was not."""
    role, _ = world.role()
    version = world.committed
    if vault is None or not world.me.ready:
        return
    if role == SLOT:
        vaults.stage_undo(vault.c, version)
        vault.words.version, vault.words.complete = version, Version(0)
        world.put("staged", version)
        world.put("staging", 0)
    elif role == CHECKSUM:
        if world.me.summed < version:
            world.put("ready", 0)  # it took its seat while this was being committed without it
        elif world.me.folded < version:
            vaults.parity_fold(vault.c, version)
        else:
            vaults.parity_drop(vault.c)
            vault.words.complete = Version(0)
        world.put("summed", version)
        world.put("folded", version)


def lead(world: World, number: int) -> None:
    """Make the plan of this round and publish it."""
    lacking = starved(world)  # of deaths that are not reported yet
    report_deaths(world)
    for checksum in range(world.ctl.nchecksums):
        if not world.ready(world.roles.checksum_proc[checksum]):
            lose_results(world, checksum)
    before, calm = observe(world, starved=lacking), is_calm(world)
    chosen = plan(before)
    dead = [s for s, p in zip(world.slots_of_job(), before.slot_proc, strict=True)
            if p not in before.alive or world.ctl.slots[s].replaying]
    if (last := world.plan).round > world.load("repaired"):  # a round that was cut short
        dead = sorted({*dead, *last.dead})
    begun: list[Slot] = []
    if chosen.kind in IN_PLACE:
        for proc in world.procs_of_job():
            if not world.alive(proc):
                world.lose_vault(proc)  # its memory died with it
        if chosen.kind in GO_BACK:
            # Should this round be started over, what it has begun must not become something else.
            logs.keep_refusal(chosen.reason)
        publish(world, chosen)
        begun = [s for s in dead if world.ctl.slots[s].replaying]
    world.publish_plan(PublishedPlan(
        chosen.kind, number, world.committed, chosen.reason, tuple(dead), tuple(begun), calm
    ))
    if chosen.kind not in IN_PLACE:
        relaunch, abort = job.Request.RELAUNCH, job.Request.ABORT
        repeated = chosen.kind == PlanKind.REPEATED
        request = relaunch if chosen.kind == PlanKind.RELAUNCH else abort
        status = ends.KILLED if repeated else CATASTROPHE
        world.ask_for_end(request, status)
    world.store("plan_round", number)  # last: who waits for it finds all the rest
    job.ring()


def lose_results(world: World, checksum: int) -> None:
    """The result logs that lay with a checksum rank are gone; the first of a group holds them."""
    group = world.group_of_checksum(checksum)
    if checksum == world.checksums_of(group)[0]:
        for slot in world.members(group):
            logs.results_lost(slot)


def report_deaths(world: World) -> None:
    """Put every death that is not yet in the job's story there, once."""
    for p in world.procs_of_job():
        entry = world.ctl.proc[p]
        if entry.state != job.State.DEAD or entry.reported:
            continue
        role, index = job.role_of(world.ctl, p)
        if job.exchange(entry, "reported", 0, 1):
            name = ROLE_NAMES[role]
            at, waited = place_of(world, Slot(index), entry) if role == SLOT else (None, False)
            place = struck_at(world.ctl, role, index)
            world.emit(Failure(role=name, index=index, pid=entry.pid, place=place,
                               host=world.host_of(p), at=at, waited=waited))
            if role == SPARE:
                world.tell(f"{name} {index} died (process {entry.pid}); the program goes on")
                world.lost_spare(p)


def place_of(world: World, slot: Slot, entry: Process) -> tuple[tuple[int, int], bool]:
    """How far a dead slot had come since the committed version, and whether it waited."""
    words, version = world.ctl.slots[slot], world.committed
    mark = words.marks[version & 1]
    events = words.events - mark.events if mark.version == version else -1
    if not words.events or not has_begun(world, slot):
        events = -int(entry.syncs)  # not counted without logs
    return (version, int(events)), bool(entry.waiting or job.is_in_call(entry))


def struck_at(ctl: Control, role: int, index: int) -> str:
    """Where a --kill rule struck, or "unknown" for deaths from outside."""
    names = {number: name for name, number in FAILPOINTS.items()}
    for i in range(ctl.nrules):
        rule = ctl.rules[i]
        if rule.fired == 1 and rule.role == role and rule.index == index:
            rule.fired = 2
            return names.get(rule.failpoint) or job.text(rule.name)
    return "unknown"


def await_plan(world: World, number: int, leader: Proc) -> None:
    while world.load("plan_round") < number:
        seen = world.ctl.bell.word
        if world.round_asked() != number:
            raise RoundChanged
        if not world.alive(leader):
            job.raise_alarm(number)
            raise RoundChanged
        job.sleep(seen, 1000)


def take_role(world: World, vault: Vault | None) -> tuple[Vault | None, bool]:
    """Open an empty vault if this process has come to a role; says if it must be rebuilt."""
    role, _ = world.role()
    job.arm()
    if role not in (SLOT, CHECKSUM):
        return vault, False
    world.name_vault()
    if vault is not None and begins_anew(world) and (world.me.ready or vault.used):
        world.put("ready", 0)
        vault.renew(world.vault_path(world.proc))
        world.place_vault()
        if role == CHECKSUM:  # of a slot's the program may have views
            vault.release()
    if vault is None:
        vault = own_vault(world, create=True)
    return vault, not world.me.ready


def begins_anew(world: World) -> bool:
    """All enter the program again and no version is committed, of late perhaps: whatever vaults
    hold is of no use."""
    return world.plan.kind == PlanKind.REENTRY and not world.committed


def restore_parity(world: World, vault: Vault | None, lost: bool) -> None:
    """Have this checksum rank's parity at the committed version, and sound."""
    if lost:
        rebuild_lost(world, vault)
    elif world.committed:
        number, at = divmod(world.role()[1], world.ctl.strength)
        fixed = scrub(world, number, len(world.members(number)) + at)
        tell_scrubbed(world, fixed)


def tell_scrubbed(world: World, fixed: int) -> None:
    """Say that damaged blocks of this process's vault were found and computed anew."""
    role, index = world.role()
    if fixed:
        name = f"{ROLE_NAMES[role]} {index}"
        world.tell(f"{name}: {fixed} corrupt blocks found and rebuilt from the others")
        world.emit(Scrub(role=ROLE_NAMES[role], index=index, blocks=fixed))


def rebuild_lost(world: World, vault: Vault | None) -> None:
    assert vault is not None
    role, index = world.role()
    version = world.committed
    if role == SLOT:
        if version:
            rebuild_slot(world, vault, Slot(index))
        vault.words.version = version
        world.put("staged", version)
        world.put("ready", 1)
    else:
        if version:
            rebuild_parity(world, vault, index)
        world.put("summed", version)
        world.put("folded", version)
        world.put("ready", 1)


def connect(world: World, number: int, asked: bool) -> None:
    """Give the slots their communicator back; over several nodes if somebody has asked for it."""
    if world.load("nodes") > 1 and not asked:
        job.comm_defer()
        result = 0
    else:
        result = job.comm_build(number)
    if result:
        if result != job.Wait.ALARM and world.round_asked() == number:
            world.store("stumbles", world.load("stumbles") + 1)
        job.raise_alarm(number)
        raise RoundChanged


def reset(world: World, leader: bool) -> None:
    """Clear what belongs to the timeline that ends here."""
    job.attempt_end()
    world.put("ordinal", 0)
    world.put("arrived", 0)
    world.put("protect_hash", 0)
    if world.leads_node:
        job.boards_clear()
    if leader:
        for s in world.slots_of_job():
            slot = world.ctl.slots[s]
            slot.replaying = slot.demand = slot.asked = 0
            for i in range(HELD_WINDOWS):
                slot.held[i] = 0
            for mark in slot.marks:  # until the slot has entered the program again
                mark.version = Version(2**64 - 1)
        for word in ("target", "taken", "wanted", "replays"):
            world.store(word, 0)
        world.begin_entry(world.ctl.entry + 1)
