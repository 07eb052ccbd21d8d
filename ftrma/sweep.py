"""Processes that a job may have left: ranks that were starting, children of ranks."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def kill_all_of(directory: Path) -> None:
    """Kill whatever carries this job's mark, until there is nobody left who could start others."""
    mark = f"FTRMA_JOB={directory}".encode()
    found = True
    while found:
        found = False
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
