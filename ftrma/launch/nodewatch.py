"""Watches the processes of a node for the supervisor, in a thread of the node's agent.

The agent does not run the program, so it answers even if all processes that do are stopped, or
spin. The thread connects to the supervisor (kind "watch" of `fabric.link`). Several times a second
it sends the words that have changed (`nodewords`), or an empty message if none has. It also answers
the supervisor's questions about the node's processes:

    agent to supervisor   words; found, places, killed: the answers
    supervisor to agent   hello: seconds between two looks; examine, places, kill: with processes

While the supervisor is not reached, the thread tries again and again. An agent that replaces
another one connects in the same way; the next launch has its own agents.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

from ..fabric import link
from ..host.errors import FtrmaError
from ..host.helper import Helper
from ..host.key import Key
from ..native.controlimage import control_image
from ..native.shared import Control, Proc
from . import nodewords
from .nodewords import NodeWords
from .processlooks import NearLooks

AGAIN_S = 1.0  # time between tries to reach the supervisor
PIECE_BYTES = 4096


def watch(key: Key, node: int, control: Path) -> None:
    """Start a thread that watches the processes of this node, if there is a supervisor.

    Args:
        key: of the job.
        control: control file of this node.
    """
    if address := link.find():
        Helper(_watch, address, key, node, control, name="ftrma-watch").start()


def _watch(address: link.Address, key: Key, node: int, control: Path) -> None:
    with control_image(control) as ctl:
        while True:
            with contextlib.suppress(FtrmaError, OSError, ValueError):
                connection, hello = link.connect(address, key, "watch", rank=node,
                                                 host=socket.gethostname())
                with connection:
                    NodeWatch(ctl, node, connection).serve(float(hello["look_s"]))
            time.sleep(AGAIN_S)


class NodeWatch:
    """Serves one connection to the supervisor.

    Args:
        ctl: image of the control file of this node.
        connection: a blocking socket.
    """

    def __init__(self, ctl: Control, node: int, connection: socket.socket) -> None:
        self.ctl, self.connection = ctl, connection
        self.procs, self.looks = nodewords.procs_of(ctl, node), NearLooks(ctl)
        self.sent, self.asked = NodeWords(), b""
        self.sending = threading.Lock()

    def serve(self, look_s: float) -> None:
        """Send words and answer questions until the connection ends.

        Args:
            look_s: seconds between two looks.

        Raises:
            OSError: the connection has failed.
        """
        poll, due = select.poll(), 0.0
        poll.register(self.connection, select.POLLIN)
        while True:
            if (now := time.monotonic()) >= due:
                due = now + look_s
                self.tell()
            if not poll.poll(1000 * max(0.0, due - time.monotonic())):
                continue
            piece = self.connection.recv(PIECE_BYTES)
            if not piece:
                return
            *lines, self.asked = (self.asked + piece).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                if asked["event"] == "places":  # it takes seconds, and words must go on
                    Helper(self.answer, asked, name="ftrma-places").start()
                else:
                    self.answer(asked)

    def send(self, event: str, **data: Any) -> None:
        with self.sending:
            self.connection.sendall(link.line(event, **data))

    def tell(self) -> None:
        """Send the words that have changed."""
        words = nodewords.take(self.ctl, self.procs)
        self.send("words", **words.since(self.sent).plain())
        self.sent = words

    def answer(self, asked: dict[str, Any]) -> None:
        """Answer one question, by its number."""
        number, procs = asked["number"], [Proc(p) for p in asked["procs"]]
        if asked["event"] == "examine":
            found = self.looks.examine(procs).items()
            self.send("found", number=number, found={p: each.plain() for p, each in found})
        elif asked["event"] == "places":
            with contextlib.suppress(OSError):  # the connection has ended meanwhile
                self.send("places", number=number, found=self.looks.places(procs),
                          lines=self.looks.names_lines())
        elif asked["event"] == "kill":
            self.looks.kill(procs)
            self.send("killed", number=number)
