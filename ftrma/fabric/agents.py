"""Connects a process to agents of nodes, and keeps this node's agent running.

A connection begins as a link does (`link`): messages of fixed size carry a challenge each way, and
nothing is parsed before they are answered. Then the process says hello, with the version of ftrma
and the format of the wire's messages, and the agent answers by a welcome or by a refusal in words.
The rest belongs to the wire (``csrc/wire/``). The key is derived from the job's key, so that an
answer that was meant for an agent opens nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..host import timeouts
from ..host.errors import NO_ROOM, FtrmaError, NoRoom
from ..host.helper import Helper
from ..host.key import VARIABLE, Key
from ..host.listening import Bind
from ..host.sharedmemory import is_full
from ..host.version import VERSION
from ..native import wire
from ..native.wire import FORMAT, NODES, Ack, MirrorKind, Origin
from . import link

Regions = Sequence[tuple[int, int, MirrorKind]]
WIRE, MIRROR = "wire", "mirror"  # kinds of connections to an agent
TAG, DAMAGED = "tag", "damaged"  # of a hello: its tag; how many replies were damaged on their way
REPORT_S = 2.0  # how often the supervisor is told that a node is not reached
PARTS = 16384  # parts of a node's windows; an unused entry takes no memory
AGAIN_S = 1.0  # an agent that ends sooner, or by an error, may fail again
TRIES = 10  # after so many failing agents in a row, none is started any more
KILLED = "it was killed"  # an agent that ends in another way says why
# Like ``python -m``, but without the current directory, in which there may be any file.
AGENT = ("import sys; getattr(sys.flags, 'safe_path', 0) or sys.path.pop(0); import runpy; "
         "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)")


def key_of_wire(key: Key) -> Key:
    """Derive the key that agents and origins of a job share."""
    return Key(key.tag(b"wire"))


def has_ended(alive: int) -> bool:
    """Say whether the agent at the other end of this pipe is gone."""
    end = select.poll()
    end.register(alive, select.POLLIN)
    return bool(end.poll(0))


def said_at_end(alive: int) -> str:
    """Read from an agent's pipe why the agent has ended, in its own words."""
    if not has_ended(alive):
        return f"it says nothing for {timeouts.AGENT_COME_UP.s:.0f} s"
    return os.read(alive, 4096).decode(errors="replace").strip() or KILLED


def hello(origin: int, incarnation: int, host: str) -> dict[str, Any]:
    """Make the hello of an origin.

    Args:
        origin: number of the origin, for example its slot.
        incarnation: which process of that slot it is.
        host: the host whose agent it wants.
    """
    return {"kind": WIRE, "ftrma": VERSION, "format": FORMAT, "engine": wire.engine(),
            "origin": origin, "incarnation": incarnation, "host": host}


def hello_of_node(node: int, regions: str, host: str) -> dict[str, Any]:
    """Make the hello of a spoke's agent: its node, its mirrored regions, and the hub's host."""
    return {**hello(0, 0, host), "kind": MIRROR, "node": node, "regions": regions}


def hello_line(key: Key, said: dict[str, Any]) -> bytes:
    """Make the line of a hello; its tag reveals any bit that changes on the way."""
    said = {"event": "hello", **said}
    return json.dumps({**said, TAG: tag_of(key, said)}).encode() + b"\n"


def tag_of(key: Key, said: dict[str, Any]) -> str:
    """Make the tag of a hello that has none yet; no other hello has this tag."""
    return key.tag(json.dumps(said, sort_keys=True).encode()).hex()


def refusal(said: dict[str, Any], host: str, regions: str = "", node: int = 0) -> str:
    """Say why the agent of `host` cannot serve a process with this hello; "" if it can.

    Args:
        said: the hello.
        regions, node: the regions that this agent mirrors, and its node.
    """
    if said.get("kind") not in (WIRE, MIRROR) or said.get("event") != "hello":
        return "agents are for the wire between nodes alone"
    if said.get("ftrma") != VERSION:
        return (f"the agent is of ftrma {VERSION}, and who asks of {said.get('ftrma')!r}: "
                "install one version on all nodes")
    if said.get("format") != FORMAT:
        return (f"the agent's messages have format {FORMAT}, and who asks has "
                f"{said.get('format')!r}: install one build on all nodes")
    if said.get("engine") != (engine := wire.engine()):
        return (f"the agent's messages go by the engine {engine}, and who asks has "
                f"{said.get('engine')!r}: set {wire.ENGINE} alike on all nodes")
    if said.get("host") != host:
        return f"the agent of {host} is not that of {said.get('host')!r}"
    for name in ("origin", "incarnation"):
        value = said.get(name)
        if type(value) is not int or not 0 <= value < 2**32:
            return f"the hello has no {name}"
    return refusal_of_node(said, regions, node) if said["kind"] == MIRROR else ""


