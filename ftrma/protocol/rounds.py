"""Repair: rounds until one ends with everybody.

Each round is gather, settle, plan, rebuild, reconnect; a failure inside starts the next one. No
process leaves unless all do. What is to be done is decided in `plan`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ..errors import CATASTROPHE
from ..fabric.world import RoundChanged, World, check
from ..native.constants import CHECKSUM, PLACES, ROLE_NAMES, SLOT, SPARE
from ..vault.group import forget_vault, new_vault, rebuild_parity, rebuild_slot, scrub
from ..vault.vault import Vault
from . import causal, ends
from .plan import IN_PLACE, Plan, Situation, plan

# ---- what is known --------------------------------------------------------------------------


def seats(world: World) -> Situation:
    """Read who has which seat and who lives."""
    # Before the seats: a spare that comes first only because another has just been seated then
    # sees that seat taken.
    spares = world.spares()
    ctl, roles = world.ctl, world.roles
    alive = frozenset(p for p in range(ctl.nprocs) if world.alive(p))
    return Situation(
        slot_proc=[roles.slot_proc[s] for s in range(ctl.nslots)],
        checksum_proc=[roles.checksum_proc[c] for c in range(ctl.nchecksums)],
        slot_group=[roles.slot_group[s] for s in range(ctl.nslots)],
        strength=ctl.strength,
        alive=alive,
        ready=frozenset(p for p in alive if ctl.proc[p].ready),
        spares=[p for p in spares if p in alive],
        committed=world.committed,
    )


def observe(world: World, *, starved: bool = False) -> Situation:
    """Read the situation that `plan` needs from the control file.

    Args:
        starved: as `starved` said before the deaths were reported.
    """
    now, ctl = seats(world), world.ctl
    lost = [s for s, p in enumerate(now.slot_proc)
            if (ctl.slots[s].replaying or p not in now.ready) and has_begun(world, s)]
    return replace(
        now,
        obstacle=causal.obstacle(
            world.policy, lost, {s: logs_of(world, s) for s in range(ctl.nslots)},
            world.committed, ctl.log_bytes, world.ffi.string(ctl.refusal).decode(),
        ),
        hindrance=hindrance(world),
        policy=world.policy,
        fresh=world.fresh,
        starved=starved,
        doomed=ends.repeated(world.events()),
    )


def hindrance(world: World) -> str:
    """Why the MPI library cannot go on without a process; empty if it can."""
    if not world.lib.ftrma_has_ulfm():
        return "this MPI library has no ULFM and cannot go on without a process"
    if world.load("stumbles") >= world.lib.FTRMA_STUMBLES:
        return "the MPI library cannot make a communicator of the slots any more"
    if world.ctl.partitioned:
        return "the MPI library's partitioned communication is lost with a process"
    return ""


def starved(world: World) -> bool:
    """Somebody whose death is not reported yet died because shared memory was full."""
    ctl, lib = world.ctl, world.lib
    dead = [ctl.proc[p] for p in range(ctl.nprocs) if ctl.proc[p].state == lib.FTRMA_DEAD]
    return any(p.leaving & lib.FTRMA_LEFT_BY_MEMORY and not p.reported for p in dead)


def has_begun(world: World, slot: int) -> bool:
    """The slot has come to the program in this entry; else whoever takes it just begins."""
    return bool(world.ctl.slots[slot].entered == world.ctl.entry)


def logs_of(world: World, slot: int) -> causal.Logs:
    """What a slot's logs are good for since the committed version."""
    if world.policy != "rollback" and not has_begun(world, slot):
        return causal.Logs()
    call = world.ffi.new("char const **")
    broken = world.lib.ftrma_mark_broken(slot, world.committed, call)
    return causal.Logs(broken, world.ffi.string(call[0]).decode())


# ---- doing it -------------------------------------------------------------------------------


class Ended(BaseException):
    """The job ends here for this process; its supervisor does the rest."""


def publish(world: World, chosen: Plan) -> None:
    """Put a plan's seats in force by one store."""
    ctl = world.ctl
    world.store("causal", chosen.kind == "causal")
    for s, (before, after) in enumerate(zip(world.holders(), chosen.slot_proc, strict=True)):
        if chosen.kind == "causal" and after != before:
            # Slot 0 names the next checkpoint's safepoint by how far everybody has come.
            ctl.proc[after].ordinal = ctl.proc[before].ordinal
            if has_begun(world, s):
                ctl.slots[s].replaying = 1
                world.store("replays", 1)
    old, new = ctl.roles[ctl.roles_seq & 1], ctl.roles[(ctl.roles_seq + 1) & 1]
    for s in range(ctl.nslots):
        new.slot_proc[s] = chosen.slot_proc[s]
        new.slot_group[s] = old.slot_group[s]
    for c in range(ctl.nchecksums):
        new.checksum_proc[c] = chosen.checksum_proc[c]
    world.store("roles_seq", ctl.roles_seq + 1)


