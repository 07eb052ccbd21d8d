"""The door of an agent: it lets nobody in, and no origin believes it, without proof of the key."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from wirenode import HEAD_BYTES, PATIENCE_S, WORDS, Node, Raw, User, message, served
from wirenode import engine as engine

import ftrma
from ftrma.fabric import agents, link
from ftrma.host import timeouts
from ftrma.host.errors import FtrmaError
from ftrma.host.key import NONCE_BYTES, TAG_BYTES, Key
from ftrma.host.listening import Bind
from ftrma.launch import agent as agent_process
from ftrma.launch import connections
from ftrma.native import wire
from ftrma.native.wire import Kind, Unfinished, WireResult

ONE = (1).to_bytes(8, "little")
SOON_S = 0.3


@pytest.fixture(scope="module")
def node(engine: str) -> Iterator[Node]:
    with served(origins=64) as made:
        made.reach()
        yield made


def works(node: Node) -> None:
    """The agent is well."""
    user = User(node, node.fresh())
    user.put(0, ONE)
    user.origin.flush(0)
    user.close()


def test_without_the_key_nobody_is_let_in(node: Node) -> None:
    """Law: an origin with another key is never served; its waits end, and it knows why."""
    user = User(node, node.fresh(), key=Key.make(), patience_s=SOON_S)
    user.put(0, b"\xff" * 8)
    with pytest.raises(Unfinished) as caught:
        user.origin.flush(0)
    assert caught.value.result == WireResult.TIMEOUT and user.asking.trouble
    assert node.part()[7] == 0
    user.close()
    works(node)


def test_the_key_of_the_wire_is_its_own(node: Node) -> None:
    """Law: an answer to a challenge of the supervisor's opens no agent, and the other way round."""
    assert agents.key_of_wire(node.key).secret != node.key.secret
    address = node.reach()
    with (socket.create_connection((address.addresses[0], address.port), PATIENCE_S) as made,
          pytest.raises(link.CutOff)):
        said = agents.hello(0, 0, socket.gethostname())
        link.introduce(made, node.key, agents.hello_line(node.key, said))
    works(node)


@pytest.mark.parametrize("said,why", [
    ({"ftrma": "0.0.9"}, rf"the agent is of ftrma {ftrma.__version__}, and who asks of '0\.0\.9'"),
    ({"format": 99}, rf"messages have format {wire.FORMAT}, and who asks has 99"),
    ({"engine": "pigeons"}, r"go by the engine \w+, and who asks has 'pigeons'"),
    ({"kind": "link"}, "for the wire between nodes alone"),
    ({"origin": -1}, "has no origin"), ({"origin": "0"}, "has no origin"),
    ({"origin": True}, "has no origin"), ({"incarnation": None}, "has no incarnation"),
    ({"origin": 64}, "serving origin 64"),
])
def test_a_mismatch_is_told_in_words(node: Node, said: dict[str, object], why: str) -> None:
    """Law: who knows the key and does not fit learns what is wrong, and is not served."""
    raw = Raw(node, **said)
    assert raw.welcome["event"] == "refused"
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(raw.welcome["why"])
    assert raw.receive() is None
    raw.close()
    works(node)


def test_an_origin_that_is_refused_knows_why(node: Node) -> None:
    """Law: a refusal in words ends the call with them, at once."""
    user = User(node, node.fresh())
    user.asking.said["ftrma"] = "0.0.9"
    with pytest.raises(Unfinished, match="install one version on all nodes") as caught:
        user.get(0, 8)
    assert caught.value.result == WireResult.REFUSED
    user.close()