def refusal_of_node(said: dict[str, Any], regions: str, node: int) -> str:
    """Say why the agent of `node` cannot be the hub of this spoke; "" if it can. Pure."""
    spoke = said.get("node")
    if not regions or node:
        return f"the agent of node {node} is not the hub of a mirror"
    if type(spoke) is not int or not 0 < spoke < NODES:
        return "the hello has no node of a spoke"
    if said.get("regions") != regions:
        return (f"the hub mirrors the regions {regions}, and node {spoke} {said.get('regions')!r}: "
                "install one build on all nodes")
    return ""


def tune(connection: socket.socket) -> None:
    """Make a connection between nodes end soon after the network between them has failed.

    Otherwise the kernel would send unacknowledged bytes again and again for a quarter of an hour.
    """
    link.tune(connection)
    link.bound_sending(connection, timeouts.UNACKNOWLEDGED.s)


class Splits:
    """Tells the supervisor, repeatedly, which nodes this node does not reach any more.

    Args:
        key: of the job.
    """

    def __init__(self, key: Key) -> None:
        self.key, self.supervisor = key, link.find()
        self.reached: set[str] = set()
        self.missed: dict[str, tuple[float, float]] = {}  # since when missed; when last told

    def note(self, host: str, began: float, *, reached: bool) -> bool:
        """Take note of one try to reach a node's agent.

        Args:
            began: when the try began, time.monotonic().
            reached: the try succeeded.

        Returns:
            True if the node was ever reached: then the supervisor decides what becomes of it.
        """
        if reached:
            self.reached.add(host)
            self.missed.pop(host, None)
        if reached or host not in self.reached or self.supervisor is None:
            return reached
        now = time.monotonic()
        since, told = self.missed.setdefault(host, (began, 0.0))
        if now - since > timeouts.SPLIT.s and now - told > REPORT_S:
            self.missed[host] = since, now
            with contextlib.suppress(FtrmaError, OSError, ValueError):
                link.tell_split(self.supervisor, self.key, host)
        return True


class AlarmRang(OSError):
    """The alarm rang while a connection was made."""


class _Hasty:
    """A connection that is being made. Each wait ends at a deadline, or when the alarm rings."""

    def __init__(self, connection: socket.socket, alarm: int, deadline: float) -> None:
        self.connection, self.alarm, self.deadline = connection, alarm, deadline

    def wait(self, events: int) -> None:
        poll = select.poll()
        poll.register(self.connection, events)
        poll.register(self.alarm, select.POLLIN)
        ready = poll.poll(max(0.0, 1000 * (self.deadline - time.monotonic())))
        if any(fd == self.alarm for fd, _ in ready):
            raise AlarmRang("the alarm rang")
        if not ready:
            raise TimeoutError("no answer")

    def connect(self, ip: str, port: int) -> None:
        result = self.connection.connect_ex((ip, port))
        if result == errno.EINPROGRESS:
            self.wait(select.POLLOUT)
            result = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if result:
            raise OSError(result, "cannot connect")

    def recv(self, size_bytes: int, /) -> bytes:
        self.wait(select.POLLIN)
        return self.connection.recv(size_bytes)

    def sendall(self, data: bytes, /) -> None:
        while data:
            self.wait(select.POLLOUT)
            data = data[self.connection.send(data):]


def knock(
    ip: str, port: int, key: Key, said: dict[str, Any], alarm: int, deadline: float
) -> tuple[int, dict[str, Any]]:
    """Connect to an agent.

    Returns:
        A descriptor, authenticated both ways, and the agent's answer.
    """
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        tune(connection)
        hasty = _Hasty(connection, alarm, min(deadline, time.monotonic() + timeouts.AGENT_KNOCK.s))
        hasty.connect(ip, port)
        answer = link.introduce(hasty, key, hello_line(key, said))
        return connection.detach(), answer


