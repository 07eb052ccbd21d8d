"""Versions that a slot stages alone, for a framework, in one attempt of the program.

`protocol.staging` has the steps. This module checks their order, and handles versions that a repair
undoes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..fabric.one_node import LOOK_S
from ..fabric.view import JobView
from ..host.errors import CATASTROPHE, FtrmaError, NoRoom, on_host
from ..native.shared import Version
from ..protocol import staging
from ..protocol.checkpoint_policy import CheckpointPolicy
from ..protocol.repair_round import LaunchEnded
from ..protocol.staging import OpenVersion
from ..vault.vault import Region, Vault
from .entries import EntryStore

if TYPE_CHECKING:
    from .spilling import Spilling

NONE = Version(0)
COMMIT_LOOK_S = 0.001  # how often it is checked whether a version is committed


class SlotStaging:
    """The versions that this slot stages alone, in one attempt.

    Args:
        view: of this process.
        vault: this slot's vault.
        entries: the framework's entries that are saved.
        policy: learns when a checkpoint was taken, and how long it held the program up.
        protected: flushes files, and returns the regions and the record of all that is protected.
        spilling: writes checkpoints to files; None if nobody has asked for that.

    Attributes:
        open: the version that is being staged; None if there is none.
        undone: a repair has undone the version that was begun last, before it was ended.
        newest: the newest version that was staged; 0 if there is none, or it was undone.
        taken: number of versions that were staged.
    """

    def __init__(
        self, view: JobView, vault: Vault, entries: EntryStore, policy: CheckpointPolicy,
        protected: Callable[[], tuple[list[Region], dict[str, Any]]],
        spilling: Spilling | None = None,
    ) -> None:
        self.view, self.vault, self.entries, self.policy = view, vault, entries, policy
        self.protected, self.spilling = protected, spilling
        self.open: OpenVersion | None = None
        self.undone = False
        self.newest, self.taken = NONE, 0

    def ready(self) -> bool:
        """See `ftrma.framework.Staging`."""
        self.view.unwind_if_alarmed()
        if self.spilling and self.spilling.busy:
            return False
        return staging.is_ready(self.view)

    def begin(self, wanted: Callable[[], bool] = lambda: True) -> bool:
        """See `ftrma.framework.Staging`.

        Args:
            wanted: says whether the version is still to be begun; called after a repair, which may
                come first.
        """
        view = self.view
        view.unwind_if_alarmed()
        if self.open:
            raise FtrmaError(f"staging.begin(): version {self.open.version} is begun; end() it")
        version = Version(view.words.me.staged + 1)
        if view.words.committed + 1 < version:
            return False
        regions, record = self.protected()  # it may run code of the program, so before admit()
        if self.spilling:
            self.spilling.await_read()
        if not wanted() or not view.admit(version, wait=False):
            return False
        if self.spilling:
            self.spilling.name(version)
        view.visit("checkpoint")
        self.undone, self.policy.last = False, time.monotonic()
        with ending_if_full(view):
            self.open = staging.begin(view, self.vault, version, regions, record)
        self.entries.staged(version)
        return True

    def add(self) -> None:
        """See `ftrma.framework.Staging`."""
        self.view.unwind_if_alarmed()
        opened = self._opened("add")
        if not opened:
            return
        opened.record["entries"].update(self.entries.forms(fresh=True))
        regions = self.entries.regions(self.view.words.committed, fresh=True)
        with ending_if_full(self.view):
            staging.add(self.view, self.vault, opened, regions)
        self.entries.staged(opened.version, fresh=True)

    def end(self) -> Version:
        """See `ftrma.framework.Staging`."""
        self.view.unwind_if_alarmed()
        opened = self._opened("end")
        self.open, self.undone = None, False
        if not opened:
            return NONE
        with ending_if_full(self.view):
            staging.end(self.view, self.vault, opened)
        self.newest, self.taken = opened.version, self.taken + 1
        if self.taken > 1:  # the first one also allocates the memory, once and for all
            self.policy.delta_s = opened.held_ns / 1e9
        return opened.version

    def _opened(self, what: str) -> OpenVersion | None:
        """Return the version that is being staged; None if a repair has undone it.

        Raises:
            FtrmaError: no version was begun.
        """
        if not self.open and not self.undone:
            raise FtrmaError(f"staging.{what}(): no version is begun; begin() first")
        return self.open

    def undo(self, committed: Version) -> None:
        """Forget what was undone by a repair in which this slot did not go back."""
        self.undone |= self.open is not None
        self.open = None
        if self.newest > committed:
            self.newest = NONE

    def settle(self, ordinal: int) -> None:
        """Wait until everything that this slot has staged is committed, before all meet for a
        checkpoint.

        Args:
            ordinal: number of the safepoint.

        Raises:
            FtrmaError: a version is begun and not ended, or another slot waits for the checkpoint
                already and has not staged the version.
        """
        view = self.view
        if self.open:
            raise FtrmaError(f"safepoint(): version {self.open.version} is begun; end() it first")
        while self.newest > view.words.committed:
            for slot, proc in enumerate(view.slot_holders()):
                words = view.words.process(proc)
                if words.arrived >= ordinal and words.staged < self.newest:
                    raise FtrmaError(
                        f"safepoint(): slot {slot} takes a checkpoint here without having staged "
                        f"version {self.newest}, as slot {view.role()[1]} has: end() it on all "
                        "slots before")
            time.sleep(COMMIT_LOOK_S)
            view.unwind_if_alarmed()


@contextlib.contextmanager
def ending_if_full(view: JobView) -> Iterator[None]:
    """End the job, and say why, if a checkpoint finds no memory.

    The program cannot handle this error, since the other slots wait for this slot's part.
    """
    try:
        yield
    except NoRoom as error:
        while not view.claim_error(meanwhile=view.unwind_if_alarmed):
            time.sleep(LOOK_S)
        why = on_host(error, view.host_of(view.proc))
        view.tell(f"error: slot {view.role()[1]} cannot checkpoint: {why}")
        view.abort(CATASTROPHE)
        raise LaunchEnded from None
