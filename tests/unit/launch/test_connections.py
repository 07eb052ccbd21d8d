"""Connections to the supervisor: strangers are not let in and cost the job nothing; output of ranks
is copied, and their traces are kept.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import secrets
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rankboard import PATIENCE_S, Board
from rankboard import board as board

from ftrma.fabric import link
from ftrma.host import timeouts
from ftrma.host.errors import FtrmaError
from ftrma.host.key import NONCE_BYTES, TAG_BYTES, Key
from ftrma.launch import connections, ranklinks
from ftrma.launch.job import Cause
from ftrma.launch.ranklinks import RankLinks

pytestmark = pytest.mark.plain  # its tests take seconds


def test_address_survives_the_environment() -> None:
    """Law: parse(text) is the address."""
    address = link.Address("node1", 4711, ("10.0.0.1", "127.0.0.1"))
    assert link.Address.parse(address.text()) == address


def test_a_stranger_is_turned_away(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: without the key there is no answer, and nobody has come."""
    monkeypatch.setitem(timeouts.chosen, "knock", 0.0)
    with pytest.raises(FtrmaError, match=r"127\.0\.0\.1: refused"):
        board.connect(0, key=Key.make())
    assert not board.board.ranks.links and not board.board.spread


def test_who_listens_must_know_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a rank obeys nobody who cannot prove the key, though he holds the right port."""
    monkeypatch.setitem(timeouts.chosen, "knock", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def impostor() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(bytes(NONCE_BYTES))
                connection.recv(NONCE_BYTES + TAG_BYTES)
                connection.sendall(bytes(TAG_BYTES) + link.line("hello", resume=True))
                told.append(receive(connection))

        told: list[bytes] = []
        thread = threading.Thread(target=impostor)
        thread.start()
        address = link.Address("far", listener.getsockname()[1], ("127.0.0.1",))
        with pytest.raises(FtrmaError, match="does not know the job's key"):
            link.connect(address, Key.make(), "link", rank=0)
        thread.join(PATIENCE_S)
        assert told == [b""]


def test_an_answer_does_not_serve_twice(board: Board) -> None:
    """Law: what was heard on the network lets nobody in: each challenge is new."""
    answers = []
    for _ in range(2):
        connection = board.stranger()
        board.until(lambda: len(board.board.connections.peers) == len(board.open))
        challenge = connection.recv(NONCE_BYTES)
        answers.append((challenge, nonce := secrets.token_bytes(NONCE_BYTES),
                        board.key.answer(challenge, nonce)))
    first, second = board.open
    second.sendall(answers[0][1] + answers[0][2])
    board.until(lambda: len(board.board.connections.peers) == 1)
    first.sendall(answers[0][1] + answers[0][2])
    peers = board.board.connections.peers
    board.until(lambda: peers[next(iter(peers))].kind == "new")
    assert first.recv(TAG_BYTES) == board.key.proof(answers[0][0], answers[0][1])


NOISE = [
    b"GET / HTTP/1.1\r\n\r\n" + bytes(64), b"[" * 60_000 + b"\n", b"{" * 100_000,
    link.line("hello", kind="link", rank=0, pid=1, host="x") * 3, b"x" * 1_000_000,
    secrets.token_bytes(NONCE_BYTES + TAG_BYTES), secrets.token_bytes(200), b"\n" * 100,
]


def test_of_a_stranger_nothing_is_parsed(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: noise of any kind and size is cut off, half an answer and silence after a while, and a
    rank comes in beside them."""
    monkeypatch.setitem(timeouts.chosen, "stranger", 0.3)
    monkeypatch.setattr(ranklinks.json, "loads", lambda text: pytest.fail("it was parsed"))
    for noise in NOISE:
        connection = board.stranger()
        board.until(lambda: len(board.board.connections.peers) == 1)
        threading.Thread(target=push, args=(connection, noise)).start()
        board.until(lambda: not board.board.connections.peers)
    for half in (b"", b"x", secrets.token_bytes(NONCE_BYTES + TAG_BYTES - 1)):
        board.stranger().sendall(half)
    board.until(lambda: len(board.board.connections.peers) == 3)
    board.until(lambda: not board.board.connections.peers)
    monkeypatch.undo()
    board.connect(0)
    assert board.board.ranks.links[0].open


def receive(connection: socket.socket) -> bytes:
    """Receive a message; nothing if the connection is cut."""
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


