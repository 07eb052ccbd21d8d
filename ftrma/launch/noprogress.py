"""Ends a job that fails at the same step again and again, however often it is recovered.

The job's story says how far the job had come at each failure; `protocol.job_end.no_progress` judges
this. The supervisor looks when the story has grown, and before it launches the job again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from ..fabric import story
from ..fabric.spillfiles import Part
from ..fabric.story import Event
from ..host import private
from ..host.errors import FtrmaError
from ..native.shared import Control
from ..protocol import job_end
from ..protocol.job_end import JobEnd
from .job import Job
from .resuming import Files

NOTED = "resumed"  # file with the steps from which a job has gone on, one per line
MOST_NOTED = 1000


def step_of(ctl: Control) -> int | None:
    """Say how far a job on one node has come, as `protocol.deaths.job_step` does."""
    if ctl.claim:
        return None
    roles = ctl.roles[ctl.roles_seq & 1]
    holders = [ctl.proc[roles.slot_proc[slot]] for slot in range(ctl.nslots)]
    return job_end.step_of((p.step for p in holders),
                           (ctl.slots[s].events or p.syncs for s, p in enumerate(holders)))


def no_progress(made: Job, *more: Event) -> JobEnd | None:
    """Return the job's end if it makes no progress; None if it may go on.

    Args:
        more: events that the story does not have yet.
    """
    most = made.options.max_no_progress
    events: Sequence[Event] = [*story.read(made.directory), *more] if most else ()
    return job_end.no_progress(events, most)


def resumed_in_vain(files: Files, most: int) -> JobEnd | None:
    """Note that a job goes on from files; return its end if it has done so too often from one step.

    Args:
        files: the files from which it goes on.
        most: how often it may do so; 0 means any number.
    """
    assert files.point and files.manifest
    record = Part(files.directory, files.point, 0, files.manifest).record()["record"]
    step, noted = int(record.get("step", 0)), files.directory / NOTED
    before: list[int] = []
    with contextlib.suppress(OSError, ValueError, FtrmaError):
        before = [int(line) for line in private.read(noted).split()]
    if 0 < most <= len(before) and {*before[-most:]} == {step}:
        return JobEnd(
            job_end.NO_PROGRESS,
            f"error: the job makes no progress: it went on from safepoint {step} in "
            f"{files.directory} and came to no newer checkpoint, {most} times running "
            f"(--max-no-progress {most}); to try once more: --max-no-progress 0")
    with contextlib.suppress(OSError, FtrmaError):
        noted.unlink(missing_ok=True)
        lines = [*before[-MOST_NOTED:], step]
        private.write(noted, "".join(f"{line}\n" for line in lines).encode())
    return None


class ProgressWatch:
    """Watches whether a job fails again and again at the same step.

    Args:
        made: the job.
    """

    def __init__(self, made: Job) -> None:
        self.made, self.size_bytes = made, 0

    def look(self) -> JobEnd | None:
        """Judge the story if it has grown; return the job's end, or None if the job goes on."""
        try:
            size_bytes = os.stat(self.made.directory / "events").st_size
        except OSError:
            return None
        if size_bytes == self.size_bytes:
            return None
        self.size_bytes = size_bytes
        return no_progress(self.made)
