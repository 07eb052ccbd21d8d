"""The supervisor's end of the links, over real connections in one process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import resource
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.fabric import link
from ftrma.fabric.story import (
    Checkpoint,
    Entered,
    Event,
    Failure,
    Recovery,
    Seats,
    emit,
    plain,
    read,
)
from ftrma.host import timeouts
from ftrma.host.errors import FtrmaError
from ftrma.host.key import NONCE_BYTES, TAG_BYTES, Key
from ftrma.host.listening import Bind
from ftrma.launch import (
    connections,
    eachhost,
    failover,
    mpirun,
    nexthosts,
    ranklinks,
    severalnodes,
)
from ftrma.launch.job import Cause
from ftrma.launch.ranklinks import RankLinks
from ftrma.launch.rankstate import describe
from ftrma.machine.topology import make_layout
from ftrma.native import job
from ftrma.protocol.job_end import OwnExit
from ftrma.settings import options as settings
from ftrma.settings.killrules import KillRule
from ftrma.settings.options import Options

PATIENCE_S = 5.0
NOTED = plain(Checkpoint(7, "coordinated", 0.5, 80, 8))


class Board:
    """A switchboard, what it has written, and the ranks that have connected."""

    def __init__(
        self, processes: int = 2, cause: Cause | None = None, directory: Path = Path("/nowhere")
    ) -> None:
        self.story: list[Event] = []
        self.key = Key.make()
        self.board = RankLinks(
            processes, self.key, Bind("127.0.0.1"),
            self.story.append, lambda: self.story, cause, {"committed": 0},
            functools.partial(failover.trace_file, directory), lambda connection: None,
        )
        self.open: list[socket.socket] = []

    def connect(
        self, rank: int, host: str = "node1", kind: str = "link",
        key: Key | None = None,
    ) -> tuple[socket.socket, dict[str, Any]]:
        """Connect as a rank would, from a thread, while the switchboard is served here."""
        got: list[Any] = []

        def work() -> None:
            try:
                got.append(link.connect(
                    self.address, key or self.key, kind, rank=rank, pid=1000 + rank, host=host
                ))
            except FtrmaError as error:
                got.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        self.until(lambda: bool(got))
        thread.join()
        if isinstance(got[0], FtrmaError):
            raise got[0]
        self.open.append(got[0][0])
        return got[0]

    @property
    def address(self) -> link.Address:
        assert self.board.address is not None
        return self.board.address

    def stranger(self) -> socket.socket:
        """Connect and say nothing."""
        self.open.append(socket.create_connection(("127.0.0.1", self.address.port)))
        return self.open[-1]

    def close(self) -> None:
        for connection in self.open:
            connection.close()
        if not self.board.connections.epoll.closed:
            self.board.close()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "nothing came of it"
            self.board.pump(0.01)


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    yield made
    made.close()


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


def test_the_clock_of_the_supervisor_can_be_asked_for(board: Board) -> None:
    connection, _ = board.connect(0)
    before = time.monotonic_ns()
    connection.sendall(link.line("clock"))
    answer: list[bytes] = []
    thread = threading.Thread(target=lambda: answer.append(connection.recv(1000)))
    thread.start()
    board.until(lambda: bool(answer))
    assert before < json.loads(answer[0])["ns"] < time.monotonic_ns()


def test_a_death_alone_on_a_host_is_told_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: whoever lives is told of it, and how it said that it ends. Its node counts as lost,
    unless somebody finds its agent soon; that of one of several ranks does at once."""
    monkeypatch.setitem(timeouts.chosen, "alone", 0.5)
    board = Board(processes=4)
    ranks = [board.connect(rank, host)[0]
             for rank, host in enumerate(["node1", "node2", "node3", "node3"])]

    def die(rank: int) -> None:
        ranks[rank].close()
        board.until(lambda: any(p.rank == rank for p in board.board.ranks.deaths))

    def next_line(rank: int) -> object:
        board.board.pump(0.05)
        return json.loads(ranks[rank].recv(1000))

    ranks[1].sendall(link.line("leaving", how=256, value=7))
    die(1)
    gone = {"event": "gone", "rank": 1, "leaving": 256 + 7}
    assert all(next_line(rank) == gone for rank in (0, 2, 3))
    assert not board.board.ranks.nodes_gone()
    board.until(board.board.ranks.nodes_gone)
    ranks[0].sendall(link.line("there", rank=1))
    board.until(lambda: not board.board.ranks.nodes_gone())
    ranks[0].sendall(link.line("repaired", round=1, dead=[1]))
    board.until(lambda: not board.board.ranks.deaths)
    ranks[0].sendall(link.line("spared", rank=2))  # the death itself may be heard of later
    board.until(lambda: 2 in board.board.ranks.spared)
    ranks[2].close()
    board.until(lambda: not board.board.ranks.links[2].open)
    assert not board.board.ranks.deaths
    die(3)
    assert board.board.ranks.nodes_gone()
    board.close()


