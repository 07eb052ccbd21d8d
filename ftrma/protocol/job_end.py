"""Decides whether the job ends when processes end themselves, and says why it ends. Pure.

A process that ends itself notes how it does so (see ``csrc/job/leave.c``). This is no failure: the
job ends with the same status. Two cases need a second look, so the decision is made a moment after
the death. A crash that comes together with another process's death counts as a consequence of that
death. A process that has ended by ``os._exit(0)`` before the others does no harm if they do the
same. The module also has the words for the ends that a repair decides on.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..fabric.story import Event, Failure, Relaunch, Stall
from ..host.errors import CATASTROPHE
from ..native.constants import PlanKind

SETTLE_S = 0.15  # deaths with one cause are noticed within milliseconds of each other
STRIKES = 3  # chosen: two deaths at one place may be a coincidence
NO_PROGRESS = 93  # status of a job that batch systems must not start again by themselves
KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True)
class OwnExit:
    """The way in which a slot's process ended itself.

    Attributes:
        by_signal: number of the signal, 0 if by an exit status.
        status: exit status, 0 if by a signal.
        sure: the program itself wanted to end. This is not known of exit() in C, which libraries
            also call when another process has failed.
    """

    by_signal: int = 0
    status: int = 0
    sure: bool = True

    @property
    def well(self) -> bool:
        return not self.by_signal and not self.status


@dataclass(frozen=True)
class JobEnd:
    """The job's end: its exit status, and a line about it, which may be empty."""

    status: int
    words: str


def killed_repeatedly(story: Iterable[Event]) -> int | None:
    """Find a slot that was killed STRIKES times in a row at the same place of its program.

    Without this check a program that needs more memory than there is would use up all spares and
    launches: the kernel kills it, and its replacement comes to the same place and is killed, too. A
    kill does not count if a ``--kill`` rule caused it, if the slot was waiting for others, or if
    the slot hung.

    Args:
        story: the job's events; events of failures contain the place (`deaths.progress_at_death`).
    """
    # For each slot: the place of its newest death, and how many deaths in a row were there.
    rows: dict[int, tuple[tuple[int, int] | None, int]] = {}
    story = list(story)
    hung = {pid for event in story if isinstance(event, Stall) for pid in event.pids}
    for event in story:
        if not isinstance(event, Failure) or event.role != "slot":
            continue
        slot, at = event.index, event.at
        if event.place != "unknown" or event.waited or event.pid in hung:
            at = None
        before, times = rows.get(slot, (None, 0))
        rows[slot] = at, (times + 1 if at == before else 1) if at is not None else 0
        if rows[slot][1] == STRIKES:
            return slot
    return None


def step_of(steps: Iterable[int], events: Iterable[int]) -> int | None:
    """Say how far a job has come, so that this can be compared with later; None if it is not known.

    Args:
        steps: safepoints that each slot has passed since the program's start.
        events: events or synchronizations of each slot, for a program without safepoints.

    Returns:
        The largest number of safepoints; without safepoints, the negative of the largest number of
        events.
    """
    return max(steps, default=0) or -max(events, default=0) or None


def setbacks(story: Iterable[Event]) -> list[int | None]:
    """List how far the job had come at each failure, with None for a failure that does not count.

    Deaths in one repair are one failure together with a relaunch that follows from them. The event
    of a relaunch over several nodes contains no step. A death by a ``--kill`` rule does not count.
    """
    found: list[int | None] = []
    launch, last = 0, (-1, -1)
    for event in story:
        if not isinstance(event, (Failure, Relaunch)) or (
                isinstance(event, Failure) and event.role != "slot"):
            continue
        step = None if isinstance(event, Failure) and event.place != "unknown" else event.step
        if (launch, event.repair) != last and (step is not None or isinstance(event, Failure)):
            found.append(step)
            last = launch, event.repair
        elif step is None and isinstance(event, Failure):
            found[-1] = None
        launch += isinstance(event, Relaunch)
    return found


def no_progress(story: Iterable[Event], most: int) -> JobEnd | None:
    """End a job that has failed at the same step after each of `most` recoveries; None: it goes on.

    Args:
        story: the job's events.
        most: how many such recoveries are allowed; 0 means any number.
    """
    row = setbacks(story)[-most - 1 :]
    if not most or len(row) <= most or row[0] is None or {*row} != {row[0]}:
        return None
    where = f"safepoint {row[0]}" if row[0] > 0 else f"event {-row[0]} (it passes no safepoints)"
    return JobEnd(
        NO_PROGRESS,
        f"error: the job makes no progress: it has failed {most + 1} times running at {where}, and "
        f"no recovery came further (--max-no-progress {most}); if it were started again, it would "
        "fail there again, most likely",
    )


def end_by_signal(slot: int, number: int) -> JobEnd:
    """Say how the job ends if a slot died of a signal that ``ftrma run`` handed on to it."""
    return JobEnd(
        128 + number,
        f"slot {slot} died of {signal.Signals(number).name}, which had been sent to 'ftrma run' "
        "and handed on to it; no failure, so it is not replaced",
    )


def end_behind_checkpoint(why: str, version: int, way_on: str, status: int) -> JobEnd:
    """Say how a job ends if somebody has asked it to end behind a checkpoint.

    Args:
        why: who asked for it.
        version: the checkpoint; way_on: where it is, and how to go on from there.
        status: the job's exit status.
    """
    return JobEnd(status, f"{why}: ended behind checkpoint {version}, status {status}; {way_on}")


def end_late(why: str, waited: str, way_on: str, status: int) -> JobEnd:
    """Say how a job ends if no checkpoint came in time; see `end_behind_checkpoint`.

    Args:
        waited: how long the job waited for a checkpoint; empty if it did not wait.
    """
    late = f", and no checkpoint came within {waited}; call safepoint() more often" * bool(waited)
    error = "error: " * (status == CATASTROPHE)
    return JobEnd(status, f"{error}{why}{late}; status {status}; what was saved last: {way_on}")


def why_given_up(kind: PlanKind, reason: str) -> str:
    """Say why a repair has given the job up; empty for plans by which the job goes on.

    Args:
        kind, reason: those of the plan.
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
    """Say whose call of MPI_Abort has ended the job."""
    return f"{name} called MPI_Abort with status {status}"


def decide_end(
    left: Mapping[int, OwnExit], slots: int, *, failing: bool, waiting: bool
) -> JobEnd | None:
    """Say whether the job ends, given which slots' processes have ended themselves.

    Args:
        left: how each of these slots ended, in the order in which that was found.
        slots: number of slots of the job.
        failing: somebody else has died, or a repair is under way.
        waiting: all other slots are waiting.

    Returns:
        None as long as the job goes on.
    """
    for slot, how in left.items():
        if how.status and (how.sure or not failing):
            return JobEnd(how.status, f"slot {slot} ended itself with status {how.status}")
        if how.by_signal and not failing:
            name = signal.Signals(how.by_signal).name
            return JobEnd(
                128 + how.by_signal,
                f"slot {slot} crashed: {name} ({signal.strsignal(how.by_signal)}), raised by its "
                "own program, which would crash again if it were replaced",
            )
    well = [slot for slot, how in left.items() if how.well]
    if len(well) == slots:
        return JobEnd(0, "")
    if well and waiting and not failing:
        names = " and ".join(f"slot {s}" for s in sorted(well))
        return JobEnd(
            CATASTROPHE,
            f"{names} ended by os._exit(0) or exit(0) and the other slots wait for it; let all "
            "slots come to the end of the program, or all end so",
        )
    return None
