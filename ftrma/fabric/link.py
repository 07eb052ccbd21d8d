"""A rank's connections to the supervisor, in a job over several nodes.

The supervisor sees no node's control file, so what ranks and it tell each other goes over
one TCP connection per rank, the *link*: lines of JSON both ways, each with an ``event``. It is also
how it notices a death: the kernel closes a dead process's connection within milliseconds, and
keepalive probes find a node that has vanished after about 10 s. A rank on another host than the
supervisor opens two more connections, which become its stdout and stderr (slot 0 one more in each
attempt, its stdin), and each rank one for the trace that it writes.

    rank to supervisor   hello, clock, role, entry, entered, claim, abort, relaunch, there, spared,
                         repairing, working, awaited, repaired, events, strike, spent, leaving,
                         handed, unheeded, waiting, stopped, goodbye; and what happens in the job
                         (`story`)
    supervisor to rank   the answers to hello, clock, claim and events; waiting, stopped, gone,
                         signal, end

``waiting`` asks whether the rank waits for others, ``stopped`` who of its node keeps a repair
waiting because it is stopped; both are answered by the same. ``gone`` tells of the death of a rank
that was alone on its host, where nobody else sees it. At ``end`` the process kills itself, whatever
its main thread is doing; only while that holds `Link.critical` it is waited for. A supervisor that
is gone means the same as ``end``.

The supervisor's side is `switchboard`. A connection begins with fixed sizes and without a parser:
the supervisor sends a challenge, the rank answers it beside one of its own, the supervisor answers
that. Both answers need the job's key, so a stranger is neither let in nor obeyed. What follows is
not encrypted and is no protection against who can write to the network.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import ipaddress
import json
import os
import queue
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Protocol

from ..errors import FtrmaError
from ..host.helper import Helper
from ..host.key import NONCE_BYTES, TAG_BYTES, Key
from ..host.signals import SET_S, would_end
from .absence import Stopped

VARIABLE = "FTRMA_LINK"
_exit = os._exit  # the real one; a program's own use of it is noted (`runner`)
SPREAD = "FTRMA_SPREAD"  # set where the launch before ran over several nodes
CONNECT_S = 5.0  # per address; a host that drops packets answers nothing at all
KNOCK_S = 20.0  # a supervisor that strangers besiege lets a rank in sooner or later
LOOK_S = 0.005  # between two looks at what else happens, while an answer is waited for
ANSWER_S = 60.0  # the supervisor may be starting other ranks, or draining output, before it answers
# A node that has vanished is noticed after IDLE + COUNT * INTERVAL seconds.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 4, 2, 3


@dataclass(frozen=True)
class Address:
    """How ranks reach the supervisor.

    Attributes:
        host: its host's name, by which a rank knows if it runs on the same one.
        port: of its listening socket.
        addresses: of its host, those that others may reach first.
    """

    host: str
    port: int
    addresses: tuple[str, ...]

    def text(self) -> str:
        return "/".join([self.host, str(self.port), ",".join(self.addresses)])

    @classmethod
    def parse(cls, text: str) -> Address:
        host, port, addresses = text.split("/")
        return cls(host, int(port), tuple(addresses.split(",")))

    @property
    def here(self) -> bool:
        """This process runs on the supervisor's host."""
        return self.host == socket.gethostname()


def find() -> Address | None:
    """The supervisor's address from the environment; None if there is no supervisor."""
    text = os.environ.get(VARIABLE)
    return Address.parse(text) if text else None


def line(event: str, **data: Any) -> bytes:
    return json.dumps({"event": event, **data}).encode() + b"\n"


