"""A node with an agent of its own, and origins that ask it, without a job.

The agent is a process, as in a job; its ledger and the part that it serves are files in a directory
that outlives it. `Raw` is an authenticated connection on which a test says what it likes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ftrma.fabric import agents, link
from ftrma.host.key import VARIABLE, Key
from ftrma.native import wire
from ftrma.native.wire import Ack, Kind

WINDOW = 7
PATIENCE_S = 10.0
ONE = (1).to_bytes(8, "little")
HEAD_BYTES, WORDS, FIRST_WORD = 4096, 1024, 64  # of a part's file, the part comes behind it
HEAD = struct.Struct("<HBBIQIIIIQQ16x")  # struct ftrma_wire_head, without its sums
SUMS = struct.Struct("<QQ")  # its end


def _named(engine: str) -> Any:
    """A parameter, whose name is that of the engine, but for TCP's."""
    return pytest.param(engine, id=pytest.HIDDEN_PARAM if engine == "tcp" else engine)


@pytest.fixture(scope="module", params=map(_named, wire.engines()), autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have the tests of a module that imports this run over each engine that C knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(wire.ENGINE, request.param)  # of this process and of agents that it starts
        yield request.param


class Site:
    """A node as an origin knows it: its address, and the job's key."""

    def __init__(self, directory: Path, key: Key, targets: int) -> None:
        self.directory, self.key, self.targets = directory, key, targets

    def address(self, node: int = 0) -> link.Address | None:
        with contextlib.suppress(OSError):
            return link.Address.parse((self.directory / "address").read_text())
        return None


class Node(Site):
    """One node: its ledger, one window with a part for each target, and its agent.

    Args:
        more: parts that the ledger has room for beside them.
        key: of the job; None: its own.
    """

    def __init__(self, origins: int = 4, targets: int = 1, part_bytes: int = 1 << 20,
                 bind: str = "127.0.0.1", more: int = 0, key: Key | None = None) -> None:
        directory = Path(tempfile.mkdtemp(prefix="ftrma-wire-", dir="/dev/shm"))
        super().__init__(directory, key or Key.make(), targets)
        self.ledger_path, self.bind = self.directory / "ledger", bind
        self.part_bytes, self.slots = part_bytes, 0
        wire.ledger_make(self.ledger_path, origins=origins, targets=targets, parts=targets + more)
        self.ledger = wire.ledger_open(self.ledger_path)
        self.agent: subprocess.Popen[bytes] | None = None
        self.started: list[subprocess.Popen[bytes]] = []
        for target in range(targets):
            (self.directory / f"part-{target}").write_bytes(b"")
            os.truncate(self.directory / f"part-{target}", HEAD_BYTES + part_bytes)
            self.place(target, 1)

    def place(self, target: int, generation: int) -> None:
        wire.ledger_place(self.ledger, target, window=WINDOW, target=target, at=HEAD_BYTES,
                          generation=generation, file=f"part-{target}",
                          size_bytes=self.part_bytes, words=WORDS, head_bytes=WORDS)

    def fresh(self) -> int:
        """An origin that nobody has been."""
        self.slots += 1
        return self.slots - 1

    def part(self, target: int = 0, dtype: str = "u1") -> Any:
        return np.memmap(self.directory / f"part-{target}", dtype, "r+", HEAD_BYTES)

    def word(self, index: int, target: int = 0) -> int:
        """A word of the head, as it was SET."""
        head = np.memmap(self.directory / f"part-{target}", "u8", "r", FIRST_WORD, (index + 1,))
        return int(head[index])

    def start(self, kill: str | None = None) -> subprocess.Popen[bytes]:
        """Start an agent; it serves when the one before is gone, and who asks waits for it."""
        command = [sys.executable, "-m", "ftrma.launch.agent", str(self.ledger_path), "--address",
                   str(self.directory / "address"), "--bind", self.bind]
        self.agent = subprocess.Popen(
            [*command, *(["--kill", kill] if kill else [])], stdin=subprocess.PIPE,
            env={**os.environ, VARIABLE: self.key.text()},
        )
        self.started.append(self.agent)
        return self.agent

    def ended(self) -> int:
        """Wait until the agent has ended; its status."""
        assert self.agent
        return self.agent.wait(PATIENCE_S)

    def reach(self) -> link.Address:
        """The address of an agent that listens."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, "no agent listens"
            if address := self.address():
                with contextlib.suppress(OSError):
                    socket.create_connection((address.addresses[0], address.port)).close()
                    return address
            time.sleep(0.002)

    def close(self) -> None:
        for agent in self.started:
            agent.kill()
            agent.wait(PATIENCE_S)
            if agent.stdin:
                agent.stdin.close()
        wire.ledger_close(self.ledger)
        shutil.rmtree(self.directory)


class User:
    """An origin of a node, and what it has been told."""

    def __init__(self, node: Site, slot: int = 0, incarnation: int = 0, *,
                 key: Key | None = None, patience_s: float = PATIENCE_S) -> None:
        self.acks: list[tuple[int, Ack]] = []
        self.asking = agents.Asking(
            key or node.key, slot, incarnation, node.targets, 1, node.address,
            lambda target, acks: self.acks.extend((target, ack) for ack in acks),
        )
        self.origin = self.asking.origin
        self.origin.set_timeout(int(1000 * patience_s))

    def numbers(self, target: int = 0) -> list[int]:
        """Numbers that were acknowledged, in that order."""
        return [ack.number + i for t, ack in self.acks if t == target for i in range(ack.records)]

    def put(self, offset: int, data: bytes, target: int = 0) -> None:
        self.origin.put(target, WINDOW, offset, data)

    def get(self, offset: int, size_bytes: int, target: int = 0) -> bytes:
        return self.origin.get(target, WINDOW, offset, size_bytes)

    def add(self, offset: int, value: int = 1, target: int = 0) -> int:
        answer = self.origin.atomic(Kind.FOP, wire.Op.SUM, wire.Type.I64, target, WINDOW, offset,
                                    value.to_bytes(8, "little"))
        return int.from_bytes(answer.old, "little")

    def close(self) -> None:
        self.origin.close()


class Reply(NamedTuple):
    kind: Kind
    number: int
    roles_number: int
    target: int
    offset: int
    operand: int
    payload: bytes


class Raw:
    """A connection to an agent, of whichever node, that sends messages as they are given."""

    def __init__(self, node: Any, /, slot: int = 0, incarnation: int = 0, **hello: Any) -> None:
        address, key = node.reach(), agents.key_of_wire(node.key)
        self.socket = socket.create_connection((address.addresses[0], address.port), PATIENCE_S)
        said = {**agents.hello(slot, incarnation, socket.gethostname()), **hello}
        self.welcome = link.introduce(self.socket, key, agents.hello_line(key, said))
        self.bytes = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Reply | None:
        """The next reply; None when the connection is over."""
        while True:
            if len(self.bytes) >= HEAD.size:
                kind, _, _, length, number, roles, _, target, _, offset, operand = HEAD.unpack(
                    self.bytes[: HEAD.size])
                end = HEAD.size + length
                if len(self.bytes) >= end:
                    payload, self.bytes = self.bytes[HEAD.size:end], self.bytes[end:]
                    return Reply(Kind(kind), number, roles, target, offset, operand, payload)
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self.bytes += more

    def ask(self, data: bytes) -> Reply:
        self.send(data)
        reply = self.receive()
        assert reply is not None, "the connection is over"
        return reply

    def close(self) -> None:
        self.socket.close()


def sum_of(data: bytes) -> int:
    """The sum of ``csrc/wire/sum.h``, written once more."""
    all_bits, step, lines = 2**64 - 1, 0x9E3779B97F4A7C15, len(data) // 64

    def mix(word: int) -> int:
        word = word * step & all_bits
        return word ^ word >> 32

    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    plain, summed = [*range(1, 9)], [0] * 8
    for line in range(lines):
        for i, word in enumerate(words[8 * line : 8 * line + 8]):
            plain[i] = plain[i] + word & all_bits
            summed[i] = summed[i] + plain[i] & all_bits
            if line % 64 == 63 or line == lines - 1:
                plain[i] = mix(plain[i] ^ summed[i])
                summed[i] = mix(summed[i] ^ plain[i])
    left = [*(plain + summed if lines else []), *words[8 * lines :]]
    mixed = (mix(word + i * step & all_bits) for i, word in enumerate(left))
    return sum(mixed, len(data)) & all_bits


def sealed(head: bytes, payload: bytes) -> bytes:
    """A message with its sums."""
    begin = head[: HEAD.size - SUMS.size]
    begin += (sum_of(payload) if payload else 0).to_bytes(8, "little")
    return begin + sum_of(begin).to_bytes(8, "little") + payload


def message(kind: Kind | int, payload: bytes = b"", *, number: int = 0, op: int = 0, type_: int = 0,
            window: int | None = None, target: int = 0, generation: int = 1, offset: int = 0,
            operand: int = 0, roles_number: int = 0, length: int | None = None,
            format_: int = wire.FORMAT) -> bytes:
    """A message; what its kind does not have is 0."""
    about = kind <= Kind.GETV
    head = HEAD.pack(kind, format_, op << 4 | type_, len(payload) if length is None else length,
                     number, roles_number, (WINDOW if about else 0) if window is None else window,
                     target, generation, offset, operand)
    return sealed(head, payload)


@contextlib.contextmanager
def served(kill: str | None = None, **how: Any) -> Iterator[Node]:
    """A node whose agent has been started."""
    node = Node(**how)
    try:
        node.start(kill)
        yield node
    finally:
        node.close()


@pytest.fixture(scope="module")
def node(engine: str) -> Iterator[Node]:
    """One agent for tests that leave it as it was; each has an origin of its own."""
    with served(origins=256, targets=2) as made:
        yield made


@pytest.fixture
def slot(node: Node) -> int:
    """An origin that no other test has been."""
    return node.fresh()


# Tests have variables of the names of these two.
@pytest.fixture(name="user")
def new_user(node: Node) -> Iterator[User]:
    made = User(node, node.fresh())
    yield made
    made.close()


@pytest.fixture(name="raw")
def new_raw(node: Node) -> Iterator[Raw]:
    made = Raw(node, node.fresh())
    yield made
    made.close()
