"""Demand checkpoints: a slot checkpoints on its own because logs run short (section 6.2).

When a slot's logs come near their budget, it asks the slot with the largest share in them for a
checkpoint, and those with nearly as much. They take it at their next safepoint; nobody waits, and
everybody frees what the checkpoint holds (``csrc/demand.c`` says what that is, and why it may be
copied under way).

The checkpoint is a vault of its own beside the slot's result log, and like that log it counts as
held by the checksum rank of the group. All others go back to the committed version in a rollback,
so the slot's part of that one stays as it is.

In *bulk* the new checkpoint and what it replaces are both there until it is complete, which takes
twice the slot's protected bytes. As a *stream* it is written over the old one piece by piece and
takes them once; a slot that dies meanwhile cannot be replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .errors import CorruptVault, FtrmaError
from .vault import Vault
from .world import World

PIECE_BLOCKS = 256


class DemandStore:
    """The demand checkpoints of the slot that this process holds.

    Args:
        world: of this process.
        mode: "bulk" or "stream".
    """

    def __init__(self, world: World, mode: str) -> None:
        self.world, self.mode = world, mode
        self.slot = -1
        self.vault: Vault | None = None
        self.told = False

    def enter(self, slot: int) -> None:
        """The program is entered as this slot; what was there is of another time."""
        self.slot = slot
        self.close()

    def close(self) -> None:
        if self.vault:
            self.vault.close()
        self.vault = None

    def asked(self) -> bool:
        return bool(self.world.ctl.slots[self.slot].asked)

    def _open(self, *, create: bool) -> Vault:
        world = self.world
        self.close()
        self.vault = Vault(
            world.native, world.directory / f"demand-{self.slot}", world.ctl.capacity_blocks, 0,
            create=create,
        )  # fmt: skip
        return self.vault

    def take(
        self, protected: Callable[[], tuple[list[tuple[Any, int, int]], dict[str, Any]]]
    ) -> None:
        """Take a demand checkpoint of this slot, inside a safepoint.

        Without memory for it, all slots are asked for a checkpoint instead.

        Args:
            protected: gives the regions and the record as `Vault.stage` takes them.
        """
        world, lib, ffi = self.world, self.world.lib, self.world.ffi
        if lib.ftrma_exclusive_locks():
            return  # another slot may wait for the lock; there will be a better moment
        began = time.monotonic()
        # A replacement that came from a newer version has not opened the one in force: it is of no
        # use any more.
        old, in_force = self.vault, int(world.ctl.slots[self.slot].demand)
        if not in_force:
            old = None
        cut = ffi.new("uint64_t[]", int(lib.ftrma_cut_words()))
        number = lib.ftrma_demand_begin(self.mode == "stream", cut)
        if not number:
            return
        regions, record = protected()
        record["cut"] = bytes(ffi.buffer(cut))
        try:
            vault = old or self._open(create=True)
            size_bytes, dirty_bytes = vault.stage(
                number, regions, record, lambda: world.visit("demand"),
                piece=PIECE_BLOCKS if self.mode == "stream" else 0,
            )  # fmt: skip
        except FtrmaError as error:
            lost = not old or self.mode == "stream" or isinstance(error, CorruptVault)
            lib.ftrma_demand_failed(lost)
            if old and not lost:
                lib.ftrma_stage_undo(old.c, in_force)
            else:
                self.close()
                (world.directory / f"demand-{self.slot}").unlink(missing_ok=True)
            if not self.told:
                world.tell(
                    f"slot {self.slot}: no demand checkpoint ({error}); all take one instead"
                )
            self.told = True
            return
        lib.ftrma_demand_end()
        world.emit(
            "checkpoint", version=world.committed, kind="demand", slot=self.slot,
            seconds=time.monotonic() - began, bytes=size_bytes, dirty_bytes=dirty_bytes,
        )  # fmt: skip

    def recover(self, number: int) -> tuple[Vault, dict[str, Any]] | None:
        """A lost process's checkpoint in force, with its record; None if it is damaged."""
        vault = self._open(create=False)
        lib = self.world.lib
        lib.ftrma_stage_undo(vault.c, number)
        if lib.ftrma_check(vault.c, vault.c, -1, 0, vault.used) >= 0:
            return None
        return vault, vault.read_record()
