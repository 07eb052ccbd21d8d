"""The lock of a job's directory, which tells a living job from a dead one.

Each process of the job shares the lock, and the kernel releases it when the last one is gone. A
process that removes a dead job's directory, or goes on from it, first takes the lock exclusively.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import time
from pathlib import Path

from .errors import FtrmaError
from .nodedirectory import GAP_S


def lock_shared(directory: Path) -> io.FileIO:
    """Mark the job as living until this process ends or closes the result."""
    lock = _open_lock(directory)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def lock_alone(directory: Path) -> io.FileIO | None:
    """Take the lock of a dead job exclusively; None if the job lives, or may be between two
    launches."""
    if not (directory / "start").exists() and changed_s(directory) < GAP_S:
        return None
    lock = _open_lock(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def is_shared(directory: Path) -> bool:
    """Say whether some process of a job lives on this node; False also if there is no lock."""
    try:
        with open(os.open(directory / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def share(lock: io.FileIO, directory: Path) -> None:
    """Let the processes of a resumed job share its lock.

    Raises:
        FtrmaError: another process has taken the job meanwhile.
    """
    fcntl.flock(lock, fcntl.LOCK_SH)  # the kernel releases the old lock first
    try:
        same = os.path.sameopenfile(lock.fileno(), (again := _open_lock(directory)).fileno())
        again.close()
    except OSError:
        same = False
    if not same or not (directory / "start").exists():
        raise FtrmaError(f"{directory} was removed by somebody else in this moment")


def _open_lock(directory: Path) -> io.FileIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return io.FileIO(os.open(directory / "lock", flags, 0o600), "r+")


def changed_s(directory: Path) -> float:
    """Return the seconds since something in a directory was changed."""
    newest = 0.0
    for path in [directory, *directory.rglob("*")]:
        with contextlib.suppress(OSError):
            newest = max(newest, path.lstat().st_mtime)
    return max(0.0, time.time() - newest)
