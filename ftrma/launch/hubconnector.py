"""Connects a spoke's agent to the hub of the mirror, in a thread, while the agent serves on.

Whenever the spoke has no connection, the thread tries again and again until there is one: if a
hub's agent dies, another one follows at the same address.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time

from ..fabric import agents, link
from ..host import timeouts
from ..host.errors import FtrmaError
from ..host.key import Key
from ..native import wire

AGAIN_S = 0.01  # time between tries


class HubConnector:
    """Connects a spoke's agent to the hub whenever it has no connection.

    Args:
        key: of the job.
        node: the spoke's node; regions: a hash of what it mirrors.

    Attributes:
        hub: address of the hub; None if it is not known yet.
        bell: becomes readable when there is something to take.
    """

    def __init__(self, key: Key, node: int, regions: str) -> None:
        self.key, self.node, self.regions = agents.key_of_wire(key), node, regions
        self.splits = agents.Splits(key)
        self.hub: link.Address | None = None
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.never = os.eventfd(0, os.EFD_CLOEXEC)  # an alarm that never rings
        self.asked = False  # a connection is wanted and was not taken yet
        self.wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.made: queue.SimpleQueue[int | str] = queue.SimpleQueue()  # a descriptor, or a refusal
        self.thread: threading.Thread | None = None

    def take(self, agent: wire.Agent) -> None:
        """Give the agent a connection that was made, or have one made if it has none.

        Raises:
            FtrmaError: the hub has refused this spoke, or they do not understand each other.
        """
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        if why := wire.agent_reason(agent):
            raise FtrmaError(f"the mirror: {why}")
        with contextlib.suppress(queue.Empty):
            made = self.made.get_nowait()
            self.asked = False
            if isinstance(made, str):
                raise FtrmaError(f"the mirror: {made}")
            wire.agent_adopt_node(agent, made, 0)
        if self.hub and wire.agent_lacks_hub(agent) and not self.asked:
            self.asked = True
            self.wanted.put(None)
            if not self.thread:
                self.thread = threading.Thread(target=self._seek, name="ftrma-hub", daemon=True)
                self.thread.start()

    def _seek(self) -> None:
        while True:
            self.wanted.get()
            while (made := self._try()) is None:
                time.sleep(AGAIN_S)
            self.made.put(made)
            os.eventfd_write(self.bell, 1)
            time.sleep(AGAIN_S)  # wait, in case connections break at once again and again

    def _try(self) -> int | str | None:
        """Try each address of the hub once; return a descriptor, or why the connection is
        refused."""
        hub = self.hub
        assert hub
        began = time.monotonic()
        said = agents.hello_of_node(self.node, self.regions, hub.host)
        for ip in link.likely_first(hub.addresses, link.worked.get("agent")):
            deadline = time.monotonic() + timeouts.AGENT_KNOCK.s
            with contextlib.suppress(OSError, ValueError):
                fd, answer = agents.knock(ip, hub.port, self.key, said, self.never, deadline)
                if answer.get("event") == "welcome":
                    link.worked["agent"] = ip
                    self.splits.note(hub.host, began, reached=True)
                    return fd
                socket.socket(fileno=fd).close()
                if answer.get("host") == hub.host:  # and not another host with this address
                    return str(answer.get("why", "refused"))
            self.splits.note(hub.host, began, reached=False)
        return None
