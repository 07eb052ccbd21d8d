"""A rank's connections to the supervisor, in a job over several nodes.

Across nodes there is no shared control file, so what ranks and supervisor tell each other goes over
one TCP connection per rank, the *link*: lines of JSON both ways, each with an ``event``. It is also
how a death is noticed: the kernel closes a dead process's connection within milliseconds, and
keepalive probes find a node that has vanished after about 10 s. A rank on another host than the
supervisor opens two more connections, which become its stdout and stderr.

    rank to supervisor   hello, role, entered, claim, abort, events, strike, goodbye; anything else
                         is an event of the job's story
    supervisor to rank   the answers to hello, claim and events; end

At ``end`` the process kills itself, whatever its main thread is doing; only while that holds
`Link.critical` it is waited for. A supervisor that is gone means the same as ``end``.

The supervisor's side is `switchboard`. A connection is let in by a random token from the ranks'
environment; it keeps strangers out and is no protection against who can read the network.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import queue
import shutil
import signal
import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import FtrmaError
from .sweep import library_files, sweep_library_files

VARIABLE = "FTRMA_LINK"
SPREAD = "FTRMA_SPREAD"  # set where the launch before ran over several nodes
CONNECT_S = 5.0  # per address; a host that drops packets answers nothing at all
ANSWER_S = 60.0  # the supervisor may be starting other ranks, or draining output, before it answers
# A node that has vanished is noticed after IDLE + COUNT * INTERVAL seconds.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 4, 2, 3


@dataclass(frozen=True)
class Address:
    """How ranks reach the supervisor.

    Attributes:
        host: its host's name, by which a rank knows if it runs on the same one.
        port: of its listening socket.
        token: to be shown by who connects.
        addresses: of its host, those that others may reach first.
    """

    host: str
    port: int
    token: str
    addresses: tuple[str, ...]

    def text(self) -> str:
        return "/".join([self.host, str(self.port), self.token, ",".join(self.addresses)])

    @classmethod
    def parse(cls, text: str) -> Address:
        host, port, token, addresses = text.split("/")
        return cls(host, int(port), token, tuple(addresses.split(",")))

    def admits(self, token: object) -> bool:
        return isinstance(token, str) and hmac.compare_digest(
            self.token.encode(), token.encode(errors="replace")
        )

    @property
    def here(self) -> bool:
        """This process runs on the supervisor's host."""
        return self.host == socket.gethostname()


def find() -> Address | None:
    """The supervisor's address from the environment; None if there is no supervisor."""
    text = os.environ.get(VARIABLE)
    return Address.parse(text) if text else None


def own_addresses() -> tuple[str, ...]:
    """IPv4 addresses of this host's interfaces, loopback last (for several nodes on one host)."""
    request = 0x8915  # SIOCGIFADDR, netdevice(7)
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                packed = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket.fileno(), request, packed)
                found.append(socket.inet_ntoa(answer[20:24]))
    outside = [a for a in found if not a.startswith("127.")]
    return (*outside, "127.0.0.1")


def line(event: str, **data: Any) -> bytes:
    return json.dumps({"event": event, **data}).encode() + b"\n"


def tune(connection: socket.socket) -> None:
    """Small lines go out at once, and a peer that has vanished is noticed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)


def connect(address: Address, kind: str, **hello: Any) -> tuple[socket.socket, dict[str, Any]]:
    """Open a connection of this kind ("link", "out" or "err") and say hello.

    Returns:
        The connection, blocking, and the supervisor's answer.

    Raises:
        FtrmaError: no address leads to the supervisor.
    """
    tried = []
    for ip in address.addresses:
        connection = None
        try:
            connection = socket.create_connection((ip, address.port), CONNECT_S)
            tune(connection)
            connection.sendall(line("hello", token=address.token, kind=kind, **hello))
            connection.settimeout(ANSWER_S)
            answer = _read_line(connection)
            connection.settimeout(None)
            return connection, answer
        except (OSError, ValueError) as error:
            tried.append(f"{ip}: {error}")
            if connection is not None:
                connection.close()
    raise FtrmaError(
        f"{socket.gethostname()} cannot reach the supervisor on {address.host}, port "
        f"{address.port} ({'; '.join(tried)}): let the nodes of a job connect to each other by TCP"
    )


def _read_line(connection: socket.socket) -> dict[str, Any]:
    """One line and no byte more, since what follows has another reader."""
    text = b""
    while not text.endswith(b"\n"):
        more = connection.recv(1)
        if not more:
            raise ValueError("refused")
        text += more
    answer: dict[str, Any] = json.loads(text)
    return answer


def take_terminal(address: Address, rank: int) -> bool:
    """Make connections to the supervisor this process's stdout and stderr; stdin is empty.

    Returns:
        True if somebody watches the supervisor's stdout, so that lines should go out one by one.
    """
    watched = False
    for kind, target in (("out", 1), ("err", 2)):
        connection, answer = connect(address, kind, rank=rank, host=socket.gethostname())
        os.dup2(connection.fileno(), target)
        connection.close()
        watched |= kind == "out" and bool(answer["tty"])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return watched


class Link:
    """This rank's link.

    Args:
        address: of the supervisor.
        rank: of this process in the MPI world.

    Attributes:
        critical: held by the main thread while it writes what must not be left half written; the
            end waits for it (not for ever: the supervisor kills after some seconds).
        greeting: the supervisor's answer to hello.
        directory: this node's part of the job's directory, removed when the job ends for good.

    Raises:
        FtrmaError: the supervisor cannot be reached.
    """

    def __init__(self, address: Address, rank: int) -> None:
        self.critical = threading.Lock()
        self.directory: Path | None = None
        self.ending = False  # goodbye was said
        self.sending = threading.Lock()
        self.answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.socket, self.greeting = connect(
            address, "link", rank=rank, pid=os.getpid(), host=socket.gethostname(),
            files=sorted(library_files(os.getpid())),
        )  # fmt: skip
        # A forked child must not keep the connection of a dead rank open.
        os.register_at_fork(after_in_child=self.socket.close)
        threading.Thread(target=self._read, name="ftrma-link", daemon=True).start()

    def send(self, event: str, **data: Any) -> None:
        """Tell the supervisor. If it is gone, the reading thread ends this process."""
        with self.sending, contextlib.suppress(OSError):
            self.socket.sendall(line(event, **data))

    def request(self, event: str) -> dict[str, Any]:
        """Ask the supervisor and wait for its answer. Main thread only."""
        self.send(event)
        return self.answers.get()

    def goodbye(self) -> None:
        """This process has done its part; at the end it leaves as one that has ended well."""
        self.ending = True
        self.send("goodbye")

    def _read(self) -> None:
        final = False
        with contextlib.suppress(OSError, ValueError), self.socket.makefile("rb") as lines:
            for text in lines:
                message = json.loads(text)
                if message["event"] == "end":
                    final = message["final"]
                    break
                self.answers.put(message)
        self._die(final)

    def _die(self, final: bool) -> None:
        # Never released: the main thread is not to begin anything new.
        self.critical.acquire()
        sweep_library_files(library_files(os.getpid()))
        if final and self.directory:
            # Each process of the node does so; the last of them finds nobody who adds to it.
            shutil.rmtree(self.directory, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.directory.parent.rmdir()
        if self.ending:
            os._exit(0)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)  # its children too
        os.kill(os.getpid(), signal.SIGKILL)
