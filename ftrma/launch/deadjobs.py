"""Directories of dead jobs in shared memory: resuming them, listing and removing them.

A job's directory outlives ``ftrma run`` only after a SIGKILL. It holds the vaults, the job's start
record and its key, so that the same user can go on from there. A lock tells a living job from a
dead one: each process of the job shares it, and the kernel releases it when the last one is gone
(`host.lock`). Removing or resuming a job begins with taking the lock exclusively.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..host import private, programwords, timeouts
from ..host.errors import FtrmaError
from ..host.key import Key
from ..host.lock import changed_s, lock_alone
from ..host.messages import one_line
from ..host.nodedirectory import why_foreign

SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class Start:
    """The start record of a job.

    Attributes:
        options: the options, as in the environment of its processes.
        program: the program's words, see `program.script`; cwd: the current directory at the start.
        stats: absolute path of the file for statistics; empty if none was asked for.
        several_nodes: whether the job may run over several nodes.
    """

    options: Mapping[str, str]
    program: list[str]
    cwd: str
    stats: str
    several_nodes: bool


def write(directory: Path, start: Start, key: Key) -> None:
    """Write the start record and the key into a new job's directory."""
    private.write(directory / "key", key.secret)
    private.write(directory / "start", json.dumps(asdict(start)).encode())


def take_over(name: str) -> tuple[Path, Start, Key, io.FileIO]:
    """Find a dead job and become its only owner.

    Args:
        name: name of its directory, with or without the path.

    Returns:
        Its directory, start record and key, and the lock, which is held.

    Raises:
        ValueError: no such job can be resumed; the text says why.
    """
    directory = path_of(name)
    try:
        if not directory.exists():
            raise FtrmaError(f"there is no {directory}; 'ftrma clean' lists what there is")
        private.check_directory(directory)
        deadline = time.monotonic() + timeouts.ENDING.s
        while (lock := lock_alone(directory)) is None:
            if time.monotonic() > deadline:
                raise FtrmaError("the job lives")
            time.sleep(0.05)
        if not (directory / "start").exists():
            raise FtrmaError("it does not say how it was started; start the job again")
        start = Start(**json.loads(private.read(directory / "start")))
        key = Key(private.read(directory / "key"))
    except (FtrmaError, OSError, ValueError, TypeError) as error:
        raise ValueError(f"--resume {name}: {error}") from None
    if not os.path.exists(start.cwd):
        raise ValueError(f"--resume {name}: the directory {start.cwd} is gone; put it back")
    try:
        programwords.check(start.program, start.cwd)
    except ValueError:
        named = " ".join(start.program[: 1 + (start.program[0] == programwords.MODULE)])
        raise ValueError(f"--resume {name}: the program {named} is gone; put it back") from None
    if start.several_nodes:
        raise ValueError(
            f"--resume {name}: the job may have run over several nodes, and what is left on them "
            "cannot be gathered again; start the job again"
        )
    return directory, start, key, lock


def path_of(name: str) -> Path:
    """Return the directory of a job, given its name or its path."""
    return SHARED / name if "/" not in name else Path(os.path.normpath(name))


def lives(directory: Path) -> bool:
    """Say whether a process of this user's job is alive."""
    try:
        lock = lock_alone(directory)
    except OSError:  # it has ended at this moment
        return False
    if lock is None:
        return True
    lock.close()
    return False


def living() -> list[Path]:
    """Return the directories of this user's living jobs that were started on this host."""
    return [path for path in directories() if (path / "start").exists() and lives(path)]


# ---- the command ----------------------------------------------------------------------------


@dataclass(frozen=True)
class DeadJob:
    """A dead job's directory.

    Attributes:
        size_bytes: memory that it takes.
        age_s: time since the last change in it.
        start: the start record; None if it cannot be read.
    """

    directory: Path
    size_bytes: int
    age_s: float
    start: Start | None

    @property
    def resumable(self) -> bool:
        return self.start is not None and not self.start.several_nodes

    def plain(self) -> dict[str, Any]:
        """Return the job as JSON has it."""
        return {"job": self.directory.name, "memory_bytes": self.size_bytes,
                "unchanged_s": round(self.age_s, 3), "resumable": self.resumable,
                "program": self.start.program if self.start else None}

    def line(self) -> str:
        what = "of a launch without a job"
        if self.start:
            what = " ".join(self.start.program)[:60]
        return one_line(
            f"{self.directory.name:<26} {self.size_bytes / 2**20:8.0f} MiB "
            f"{self.age_s / 60:8.0f} min  {what}"
        )


def directories() -> Iterator[Path]:
    """Yield the directories in shared memory that this user's jobs have made."""
    for path in sorted(SHARED.glob(f"ftrma-{os.getuid()}-*")):
        if not why_foreign(path):
            yield path


def measure(directory: Path) -> DeadJob:
    size = 0
    for path in [directory, *directory.rglob("*")]:
        with contextlib.suppress(OSError):
            size += 512 * path.lstat().st_blocks
    try:
        start = Start(**json.loads(private.read(directory / "start")))
    except (FtrmaError, OSError, ValueError, TypeError):
        start = None
    return DeadJob(directory, size, changed_s(directory), start)


def clean(*, remove: bool) -> list[DeadJob]:
    """Find the directories of this user's dead jobs on this node, and remove them if `remove`."""
    jobs = []
    for directory in directories():
        try:
            lock = lock_alone(directory)
        except OSError:  # its job has ended meanwhile
            continue
        if lock is None:
            continue
        with lock:
            found = measure(directory)
            if remove:
                shutil.rmtree(directory, ignore_errors=True)
        jobs.append(found)
    return jobs


def table(jobs: Sequence[DeadJob], *, removed: bool) -> list[str]:
    """Return the lines about dead jobs, for printing."""
    if not jobs:
        return ["nothing is left of dead jobs"]
    lines = [f"{'job':<26} {'memory':>12} {'unchanged':>12}  program",
             *(found.line() for found in jobs)]
    if removed:
        return [*lines, "removed"]
    ways = "'ftrma clean --remove' removes this"
    if any(found.resumable for found in jobs):
        ways += "; 'ftrma run --resume JOB' goes on with a job"
    return [*lines, ways]
