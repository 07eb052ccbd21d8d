"""Hubs and spokes mirror only with those that fit, and believe only possible messages."""

from __future__ import annotations

import re
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirrornodes import (
    FEW,
    FIRST_FLAG,
    FLAGS,
    MANY_WORDS,
    PATIENCE_S,
    REGIONS,
    Looks,
    Mirrored,
    mirrors,
    settle,
    wait_until,
)
from wirenode import HEAD, Raw, message

from ftrma.fabric import agents, link
from ftrma.host.errors import FtrmaError
from ftrma.host.key import NONCE_BYTES, TAG_BYTES
from ftrma.launch import agent as agent_process
from ftrma.native import wire
from ftrma.native.wire import Kind, MirrorKind

pytestmark = pytest.mark.plain  # its tests take seconds

WORD = struct.Struct("<QQ")  # struct ftrma_wire_word


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Mirrored]]:
    """Three nodes for tests that leave no alarm pending."""
    with mirrors() as made:
        yield made


def regions_of(hub: Mirrored) -> str:
    """The hash that the hub wants to hear."""
    raw = Raw(hub, kind="mirror", node=2, regions="")
    raw.close()
    found = re.search(r"mirrors the regions (\w+),", raw.welcome["why"])
    assert found
    return found[1]


@pytest.fixture(scope="module")
def spokeless() -> Iterator[Mirrored]:
    """A hub to which tests come as spokes."""
    with mirrors(1) as (hub,):
        yield hub


@pytest.fixture
def spoke(spokeless: Mirrored) -> Iterator[Raw]:
    made = Raw(spokeless, kind="mirror", node=2, regions=regions_of(spokeless))
    assert made.welcome["event"] == "welcome"
    yield made
    made.close()


def words(*pairs: tuple[int, int]) -> bytes:
    return b"".join(WORD.pack(*pair) for pair in pairs)


def greet(spoke: Raw) -> int:
    """The number of the spoke's messages that the hub has taken; all words follow."""
    answer, left = spoke.ask(message(Kind.MIRRORED)), MANY_WORDS + 3 * FEW + 2
    assert answer.kind == Kind.MIRRORED
    while left:
        reply = spoke.receive()
        assert reply and reply.kind == Kind.MIRROR and reply.number == 0
        left -= len(reply.payload) // WORD.size
    return answer.number


def test_a_message_is_taken_once(spokeless: Mirrored, spoke: Raw) -> None:
    """Law: the hub takes a message of a spoke once, by its number, acknowledges it as often as it
    comes, and tells a spoke that comes again what it has taken; the newer connection counts."""
    first = greet(spoke) + 1
    one = message(Kind.MIRROR, words((FIRST_FLAG, 1)), number=first)
    assert spoke.ask(one).number == first and int(spokeless.words[FLAGS]) == 1
    spokeless.words[FLAGS] = 2  # what somebody has answered
    assert spoke.ask(one).number == first and int(spokeless.words[FLAGS]) == 2
    again = Raw(spokeless, kind="mirror", node=2, regions=regions_of(spokeless))
    assert greet(again) == first
    while reply := spoke.receive():
        assert reply.kind == Kind.MIRROR  # the 2
    again.close()


def test_a_change_of_the_hubs_that_was_not_sent_stays(spokeless: Mirrored, spoke: Raw) -> None:
    """Law: the same at the hub: the spoke is told of it behind the acknowledgement."""
    first = greet(spoke) + 1
    assert spokeless.agent
    spokeless.awaits_sleep()  # and is not stopped in front of a look
    spokeless.agent.send_signal(signal.SIGSTOP)
    spoke.send(message(Kind.MIRROR, words((FIRST_FLAG + 1, 5)), number=first))
    spokeless.words[FLAGS + 1] = 6
    spokeless.agent.send_signal(signal.SIGCONT)
    acknowledged, told = spoke.receive(), spoke.receive()
    assert acknowledged and acknowledged.kind == Kind.MIRRORED and acknowledged.number == first
    assert told and told.payload == words((FIRST_FLAG + 1, 6))
    assert int(spokeless.words[FLAGS + 1]) == 6


