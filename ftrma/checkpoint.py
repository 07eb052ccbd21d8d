"""Coordinated checkpoints: when one is due, the slots' side, and the checksum ranks' side.

Where. Only at safepoints, which the program marks; windows and declared state are consistent with
each other there. Both schemes of section 3.1.2 of Besta & Hoefler come to the same here: accesses
are complete when their call returns, so a barrier of all slots at the same safepoint is all that
RMA-consistency needs. In the Gsync scheme the safepoint follows a fence; in the Locks scheme no
exclusive lock may be held (LC = 0), or a slot waiting for it would never arrive.

When. After Daly's interval, and when one is wanted: after a causal recovery, whose dead process has
left no put log, and when logs were lost or ran over, or a demand checkpoint could not help (see
`demand`). Slot 0 looks at the clock
at its safepoints and names a target: the ordinal of a safepoint that no slot has passed. A slot
publishes its ordinal before it reads the target, slot 0 writes the target before it reads the
ordinals: a slot that might have missed the target is seen, and the target is moved on. Slot 0
arrives at the target itself only after that, so no checkpoint begins before the target is final.

How. See ``csrc/vault.c``. The program is held up from the first barrier to the last slot's staging;
summing, committing and folding happen at the checksum ranks while it computes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from .errors import CorruptVault, FtrmaError, NoRoom
from .group import Group, new_vault, rebuild_parity
from .interval import FIRST_GUESS_BYTES_PER_S, daly_interval
from .recovery import lose_results, report_deaths
from .vault import Vault
from .world import CHECKSUM, NO_ROOM, SPARE, RoundChanged, World

# Whatever concerns a server rings the bell; this is for what does not, such as new imports.
IDLE_US = 200_000
COMMIT = 23  # enum ftrma_what of csrc/event.h


class Policy:
    """Decides when a checkpoint is due.

    Args:
        interval: seconds, "daly" or "never"; 0 means every safepoint.
        mtbf_s: for Daly's interval.
    """

    def __init__(self, interval: float | str, mtbf_s: float) -> None:
        self.interval, self.mtbf_s = interval, mtbf_s
        self.delta_s = 0.0
        self.last = time.monotonic()

    @property
    def every(self) -> bool:
        return self.interval == 0

    def due(self, size_bytes: Callable[[], int]) -> bool:
        if isinstance(self.interval, str):
            if self.interval == "never":
                return False
            delta = self.delta_s or max(1e-4, size_bytes() / FIRST_GUESS_BYTES_PER_S)
            return time.monotonic() - self.last >= daly_interval(delta, self.mtbf_s)
        return time.monotonic() - self.last >= self.interval


# ---- a slot's side --------------------------------------------------------------------------


def choose_target(world: World) -> None:
    """Name the next safepoint that no slot has passed (slot 0 only)."""
    roles, ctl = world.roles, world.ctl
    target = 0
    while True:
        newest = max(
            world.lib.ftrma_load(world.ffi.addressof(ctl.proc[roles.slot_proc[s]], "ordinal"))
            for s in range(ctl.nslots)
        )
        if newest < target:
            return
        target = newest + 1
        world.store("target", target)


def due_here(
    world: World, policy: Policy, slot: int, ordinal: int, size_bytes: Callable[[], int]
) -> bool:
    """Whether this safepoint is one where all slots checkpoint; waits for the others if so."""
    world.put("ordinal", ordinal)
    if not policy.every:
        if slot == 0 and world.ctl.target < ordinal:
            wanted = world.load("wanted")
            if (wanted or policy.due(size_bytes)) and idle(world):
                choose_target(world)
                world.store("wanted", 0)
        if world.load("target") != ordinal:
            return False
        if slot == 0:
            policy.last = time.monotonic()
    while True:
        result = world.lib.ftrma_arrive(ordinal, not policy.every)
        if result != world.lib.FTRMA_ALARM:
            return bool(result == world.lib.FTRMA_OK)
        world.unwind_if_alarmed()


def idle(world: World) -> bool:
    """All checksum ranks are in place and have folded the committed version."""
    procs = [world.ctl.proc[world.roles.checksum_proc[c]] for c in range(world.ctl.nchecksums)]
    return all(
        p.state == world.lib.FTRMA_ALIVE and p.ready and p.folded == world.committed for p in procs
    )


def take(world: World, vault: Vault, regions: list[tuple[Any, int, int]],
         record: dict[str, Any]) -> float:  # fmt: skip
    """Take this slot's part of a coordinated checkpoint; all slots are at the same safepoint.

    A failure that is repaired in place meanwhile undoes what is staged, and the slots begin again,
    unless one of them had seen all stage and gone on (then all give the attempt up) or it was
    committed before the repair.

    Returns:
        Seconds for which the program was held up.
    """
    if world.lib.ftrma_exclusive_locks():
        raise FtrmaError(
            "safepoint() while an exclusive lock is held: other slots may wait for it and never "
            "arrive. Unlock before safepoint()"
        )
    began = world.lib.ftrma_now_ns()
    world.visit("checkpoint")
    while world.load("taken") < record["ordinal"]:
        version = world.me.staged + 1  # anew: a repair may have undone the one before, too
        if stage(world, vault, version, regions, record, began):
            world.store("taken", record["ordinal"])
        elif world.committed >= version:
            break  # it was decided before the repair
    world.lib.ftrma_ring()  # not before: the slots still staging need the cores
    return float(world.lib.ftrma_now_ns() - began) / 1e9


def stage(world: World, vault: Vault, version: int, regions: list[tuple[Any, int, int]],
          record: dict[str, Any], began: int) -> bool:  # fmt: skip
    """Stage a version and wait until all slots have; False if a repair came between."""
    lib = world.lib
    if lib.ftrma_admit(version) != lib.FTRMA_OK:
        world.unwind_if_alarmed()
        return False
    lib.ftrma_log_mark(version)
    try:
        size_bytes, dirty_bytes = vault.stage(
            version, regions, record, world.seal(version), lambda: world.visit("stage")
        )
    except CorruptVault as error:
        step_down(world, error)
        raise
    world.visit("staged")
    world.put("blocks", vault.extents.end)
    world.put("bytes", size_bytes)
    world.put("dirty_bytes", dirty_bytes)
    world.put("block_ns", lib.ftrma_now_ns() - began)
    world.put("staged", version)
    if lib.ftrma_await_staged(version) != lib.FTRMA_OK:
        world.unwind_if_alarmed()
        return False
    return True


def step_down(world: World, error: CorruptVault) -> None:
    """End this slot's process, since a damaged vault is a lost one.

    The parity still has the slot's last checkpoint, and its replacement is rebuilt from there.
    """
    world.tell(f"slot {world.role()[1]}: {error}; its process gives up its place")
    os.kill(os.getpid(), signal.SIGKILL)


# ---- a checksum rank's side -----------------------------------------------------------------


class Server:
    """A checksum rank or a spare, between repairs.

    Args:
        world: of this process.
        vault: of a checksum rank; for a spare an empty one that stands by, or None.
        idle: called now and then by a spare, with nothing to do.
    """

    def __init__(self, world: World, vault: Vault | None, idle: Any) -> None:
        self.world, self.vault, self.idle = world, vault, idle
        self.room = 0

    def serve(self) -> bool:
        """Serve until a repair is due (True) or the job ends (False)."""
        world = self.world
        world.free_lost_vaults()
        while True:
            seen = world.ctl.bell.word
            if world.ending():
                return False
            if world.alarmed():
                return True
            role, index = world.role()
            busy = False
            if role == CHECKSUM:
                busy = self.step(index)
            elif role == SPARE:
                busy = self.take_vacant_seat()
                if not busy:
                    self.idle()
                    self.stand_by()
            report_deaths_of_servers(world)
            if not world.lib.ftrma_partitioned_help() and not busy:
                world.lib.ftrma_sleep(seen, IDLE_US)

    def step(self, checksum: int) -> bool:
        """Do what is next for this parity; False if there is nothing."""
        world, vault = self.world, self.vault
        assert vault is not None
        committed = world.committed
        # Taken seats may find themselves a version behind: another's commit was under way. The
        # members have it staged until this parity is there, too.
        version = int(world.me.folded) + 1
        if world.me.folded < committed and world.me.summed == committed:
            world.visit("fold")
            world.lib.ftrma_parity_fold(vault.c, committed)
            world.put("folded", committed)
            world.visit("folded")
            world.lib.ftrma_ring()
            return True
        number, parity = divmod(checksum, world.ctl.strength)
        if world.me.summed < version and self.staged(number, version):
            world.visit("sum")
            group = Group(world, number)
            status = world.lib.ftrma_parity_sum(
                vault.c, group.members, group.weights(parity), group.k
            )
            if status:
                raise NoRoom(f"summing a checkpoint: {NO_ROOM}")
            world.put("summed", version)
            world.lib.ftrma_ring()
        if version > committed and self.summed_everywhere(version):
            world.visit("commit")
            word = world.field("commit")
            if world.lib.ftrma_cas(word, committed << 1, version << 1):
                world.lib.ftrma_trace_note(COMMIT, version, 0)
                record_checkpoint(world, version)
                return True
        return False

    def staged(self, group: int, version: int) -> bool:
        ctl, roles = self.world.ctl, self.world.roles
        return all(
            ctl.proc[roles.slot_proc[s]].staged == version for s in self.world.members(group)
        )

    def summed_everywhere(self, version: int) -> bool:
        ctl, roles = self.world.ctl, self.world.roles
        holders = [roles.checksum_proc[c] for c in range(ctl.nchecksums)]
        return all(ctl.proc[p].summed == version for p in holders)

    def take_vacant_seat(self) -> bool:
        """Take a dead checksum rank's place while the slots go on (the lowest spare only)."""
        world = self.world
        ctl = world.ctl
        # Before looking for a seat: a spare that comes first only because another has just been
        # seated then sees that seat taken.
        if world.spares()[:1] != [world.proc]:
            return False
        holders = [world.roles.checksum_proc[c] for c in range(ctl.nchecksums)]
        vacant = [c for c, proc in enumerate(holders) if not world.alive(proc)]
        if not vacant:
            return False
        began = time.monotonic()
        report_deaths(world)
        lose_results(world, vacant[0])
        self.vault = self.vault or new_vault(world)
        seat(world, vacant[0])
        world.lib.ftrma_arm()
        while not self.quiet(world.group_of_checksum(vacant[0])):
            if world.alarmed():
                return True
            world.lib.ftrma_sleep(ctl.bell.word, 1000)
        try:
            rebuild_parity(world, self.vault, vacant[0])
        except RoundChanged:
            return True
        took = time.monotonic() - began
        world.emit("reseat", checksum=vacant[0], seconds=took, spares_left=len(world.spares()))
        world.tell(
            f"checksum {vacant[0]} died; a spare rebuilt its parity in {took * 1e3:.0f} ms, the "
            "program went on"
        )
        return True

    def stand_by(self) -> None:
        """A spare takes the memory that it will need, so that restoring does not wait for it."""
        world = self.world
        need = max(world.ctl.proc[p].blocks for p in range(world.ctl.nprocs))
        if need > self.room:
            if self.vault is None:
                self.vault = new_vault(world)
            self.room = need
            # Without memory now there may be some later; taking over will tell.
            world.lib.ftrma_vault_stand_by(self.vault.c, need)
            for number in range(world.ctl.ngroups):
                group = Group(world, number)
                for element in range(group.k + group.m):
                    world.lib.ftrma_vault_map(group[element])

    def quiet(self, group: int) -> bool:
        """No member is in the middle of staging."""
        ctl, roles = self.world.ctl, self.world.roles
        procs = [ctl.proc[roles.slot_proc[s]] for s in self.world.members(group)]
        return all(p.staging <= self.world.committed or p.staged == p.staging for p in procs)


