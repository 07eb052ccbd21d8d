"""The job's end in words, and the status that goes with them."""

from __future__ import annotations

from ..errors import CATASTROPHE
from ..host.outfile import tell
from ..protocol.job_end import JobEnd
from .launch import Launch

BANNER = "-----"  # the launcher puts what it explains between two lines of these


def did_not_start(launch: Launch, reason: str) -> int:
    """Say why a launch has not come up, with what the launcher said."""
    said, status = launch.log.read_text(errors="replace"), launch.mpirun.poll() or 0
    if status > 0 and BANNER not in said:
        reason += (
            f" without saying why (exit status {status}): is there a place for each of its "
            f"{launch.layout.processes} processes on the hosts, and by the mapping, in --mpirun?"
        )
    again = " again" if launch.made.cause else ""
    tell(f"error: the job did not start{again}: {reason}",
         before="" if launch.refused() else said[-4000:])
    return CATASTROPHE


def tell_own_end(end: JobEnd) -> int:
    """Say why the job ends with this status, where it was a process's own doing."""
    if end.words:
        tell(end.words)
    return end.status


def give_up(reason: str, relaunches: int) -> int:
    """Say that the job was launched often enough."""
    tell(
        f"error: {reason}, and the job was launched again {relaunches} times already "
        "(--max-relaunch); giving up"
    )
    return CATASTROPHE