@pytest.mark.parametrize("data,why", [
    (message(Kind.MIRROR), "a number is missing"),
    (message(Kind.MIRROR, bytes(24), number=1), "half a word"),
    (message(Kind.MIRROR, bytes(wire.PAYLOAD_BYTES + 16), number=1), "too long"),
    (message(Kind.MIRROR, words((FIRST_FLAG, 0))), "a number is missing"),
    (message(Kind.MIRROR, words((0, 0), (MANY_WORDS + 3 * FEW + 2, 0)), number=1 << 40),
     "a word outside of the regions"),
    (message(Kind.MIRROR, words((2**64 - 1, 0)), number=1 << 40), "a word outside of the regions"),
    (message(Kind.MIRRORED, bytes(8)), "too long"),
    (message(Kind.GET, operand=8), "only words of the mirror go between agents"),
    (message(Kind.MIRROR, words((0, 0)), number=1, format_=1), "another format"),
    (message(Kind.DONE), "not a request"),
], ids=["empty", "half", "long", "number", "outside", "beyond", "body", "get", "format", "reply"])
def test_a_malformed_message_ends_its_connection(
    spokeless: Mirrored, spoke: Raw, data: bytes, why: str
) -> None:
    """Law: a spoke that talks nonsense is told why and loses its connection; nothing is stored."""
    greet(spoke)
    before = bytes(spokeless.words)[8:]
    reply = spoke.ask(data)
    assert reply.kind == Kind.BROKEN and why in reply.payload.decode()
    assert spoke.receive() is None
    assert bytes(spokeless.words)[8:] == before


def test_a_message_without_words_is_acknowledged(spokeless: Mirrored, spoke: Raw) -> None:
    """Law: it is taken as any other one, and nobody is told."""
    other = Raw(spokeless, kind="mirror", node=3, regions=regions_of(spokeless))
    first = greet(spoke) + 1
    greet(other)
    for number in (first, first, first + 1):
        reply = spoke.ask(message(Kind.MIRROR, number=number))
        assert (reply.kind, reply.number) == (Kind.MIRRORED, number)
    one = message(Kind.MIRROR, words((FIRST_FLAG + 2, 3)), number=first + 2)
    assert spoke.ask(one).number == first + 2
    told = other.receive()
    assert told and told.payload == words((FIRST_FLAG + 2, 3))
    other.close()


def test_words_come_behind_the_greeting(spoke: Raw) -> None:
    """Law: a spoke that has not asked what was taken sends no words."""
    reply = spoke.ask(message(Kind.MIRROR, words((FIRST_FLAG, 9)), number=1 << 40))
    assert reply.kind == Kind.BROKEN and b"before what was taken is known" in reply.payload


@pytest.mark.parametrize("node", [0, 1], ids=["hub", "spoke"])
@pytest.mark.parametrize("kind", [Kind.MIRROR, Kind.MIRRORED, Kind.BROKEN])
def test_an_origin_mirrors_nothing(nodes: list[Mirrored], node: int, kind: Kind) -> None:
    """Law: of what agents say to each other an origin can say nothing, to no agent."""
    raw = Raw(nodes[node], 1)
    body = b"" if kind == Kind.MIRRORED else words((FIRST_FLAG, 9))
    reply = raw.ask(message(kind, body, number=1))
    assert reply.kind == Kind.BROKEN and reply.payload == b"not a request"
    assert raw.receive() is None
    raw.close()


@pytest.mark.parametrize("said,why", [
    ({"regions": "0123456789abcdef"}, "the hub mirrors the regions .* install one build"),
    ({"node": 0}, "has no node of a spoke"), ({"node": True}, "has no node of a spoke"),
    ({"node": wire.NODES}, "has no node of a spoke"), ({"node": "1"}, "has no node of a spoke"),
    ({"format": 2}, "messages have format"), ({"ftrma": "0.0.9"}, "install one version"),
])
def test_a_spoke_that_does_not_fit_is_refused(
    spokeless: Mirrored, said: dict[str, object], why: str
) -> None:
    """Law: a spoke that knows the key and does not fit learns why, and is not let in."""
    raw = Raw(spokeless, **{"kind": "mirror", "node": 1, "regions": regions_of(spokeless), **said})
    assert raw.welcome["event"] == "refused" and re.search(why, raw.welcome["why"])
    assert raw.receive() is None
    raw.close()


