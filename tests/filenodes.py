"""Several nodes with agents and files in one process, without a job.

A node is a directory with an agent of its own (`wirenode.Node`); of each process of the job there
is its way to what lies on all nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from wirenode import PATIENCE_S, Node

from ftrma.fabric.agents import Asking
from ftrma.fabric.remote import Files
from ftrma.host.key import Key
from ftrma.native import wire

BLOCK_BYTES = 4096
SLOTS = 2  # of the job, as far as targets and origins go
PROCS = 8  # that there can be


class Nodes:
    """Nodes 0, 1, ... and the ways of processes to them; each process comes anew every time."""

    def __init__(self, count: int) -> None:
        key = Key.make()
        self.nodes: list[Node] = []
        self.opened: list[tuple[Files, wire.Ledger]] = []
        self.incarnation = 0
        for _ in range(count):
            self.nodes.append(Node(SLOTS + PROCS, SLOTS + count, BLOCK_BYTES, more=64, key=key))
            self.nodes[-1].start()

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def files(self, proc: int, where: Sequence[int]) -> Files:
        """The way of a process, where each process is on the node that `where` says."""
        self.incarnation += 1
        asking = Asking(
            self.nodes[0].key, SLOTS + proc, self.incarnation, SLOTS + len(self.nodes),
            len(self.nodes), lambda node: self.nodes[node].address(),
        )
        ledger = wire.ledger_open(self.nodes[where[proc]].ledger_path)
        files = Files(asking.origin, ledger, where, where[proc], SLOTS)
        files.patience_s = PATIENCE_S
        self.opened.append((files, ledger))
        return files

    def close_files(self) -> None:
        for files, ledger in self.opened:
            files.origin.close()
            wire.ledger_close(ledger)
        self.opened.clear()

    def replace_agent(self, node: int) -> None:
        """SIGKILL to an agent; another one takes over."""
        agent = self.nodes[node].agent
        assert agent
        agent.kill()
        agent.wait(PATIENCE_S)
        self.nodes[node].start()

    def close(self) -> None:
        self.close_files()
        for node in self.nodes:
            node.close()


@contextlib.contextmanager
def several(count: int) -> Iterator[Nodes]:
    made = Nodes(count)
    try:
        yield made
    finally:
        made.close()
