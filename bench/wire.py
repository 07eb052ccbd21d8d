"""``python -m bench wire``: what does an access to another node cost, by its agent?

Question: how long does each request take over loopback TCP, beside a bare round trip between two
processes that do nothing else, and what does an idle agent cost? The agent is a process as in a
job; there is no logging and no MPI. All requests take turns in each round, in one process
and one thread; a ratio is formed within a round. The time of a call without a message is
measured too and taken off: it is Python's.

The bare round trip blocks in both processes, so on a quiet machine it pays for being woken, which
the wire saves by looking for 100 us: ratios below 1 are no mistake.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from ftrma.fabric import agents, link
from ftrma.host.key import VARIABLE, Key
from ftrma.native import wire
from ftrma.native.wire import Kind, Op, Origin, Type

from . import common
from .common import Parser, spread
from .launching import BenchError, JsonObject

WINDOW, PART_BYTES, PATIENCE_S = 1, 4 << 20, 20.0
WORD = (1).to_bytes(8, "little")
HEAD_BYTES = 4096  # of the part's file
MESSAGE_BYTES = 72  # a head and a word
BATCHES = {"put 1 MiB + flush": 20, "put 8 B, pipelined": 20_000}
IDLE_S = 1.0
ECHO = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := s.recv(4096):
        s.sendall(data)
"""