def test_only_the_hub_has_spokes(nodes: list[Mirrored]) -> None:
    """Law: nobody comes to a spoke as another node, nor to an agent that mirrors nothing."""
    for stranger in (0, 1, 2):
        raw = Raw(nodes[1], kind="mirror", node=stranger, regions=regions_of(nodes[0]))
        assert "the agent of node 1 is not the hub of a mirror" in raw.welcome["why"]
        raw.close()
    said = agents.hello_of_node(1, "", "here")
    assert "is not the hub" in agents.refusal({"event": "hello", **said}, "here")


def test_other_regions_end_the_spoke() -> None:
    """Law: a spoke whose regions are others ends, with the hub's words."""
    with mirrors(1) as (hub,):
        other = Mirrored(1, hub.key, REGIONS[:-1])
        try:
            other.hub = hub
            other.start()
            assert other.ended() == 1
            assert "the hub mirrors the regions" in other.said()
        finally:
            other.close()


def serve_as_hub(listener: socket.socket, spoke: Mirrored, acked: int = 0) -> socket.socket:
    """Take a spoke's connection as its hub does, up to the spoke's greeting.

    Args:
        acked: what the spoke was told last.
    """
    connection, _ = listener.accept()
    connection.settimeout(PATIENCE_S)
    key, challenge = agents.key_of_wire(spoke.key), bytes(NONCE_BYTES)
    connection.sendall(challenge)
    lines = connection.makefile("rb")
    answer = lines.read(NONCE_BYTES + TAG_BYTES)
    connection.sendall(key.proof(challenge, answer[:NONCE_BYTES]))
    assert b'"mirror"' in lines.readline()
    connection.sendall(link.line("welcome"))
    greeting = message(Kind.MIRRORED, number=acked, generation=0)
    assert lines.read(len(greeting)) == greeting
    return connection


def taken(connection: socket.socket) -> tuple[int, bytes]:
    """Number and words of a message of the spoke's."""
    head = HEAD.unpack(connection.recv(HEAD.size, socket.MSG_WAITALL))
    assert head[0] == Kind.MIRROR
    return head[4], connection.recv(head[3], socket.MSG_WAITALL) if head[3] else b""


@pytest.mark.parametrize("data,why", [
    (message(Kind.MIRROR, words((FIRST_FLAG, 1))), "words before what was taken is known"),
    (message(Kind.MIRRORED) + message(Kind.MIRROR, words((0, 1)), number=1), "where there is none"),
    (message(Kind.MIRRORED) + message(Kind.MIRROR, words((1 << 60, 1))), "outside of the regions"),
    (message(Kind.MIRRORED) * 2, "what was never sent is acknowledged"),
    (message(Kind.BROKEN, b"for a reason"), "the mirror: for a reason"),
], ids=["early", "number", "outside", "acknowledged", "broken"])
def test_a_hub_that_talks_nonsense_ends_the_spoke(data: bytes, why: str) -> None:
    """Law: what a hub says that cannot be ends the spoke's agent, with the reason."""
    with (socket.create_server(("127.0.0.1", 0)) as listener,
          mirrors(2, start=False) as (_, spoke)):
        listener.settimeout(PATIENCE_S)
        spoke.hub = None
        spoke.start()
        spoke.join(link.Address(socket.gethostname(), listener.getsockname()[1], ("127.0.0.1",)))
        with serve_as_hub(listener, spoke) as connection:
            connection.sendall(data)
            assert spoke.ended() == 1
        assert why in spoke.said()
        assert not spoke.words[1:].any()


