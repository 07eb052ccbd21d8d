"""Make a job's directory and a launch's session directory on a node, then become the daemon there.

    python nodedirectory.py SESSION prted [arguments…]

The launcher starts its daemon on each node by this (`mpirun.words_for_nodes`), since the daemon
would otherwise put its sockets into whatever another user has made under the directory's name. It
is run by its path and imports next to nothing.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys


def why_foreign(path: str | os.PathLike[str]) -> str:
    """Why something is no directory of this user's alone; empty if it is."""
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
    for directory in (os.path.dirname(session), session):
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            why = why_foreign(directory)
            if why:
                sys.exit(f"ftrma: error: {directory} on {os.uname().nodename} {why}")
    # The daemon and what it starts hold it, so that nobody takes the directory for a dead job's.
    lock = os.open(os.path.join(os.path.dirname(session), "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    os.set_inheritable(lock, True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
