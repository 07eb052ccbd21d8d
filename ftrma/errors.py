"""Exceptions of ftrma, and the one BaseException that unwinds a program after a failure."""

from __future__ import annotations

CATASTROPHE = 70  # exit status of a job that could not be recovered: EX_SOFTWARE
NO_ROOM = "shared memory is full; free space in /dev/shm or use fewer or smaller windows"


class FtrmaError(Exception):
    """Base of all errors that ftrma raises; the text says what is wrong and what to do."""


class CatastrophicFailure(FtrmaError):
    """More members of a group were lost than its checksum ranks can rebuild.

    Attributes:
        group: number of the group.
        members: names of what was lost, such as ``slot 2`` or ``checksum 0``.
        version: checkpoint version that could not be rebuilt.
    """

    def __init__(self, group: int, members: tuple[str, ...], version: int) -> None:
        self.group = group
        self.members = members
        self.version = version
        super().__init__(
            f"group {group} lost {' and '.join(members)} at once, more than its checksum ranks "
            f"can rebuild; checkpoint version {version} is gone. Use smaller groups (--group-size) "
            "with more checksum ranks (--checksums), and start again"
        )


class NoRoom(FtrmaError):
    """Shared memory is full."""


class CorruptVault(FtrmaError):
    """A stored block does not match its checksum and cannot be rebuilt."""


class NotRecoverable(FtrmaError):
    """A failure cannot be recovered in the way that was demanded; the text says why."""


class Rollback(BaseException):
    """Unwinds the user's program after a failure.

    Not an Exception, so that no ``except Exception`` of the program swallows it. Programs should
    let it pass; whatever they call in MPI meanwhile raises it again.
    """
