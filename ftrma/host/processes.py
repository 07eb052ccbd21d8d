"""Facts about other processes of this user, from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the living children of a process; none if the kernel does not tell."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def environment(pid: int) -> dict[str, str]:
    """Return the environment with which a process began; empty if the kernel does not tell."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)
    return {}