def tune(connection: socket.socket) -> None:
    """Small lines go out at once, and a peer that has vanished is noticed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)


worked: dict[str, str] = {}  # the address at which this process reached the last one of a kind


def likely_first(addresses: Sequence[str], like: str | None) -> list[str]:
    """The addresses, first those of the network in which a connection was made: one that drops
    packets costs seconds."""
    if not like:
        return list(addresses)

    def common(ip: str) -> int:
        """Leading bits in which they agree."""
        one, other = ipaddress.ip_address(ip), ipaddress.ip_address(like)
        if one.version != other.version:
            return 0
        return one.max_prefixlen - (int(one) ^ int(other)).bit_length()

    return sorted(addresses, key=common, reverse=True)


class CutOff(ValueError):
    """The supervisor closed a connection before it knew whose it was."""


def connect(
    address: Address, key: Key, kind: str, **hello: Any
) -> tuple[socket.socket, dict[str, Any]]:
    """Open a connection of this kind ("link", "out", "err", "in", "trace" or "split") and say
    hello.

    Returns:
        The connection, blocking, and the supervisor's answer.

    Raises:
        FtrmaError: no address leads to the supervisor.
    """
    deadline = time.monotonic() + KNOCK_S
    while True:
        tried, cut_off = [], False
        for ip in likely_first(address.addresses, worked.get("supervisor")):
            try:
                made = _connect(ip, address.port, key, line("hello", kind=kind, **hello))
                worked["supervisor"] = ip
                return made
            except (OSError, ValueError) as error:
                tried.append(f"{ip}: {error}")
                cut_off |= isinstance(error, CutOff | ConnectionResetError)
        if not cut_off or time.monotonic() > deadline:
            break
        time.sleep(secrets.randbelow(100) / 1e3)  # not all ranks at once again
    raise FtrmaError(
        f"{socket.gethostname()} cannot reach the supervisor on {address.host}, port "
        f"{address.port} ({'; '.join(tried)}): let the nodes of a job connect to each other by TCP"
    )


def tell_split(address: Address, key: Key, other: str) -> None:
    """Tell the supervisor that this node does not reach another one any more.

    Raises:
        FtrmaError: nor does it reach the supervisor.
    """
    connect(address, key, "split", rank=-1, host=socket.gethostname(), other=other)[0].close()


def _connect(ip: str, port: int, key: Key, hello: bytes) -> tuple[socket.socket, dict[str, Any]]:
    connection = socket.create_connection((ip, port), CONNECT_S)
    try:
        tune(connection)
        connection.settimeout(ANSWER_S)
        answer = introduce(connection, key, hello)
        connection.settimeout(None)
        return connection, answer
    except BaseException:
        connection.close()
        raise


class Stream(Protocol):
    """What is used of a connection while it begins."""

    def recv(self, size_bytes: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...


def introduce(connection: Stream, key: Key, hello: bytes) -> dict[str, Any]:
    """Begin a connection: both sides prove that they know the key, then this one says hello.

    Returns:
        The other side's answer, and nothing behind it is read.

    Raises:
        CutOff: this side was not believed, or had no place. ValueError: the other side is not.
        OSError: the connection has failed.
    """
    challenge, nonce = _read(connection, NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
    connection.sendall(nonce + key.answer(challenge, nonce))
    if not hmac.compare_digest(_read(connection, TAG_BYTES), key.proof(challenge, nonce)):
        raise ValueError("who listens there does not know the job's key")
    connection.sendall(hello)
    return _read_line(connection)


def _read(connection: Stream, size_bytes: int) -> bytes:
    """So many bytes and none more, since what follows has another reader."""
    data = b""
    while len(data) < size_bytes:
        more = connection.recv(size_bytes - len(data))
        if not more:
            raise CutOff("refused")
        data += more
    return data


def _read_line(connection: Stream) -> dict[str, Any]:
    text = b""
    while not text.endswith(b"\n"):
        text += _read(connection, 1)
    answer: dict[str, Any] = json.loads(text)
    return answer


def take_terminal(address: Address, key: Key, rank: int) -> None:
    """Make connections to the supervisor this process's stdout and stderr; stdin is empty."""
    hello = {"rank": rank, "host": socket.gethostname(), "siblings": siblings(os.environ)}
    for kind, target in (("out", 1), ("err", 2)):
        connection, _ = connect(address, key, kind, **hello)
        os.dup2(connection.fileno(), target)
        connection.close()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def siblings(environment: Mapping[str, str]) -> int:
    """How many ranks the launcher starts on the node of one with this environment; 0: unknown."""
    return int(environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", "0"))


def take_stdin(address: Address, key: Key, rank: int) -> None:
    """Make a connection to the supervisor this process's stdin."""
    connection, _ = connect(address, key, "in", rank=rank, host=socket.gethostname())
    fd = connection.detach()  # 0 itself, where the program has closed that
    if fd:
        os.dup2(fd, 0)
        os.close(fd)
    else:
        os.set_inheritable(0, True)


def trace_stream(address: Address, key: Key, rank: int) -> int:
    """A descriptor to which this process writes its trace, for the supervisor to keep."""
    connection, _ = connect(address, key, "trace", rank=rank, host=socket.gethostname())
    fd = connection.detach()
    os.register_at_fork(after_in_child=functools.partial(os.close, fd))
    return fd


def leave_node(directory: Path) -> None:
    """Remove a node's part of the job's directory, and all of it where no supervisor is.

    Each process of the node does so; the last of them finds nobody who adds to it.
    """
    shutil.rmtree(directory, ignore_errors=True)
    if not (directory.parent / "control").exists():
        shutil.rmtree(directory.parent, ignore_errors=True)


class Answers:
    """What the supervisor answers, until who has asked takes it."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.kept: list[dict[str, Any]] = []  # came while another one was waited for

    def put(self, answer: dict[str, Any]) -> None:
        self.queue.put(answer)

    def take(
        self, event: str, entry: int, meanwhile: Callable[[], object] | None
    ) -> dict[str, Any]:
        """Wait for one, as `Link.request`."""
        while True:
            for i, answer in enumerate(self.kept):
                if answer["event"] == event and answer.get("entry", entry) == entry:
                    return self.kept.pop(i)
            try:
                self.kept.append(self.queue.get(timeout=LOOK_S if meanwhile else None))
            except queue.Empty:
                if meanwhile:
                    meanwhile()


class Link:
    """This rank's link.

    Args:
        address: of the supervisor.
        key: of the job.
        rank: of this process in the MPI world.

    Attributes:
        critical: held by the main thread while it writes what must not be left half written; the
            end waits for it (not for ever: the supervisor kills after some seconds).
        greeting: the supervisor's answer to hello.
        directory: this node's part of the job's directory, removed when the job ends for good.
        over: is called, by a thread, when the launch ends, before this process does.
        waits: says, by a thread, whether this process waits for others.
        stopped: says, by a thread, who of its node keeps a repair waiting because it is stopped.
        gone: is called, by a thread, with a rank that died alone on its host, and how it said that
            it ends itself, as in the control file; 0: it did not.

    Raises:
        FtrmaError: the supervisor cannot be reached.
    """

    def __init__(self, address: Address, key: Key, rank: int) -> None:
        self.key = key
        self.critical = threading.Lock()
        self.directory: Path | None = None
        self.gone: Callable[[int, int], object] = lambda rank, leaving: None
        self.over: Callable[[], object] = lambda: None
        self.waits: Callable[[], bool] = lambda: False
        self.stopped: Callable[[], list[Stopped]] = list
        self.ending = False  # goodbye was said
        self.waiting: set[int] = set()  # signals that the program may still come to handle
        self.sending = threading.Lock()
        self.answers = Answers()
        self.socket, self.greeting = connect(
            address, key, "link", rank=rank, pid=os.getpid(), host=socket.gethostname()
        )
        # A forked child must not keep the connection of a dead rank open.
        os.register_at_fork(after_in_child=self.socket.close)
        Helper(self._read, name="ftrma-link").start()

    def send(self, event: str, **data: Any) -> None:
        """Tell the supervisor. If it is gone, the reading thread ends this process."""
        with self.sending, contextlib.suppress(OSError):
            self.socket.sendall(line(event, **data))

    def request(
        self, event: str, *, entry: int = 0, meanwhile: Callable[[], object] | None = None
    ) -> dict[str, Any]:
        """Ask the supervisor and wait for its answer. Main thread only.

        Args:
            event: what is asked.
            entry: of the program; what was asked in another one has an answer nobody waits for.
            meanwhile: is called again and again, and may ask, too; what it raises ends the wait.
        """
        self.send(event, entry=entry)
        return self.answers.take(event, entry, meanwhile)

    def goodbye(self, **data: Any) -> None:
        """This process has done its part; at the end it leaves as one that has ended well."""
        self.ending = True
        self._tell_unheeded()
        self.send("goodbye", **data)

    def _read(self) -> None:
        final = False
        with contextlib.suppress(OSError, ValueError), self.socket.makefile("rb") as lines:
            for text in lines:
                message = json.loads(text)
                if message["event"] == "end":
                    final = message["final"]
                    break
                if message["event"] == "gone":
                    self.gone(message["rank"], message["leaving"])
                elif message["event"] == "waiting":
                    self.send("waiting", waits=self.waits())
                elif message["event"] == "stopped":
                    self.send("stopped", found=[astuple(each) for each in self.stopped()])
                elif message["event"] == "signal":
                    Helper(self._hand_on, message["number"]).start()
                else:
                    self.answers.put(message)
        self._die(final)

    def _hand_on(self, number: int) -> None:
        """Give the program a signal that the supervisor was sent, if it handles it."""
        deadline = time.monotonic() + SET_S
        self.waiting.add(number)
        while would_end(os.getpid(), number):
            if time.monotonic() > deadline:
                self._tell_unheeded()
                return
            time.sleep(LOOK_S)
        self.waiting.discard(number)
        self.send("handed", number=number)
        os.kill(os.getpid(), number)

    def _tell_unheeded(self) -> None:
        for number in list(self.waiting):
            self.waiting.discard(number)
            self.send("unheeded", number=number)

    def _die(self, final: bool) -> None:
        self.over()
        # Never released: the main thread is not to begin anything new.
        self.critical.acquire()
        if final and self.directory:
            leave_node(self.directory)
        if self.ending:
            _exit(0)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)  # its children too
        os.kill(os.getpid(), signal.SIGKILL)