def test_where_roles_are_is_known_when_no_death_is_open() -> None:
    """Law: the next launch takes a role's vault from the host of who had it last, in a state that
    all had come to: not from where a repair was just bringing it, nor from where it was before."""
    board = Board(processes=3)
    ranks = [board.connect(rank, f"node{rank}")[0] for rank in range(3)]
    for rank, (role, index) in enumerate([("slot", 0), ("checksum", 0), ("spare", 0)]):
        ranks[rank].sendall(link.line("role", role=role, index=index))
    first = {("slot", 0): "node0", ("checksum", 0): "node1"}
    board.until(lambda: board.board.ranks.homes == first)
    ranks[1].close()
    board.until(lambda: bool(board.board.ranks.deaths))
    ranks[2].sendall(link.line("role", role="checksum", index=0))
    board.until(lambda: board.board.ranks.links[2].role == "checksum")
    assert board.board.ranks.homes == first
    ranks[0].sendall(link.line("repaired", round=1, dead=[1]))
    board.until(lambda: not board.board.ranks.deaths)
    after = {("slot", 0): "node0", ("checksum", 0): "node2"}
    assert board.board.ranks.homes == after
    board.close()
    homes = tuple((*role, host) for role, host in after.items())
    following = Board(cause=Cause("slot 0 died", (0,), 0.0, 0.0, (), 2, homes))
    _, hello = following.connect(0)
    assert sorted(map(tuple, hello["homes"])) == sorted(homes)
    following.close()


def test_the_host_of_the_first_rank_is_lost_at_once() -> None:
    board = Board()
    ranks = [board.connect(rank, f"node{rank}")[0] for rank in range(2)]
    ranks[0].close()
    board.until(lambda: bool(board.board.ranks.deaths))
    assert board.board.ranks.nodes_gone()
    board.close()


def test_entries_are_counted_through_launches() -> None:
    """Law: a launch begins with the number that its cause has, and the newest is known."""
    cause = Cause("slot 1 died", (1,), 0.0, 0.0, (), 7)
    board = Board(cause=cause)
    connection, hello = board.connect(0)
    assert hello["entry"] == 7
    connection.sendall(link.line("entry", number=9))
    board.until(lambda: board.board.ranks.attempt == 9)
    board.close()


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


def test_end_without_goodbye_is_a_death(board: Board) -> None:
    """Law: a link that ends is a death, told by role and host, unless goodbye was said."""
    first, _ = board.connect(0)
    second, _ = board.connect(1, "node2")
    for connection, index in ((first, 3), (second, 5)):
        connection.sendall(link.line("role", role="slot", index=index))
    first.sendall(link.line("goodbye"))
    board.until(lambda: board.board.ranks.links[0].goodbye)
    first.close()
    board.until(lambda: not board.board.ranks.links[0].open)
    assert not board.board.ranks.deaths and not board.board.ranks.over(board.board.processes)
    second.close()
    board.until(lambda: board.board.ranks.failure() != "")
    assert board.board.ranks.failure() == "slot 5 on node2 died"


