"""Puts committed checkpoints into files in the background: the part of one slot.

Slot 0 names each version that is to be written before it stages that version, so whoever sees the
version committed knows of this. A thread of each slot then writes the slot's part from the vault's
copy, which stays at this version until the slot stages the next one. While parts are being read,
slot 0 begins no checkpoint, so nobody has to wait. A program that asks for a checkpoint itself
waits until the bytes of its own slot are read, `timeouts.SPILL_READ` at most. The thread of slot 0
writes the manifest when all slots have written their parts.

If a part cannot be written, this is reported and is no failure. Its checkpoint gets no manifest,
and older ones stay.

MPI: nothing in this module is collective.
Fault: a process that takes a slot over writes the slot's part of the version that was named last.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..fabric import spillfiles
from ..fabric.spillfiles import Point
from ..fabric.view import JobView
from ..host import outfile, timeouts
from ..host.errors import FtrmaError
from ..host.helper import Helper
from ..host.version import VERSION
from ..native.shared import Version
from ..protocol.checkpoint_policy import SpillPolicy
from ..settings.options import Options
from ..vault import spillparts
from ..vault.spillparts import PartWriter
from ..vault.vault import Vault

LOOK_S = 0.02  # time between looks at a version that is being written
HELD_LOOK_S = 0.002  # time between looks of a program that waits for the disk
IDLE_S = 0.1  # time between looks otherwise: each look takes the GIL from the program


class Spilling:
    """One slot's part in writing checkpoints to files, over all attempts of a process.

    Args:
        view: of this process.
        options: the job's options.
        program: returns the program's words, for the manifest.
    """

    def __init__(self, view: JobView, options: Options, program: Callable[[], Sequence[str]]
                 ) -> None:
        self.view, self.program = view, program
        self.directory = Path(options.spill)
        self.entry, self.keep = options.spill_entry, options.spill_keep
        self.policy = SpillPolicy(options.spill_interval, options.mtbf)
        self.writer: PartWriter | None = None
        self.rate = options.spill_rate
        self.vault: Vault | None = None
        self.stopped: threading.Event | None = None
        self.thread: Helper | None = None
        self.began_s = 0.0
        self.told = ""

    # -- an attempt -------------------------------------------------------------------------------

    def begin_attempt(self, vault: Vault) -> None:
        """Write the versions that are named from now on, from this vault."""
        self.vault, self.stopped = vault, threading.Event()
        if not self.writer or self.writer.slot != self._slot:
            self.writer = PartWriter(self.directory, self._slot, self._pace)
        self.thread = Helper(self._run, self.stopped, name="ftrma-spill")
        self.thread.start()

    def end_attempt(self) -> None:
        """Stop writing, and stop reading the vault, so that it can be unmapped."""
        if self.thread and self.stopped:
            self.stopped.set()
            self.thread.join()
        self.thread = None

    @property
    def _slot(self) -> int:
        return self.view.role()[1]

    # -- the program's side -----------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Say, in slot 0, whether a checkpoint is to be taken because one is to be written."""
        return self.policy.due and not self.busy

    @property
    def busy(self) -> bool:
        """Say, in slot 0, whether a version is still being written, so that none may be begun."""
        words = self.view.words
        return words.spilled < words.spill <= words.committed

    def name(self, version: Version) -> None:
        """Name the version that this slot is about to stage, if it is to be written.

        The program waits if it asks for versions faster than they are written.
        """
        if self._slot == 0 and (self.view.words.halt or self.policy.takes()):
            self._wait_while(lambda: self.busy)
            self.policy.named()
            self.began_s = time.monotonic()
            self.view.words.spill = version

    def await_read(self) -> None:
        """Wait until the vault's copy was read, which the next version is going to overwrite."""
        words = self.view.words
        self._wait_while(lambda: words.me.spilled < words.spill == words.me.staged)

    def _wait_while(self, condition: Callable[[], bool]) -> None:
        """Wait for the disk for a limited time; raise Rollback when all slots go back."""
        deadline = time.monotonic() + timeouts.SPILL_READ.s
        while condition() and time.monotonic() < deadline:
            self.view.unwind_if_alarmed()
            time.sleep(HELD_LOOK_S)

    # -- the thread -------------------------------------------------------------------------------

    def _run(self, stopped: threading.Event) -> None:
        """Write the versions that are named, until the attempt is over."""
        while not stopped.wait(LOOK_S if self._under_way else IDLE_S):
            words = self.view.words
            named = words.spill
            if not named or words.committed < named:
                continue
            if words.spilled >= named:
                if words.me.spilled != named:  # this process came after it was written
                    self._written(named)
            elif words.me.spilled < named:
                self._write_part(named, stopped)
            elif self._slot == 0 and self._all_written(named):
                self._write_manifest(named)

    @property
    def _under_way(self) -> bool:
        """Say whether a version is named that this slot has not finished yet."""
        words = self.view.words
        return words.me.spilled < words.spill or (self._slot == 0 and self.busy)

    def _write_part(self, version: Version, stopped: threading.Event) -> None:
        assert self.vault and self.writer
        words = self.view.words
        if words.me.staged != version:
            self._written(version)  # the copy is of a later version: this one gets no manifest
            return
        try:
            self.writer.write(Point(self.entry, version), self.vault, self.view.seal(version))
        except Stopped:
            return
        except Overtaken:
            self._tell(f"warning: slot {self._slot}: checkpoint {version} is not written to "
                       f"{self.directory}: the disk takes too long, and the next checkpoint has "
                       "begun")
        except (OSError, FtrmaError) as error:
            why = outfile.why(error) if isinstance(error, OSError) else str(error)
            if not stopped.is_set():
                self._tell(f"warning: slot {self._slot}: checkpoint {version} is not written to "
                           f"{self.directory}: {why}; what is there of earlier ones stays")
        self._written(version)

    def _written(self, version: Version) -> None:
        """Note, also for other nodes, that this slot has done what it can for a version."""
        self.view.words.me.spilled = version
        self.view.ring()

    def _all_written(self, version: Version) -> bool:
        """Say whether all slots have done what they can for a version."""
        view = self.view
        return all(view.words.process(proc).spilled >= version for proc in view.slot_holders())

    def _write_manifest(self, version: Version) -> None:
        words, point = self.view.words, Point(self.entry, version)
        try:
            missing = spillparts.complete(self.directory, point, self.view.layout.slots, {
                "program": list(self.program()), "cwd": os.getcwd(), "ftrma": VERSION,
                "hash_seed": os.environ.get("PYTHONHASHSEED", ""), "attempt": words.attempt})
            if not missing:
                words.spilled = version
                self.policy.cost_s = time.monotonic() - self.began_s if self.began_s else 0.0
                spillfiles.keep_newest(self.directory, self.keep, point)
                self.told = ""
                return
            if not self.told:
                self._tell(f"warning: checkpoint {version} in {self.directory} is not whole: "
                           f"{missing}")
        except (OSError, FtrmaError) as error:
            why = outfile.why(error) if isinstance(error, OSError) else str(error)
            self._tell(f"warning: checkpoint {version} in {self.directory} is not whole: {why}")
        words.spill = words.spilled  # this version is not to be written any more
        self.view.ring()

    def _tell(self, text: str) -> None:
        """Tell the user something, but not again before a checkpoint is whole."""
        if text.split(":")[0] != self.told:
            self.told = text.split(":")[0]
            self.view.tell(text)

    def _pace(self, size_bytes: int) -> None:
        """Wait before writing so many bytes, so that the rate is kept.

        Raises:
            Stopped: the attempt is over. Overtaken: the copy is being overwritten.
        """
        assert self.stopped
        if self.stopped.wait(size_bytes / self.rate if self.rate else 0):
            raise Stopped
        words = self.view.words
        if words.me.staging > words.spill:
            raise Overtaken


class Stopped(Exception):
    """The attempt is over, so its part of a checkpoint is not written any more."""


class Overtaken(Exception):
    """The next version was begun before this one was read completely."""