class Asking:
    """An origin of the wire that connects itself to agents.

    Args:
        key: of the job.
        slot: number of the origin, for example the slot of this process. incarnation: greater than
            those of the origin's earlier processes.
        find: returns the address of a node's agent; None if there is no agent yet.
        acked: see `Origin`.

    Attributes:
        origin: the origin of the wire.
        trouble: why the last connection could not be made, in words.
    """

    def __init__(
        self, key: Key, slot: int, incarnation: int, targets: int, nodes: int,
        find: Callable[[int], link.Address | None],
        acked: Callable[[int, list[Ack]], object] | None = None,
    ) -> None:
        self.key, self.find, self.splits = key_of_wire(key), find, Splits(key)
        self.said = hello(slot, incarnation, "")
        self.missed: dict[int, tuple[float, float]] = {}  # times of the first and last failed try
        self.trouble = ""
        self.origin = Origin(targets, nodes, self._connect, acked)

    def _connect(self, node: int, limit_ms: int) -> int:
        """Connect to a node's agent; return a descriptor, or a negative errno value (EPROTO if
        refused)."""
        address = self.find(node)
        began = time.monotonic()
        deadline = began + (limit_ms / 1000 if limit_ms >= 0 else math.inf)
        likely = link.likely_first(address.addresses, link.worked.get("agent")) if address else ()
        for ip in likely:
            assert address is not None
            said = {**self.said, "host": address.host, DAMAGED: self.origin.damaged}
            try:
                fd, answer = knock(ip, address.port, self.key, said, self.origin.alarm, deadline)
            except (OSError, ValueError) as error:
                self.trouble = f"{ip}: {error}"
                if isinstance(error, AlarmRang):
                    return -errno.EINTR
                self.splits.note(address.host, began, reached=False)
                continue
            if answer.get("event") == "welcome":
                self.missed.pop(node, None)
                self.splits.note(address.host, began, reached=True)
                link.worked["agent"] = ip
                return fd
            socket.socket(fileno=fd).close()
            self.trouble = f"{ip}: {answer.get('why', 'refused')}"
            if answer.get("host") == address.host:  # if not, another agent happens to listen there
                self.origin.refusal = self.trouble
                return -errno.EPROTO
        now = time.monotonic()
        since, last = self.missed.get(node, (now, now))
        since = now if now - last > timeouts.AGENT_REACH.s else since  # no try was made meanwhile
        self.missed[node] = since, now
        if address is None or self.splits.note(address.host, began, reached=False):
            return -errno.EAGAIN
        if now - since < timeouts.AGENT_REACH.s:
            return -errno.EAGAIN
        self.origin.refusal = (
            f"{socket.gethostname()} has not reached the agent of {address.host}, port "
            f"{address.port}, for {timeouts.AGENT_REACH.s:g} s ({self.trouble}): let the nodes of "
            "a job connect to each other by TCP"
        )
        return -errno.EPROTO


