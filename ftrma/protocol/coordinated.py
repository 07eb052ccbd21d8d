"""The slots' side of coordinated checkpoints: when one is due, and how a slot takes its part.

Place. A checkpoint is taken at a safepoint, which the program marks: windows and declared state are
consistent with each other there. The two schemes of section 3.1.2 of Besta & Hoefler do not differ
here: an access is complete when its call returns, so RMA-consistency needs nothing but a barrier of
all slots at the same safepoint. In the Gsync scheme the safepoint follows a fence. In the Locks
scheme no exclusive lock may be held (LC = 0), since a slot that waits for it would never arrive.

Time. A checkpoint is taken after Daly's interval, and when one is wanted: after a causal recovery,
because the dead process has left no put log; when logs were lost or ran over their budget; when a
demand checkpoint could not help (see `demand`); when the job is to end behind a checkpoint
(`Words.halt`). Slot 0 looks at the clock at its safepoints and names a target: the ordinal of a
safepoint that no slot has passed. A slot publishes its ordinal before it reads the target, and slot
0 writes the target before it reads the ordinals. So slot 0 sees every slot that might have missed
the target, and moves the target on. Only then does slot 0 itself arrive at the target, so no
checkpoint begins before the target is final.

Steps. ``csrc/vault/checkpoint.c`` describes them. The program is held up from the first barrier
until the last slot has staged; the checksum ranks sum, commit and fold while the program computes
(see `server`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..fabric.view import JobView
from ..host.errors import FtrmaError
from ..native import job, logs
from ..native.shared import Slot, Version
from ..vault.vault import Regions, Vault
from .checkpoint_policy import CheckpointPolicy
from .staging import parities_are_folded, publish, writing

END_LOOK_S = 0.005  # how often slots that wait for an end look: rarely, so that they cause no load


def choose_target(view: JobView) -> None:
    """Slot 0: name the next safepoint that no slot has passed."""
    holders, target = view.slot_holders(), 0
    while True:
        newest = max(view.words.process(p).ordinal for p in holders)
        if newest < target:
            return
        target = newest + 1
        if view.words.halt:
            view.words.halting = target
        view.words.checkpoint_target = target
        view.synchronize()


def arrive_if_due(
    view: JobView, policy: CheckpointPolicy, slot: Slot, ordinal: int,
    size_bytes: Callable[[], int], take: bool | None = None,
    settle: Callable[[int], None] | None = None,
) -> bool:
    """Say whether all slots checkpoint at this safepoint; if so, wait for the others.

    Args:
        ordinal: the number of this safepoint, counted from 1.
        size_bytes: see `CheckpointPolicy.due`.
        take: whether the program wants a checkpoint here, the same on all slots; None leaves that
            to the policy.
        settle: called with `ordinal` before the others are waited for, see `SlotStaging.settle`.
    """
    view.words.me.ordinal = ordinal
    if take is False:
        if slot == 0 and view.words.checkpoint_target == ordinal:
            view.words.checkpoint_wanted = 1  # the target was this safepoint
        return False
    together = take or policy.every
    if together and slot == 0 and view.words.halt:
        view.words.halting = ordinal
    if not together and not is_target(view, policy, slot, ordinal, size_bytes):
        return False
    if slot == 0 or take:
        policy.last = time.monotonic()
    if settle:
        settle(ordinal)
    return arrive(view, ordinal, targeted=not together)


def is_target(
    view: JobView, policy: CheckpointPolicy, slot: Slot, ordinal: int, size_bytes: Callable[[], int]
) -> bool:
    """Say whether this safepoint is the target; slot 0 names a new target if one is due."""
    view.synchronize()
    if slot == 0 and view.words.checkpoint_target < ordinal:
        wanted = view.words.checkpoint_wanted or view.words.halt
        if (wanted or policy.due(size_bytes)) and parities_are_folded(view):
            choose_target(view)
            view.words.checkpoint_wanted = 0
    return view.words.checkpoint_target == ordinal


def arrive(view: JobView, ordinal: int, *, targeted: bool) -> bool:
    """Wait for all slots at a safepoint; return False if the target was moved on meanwhile."""
    while not job.windows_flush():  # before others see that this slot has arrived
        view.unwind_if_alarmed()
    while True:
        ended = view.arrive(ordinal, targeted=targeted)
        if ended is not job.Wait.ALARM:
            return ended is job.Wait.OK
        view.unwind_if_alarmed()


def await_end(view: JobView, slot: Slot, ordinal: int) -> None:
    """Wait for the end of the launch, if it was asked for and the checkpoint for it was taken here.

    Without this wait, whatever a slot computed or printed behind that checkpoint would be done once
    more when the job goes on. The wait also ends if the end is not wanted any more. A failure is
    repaired meanwhile; the replacement of a slot then writes the slot's part into files, from the
    vault that was rebuilt.
    """
    words = view.words
    while words.halt and words.halting == ordinal:
        time.sleep(END_LOOK_S)
        view.unwind_if_alarmed()
    if slot == 0 and words.halting == ordinal:
        words.halting = 0  # nobody waits here any more
        view.ring()


def take_checkpoint(view: JobView, vault: Vault, regions: Regions, record: dict[str, Any],
                    begins: Callable[[Version], object] = lambda version: None
                    ) -> tuple[Version, float]:
    """Take this slot's part of a coordinated checkpoint; all slots are at the same safepoint.

    If a failure is repaired in place meanwhile, staged blocks are undone and the slots begin again,
    with two exceptions. If the version was committed before the repair, the checkpoint is done. If
    one slot had already seen that all had staged, and had gone on, all give this checkpoint up.

    Args:
        begins: called with a version before it is staged.

    Returns:
        The version that this slot has staged (0 if it was given up), and the seconds for which the
        program was held up.
    """
    if logs.exclusive_locks():
        raise FtrmaError(
            "safepoint() while an exclusive lock is held: other slots may wait for it and never "
            "arrive. Unlock before safepoint()"
        )
    began = job.now_ns()
    view.visit("checkpoint")
    taken = Version(0)
    while view.words.checkpoint_taken < record["ordinal"]:
        version = Version(view.words.me.staged + 1)  # a repair may have undone more than one
        begins(version)
        if stage(view, vault, version, regions, record, began):
            view.words.checkpoint_taken = record["ordinal"]
            taken = version
        elif view.words.committed >= version:
            taken = version
            break  # it was committed before the repair
    view.ring()  # not earlier: slots that still stage need the cores
    return taken, (job.now_ns() - began) / 1e9


def stage(view: JobView, vault: Vault, version: Version, regions: Regions,
          record: dict[str, Any], began: int) -> bool:
    """Stage a version and wait until all slots have done so; return False if a repair interrupted
    this."""
    if not view.admit(version):
        view.unwind_if_alarmed()
        return False
    logs.log_mark(version)
    with writing(view, vault):
        sizes_bytes = vault.stage(
            version, regions, record, view.seal(version), lambda: view.visit("stage"))
        vault.words.complete = version
    view.visit("staged")
    publish(view, vault, version, sizes_bytes, job.now_ns() - began)
    if not view.await_staged(version):
        view.unwind_if_alarmed()
        return False
    return True
