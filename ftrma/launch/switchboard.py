"""The supervisor's end of the ranks' connections, in a job over several nodes (see `link`).

It knows every rank by its link: who has come, who died, who reports the error that ends the job,
with which status it ends. It copies the output of ranks on other hosts to the user's terminal, line
by line. It waits for nothing by itself: `Switchboard.fileno` becomes readable when there is
something to do, and `Switchboard.pump` does it.

Whoever connects is a stranger until it has answered a challenge by the job's key. Of a stranger no
byte is parsed, it has STRANGER_S to answer and STRANGERS places that all strangers share; the
oldest goes when there is one more. So strangers can delay a rank that is just connecting, which
tries again, and nothing else.

Invariant: a rank is dead exactly if its link ended before it said goodbye and before everybody was
told to end. The first death decides the launch's fate, but others that follow at once (a node that
goes down takes all its ranks along) belong to the same failure; so do errors that living ranks see
because of it, hence nobody may report an error before SETTLE_S have passed without a death.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import os
import resource
import secrets
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..fabric import link
from ..host import lineoutput
from ..host.key import NONCE_BYTES, TAG_BYTES, Key
from ..protocol.ends import Left

SETTLE_S = 0.1  # deaths with one cause are told within milliseconds of each other
END_S = 2.0  # ranks that were told to end do so within milliseconds; a node that does not is lost
DRAIN_S = 0.5  # a child that a rank has left behind may hold its output open for ever
PROMPT_S = 0.05  # half a line that nothing has followed for so long was meant to be seen
STRANGERS = 32  # at a time; ranks answer within milliseconds
STRANGER_S = 5.0
ANSWER_BYTES = NONCE_BYTES + TAG_BYTES
LINE_BYTES = 1 << 20
BY_STATUS, BY_SIGNAL, BY_EXIT = 0x100, 0x200, 0x800  # FTRMA_LEFT_BY_* of csrc/ftrma.h
CHUNK_BYTES = 1 << 16


@dataclass(eq=False)
class Peer:
    """One connection.

    Attributes:
        kind: "stranger" until it has shown that it knows the key, then "new" until its hello, then
            "link", "out" or "err".
        since: when it came, of output when the last of it came, time.monotonic().
        challenge: that it has to answer.
        role, index: what the rank is, by `link`'s event; its number in the MPI world before that.
        struck: the --kill rule that struck it and when; None otherwise.
        left: how it said that it ends itself; None otherwise.
    """

    socket: socket.socket
    kind: str = "stranger"
    since: float = 0.0
    challenge: bytes = b""
    buffer: bytes = b""
    rank: int = -1
    pid: int = 0
    host: str = ""
    role: str = "process"
    index: int = -1
    goodbye: bool = False
    open: bool = True
    died_at: float = 0.0
    struck: tuple[int, float] | None = None
    left: Left | None = None

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}"


@dataclass(frozen=True)
class Cause:
    """Why the job is launched again.

    Attributes:
        reason: in words.
        slots: that died.
        died_at, noticed_at: on the supervisor's monotonic clock, s.
        hosts: on which the job has run so far.
    """

    reason: str
    slots: tuple[int, ...]
    died_at: float
    noticed_at: float
    hosts: tuple[str, ...] = ()


@dataclass
class Ranks:
    """What the links have told so far."""

    links: dict[int, Peer] = field(default_factory=dict)  # by rank
    deaths: list[Peer] = field(default_factory=list)
    aborted: int | None = None  # exit status
    owner: int | None = None  # rank that reports the error
    entered: bool = False  # the program has begun


class Switchboard:
    """Listens, and serves whoever knows the key.

    Args:
        processes: of the job.
        key: of the job.
        bind: address to listen on, "" for all; None: the job is on one node, nobody connects.
        story: writes an event to the job's story, as `world.emit` does.
        read_story: reads all of it.
        cause: of this launch, if it is not the first.
        past: further facts for the ranks (see `failover.past`).
    """

    def __init__(
        self, processes: int, key: Key, bind: str | None, story: Callable[..., None],
        read_story: Callable[[], list[dict[str, Any]]], cause: Cause | None,
        past: dict[str, Any],
    ) -> None:
        self.processes, self.key = processes, key
        self.story, self.read_story = story, read_story
        self.cause, self.past = cause, past
        self.ranks = Ranks()
        self.peers: dict[int, Peer] = {}  # by descriptor
        self.claims: list[tuple[float, Peer]] = []
        self.ending = False
        self.spread = False  # a rank has come: the job runs over several nodes
        self.lost: set[str] = set()  # hosts that did not answer
        self.unclean: set[str] = set()  # hosts on which nobody could clean up
        self.epoll = select.epoll()
        self.listener: socket.socket | None = None
        self.address: link.Address | None = None
        if bind is not None:
            self._listen(bind)

    def fileno(self) -> int:
        return self.epoll.fileno()

    def pump(self, timeout_s: float = 0.0) -> None:
        """Serve all that is ready; wait for something if nothing is."""
        ready = [(fd, self.peers.get(fd)) for fd, _ in self.epoll.poll(timeout_s)]
        for fd, peer in ready:
            # Serving one can close another, whose descriptor goes to who comes next.
            if peer and peer.open:
                self._serve(peer)
            elif not peer and self.listener and fd == self.listener.fileno():
                self._accept(self.listener)
        now = time.monotonic()
        for peer in self._strangers():
            if now - peer.since > STRANGER_S:
                self._close(peer)
        for peer in list(self.peers.values()):
            if peer.kind in ("out", "err") and now - peer.since > PROMPT_S:
                self._copy(peer, len(peer.buffer))
        self._grant()

    # -- connections --------------------------------------------------------------------------

    def _listen(self, bind: str) -> None:
        self.listener = socket.create_server((bind, 0), backlog=socket.SOMAXCONN)
        self.listener.setblocking(False)
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        name, port = self.listener.getsockname()[:2]
        addresses = (name,) if bind else link.own_addresses()
        self.address = link.Address(socket.gethostname(), port, addresses)
        # Accepted and closed at once where there is no descriptor left to accept with.
        self.reserve: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _strangers(self) -> list[Peer]:
        """Those who are not known yet, the first one first."""
        return [peer for peer in self.peers.values() if peer.kind in ("stranger", "new")]

    def _accept(self, listener: socket.socket) -> None:
        strangers = self._strangers()
        if len(strangers) >= STRANGERS:
            self._close(strangers[0])
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._turn_away(listener)
            return
        connection.settimeout(END_S)  # of sending; what is received was announced
        peer = Peer(connection, since=time.monotonic(), challenge=secrets.token_bytes(NONCE_BYTES))
        self.peers[connection.fileno()] = peer
        self.epoll.register(connection.fileno(), select.EPOLLIN)
        with contextlib.suppress(OSError):  # it has gone already; reading tells
            link.tune(connection)
            connection.sendall(peer.challenge)

    def _turn_away(self, listener: socket.socket) -> None:
        """Without a free descriptor: strangers go; where that frees none, who is next goes, too."""
        strangers = self._strangers()
        for peer in strangers:
            self._close(peer)
        if not strangers:
            if self.reserve is not None:
                os.close(self.reserve)
                self.reserve = None
            with contextlib.suppress(OSError):
                listener.accept()[0].close()
            with contextlib.suppress(OSError):
                self.reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _serve(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            if not isinstance(error, ConnectionResetError):
                self.lost.add(peer.host)  # no answer to keepalive probes
            data = b""
        if not data:
            self._close(peer)
        elif peer.kind in ("out", "err"):
            self._gather(peer, data)
        elif peer.kind == "stranger":
            self._identify(peer, data)
        else:
            peer.buffer += data
            *lines, peer.buffer = peer.buffer.split(b"\n")
            for text in lines:
                if peer.open:
                    self._take(peer, text)
            if peer.open and len(peer.buffer) > LINE_BYTES:
                self._close(peer)

    def _identify(self, peer: Peer, data: bytes) -> None:
        """Fixed sizes, nothing to parse: the answer to the challenge, behind the peer's own."""
        peer.buffer += data
        if len(peer.buffer) < ANSWER_BYTES:
            return
        nonce, answer = peer.buffer[:NONCE_BYTES], peer.buffer[NONCE_BYTES:]
        if not hmac.compare_digest(answer, self.key.answer(peer.challenge, nonce)):
            self._close(peer)
            return
        peer.kind, peer.buffer = "new", b""
        with contextlib.suppress(OSError):
            peer.socket.sendall(self.key.proof(peer.challenge, nonce))

    def _close(self, peer: Peer) -> None:
        peer.open = False
        if peer.kind in ("out", "err"):
            self._copy(peer, len(peer.buffer))
        del self.peers[peer.socket.fileno()]
        self.epoll.unregister(peer.socket.fileno())
        peer.socket.close()
        if peer.kind == "link" and not peer.goodbye and not self.ending:
            peer.died_at = time.monotonic()
            self.ranks.deaths.append(peer)

    def _gather(self, peer: Peer, data: bytes) -> None:
        """Pass output on in whole lines: the network has cut it anywhere."""
        peer.buffer += data
        end = lineoutput.end_of_lines(peer.buffer)
        if len(peer.buffer) - end > lineoutput.HELD_BYTES:
            end = len(peer.buffer)
        self._copy(peer, end)
        peer.since = time.monotonic()

    def _copy(self, peer: Peer, count: int) -> None:
        """Pass so many bytes on, unharmed; who can write no more makes the writer see it."""
        data, peer.buffer = peer.buffer[:count], peer.buffer[count:]
        try:
            if data:
                lineoutput.put(1 if peer.kind == "out" else 2, data)
        except OSError:
            peer.buffer = b""
            if peer.open:
                self._close(peer)

    def _send(self, peer: Peer, event: str, **data: Any) -> None:
        try:
            peer.socket.sendall(link.line(event, **data))
        except OSError:
            if peer.open:
                self._close(peer)  # half a line would spoil the next one

    # -- messages -----------------------------------------------------------------------------

    def _take(self, peer: Peer, text: bytes) -> None:
        try:
            message = json.loads(text)
            event = message.pop("event")
        except (ValueError, KeyError, AttributeError, TypeError):
            self._close(peer)
            return
        if peer.kind == "new":
            self._greet(peer, event, message)
        elif event == "role":
            peer.role, peer.index = message["role"], message["index"]
        elif event == "entered":
            self._entered(message)
        elif event == "claim":
            self.claims.append((time.monotonic(), peer))
        elif event == "abort":
            if self.ranks.aborted is None and self.ranks.owner in (None, peer.rank):
                self.ranks.aborted = int(message["status"]) & 0xFF
        elif event == "events":
            self._send(peer, "events", events=self.read_story())
        elif event == "strike":
            peer.struck = int(message["rule"]), time.monotonic()
        elif event == "leaving":
            how, value = int(message["how"]), int(message["value"])
            if how == BY_SIGNAL:
                peer.left = Left(by_signal=value)
            elif how in (BY_STATUS, BY_EXIT):
                peer.left = Left(status=value, sure=how == BY_STATUS)
        elif event == "goodbye":
            peer.goodbye = True
        else:
            self.story(event, **message)

    def _greet(self, peer: Peer, event: str, hello: dict[str, Any]) -> None:
        kind = hello.get("kind")
        if event != "hello" or kind not in ("link", "out", "err") or self.ending:
            self._close(peer)
            return
        peer.rank = peer.index = int(hello["rank"])
        peer.host, peer.kind = str(hello["host"]), kind
        self.spread = True
        if kind != "link":
            self._send(peer, "hello")
            return
        peer.pid = int(hello["pid"])
        self.ranks.links[peer.rank] = peer
        self._send(peer, "hello", resume=self.cause is not None, **self.past)

    def _grant(self) -> None:
        """Answer who asks to report an error, once it is clear that no death caused it."""
        now = time.monotonic()
        while self.claims and now - self.claims[0][0] > SETTLE_S and not self.ranks.deaths:
            peer = self.claims.pop(0)[1]
            if self.ranks.owner is None:
                self.ranks.owner = peer.rank
            self._send(peer, "claim", granted=self.ranks.owner == peer.rank)

    def _entered(self, message: dict[str, Any]) -> None:
        """The program runs (again): the story of a relaunch is complete."""
        self.ranks.entered = True
        if self.cause is None:
            return
        cause, version = self.cause, int(message["version"])
        seconds = time.monotonic() - cause.died_at
        detect, restore = cause.noticed_at - cause.died_at, float(message["restore_s"])
        phases = {
            "detect": detect, "repair": seconds - detect - restore, "restore": restore,
            "replay": 0.0,
        }
        self.story(
            "recovery", kind="relaunch", slots=list(cause.slots), version=version, seconds=seconds,
            phases=phases, reason=cause.reason, began_s=cause.died_at,
        )
        to = f"checkpoint {version}" if version else "the start"
        sys.stderr.write(f"ftrma: the job goes on from {to}, {seconds:.1f} s after the failure\n")
        sys.stderr.flush()

    # -- what is going on ---------------------------------------------------------------------

    def done(self) -> bool:
        """The job is over: a rank aborted it, or all have said goodbye."""
        links = self.ranks.links
        return self.ranks.aborted is not None or (
            len(links) == self.processes and all(p.goodbye for p in links.values())
        )

    def left(self) -> tuple[dict[int, Left], bool, bool]:
        """Slots whose processes have ended themselves; others have died; others wait for them.

        Who waits is told by the library that somebody is dead, and asks to report that.
        """
        deaths = self.ranks.deaths
        left = {p.index: p.left for p in deaths if p.role == "slot" and p.left}
        return left, len(left) < len(deaths), bool(self.claims)

    def failure(self) -> str:
        """Who died, in words, once all with one cause are known; empty if nobody did."""
        deaths = self.ranks.deaths
        if not deaths or time.monotonic() - deaths[0].died_at < SETTLE_S:
            return ""
        dead = [(peer.name, peer.host) for peer in deaths]
        return describe(dead, [peer.host for peer in self.ranks.links.values()])

    # -- the end ------------------------------------------------------------------------------

    def end(self, *, final: bool) -> None:
        """Tell all ranks to end, and give them a moment for it.

        Args:
            final: the job is over, so that the nodes' directories go too.
        """
        self.ending = True
        links = self.ranks.links.values()
        told = [peer for peer in links if peer.open]
        clean = {peer.host for peer in links if peer.goodbye} | {peer.host for peer in told}
        for peer in told:
            self._send(peer, "end", final=final)
        self._wait_for_links()
        late = {peer.host for peer in told if peer.open}
        self.unclean = ({peer.host for peer in links} - clean) | late

    def close(self) -> None:
        """Everybody was killed: take what is under way, and note who does not answer even now."""
        self._wait_for_links()
        self.lost |= {peer.host for peer in self.ranks.links.values() if peer.open}
        self._pump_until(lambda: not any(p.kind in ("out", "err") for p in self.peers.values()),
                         DRAIN_S)
        for peer in list(self.peers.values()):
            self._close(peer)
        self.epoll.close()
        if self.listener:
            self.listener.close()
            if self.reserve is not None:
                os.close(self.reserve)

    def _wait_for_links(self) -> None:
        self._pump_until(lambda: not any(p.open for p in self.ranks.links.values()), END_S)

    def _pump_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self.pump(0.05)


def describe(dead: list[tuple[str, str]], hosts: list[str]) -> str:
    """Say who died where: "slot 3 on node2, all processes on node3 died". Pure.

    Args:
        dead: name and host of each.
        hosts: host of each process of the job.
    """
    if len(dead) == len(hosts):
        return "all processes died"
    by_host: dict[str, list[str]] = {}
    for name, host in dead:
        by_host.setdefault(host, []).append(name)
    parts = [
        f"{'all processes' if 1 < len(n) == hosts.count(h) else ' and '.join(n)} on {h}"
        for h, n in by_host.items()
    ]
    return ", ".join(parts) + " died"


def raise_file_limit(needed: int) -> None:
    """Allow this process as many open files as the connections need, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