def test_all_goodbyes_are_the_end(board: Board) -> None:
    for rank in range(2):
        assert not board.board.ranks.over(board.board.processes)
        board.connect(rank)[0].sendall(link.line("goodbye"))
    board.until(lambda: board.board.ranks.over(board.board.processes))
    assert board.board.ranks.aborted is None


def test_an_answer_is_for_who_asked_so() -> None:
    """Law: who asks while it waits for another answer leaves that one alone; one that nobody waits
    for any more is nobody's."""
    answers = link.Answers()
    answers.put({"event": "claim", "entry": 1, "granted": True})
    asked: list[Any] = []

    def ask() -> None:
        if not asked:
            answers.put({"event": "claim", "entry": 2, "granted": False})
            answers.put({"event": "events", "events": []})
            asked.append(answers.take("events", 0, None))

    assert answers.take("claim", 2, ask) == {"event": "claim", "entry": 2, "granted": False}
    assert asked == [{"event": "events", "events": []}]


def test_one_who_dies_reports_no_error(board: Board) -> None:
    """Law: the error of a rank that has died is not the job's, nor is what it had asked."""
    first, second = board.connect(0)[0], board.connect(1)[0]
    first.sendall(link.line("claim"))
    board.until(lambda: board.board.ranks.owner == 0)
    second.sendall(link.line("claim"))
    board.until(lambda: len(board.board.claims.waiting) == 1)
    second.close()
    board.until(lambda: not board.board.claims.waiting)
    first.close()
    board.until(lambda: board.board.ranks.owner is None)


def test_one_rank_reports_the_error(board: Board) -> None:
    """Law: the first who asks may, also when it asks again; only its abort counts."""
    first, second = board.connect(0)[0], board.connect(1)[0]

    def claim(connection: socket.socket, granted: bool, entry: int = 0) -> None:
        connection.sendall(link.line("claim", entry=entry))
        board.until(lambda: len(board.board.claims.waiting) == 1)
        board.until(lambda: not board.board.claims.waiting)
        assert json.loads(connection.recv(1000)) == {
            "event": "claim", "entry": entry, "granted": granted}

    claim(first, True)
    claim(second, False)
    claim(first, True)
    first.sendall(link.line("release"))
    board.until(lambda: board.board.ranks.owner is None)
    claim(second, True)
    claim(first, False, entry=3)
    second.sendall(link.line("entry", number=7))  # all go back
    board.until(lambda: board.board.ranks.owner is None)
    claim(first, True, entry=7)
    second.sendall(link.line("abort", status=4) + link.line(**NOTED))
    board.until(lambda: bool(board.story))
    assert not board.board.ranks.over(board.board.processes)
    first.sendall(b'{"event": "abort", "status": 3}\n')
    board.until(lambda: board.board.ranks.over(board.board.processes))
    assert board.board.ranks.aborted == 3


def test_nobody_reports_an_error_after_a_death(board: Board) -> None:
    """Law: an error that is seen at the time of a death is not the program's."""
    first, second = board.connect(0)[0], board.connect(1)[0]
    first.sendall(link.line("claim"))
    second.close()
    board.until(lambda: board.board.ranks.failure() != "")
    assert board.board.ranks.owner is None and len(board.board.claims.waiting) == 1


