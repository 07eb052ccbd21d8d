"""The checkpoint that a program goes on from: its record, and the vault that has its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..host.errors import FtrmaError
from ..native import logs
from ..native.shared import Slot
from ..vault.vault import Vault
from .state import State


class CheckpointSource:
    """A committed version of this slot, or its demand checkpoint.

    Args:
        slot: the slot whose checkpoint it is.
        vault: the vault that has its bytes.
        record: the record that describes them, as `checkpoint_contents` has made it.
    """

    def __init__(self, slot: Slot, vault: Vault, record: dict[str, Any]) -> None:
        self.slot, self.vault, self.record = slot, vault, record

    @property
    def ordinal(self) -> int:
        """Return the number of the safepoint at which it was taken."""
        return int(self.record["ordinal"])

    @property
    def step(self) -> int:
        """Return how many safepoints had been passed by then, since the program's start."""
        return int(self.record.get("step", self.ordinal))  # files may be older than this entry

    def restore_window(self, ordinal: int, address: int, size_bytes: int) -> int | None:
        """Put the checkpoint's bytes into one window.

        Args:
            ordinal: the window's number.
            address, size_bytes: memory of this slot's part of the window.

        Returns:
            How many bytes differed; None if the checkpoint does not contain the window.
        """
        if ordinal not in self.record["windows"]:
            return None
        saved_bytes, _ = self.record["windows"][ordinal]
        if saved_bytes != size_bytes:
            raise FtrmaError(
                f"window number {ordinal} of slot {self.slot} has {size_bytes} bytes now and had "
                f"{saved_bytes} in the checkpoint. The program must make the same windows in the "
                "same order each time it runs"
            )
        if size_bytes:
            return self.vault.copy_out(("window", ordinal), address, size_bytes)
        return 0

    def restore_windows(self) -> int:
        """Put the checkpoint's bytes into all windows, overwriting what the program has put there.

        Returns:
            How many bytes differed.
        """
        return sum(
            self.restore_window(window.ordinal, window.address, window.size_bytes) or 0
            for window in logs.windows()
        )

    def load_state(self, name: str, state: State) -> None:
        """Give a declared state the checkpoint's values.

        Raises:
            FtrmaError: the checkpoint has no state of this name.
        """
        saved = self.record["states"].get(name)
        if saved is None:
            raise FtrmaError(
                f"protect({name!r}): the checkpoint has no such state; it declares "
                f"{', '.join(map(repr, self.record['states'])) or 'nothing'}. The program must "
                "declare the same names each time it runs"
            )
        state._load(saved, self.vault.copy_out)

    def differs(self, states: Mapping[str, State]) -> bool:
        """Say whether a declared state differs from what the checkpoint has."""
        return any(state._differs(self.record["states"][name], self.vault.bytes_of)
                   for name, state in states.items())
