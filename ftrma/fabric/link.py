"""A rank's connections to the supervisor, in a job over several nodes.

The supervisor sees no node's control file. So each rank has one TCP connection to it, the *link*,
over which both send lines of JSON, each with an ``event``. Through the link the supervisor also
notices a death: the kernel closes a dead process's connection within milliseconds, and its probes
detect after `timeouts.NODE_SILENT` that a node has vanished. A rank on another host than the
supervisor opens two more connections, which become its stdout and stderr. Slot 0 opens one in each
attempt for its stdin, and each rank opens one if it writes a trace. The agent of a node has a
connection, too, by which it is asked about processes that hang (`launch.nodewatch`).

    rank to supervisor   hello, clock, role, entry, entered, claim, abort, relaunch, there, spared,
                         tells, repairing, working, awaited, repaired, events, strike, spent,
                         leaving, handed, unheeded, waiting, stopped, saved, goodbye; and what
                         happens in the job (`story`)
    supervisor to rank   the answers to hello, clock, claim and events; waiting, stopped, saved,
                         gone, lost, surrender, signal, end

``waiting`` asks whether the rank waits for others, ``stopped`` which processes of its node keep a
repair waiting because they are stopped, and ``saved`` how much of the job is saved; the rank
answers with the event of the same name. ``saved`` also says whether the job is to end behind its
next checkpoint. ``tells`` says whether a framework is told of deaths. ``gone`` reports the death of
a rank that was alone on its host, where no other process could see it. ``lost`` reports a host
without which the others go on, and the rules of ``--kill`` that have struck there. At ``surrender``
the process kills itself, and the job goes on without its host. At ``end`` the process kills itself,
whatever its main thread is doing; it waits only while the main thread holds `Link.critical`. The
process does the same when the supervisor is gone.

The supervisor's side is in `launch.ranklinks` and `launch.connections`. A connection begins with
messages of fixed size, which need no parser: the supervisor sends a challenge, the rank sends its
answer and a challenge of its own, and the supervisor answers that. Both answers need the job's key,
so a stranger is neither let in nor obeyed. The rest is not encrypted and does not protect against
attackers who can write to the network.
"""

from __future__ import annotations

import contextlib
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

from ..host import timeouts
from ..host.errors import FtrmaError
from ..host.helper import Helper
from ..host.key import NONCE_BYTES, TAG_BYTES, Key
from ..host.signals import would_end
from .absence import StoppedProcess

VARIABLE = "FTRMA_LINK"
_exit = os._exit  # the real function; `runner` replaces it for the program
# Set if the launch before ran over several nodes, or if vaults are filled from files in that way.
SPREAD = "FTRMA_SPREAD"
LOOK_S = 0.005  # how often a process that waits for an answer calls `meanwhile`
EACH_PROBE_S = 1  # time between the kernel's probes of an idle connection


@dataclass(frozen=True)
class Address:
    """The address of the supervisor, or of an agent.

    Attributes:
        host: name of the host; a process compares it to know whether it runs there.
        port: port of the listening socket.
        addresses: IP addresses of the host, the most reachable ones first.
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
        """Say whether this process runs on that host."""
        return self.host == socket.gethostname()


def find() -> Address | None:
    """Read the supervisor's address from the environment; None if there is no supervisor."""
    text = os.environ.get(VARIABLE)
    return Address.parse(text) if text else None


def line(event: str, **data: Any) -> bytes:
    return json.dumps({"event": event, **data}).encode() + b"\n"


def tune(connection: socket.socket) -> None:
    """Make the kernel send small lines at once, and notice a node that has vanished.

    The kernels of both nodes probe the connection. Processes take no part in that, so it works
    however busy they are.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, EACH_PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, EACH_PROBE_S)
    probes = max(1, round(timeouts.NODE_SILENT.s / EACH_PROBE_S) - 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)


def bound_by_silence(connection: socket.socket) -> None:
    """Make a link end when the other node is silent for `timeouts.NODE_SILENT`, even with bytes
    under way.

    At each probe the kernel checks how long the node has been silent, and that may be slightly less
    than whole seconds; so half the time between probes is subtracted.
    """
    bound_sending(connection, max(EACH_PROBE_S, timeouts.NODE_SILENT.s - EACH_PROBE_S / 2))


def bound_sending(connection: socket.socket, seconds: float) -> None:
    """Make a connection end if the other node does not acknowledge bytes for so long.

    While bytes are unacknowledged the kernel sends no probes, and would send the bytes again and
    again for a quarter of an hour. Use this only for a connection whose reader never lets bytes
    pile up, since that would end it, too.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))


