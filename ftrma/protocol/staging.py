"""A slot's part of a checkpoint: staged in one go (`coordinated`), or in steps, alone.

A slot that stages alone waits for no other slot, neither before nor after. A framework makes the
parts of all slots consistent with each other (`ftrma.framework.staging`). It may stage some
regions, let the program go on, and stage more of the same version. For the servers both ways are
alike: each group is summed when all its members have staged, the version is committed when all
groups are summed, and a repair undoes a version that is staged by half, or by some slots only.

Two rules keep slots that stage alone from disturbing others. First, a slot begins version v + 1
only when all parities are at v, so there are never two uncommitted versions at once. Second, a
spare that takes a checksum rank's vacant seat reads the members' copies only while none of them is
being written. A member that has begun a version may take long to end it. Meanwhile others may begin
that version, and the member may even wait for them, so the spare waits for all of them
(`Server.take_vacant_seat`, ``ftrma_admit`` in ``csrc/job/meet.c``).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..fabric.view import JobView
from ..host.errors import CorruptVault
from ..native import job, logs
from ..native.shared import Version
from ..vault.vault import Regions, Vault


@dataclass
class OpenVersion:
    """A version that this slot is staging in steps.

    Attributes:
        version: number of the version.
        record: the record that describes its regions so far.
        held_ns: how long its steps have held the program up.
    """

    version: Version
    record: dict[str, Any]
    held_ns: int = 0

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of a step to `held_ns`."""
        began = job.now_ns()
        yield
        self.held_ns += job.now_ns() - began


def parities_are_folded(view: JobView) -> bool:
    """Say whether all checksum ranks are alive and have folded the committed version."""
    committed = view.words.committed
    return all(view.ready(p) and view.words.process(p).folded == committed
               for p in view.checksum_holders())


def is_ready(view: JobView) -> bool:
    """Say whether no version is being made, as far as this process sees."""
    slots = [view.words.process(p) for p in view.slot_holders()]
    committed = view.words.committed
    return parities_are_folded(view) and all(
        words.staged == committed and words.staging <= committed for words in slots)


def begin(view: JobView, vault: Vault, version: Version, regions: Regions,
          record: dict[str, Any]) -> OpenVersion:
    """Begin to stage alone a version that was admitted."""
    opened = OpenVersion(version, record)
    with opened.timed():
        logs.log_mark(version, alone=True)
        with writing(view, vault):
            vault.begin_stage(version, regions, lambda: view.visit("stage"))
    return opened


def add(view: JobView, vault: Vault, opened: OpenVersion, regions: Regions) -> None:
    """Stage more of a version."""
    with opened.timed(), writing(view, vault):
        vault.add_to_stage(regions)


def end(view: JobView, vault: Vault, opened: OpenVersion) -> None:
    """Stage the record of a version: the slot's part is then complete, and the servers go on with
    it."""
    with opened.timed(), writing(view, vault):
        sizes_bytes = vault.end_stage(opened.record, view.seal(opened.version))
        vault.words.complete = opened.version
    view.visit("staged")
    publish(view, vault, opened.version, sizes_bytes, opened.held_ns)
    view.ring()


@contextlib.contextmanager
def writing(view: JobView, vault: Vault) -> Iterator[None]:
    """Write to the vault's stage and copy."""
    with view.critical:
        vault.words.version = view.words.committed
        try:
            yield
        except CorruptVault as error:
            # A rollback would keep the damage, with a checksum that matches it, so the vault counts
            # as lost.
            vault.words.version = vault.words.complete = Version(0)
            step_down(view, error)
            raise


def publish(view: JobView, vault: Vault, version: Version, sizes_bytes: tuple[int, int],
            held_ns: int) -> None:
    """Let the servers know that this slot has staged a version."""
    me = view.words.me
    me.blocks = vault.extents.end
    me.bytes, me.dirty_bytes = sizes_bytes
    me.block_ns = held_ns
    me.staged = version


def step_down(view: JobView, error: CorruptVault) -> None:
    """End this slot's process, since a damaged vault counts as lost.

    The parity still has the slot's last checkpoint, and its replacement is rebuilt from there.
    """
    view.tell(f"slot {view.role()[1]}: {error}; its process gives up its place")
    os.kill(os.getpid(), signal.SIGKILL)
