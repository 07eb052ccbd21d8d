"""Checkpoints as the program's side knows them: when one is due, and who takes it.

That is `coordinated`; over several nodes `distributed`, where only the beginning is another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ..fabric.story import Phases
from ..native.shared import Slot, Version
from ..reliability.interval import FIRST_GUESS_BYTES_PER_S, daly_interval
from ..vault.vault import Regions, Vault


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


@dataclass(frozen=True)
class Repaired:
    """How a failure was repaired in place, as one process saw it.

    Attributes:
        leader: this process has led the repair.
        kind: "causal": lost slots are replayed, the others go on; "rollback": all go back;
            "reentry": all do, and a framework recovers.
        version: of the checkpoint that they go on from; 0 is the start of the program.
        seconds, phases: from the death on, without the replay.
        silent: nobody had died, and nobody goes back.
        died: somebody had died; known to the leader.
    """

    leader: bool
    kind: str
    version: Version
    seconds: float
    phases: Phases
    silent: bool = False
    died: bool = True


class Checkpoints(Protocol):
    """A process's part in the checkpoints of its job."""

    def start(self) -> Vault | None:
        """Everything between joining and running; the vault of this process's role."""

    def expect(self, vault: Vault, sizes_bytes: Iterable[int]) -> None:
        """A slot is going to checkpoint regions of these sizes: take memory ahead."""

    def due(self, policy: Policy, slot: int, ordinal: int, size_bytes: Callable[[], int],
            take: bool | None) -> bool:
        """Whether all slots checkpoint at this safepoint; waits for the others if so."""

    def take(
        self, vault: Vault, regions: Regions, record: dict[str, Any]
    ) -> tuple[Version, float]:
        """Take this slot's part of one; the version that was staged, 0 if it was given up, and the
        seconds for which the program was held up."""

    def serve(
        self, vault: Vault | None, idle: Callable[[], object]
    ) -> tuple[Vault | None, bool]:
        """Serve as a checksum rank or spare; the vault, and whether a repair is due (or the end).

        Args:
            vault: of a checksum rank; a spare's, which stands by, or None.
            idle: called now and then by a spare, with nothing to do.
        """

    def finish(self) -> None:
        """This slot's program has ended."""

    def scrub(self, slot: Slot) -> None:
        """A slot enters the program at a checkpoint: have its vault sound."""

    def repair(self, vault: Vault | None) -> tuple[Vault | None, Repaired]:
        """Have the failure that is pending repaired, with all the others.

        Returns:
            The vault of this process's role from now on, and how it was repaired.

        Raises:
            Ended: the job is given up or launched again; nothing is left to do here.
        """
