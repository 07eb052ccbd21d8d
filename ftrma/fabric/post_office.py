"""Opens mails for a process of a job over several nodes: see `nodes_mail`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..host.errors import Rollback
from ..native import job
from ..native.mail import find_spots
from ..native.shared import Proc
from ..native.wire import Unfinished
from .agent_access import AgentAccess
from .death_order import DeathOrder
from .node_files import NodeFiles
from .nodes_mail import NodesMail, Post, share

SHUT_OUT_MS = 200  # how often it is checked whether the node is lost


class PostOffice:
    """Opens mails.

    Args:
        alive: says whether a process is alive.
        alarmed: says whether all slots may have to go back.
        attempt: returns the number of the current attempt.
        bell, wait: the job's bell and the wait for it, see `view.Meeting`.
    """

    def __init__(self, agents: AgentAccess, alive: Callable[[Proc], bool],
                 alarmed: Callable[[], bool], attempt: Callable[[], int], bell: Callable[[], int],
                 wait: Callable[[int, int], object]) -> None:
        self.agents, self.table = agents, agents.table
        self.alive, self.alarmed, self.attempt = alive, alarmed, attempt
        self.bell, self.wait = bell, wait
        self.spots = find_spots(len(self.table.nodes))
        self._opened: NodesMail | None = None

    def share(self, path: Path, attempt: int) -> None:
        """Let processes of other nodes write into this node's file of an attempt."""
        here = [p for p, node in enumerate(self.table.nodes) if node == self.table.node]
        share(self.agents.ledger, path, target=self.agents.slots + self.table.node,
              attempt=attempt, processes=here, spots=self.spots)

    def open_mail(self, path: Path, attempt: int, root: int) -> NodesMail:
        """Open the mail of an attempt; close the one of the attempt before."""
        if self._opened:
            self._opened.post.close()
        table, asking = self.table, self.agents.mail_origin(self.table.proc, attempt)
        post = Post(asking.origin, table.nodes, table.node, self.agents.slots, attempt, self.spots,
                    lambda: self._check(attempt), self._is_lost)
        self._opened = NodesMail(path, table.proc, post, root)
        self._opened.files = NodeFiles(post)
        return self._opened

    def order(self, mail: NodesMail, members: Sequence[int], report: Callable[[], object],
              fail: Callable[[str], object]) -> DeathOrder:
        """Make, as the root, the order of deaths among these members; see `DeathOrder`."""
        attempt = self.attempt()
        return DeathOrder(mail, members, self._is_no_death, self._shut_out, self.bell, self.wait,
                          lambda: self._is_over(attempt), report, fail)

    def _is_no_death(self, process: int) -> bool:
        """Say whether a process is alive, or has ended itself, which is no death to tell."""
        return self.alive(Proc(process)) or job.ended_itself(Proc(process))

    def _is_over(self, attempt: int) -> bool:
        return self.alarmed() or self.attempt() != attempt

    def _check(self, attempt: int) -> None:
        if self._is_over(attempt):
            raise Rollback("a process failed")

    def _is_lost(self, node: int) -> bool:
        """Say whether no process of a node is alive."""
        return not any(self.alive(Proc(p)) for p, at in enumerate(self.table.nodes) if at == node)

    def _shut_out(self, process: int, node: int) -> None:
        """Make a node's agent accept no more requests of a dead process.

        An origin has only one connection to an agent, the newest; so a connection made here
        replaces that of the dead process, which cannot get another one.
        """
        asking = self.agents.mail_origin(Proc(process), self.agents.NEWEST)
        try:
            while not (self.alarmed() or self._is_lost(node)):
                asking.origin.set_timeout(SHUT_OUT_MS)
                with contextlib.suppress(Unfinished):
                    asking.origin.number(self.agents.slots + node)
                    return
                asking.origin.retry()
                time.sleep(0.001)
        finally:
            asking.origin.close()
