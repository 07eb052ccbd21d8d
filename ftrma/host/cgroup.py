"""How much memory a control group leaves this process: a container or a batch system may allow less
than the machine has, and who takes more is killed without a word."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def room_bytes(root: Path = Path("/")) -> int | None:
    """The least that the limits of this process's groups leave; None where there is no limit.

    Args:
        root: of the file system.

    Source: the kernel's cgroup-v2.rst and cgroup-v1/memory.rst.
    """
    left = []
    for limit, used in _files(root):
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            left.append(max(0, int(limit.read_text()) - int(used.read_text())))
    return min(left, default=None)


def _files(root: Path) -> Iterator[tuple[Path, Path]]:
    """Limit and use of each group of this process, and of the groups that these are in."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else (
            "memory.max", "memory.current")
        group = Path(path.lstrip("/"))
        # In a container the mount may begin at the group itself.
        for each in (group, *group.parents):
            yield top / each / names[0], top / each / names[1]