def repair(world: World, vault: Vault | None) -> tuple[Vault | None, dict[str, Any]]:
    """Run repair rounds until one ends with everybody.

    Args:
        world: of this process.
        vault: of this process; a spare's is empty, with its memory taken ahead, or None.

    Returns:
        The vault of its role from now on, and the recovery's record (slots, version, seconds).

    Raises:
        Ended: the job is given up or relaunched; nothing is left to do here.
    """
    began = time.monotonic()
    while True:
        number = world.load("alarm")
        try:
            return _round(world, vault, number, began)
        except RoundChanged:
            if vault is None and world.vault_path(world.proc).exists():
                vault = Vault(
                    world.native, world.vault_path(world.proc), world.ctl.capacity_blocks,
                    world.ctl.group_size, create=False,
                )


def _round(
    world: World, vault: Vault | None, number: int, began: float
) -> tuple[Vault | None, dict[str, Any]]:
    freeze(world)
    world.lib.ftrma_comm_forget(number)
    world.visit("repair")
    world.meet(number, 1, planned=False)
    gathered = time.monotonic()
    settle(world, vault)
    world.meet(number, 2, planned=False)
    leader = min(p for p in range(world.ctl.nprocs) if world.alive(p))
    if leader == world.proc:
        lead(world, number)
    else:
        await_plan(world, number, leader)
    if world.ctl.request:
        raise Ended
    for proc in list(world.mapped):
        if not world.alive(proc):
            forget_vault(world, proc)
    vault, lost = take_role(world, vault)
    world.meet(number, 3)
    planned = time.monotonic()
    world.visit("restore")
    causally = bool(world.load("causal"))
    if causally:
        settle_windows(world)
    if lost and world.role()[0] == SLOT:
        rebuild_lost(world, vault)
    world.meet(number, 4)
    if world.role()[0] == CHECKSUM:
        restore_parity(world, vault, lost)  # needs all members
    world.meet(number, 5)
    restored = time.monotonic()
    connect(world, number)
    if not causally:
        reset(world, leader == world.proc)
    world.meet(number, 6)
    if leader == world.proc:
        world.store("commit", world.committed << 1)
        world.ctl.refusal[0] = b"\0"
        world.store("repaired", number)
    world.lib.ftrma_set_round(number)
    death = (world.lib.ftrma_now_ns() - world.ctl.death_ns) / 1e9
    phases = {
        "detect": max(0.0, death - (time.monotonic() - gathered)),
        "repair": (planned - gathered) + (time.monotonic() - restored),
        "restore": restored - planned,
        "replay": 0.0,
    }
    return vault, {
        "leader": leader == world.proc, "round": number, "version": world.committed,
        "kind": "causal" if causally else "rollback", "seconds": death, "phases": phases,
    }


def settle_windows(world: World) -> None:
    """Settle what a dead slot left half done in its windows (one surviving slot does)."""
    replaying = [s for s in range(world.ctl.nslots) if world.ctl.slots[s].replaying]
    staying = [s for s in range(world.ctl.nslots) if s not in replaying]
    role, index = world.role()
    if role == SLOT and staying[:1] == [index]:
        for slot in replaying:
            check(world.lib.ftrma_windows_settle(slot), "reading the logs of a lost slot")


def freeze(world: World) -> None:
    """From here to the end of repair no version is committed."""
    word = world.load("commit")
    while not word & 1:
        world.lib.ftrma_cas(world.field("commit"), word, word | 1)
        word = world.load("commit")


def settle(world: World, vault: Vault | None) -> None:
    """Bring the own vault to the committed version: finish what was decided, undo what was not."""
    role, _ = world.role()
    version = world.committed
    if vault is None or not world.me.ready:
        return
    if role == SLOT:
        world.lib.ftrma_stage_undo(vault.c, version)
        world.put("staged", version)
        world.put("staging", 0)
    elif role == CHECKSUM:
        if world.me.summed < version:
            world.put("ready", 0)  # it took its seat while this was being committed without it
        elif world.me.folded < version:
            world.lib.ftrma_parity_fold(vault.c, version)
        else:
            world.lib.ftrma_parity_drop(vault.c)
        world.put("summed", version)
        world.put("folded", version)


def lead(world: World, number: int) -> None:
    """Make the plan of this round and publish it."""
    lacking = starved(world)  # of deaths that are not reported yet
    report_deaths(world)
    for checksum in range(world.ctl.nchecksums):
        if not world.ready(world.roles.checksum_proc[checksum]):
            lose_results(world, checksum)
    before = observe(world, starved=lacking)
    chosen = plan(before)
    dead = [s for s, p in enumerate(before.slot_proc)
            if p not in before.alive or world.ctl.slots[s].replaying]
    lost = {"slots": dead, "reason": chosen.reason, "version": before.committed}
    if chosen.kind in IN_PLACE:
        for proc in range(world.ctl.nprocs):
            if not world.alive(proc):
                world.lose_vault(proc)  # its memory died with it
        if chosen.kind == "rollback":
            # Should this round be started over, what it has begun must not become something else.
            world.lib.ftrma_keep_refusal(chosen.reason.encode())
        publish(world, chosen)
        begun = [s for s in dead if world.ctl.slots[s].replaying]
        world.emit("plan", kind=chosen.kind, round=number, replayed=begun, **lost)
    else:
        world.emit("plan", kind=chosen.kind, round=number, **lost)
        request = "FTRMA_RELAUNCH" if chosen.kind == "relaunch" else "FTRMA_ABORT"
        world.ctl.exit_status = ends.KILLED if chosen.kind == "repeated" else CATASTROPHE
        world.ctl.request = getattr(world.lib, request)
    world.store("plan_round", number)
    world.lib.ftrma_ring()