def test_deaths_that_a_framework_is_told_of_are_not_open() -> None:
    """Law: where a framework is told of deaths, that of slot 0 alone waits for a repair. The others
    hold up no error; who ended itself with a status ends the job, who did so with 0 does not. A
    death that was noticed before is a told one, too, until all have gone back."""
    made = Board(processes=5)
    ranks = made.board.ranks
    try:
        peers = [made.connect(rank)[0] for rank in range(5)]
        roles = [("slot", 0), ("slot", 1), ("slot", 2), ("slot", 3), ("checksum", 0)]
        for connection, (role, index) in zip(peers, roles, strict=True):
            connection.sendall(link.line("role", role=role, index=index))
        made.until(lambda: [ranks.links[i].role for i in range(5)] == [role for role, _ in roles])
        peers[1].sendall(link.line("leaving", how=job.Left.BY_STATUS, value=0))
        peers[1].close()
        made.until(lambda: len(ranks.deaths) == 1)
        peers[0].sendall(link.line("tells", tells=True))
        made.until(lambda: ranks.tells)
        assert not ranks.deaths and made.board.ended_slots()[:2] == ({}, False)
        peers[2].sendall(link.line("leaving", how=job.Left.BY_STATUS, value=4))
        peers[2].close()
        peers[4].close()
        made.until(lambda: len(ranks.told) == 3)
        assert made.board.ended_slots()[:2] == ({2: OwnExit(status=4)}, False)
        peers[0].sendall(link.line("claim"))
        made.until(lambda: ranks.owner == 0)
        peers[0].close()
        made.until(lambda: ranks.failure() != "")
        assert ranks.failure() == "slot 0 on node1 died" and made.board.ended_slots()[1]
        peers[3].sendall(link.line("repaired", dead=[0]) + link.line("tells", tells=False))
        made.until(lambda: not ranks.tells)
        assert not ranks.deaths and made.board.ended_slots()[:2] == ({}, False)
        peers[3].close()
        made.until(lambda: ranks.failure() != "")
        assert ranks.failure() == "all processes died"
    finally:
        made.close()


def test_other_events_are_the_story(board: Board) -> None:
    """Law: they are written as they came, and who asks gets all of them; what is none is not."""
    connection, greeting = board.connect(0)
    assert greeting["resume"] is False
    connection.sendall(link.line("unheard-of") + link.line(**NOTED) + link.line("events"))
    board.until(lambda: bool(board.story))
    assert [plain(event) for event in board.story] == [NOTED]
    assert json.loads(connection.recv(1000))["events"] == [NOTED]


