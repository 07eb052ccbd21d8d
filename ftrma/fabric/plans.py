"""Writes and reads the plan after a failure in the control file.

The control file has room for two plans. The leader of a repair writes to the place that is not in
force, and puts its plan in force by one store. So a leader that is killed in between leaves the old
plan whole, and no memory has to be allocated. `protocol.plan` decides what the plan is.

While nothing is being repaired, one process can ask for a relaunch. That request has a place of its
own, so that two processes never write to the same place at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..native import job
from ..native.constants import REASON_BYTES, SLOT_DIED, SLOT_REPLAYED, PlanKind
from ..native.shared import Control, PlanPlace, Proc, Slot, Version

CUT = b"..."  # ends a reason that is longer than its place
START = Version(0)


@dataclass(frozen=True)
class PublishedPlan:
    """A plan after a failure.

    Attributes:
        kind: how the job recovers, or why it does not.
        round: the repair round that made the plan, counted from 1; 0: no round made it.
        version: the version that was committed then; 0 is the start of the program.
        reason: in words; empty for a causal recovery, which needs none.
        dead: slots whose process died.
        replayed: those of the dead slots that their replacements replay.
        calm: no process had died, so there is nothing to report.
    """

    kind: PlanKind = PlanKind.NONE
    round: int = 0
    version: Version = START
    reason: str = ""
    dead: tuple[Slot, ...] = ()
    replayed: tuple[Slot, ...] = ()
    calm: bool = False


def publish(ctl: Control, plan: PublishedPlan) -> None:
    """Put a plan in force, as the leader of a repair."""
    next_one = job.load(ctl, "plan_seq") + 1
    _write(ctl.plans[next_one & 1], plan, ctl.nslots)
    job.store(ctl, "plan_seq", next_one)


def in_force(ctl: Control) -> PublishedPlan:
    """Read the plan in force; its kind is NONE before the first plan."""
    while True:
        seq = job.load(ctl, "plan_seq")
        found = _read(ctl.plans[seq & 1], ctl.nslots)
        if job.load(ctl, "plan_seq") == seq:
            return found


def ask_for_relaunch(ctl: Control, proc: Proc, reason: str) -> None:
    """Have the supervisor launch the job again, unless it is asked for something already.

    If another living process is asking at this moment, this process leaves it to that one.

    Args:
        proc: this process.
        reason: in words.
    """
    before = job.load(ctl, "asker")
    if before and ctl.proc[before - 1].state == job.ProcessState.ALIVE:
        return
    # A dead process that was asking has stored its request by now, or never will.
    nothing, relaunch = job.Request.NOTHING, job.Request.RELAUNCH
    mine = job.exchange(ctl, "asker", before, proc + 1)
    if not mine or job.load(ctl, "request") != nothing:
        return
    version = Version(job.load(ctl, "commit") >> 1)
    asked = PublishedPlan(PlanKind.RELAUNCH, version=version, reason=reason)
    _write(ctl.asked, asked, ctl.nslots)
    job.exchange(ctl, "request", nothing, relaunch)


def why_relaunch(ctl: Control) -> str:
    """Read why the job asks for a relaunch.

    The reason is empty if the job does not ask for one, and if the launcher or supervisor is gone.
    """
    plan = in_force(ctl)
    if plan.kind != PlanKind.RELAUNCH:
        plan = _read(ctl.asked, ctl.nslots)
    return plan.reason


def _write(place: PlanPlace, plan: PublishedPlan, slots: int) -> None:
    reason = _fitting(plan.reason)
    marks = bytearray(slots)
    for slot in plan.dead:
        marks[slot] |= SLOT_DIED
    for slot in plan.replayed:
        marks[slot] |= SLOT_REPLAYED
    place.kind = plan.kind
    place.round = plan.round
    place.version = plan.version
    place.calm = plan.calm
    job.write_bytes(place.slots, marks)
    job.write_bytes(place.reason, reason)
    place.reason_bytes = len(reason)


def _read(place: PlanPlace, slots: int) -> PublishedPlan:
    marks = job.read_bytes(place.slots, slots)
    reason = job.read_bytes(place.reason, place.reason_bytes)
    return PublishedPlan(
        PlanKind(place.kind), place.round, place.version, reason.decode("utf-8", "replace"),
        tuple(Slot(s) for s, mark in enumerate(marks) if mark & SLOT_DIED),
        tuple(Slot(s) for s, mark in enumerate(marks) if mark & SLOT_REPLAYED),
        bool(place.calm),
    )


def _fitting(reason: str) -> bytes:
    """Encode a reason for its place; it may quote a program, so it may contain any characters."""
    data = reason.encode("utf-8", "backslashreplace")
    if len(data) <= REASON_BYTES:
        return data
    return data[: REASON_BYTES - len(CUT)].decode("utf-8", "ignore").encode() + CUT
