"""The agent of a node: ``python -m ftrma.launch.agent LEDGER --address FILE``.

A small process, without MPI and NumPy. Connections come in by a `Reception`, as the supervisor's
do: who connects is a stranger until it has answered a challenge by the key, with the same limits.
What is left of it is told in words, and then the connection goes to the loop in C
(``csrc/wire/agent.c``), which serves the parts that the ledger speaks of. This process sleeps in
that loop, too.

One agent at a time serves a ledger; the next one waits until the one before is gone. It ends when
its stdin does, that is, when no process of the job is left on its node. Where the job is not over,
a spoke goes on for a while, as long as it has its hub, so that the others know all that the last
process had said. The key is in its environment.

With ``--mirror`` it keeps a file of its node equal to those of the others (``csrc/wire/mirror.h``).
The agent of node 0 is the hub and lets the others' in, as it does origins; a spoke learns where the
hub is by a line ``hub ADDRESS`` on its stdin, and connects again whenever it is alone (`Seeking`).
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

from ..errors import FtrmaError, no_room
from ..fabric import agents, link
from ..fabric.listening import Bind
from ..host.key import Key
from ..native import wire
from .reception import Peer, Reception, raise_file_limit
from .seeking import Seeking

TAKE_OVER_S = 5.0  # the kernel ends a killed process within milliseconds
HUB = b"hub "  # what a line on stdin begins with
FILES = 4096  # an origin has one; more than a job has processes
LOOK_MS = 250  # for strangers whose time is over, while there are some
LINGER_S = 15.0  # a repair has had the last words of who died, or it is given up


class Door(Reception):
    """Lets origins and spokes in, and hands their connections over.

    Args:
        key: of the job.
        bind: where to listen.
        agent: that serves.
        node: whose agent it is, where it mirrors.
    """

    def __init__(self, key: Key, bind: Bind, agent: wire.Agent, node: int = 0) -> None:
        super().__init__(agents.key_of_wire(key), bind, self._greet, lambda peer: None)
        self.agent, self.node = agent, node

    def _greet(self, peer: Peer, text: bytes) -> None:
        """The hello of somebody who knows the key."""
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        host, why = socket.gethostname(), "the hello cannot be read"
        if isinstance(said, dict):
            regions = wire.agent_regions(self.agent)
            why = agents.refusal(said, host, regions, self.node)
        if peer.buffer:
            why = "an origin waits for its welcome before it asks"
        if why:
            self.send(peer, "refused", why=why, host=host)
            if peer.open:
                self.cut(peer)
            return
        self._hand_over(peer, said)

    def _hand_over(self, peer: Peer, said: dict[str, Any]) -> None:
        """Adopted first and welcomed then, so that who is too late learns it in words."""
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
            with contextlib.suppress(OSError):  # it has gone already; the loop sees it
                voice.send(answer, socket.MSG_DONTWAIT)


def take_over(ledger: Path) -> wire.Agent:
    """Become the agent of a ledger.

    Raises:
        FtrmaError: it cannot be served, or another agent does not leave it.
    """
    deadline = time.monotonic() + TAKE_OVER_S
    while (agent := wire.agent_open(ledger)) is None:
        if time.monotonic() > deadline:
            raise FtrmaError(f"{ledger} is served by another agent, which does not end")
        time.sleep(0.005)
    return agent


def publish(address: link.Address, path: Path) -> None:
    """Write where this agent can be reached; whoever reads finds all of it.

    Who follows another agent is where that was, and needs no memory, which may be full by now.
    """
    with contextlib.suppress(OSError):
        if path.read_text() == address.text():
            return
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(address.text())
    fresh.replace(path)


def serve(door: Door, seeking: Seeking, ledger: Path) -> None:
    """Serve until stdin ends, and a spoke, for a while, until the connection to the hub does, too,
    unless the node's directory is gone: processes that end with the job remove it.

    Raises:
        FtrmaError: hub and spoke do not fit.
    """
    door.epoll.register(0, select.EPOLLIN)
    door.epoll.register(seeking.bell, select.EPOLLIN)
    mine = select.poll()
    mine.register(0, select.POLLIN)
    wire.agent_watch(door.agent, door.fileno())
    told, until = b"", 0.0  # when this ends at the latest, once stdin has ended
    while not until or (time.monotonic() < until and not wire.agent_lacks_hub(door.agent)):
        if not until:
            seeking.take(door.agent)
        wire.agent_serve(door.agent, LOOK_MS if door.peers or until else wire.FOREVER)
        door.pump()
        if not until and mine.poll(0):
            if not (said := os.read(0, 4096)):
                if not (seeking.node and seeking.regions and ledger.exists()):
                    return
                until = time.monotonic() + LINGER_S
                door.epoll.unregister(0)
                door.epoll.unregister(seeking.bell)
                continue
            *lines, told = (told + said).split(b"\n")
            for line in lines:
                if line.startswith(HUB):
                    seeking.hub = link.Address.parse(line.removeprefix(HUB).decode())


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
        agent = take_over(options.ledger)
        if options.kill:
            wire.agent_kill_at(agent, *options.kill)
        if options.mirror:
            wire.agent_mirror(agent, options.mirror, options.node)
        raise_file_limit(FILES)
        door = Door(key, options.bind, agent, options.node)
        assert door.address is not None
        publish(door.address, options.address)
        serve(door, Seeking(key, options.node, wire.agent_regions(agent)), options.ledger)
    except (FtrmaError, OSError) as error:
        why = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            why = no_room("")
        with contextlib.suppress(OSError):
            os.write(options.say, f"{why}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
