"""Nodes whose agents mirror a file, without a job: each is a directory, each agent a process.

A test writes to the files as processes of the nodes would: it stores, then rings.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ftrma.fabric import link
from ftrma.host.key import VARIABLE, Key
from ftrma.native import wire
from ftrma.native.wire import MirrorKind

PATIENCE_S = 20.0
# Words of the file, by their number in it; a region's words are not in the order of the file.
BELL, ALARM, CALM, FLAGS, DATA, HOT, MANY = 0, 1, 2, 8, 72, 136, 200
FEW, MANY_WORDS = 64, 40_000  # words of a region; MANY takes several messages
REGIONS = (
    (8 * ALARM, 8, MirrorKind.ALARM), (8 * CALM, 8, MirrorKind.CALM),
    (8 * FLAGS, 8 * FEW, MirrorKind.WORDS),
    (8 * HOT, 8 * FEW, MirrorKind.HOT), (8 * MANY, 8 * MANY_WORDS, MirrorKind.WORDS),
    (8 * DATA, 8 * FEW, MirrorKind.WORDS), (8 * BELL, 8, MirrorKind.BELL),
)
FIRST_FLAG = 2  # its number among the words of the regions


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.0005)


class Mirrored:
    """One node: its file, its ledger, its agent.

    Attributes:
        words: of the file.
    """

    def __init__(
        self, number: int, key: Key, regions: Sequence[tuple[int, int, MirrorKind]]
    ) -> None:
        self.number, self.key = number, key
        self.directory = Path(tempfile.mkdtemp(prefix="ftrma-mirror-", dir="/dev/shm"))
        (self.directory / "control").write_bytes(bytes(8 * (MANY + MANY_WORDS)))
        self.words: Any = np.memmap(self.directory / "control", "u8", "r+")
        wire.ledger_make(self.directory / "ledger", origins=4, targets=1, parts=1)
        self.ledger = wire.ledger_open(self.directory / "ledger")
        wire.mirror_make(self.directory / "mirror", "control", regions)
        self.hub: Mirrored | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        self.started: list[subprocess.Popen[bytes]] = []
        self.bind = "127.0.0.1"

    def start(self, kill: str | None = None) -> None:
        """Start an agent, at the port of the one before; it is told where the hub is."""
        if (published := self.directory / "agent").exists():
            self.bind = f"127.0.0.1:{link.Address.parse(published.read_text()).port}"
        command = [sys.executable, "-m", "ftrma.launch.agent", str(self.directory / "ledger"),
                   "--address", str(self.directory / "agent"), "--bind", self.bind,
                   "--mirror", str(self.directory / "mirror"), "--node", str(self.number)]
        with (self.directory / "said").open("ab") as said:
            self.agent = subprocess.Popen(
                [*command, *(["--kill", kill] if kill else [])], stdin=subprocess.PIPE,
                stderr=said, env={**os.environ, VARIABLE: self.key.text()},
            )
        self.started.append(self.agent)
        if self.hub:
            self.join(self.hub.address())

    def join(self, hub: link.Address) -> None:
        assert self.agent and self.agent.stdin
        with contextlib.suppress(BrokenPipeError):
            self.agent.stdin.write(f"hub {hub.text()}\n".encode())
            self.agent.stdin.flush()

    def address(self) -> link.Address:
        path = self.directory / "agent"
        wait_until(path.exists, "the agent does not come up")
        return link.Address.parse(path.read_text())

    def reach(self) -> link.Address:
        """The address of an agent that listens."""
        address = self.address()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection((address.addresses[0], address.port)).close()
                return address
            time.sleep(0.002)
        raise AssertionError("no agent listens")

    def kill(self) -> None:
        assert self.agent
        self.agent.kill()
        self.agent.wait(PATIENCE_S)

    def ended(self) -> int:
        """Wait until the agent has ended; its status."""
        assert self.agent
        return self.agent.wait(PATIENCE_S)

    def said(self) -> str:
        """Return the output of its agents."""
        return (self.directory / "said").read_text()

    def ring(self) -> None:
        wire.ledger_ring(self.ledger)

    def store(self, word: int, value: int) -> None:
        self.words[word] = value
        self.ring()

    def awaits(self, word: int, value: int) -> None:
        wait_until(lambda: int(self.words[word]) == value,
                   f"node {self.number}: word {word} is not {value}")

    def _stat(self) -> list[str]:
        """Fields of the agent's /proc/PID/stat, from its state on."""
        assert self.agent
        return Path(f"/proc/{self.agent.pid}/stat").read_text().rpartition(")")[2].split()

    def ticks(self) -> int:
        """Time that the agent has computed."""
        fields = self._stat()
        return int(fields[11]) + int(fields[12])

    def awaits_sleep(self) -> None:
        """Wait until the agent has done all that there was to do."""
        wait_until(lambda: self._stat()[0] == "S", "the agent does not sleep")

    def close(self) -> None:
        for agent in self.started:
            agent.kill()
            agent.wait(PATIENCE_S)
            with contextlib.suppress(BrokenPipeError):
                agent.stdin and agent.stdin.close()
        wire.ledger_close(self.ledger)
        shutil.rmtree(self.directory)


class Looks:
    """A process of a node that waits until what it has stored is settled, as
    ``ftrma_synchronize`` does in a job (``csrc/job/meet.c``)."""

    def __init__(self, node: Mirrored) -> None:
        looks, settled = wire.mirror_scans(node.directory / "mirror")
        self.node = node
        self.looks = ctypes.c_uint64.from_address(looks)
        self.settled = ctypes.c_uint64.from_address(settled)
        self.fence = threading.Lock()

    def begin(self) -> int:
        """Ask for a look at what was stored before; the look that is waited for."""
        with self.fence:  # what was stored is seen before the number is read, as of C's STORE
            goal = self.looks.value + 1
        self.node.ring()
        return goal

    def is_settled(self, goal: int) -> bool:
        return self.settled.value >= goal

    def synchronize(self) -> None:
        goal = self.begin()
        wait_until(lambda: self.is_settled(goal), f"node {self.node.number}: not settled")


def mirrored_words(node: Mirrored) -> Any:
    """All words that are mirrored at any time."""
    return np.delete(np.array(node.words), [BELL])


def agree(nodes: Sequence[Mirrored]) -> None:
    """Wait until the files are equal."""
    def equal() -> bool:
        first, *others = (mirrored_words(node) for node in nodes)
        return all((first == other).all() for other in others)
    wait_until(equal, "the files stay different")


def settle(nodes: Sequence[Mirrored]) -> None:
    """Wait until each node has what every other has said so far."""
    for word, node in enumerate(nodes, FLAGS + FEW - len(nodes)):
        value = int(node.words[word]) + 1
        node.store(word, value)
        for other in nodes:
            other.awaits(word, value)


@contextlib.contextmanager
def mirrors(count: int = 3, kills: Sequence[str | None] = (), start: bool = True,
            regions: Sequence[tuple[int, int, MirrorKind]] = REGIONS) -> Iterator[list[Mirrored]]:
    """Nodes whose agents run; node 0's is the hub."""
    key, nodes = Key.make(), list[Mirrored]()
    try:
        for number in range(count):
            nodes.append(Mirrored(number, key, regions))
        for node, kill in zip(nodes, [*kills, *[None] * count], strict=False):
            node.hub = nodes[0] if node.number else None
            if start:
                node.start(kill)
        if start:
            nodes[0].address()
        yield nodes
    finally:
        for node in nodes:
            node.close()
