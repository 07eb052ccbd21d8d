"""Memory that control groups leave this process.

A container or a batch system may allow less memory than the machine has, and the kernel silently
kills a process that takes more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def room_bytes(root: Path = Path("/")) -> int | None:
    """Return the least memory that the limits of this process's groups leave; None without a limit.

    Args:
        root: root of the file system.

    Source: the kernel's cgroup-v2.rst and cgroup-v1/memory.rst.
    """
    left = []
    for group, limit, used, cached in _groups(root):
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            taken = int((group / used).read_text()) - _cached(group, cached)
            left.append(max(0, int((group / limit).read_text()) - taken))
    return min(left, default=None)


def available_bytes() -> int:
    """Return the memory that the machine and the control groups of this process can still give."""
    try:
        with open("/proc/meminfo") as file:
            free = next(int(line.split()[1]) * 1024 for line in file
                        if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = room_bytes()
    return free if allowed is None else min(free, allowed)


def _cached(group: Path, name: str) -> int:
    """Return the memory that the kernel takes back when it is needed elsewhere."""
    with contextlib.suppress(OSError):
        for line in (group / "memory.stat").read_text().splitlines():
            if line.split()[0] == name:
                return int(line.split()[1])
    return 0


def _groups(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yield each group of this process and each group around it, with the names of its files."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers else ("memory.max", "memory.current", "inactive_file"))
        group = Path(path.lstrip("/"))
        # In a container the mount may begin at the group itself.
        for each in (group, *group.parents):
            yield top / each, *names