worked: dict[str, str] = {}  # "supervisor", "agent": the address at which each was last reached


def likely_first(addresses: Sequence[str], like: str | None) -> list[str]:
    """Sort addresses so that those most similar to an address that worked come first.

    Trying an address of a network that drops packets would cost seconds.
    """
    if not like:
        return list(addresses)

    def common(ip: str) -> int:
        """Count the leading bits in which the two addresses agree."""
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
    """Open a connection of this kind ("link", "out", "err", "in", "trace", "split", "watch"); say
    hello.

    Returns:
        The connection, blocking, and the supervisor's answer.

    Raises:
        FtrmaError: no address leads to the supervisor.
    """
    deadline = time.monotonic() + timeouts.KNOCK.s
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
        time.sleep(secrets.randbelow(100) / 1e3)  # else all ranks would come at the same time again
    raise FtrmaError(
        f"{socket.gethostname()} cannot reach the supervisor on {address.host}, port "
        f"{address.port} ({'; '.join(tried)}): let the nodes of a job connect to each other by TCP"
    )


def tell_split(address: Address, key: Key, other: str) -> None:
    """Tell the supervisor that this node does not reach another node any more.

    Raises:
        FtrmaError: the supervisor is not reached either.
    """
    connect(address, key, "split", rank=-1, host=socket.gethostname(), other=other)[0].close()


def _connect(ip: str, port: int, key: Key, hello: bytes) -> tuple[socket.socket, dict[str, Any]]:
    connection = socket.create_connection((ip, port), timeouts.CONNECT.s)
    try:
        tune(connection)
        connection.settimeout(timeouts.ANSWER.s)
        answer = introduce(connection, key, hello)
        connection.settimeout(None)
        return connection, answer
    except BaseException:
        connection.close()
        raise


