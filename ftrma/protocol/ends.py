"""Processes that end themselves: what becomes of the job, and in which words.

A process notes how it ends if that is its own making (see ``csrc/job/leave.c``). That is no
failure: the job ends with the same status. Two notes need a second look, and so this is decided a
moment after the death: a crash beside somebody else's death is taken for its consequence; and a
process that ended well by ``os._exit(0)``, before the others, may be all right, if they do the
same. Here are the words for the ends that a repair decides on, too.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import CATASTROPHE
from ..fabric.story import Event, Failure
from ..native.constants import PlanKind

SETTLE_S = 0.15  # deaths with one cause are noticed within milliseconds of each other
STRIKES = 3  # once is an accident, twice a coincidence
KILLED = 128 + signal.SIGKILL
SUSPECT_S = 1.0  # who dies so soon after a signal that it was sent has most probably died of it
WAITING_S = 2.0  # who sleeps so long, with all others, waits for who is not there any more


@dataclass(frozen=True)
class Left:
    """How a slot's process ended itself.

    Attributes:
        by_signal: number of the signal, 0 if by an exit status.
        status: exit status, where by one.
        sure: the program's own doing; not so by exit() in C, which libraries call beside a failure.
    """

    by_signal: int = 0
    status: int = 0
    sure: bool = True

    @property
    def well(self) -> bool:
        return not self.by_signal and not self.status


@dataclass(frozen=True)
class End:
    """The job's end: its exit status, and a line about it, empty where there is nothing to say."""

    status: int
    words: str


def repeated(story: Iterable[Event]) -> int | None:
    """A slot that was killed STRIKES times running at the same place of its program. Pure.

    So ends a program that needs more memory than there is: the kernel kills it, its replacement
    comes to the same place, and so on until no spare and no launch is left. A kill of a ``--kill``
    rule does not count, nor one while the slot waited for others.

    Args:
        story: the job's events; those of failures tell the place (`rounds.place_of`).
    """
    # Place of each slot's newest death, how often running.
    rows: dict[int, tuple[tuple[int, int] | None, int]] = {}
    for event in story:
        if not isinstance(event, Failure) or event.role != "slot":
            continue
        slot, at = event.index, event.at
        if event.place != "unknown" or event.waited:
            at = None
        before, times = rows.get(slot, (None, 0))
        rows[slot] = at, (times + 1 if at == before else 1) if at is not None else 0
        if rows[slot][1] == STRIKES:
            return slot
    return None


def by_signal(slot: int, number: int) -> End:
    """The job's end by a signal to ``ftrma run`` that was handed on to a slot, which died of it."""
    return End(
        128 + number,
        f"slot {slot} died of {signal.Signals(number).name}, which had been sent to 'ftrma run' "
        "and handed on to it; no failure, so it is not replaced",
    )


def why_given_up(kind: PlanKind, reason: str) -> str:
    """Say why a repair has given the job up; empty for plans by which it goes on. Pure.

    Args:
        kind, reason: of the plan.
    """
    if kind == PlanKind.CATASTROPHIC:
        return f"error: CatastrophicFailure: {reason}"
    if kind in (PlanKind.REPEATED, PlanKind.FULL):
        return f"error: {reason}"
    if kind == PlanKind.REFUSED:
        return (
            f"error: NotRecoverable: {reason}; with --policy auto the job goes back to its last "
            "checkpoint"
        )
    return ""


def why_aborted(name: str, status: int) -> str:
    """Say whose call of MPI_Abort has ended the job. Pure."""
    return f"{name} called MPI_Abort with status {status}"


def decide(left: Mapping[int, Left], slots: int, *, failing: bool, waiting: bool) -> End | None:
    """Say whether the job ends, given which slots' processes have ended themselves. Pure.

    Args:
        left: by slot, in the order in which they were found.
        slots: of the job.
        failing: somebody else has died, or a repair is under way.
        waiting: all other slots wait.

    Returns:
        None as long as the job goes on.
    """
    for slot, how in left.items():
        if how.status and (how.sure or not failing):
            return End(how.status, f"slot {slot} ended itself with status {how.status}")
        if how.by_signal and not failing:
            name = signal.Signals(how.by_signal).name
            return End(
                128 + how.by_signal,
                f"slot {slot} crashed: {name} ({signal.strsignal(how.by_signal)}), raised by its "
                "own program, which would crash again if it were replaced",
            )
    well = [slot for slot, how in left.items() if how.well]
    if len(well) == slots:
        return End(0, "")
    if well and waiting and not failing:
        names = " and ".join(f"slot {s}" for s in sorted(well))
        return End(
            CATASTROPHE,
            f"{names} ended by os._exit(0) or exit(0) and the other slots wait for it; let all "
            "slots come to the end of the program, or all end so",
        )
    return None
