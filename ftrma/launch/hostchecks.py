"""Checks of this host before a launch: limits, shared memory and directories.

If one of them is lacking, the launcher fails without saying which, or names something else.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from ..host.errors import FtrmaError

# These numbers were measured with Open MPI 5.0.11, and rounded up.
FILES, FILES_EACH = 24, 4  # open at the launcher
TASKS, TASKS_EACH = 8, 3  # processes and threads of a launch
# In shared memory; the library wants 16 MiB free for each process's segment, and takes a little.
ROOM_BYTES, ROOM_EACH_BYTES = 18 << 20, 3 << 19
INODES, INODES_EACH = 20, 4


def check(processes: int) -> None:
    """Refuse a host that lacks something that a launch needs.

    Args:
        processes: number of the launch's processes on this node, as far as it is known.

    Raises:
        FtrmaError: something is lacking; the error says what, how much there is, and what helps.
    """
    for problem in (_proc, _directory, _files, _tasks, _shared_memory):
        for why in problem(processes):
            raise FtrmaError(why)


def _proc(_: int) -> Iterator[str]:
    if not Path("/proc/self/stat").exists():
        yield ("/proc is not mounted here, by which processes are found and ended: "
               "mount -t proc proc /proc")


def check_directory() -> None:
    """Refuse a current directory that is gone; it may be removed while a job runs."""
    for why in _directory(0):
        raise FtrmaError(why)


def _directory(_: int) -> Iterator[str]:
    try:
        name = os.getcwd()
    except OSError:
        yield ("the directory in which the job was started is gone, and without one nothing can be "
               "launched: start the job in one that stays")
        return
    if not os.access(".", os.X_OK, effective_ids=True):
        yield f"no permission to enter the current directory {name}: change to another one"


def _limited(limit: int, needed: int, flag: str, what: str) -> Iterator[str]:
    if limit != resource.RLIM_INFINITY and limit < needed:
        yield (f"'ulimit -{flag}' allows {limit} {what}, and this job needs about {needed}: raise "
               "it, or start fewer processes")


def _files(processes: int) -> Iterator[str]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # the supervisor raises its limit to this
    yield from _limited(hard, FILES + FILES_EACH * processes, "n", "open files")


def _tasks(processes: int) -> Iterator[str]:
    if not os.geteuid():
        return  # the kernel does not limit root
    mine = sum(1 for path in Path("/proc").glob("[0-9]*/task/*") if _is_mine(path.lstat))
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    yield from _limited(soft, mine + TASKS + TASKS_EACH * processes, "u",
                        f"processes and threads, of which you have {mine} already")


def _is_mine(look: Callable[[], os.stat_result]) -> bool:
    try:
        return look().st_uid == os.geteuid()
    except OSError:  # it has ended meanwhile
        return False


def _shared_memory(processes: int) -> Iterator[str]:
    room, lacking = os.statvfs("/dev/shm"), "no shared memory for the job: /dev/shm has"
    free, needed = room.f_bavail * room.f_frsize, ROOM_BYTES + ROOM_EACH_BYTES * processes
    if room.f_blocks and free < needed:
        yield (f"{lacking} {free >> 20} MiB free, and {processes} processes need at least "
               f"{needed >> 20} MiB, beside what is protected: make room, or allow more (mount -o "
               "remount,size=1g /dev/shm; of a container, --shm-size)")
    inodes = INODES + INODES_EACH * processes
    if room.f_files and room.f_favail < inodes:
        yield (f"{lacking} room for {room.f_favail} more files, and {processes} processes make "
               f"about {inodes}: remove some, or allow more (mount -o remount,nr_inodes=1m "
               "/dev/shm)")