def push(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # cut off in the middle
        connection.sendall(data)


@pytest.mark.parametrize("descriptors", [connections.STRANGERS + 200, connections.STRANGERS // 2])
def test_many_strangers_cost_the_job_nothing(board: Board, descriptors: int) -> None:
    """Law: 1,100 idle connections, with and without descriptors for as many as may wait at a time:
    links stay, a rank is let in, and the descriptors in use are bounded."""
    board.connect(0)
    siege = f"""
import socket, sys, time
held = []
for _ in range(1100):
    held.append(socket.create_connection(("127.0.0.1", {board.address.port})))
print("here", flush=True)
sys.stdin.read()
"""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    with subprocess.Popen(
        [sys.executable, "-c", f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, "
         f"(1500, {before[1]}))\n{siege}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as besieger:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20 + descriptors, before[1]))
        try:
            said: list[bytes] = []
            assert besieger.stdout and besieger.stdin
            reader = threading.Thread(target=lambda: said.append(besieger.stdout.readline()))
            reader.start()
            board.until(lambda: bool(said))
            assert said == [b"here\n"]
            board.connect(1)
            assert len(board.board.connections.peers) <= connections.STRANGERS + 2
            assert board.board.ranks.links[0].open and not board.board.ranks.deaths
        finally:
            besieger.kill()
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_who_makes_room_for_another_holds_nothing_up(board: Board) -> None:
    """Law: a descriptor that one stranger leaves to the next in the middle of a turn is not waited
    for, whatever the first one had sent."""
    for _ in range(connections.STRANGERS):
        board.stranger()
        board.until(lambda: len(board.board.connections.peers) == len(board.open))
    oldest = board.open[0]
    oldest.sendall(b"x")
    newcomer = board.stranger()
    time.sleep(0.05)  # both are ready in one turn now
    began = time.monotonic()
    board.until(lambda: newcomer.getsockname() in {
        peer.socket.getpeername() for peer in board.board.connections.peers.values()})
    assert time.monotonic() - began < 0.5


def test_one_node_has_no_port() -> None:
    """Law: where nobody has to connect, nobody can."""
    board = RankLinks(2, Key.make(), None, lambda event: None, list, None, {},
                        lambda rank, clock: io.BytesIO(), lambda connection: None)
    assert board.connections.listener is None and board.address is None
    board.pump()
    board.close()


def test_nobody_listens_is_told() -> None:
    """Law: the error names the hosts, the port, what was tried, and the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(FtrmaError, match=f"supervisor on far, port {port} .*refused.*by TCP"):
        link.connect(link.Address("far", port, ("127.0.0.1",)), Key.make(), "link")


def test_the_last_sign_of_life() -> None:
    """Law: what has come last on a connection, if only an acknowledgement, is known."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(
            listener.getsockname()) as one:
        other, _ = listener.accept()
        with other:
            time.sleep(0.3)
            assert 0.2 < connections.silent_s(one) < 5
            one.sendall(b"x")
            deadline = time.monotonic() + 5
            while connections.silent_s(one) > 0.1:
                assert time.monotonic() < deadline
            other.sendall(b"x")
            assert connections.silent_s(one) < 0.2


def test_output_is_copied(board: Board, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Law: every byte arrives on the stream it was written to."""
    out, err = board.connect(0, kind="out")[0], board.connect(0, kind="err")[0]
    data = bytes(range(256)) * 1000
    threading.Thread(target=lambda: (out.sendall(data), out.close())).start()
    err.sendall(b"two")
    err.close()
    board.until(lambda: not board.board.connections.peers)
    assert capfdbinary.readouterr() == (data, b"two")


def test_traces_are_kept_as_they_come(tmp_path: Path) -> None:
    """Law: what a rank of a launch traces is a file of its own, whole up to its end."""
    for entry in (1, 5):
        board = Board(cause=Cause("", (), 0.0, 0.0, (), entry), directory=tmp_path)
        connection, _ = board.connect(1, kind="trace")
        connection.sendall(b"abc")
        connection.sendall(b"\n" * 100_000 + bytes([entry]))
        connection.close()
        board.board.close()
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files == {f"trace-1@node1 {entry}": b"abc" + b"\n" * 100_000 + bytes([entry])
                     for entry in (1, 5)}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_later_processes_of_two_attempts_trace_into_a_file_each(tmp_path: Path) -> None:
    """Law: they have the same numbers in each attempt of a launch."""
    board = Board(directory=tmp_path)
    streams: list[int] = []

    def open_stream(attempt: int) -> None:
        streams.append(link.trace_stream(board.address, board.key, 4, attempt=attempt))

    for attempt in (1, 2):
        thread = threading.Thread(target=open_stream, args=(attempt,))
        thread.start()
        board.until(lambda attempt=attempt: len(streams) == attempt)  # type: ignore[misc]
        thread.join()
        os.write(streams[-1], b"x" * 144 * attempt)
        os.close(streams[-1])
    board.board.close()
    host = socket.gethostname()
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        f"trace-4-1@{host} 1": 144, f"trace-4-2@{host} 1": 288}
    board.close()


def test_a_trace_that_fills_the_disk_costs_the_trace_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Law: who traces goes on, and is told once."""
    board = Board(directory=tmp_path)
    connection, _ = board.connect(0, kind="trace")
    (peer,) = board.board.connections.passing()
    with open("/dev/full", "wb", buffering=0) as peer.file:
        for _ in range(3):
            connection.sendall(b"x" * 144)
            board.board.pump(0.05)
    assert board.board.connections.passing() == [peer]
    assert capfd.readouterr().err == (
        "ftrma: warning: the trace of rank 0 ends here: No space left on device\n")
    board.close()


@pytest.mark.parametrize("full", ["twice", "no room"])
def test_a_trace_that_cannot_be_kept_costs_the_trace_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """Law: a rank that comes twice by one name, and one that comes when shared memory is short,
    go on, and what was kept is whole records."""
    board = Board(directory=tmp_path)
    first, _ = board.connect(0, kind="trace")
    if full == "twice":
        second, _ = board.connect(0, kind="trace")
        second.sendall(b"x" * 144)
    else:
        first.sendall(b"y" * 144)
        board.until(lambda: sum(p.stat().st_size for p in tmp_path.iterdir()) == 144)
        short = SimpleNamespace(f_bavail=10, f_blocks=1000, f_frsize=4096)
        monkeypatch.setattr(os, "fstatvfs", lambda fd: short)
        first.sendall(b"z" * 144)
    board.board.pump(0.05)
    board.board.pump(0.05)
    assert capfd.readouterr().err.count("the trace of rank 0 ends here") == 1
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes() == b"y" * 144 * (full != "twice")
    board.close()