Call = Callable[[], object]


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("wire", "What an access to another node costs, by its agent.", launches=False)
    parser.set_defaults(rounds=21)
    parser.add_argument("--batch", type=common.whole, default=500, metavar="N",
                        help="calls of a timed loop (20 of 1 MiB, 20000 pipelined)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = run(options)
    common.finish(report, options, text, draw)
    return 0


def run(options: Namespace) -> JsonObject:
    """The whole measurement."""
    report = common.begin("wire")
    report.update(rounds=options.rounds, ranks=2, batch=options.batch,
                  units={"*_us": "microseconds a call", "ratio": "ours/round trip"})
    with running_agent() as (asking, pid), echo() as peer:
        took, empty = measure(asking.origin, peer, options)
        report["results"] = [
            {"request": name, "us": spread(1e6 * s for s in seconds),
             "ratio": spread(common.ratios(seconds, took["round trip"]))}
            for name, seconds in took.items()
        ]
        report["python_us"] = 1e6 * empty
        report["idle"] = idle(pid)
    return report


# ---- the sides ------------------------------------------------------------------------------


@contextlib.contextmanager
def running_agent() -> Iterator[tuple[agents.Asking, int]]:
    """An agent with one part, and an origin of it."""
    directory = Path(tempfile.mkdtemp(prefix="ftrma-bench-", dir="/dev/shm"))
    ledger, address, key = directory / "ledger", directory / "address", Key.make()
    process = None
    try:
        wire.ledger_make(ledger, origins=2, targets=1, parts=1)
        (directory / "part").write_bytes(bytes(HEAD_BYTES + PART_BYTES))
        opened = wire.ledger_open(ledger)
        wire.ledger_place(opened, 0, window=WINDOW, target=0, generation=1, file="part",
                          at=HEAD_BYTES, size_bytes=PART_BYTES, words=64, head_bytes=64)
        process = subprocess.Popen(
            [sys.executable, "-m", "ftrma.launch.agent", str(ledger), "--address", str(address)],
            stdin=subprocess.PIPE, env={**os.environ, VARIABLE: key.text()},
        )

        def find(_: int) -> link.Address | None:
            return link.Address.parse(address.read_text()) if address.exists() else None

        asking = agents.Asking(key, 0, 0, 1, 1, find)
        asking.origin.set_timeout(int(1000 * PATIENCE_S))
        try:
            asking.origin.get(0, WINDOW, 0, 8)
        except wire.Unfinished as error:
            raise BenchError(f"the agent does not answer: {error}") from None
        yield asking, process.pid
        asking.origin.close()
        wire.ledger_close(opened)
    finally:
        if process:
            process.kill()
            process.wait()
        shutil.rmtree(directory)


@contextlib.contextmanager
def echo() -> Iterator[socket.socket]:
    """A connection to a process that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        process = subprocess.Popen([sys.executable, "-c", ECHO, port])
        try:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                yield connection
        finally:
            process.kill()
            process.wait()


def calls_of(origin: Origin, peer: socket.socket) -> dict[str, Call]:
    """One call of each request."""
    long = bytes(1 << 20)

    def round_trip() -> None:
        peer.sendall(bytes(MESSAGE_BYTES))
        peer.recv(4096)

    def put_flush(data: bytes) -> None:
        origin.put(0, WINDOW, 0, data)
        origin.flush(0)

    def locked() -> None:
        origin.lock(0, WINDOW)
        origin.put(0, WINDOW, 0, WORD)
        origin.unlock(0, WINDOW)

    return {
        "round trip": round_trip,
        "put 8 B + flush": lambda: put_flush(WORD),
        "get 8 B": lambda: origin.get(0, WINDOW, 0, 8),
        "fetch and add": lambda: origin.atomic(Kind.FOP, Op.SUM, Type.I64, 0, WINDOW, 0, WORD),
        "lock, put 8 B, unlock": locked,
        "put 8 B, pipelined": lambda: origin.put(0, WINDOW, 0, WORD),
        "put 1 MiB + flush": lambda: put_flush(long),
    }


def measure(
    origin: Origin, peer: socket.socket, options: Namespace
) -> tuple[dict[str, list[float]], float]:
    """Seconds a call of each request in each round; seconds of a call without a message."""
    calls = calls_of(origin, peer)
    empty = math.inf
    took: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(options.rounds):
        common.progress(f"wire: round {number + 1}/{options.rounds}")
        for name in calls if number % 2 == 0 else reversed(calls):
            count = min(BATCHES.get(name, options.batch), 40 * options.batch)
            # Each time: the machine may run faster by and by.
            empty = min(empty, *(seconds(lambda: origin.put(0, WINDOW, 0, b""), 1000)
                                 for _ in range(3)))
            seconds(calls[name], max(1, count // 10))
            began = time.perf_counter()
            for _ in range(count):
                calls[name]()
            origin.flush(0)  # of pipelined puts
            took[name].append((time.perf_counter() - began) / count)
    for name in calls.keys() - {"round trip"}:
        took[name] = [max(each - empty, 0.0) for each in took[name]]
    return took, empty


def seconds(call: Call, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count


def idle(pid: int) -> JsonObject:
    """The cost of an agent that nobody asks."""
    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(IDLE_S)
    share = (ticks() - before) / os.sysconf("SC_CLK_TCK") / IDLE_S
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = sum(int(size) for size in re.findall(r"Private_\w+:\s+(\d+)", rollup))
    return {"processor_share": share, "private_mib": private / 1024}


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The table for people."""
    rows = [["request", "us", "fastest", "beside a round trip"]]
    rows += [[r["request"], common.with_range(r["us"]), f"{r['us']['min']:.2f}",
              common.with_range(r["ratio"], against=1)] for r in report["results"]]
    idle_costs = report["idle"]
    return (
        f"Requests to an agent over loopback TCP, medians of {report['rounds']} rounds "
        f"(min .. max);\nPython's {report['python_us']:.2f} us a call are taken off. Idle: "
        f"{100 * idle_costs['processor_share']:.0f} % of a core, "
        f"{idle_costs['private_mib']:.1f} MiB of its own.\n\n{common.table(rows)}"
    )


def draw(report: JsonObject, path: Path) -> None:
    """Time of each request."""
    plt = common.pyplot()
    found = [r["us"] for r in report["results"]]
    figure, axes = plt.subplots(figsize=(4.5, 2.6))
    names = [r["request"] for r in report["results"]]
    axes.errorbar([f["median"] for f in found], names, xerr=common.whiskers(found), fmt="o", ms=3,
                  capsize=2, lw=0.9, color="#0072b2")
    axes.set_xscale("log")
    axes.set_xlabel("us a call (log scale)")
    axes.grid()
    figure.tight_layout()
    common.save(figure, path, report)