def test_nothing_is_settled_before_all_words_have_come() -> None:
    """Law: what a hub has taken is settled, over a new connection, behind all words that come with
    it: others may have been ordered before."""
    with (socket.create_server(("127.0.0.1", 0)) as listener,
          mirrors(2, start=False) as (_, spoke)):
        listener.settimeout(PATIENCE_S)
        spoke.hub = None
        spoke.start()
        spoke.join(link.Address(socket.gethostname(), listener.getsockname()[1], ("127.0.0.1",)))
        looks = Looks(spoke)
        with serve_as_hub(listener, spoke) as connection:
            connection.sendall(message(Kind.MIRRORED))
            assert taken(connection) == (1 + 1, b"")
            connection.sendall(message(Kind.MIRRORED, number=2))
            looks.synchronize()
            spoke.words[FLAGS] = 5
            goal = looks.begin()
            assert taken(connection) == (3, words((FIRST_FLAG, 5)))
        with serve_as_hub(listener, spoke, acked=2) as connection:
            connection.sendall(message(Kind.MIRRORED, number=3))
            number, said = taken(connection)
            assert said == b"" and not looks.is_settled(goal)
            connection.sendall(message(Kind.MIRROR, words((FIRST_FLAG + 1, 7))))
            connection.sendall(message(Kind.MIRRORED, number=number))
            wait_until(lambda: looks.is_settled(goal), "never settled")
            assert int(spoke.words[FLAGS + 1]) == 7
            looks.node.awaits_sleep()
            connection.settimeout(0.05)
            with pytest.raises(TimeoutError):
                connection.recv(1)  # one message without words is enough


@pytest.mark.parametrize("regions", [
    [], [(0, 8, MirrorKind.BELL)], [(4, 8, MirrorKind.WORDS)], [(0, 4, MirrorKind.WORDS)],
    [(0, 0, MirrorKind.WORDS)], [(0, 16, MirrorKind.WORDS), (8, 8, MirrorKind.HOT)],
    [(0, 8, MirrorKind.ALARM)], [(0, 16, MirrorKind.ALARM), (16, 8, MirrorKind.CALM)],
    [(0, 1 << 30, MirrorKind.WORDS)], [(1 << 63, 1 << 63, MirrorKind.WORDS)],
], ids=["none", "bell", "odd", "half", "empty", "twice", "alarm", "long", "beyond", "wrapped"])
def test_regions_that_cannot_be(tmp_path: Path, regions: list[tuple[int, int, MirrorKind]]) -> None:
    """Law: no mirror is made of regions that are not whole words of the file, each in one."""
    (tmp_path / "control").write_bytes(bytes(4096))
    with pytest.raises(FtrmaError, match="Invalid"):
        wire.mirror_make(tmp_path / "mirror", "control", regions)
    assert not (tmp_path / "mirror").exists()


def test_a_state_is_looked_at(tmp_path: Path) -> None:
    """Law: what is no whole state of a mirror of this user's is not taken up."""
    (tmp_path / "control").write_bytes(bytes(4096))
    wire.ledger_make(tmp_path / "ledger", origins=1, targets=1, parts=1)
    path = tmp_path / "mirror"
    wire.mirror_make(path, "control", [(0, 64, MirrorKind.WORDS)])
    with pytest.raises(FtrmaError, match="exists"):
        wire.mirror_make(path, "control", [(0, 64, MirrorKind.WORDS)])
    whole = path.read_bytes()
    agent = wire.agent_open(tmp_path / "ledger")
    assert agent
    for bad in (b"", whole[:100], whole[:-64], b"\xff" * len(whole),
                whole[:24] + b"\xff" * 16 + whole[40:]):
        path.write_bytes(bad)
        with pytest.raises(FtrmaError, match="Invalid"):
            wire.agent_mirror(agent, path, 0)
    path.write_bytes(whole)
    path.chmod(0o644)
    with pytest.raises(FtrmaError, match="permitted"):
        wire.agent_mirror(agent, path, 0)
    path.chmod(0o600)
    (tmp_path / "control").write_bytes(bytes(32))
    with pytest.raises(FtrmaError, match="Invalid"):
        wire.agent_mirror(agent, path, 0)
    (tmp_path / "control").write_bytes(bytes(4096))
    wire.agent_mirror(agent, path, 0)
    assert wire.agent_regions(agent)
    wire.agent_close(agent)


def test_a_line_that_is_no_address(nodes: list[Mirrored]) -> None:
    """Law: the hub's address may be said again, and in pieces; other lines mean nothing."""
    assert agent_process.HUB == b"hub "
    spoke, text = nodes[2], nodes[0].address().text()
    assert spoke.agent and spoke.agent.stdin
    for piece in ("something\n", "hub ", text[:5], text[5:] + "\n"):
        spoke.agent.stdin.write(piece.encode())
        spoke.agent.stdin.flush()
    settle(nodes)