def lose_results(world: World, checksum: int) -> None:
    """The result logs that lay with a checksum rank are gone; the first of a group holds them."""
    group = world.group_of_checksum(checksum)
    if checksum == world.checksums_of(group)[0]:
        for slot in world.members(group):
            world.lib.ftrma_results_lost(slot)


def report_deaths(world: World) -> None:
    """Put every death that is not yet in the job's story there, once."""
    index = world.ffi.new("int *")
    for p in range(world.ctl.nprocs):
        entry = world.ctl.proc[p]
        if entry.state != world.lib.FTRMA_DEAD or entry.reported:
            continue
        role = world.lib.ftrma_role_of(world.ctl, p, index)
        reported = world.ffi.addressof(entry, "reported")
        if world.lib.ftrma_cas(reported, 0, 1):
            name = ROLE_NAMES[role]
            world.emit(
                "failure", role=name, index=index[0], pid=entry.pid,
                place=struck_at(world, role, index[0]),
                **(place_of(world, index[0], entry) if role == SLOT else {}),
            )
            if role == SPARE:
                world.tell(f"{name} {index[0]} died (process {entry.pid}); the program goes on")


def place_of(world: World, slot: int, entry: Any) -> dict[str, Any]:
    """How far a dead slot had come since the committed version, and whether it waited."""
    words, version = world.ctl.slots[slot], world.committed
    mark = words.marks[version & 1]
    events = words.events - mark.events if mark.version == version else -1
    if not words.events:
        events = -int(entry.syncs)  # not counted without logs
    return {"at": [version, events], "waited": bool(entry.waiting or entry.call_seq & 1)}


def struck_at(world: World, role: int, index: int) -> str:
    """Where a --kill rule struck, or "unknown" for deaths from outside."""
    names = {number: name for name, number in PLACES.items()}
    for i in range(world.ctl.nrules):
        rule = world.ctl.rules[i]
        if rule.fired == 1 and rule.role == role and rule.index == index:
            rule.fired = 2
            return names[rule.place]
    return "unknown"


def await_plan(world: World, number: int, leader: int) -> None:
    while world.load("plan_round") < number:
        seen = world.ctl.bell.word
        if world.load("alarm") != number:
            raise RoundChanged
        if not world.alive(leader):
            world.lib.ftrma_raise(number)
            raise RoundChanged
        world.lib.ftrma_sleep(seen, 1000)


def take_role(world: World, vault: Vault | None) -> tuple[Vault | None, bool]:
    """Open an empty vault if this process has come to a role; says if it must be rebuilt."""
    role, _ = world.role()
    world.lib.ftrma_arm()
    if role not in (SLOT, CHECKSUM):
        return vault, False
    if vault is None:
        vault = new_vault(world)
    return vault, not world.me.ready


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
        world.emit("scrub", role=ROLE_NAMES[role], index=index, blocks=fixed)


def rebuild_lost(world: World, vault: Vault | None) -> None:
    assert vault is not None
    role, index = world.role()
    version = world.committed
    if role == SLOT:
        if version:
            rebuild_slot(world, vault, index)
        world.put("staged", version)
        world.put("ready", 1)
    else:
        if version:
            rebuild_parity(world, vault, index)
        world.put("summed", version)
        world.put("folded", version)
        world.put("ready", 1)


def connect(world: World, number: int) -> None:
    """Give the slots their communicator back."""
    result = world.lib.ftrma_comm_build(number)
    if result:
        if result != world.lib.FTRMA_ALARM:
            world.store("stumbles", world.load("stumbles") + 1)
        world.lib.ftrma_raise(number)
        raise RoundChanged


def reset(world: World, leader: bool) -> None:
    """Clear what belongs to the timeline that ends here."""
    world.lib.ftrma_timeline_end()
    world.put("ordinal", 0)
    world.put("arrived", 0)
    world.put("protect_hash", 0)
    if leader:
        check(world.lib.ftrma_boards_clear(), "removing what communicators have shared")
        for s in range(world.ctl.nslots):
            slot = world.ctl.slots[s]
            slot.replaying = slot.demand = slot.asked = 0
            for mark in slot.marks:  # until the slot has entered the program again
                mark.version = 2**64 - 1
        for word in ("target", "taken", "wanted", "replays"):
            world.store(word, 0)
        world.store("entry", world.ctl.entry + 1)
