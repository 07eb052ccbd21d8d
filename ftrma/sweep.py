"""What a job leaves on a machine when it is killed: processes, and the MPI library's files.

A killed process cleans up nothing, so whoever ends a job does it: the supervisor on its own
machine, and in a job over several nodes each process before it ends itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path


def kill_all_of(directory: Path) -> set[str]:
    """Kill whatever still carries this job's mark: ranks that were starting, their children.

    Returns what they tell about the MPI library's files (see `library_files`).
    """
    mark = f"FTRMA_JOB={directory}".encode()
    prefixes: set[str] = set()
    found = True
    while found:
        found = False
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    prefixes |= library_files(int(entry.name))
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
    return prefixes


def library_files(pid: int) -> set[str]:
    """Names, up to the last dot, of the MPI library's shared memory that a rank has mapped.

    Its files are named by job and rank; one of them tells how those of all ranks begin.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return set()
    kinds = "sm_segment|osc_sm|osc_rdma|vader_segment"
    return set(re.findall(rf"/dev/shm/((?:{kinds})\.\S*\.)\w+", maps))


def sweep_library_files(prefixes: Iterable[str]) -> None:
    """Remove what the MPI library's killed processes leave in shared memory."""
    begins = tuple(prefixes)
    if not begins:
        return
    for entry in os.scandir("/dev/shm"):
        if entry.name.startswith(begins):
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
