"""The origin's side of the wire, against an agent that a test plays: what it sends and believes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from wirenode import HEAD, PATIENCE_S, WINDOW, Node, Reply, User, message
from wirenode import engine as engine

from ftrma.fabric import agents, link
from ftrma.host.key import NONCE_BYTES, TAG_BYTES
from ftrma.launch import agent as agent_process
from ftrma.native.wire import Ack, Kind, Op, Type, Unfinished, Why, WireResult

ONE = (1).to_bytes(8, "little")


class Played:
    """An agent in the test's hands, and an origin whose calls run beside it."""

    def __init__(self) -> None:
        self.node = Node(targets=2)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        address = link.Address("h", self.listener.getsockname()[1], ("127.0.0.1",))
        agent_process.publish(address, self.node.directory / "address")
        self.user = User(self.node)
        self.threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []
        self.results: list[Any] = []

    def beside(self, call: Callable[[], object]) -> None:
        """Have the origin do something that waits for this agent."""
        def work() -> None:
            try:
                self.results.append(call())
            except Unfinished as error:
                self.failures.append(error)

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def done(self) -> None:
        """Wait until the origin's call is over."""
        self.threads[-1].join(PATIENCE_S)
        assert not self.threads[-1].is_alive()

    def accept(self) -> None:
        """Let the origin in, as an `AgentListener` does."""
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(PATIENCE_S)
        key, challenge = agents.key_of_wire(self.node.key), bytes(NONCE_BYTES)
        self.connection.sendall(challenge)
        answer = self.read(NONCE_BYTES + TAG_BYTES)
        self.connection.sendall(key.proof(challenge, answer[:NONCE_BYTES]))
        while self.read(1) != b"\n":
            pass
        self.connection.sendall(link.line("welcome"))

    def read(self, size_bytes: int) -> bytes:
        data = self.connection.recv(size_bytes, socket.MSG_WAITALL)
        assert len(data) == size_bytes
        return data

    def request(self) -> Reply:
        kind, _, _, length, number, roles, _, target, _, offset, operand = HEAD.unpack(
            self.read(HEAD.size))
        return Reply(Kind(kind), number, roles, target, offset, operand,
                     self.read(length) if length else b"")

    def reply(self, kind: Kind, payload: bytes = b"", **fields: int) -> None:
        self.connection.sendall(message(kind, payload, window=0, **fields))

    def silent(self) -> bool:
        """The origin sends nothing for a while."""
        self.connection.settimeout(0.05)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.connection.settimeout(PATIENCE_S)

    def acks(self, *acks: tuple[int, int, int, int], number: int = 0,
             roles_number: int = 0) -> None:
        self.reply(Kind.ACK, b"".join(struct.pack("<QQQQ", *ack) for ack in acks), number=number,
                   roles_number=roles_number)

    def answer(self, number: int, old: int) -> None:
        self.reply(Kind.ANSWER, struct.pack("<QQQQQ", 3, 4, 8, old, old + 1), number=number)

    def close(self) -> None:
        self.user.origin.ring()
        for thread in self.threads:
            thread.join(PATIENCE_S)
        self.user.close()
        self.listener.close()
        self.node.close()


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    yield made
    made.close()


def puts(played: Played, count: int) -> None:
    """Puts of 1, 2, ... and a flush, whose request is returned by `taken`."""
    def work() -> None:
        for i in range(count):
            played.user.put(8 * i, ONE)
        played.user.origin.flush(0)

    played.beside(work)


def taken(played: Played, kind: Kind) -> list[Reply]:
    """The requests that come, up to the first of a kind."""
    found = [played.request()]
    while found[-1].kind != kind:
        found.append(played.request())
    return found


def test_an_unlock_leaves_when_all_is_acknowledged(played: Played) -> None:
    """Law: a later holder's puts come after this one's in every log: the unlock is not sent before
    the puts have clock and seq; and it is acknowledged before the call returns."""
    def work() -> None:
        played.user.origin.lock(0, WINDOW)
        played.user.put(0, ONE)
        played.user.origin.unlock(0, WINDOW)

    played.beside(work)
    played.accept()
    assert played.request().kind == Kind.LOCK
    played.reply(Kind.DONE, number=1)
    *before, flush = taken(played, Kind.FLUSH)
    assert [r.kind for r in before] == [Kind.PUT] and played.silent()
    played.acks((2, 1, 5, 6), number=flush.number)
    assert played.request().kind == Kind.UNLOCK and played.threads[-1].is_alive()
    played.reply(Kind.DONE, number=3)
    played.done()
    assert played.user.acks == [(0, Ack(2, 1, 5, 6))] and not played.failures


