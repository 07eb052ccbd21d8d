"""Says which process of a launch over several nodes is on which node, and this node's directory.

Each process makes the table before the control file exists, from what all processes tell each other
by MPI.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from ..host import private
from ..native import job
from ..native.shared import Proc
from . import clock
from .link import Link


class NodeTable:
    """The nodes of a launch.

    Args:
        comm: mpi4py communicator of all processes.
        proc: position of this process in the MPI world.
        link: this process's link to the supervisor.
        directory: the job's directory; each node has a directory of its own in it.

    Attributes:
        hosts: name of the node of each process.
        host: name of this process's node.
        names: names of the nodes, in the order of their numbers.
        directory: this node's own directory.

    MPI: collective over all processes.
    """

    def __init__(self, comm: Any, proc: Proc, link: Link, directory: Path) -> None:
        self.proc, self.host = proc, socket.gethostname()
        self.hosts: list[str] = comm.allgather(self.host)
        self.names = list(dict.fromkeys(self.hosts))
        ahead_ns = 0
        if self.first_on_node:
            ahead_ns = clock.ahead_ns(lambda: int(link.request("clock")["ns"]))
        job.set_clock(comm.allgather(ahead_ns)[self.hosts.index(self.host)])
        private.make_directory(directory)
        self.directory = directory / self.host
        private.make_directory(self.directory)
        link.directory = self.directory
        if self.first_on_node:
            # Words of an earlier launch would be taken for words of this one. A vault left by a
            # spare would be taken for that of this launch's process with the same number, when that
            # takes a role. A framework's own files stay, as on one node: the framework judges which
            # of them count.
            for pattern in ("comm-*", "window-*", "demand-*", "mail-*", "vault-*"):
                for left in self.directory.glob(pattern):
                    left.unlink()

    @property
    def first_on_node(self) -> bool:
        """Say whether this process is the lowest of its node."""
        return self.hosts.index(self.host) == self.proc

    @property
    def processes_here(self) -> int:
        """Return the number of processes on this node."""
        return self.hosts.count(self.host)

    @property
    def node(self) -> int:
        """Return the number of this process's node."""
        return self.names.index(self.host)

    def node_of(self, proc: int) -> int:
        """Return the number of a process's node."""
        return self.names.index(self.hosts[proc])

    @property
    def nodes(self) -> list[int]:
        """Return the number of each process's node."""
        return [self.names.index(host) for host in self.hosts]
