"""Directories and files of a job: made by this user, open to nobody else, and not through a link.

A job's directory lies in a place where every user of the node can make files (/dev/shm), under a
name that they can see. So whoever makes it makes it exclusively, and whoever finds it there looks
whose it is before anything is read from it or made in it. What lies inside a directory of mode 0700
needs no further care; its files are checked all the same when they are opened (here, and in C by
``ftrma_open``).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import FtrmaError
from .nodedirectory import why_foreign

OTHERS = 0o077


def make_directory(path: Path) -> None:
    """Make a directory of mode 0700, or find that this user has made it so before.

    Raises:
        FtrmaError: it is somebody else's, or others may use it.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        check_directory(path)


def check_directory(path: Path) -> None:
    """Refuse what is no directory of this user's alone.

    Raises:
        FtrmaError: the text says why.
    """
    why = why_foreign(path)
    if why:
        raise FtrmaError(
            f"{path} {why}: another user of this node may have made it to harm this job. Nothing "
            "in it was used; have it removed and start the job again"
        )


def write(path: Path, data: bytes) -> None:
    """Make a file of mode 0600, which must not be there yet."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def read(path: Path) -> bytes:
    """Read a file of this user's alone.

    Raises:
        FtrmaError: it is somebody else's, or others may use it. OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid != os.geteuid()
            or found.st_mode & OTHERS
        ):
            raise FtrmaError(f"{path} is not a file of this user's alone; nothing in it was used")
        return file.read()
