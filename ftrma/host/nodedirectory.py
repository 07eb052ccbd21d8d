"""Make a job's directory and a launch's session directory on a node, then become the daemon there.

    python nodedirectory.py SESSION prted [arguments…]

The launcher starts its daemon on each node by this file (`launch.mpirun.words_for_nodes`). By
itself the daemon would put its sockets into a directory that another user may have made under the
same name. The file is run by its path and imports next to nothing.

A process stays behind and looks after the node. When no process of the job is left there, it
removes the launch's session directory, and also the job's directory if no rank has come up. Files
that ranks have left are kept for the next launch for at most GAP_S: by then the job is over, or has
gone on without this node, which was cut off. So a node that nobody can reach cleans itself up.
After SIGTERM, by which a batch system ends all processes of a job on a node, nothing is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import sys
import time

GAP_S = 600.0  # between two launches no process holds a node's part of a living job
LOOK_S = 0.25  # how often it is checked in that time whether there is a next launch


def why_foreign(path: str | os.PathLike[str]) -> str:
    """Say why a path is no directory that only this user can access; empty if it is one."""
    try:
        found = os.lstat(path)
    except OSError as error:
        return f"cannot be looked at ({error.strerror})"
    if not stat.S_ISDIR(found.st_mode):
        return "is no directory"
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid} and not to user {os.geteuid()}"
    if found.st_mode & 0o077:
        return f"is open to others (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def main(session: str, command: list[str]) -> None:
    lock = take(session)
    os.set_inheritable(lock, True)
    if not (child := os.fork()):
        if os.fork():
            os._exit(0)  # the daemon must not get a child that it has not started
        leave_terminal(lock)
        look_after(session)
        os._exit(0)
    os.waitpid(child, 0)
    # The preloaded library admits only this user's processes, and removes itself from the
    # environment (csrc/loopback.c).
    loopback = os.path.realpath(
        os.path.join(os.path.dirname(__file__), os.pardir, "_loopback.so"))
    os.environ["LD_PRELOAD"] = ":".join(
        [loopback, *filter(None, [os.environ.get("LD_PRELOAD")])])
    os.execvp(command[0], command)


def take(session: str) -> int:
    """Make the directories, and share the lock of the job's directory.

    The daemon and its children hold the lock, so that the directory is not taken for a dead job's.
    A file in it names the newest launch.
    """
    job = os.path.dirname(session)
    while True:
        with contextlib.suppress(FileNotFoundError):  # it is being removed at this moment
            for directory in (job, session):
                try:
                    os.mkdir(directory, 0o700)
                except FileExistsError:
                    why = why_foreign(directory)
                    if why:
                        sys.exit(f"ftrma: error: {directory} on {os.uname().nodename} {why}")
            lock = os.open(os.path.join(job, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if is_there(lock, job) and os.path.isdir(session):
                name = os.path.basename(session).encode()
                os.pwrite(lock, name, 0)
                os.ftruncate(lock, len(name))
                return lock
            os.close(lock)


def is_there(lock: int, job: str) -> bool:
    """Say whether the lock is still that of the job's directory."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(lock), os.stat(os.path.join(job, "lock")))
    return False


def leave_terminal(lock: int) -> None:
    """Release the lock, and close the output, whose readers would wait for its end."""
    os.setsid()
    os.close(lock)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def look_after(session: str) -> None:
    """Wait until no process of the job is on this node, then remove its directories."""
    job, name = os.path.dirname(session), os.path.basename(session).encode()
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    try:
        lock = os.open(os.path.join(job, "lock"), os.O_RDWR)
    except OSError:
        return

    def is_newest() -> bool:
        return is_there(lock, job) and os.pread(lock, 64, 0) == name

    fcntl.flock(lock, fcntl.LOCK_EX)
    fcntl.flock(lock, fcntl.LOCK_UN)
    if os.path.exists(os.path.join(job, "control")):
        return  # the supervisor is, or was, on this host, and removes it
    shutil.rmtree(session, ignore_errors=True)
    until = time.monotonic()
    until += GAP_S if os.path.exists(os.path.join(job, os.uname().nodename)) else 0.0
    while is_newest() and time.monotonic() < until and not asked:
        time.sleep(LOOK_S)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_newest():  # a process that comes now waits for the lock, and makes a new directory
            shutil.rmtree(job, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
