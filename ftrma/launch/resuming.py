"""Begins a job from files, and manages the directory into which it writes its checkpoints.

Only one job at a time uses a directory (it holds a lock). The directory belongs to a job as long as
it holds checkpoints of it: another program, or one that begins anew, is refused. When the job ends
with status 0, its directory says so, and then another job may use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..fabric import spillfiles, story
from ..fabric.spillfiles import Damaged, Part, Point
from ..fabric.story import Relaunch
from ..host import outfile, programwords
from ..host.errors import FtrmaError
from ..host.outfile import tell
from ..host.record import Seal
from ..native.constants import RESUME_FILES
from ..native.job import Takeover, now_ns
from .job import Job
from .vaulthandover import hand_over

LOCK = "lock"
ENDED = "ended"
ANOTHER = "name another directory"


@dataclass
class Files:
    """A directory of checkpoints in files, which is this job's alone.

    Attributes:
        directory: its absolute path.
        point: the checkpoint to begin from; None: the program's start.
        manifest: manifest of this checkpoint.
    """

    directory: Path
    lock: BinaryIO
    point: Point | None = None
    manifest: dict[str, Any] | None = None

    @property
    def entry(self) -> int:
        """Return the number of this entry into the job."""
        found = spillfiles.points(self.directory, whole=False)
        return max((point.entry for point in found), default=0) + 1


def is_job(name: str) -> bool:
    """Say whether ``--resume NAME`` means a job in memory, and not a directory with files."""
    path = Path("/dev/shm", name) if "/" not in name else Path(name)
    return path.name.startswith("ftrma-") and path.resolve().parent == Path("/dev/shm")


def claim(directory: str, option: str, *, make: bool) -> Files:
    """Become the only user of a directory of checkpoints.

    Args:
        option: the option that named it. make: make it if it is missing.

    Raises:
        ValueError: the directory cannot be used; the text says why.
    """
    path = Path(os.path.abspath(directory))
    try:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
        if not path.is_dir():
            raise ValueError(f"{option} {directory}: this is no directory; {ANOTHER}")
        if found.st_uid != os.geteuid():
            raise ValueError(f"{option} {directory}: it belongs to user {found.st_uid}; {ANOTHER}")
        if found.st_mode & 0o022:
            raise ValueError(f"{option} {directory}: others may write to it (mode "
                             f"{found.st_mode & 0o777:o}); chmod go-w, or {ANOTHER}")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = open(os.open(path / LOCK, flags, 0o600), "r+b")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ValueError(f"{option} {directory}: another job uses it now; {ANOTHER}, or wait "
                             "for its end") from None
    except FileNotFoundError:
        raise ValueError(f"{option} {directory}: there is no such directory; give one in which "
                         "'ftrma run --spill' has left files") from None
    except OSError as error:
        raise ValueError(f"{option} {directory}: {outfile.why(error)}") from None
    return Files(path, lock)


def begin_anew(files: Files) -> None:
    """Use a directory for a job that begins at the program's start.

    Raises:
        ValueError: the directory has checkpoints of a job that has not ended.
    """
    whole, ended = spillfiles.points(files.directory), files.directory / ENDED
    if whole and not ended.exists():
        raise ValueError(
            f"--spill {files.directory}: it has checkpoint {whole[-1].version} of a job that has "
            f"not ended: go on with --resume {files.directory}, or remove it, or {ANOTHER}")
    ended.unlink(missing_ok=True)


def choose(files: Files, *, thorough: bool = False) -> bool:
    """Choose the newest checkpoint that is whole; set damaged ones aside, and tell the user.

    Args:
        thorough: read all data.

    Returns:
        False: there is none.

    Raises:
        ValueError: it was written by a newer ftrma.
    """
    while found := spillfiles.points(files.directory):
        point = found[-1]
        try:
            manifest = spillfiles.read_manifest(files.directory, point)
            for slot in range(manifest["slots"]):
                part = Part(files.directory, point, slot, manifest)
                if thorough:
                    part.check()
        except Damaged as error:
            set_aside(files, point, error)
            continue
        except FtrmaError as error:
            raise ValueError(str(error)) from None
        files.point, files.manifest = point, manifest
        return True
    files.point = files.manifest = None
    return False


def set_aside(files: Files, point: Point, why: Exception) -> None:
    """Rename a damaged checkpoint, and tell the user."""
    name = spillfiles.set_aside(files.directory, point)
    tell(f"warning: {why}; checkpoint {point.version} is set aside as {files.directory / name}")


def has_ended(files: Files) -> bool:
    """Say whether the job of this directory has ended with status 0."""
    return (files.directory / ENDED).exists()


def check_program(files: Files, words: Sequence[str], slots: int | None) -> None:
    """Refuse a program or a number of slots that differs from that of the files.

    Raises:
        ValueError: they differ; the text names both, and the remedy.
    """
    assert files.manifest
    program, count = files.manifest["program"], files.manifest["slots"]
    if _name_of(program) != _name_of(words):
        raise ValueError(f"--resume {files.directory}: its checkpoints are of "
                         f"{_name_of(program)}, not of {_name_of(words)}; give that program, or "
                         "another directory")
    if slots is not None and slots != count:
        raise ValueError(f"--resume {files.directory}: its checkpoints are of {count} slots, and "
                         f"-n {slots} is another number; leave out -n")


def _name_of(words: Sequence[str]) -> str:
    if words[0] == programwords.MODULE:
        return f"-m {words[1]}"
    return os.path.basename(words[0])


def begin_from(made: Job, files: Files) -> None:
    """Make the first launch of a job go on from a checkpoint in files.

    On one node its vaults are filled here; over several nodes each node fills its own.

    Raises:
        FtrmaError: no checkpoint is whole.
    """
    began = time.monotonic()
    if made.may_spread:
        choose(files, thorough=True)
    while files.point and not made.may_spread:
        try:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                list(pool.map(lambda slot: _fill_vault(made, files, slot),
                              range(made.layout.slots)))
            break
        except Damaged as error:
            set_aside(files, files.point, error)
            choose(files)
    if not files.point or not files.manifest:
        raise FtrmaError(f"no checkpoint in {files.directory} is whole any more; start the "
                         "program again")
    made.hash_seed = files.manifest["hash_seed"]
    attempt = files.manifest["attempt"] + 1
    tell(f"goes on from checkpoint {files.point.version} in {files.directory}, "
         f"{_age(files.manifest['written'])} old (read in {time.monotonic() - began:.1f} s)")
    if made.may_spread:
        made.begun_from = {"directory": str(files.directory), "attempt": attempt,
                           "entry": files.point.entry, "version": files.point.version}
        return
    ctl, layout = made.ctl, made.layout
    for checksum in range(layout.checksums):
        ctl.lost[layout.slots + checksum] = 1  # the parity is computed from the slots
    for slot in range(layout.slots):
        ctl.lost[slot] = 0
    ctl.commit, ctl.resume = files.point.version << 1, RESUME_FILES
    ctl.takeover, ctl.attempt = Takeover.OFFERED, max(int(ctl.attempt), attempt)


def begin_from_older(made: Job, files: Files, why: str) -> bool:
    """Set aside a checkpoint that the program has refused; let the next launch take an older one.

    Args:
        why: in words.

    Returns:
        False if there is none; then the user was told.
    """
    assert files.point
    set_aside(files, files.point, FtrmaError(why))
    if not choose(files):
        tell(f"error: no checkpoint is left in {files.directory} that is right; start the program "
             "again, with another directory")
        return False
    layout = made.layout
    hand_over(made, range(layout.slots + layout.checksums), 0, now_ns())
    begin_from(made, files)
    story.emit(made.directory, Relaunch(why, (), files.point.version, now_ns()))
    return True


def _fill_vault(made: Job, files: Files, slot: int) -> None:
    from ..protocol.filling import make_filled  # it needs NumPy, which most supervisors do not load

    assert files.point and files.manifest
    ctl = made.ctl
    path = made.vault(ctl.roles[ctl.roles_seq & 1].slot_proc[slot])
    part, version = Part(files.directory, files.point, slot, files.manifest), files.point.version
    make_filled(path, (ctl.capacity_blocks, made.layout.group_size), part, version,
                Seal(made.key, f"slot {slot}", str(version)))


def _age(written: float) -> str:
    seconds = max(0.0, time.time() - written)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@dataclass
class RunFiles:
    """The directories of checkpoints that a run uses.

    Attributes:
        source: the directory to begin from; None: the program's start.
        sink: the directory into which checkpoints are written; None: they stay in memory.
    """

    source: Files | None = None
    sink: Files | None = None

    def end(self, status: int | None) -> None:
        """Note in the directory if the job has ended with status 0, and let others use it."""
        if self.sink and status == 0:
            with contextlib.suppress(OSError):
                (self.sink.directory / ENDED).touch(mode=0o600)
        for files in (self.source, self.sink):
            if files:
                files.lock.close()


def files_of_run(resume: str, spill: str) -> RunFiles:
    """Claim the directories that ``--resume`` and ``--spill`` name; "" means none.

    Raises:
        ValueError: one of them cannot be used.
    """
    both = resume and spill and os.path.abspath(resume) == os.path.abspath(spill)
    source = claim(resume, "--resume", make=bool(both)) if resume else None
    sink = source if both else claim(spill, "--spill", make=True) if spill else None
    if source and not has_ended(source) and not choose(source):
        if not both:
            raise ValueError(f"--resume {resume}: no checkpoint in it is whole; start the program "
                             "again without it")
        tell(f"no whole checkpoint in {resume}: begins at the program's start")
        source = None
    if sink and sink is not source:
        begin_anew(sink)
    return RunFiles(source, sink)
