"""Demand checkpoints: a slot checkpoints on its own because logs run short (section 6.2).

When a slot's logs come near their budget, it asks the slot with the largest share in them for a
checkpoint, and those with nearly as much. They take it at their next safepoint; nobody waits, and
everybody frees what the checkpoint holds (``csrc/log/demand.c`` says what that is, and why it may
be copied under way).

The checkpoint is a vault of its own beside the slot's result log, and like that log it counts as
held by the checksum rank of the group. All others go back to the committed version in a rollback,
so the slot's part of that one stays as it is.

In *bulk* two vaults take turns, so the checkpoint in force is there until the next is complete,
which takes twice the slot's protected bytes. As a *stream* there is one, written over, which takes
them once; a slot that dies meanwhile cannot be replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import FtrmaError
from ..fabric.story import Checkpoint
from ..fabric.world import World
from ..native import job, logs, vaults
from ..vault.vault import Regions, Vault

# From this share of a slot's time on, measured for as long as this, the user is told.
MUCH = 0.05
MEASURED_S = 5.0
# The first ones take memory and do not count.
FIRST = 2


class DemandStore:
    """The demand checkpoints of the slot that this process holds.

    Args:
        world: of this process.
        mode: "bulk" or "stream".
    """

    def __init__(self, world: World, mode: str) -> None:
        self.world, self.mode = world, mode
        self.slot = -1
        self.vaults: dict[int, Vault] = {}
        self.told = False
        self.taken = 0
        self.since_s = self.spent_s = 0.0

    def enter(self, slot: int) -> None:
        """The program is entered as this slot; what was there is of another time."""
        self.slot, self.taken = slot, 0
        self.close()

    def close(self) -> None:
        for place in list(self.vaults):
            self._shut(place)

    def _shut(self, place: int) -> None:
        if place in self.vaults:
            self.vaults.pop(place).close()

    def asked(self) -> bool:
        return bool(self.world.ctl.slots[self.slot].asked)

    def _place(self, number: int) -> int:
        """Which vault holds the checkpoint with this number."""
        return number % 2 if self.mode == "bulk" else 0

    def _path(self, place: int) -> Path:
        return self.world.directory / f"demand-{self.slot}-{place}"

    def _open(self, place: int, *, create: bool) -> Vault:
        world = self.world
        capacity = world.ctl.capacity_blocks
        self._shut(place)
        self.vaults[place] = Vault(self._path(place), capacity, 0, create=create)
        return self.vaults[place]

    def take(self, protected: Callable[[], tuple[Regions, dict[str, Any]]]) -> None:
        """Take a demand checkpoint of this slot, inside a safepoint.

        Without memory for it, all slots are asked for a checkpoint instead.

        Args:
            protected: gives the regions and the record as `Vault.write` takes them.
        """
        world = self.world
        if logs.exclusive_locks():
            return  # another slot may wait for the lock; there will be a better moment
        if not job.windows_flush():  # a replay from here would not send again what dies under way
            world.unwind_if_alarmed()
            return
        began = time.monotonic()
        in_force = int(world.ctl.slots[self.slot].demand)
        number, cut = logs.demand_begin(overwrite=self.mode == "stream")
        if not number:
            return
        regions, record = protected()
        record["cut"] = cut
        place = self._place(number)
        try:
            vault = self.vaults.get(place) or self._open(place, create=True)
            seal = world.seal(f"demand {number}")
            size_bytes, dirty_bytes = vault.write(
                regions, record, seal, lambda: world.visit("demand")
            )
        except FtrmaError as error:
            # A replacement that came from a newer version has not opened the one in force: it is
            # of no use any more.
            held = in_force and self.mode == "bulk" and self._place(in_force) in self.vaults
            logs.demand_failed(lost=not held)
            self._shut(place)
            self._path(place).unlink(missing_ok=True)
            if not self.told:
                world.tell(
                    f"slot {self.slot}: no demand checkpoint ({error}); all take one instead"
                )
            self.told = True
            return
        if not logs.demand_end(cut):
            return  # it was asked for, and still is
        ended = time.monotonic()
        world.emit(Checkpoint(
            version=world.committed, kind="demand", slot=self.slot, seconds=ended - began,
            bytes=size_bytes, dirty_bytes=dirty_bytes,
        ))
        self._weigh(began, ended)

    def _weigh(self, began: float, ended: float) -> None:
        """Tell the user, once in a job, if these checkpoints take much time."""
        world = self.world
        self.taken += 1
        if self.taken <= FIRST:
            self.since_s, self.spent_s = ended, 0.0
            return
        self.spent_s += ended - began
        share = self.spent_s / (ended - self.since_s)
        if ended - self.since_s < MEASURED_S or share < MUCH:
            return
        if world.exchange("told_demand", 0, 1):
            world.tell(
                f"slot {self.slot} spends {100 * share:.0f} % of its time in demand checkpoints; "
                f"with --log-budget {2 * world.ctl.log_bytes} they would come half as often"
            )

    def recover(self, number: int) -> tuple[Vault, dict[str, Any]] | None:
        """A lost process's checkpoint in force, with its record; None if it is damaged."""
        vault = self._open(self._place(number), create=False)
        if vaults.check(vault.c, vault.c, -1, 0, vault.used) >= 0:
            return None
        return vault, vault.read_record(self.world.seal(f"demand {number}"))