def seat(world: World, checksum: int) -> None:
    """Put this process in a checksum rank's seat."""
    ctl = world.ctl
    old, new = ctl.roles[ctl.roles_seq & 1], ctl.roles[(ctl.roles_seq + 1) & 1]
    world.ffi.memmove(world.ffi.addressof(new), world.ffi.addressof(old), world.ffi.sizeof(old))
    new.checksum_proc[checksum] = world.proc
    world.store("roles_seq", ctl.roles_seq + 1)
    world.lib.ftrma_ring()


def report_deaths_of_servers(world: World) -> None:
    """Slots' deaths are reported by the leader of their repair, with the roles they had."""
    roles = {world.roles.slot_proc[s] for s in range(world.ctl.nslots)}
    if any(
        world.ctl.proc[p].state == world.lib.FTRMA_DEAD and not world.ctl.proc[p].reported
        for p in range(world.ctl.nprocs)
        if p not in roles
    ):
        report_deaths(world)


def record_checkpoint(world: World, version: int) -> None:
    ctl, roles = world.ctl, world.roles
    procs = [ctl.proc[roles.slot_proc[s]] for s in range(ctl.nslots)]
    world.emit(
        "checkpoint", version=version,
        kind="coordinated",
        seconds=max(p.block_ns for p in procs) / 1e9,
        bytes=sum(p.bytes for p in procs), dirty_bytes=sum(p.dirty_bytes for p in procs),
    )  # fmt: skip