class NodeAgent:
    """Keeps a node's agent running as long as any process of the job lives on the node.

    Each process of the node has a `NodeAgent`. One of these processes is the agent's keeper: it
    holds a lock on a file, which passes to another process when it dies. If the agent ends, the
    keeper starts another one at the same address; origins then send again what the old agent had
    not acknowledged. The agent's stdin is a FIFO, and the agent ends when no process holds the FIFO
    any more. Through the FIFO it also learns where the hub is.

    Args:
        directory: the job's directory on this node.
        key: of the job.
        bind: the address at which the agent listens.
        node: number of this node; the agent of node 0 is the hub.
        lost: called by a thread when one agent after another ends soon after its start, with the
            reason.
        followed: called by a thread when an agent has died and another one serves.
    """

    def __init__(
        self, directory: Path, key: Key, bind: Bind, node: int,
        lost: Callable[[str], object], followed: Callable[[], object] = lambda: None,
    ) -> None:
        self.key, self.bind, self.node = key, bind, node
        self.lost, self.followed = lost, followed
        self.hub: link.Address | None = None
        self.ledger, self.published = directory / "ledger", directory / "agent"
        self.mirror, self.fifo = directory / "mirror", directory / "agent.stdin"
        self.keeper = directory / "agent.keeper"
        # Both are recorded at the start, since the program may change them.
        self.environment, self.home = dict(os.environ), os.getcwd()

    def make(self, origins: int, targets: int, words: Regions) -> None:
        """Make, as the node's first process, the files that its processes and its agent share.

        Args:
            origins, targets: how many of them the ledger has room for.
            words: regions of the control file that are mirrored; the file exists already.

        Raises:
            FtrmaError: there is no room for them.
        """
        for left in (self.ledger, self.ledger.with_name("ledger.bell"), self.published,
                     self.mirror, self.fifo, self.keeper):
            left.unlink(missing_ok=True)  # left by an earlier launch
        wire.ledger_make(self.ledger, origins=origins, targets=targets, parts=PARTS)
        wire.mirror_make(self.mirror, "control", words)
        os.mkfifo(self.fifo, 0o600)
        self.keeper.touch(0o600)

    def start(self) -> link.Address:
        """Start the agent, as the node's first process, and return its address.

        Raises:
            NoRoom: there is not enough memory. FtrmaError: the agent does not come up.
        """
        self._hold()
        fcntl.flock(self.turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        why = self._come_up()
        if why == KILLED:  # no other process knows this agent yet, so none replaces it
            why = self._come_up()
        if why and is_full(self.ledger.parent):
            raise NoRoom(f"starting the agent: {NO_ROOM}")
        if why:
            raise FtrmaError(
                f"{socket.gethostname()}: the agent of this node does not come up: {why}")
        return link.Address.parse(self.published.read_text())

    def _come_up(self) -> str:
        """Start the agent and wait until it has published its address; if it does not, return
        why."""
        alive, deadline = self._start(), time.monotonic() + timeouts.AGENT_COME_UP.s
        while not self.published.exists() and not has_ended(alive):
            if time.monotonic() > deadline:
                break
            time.sleep(0.002)
        why = "" if self.published.exists() else said_at_end(alive)
        os.close(alive)
        return why

    def _hold(self) -> None:
        """Keep the agent alive at least as long as this process lives."""
        self.turn = os.open(self.keeper, os.O_RDWR | os.O_CLOEXEC)
        self.voice = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        for fd in (self.turn, self.voice):  # a forked child must not keep the agent alive
            os.register_at_fork(after_in_child=partial(os.close, fd))

    def join(self, address: link.Address, hub: link.Address) -> None:
        """Become the agent's keeper when it is this process's turn, and tell the agent where its
        hub is."""
        if not hasattr(self, "turn"):
            self._hold()
        self.hub = hub
        self.bind = replace(self.bind, ports=range(address.port, address.port + 1))
        self._tell_hub()
        Helper(self._keep, name="ftrma-agent").start()

    def _start(self) -> int:
        """Start an agent that is no child of this process.

        Returns:
            The end of a pipe that breaks when the agent ends.
        """
        command = [
            sys.executable, "-c", AGENT, "ftrma.launch.agent",
            str(self.ledger), "--address", str(self.published), f"--bind={self.bind}", "--mirror",
            str(self.mirror), "--node", str(self.node), "--say", str(wire.KEPT),
        ]
        alive, its = os.pipe()
        try:
            with open(self.fifo, "rb", buffering=0) as stdin:
                wire.agent_start(command, {**self.environment, VARIABLE: self.key.text()},
                                 self.home if os.path.isdir(self.home) else "/",
                                 stdin.fileno(), its)
        except BaseException:
            os.close(alive)
            raise
        finally:
            os.close(its)
        return alive

    def _tell_hub(self) -> None:
        if self.hub:
            with contextlib.suppress(OSError):  # the FIFO is full
                os.write(self.voice, f"hub {self.hub.text()}\n".encode())

    def _keep(self) -> None:
        fcntl.flock(self.turn, fcntl.LOCK_EX)  # until it is this process's turn
        try:
            ledger, tries = os.open(self.ledger, os.O_RDWR | os.O_CLOEXEC), 0
        except FileNotFoundError:
            return  # the job is over
        os.register_at_fork(after_in_child=partial(os.close, ledger))
        why, alive, told = "", -1, False
        while tries < TRIES and not (tries and is_full(ledger)):
            began = time.monotonic()
            fcntl.flock(ledger, fcntl.LOCK_EX)  # an agent has this lock as long as it lives
            fcntl.flock(ledger, fcntl.LOCK_UN)
            if time.monotonic() - began < AGAIN_S:
                tries += 1
            else:
                tries, told = 0, False
            if alive >= 0:
                # An agent can take the ledger and fail afterwards.
                why = said_at_end(alive) if has_ended(alive) else why
                os.close(alive)
                alive = -1
            time.sleep(AGAIN_S * max(0, tries - 1) / TRIES)
            with contextlib.suppress(OSError):
                alive = self._start()
                self._tell_hub()
                if self._await_taking(alive, ledger):
                    if not told:  # only one line, even if agents die again and again
                        self.followed()
                    told = True
                    continue
                tries, why = tries + 1, said_at_end(alive)
                os.close(alive)
                alive = -1
        if alive >= 0:
            os.close(alive)
        self.lost(why)

    def _await_taking(self, alive: int, ledger: int) -> bool:
        """Wait until an agent serves the ledger; return False if it ends before, or takes too long.

        The deadline is needed because processes that the program forks meanwhile keep the pipe
        open.
        """
        deadline = time.monotonic() + timeouts.AGENT_COME_UP.s
        while not has_ended(alive) and time.monotonic() < deadline:
            try:
                fcntl.flock(ledger, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(ledger, fcntl.LOCK_UN)
                time.sleep(0.002)
            except BlockingIOError:
                return True
        return False