def test_an_agent_of_another_host_is_passed_over(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: an address that leads to another agent of the job, as that of a bridge which each host
    has may, is not the one; that none leads to the right one is told after a while."""
    monkeypatch.setitem(timeouts.chosen, "agent-reach", SOON_S)
    user = User(node, node.fresh())
    user.asking.find = lambda number: replace(node.reach(), host="node7")
    began = time.monotonic()
    with pytest.raises(Unfinished, match="has not reached the agent of node7, .*"
                       f"the agent of {socket.gethostname()} is not that of 'node7'") as caught:
        user.get(0, 8)
    assert caught.value.result == WireResult.REFUSED and time.monotonic() - began >= SOON_S
    user.close()


def test_who_speaks_before_the_welcome_is_refused(node: Node) -> None:
    """Law: no request comes with the hello."""
    address = node.reach()
    key = agents.key_of_wire(node.key)
    with socket.create_connection((address.addresses[0], address.port), PATIENCE_S) as made:
        text = link.line("hello", **agents.hello(node.fresh(), 0, socket.gethostname()))
        answer = link.introduce(made, key, text + message(Kind.PUT, b"\xff" * 8, number=1))
    assert answer["event"] == "refused" and node.part()[7] == 0
    works(node)


@pytest.mark.parametrize("noise", [
    b"GET / HTTP/1.1\r\n\r\n" + bytes(64), b"[" * 60_000 + b"\n", b"x" * 1_000_000,
    message(Kind.PUT, b"\xff" * 8, number=1) * 4, bytes(NONCE_BYTES + TAG_BYTES),
], ids=["http", "brackets", "much", "messages", "zeros"])
def test_strangers_are_not_parsed(node: Node, noise: bytes) -> None:
    """Law: whatever somebody says who has not answered the challenge, the connection ends and
    nothing is written."""
    address = node.reach()
    with socket.create_connection((address.addresses[0], address.port), PATIENCE_S) as made:
        with contextlib.suppress(OSError):
            made.sendall(noise)
        with contextlib.suppress(ConnectionResetError):
            while made.recv(4096):
                pass
    assert node.part()[7] == 0
    works(node)


def test_behind_the_key_a_hello_is_still_looked_at(node: Node) -> None:
    """Law: even who knows the key cannot end the agent by what it says."""
    for text in (b"\n", b"null\n", b"[]\n", b"{" * 20_000 + b"\n", b"[" * 20_000 + b"\n",
                 b"\xff\xfe\n", b'{"event": "hello"}\n'):
        address = node.reach()
        with socket.create_connection((address.addresses[0], address.port), PATIENCE_S) as made:
            answer = link.introduce(made, agents.key_of_wire(node.key), text)
        assert answer["event"] == "refused", text
    works(node)


def test_many_strangers_keep_nobody_out(node: Node) -> None:
    """Law: those who connect and say nothing share some places; an origin comes in beside them,
    and one that is served is not disturbed."""
    address = node.reach()
    served_before = User(node, node.fresh())
    served_before.put(0, ONE)
    served_before.origin.flush(0)
    with contextlib.ExitStack() as stack:
        for _ in range(3 * connections.STRANGERS):
            stack.enter_context(
                socket.create_connection((address.addresses[0], address.port), PATIENCE_S))
        works(node)
        served_before.put(8, ONE)
        served_before.origin.flush(0)
        assert node.agent
        open_files = len(list(Path(f"/proc/{node.agent.pid}/fd").iterdir()))
        assert open_files < 2 * connections.STRANGERS
    served_before.close()


@pytest.mark.plain
def test_a_stranger_has_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: silence and half an answer end after a while, and the agent wakes up for it."""
    assert timeouts.STRANGER.s == 5.0
    monkeypatch.setitem(timeouts.chosen, "stranger", SOON_S)
    node = Node()
    agent = wire.agent_open(node.ledger_path)
    assert agent and wire.agent_open(node.ledger_path) is None  # there is one at a time
    door = agent_process.AgentListener(node.key, Bind("127.0.0.1"), agent)
    wire.agent_watch(agent, door.fileno())
    assert door.address
    strangers = []
    for half in (b"", secrets.token_bytes(NONCE_BYTES)):
        strangers.append(socket.create_connection(("127.0.0.1", door.address.port), PATIENCE_S))
        strangers[-1].sendall(half)
    deadline, seen = time.monotonic() + PATIENCE_S, 0
    while seen < 2 or door.peers:
        assert time.monotonic() < deadline
        wire.agent_serve(agent, agent_process.LOOK_MS)
        door.pump()
        seen = max(seen, len(door.peers))
    for stranger in strangers:
        assert len(stranger.recv(100)) == NONCE_BYTES and stranger.recv(1) == b""
        stranger.close()
    door.close()
    wire.agent_close(agent)
    node.close()


def test_who_listens_must_know_the_key() -> None:
    """Law: an origin sends nothing to who cannot prove the key, though he holds the port."""
    node, told = Node(), list[bytes]()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def impostor() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(bytes(NONCE_BYTES))
                connection.recv(NONCE_BYTES + TAG_BYTES)
                connection.sendall(bytes(TAG_BYTES) + link.line("welcome"))
                with contextlib.suppress(ConnectionResetError):
                    told.append(connection.recv(100))

        thread = threading.Thread(target=impostor)
        thread.start()
        agent_process.publish(link.Address("h", listener.getsockname()[1], ("127.0.0.1",)),
                              node.directory / "address")
        user = User(node, patience_s=SOON_S)
        user.put(0, b"secret!!")
        with pytest.raises(Unfinished):
            user.origin.flush(0)
        thread.join(PATIENCE_S)
    assert told in ([], [b""])
    user.close()
    node.close()


def test_the_alarm_ends_the_wait_for_who_says_nothing() -> None:
    """Law: a listener that accepts and is silent holds nobody up when the alarm rings."""
    node = Node()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent_process.publish(link.Address("h", listener.getsockname()[1], ("127.0.0.1",)),
                              node.directory / "address")
        user = User(node)
        threading.Timer(0.1, user.origin.ring).start()
        started = time.monotonic()
        with pytest.raises(Unfinished) as caught:
            user.get(0, 8)
        assert caught.value.result == WireResult.ALARM and time.monotonic() - started < 4
        user.close()
    node.close()


def test_a_ledger_is_looked_at(tmp_path: Path) -> None:
    """Law: what is no whole ledger of this user's is not served, nor a part shorter than said."""
    path = tmp_path / "ledger"
    with pytest.raises(FtrmaError, match="No such file"):
        wire.agent_open(path)
    wire.ledger_make(path, origins=2, targets=1, parts=1)
    with pytest.raises(FtrmaError, match="exists"):
        wire.ledger_make(path, origins=2, targets=1, parts=1)
    whole = path.read_bytes()
    for bad in (b"", whole[:100], whole[:-64], b"\xff" * len(whole),
                whole[:16] + b"\xff" * 16 + whole[32:]):
        path.write_bytes(bad)
        with pytest.raises(FtrmaError, match="Invalid"):
            wire.agent_open(path)
    path.write_bytes(whole)
    path.chmod(0o644)
    with pytest.raises(FtrmaError, match="permitted"):
        wire.agent_open(path)
    with served() as node:
        with pytest.raises(FtrmaError):
            wire.ledger_place(node.ledger, 0, window=7, target=0, generation=1, file="../x", at=0,
                              size_bytes=8, words=WORDS, head_bytes=WORDS)
        wire.ledger_place(node.ledger, 0, window=7, target=0, generation=2, file="part-0",
                          at=HEAD_BYTES, size_bytes=(1 << 20) + 1, words=WORDS,
                          head_bytes=WORDS)
        user = User(node, patience_s=SOON_S)
        user.origin.locate(0, 0, 2)
        with pytest.raises(Unfinished) as caught:
            user.get(1 << 20, 1)
        assert caught.value.result == WireResult.TIMEOUT
        node.place(0, 3)
        user.origin.locate(0, 0, 3)
        user.origin.set_timeout(int(1000 * PATIENCE_S))
        assert user.get(0, 8) == bytes(8)
        user.close()
