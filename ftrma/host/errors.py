"""Exceptions of ftrma, and the one BaseException that unwinds a program after a failure."""

from __future__ import annotations

CATASTROPHE = 70  # exit status of a job that could not be recovered: EX_SOFTWARE
NO_ROOM = "shared memory is full; free space in /dev/shm or use fewer or smaller windows"


def no_room(host: str) -> str:
    """Say that shared memory is full; a job over several nodes names the host."""
    return NO_ROOM.replace("shared memory", f"shared memory of {host}") if host else NO_ROOM


def on_host(error: Exception, host: str) -> str:
    """Return the text of an error; if shared memory is full, it says on which host (see
    `no_room`)."""
    return str(error).replace(NO_ROOM, no_room(host))


class FtrmaError(Exception):
    """Base of all errors that ftrma raises; the text says what is wrong and what to do.

    MPI: raised in one process; the others learn of it only when the job ends because of it.
    Fault: a process's death raises none of these errors, except as the classes below say.
    """


class CatastrophicFailure(FtrmaError):
    """More members of a group were lost than its checksum ranks can rebuild.

    Attributes:
        group: number of the group.
        members: names of the lost members, such as ``slot 2`` or ``checksum 0``.
        version: checkpoint version that could not be rebuilt.

    MPI: raised in a process that repairs; the job ends because of it.
    Fault: more members of a group died at once than it survives.
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
    """Shared memory is full.

    MPI: raised in the process that asks for memory; the job ends because of it.
    Fault: no death causes it.
    """


class NodeLost(FtrmaError):
    """The node that has a framework's file is lost, and the file with it.

    MPI: raised in the process that reads or writes the file.
    Fault: the whole node died, or its network failed.
    """


class CorruptVault(FtrmaError):
    """A stored block does not match its checksum and cannot be rebuilt.

    MPI: raised in the process that looks at the block; the job ends because of it, or all go back.
    Fault: the program stored into the vault by mistake, or memory is damaged, and no parity is left
        to rebuild the block from.
    """


class NotRecoverable(FtrmaError):
    """A failure cannot be recovered in the way that was demanded; the text says why.

    MPI: raised in the process that decides; the job ends because of it.
    Fault: a death cannot be recovered from in the demanded way.
    """


class Rollback(BaseException):
    """Unwinds the user's program after a failure.

    It is no Exception, so that no ``except Exception`` of the program swallows it. Programs should
    let it pass through; every call of MPI that they make meanwhile raises it again.

    MPI: raised in every slot, in its next call or in the call in which it waits.
    Fault: a death that a replay alone cannot repair raises it; all go back to the checkpoint.
    """
