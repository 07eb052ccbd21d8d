"""The agent of a node: ``python -m ftrma.launch.agent LEDGER --address FILE``.

An agent is a small process, without MPI and NumPy. It accepts connections as the supervisor does
(`Connections`): a peer is a stranger until it has answered a challenge by the key, with the same
limits. Then the peer says hello, and the connection goes to the loop in C (``csrc/wire/agent.c``),
which serves the parts of windows that the ledger lists. The agent sleeps in that loop.

One agent at a time serves a ledger; the next one waits until the one before is gone. An agent ends
when its stdin does: then no process of the job is left on its node. If the job is not over, the
agent of a spoke goes on for a while, as long as it is connected to its hub, so that the other nodes
learn everything that the last process had said. The key is in the environment.

With ``--mirror`` the agent keeps a file of its node equal to those of the other nodes
(``csrc/wire/mirror.h``). The agent of node 0 is the hub, to which the others, the spokes, connect.
A spoke learns the hub's address from a line ``hub ADDRESS`` on its stdin, and connects again
whenever it has lost the connection (`HubConnector`). A thread of a mirroring agent tells the
supervisor how the node's processes progress (`nodewatch`).
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import json
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ..fabric import agents, link
from ..host import outfile, timeouts
from ..host.errors import FtrmaError, no_room
from ..host.key import Key
from ..host.listening import Bind
from ..native import wire
from .connections import Connections, Peer, raise_file_limit
from .hubconnector import HubConnector
from .nodewatch import watch

HUB = b"hub "  # a line on stdin begins with it
FILES = 4096  # more than a job has processes; each origin has one
LOOK_MS = 250  # how often strangers whose time is over are cut off, if there are any


class AgentListener(Connections):
    """Lets origins and spokes in, and hands their connections over.

    Args:
        key: of the job.
        bind: the address at which to listen.
        agent: the agent to which connections are handed over.
        node: number of the agent's node, if it mirrors.

    Attributes:
        damaged: number of hellos that were changed on their way, or that report this of replies;
            told: whether the user was told.
    """

    def __init__(self, key: Key, bind: Bind, agent: wire.Agent, node: int = 0) -> None:
        super().__init__(agents.key_of_wire(key), bind, self._greet, lambda peer: None)
        self.agent, self.node = agent, node
        self.damaged, self.told = 0, False

    def tell_damage(self) -> None:
        """Tell the user of the first message that was changed on its way."""
        if self.told or not (self.damaged or wire.agent_damaged(self.agent)):
            return
        self.told = True
        outfile.tell(
            f"warning: a message between {socket.gethostname()} and another node was changed on "
            "its way; it is sent again, as are later ones, of which nothing is said", needed=True)

    def _greet(self, peer: Peer, text: bytes) -> None:
        """Take the hello of a peer that knows the key."""
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        why, host = "the hello cannot be read", ""  # without a host's name the peer tries again
        if isinstance(said, dict):
            regions, tag = wire.agent_regions(self.agent), said.pop(agents.TAG, None)
            host = socket.gethostname()
            why = agents.refusal(said, host, regions, self.node)
            if tag != agents.tag_of(self.key, said) and (tag is not None or not why):
                why, host = "the hello was changed on its way", ""
                self.damaged += 1
            elif not why and said.get(agents.DAMAGED):
                self.damaged += 1
        if peer.buffer:
            why = "an origin waits for its welcome before it asks"
        if why:
            self.send(peer, "refused", why=why, host=host)
            if peer.open:
                self.cut(peer)
            return
        self._hand_over(peer, said)

    def _hand_over(self, peer: Peer, said: dict[str, Any]) -> None:
        """Give a connection to the agent first, and then welcome the peer; or refuse it in
        words."""
        agents.tune(peer.socket)
        voice = peer.socket.dup()
        with voice:
            del self.peers[peer.socket.fileno()]
            self.epoll.unregister(peer.socket.fileno())
            peer.open = False
            answer = link.line("welcome")
            fd = peer.socket.detach()
            try:
                if said["kind"] == agents.MIRROR:
                    wire.agent_adopt_node(self.agent, fd, said["node"])
                else:
                    wire.agent_adopt(self.agent, fd, said["origin"], said["incarnation"])
            except FtrmaError as error:
                answer = link.line("refused", why=str(error), host=socket.gethostname())
            with contextlib.suppress(OSError):  # the peer is already gone; the loop notices it
                voice.send(answer, socket.MSG_DONTWAIT)


def take_over(ledger: Path) -> wire.Agent:
    """Become the agent of a ledger.

    Raises:
        FtrmaError: the ledger cannot be served, or another agent does not leave it.
    """
    deadline = time.monotonic() + timeouts.TAKE_OVER.s
    while (agent := wire.agent_open(ledger)) is None:
        if time.monotonic() > deadline:
            raise FtrmaError(f"{ledger} is served by another agent, which does not end")
        time.sleep(0.005)
    return agent


def publish(address: link.Address, path: Path) -> None:
    """Write the address of this agent to a file, in one piece.

    An agent that replaces another one has the same address, and writes nothing, since shared memory
    may be full by then.
    """
    with contextlib.suppress(OSError):
        if path.read_text() == address.text():
            return
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(address.text())
    fresh.replace(path)


def serve(listener: AgentListener, connector: HubConnector, ledger: Path) -> None:
    """Serve until stdin ends.

    After that a spoke serves for another `timeouts.LINGER`, as long as it is connected to its hub,
    unless the node's directory is gone: the processes of a job that is over remove it.

    Raises:
        FtrmaError: hub and spoke do not fit together.
    """
    listener.epoll.register(0, select.EPOLLIN)
    listener.epoll.register(connector.bell, select.EPOLLIN)
    mine = select.poll()
    mine.register(0, select.POLLIN)
    wire.agent_watch(listener.agent, listener.fileno())
    told, until = b"", 0.0  # latest time at which to end, once stdin has ended
    while not until or (time.monotonic() < until and not wire.agent_lacks_hub(listener.agent)):
        if not until:
            connector.take(listener.agent)
        wire.agent_serve(listener.agent, LOOK_MS if listener.peers or until else wire.FOREVER)
        listener.pump()
        listener.tell_damage()
        if not until and mine.poll(0):
            if not (said := os.read(0, 4096)):
                if not (connector.node and connector.regions and ledger.exists()):
                    return
                until = time.monotonic() + timeouts.LINGER.s
                listener.epoll.unregister(0)
                listener.epoll.unregister(connector.bell)
                continue
            *lines, told = (told + said).split(b"\n")
            for line in lines:
                if line.startswith(HUB):
                    connector.hub = link.Address.parse(line.removeprefix(HUB).decode())


def kill_rule(text: str) -> tuple[wire.Failpoint, int]:
    place, _, count = text.partition(":")
    places = wire.Failpoint.__members__
    if place.upper() not in places or not (count or "1").isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: one of {', '.join(places)}, and a number")
    return places[place.upper()], int(count or 1)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("ftrma.launch.agent")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--address", type=Path, required=True, metavar="FILE",
                        help="to write how this agent can be reached to")
    parser.add_argument("--bind", type=functools.partial(Bind.parse, "--bind"),
                        default=Bind("127.0.0.1"), metavar="WHERE", help="to listen at")
    parser.add_argument("--mirror", type=Path, metavar="FILE",
                        help="the state of a mirror, whose file lies beside it")
    parser.add_argument("--node", type=int, default=0, metavar="NUMBER",
                        help="of the node; 0 is the hub of the mirror")
    parser.add_argument("--say", type=int, default=2, metavar="DESCRIPTOR",
                        help="to write an error to")
    parser.add_argument("--kill", type=kill_rule, metavar="PLACE[:COUNT]",
                        help="kill this process when it comes to a place so often")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    key = Key.take()
    if key is None:
        print("agent: error: no key of a job in the environment", file=sys.stderr)
        return 2
    try:
        timeouts.choose_by_environment()
        agent = take_over(options.ledger)
        if options.kill:
            wire.agent_kill_at(agent, *options.kill)
        if options.mirror:
            wire.agent_mirror(agent, options.mirror, options.node)
        raise_file_limit(FILES)
        listener = AgentListener(key, options.bind, agent, options.node)
        assert listener.address is not None
        publish(listener.address, options.address)
        if options.mirror:
            watch(key, options.node, options.mirror.with_name("control"))
        serve(listener, HubConnector(key, options.node, wire.agent_regions(agent)), options.ledger)
    except (FtrmaError, OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            why = no_room("")
        with contextlib.suppress(OSError):
            os.write(options.say, f"{why}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