def test_output_is_copied(board: Board, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Law: every byte arrives on the stream it was written to."""
    out, err = board.connect(0, kind="out")[0], board.connect(0, kind="err")[0]
    data = bytes(range(256)) * 1000
    threading.Thread(target=lambda: (out.sendall(data), out.close())).start()
    err.sendall(b"two")
    err.close()
    board.until(lambda: not board.board.connections.peers)
    assert capfdbinary.readouterr() == (data, b"two")


def test_who_does_not_answer_is_lost(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: hosts that answer the end are clean and not lost; those that do not are both."""
    monkeypatch.setitem(timeouts.chosen, "end", 0.2)
    gone, mute = board.connect(0, "node1")[0], board.connect(1, "node2")[0]
    threading.Thread(target=lambda: (gone.recv(100), gone.close())).start()
    board.board.end(final=True)
    assert board.board.unclean == {"node2"}
    assert json.loads(mute.recv(100)) == {"event": "end", "final": True}
    board.board.close()
    assert board.board.lost == {"node2"}
    words, _ = nexthosts.next_hosts(board.board, ["--host", "node1:1,node2:1"], make_layout(4))
    assert words == ["--host", "node1:6", "--map-by", "ppr:6:node"]


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


def test_a_host_is_named_as_the_launcher_knows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Law: who calls itself otherwise is known by its short or long name, or by its address; under
    a batch system by the short one, and by its own where that says something here."""
    def name(host: str, address: str, *words: str) -> str:
        return mpirun.launchers_name(host, address, mpirun.named_hosts(words))

    for variable in (*mpirun.BATCH_SYSTEMS, *mpirun.HOST_LISTS):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(mpirun, "default_hostfiles", lambda: [])
    hosts = {"alias": ["10.0.0.9"], "node4.here": ["10.0.0.4"]}
    monkeypatch.setattr(mpirun, "addresses_of", lambda n: hosts.get(n, [n][: mpirun.is_address(n)]))
    assert name("node1", "10.0.0.1", "--host", "node1:2,node2:2") == "node1"
    assert name("node1.here", "10.0.0.1", "--host=node2,node1") == "node1"
    assert name("node1", "10.0.0.1", "-H", "node1.here:2,node2.here:2") == "node1.here"
    assert name("node1", "10.0.0.1", "--host", "10.0.0.2:2,10.0.0.1:2") == "10.0.0.1"
    assert name("node1", "fd00::1", "--host", "fd00::2,fd00::1") == "fd00::1"
    assert name("node9", "10.0.0.9", "--host", "node1,alias:4") == "alias"
    assert name("10.0.0.1", "10.0.0.1", "--host", "10.0.0.2:2,10.0.0.1:2") == "10.0.0.1"
    (tmp_path / "hosts").write_text("# ours\nnode1.here slots=4\n\nnode2.here slots=4\n")
    assert name("node2", "", "--hostfile", str(tmp_path / "hosts")) == "node2.here"
    assert name("node3", "10.0.0.3") == "10.0.0.3" and name("node3", "") == "node3"
    assert name("node4.here", "10.0.0.4") == "node4.here"
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert name("node4.here", "10.0.0.4") == "node4"


def test_who_is_left_is_named_so(board: Board) -> None:
    """Law: the next launch has the user's words for hosts, whatever they call themselves."""
    board.connect(0, "node1.of.ours")
    board.connect(1, "node2.of.ours")
    board.connect(2, "some-other-name")
    board.board.lost.add("node2.of.ours")
    words, _ = nexthosts.next_hosts(
        board.board, ["--host", "node1,node2,127.0.0.1:3"], make_layout(4)
    )
    assert words == ["--host", "node1:3,127.0.0.1:3", "--map-by", "ppr:3:node"]


@pytest.mark.quick
def test_a_host_that_was_lost_before_is_not_taken_again() -> None:
    """Law: the hosts of earlier launches are known by address; who is not among the launcher's
    words any more was lost then, and is left out when a further host is lost."""
    cause = Cause("node3 died", (), 1.0, 2.0, ("node1", "node2", "node3"),
                  addresses=(("node3", "10.0.0.3"),))
    board = Board(processes=4, cause=cause)
    for rank, host in enumerate(("node1", "node2")):
        board.connect(rank, host)
    board.board.lost.add("node2")
    words, _ = nexthosts.next_hosts(board.board, ["--host", "node1:3,node2:3"], make_layout(4))
    board.close()
    assert words == ["--host", "node1:6", "--map-by", "ppr:6:node"]


@pytest.mark.parametrize(("gone", "after", "kept"), [
    ({"node4"}, {}, "node1,node2,node3"),  # its group survives that
    ({"node1", "node2"}, {"node1": 2}, "node1,node3,node4"),
    ({"node1", "node2"}, {"node1": 2, "node2": 2}, ""),
    ({"node1", "node2", "node3", "node4"}, {"node3": 1, "node1": 3, "node2": 3},
     "node1,node2,node3"),
    ({"node1", "node2"}, {}, "node3,node4")])
def test_who_is_needed_gets_time_to_answer(
    gone: set[str], after: dict[str, int], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: hosts without which a group, or the job, cannot go on are waited for, the others not;
    who answers again meanwhile is kept."""
    asked: list[str] = []

    def answers(address: str) -> bool:
        host = of[address]
        asked.append(host)
        return asked.count(host) >= after.get(host, 1000)

    monkeypatch.setattr(nexthosts, "answers", answers)
    monkeypatch.setitem(timeouts.chosen, "return", 0.5)
    monkeypatch.setattr(nexthosts, "LOOK_S", 0.01)
    board = Board(processes=8)
    of = {}
    layout = make_layout(4, checksums=2, group_size=2)
    roles = [("slot", 0), ("slot", 1), ("slot", 2), ("slot", 3), ("checksum", 0), ("checksum", 1)]
    for rank, (kind, index) in enumerate(roles):
        host = f"node{rank % 4 + 1}"
        board.connect(rank, host)[0].sendall(link.line("role", role=kind, index=index))
        board.until(lambda role=(kind, index): role in board.board.ranks.homes)
        board.board.ranks.links[rank].address = f"10.0.0.{rank % 4 + 1}"
        of[f"10.0.0.{rank % 4 + 1}"] = host
    board.story.append(Checkpoint(1, "coordinated", 0.5, 80, 8))
    board.board.lost.update(gone)
    words, _ = nexthosts.next_hosts(board.board, ["--host", "node1,node2,node3,node4"], layout)
    board.close()
    hosts = kept.split(",")
    each = -(-layout.processes // len(hosts))
    counted = ",".join(f"{host}:{each}" for host in hosts)
    assert words[1] == (counted if kept else "node1,node2,node3,node4")
    assert bool(asked) == (gone != {"node4"})


@pytest.mark.parametrize(("told", "saved", "kept"), [
    (False, False, "node2:4,node3:4"), (True, False, "node2:7,node3:7"),
    (False, True, "node1:7,node2:7,node3:7")])
def test_a_job_whose_only_host_is_lost_goes_on_on_others(
    board: Board, monkeypatch: pytest.MonkeyPatch, told: bool, saved: bool, kept: str
) -> None:
    """Law: at once on hosts that are named and had no rank, if nothing is saved on the lost one;
    all on one of them if a framework is told of deaths, also in the launch behind the next."""
    lost = [True]
    monkeypatch.setattr(nexthosts, "answers", lambda address: not lost[0])
    monkeypatch.setattr(nexthosts, "LOOK_S", 0.01)
    # Threads of other tests may sleep meanwhile.
    monkeypatch.setattr(nexthosts, "time", SimpleNamespace(
        monotonic=time.monotonic, sleep=lambda seconds: lost.clear() or lost.append(False)))
    connection, _ = board.connect(0, "node1")
    connection.sendall(link.line("role", role="slot", index=0) + link.line("tells", tells=told))
    board.until(lambda: ("slot", 0) in board.board.ranks.homes)
    board.board.pump(0.05)
    board.board.lost.add("node1")
    words, layout = ["--host", "node1:7,node2:7,node3:7"], make_layout(4, checksums=2)
    board.board.ranks.links[0].address = "10.0.0.1"
    if saved:
        board.board.ranks.homes |= {("slot", n): "node1" for n in range(4)}
        board.story.append(Checkpoint(1, "coordinated", 0.5, 80, 8))
    found, _ = nexthosts.next_hosts(board.board, words, layout)
    assert found[1] == kept and lost == [not saved]
    monkeypatch.setattr(failover, "tell_deaths", lambda *_: None)
    cause = failover.cause_of(board.board, Path("/nowhere"), Options(), "all processes died")
    again = Board(cause=cause)
    assert again.board.ranks.one_node == told
    again.close()


def test_a_host_on_which_nothing_can_be_started_is_left_out(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: also if it answers; not if it is needed and comes back within the time."""
    monkeypatch.setattr(nexthosts, "answers", lambda address: True)
    monkeypatch.setattr(nexthosts, "LOOK_S", 0.01)
    for rank in range(2):
        board.connect(rank, f"node{rank + 1}")
    words, failed = ["--host", "node1,node2,node3"], {"node2": "ssh: refused"}
    layout = make_layout(4)
    found, _ = nexthosts.next_hosts(board.board, words, layout, failed=failed)
    assert found == ["--host", "node1:3,node3:3", "--map-by", "ppr:3:node"]
    tries = iter([True, True, False])
    both = {"node1": "", "node2": "", "node3": ""}
    found, _ = nexthosts.next_hosts(board.board, words, layout, failed=both,
                                fails=lambda host: host == "node2" or next(tries))
    assert found == ["--host", "node1:6", "--map-by", "ppr:6:node"]


@pytest.mark.parametrize(("failed", "spares", "possible"), [
    (0, 5, False), (1, 2, False), (1, 3, True), (2, 9, False), (2, 10, True), (3, 9, False)])
def test_a_first_launch_can_do_without(failed: int, spares: int, possible: bool) -> None:
    """Law: without hosts that were to have no more processes than there are spares, and not without
    all."""
    some = {f"node{n}": "refused" for n in range(failed)}
    words = ["--host", "node0:9,node1:9,node2:9"]
    assert nexthosts.can_do_without(some, words, make_layout(4, spares=spares)) == possible


@pytest.mark.full
def test_a_repair_may_take_long_as_long_as_it_works(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a repair has the time that bytes take, as long as it is told that they are on their way;
    else, and where it is not begun, it ends the launch."""
    monkeypatch.setitem(timeouts.chosen, "repair", 1.5)
    first, _ = board.connect(0, "node1")
    second, _ = board.connect(1, "node1")
    running = SimpleNamespace(poll=lambda: None)
    launch: Any = SimpleNamespace(
        made=None, rank_links=board.board, mpirun=running, came_up=time.monotonic(),
        layout=SimpleNamespace(processes=2),
    )
    several = severalnodes.SeveralNodes(launch)
    for told in ("entered", "repairing"):
        first.sendall(link.line(told, round=1, version=0, restore_s=0.0))
    second.close()
    board.until(lambda: bool(board.board.ranks.deaths and board.board.ranks.repairing))
    for _ in range(10):
        first.sendall(link.line("working"))
        board.board.pump(0.1)
        time.sleep(0.2)
        assert not several.trouble()
    time.sleep(1.5)
    assert "have not come to an end with it" in several.trouble()
    board.board.ranks.deaths.clear()
    assert "a repair does not end" in several.trouble()


def test_story_of_a_relaunch(tmp_path: Path) -> None:
    """Law: phases add up to the time since the death; the rule that struck is out of force."""
    options = Options(kill=[KillRule.parse("1@fence:3"), KillRule.parse("0@put:9")])
    before = Board()
    connection, _ = before.connect(1, "node2")
    before.connect(0)
    connection.sendall(link.line("role", role="slot", index=1))
    connection.sendall(b'{"event": "strike", "rule": 0}\n')
    connection.close()
    before.until(lambda: before.board.ranks.failure() != "")
    cause = failover.cause_of(before.board, tmp_path, options, before.board.ranks.failure())
    before.close()
    assert read(tmp_path) == [Failure("slot", 1, 1001, "fence", host="node2")]
    assert [rule.text for rule in options.kill] == ["0@put:9"]
    assert settings.to_environment(options)["FTRMA_KILL"] == "0@put:9"
    assert cause.slots == (1,) and cause.died_at <= cause.noticed_at
    after = Board(cause=cause)
    connection, greeting = after.connect(0)
    assert greeting["resume"]
    connection.sendall(link.line("entered", version=4, restore_s=0.001))
    after.until(lambda: len(after.story) == 2)
    after.close()
    recovery, entered = after.story
    assert isinstance(recovery, Recovery) and entered == Entered(4)
    assert (recovery.kind, recovery.slots, recovery.version) == ("relaunch", (1,), 4)
    assert recovery.reason == "slot 1 on node2 died"
    phases = dataclasses.astuple(recovery.phases)
    assert sum(phases) == pytest.approx(recovery.seconds)
    assert min(phases) >= 0


def test_the_dead_in_words() -> None:
    """Law: grouped by host; a host or a job that died as a whole is named so."""
    hosts = ["a", "a", "b", "b", "c"]
    one, two, rest = ("slot 0", "a"), ("slot 1", "a"), [("slot 2", "b"), ("slot 3", "b")]
    assert describe([one], hosts) == "slot 0 on a died"
    assert describe([one, two], hosts) == "all processes on a died"
    assert describe([*rest, one], hosts) == "all processes on b, slot 0 on a died"
    assert describe([("spare 0", "c")], hosts) == "spare 0 on c died"
    assert describe([one, two, *rest, ("spare 0", "c")], hosts) == "all processes died"


RANK = """
import os, sys, time
from pathlib import Path
from ftrma.fabric import link
from ftrma.fabric.story import Scrub, plain
from ftrma.host.key import Key
here = link.Link(link.Address.parse(os.environ[link.VARIABLE]), Key.take(), 0)
assert Key.take() is None
here.directory = Path(sys.argv[1])
with here.critical:
    here.send(**plain(Scrub("slot", 0, 1)))
    time.sleep(0.3)
    (here.directory.parents[1] / "written").touch()
if sys.argv[2] == "goodbye":
    here.goodbye()
time.sleep(60)
"""


@pytest.mark.plain
@pytest.mark.parametrize(
    ("how", "final", "status"), [("stay", True, -9), ("stay", False, -9), ("goodbye", True, 0)]
)
def test_the_end_reaches_a_rank(
    board: Board, tmp_path: Path, how: str, final: bool, status: int
) -> None:
    """Law: a rank ends at once, but not in the middle of what it holds the lock for; what its node
    keeps of the job goes exactly if the job is over; after a goodbye it leaves with status 0."""
    directory = tmp_path / "job" / "node1"
    directory.mkdir(parents=True)
    (directory / "vault-0").touch()
    with subprocess.Popen(
        [sys.executable, "-c", RANK, str(directory), how], start_new_session=True,
        env={**os.environ, link.VARIABLE: board.address.text(), "FTRMA_KEY": board.key.text()},
    ) as rank:
        try:
            board.until(lambda: bool(board.story))
            if how == "goodbye":
                board.until(lambda: board.board.ranks.links[0].goodbye)
            board.board.end(final=final)
            assert rank.wait(PATIENCE_S) == status
        finally:
            rank.kill()
    assert (tmp_path / "written").exists()
    assert (directory / "vault-0").exists() != final
    assert (tmp_path / "job").exists() != final, "no supervisor has it here"
    assert not board.board.unclean and not board.board.ranks.deaths


def test_a_node_without_ranks_is_cleaned_by_a_launcher_of_its_own(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: the job's directory goes from the nodes whose ranks are dead, from each by itself, but
    for what the supervisor still reads where it has its own."""
    commands = []

    def once(processes: int | None, session: Path, options: list[str]) -> list[str]:
        assert session.parent == directory and options[2].endswith(f"{session} prted")
        commands.append(options[3:])
        return ["env"]

    monkeypatch.setattr(eachhost, "mpirun_command", once)
    directory = tmp_path / "job"
    ours, control = directory / socket.gethostname(), directory / "control"
    ours.mkdir(parents=True)
    control.touch()
    board.connect(0)[0].sendall(link.line("goodbye"))
    board.until(lambda: board.board.ranks.links[0].goodbye)
    words = ["--host", "node1:3,node2:3", "--map-by", "node"]
    failover.clean_up(board.board, directory, words)
    assert not commands and ours.exists()
    for rank in (1, 2):
        board.connect(rank, f"node{rank}")[0].close()
    board.until(lambda: len(board.board.ranks.deaths) == 2)
    board.open[0].close()
    board.board.end(final=True)
    failover.clean_up(board.board, directory, words)
    assert commands == [["--host", f"node{n}:1", "-n", "1"] for n in (2,)] or sorted(commands) == [
        ["--host", f"node{n}:1", "-n", "1"] for n in (1, 2)]
    assert not ours.exists()
    assert control.exists(), "the supervisor still needs it"
    control.unlink()
    failover.clean_up(board.board, directory, words)
    assert not directory.exists()


def test_later_launches_are_told_what_is_in_force(tmp_path: Path) -> None:
    """Law: the groups are those of the newest launch, the topology is that of the first one."""
    levels = tmp_path / "levels.toml"
    levels.write_text("once")
    options = Options(topology=str(levels))
    assert failover.past(tmp_path, options)["slot_group"] == ()
    for table in ((0, 0, 1, 1), (0, 1, 0, 1)):
        emit(tmp_path, Seats(table))
    levels.unlink()
    past = failover.past(tmp_path, options)
    assert (past["slot_group"], past["topology"]) == ((0, 1, 0, 1), "once")
