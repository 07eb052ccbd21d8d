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

How. See ``csrc/vault/checkpoint.c``. The program is held up from the first barrier to the last
slot's staging; summing, committing and folding happen at the checksum ranks while it computes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import CorruptVault, FtrmaError, Rollback
from ..fabric.base import RoundChanged
from ..fabric.world import World
from ..native import job, logs
from ..native.shared import Slot, Version
from ..vault.group import scrub
from ..vault.vault import Regions, Vault
from .ahead import expect
from .checkpoints import Policy, Repaired
from .rounds import repair, tell_scrubbed
from .server import Server
from .starting import start


class Coordinated:
    """A process's part in coordinated checkpoints."""

    def __init__(self, world: World) -> None:
        self.world = world

    def start(self) -> Vault | None:
        return start(self.world)

    def expect(self, vault: Vault, sizes_bytes: Iterable[int]) -> None:
        expect(self.world, vault, sizes_bytes)

    def due(self, policy: Policy, slot: int, ordinal: int, size_bytes: Callable[[], int],
            take: bool | None) -> bool:
        return due_here(self.world, policy, slot, ordinal, size_bytes, take)

    def take(
        self, vault: Vault, regions: Regions, record: dict[str, Any]
    ) -> tuple[Version, float]:
        return take(self.world, vault, regions, record)

    def serve(
        self, vault: Vault | None, idle: Callable[[], object]
    ) -> tuple[Vault | None, bool]:
        server = Server(self.world, vault, idle)
        again = server.serve()
        return server.vault, again

    def finish(self) -> None:
        """All that is left to do is done by the checksum ranks."""

    def scrub(self, slot: Slot) -> None:
        """Check the own vault against the checksums that lie with the parity."""
        group = self.world.roles.slot_group[slot]
        element = self.world.members(group).index(slot)
        try:
            tell_scrubbed(self.world, scrub(self.world, group, element))
        except RoundChanged:
            raise Rollback("a process failed") from None

    def repair(self, vault: Vault | None) -> tuple[Vault | None, Repaired]:
        return repair(self.world, vault)


# ---- a slot's side --------------------------------------------------------------------------


def choose_target(world: World) -> None:
    """Name the next safepoint that no slot has passed (slot 0 only)."""
    holders, target = world.holders(), 0
    while True:
        newest = max(job.load(world.ctl.proc[p], "ordinal") for p in holders)
        if newest < target:
            return
        target = newest + 1
        world.store("target", target)
        world.synchronize()


def due_here(
    world: World, policy: Policy, slot: int, ordinal: int, size_bytes: Callable[[], int],
    take: bool | None = None,
) -> bool:
    """Whether this safepoint is one where all slots checkpoint; waits for the others if so.

    Args:
        take: what the program says, the same on all slots; None: it leaves that to the policy.
    """
    world.put("ordinal", ordinal)
    if take is False:
        if slot == 0 and world.load("target") == ordinal:
            world.store("wanted", 1)  # it was named for this one
        return False
    together = take or policy.every
    if not together:
        world.synchronize()
        if slot == 0 and world.ctl.target < ordinal:
            wanted = world.load("wanted")
            if (wanted or policy.due(size_bytes)) and idle(world):
                choose_target(world)
                world.store("wanted", 0)
        if world.load("target") != ordinal:
            return False
    if slot == 0 or take:
        policy.last = time.monotonic()
    while not job.windows_flush():  # before anybody takes this slot for arrived
        world.unwind_if_alarmed()
    while True:
        ended = job.arrive(ordinal, targeted=not together)
        if ended is not job.Wait.ALARM:
            return ended is job.Wait.OK
        world.unwind_if_alarmed()


def idle(world: World) -> bool:
    """All checksum ranks are in place and have folded the committed version."""
    procs = [world.ctl.proc[p] for p in world.servers()]
    return all(
        p.state == job.State.ALIVE and p.ready and p.folded == world.committed for p in procs
    )


def take(world: World, vault: Vault, regions: Regions,
         record: dict[str, Any]) -> tuple[Version, float]:
    """Take this slot's part of a coordinated checkpoint; all slots are at the same safepoint.

    A failure that is repaired in place meanwhile undoes what is staged, and the slots begin again,
    unless one of them had seen all stage and gone on (then all give the attempt up) or it was
    committed before the repair.

    Returns:
        The version that this slot has staged, 0 if the attempt was given up, and the seconds for
        which the program was held up.
    """
    if logs.exclusive_locks():
        raise FtrmaError(
            "safepoint() while an exclusive lock is held: other slots may wait for it and never "
            "arrive. Unlock before safepoint()"
        )
    began = job.now_ns()
    world.visit("checkpoint")
    taken = Version(0)
    while world.load("taken") < record["ordinal"]:
        version = Version(world.me.staged + 1)  # anew: a repair may have undone the one before, too
        if stage(world, vault, version, regions, record, began):
            world.store("taken", record["ordinal"])
            taken = version
        elif world.committed >= version:
            taken = version
            break  # it was decided before the repair
    job.ring()  # not before: the slots still staging need the cores
    return taken, (job.now_ns() - began) / 1e9


def stage(world: World, vault: Vault, version: Version, regions: Regions,
          record: dict[str, Any], began: int) -> bool:
    """Stage a version and wait until all slots have; False if a repair came between."""
    if not job.admit(version):
        world.unwind_if_alarmed()
        return False
    logs.log_mark(version)
    with world.critical:
        vault.words.version = world.committed
        try:
            size_bytes, dirty_bytes = vault.stage(
                version, regions, record, world.seal(version), lambda: world.visit("stage")
            )
        except CorruptVault as error:
            # Going back would take the damage along, with a checksum that matches it.
            vault.words.version = vault.words.complete = Version(0)
            step_down(world, error)
            raise
        vault.words.complete = version
    world.visit("staged")
    world.put("blocks", vault.extents.end)
    world.put("bytes", size_bytes)
    world.put("dirty_bytes", dirty_bytes)
    world.put("block_ns", job.now_ns() - began)
    world.put("staged", version)
    if not job.await_staged(version):
        world.unwind_if_alarmed()
        return False
    return True


def step_down(world: World, error: CorruptVault) -> None:
    """End this slot's process, since a damaged vault is a lost one.

    The parity still has the slot's last checkpoint, and its replacement is rebuilt from there.
    """
    world.tell(f"slot {world.role()[1]}: {error}; its process gives up its place")
    os.kill(os.getpid(), signal.SIGKILL)
