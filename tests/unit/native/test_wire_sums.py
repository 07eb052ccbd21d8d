"""Messages of which a bit changes on the way, see ``csrc/wire/sum.c``.

Law: they have no effect, and are told to nobody but the user: the connection ends, and what it
carried comes again over the next one.
"""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Iterator

import pytest
from wirenode import HEAD, PATIENCE_S, Node, Raw, User, message, sealed, served, sum_of
from wirenode import engine as engine

from ftrma.fabric import agents, link
from ftrma.native import wire
from ftrma.native.wire import Kind

ONE = (1).to_bytes(8, "little")
TOLD = "was changed on its way; it is sent again"


@pytest.fixture(scope="module")
def node(engine: str) -> Iterator[Node]:
    with served() as made:
        yield made


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 64, 65, 200, 4096, 4160 + 13, 200_003])
def test_both_ends_count_alike(node: Node, size: int) -> None:
    """Law: a sum is that of the few lines in `wirenode`, for bytes of any number, put and got."""
    data = random.Random(size).randbytes(size)
    raw = Raw(node, 1, size)
    number = wire.number_of(node.ledger, 1, 0) + 1
    flush = message(Kind.FLUSH, number=number)
    raw.send(message(Kind.PUT, data, number=number, offset=64) + flush)
    # A long put is acknowledged before the flush, too, with the number 0.
    answer = next(reply for reply in iter(raw.receive, None) if reply.number == number)
    assert answer.kind == Kind.ACK
    assert node.part()[64 : 64 + size].tobytes() == data
    raw.send(message(Kind.GET, offset=64, operand=size, number=5))
    reply = b""
    while len(reply) < HEAD.size + size:
        reply += raw.socket.recv(1 << 20)
    head, payload = reply[: HEAD.size], reply[HEAD.size :]
    assert payload == data and sealed(head, payload) == head + payload
    raw.close()


def test_a_sum_tells_changes_apart() -> None:
    """Law: one bit, two bits, two words that change places, and zeros at the end."""
    dice = random.Random(5)
    for size in (8, 24, 56, 64, 640, 5000):
        data = dice.randbytes(size)
        assert len({sum_of(data), sum_of(data + b"\0"), sum_of(data + bytes(64))}) == 3
        for _ in range(100):
            one = flipped(data, dice.randrange(size), dice.randrange(8))
            two = flipped(one, dice.randrange(size), dice.randrange(8))
            swapped = data[8:16] + data[:8] + data[16:]
            changed = [each for each in (one, two, swapped) if each != data]
            assert sum_of(data) not in map(sum_of, changed)


def test_a_changed_request_has_no_effect(capfd: pytest.CaptureFixture[str]) -> None:
    """Law of this file, with a bit of each byte of a put; nothing is told to the peer."""
    dice = random.Random(7)
    text = message(Kind.PUT, b"\x77" * 16, number=1, offset=2048)
    with served() as node:
        part = node.part()
        part[:] = 0x5A
        for at in range(len(text)):
            raw = Raw(node, 0, at)
            raw.send(flipped(text, at, dice.randrange(8)))
            assert raw.receive() is None, at
            raw.close()
        assert (part == 0x5A).all() and wire.number_of(node.ledger, 0, 0) == 0
    assert capfd.readouterr().err.count(TOLD) == 1


def test_bytes_that_change_where_they_lie_are_not_changed_on_their_way(node: Node) -> None:
    """Law: who stores to a part while it is got harms no connection, whatever the bytes."""
    child, part, user = os.fork(), node.part(), User(node, 2, 1)
    if not child:
        while True:
            for value in range(256):
                part[:8192] = value
    try:
        for _ in range(1500):
            user.get(0, 63)
            user.get(0, 4200)
        assert user.origin.damaged == 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        user.close()


def test_a_longer_length_is_not_waited_for(node: Node) -> None:
    """Law: a head is judged as soon as it is there."""
    raw = Raw(node, 0, 30_000)
    raw.socket.settimeout(PATIENCE_S)
    raw.send(flipped(message(Kind.PUT, ONE, number=1), 5, 4))
    assert raw.receive() is None
    raw.close()


def test_a_changed_hello_opens_nothing(node: Node) -> None:
    """Law: with a bit of any of its bytes changed an origin is served as no other one, and the
    refusal is none of this host's, so that it tries again."""
    key, dice = agents.key_of_wire(node.key), random.Random(3)
    text = agents.hello_line(key, agents.hello(0, 40_000, socket.gethostname()))
    address = node.reach()
    for at in range(len(text) - 1):
        changed = flipped(text, at, dice.randrange(7))
        if b"\n" in changed[:-1]:
            continue
        with socket.create_connection((address.addresses[0], address.port), PATIENCE_S) as made:
            answer = link.introduce(made, key, changed)
        assert answer["event"] == "refused" and not answer["host"], changed


def test_a_sealed_message_is_as_it_was() -> None:
    """Law: the helper of these tests changes the sums alone."""
    head = message(Kind.PUT, ONE, number=3)[:64]
    assert sealed(head, ONE) == head + ONE and sealed(head, b"")[:48] == head[:48]
