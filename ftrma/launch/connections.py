"""The listening end of connections, at the supervisor and at agents.

Jobs over several nodes use these connections (see `fabric.link`). `Connections` does not wait by
itself: its `fileno` becomes readable when there is something to do, and `pump` does it. Lines of
ranks are passed to the owner; output of ranks on other hosts is copied to the user's terminal, and
their traces are written into files.

A peer is a stranger until it has answered a challenge by the job's key. No byte of a stranger is
parsed. A stranger has `timeouts.STRANGER` to answer, and all strangers share STRANGERS places: the
oldest is cut off when one more comes. So strangers can delay a rank that is just connecting, which
then tries again; they can do no other harm.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import resource
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ..fabric import link
from ..fabric.absence import StoppedProcess
from ..host import lineoutput, messages, timeouts
from ..host.key import NONCE_BYTES, TAG_BYTES, Key
from ..host.listening import Bind, listen, own_addresses, reachable
from ..protocol.job_end import OwnExit

PROMPT_S = 0.05  # a part of a line after which nothing follows for so long is shown
STRANGERS = 32  # so many at a time; ranks answer within milliseconds
ANSWER_BYTES = NONCE_BYTES + TAG_BYTES
LINE_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16
RESERVE_BYTES = 64 << 20  # shared memory that a trace leaves to the job


@dataclass(eq=False)
class Peer:
    """One connection.

    Attributes:
        kind: "stranger" until it has shown that it knows the key, then "new" until its hello, then
            "link", "out", "err", "in" or "trace".
        since: when the peer came, or its newest output did, time.monotonic().
        challenge: the challenge that the peer has to answer.
        address: the address from which it came; host: the name that it gives.
        role, index: the rank's role and number in it, once it has said them; before that, index is
            its rank in the MPI world.
        struck: the --kill rule that struck it, and when; None otherwise.
        handed: the last signal that it handed on to its program, and when; None otherwise.
        waits: whether it waits for others, as it said last.
        stopped: the stopped processes of its node, as it said last; answered_at: when it said so.
        died_at: when its connection ended, time.monotonic(). heard_at: the last sign of life of a
            peer whose host does not answer any more; else 0.
        left: how it ends itself, if it has said so. leaving: the same, as in the control file.
        file: for the bytes of a "trace"; None if it could not be made, or is full.
    """

    socket: socket.socket
    kind: str = "stranger"
    since: float = 0.0
    challenge: bytes = b""
    address: str = ""
    buffer: bytes = b""
    rank: int = -1
    pid: int = 0
    host: str = ""
    role: str = "process"
    index: int = -1
    goodbye: bool = False
    open: bool = True
    died_at: float = 0.0
    heard_at: float = 0.0
    struck: tuple[int, float] | None = None
    handed: tuple[int, float] | None = None
    left: OwnExit | None = None
    leaving: int = 0
    waits: bool = False
    stopped: list[StoppedProcess] = field(default_factory=list)
    answered_at: float = 0.0
    file: BinaryIO | None = None

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}"


class Connections:
    """Listens, and lets in peers that know the key.

    Args:
        key: of the job.
        bind: where to listen; None: nobody connects.
        take: called with each line of a peer that has shown that it knows the key.
        gone: called when the connection of any peer has ended.

    Attributes:
        lost: hosts that did not answer.
        peers: open connections, by descriptor.
        address: the address at which ranks connect; None if nobody connects.
    """

    def __init__(
        self, key: Key, bind: Bind | None, take: Callable[[Peer, bytes], None],
        gone: Callable[[Peer], None],
    ) -> None:
        self.key, self.take, self.gone = key, take, gone
        self.peers: dict[int, Peer] = {}
        self.lost: set[str] = set()
        self.epoll = select.epoll()
        self.listener: socket.socket | None = None
        self.address: link.Address | None = None
        if bind is not None:
            self._listen(bind)

    def fileno(self) -> int:
        return self.epoll.fileno()

    def pump(self, timeout_s: float = 0.0) -> None:
        """Serve all peers that are ready; if none is, wait for one."""
        ready = [(fd, self.peers.get(fd)) for fd, _ in self.epoll.poll(timeout_s)]
        for fd, peer in ready:
            # Serving a peer can close another peer, whose descriptor a new peer may get.
            if peer and peer.open:
                self._serve(peer)
            elif not peer and self.listener and fd == self.listener.fileno():
                self._accept(self.listener)
        now = time.monotonic()
        for peer in self._strangers():
            if now - peer.since > timeouts.STRANGER.s:
                self.cut(peer)
        for peer in self.passing():
            if now - peer.since > PROMPT_S:
                self._copy(peer, len(peer.buffer))

    def passing(self) -> list[Peer]:
        """Return the connections that carry output or traces."""
        return [peer for peer in self.peers.values() if peer.kind in ("out", "err", "trace")]

    def send(self, peer: Peer, event: str, **data: Any) -> None:
        """Send a line; cut off a peer that does not accept it."""
        try:
            peer.socket.sendall(link.line(event, **data))
        except OSError:
            if peer.open:
                self.cut(peer)  # an incomplete line would spoil the next one

    def bound_by_silence(self, peer: Peer) -> None:
        """Make a connection end if its node is silent for long, see `link.bound_by_silence`."""
        with contextlib.suppress(OSError):  # the peer has gone already
            link.bound_by_silence(peer.socket)

    def cut(self, peer: Peer) -> None:
        """End a connection."""
        peer.open = False
        if peer.kind in ("out", "err"):
            self._copy(peer, len(peer.buffer))
        if peer.file:
            peer.file.close()
        del self.peers[peer.socket.fileno()]
        self.epoll.unregister(peer.socket.fileno())
        peer.socket.close()
        self.gone(peer)

    def let_go(self, peer: Peer) -> socket.socket:
        """Give a connection to a caller, who serves and closes it from now on."""
        peer.open = False
        del self.peers[peer.socket.fileno()]
        self.epoll.unregister(peer.socket.fileno())
        return peer.socket

    def close(self) -> None:
        """End all connections, and stop listening."""
        for peer in list(self.peers.values()):
            self.cut(peer)
        self.epoll.close()
        if self.listener:
            self.listener.close()
            if self.reserve is not None:
                os.close(self.reserve)

    # -- who comes ----------------------------------------------------------------------------

    def _listen(self, bind: Bind) -> None:
        table = own_addresses()
        self.listener = listen(bind.here(table), bind.ports)
        self.listener.setblocking(False)
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        name, port = self.listener.getsockname()[:2]
        addresses = reachable(table) if bind.everywhere else (name,)
        self.address = link.Address(socket.gethostname(), port, addresses)
        # Closed to accept a connection when no descriptor is left, see `_turn_away`.
        self.reserve: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _strangers(self) -> list[Peer]:
        """Return the peers that have not shown yet that they know the key, the oldest first."""
        return [peer for peer in self.peers.values() if peer.kind in ("stranger", "new")]

    def _accept(self, listener: socket.socket) -> None:
        strangers = self._strangers()
        if len(strangers) >= STRANGERS:
            self.cut(strangers[0])
        try:
            connection, origin = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._turn_away(listener)
            return
        connection.settimeout(timeouts.SEND.s)  # for sending; receiving is announced by epoll
        peer = Peer(connection, since=time.monotonic(), challenge=secrets.token_bytes(NONCE_BYTES))
        peer.address = str(origin[0]).removeprefix("::ffff:")
        self.peers[connection.fileno()] = peer
        self.epoll.register(connection.fileno(), select.EPOLLIN)
        with contextlib.suppress(OSError):  # the peer is already gone; reading will show it
            link.tune(connection)
            connection.sendall(peer.challenge)

    def _turn_away(self, listener: socket.socket) -> None:
        """Free descriptors by cutting strangers off; without any, refuse the next connection."""
        strangers = self._strangers()
        for peer in strangers:
            self.cut(peer)
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
        except ConnectionResetError:
            data = b""
        except OSError:  # no answer to the kernel's probes
            self._cut_silent(peer)
            return
        if not data:
            self.cut(peer)
        elif peer.kind in ("out", "err"):
            self._gather(peer, data)
        elif peer.kind == "trace":
            self._keep(peer, data)
        elif peer.kind == "stranger":
            self._identify(peer, data)
        else:
            peer.buffer += data
            *lines, peer.buffer = peer.buffer.split(b"\n")
            for text in lines:
                if peer.open:
                    self.take(peer, text)
            if peer.open and len(peer.buffer) > LINE_BYTES:
                self.cut(peer)

    def _cut_silent(self, peer: Peer) -> None:
        """End a connection whose node does not answer, and all links that are silent just as long.

        The kernel sends no probes over a link on which bytes are under way.
        """
        self.lost.add(peer.host)
        least_s = timeouts.NODE_SILENT.s - 2 * link.EACH_PROBE_S
        silent = [p for p in self.peers.values() if p.kind == "link" and p.host == peer.host
                  and p is not peer and silent_s(p.socket) > least_s]
        for each in (peer, *silent):
            if each.open:
                each.heard_at = time.monotonic() - silent_s(each.socket)
                self.cut(each)

    def _identify(self, peer: Peer, data: bytes) -> None:
        """Read the peer's challenge and its answer to ours: fixed sizes, nothing to parse."""
        peer.buffer += data
        if len(peer.buffer) < ANSWER_BYTES:
            return
        nonce, answer = peer.buffer[:NONCE_BYTES], peer.buffer[NONCE_BYTES:]
        if not hmac.compare_digest(answer, self.key.answer(peer.challenge, nonce)):
            self.cut(peer)
            return
        peer.kind, peer.buffer = "new", b""
        with contextlib.suppress(OSError):
            peer.socket.sendall(self.key.proof(peer.challenge, nonce))

    # -- output -------------------------------------------------------------------------------

    def _gather(self, peer: Peer, data: bytes) -> None:
        """Pass output on in whole lines; the network may have cut it anywhere."""
        peer.buffer += data
        end = lineoutput.end_of_lines(peer.buffer)
        if len(peer.buffer) - end > lineoutput.HELD_BYTES:
            end = len(peer.buffer)
        self._copy(peer, end)
        peer.since = time.monotonic()

    def _copy(self, peer: Peer, count: int) -> None:
        """Pass so many bytes on; if the terminal is gone, close the rank's connection."""
        data, peer.buffer = peer.buffer[:count], peer.buffer[count:]
        try:
            if data:
                lineoutput.put(1 if peer.kind == "out" else 2, data)
        except OSError:
            peer.buffer = b""
            if peer.open:
                self.cut(peer)

    def keep(self, peer: Peer, make: Callable[[], BinaryIO]) -> None:
        """Keep a peer's bytes in a file, as long as there is room."""
        self._try_to_keep(peer, lambda: setattr(peer, "file", make()))

    def _keep(self, peer: Peer, data: bytes) -> None:
        """Write bytes to the peer's file; if that is full, they are dropped from then on."""

        def write() -> None:
            assert peer.file
            room = os.fstatvfs(peer.file.fileno())  # the number of blocks is 0 if there is no limit
            reserve = min(RESERVE_BYTES, room.f_blocks * room.f_frsize // 8)
            if room.f_bavail * room.f_frsize < reserve:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = memoryview(data)
            while rest:
                rest = rest[peer.file.write(rest) :]

        if peer.file:
            self._try_to_keep(peer, write)

    def _try_to_keep(self, peer: Peer, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError as error:
            why = f"warning: the trace of rank {peer.rank} ends here: {error.strerror}"
            text = messages.line(why)
            with contextlib.suppress(OSError):
                lineoutput.put(2, text.encode())
            if peer.file:
                peer.file.close()
            peer.file = None


def silent_s(connection: socket.socket) -> float:
    """Return for how many seconds nothing has come on a TCP connection, not even an
    acknowledgement.

    Source: struct tcp_info of linux/tcp.h.
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 60)
    last_data_ms, last_ack_ms = struct.unpack_from("=II", info, 52)
    return float(min(last_data_ms, last_ack_ms)) / 1000


def raise_file_limit(needed: int) -> None:
    """Raise this process's limit of open files as far as the connections need, up to the hard
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