def test_what_is_not_acknowledged_is_sent_again(played: Played) -> None:
    """Law: to the next agent goes all that has no acknowledgement, in its order and with its
    numbers, then what is waited for; nothing else does."""
    puts(played, 6)
    played.accept()
    first = taken(played, Kind.FLUSH)
    assert [r.number for r in first[:-1]] == [1, 2, 3, 4, 5, 6]
    played.acks((1, 2, 0, 1))
    played.acks((3, 1, 0, 9))
    played.connection.close()
    played.accept()
    again = taken(played, Kind.FLUSH)
    assert [r.number for r in again[:-1]] == [4, 5, 6]
    played.acks((2, 3, 7, 20), (5, 2, 8, 30), number=again[-1].number)
    played.done()
    assert [ack for _, ack in played.user.acks] == [
        Ack(1, 2, 0, 1), Ack(3, 1, 0, 9), Ack(4, 1, 7, 22), Ack(5, 2, 8, 30)]


@pytest.mark.plain
def test_replies_that_nobody_waits_for_are_passed_over(played: Played) -> None:
    """Law: a reply to an earlier request, a repeated one, and one under older roles do nothing."""
    user = played.user
    user.origin.set_timeout(1000)
    played.beside(lambda: user.get(0, 8))
    played.accept()
    early = played.request()
    played.done()  # it is given up
    assert isinstance(played.failures.pop(), Unfinished)
    user.origin.set_timeout(int(1000 * PATIENCE_S))
    played.beside(lambda: user.get(8, 8))
    late = played.request()
    assert late.number != early.number
    played.reply(Kind.DATA, b"tooearly", number=early.number)
    played.reply(Kind.DATA, b"inorder!", number=late.number)
    played.done()
    assert played.results[-1] == b"inorder!"

    played.beside(lambda: user.add(0))
    number = played.request().number
    played.answer(number, 41)
    played.answer(number, 99)
    played.done()
    played.beside(lambda: user.add(0))
    assert played.request().number == number + 1
    played.answer(number, 99)
    played.answer(number + 1, 42)
    played.done()
    assert played.results[-2:] == [41, 42]

    user.origin.take_roles(5, forget=True)
    played.beside(lambda: user.add(0))
    request = taken(played, Kind.FOP)[-1]
    assert (request.number, request.roles_number) == (1, 5)
    played.reply(Kind.ANSWER, struct.pack("<QQQQQ", 3, 4, 8, 99, 100), number=1, roles_number=4)
    played.reply(Kind.ANSWER, struct.pack("<QQQQQ", 3, 4, 8, 7, 8), number=1, roles_number=5)
    played.done()
    assert played.results[-1] == 7


def test_a_reply_comes_byte_by_byte(played: Played) -> None:
    """Law: it counts when it is whole, however it is cut."""
    played.beside(lambda: played.user.get(0, 40))
    played.accept()
    text = message(Kind.DATA, bytes(range(40)), number=played.request().number, window=0)
    for i in range(len(text)):
        played.connection.sendall(text[i : i + 1])
    played.done()
    assert played.results == [bytes(range(40))]


def test_a_changed_reply_is_asked_for_again(played: Played) -> None:
    """Law: a reply of which a bit was changed on its way is none, and is counted; the request goes
    over the next connection."""
    played.beside(lambda: played.user.get(0, 40))
    played.accept()
    data, changed = bytes(range(40)), (0, 4, 20, 47, 48, 63, 64, 70, 103)
    for at in changed:
        text = bytearray(message(Kind.DATA, data, number=played.request().number, window=0))
        text[at] ^= 1 << at % 8
        played.connection.sendall(text)
        played.accept()
    played.reply(Kind.DATA, data, number=played.request().number)
    played.done()
    assert played.results == [data] and played.user.origin.damaged == len(changed)


