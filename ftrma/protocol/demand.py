"""Demand checkpoints: a slot checkpoints on its own because logs run short (section 6.2).

When a slot's logs come near their budget, it asks for a checkpoint the slot with the largest share
in them, and every slot with nearly as much. A slot that is asked takes it at its next safepoint.
Nobody waits, and all slots free the log records whose effects the checkpoint holds
(``csrc/log/demand.c`` says which records these are, and why the slot may copy its windows while
others access them).

The checkpoint lies in a vault of its own beside the slot's result log. Like that log, it counts as
held by the first checksum rank of the group. The slot's part of the committed version stays as it
is, for rollbacks.

In mode *bulk* two vaults take turns: the checkpoint in force is kept until the next one is
complete. This takes twice the slot's protected bytes. In mode *stream* one vault is written over.
This takes the protected bytes once, but a slot that dies meanwhile cannot be replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..fabric.story import Checkpoint
from ..fabric.view import JobView
from ..host.errors import FtrmaError
from ..native import job, logs, vaults
from ..native.shared import Slot
from ..vault.vault import Regions, Vault

MUCH = 0.05  # the user is told when demand checkpoints take this share of a slot's time
MEASURED_S = 5.0  # time for which the share is measured
FIRST = 2  # checkpoints that are not counted, since they also allocate memory


class DemandStore:
    """The demand checkpoints of the slot that this process holds.

    Args:
        view: of this process.
        mode: "bulk" or "stream".
    """

    def __init__(self, view: JobView, mode: str) -> None:
        self.view, self.mode = view, mode
        self.slot = Slot(-1)
        self.vaults: dict[int, Vault] = {}
        self.told = False
        self.taken = 0
        self.since_s = self.spent_s = 0.0

    def begin_attempt(self, slot: Slot) -> None:
        """Begin an attempt as this slot; forget the vaults of the attempt before."""
        self.slot, self.taken = slot, 0
        self.close()

    def close(self) -> None:
        """Unmap all vaults."""
        for place in list(self.vaults):
            self._shut(place)

    def _shut(self, place: int) -> None:
        if place in self.vaults:
            self.vaults.pop(place).close()

    def asked(self) -> bool:
        """Say whether somebody asks this slot for a demand checkpoint."""
        return bool(self.view.words.slot(self.slot).asked)

    def _vault_number(self, number: int) -> int:
        """Number of the vault that holds a checkpoint."""
        return number % 2 if self.mode == "bulk" else 0

    def _path(self, place: int) -> Path:
        return self.view.directory / f"demand-{self.slot}-{place}"

    def _open(self, place: int, *, create: bool) -> Vault:
        view = self.view
        capacity = view.words.capacity_blocks
        self._shut(place)
        self.vaults[place] = Vault(self._path(place), capacity, 0, create=create)
        return self.vaults[place]

    def take(self, protected: Callable[[], tuple[Regions, dict[str, Any]]]) -> None:
        """Take a demand checkpoint of this slot, inside a safepoint.

        If there is no memory for it, all slots are asked for a coordinated checkpoint instead.

        Args:
            protected: returns the regions and the record that `Vault.write` takes.
        """
        view = self.view
        if logs.exclusive_locks():
            return  # another slot may wait for the lock; a later safepoint will do
        if not job.windows_flush():  # a replay from here would omit accesses under way
            view.unwind_if_alarmed()
            return
        began = time.monotonic()
        in_force = view.words.slot(self.slot).demand
        number, cut = logs.demand_begin(overwrite=self.mode == "stream")
        if not number:
            return
        regions, record = protected()
        record["cut"] = cut
        place = self._vault_number(number)
        try:
            vault = self.vaults.get(place) or self._open(place, create=True)
            seal = view.seal(f"demand {number}")
            size_bytes, dirty_bytes = vault.write(
                regions, record, seal, lambda: view.visit("demand")
            )
        except FtrmaError as error:
            # A replacement that began with a newer version has not opened the checkpoint in force:
            # that checkpoint is of no use any more.
            held = in_force and self.mode == "bulk" and self._vault_number(in_force) in self.vaults
            logs.demand_failed(lost=not held)
            self._shut(place)
            self._path(place).unlink(missing_ok=True)
            if not self.told:
                view.tell(
                    f"slot {self.slot}: no demand checkpoint ({error}); all take one instead"
                )
            self.told = True
            return
        if not logs.demand_end(cut):
            return  # the request stays
        ended = time.monotonic()
        view.emit(Checkpoint(
            version=view.words.committed, kind="demand", slot=self.slot, seconds=ended - began,
            bytes=size_bytes, dirty_bytes=dirty_bytes,
        ))
        self._weigh(began, ended)

    def _weigh(self, began: float, ended: float) -> None:
        """Tell the user once in a job if demand checkpoints take much time."""
        view = self.view
        self.taken += 1
        if self.taken <= FIRST:
            self.since_s, self.spent_s = ended, 0.0
            return
        self.spent_s += ended - began
        share = self.spent_s / (ended - self.since_s)
        if ended - self.since_s < MEASURED_S or share < MUCH:
            return
        if view.words.first_to_tell_demand():
            view.tell(
                f"slot {self.slot} spends {100 * share:.0f} % of its time in demand checkpoints; "
                f"with --log-budget {2 * view.words.log_bytes} they would come half as often"
            )

    def recover(self, number: int) -> tuple[Vault, dict[str, Any]] | None:
        """Open the checkpoint in force of a lost process; None if it is damaged.

        Returns:
            Its vault and its record.
        """
        vault = self._open(self._vault_number(number), create=False)
        if vaults.check(vault.c, vault.c, -1, 0, vault.used) >= 0:
            return None
        return vault, vault.read_record(self.view.seal(f"demand {number}"))
