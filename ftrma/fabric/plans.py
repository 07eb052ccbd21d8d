"""The plan after a failure as it stands in the control file: one writes it, everybody reads it.

The leader of a repair writes the plan that is not in force and puts it in force by one store. Who
is killed in between leaves the old one whole, and it takes no memory that was not there from the
start. What is decided, and why, is the matter of `protocol.plan`.

A relaunch can also be asked for by one process while nothing is repaired. It has a place of its
own, so that two who write at the same time cannot meet.
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
    """What is done after a failure.

    Attributes:
        kind: the way back, or why there is none.
        round: the repair round that made it, from 1; 0: none did.
        version: of the checkpoint that was committed then; 0 is the start of the program.
        reason: in words; empty where a causal recovery needs none.
        dead: slots whose process died.
        replayed: those of them that their replacements replay.
        calm: nobody had died, a server neither: there is nothing to tell.
    """

    kind: PlanKind = PlanKind.NONE
    round: int = 0
    version: Version = START
    reason: str = ""
    dead: tuple[Slot, ...] = ()
    replayed: tuple[Slot, ...] = ()
    calm: bool = False


def publish(ctl: Control, plan: PublishedPlan) -> None:
    """Put a plan in force. Only the leader of a repair may."""
    next_one = job.load(ctl, "plan_seq") + 1
    _write(ctl.plans[next_one & 1], plan, ctl.nslots)
    job.store(ctl, "plan_seq", next_one)


def in_force(ctl: Control) -> PublishedPlan:
    """The newest plan; of kind NONE before the first."""
    while True:
        seq = job.load(ctl, "plan_seq")
        found = _read(ctl.plans[seq & 1], ctl.nslots)
        if job.load(ctl, "plan_seq") == seq:
            return found


def ask_for_relaunch(ctl: Control, proc: Proc, reason: str) -> None:
    """Have the supervisor launch the job again, unless it is asked for something already.

    Args:
        proc: the calling process. Where another one, alive, is asking just now, that one does.
    """
    before = job.load(ctl, "asker")
    if before and ctl.proc[before - 1].state == job.State.ALIVE:
        return
    # Whoever asked and died has stored its request by now, or never will.
    nothing, relaunch = job.Request.NOTHING, job.Request.RELAUNCH
    mine = job.exchange(ctl, "asker", before, proc + 1)
    if not mine or job.load(ctl, "request") != nothing:
        return
    version = Version(job.load(ctl, "commit") >> 1)
    asked = PublishedPlan(PlanKind.RELAUNCH, version=version, reason=reason)
    _write(ctl.asked, asked, ctl.nslots)
    job.exchange(ctl, "request", nothing, relaunch)


def why_relaunch(ctl: Control) -> str:
    """Why the job asks for a relaunch, if it does; empty where it does so without a reason.

    It has none when its launcher or its supervisor is gone.
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
    """A reason as it is stored; it may quote what a program has said, in whatever characters."""
    data = reason.encode("utf-8", "backslashreplace")
    if len(data) <= REASON_BYTES:
        return data
    return data[: REASON_BYTES - len(CUT)].decode("utf-8", "ignore").encode() + CUT