def test_what_is_sent_back_is_sent_again_once(played: Played) -> None:
    """Law: after a refusal nothing goes to the target before it is live; then RESEND, and all in
    its order. A gap is closed at once; one that cannot be is told."""
    puts(played, 3)
    played.accept()
    taken(played, Kind.FLUSH)
    played.reply(Kind.REJECTED, operand=Why.HELD)
    assert played.silent()
    played.reply(Kind.RELEASE)
    assert [r.kind for r in taken(played, Kind.FLUSH)] == [Kind.RESEND, *[Kind.PUT] * 3, Kind.FLUSH]
    played.acks((1, 1, 0, 1))
    played.reply(Kind.REJECTED, number=1, operand=Why.GAP, offset=1)
    again = taken(played, Kind.FLUSH)
    assert [(r.kind, r.number) for r in again[:-1]] == [
        (Kind.RESEND, 2), (Kind.PUT, 2), (Kind.PUT, 3)]
    played.acks((2, 1, 0, 2))
    played.reply(Kind.REJECTED, number=2, operand=Why.GAP, offset=0)
    played.done()
    (failure,) = played.failures
    assert isinstance(failure, Unfinished) and "lost numbers" in str(failure)


def test_what_was_sent_again_meanwhile_is_not_refused(played: Played) -> None:
    """Law: a refusal of what was sent before the last RESEND is past: who has refused it takes what
    comes now, and has nobody to tell that it is live."""
    puts(played, 1)
    played.accept()
    taken(played, Kind.FLUSH)
    played.acks((1, 1, 0, 1))  # unasked, when the flush has not been read
    played.done()
    played.user.origin.locate(0, 0, 1)
    played.beside(lambda: played.user.origin.number(0))
    again, asked = taken(played, Kind.NUMBER)
    assert again.kind == Kind.RESEND
    played.reply(Kind.REJECTED, operand=Why.HELD)  # of the flush
    played.reply(Kind.DONE, number=asked.number, operand=1)
    played.done()
    puts(played, 1)
    assert [r.kind for r in taken(played, Kind.FLUSH)] == [Kind.PUT, Kind.FLUSH]
    played.acks((2, 1, 0, 2))
    played.done()
    assert not played.failures


def ack(number: int, records: int, target: int = 0) -> bytes:
    return message(Kind.ACK, struct.pack("<QQQQ", number, records, 0, 0), window=0, target=target)


@pytest.mark.parametrize("name,reply", [
    ("an ack of what was not sent", ack(9, 1)), ("an ack of all numbers", ack(1, 2**64 - 2)),
    ("an ack of nothing", ack(1, 0)), ("an ack of more than all", ack(1, 2**64 - 1)),
    ("half an ack", message(Kind.ACK, bytes(20), window=0)),
    ("data", message(Kind.DATA, bytes(64), window=0)),
    ("an answer", message(Kind.ANSWER, bytes(24 + 512), number=1, window=0)),
    ("another target", ack(1, 1, 77)),
    ("a request", message(Kind.PUT, ONE, number=1)),
    ("much", message(Kind.DATA, window=0, length=2**32 - 1)),
    ("nothing that is known", bytes(range(48)) * 3),
])
def test_an_agent_that_talks_nonsense(played: Played, name: str, reply: bytes) -> None:
    """Law: the origin believes none of it: it asks again, or the call ends in words."""
    puts(played, 1)
    played.accept()
    flush = taken(played, Kind.FLUSH)[-1]
    played.connection.sendall(reply)
    if name.startswith("an ack of what") or name == "an ack of all numbers":
        played.done()
        assert "what was not sent" in str(played.failures[0])
        return
    if name in ("half an ack", "a request", "much", "nothing that is known"):
        played.accept()
        flush = taken(played, Kind.FLUSH)[-1]
    played.acks((1, 1, 2, 3), number=flush.number)
    played.done()
    assert played.user.acks == [(0, Ack(1, 1, 2, 3))] and not played.failures


@pytest.mark.parametrize("answer", [
    bytes(24 + 16), struct.pack("<QQQQ", 3, 4, 2**62, 0), struct.pack("<QQQQ", 3, 4, 2**63, 0),
    struct.pack("<QQQQ", 3, 4, 8, 0),
], ids=["long", "says 2**62", "says 2**63", "says 8"])
def test_answers_must_fit(played: Played, answer: bytes) -> None:
    """Law: an answer of another size than what was asked, or that says so of itself, is not
    taken."""
    played.beside(lambda: played.user.origin.atomic(Kind.FOP, Op.SUM, Type.I32, 0, WINDOW, 0,
                                                    bytes(4)))
    played.accept()
    number = played.request().number
    played.reply(Kind.ANSWER, answer, number=number)
    played.done()
    (failure,) = played.failures
    assert isinstance(failure, Unfinished) and failure.result == WireResult.REFUSED
    assert "something else" in str(failure)
