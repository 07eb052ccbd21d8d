"""Ends a job that fails at the same step again and again, however often it is recovered.

The job's story has how far the job had come at each failure; `protocol.job_end.no_progress` judges
it. The supervisor looks when the story has grown, and before it launches the job again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..fabric import story
from ..fabric.story import Event
from ..native.shared import Control
from ..protocol import job_end
from ..protocol.job_end import JobEnd
from .job import Job


def step_of(ctl: Control) -> int | None:
    """Say how far a job on one node has come, as `protocol.deaths.job_step` does."""
    if ctl.claim:
        return None
    roles = ctl.roles[ctl.roles_seq & 1]
    holders = [ctl.proc[roles.slot_proc[slot]] for slot in range(ctl.nslots)]
    return job_end.step_of((p.step for p in holders),
                           (ctl.slots[s].events or p.syncs for s, p in enumerate(holders)))


def no_progress(made: Job, *more: Event) -> JobEnd | None:
    """Say whether the job is at its end because it comes no further.

    Args:
        more: events that the story does not have yet.
    """
    most = made.options.max_no_progress
    events: Sequence[Event] = [*story.read(made.directory), *more] if most else ()
    return job_end.no_progress(events, most)


class ProgressWatch:
    """Looks whether a job goes on to fail at one step.

    Args:
        made: the job.
    """

    def __init__(self, made: Job) -> None:
        self.made, self.size_bytes = made, 0

    def look(self) -> JobEnd | None:
        """Judge the story if it has grown; None: the job goes on."""
        try:
            size_bytes = os.stat(self.made.directory / "events").st_size
        except OSError:
            return None
        if size_bytes == self.size_bytes:
            return None
        self.size_bytes = size_bytes
        return no_progress(self.made)