class Stream(Protocol):
    """A connection while it begins."""

    def recv(self, size_bytes: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...


def introduce(connection: Stream, key: Key, hello: bytes) -> dict[str, Any]:
    """Begin a connection: both sides prove that they know the key, then this side says hello.

    Returns:
        The other side's answer. Nothing after it is read.

    Raises:
        CutOff: the other side did not accept this side's proof, or had no place for it.
        ValueError: the other side does not know the key.
        OSError: the connection has failed.
    """
    challenge, nonce = _read(connection, NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
    connection.sendall(nonce + key.answer(challenge, nonce))
    if not hmac.compare_digest(_read(connection, TAG_BYTES), key.proof(challenge, nonce)):
        raise ValueError("who listens there does not know the job's key")
    connection.sendall(hello)
    return read_line(connection)


def _read(connection: Stream, size_bytes: int) -> bytes:
    """Read exactly so many bytes, since the rest has another reader."""
    data = b""
    while len(data) < size_bytes:
        more = connection.recv(size_bytes - len(data))
        if not more:
            raise CutOff("refused")
        data += more
    return data


def read_line(connection: Stream) -> dict[str, Any]:
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
    """Return how many ranks the launcher starts on the node, from a rank's environment; 0:
    unknown."""
    return int(environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", "0"))


def take_stdin(address: Address, key: Key, rank: int) -> None:
    """Make a connection to the supervisor this process's stdin."""
    connection, _ = connect(address, key, "in", rank=rank, host=socket.gethostname())
    fd = connection.detach()  # this is 0 itself if the program has closed its stdin
    if fd:
        os.dup2(fd, 0)
        os.close(fd)
    else:
        os.set_inheritable(0, True)


def trace_stream(address: Address, key: Key, rank: int, attempt: int = 0) -> int:
    """Open a descriptor to which a process writes its trace, for the supervisor to keep.

    Args:
        attempt: the attempt to which the process belongs if it came later than the launch; else 0.
    """
    connection, _ = connect(
        address, key, "trace", rank=rank, host=socket.gethostname(), attempt=attempt)
    return connection.detach()


def leave_node(directory: Path) -> None:
    """Remove a node's part of the job's directory; on a node without the supervisor, remove all of
    it.

    Each process of the node calls this. When the last one does so, no other process still writes
    there.
    """
    shutil.rmtree(directory, ignore_errors=True)
    if not (directory.parent / "control").exists():
        shutil.rmtree(directory.parent, ignore_errors=True)


class Answers:
    """Answers of the supervisor, until the thread that asked takes them."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.kept: list[dict[str, Any]] = []  # those that came while another answer was awaited

    def put(self, answer: dict[str, Any]) -> None:
        self.queue.put(answer)

    def take(
        self, event: str, entry: int, meanwhile: Callable[[], object] | None
    ) -> dict[str, Any]:
        """Wait for an answer, see `Link.request`."""
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
    """The link of this rank to the supervisor.

    Args:
        address: the supervisor's address.
        key: of the job.
        rank: rank of this process in the MPI world.

    Attributes:
        critical: lock that the main thread holds while it writes what must not be left half
            written. The thread that ends the process waits for the lock, but the supervisor kills
            the process after some seconds.
        greeting: the supervisor's answer to hello.
        directory: this node's part of the job's directory, removed when the job ends for good.
        ending: this process has said goodbye.
        over: called by the link's thread when the launch ends, before this process does.
        waits: called by the link's thread; says whether this process waits for others.
        stopped: called by the link's thread; lists the processes of this node that keep a repair
            waiting because they are stopped.
        saved: called by the link's thread; its argument says whether the job is to end behind its
            next checkpoint. It returns how much is saved, with the fields of `saved.Saved`.
        lost: called by the link's thread with a host that is lost, and the rules of ``--kill`` that
            have struck there.
        gone: called by the link's thread with a rank that died alone on its host, and the value of
            its word `leaving` in the control file (0: it did not end itself).

    Raises:
        FtrmaError: the supervisor cannot be reached.
    """

    def __init__(self, address: Address, key: Key, rank: int) -> None:
        self.key = key
        self.critical = threading.Lock()
        self.directory: Path | None = None
        self.gone: Callable[[int, int], object] = lambda rank, leaving: None
        self.lost: Callable[[str, list[int]], object] = lambda host, struck: None
        self.over: Callable[[], object] = lambda: None
        self.waits: Callable[[], bool] = lambda: False
        self.stopped: Callable[[], list[StoppedProcess]] = list
        self.saved: Callable[[bool], dict[str, Any]] = lambda halt: {}
        self.ending = False
        self.waiting: set[int] = set()  # signals that the program may handle later
        self.sending = threading.Lock()
        self.answers = Answers()
        self.socket, self.greeting = connect(
            address, key, "link", rank=rank, pid=os.getpid(), host=socket.gethostname()
        )
        bound_by_silence(self.socket)
        # A forked child must not keep the connection of a dead rank open.
        os.register_at_fork(after_in_child=self.socket.close)
        Helper(self._read, name="ftrma-link").start()

    def send(self, event: str, **data: Any) -> None:
        """Send an event to the supervisor; if it is gone, the reading thread ends this process."""
        with self.sending, contextlib.suppress(OSError):
            self.socket.sendall(line(event, **data))

    def request(
        self, event: str, *, entry: int = 0, meanwhile: Callable[[], object] | None = None
    ) -> dict[str, Any]:
        """Ask the supervisor and wait for its answer. Main thread only.

        Args:
            event: the question.
            entry: number of the attempt; answers to questions of another attempt are ignored.
            meanwhile: called again and again during the wait. It may ask questions itself, and an
                exception that it raises ends the wait.
        """
        self.send(event, entry=entry)
        return self.answers.take(event, entry, meanwhile)

    def goodbye(self, **data: Any) -> None:
        """Tell the supervisor that this process has done its part; at the end it exits with status
        0."""
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
                elif message["event"] == "surrender":
                    os.kill(os.getpid(), signal.SIGKILL)
                elif message["event"] == "lost":
                    self.lost(message["host"], message["struck"])
                elif message["event"] == "waiting":
                    self.send("waiting", waits=self.waits())
                elif message["event"] == "stopped":
                    self.send("stopped", found=[astuple(each) for each in self.stopped()])
                elif message["event"] == "saved":
                    self.send("saved", **self.saved(message["halt"]))
                elif message["event"] == "signal":
                    Helper(self._hand_on, message["number"]).start()
                else:
                    self.answers.put(message)
        self._die(final)

    def _hand_on(self, number: int) -> None:
        """Pass a signal on that was sent to the supervisor, if the program handles that signal."""
        deadline = time.monotonic() + timeouts.HANDLER.s
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
        # This lock is never released, so that the main thread begins nothing new.
        self.critical.acquire()
        if final and self.directory:
            leave_node(self.directory)
        if self.ending:
            _exit(0)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)  # with its children
        os.kill(os.getpid(), signal.SIGKILL)
