"""The process by which ``ftrma doctor --mpirun`` looks at a host: what it has, what it reaches.

    python -c "from ftrma.launch.nodeprobe import main; main()" ADDRESS NAME --bind=WHERE

The process connects to the doctor (`launch.nodechecks`) as a rank connects to the supervisor, tells
what this host has, and then answers requests until the connection ends. Each request and each
answer is a line:

    pong              is answered at once, by the time here
    take              so many bytes follow, and are answered
    listen            answered by an address; another probe may connect, and is served as here
    measure ADDRESS   answered by how fast the probe at this address is, and by which interface

The same requests go over both kinds of connections.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import socket
import statistics
import sys
import time
from typing import Any

from ..fabric import link
from ..host import timeouts
from ..host.errors import FtrmaError
from ..host.key import Key
from ..host.listening import Bind, own_addresses
from ..host.version import VERSION
from ..native import loading
from . import hostchecks
from .connections import Connections, Peer

PINGS = 30
CHUNK_BYTES = 8 << 20  # sent at a time
MEASURED_EACH_S = 0.3  # chunks are sent for about this time
PROCESSES = 6  # processes of a job with 4 slots


def facts() -> dict[str, Any]:
    """Tell what this host has, for `launch.nodechecks`."""
    try:
        hostchecks.check(PROCESSES)
        lacks = ""
    except FtrmaError as error:
        lacks = str(error)
    try:
        library = loading.version_of(str(loading.EXTENSION))[0]
    except (FtrmaError, OSError, AttributeError) as error:
        library, lacks = "", lacks or f"the MPI library cannot be loaded: {error}"
    room = os.statvfs("/dev/shm")
    return {"ftrma": VERSION, "python": platform.python_version(), "library": library,
            "lacks": lacks, "cores": len(os.sched_getaffinity(0)),
            "free_bytes": room.f_bavail * room.f_frsize}


def ask(connection: socket.socket, event: str, **data: Any) -> dict[str, Any]:
    """Send a request, and return its answer.

    Raises:
        OSError, ValueError: the connection has ended, or stands still.
    """
    connection.sendall(link.line(event, **data))
    return link.read_line(connection)


def measure(connection: socket.socket) -> dict[str, Any]:
    """Measure a connection to a probe.

    Returns:
        ``round_trip_s``; ``bytes_per_s``; ``ahead_s``, by which the other's clock is ahead; and the
        ``interface`` and ``address`` of this host that carry the connection.

    Raises:
        OSError, ValueError: see `ask`.
    """
    pings = []
    for _ in range(PINGS):
        began, before = time.perf_counter(), time.time()
        there = ask(connection, "pong")["time"]
        taken = time.perf_counter() - began
        pings.append((taken, there - before - taken / 2))
    chunk, began = bytes(CHUNK_BYTES), time.perf_counter()
    rates: list[float] = []
    while not rates or time.perf_counter() - began < MEASURED_EACH_S:
        sent = time.perf_counter()
        connection.sendall(link.line("take", bytes=len(chunk)))
        connection.sendall(chunk)
        link.read_line(connection)
        rates.append(len(chunk) / (time.perf_counter() - sent))
    mine = str(connection.getsockname()[0]).removeprefix("::ffff:")
    names = [name for name, address in own_addresses() if address == mine]
    return {"round_trip_s": statistics.median(taken for taken, _ in pings),
            "bytes_per_s": max(rates), "ahead_s": min(pings)[1], "address": mine,
            "interface": names[0] if names else "lo" if mine.startswith("127.") else "?"}


class Probe:
    """Answers requests.

    Args:
        key: the key that other probes have to know.
        bind: where to listen for other probes.
    """

    def __init__(self, key: Key, bind: Bind) -> None:
        self.key, self.bind = key, bind
        self.comes: Peer | None = None

    def serve(self, connection: socket.socket) -> None:
        """Answer until the other side closes the connection."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                self._answer(connection, link.read_line(connection))

    def _answer(self, connection: socket.socket, asked: dict[str, Any]) -> None:
        event, answer = asked["event"], {}
        if event == "listen":
            self._listen(connection)
            return
        if event == "pong":
            answer = {"time": time.time()}
        elif event == "take":
            left = asked["bytes"]
            while left and (data := connection.recv(min(left, 1 << 20))):
                left -= len(data)
        else:
            answer = self._measure(link.Address.parse(asked["address"]))
        connection.sendall(link.line(event, **answer))

    def _listen(self, connection: socket.socket) -> None:
        """Serve one probe that connects, unless the caller asks for something else first."""
        listening = Connections(self.key, self.bind, self._take, lambda peer: None)
        assert listening.address
        connection.sendall(link.line("listen", address=listening.address.text()))
        deadline, self.comes = time.monotonic() + timeouts.EACH_HOST.s, None
        with contextlib.closing(listening):
            while not self.comes and time.monotonic() < deadline:
                listening.pump(0.05)
                if select.select([connection], [], [], 0)[0]:
                    return
            if self.comes:
                with listening.let_go(self.comes) as other:
                    other.settimeout(timeouts.EACH_HOST.s)
                    other.sendall(link.line("hello"))
                    self.serve(other)

    def _take(self, peer: Peer, _hello: bytes) -> None:
        self.comes = peer

    def _measure(self, address: link.Address) -> dict[str, Any]:
        try:
            other, _ = link.connect(address, self.key, "probe", rank=-1)
            with other:
                other.settimeout(timeouts.EACH_HOST.s)
                return measure(other)
        except (FtrmaError, OSError, ValueError) as error:
            return {"error": str(error)}


def main() -> None:
    """Look at this host for the doctor at the address on the command line."""
    key, address = Key.take(), link.Address.parse(sys.argv[1])
    assert key
    try:
        connection, _ = link.connect(address, key, "probe", rank=-1, host=socket.gethostname(),
                                     named=sys.argv[2], **facts())
    except FtrmaError as error:
        sys.exit(f"ftrma: error: {error}")
    with connection:
        Probe(key, Bind.parse("--bind", sys.argv[3].removeprefix("--bind="))).serve(connection)
