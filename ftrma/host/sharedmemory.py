"""Detects full shared memory, where the kernel kills a process that touches a new page."""

from __future__ import annotations

import os
from pathlib import Path

FULL_BYTES = 1 << 20  # less than what any repair takes


def is_full(directory: Path | int) -> bool:
    """Say whether shared memory has next to nothing left, given a directory or an open file
    there."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize < FULL_BYTES
