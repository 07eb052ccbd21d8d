"""Looks at the processes of other nodes: the supervisor's end of `nodewatch`.

The words that the nodes' agents send are put into a control file of the supervisor's own, beside
the job's. So a job over several nodes can be looked at in the same way as a job on one node. A
process of a node whose agent does not answer is `Doing.SILENT`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..fabric.control_file import make_control
from ..host import timeouts
from ..host.errors import FtrmaError
from ..machine.topology import Layout
from ..native import job
from ..native.shared import Control, Proc
from ..protocol.stalls import Doing
from . import nodewords
from .connections import Peer
from .nodewords import NodeWords
from .processlooks import MOST_STACKS_S, Found

Message = dict[str, Any]


def seen(directory: Path, layout: Layout) -> Control | None:
    """Open the control file for the words of other nodes, and clear it for a launch.

    Args:
        directory: of the job.

    Returns:
        None if there is no memory for it: then nothing is watched.
    """
    path = directory / nodewords.SEEN
    with contextlib.suppress(FtrmaError):
        ctl = job.open_control(path) if path.exists() else make_control(path, layout)
        if (ctl.nprocs, ctl.nchecksums) != (layout.processes, layout.checksums):
            path.unlink()  # the launches before had more processes
            ctl = make_control(path, layout)
        nodewords.put(ctl, nodewords.nothing(ctl))
        return ctl
    return None


@dataclass
class WatchedNode:
    """A node whose agent is connected.

    Attributes:
        peer: the connection. words: words of the job, as the node has sent them last.
        heard_at: when it last sent something, by time.monotonic().
        answers: answers to open questions, by number; None: not yet answered.
    """

    peer: Peer
    words: NodeWords = field(default_factory=NodeWords)
    heard_at: float = 0.0
    answers: dict[int, Message | None] = field(default_factory=dict)


class FarLooks:
    """Keeps what nodes send, and asks them; see `processlooks.ProcessLooks`.

    Args:
        ctl: control file for what nodes send; None if there is none.
        send: sends a line to a peer.
        pump_until: serves all connections until a condition holds, or for a number of seconds.

    Attributes:
        look_s: seconds between two looks of a node. watched: whether hanging slots are to be found.
        nodes: the connected nodes, by number.
    """

    def __init__(
        self, ctl: Control | None, send: Callable[..., None],
        pump_until: Callable[[Callable[[], bool], float], None],
    ) -> None:
        self.ctl, self.send, self.pump_until = ctl, send, pump_until
        self.look_s, self.watched = 1.0, False
        self.nodes: dict[int, WatchedNode] = {}
        self.number, self.lines = 0, True

    # -- what comes ---------------------------------------------------------------------------

    def greet(self, peer: Peer) -> None:
        """Register a node's agent that has connected."""
        self.nodes[peer.rank] = WatchedNode(peer, heard_at=time.monotonic())
        self.send(peer, "hello", look_s=self.look_s)

    def gone(self, peer: Peer) -> None:
        """Note that the connection of an agent has ended."""
        if (node := self.nodes.get(peer.rank)) and node.peer is peer:
            del self.nodes[peer.rank]
            self._put_job()

    def take(self, peer: Peer, event: str, message: Message) -> None:
        """Take a message of an agent."""
        node = self.nodes.get(peer.rank)
        if node is None or node.peer is not peer or self.ctl is None:
            return
        node.heard_at = time.monotonic()
        if event == "words":
            words = NodeWords.of_plain(message)
            node.words.job = words.job or node.words.job
            node.words.roles = words.roles or node.words.roles
            nodewords.put(self.ctl, NodeWords(procs=words.procs, slots=words.slots))
            if words.job or words.roles:
                self._put_job()
        elif (number := message.get("number")) in node.answers:
            node.answers[number] = message

    def _put_job(self) -> None:
        """Take the words that are equal on all nodes from the first connected node."""
        if self.nodes and self.ctl is not None:
            nodewords.put(self.ctl, self.nodes[min(self.nodes)].words)

    # -- what is asked ------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """Say whether the words of all processes have come."""
        ctl = self.ctl
        return ctl is not None and all(ctl.proc[p].pid for p in range(ctl.nprocs))

    def examine(self, procs: Iterable[Proc]) -> dict[Proc, Found]:
        procs = [*procs]
        found = dict.fromkeys(procs, Found(Doing.SILENT))
        for answer in self._ask("examine", procs, timeouts.SILENT.s):
            found |= {Proc(int(p)): Found.of_plain(each) for p, each in answer["found"].items()}
        return found

    def places(self, procs: Iterable[Proc]) -> dict[Proc, str]:
        patience_s = (MOST_STACKS_S + timeouts.NATIVE_STACK.s + timeouts.PYTHON_STACK.s
                      + timeouts.SILENT.s)
        found: dict[Proc, str] = {}
        for answer in self._ask("places", [*procs], patience_s):
            found |= {Proc(int(p)): str(place) for p, place in answer["found"].items()}
            self.lines = bool(answer["lines"])
        return found

    def names_lines(self) -> bool:
        return self.lines

    def kill(self, procs: Iterable[Proc]) -> None:
        self._ask("kill", [*procs], timeouts.SILENT.s)

    def _ask(self, what: str, procs: list[Proc], patience_s: float) -> list[Message]:
        """Ask the nodes of these processes, and wait; silent nodes are not asked.

        Returns:
            The answers that have come in time.
        """
        assert self.ctl is not None
        now, number = time.monotonic(), self.number + 1
        self.number = number
        asked: list[WatchedNode] = []
        for index, node in sorted(self.nodes.items()):
            theirs = [proc for proc in procs if self.ctl.proc[proc].node == index]
            if theirs and now - node.heard_at < timeouts.SILENT.s + self.look_s:
                node.answers[number] = None
                asked.append(node)
                self.send(node.peer, what, number=number, procs=theirs)

        def answered() -> bool:
            return all(node.answers[number] or not node.peer.open for node in asked)

        self.pump_until(answered, patience_s)
        found = [node.answers.pop(number) for node in asked]
        return [answer for answer in found if answer]
