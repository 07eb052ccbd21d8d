"""Decides which slots hang, given how long each has stood still and what it is doing. Pure.

A slot that waits for others is not to blame: it goes on when they do. A slot is to blame if it
stands still and does not wait: it is stopped, it computes without end, or it sleeps outside of MPI.
If all slots that stand still wait for each other, none is to blame, and none will go on: that is a
deadlock. If calls are made but no slot comes to its next safepoint, the program runs in a circle.
This is judged only with a limit that follows from the longest step seen, since otherwise it is not
known how long a step takes.

`launch.stallwatch` looks at the slots and acts on the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ..native.constants import WHAT

LEAST_S = 3.0  # the least limit that follows from steps: a machine itself may pause for a second


class Doing(Enum):
    """States of a slot that stands still."""

    STOPPED = "stopped by a signal or a debugger"
    OUTSIDE = "outside of MPI"
    WAITS = "waiting for others"
    LIBRARY = "in a call of the MPI library"
    ENDED = "at the program's end"
    SILENT = "on a node that does not answer"
    DEAD = "dead"


TO_BLAME = (Doing.STOPPED, Doing.OUTSIDE)
OVER = (Doing.ENDED, Doing.DEAD)  # it does nothing any more, and nobody waits for it
# The kinds of events that wait, in words.
WAITS_IN = {WHAT[kind]: words for kind, words in {
    "FENCE": "a fence, or another barrier of a window", "LOCK": "MPI_Win_lock",
    "START": "MPI_Win_start", "WAIT": "MPI_Win_wait", "ACCUMULATE": "an accumulate or atomic",
    "COLLECTIVE": "a collective call", "SAFEPOINT": "a checkpoint", "CHECKPOINT": "a checkpoint",
    "COMMIT": "a checkpoint for a checksum rank", "END": "the program's end",
    "REPLAY": "an access to a slot that is replayed", "RECOVERY": "a repair",
    "ACK": "an exchange with another node", "MESSAGE": "a framework's mail",
}.items()}


@dataclass(frozen=True)
class SlotLook:
    """The state in which a slot was found.

    Attributes:
        slot: its number.
        still_s: how long it has made no call of MPI, passed no safepoint and staged nothing.
        step_s: time since it passed a safepoint; 0 if it passed none in this attempt.
        doing: what it is doing, if it stands still.
        call: the call in which it is, in words; empty if it is in none, or if that is not known.
        kind: kind of the event in which it waits (``enum ftrma_what``); None if it does not wait.
        awaited: the first slot that it waits for; None if there is none, or if it is not known.
    """

    slot: int
    still_s: float
    step_s: float = 0.0
    doing: Doing = Doing.OUTSIDE
    call: str = ""
    kind: int | None = None
    awaited: int | None = None


@dataclass(frozen=True)
class Verdict:
    """A job that hangs.

    Attributes:
        kind: "stall": some slots are to blame; "deadlock": slots wait for each other; "circle":
            calls are made, and no slot comes to its next safepoint.
        slots: those to blame, or those that wait for each other, or all.
        seconds: how long they have stood still; the shortest of these times.
    """

    kind: str
    slots: tuple[int, ...]
    seconds: float


def judge(looks: Sequence[SlotLook], limit_s: float, *, by_steps: bool = False) -> Verdict | None:
    """Say whether the job hangs, and which slots are to blame; None while it does not.

    Args:
        looks: one look at each slot.
        limit_s: how long a slot may stand still.
        by_steps: the limit follows from the longest step seen, so it applies to steps, too.
    """
    still = {look.slot: look for look in looks if look.still_s >= limit_s}
    blamed = [look for look in still.values() if look.doing in TO_BLAME]
    if not blamed and len(still) == len(looks):
        # A silent slot may be computing unseen; but if it made progress, the others would not all
        # stand still.
        blamed = [look for look in looks if look.doing is Doing.SILENT]
    if blamed:
        return _verdict("stall", blamed)
    circle = waits_in_circle(still)
    if circle:
        return _verdict("deadlock", [still[slot] for slot in circle])
    at_work = [look for look in looks if look.doing not in OVER]
    if at_work and all(look.slot in still for look in looks):
        return _verdict("deadlock", at_work)
    if by_steps and at_work and all(look.step_s >= limit_s for look in at_work):
        slots = tuple(look.slot for look in at_work)
        return Verdict("circle", slots, min(look.step_s for look in at_work))
    return None


def _verdict(kind: str, looks: Sequence[SlotLook]) -> Verdict:
    return Verdict(kind, tuple(look.slot for look in looks), min(look.still_s for look in looks))


def waits_in_circle(still: Mapping[int, SlotLook]) -> list[int]:
    """Find slots that wait for each other in a circle, in its order; return an empty list if there
    are none."""
    for first in still:
        path: list[int] = []
        slot: int | None = first
        while slot is not None and slot in still and slot not in path:
            path.append(slot)
            slot = still[slot].awaited if still[slot].doing is Doing.WAITS else None
        if slot == first:
            return path
    return []


def limit_by_steps(times: float, longest_step_s: float) -> float | None:
    """Return how long a slot may stand still, in seconds, from the longest step seen; None if there
    is none yet."""
    return max(LEAST_S, times * longest_step_s) if longest_step_s else None


def may_be_killed(
    slots: Sequence[int], slot_group: Sequence[int], strength: int, spares: int
) -> bool:
    """Say whether slots can be killed and replaced without losing a checkpoint.

    Args:
        slots: to be killed at once.
        slot_group: group of each slot.
        strength: number of losses that a group survives.
        spares: number of living processes that can take a role.
    """
    of_group = Counter(slot_group[slot] for slot in slots)
    return len(slots) <= spares and max(of_group.values(), default=0) <= strength


# ---- words ----------------------------------------------------------------------------------


def names(slots: Sequence[int]) -> str:
    """Name slots: "slot 1", "slots 0, 2 and 5"."""
    numbers = [str(slot) for slot in slots]
    if len(numbers) == 1:
        return f"slot {numbers[0]}"
    return f"slots {', '.join(numbers[:-1])} and {numbers[-1]}"


def where(look: SlotLook) -> str:
    """Say where a slot is: "in MPI_Recv", "in MPI_Win_lock for slot 2"."""
    if look.doing is Doing.ENDED:
        return "at the program's end"
    whom = "" if look.awaited is None else f" for slot {look.awaited}"
    return f"in {look.call or 'a call'}{whom}"


def who_waits(looks: Sequence[SlotLook], others_than: Sequence[int] = ()) -> str:
    """Say who waits for whom: "slots 0 and 3 wait in a fence for slot 1"; empty if nobody does."""
    places: dict[str, list[int]] = {}
    for look in looks:
        if look.doing not in (*TO_BLAME, Doing.SILENT, Doing.DEAD) and look.slot not in others_than:
            places.setdefault(where(look), []).append(look.slot)
    return "; ".join(f"{names(slots)} wait{'s' * (len(slots) == 1)} {place}"
                     for place, slots in places.items())
