"""Tells why a job ends, and returns the corresponding exit status."""

from __future__ import annotations

from ..host.errors import CATASTROPHE
from ..host.outfile import tell
from ..protocol.job_end import JobEnd
from .launch import BANNER, Launch


def tell_not_started(launch: Launch, reason: str) -> int:
    """Say why a launch has not come up, with the launcher's own output."""
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
    """Say why the job ends because of a process that ended itself."""
    if end.words:
        tell(end.words, needed=True)
    return end.status


def tell_exhausted(reason: str, relaunches: int) -> int:
    """Say that the job was launched as often as allowed."""
    tell(
        f"error: {reason}, and the job was launched again {relaunches} times already "
        "(--max-relaunch); giving up"
    )
    return CATASTROPHE
