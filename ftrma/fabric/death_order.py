"""Tells a framework of deaths over several nodes in one order; a thread of the root's process.

On one node any process that notices a death adds it to the list in the mail's file, and nothing
more comes from the dead process. Over several nodes its bytes may still be on their way. So the
root first has the agents of all nodes shut the dead process out. Only then does it add the death to
the list on its own node, and then to the lists on the others.

Laws: all nodes have the same list. Once a death is in the list, nothing more of the dead process
comes to any node, neither a word nor a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..host.errors import FtrmaError, Rollback
from .nodes_mail import NodesMail

LOOK_US = 100_000  # time between two looks, unless the job's bell rings
SOON_US = 2_000  # the same while some node has not been told everything


class DeathOrder:
    """The deaths among the members, in the order in which the root tells them.

    Args:
        mail: the root's mail.
        members: processes that run the program.
        alive: says whether a process is alive.
        shut_out: makes the agent of a node (second argument) accept nothing more from a process
            (first argument).
        bell, wait: read the job's bell, which rings at deaths; wait for it, at most so many
            microseconds.
        over: says whether the attempt is over.
        report: tells the user of each death, once.
        fail: called with the reason if deaths cannot be told any more.
    """

    def __init__(self, mail: NodesMail, members: Sequence[int], alive: Callable[[int], bool],
                 shut_out: Callable[[int, int], object], bell: Callable[[], int],
                 wait: Callable[[int, int], object], over: Callable[[], bool],
                 report: Callable[[], object], fail: Callable[[str], object]) -> None:
        self.mail, self.members = mail, members
        self.alive, self.shut_out, self.over = alive, shut_out, over
        self.bell, self.wait, self.report, self.fail = bell, wait, report, fail
        self.others = sorted({mail.post.nodes[p] for p in members} - {mail.post.node})
        self.told: list[int] = []

    def serve(self) -> None:
        """Tell deaths until the attempt is over."""
        try:
            while not self.over():
                seen = self.bell()
                self.look()
                self.report()
                self.wait(seen, LOOK_US if self.settled() else SOON_US)
        except Rollback:
            return
        except FtrmaError as error:  # no other process can tell deaths
            self.fail(f"deaths cannot be told: {error}")

    def look(self) -> None:
        """Tell the deaths that are new."""
        for process in self.members:
            if process not in self.told and not self.alive(process):
                self._tell_death(process)

    def settled(self) -> bool:
        """Say whether the other nodes have been told everything."""
        return all([self.mail.post.push(node) for node in self._living_nodes()])

    def _tell_death(self, process: int) -> None:
        post = self.mail.post
        for node in {*self._living_nodes(), post.node} - {post.nodes[process]}:
            self.shut_out(process, node)
        number = len(self.told)
        self.told.append(process)
        self.mail.note_death(process)
        spots = post.spots
        self._tell_others([
            (spots.dead + process * spots.place_bytes, 1),
            (spots.deaths + 8 * number, process + 1),
            (spots.generation, number + 1),
        ])

    def _tell_others(self, words: Sequence[tuple[int, int]]) -> None:
        """Raise words on all other nodes, once for each process there, which also rings its
        bell."""
        for process in self.members:
            if self.mail.post.nodes[process] in self._living_nodes() and self.alive(process):
                self.mail.post.store(process, [], words, wait=False)

    def _living_nodes(self) -> list[int]:
        return [node for node in self.others if not self.mail.post.is_lost(node)]
