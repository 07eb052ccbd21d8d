"""Files that a framework keeps in the shared memory of other nodes, through the agents there.

A file outlives the processes, and is lost with its node. The names of these files begin with
``own-``.
"""

from __future__ import annotations

import errno
import os

from ..host.errors import NO_ROOM, FtrmaError, NodeLost, NoRoom
from ..native.wire import Buffer, FileHow
from .nodes_mail import Post

STEP_BYTES = 1 << 26  # memory that an agent allocates at a time: it serves nobody meanwhile


class NodeFiles:
    """A process's way to files on other nodes. A file is given by its name and a process of its
    node.

    Each call waits for the agent of that node, and raises `NodeLost` if the node is lost. All calls
    but `write` raise Rollback if all slots go back meanwhile.
    """

    def __init__(self, post: Post) -> None:
        self._post = post

    def is_here(self, process: int) -> bool:
        """Say whether a process is on this node."""
        return self.node_of(process) == self._post.node

    def node_of(self, process: int) -> int:
        """Return the number of a process's node."""
        return self._post.nodes[process]

    def look(self, of: int, name: str) -> int:
        """Return how many bytes a file has; after this call it can be read.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return self._judge(name, self._post.ask_for_file(of, name, FileHow.LOOK))

    def make(self, of: int, name: str, size_bytes: int) -> None:
        """Make a file, or lengthen it; with 0 bytes it becomes empty.

        Raises:
            NoRoom: shared memory of that node is full.
        """
        for size in [*range(STEP_BYTES, size_bytes, STEP_BYTES), size_bytes]:
            self._judge(name, self._post.ask_for_file(of, name, FileHow.MAKE, size))

    def remove(self, of: int, name: str) -> None:
        """Remove a file, if it is there."""
        self._judge(name, self._post.ask_for_file(of, name, FileHow.REMOVE))

    def read(self, of: int, name: str, offset: int, size_bytes: int) -> bytearray:
        """Return bytes of a file that this process has looked at or made.

        Raises:
            FileNotFoundError: the file was removed meanwhile.
        """
        room = bytearray(size_bytes)
        if size_bytes and not self._post.read_file(of, name, offset, room):
            raise NodeLost(f"{name}: its node is lost")
        return room

    def write(self, of: int, name: str, offset: int, data: Buffer) -> None:
        """Write bytes into a file that this process has made; the file has them when this returns.

        Raises:
            NodeLost: the node is lost, or somebody has removed the file.
        """
        try:
            written = self._post.write_file(of, name, offset, data)
        except FileNotFoundError:
            raise NodeLost(f"{name}: the file is gone") from None
        if not written:
            raise NodeLost(f"{name}: its node is lost")

    def _judge(self, name: str, told: int | None) -> int:
        if told is None:
            raise NodeLost(f"{name}: its node is lost")
        if told >= 0:
            return told
        if -told in (errno.ENOSPC, errno.ENOMEM):
            raise NoRoom(f"{name}: {NO_ROOM}")
        if -told == errno.ENOENT:
            raise FileNotFoundError(name)
        raise FtrmaError(f"{name}: {os.strerror(-told)}")
