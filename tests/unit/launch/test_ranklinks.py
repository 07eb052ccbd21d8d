"""The supervisor's links to ranks: what messages and deaths change, and what ranks are told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rankboard import PATIENCE_S, Board
from rankboard import board as board

from ftrma.fabric import link
from ftrma.fabric.story import Checkpoint, plain
from ftrma.host import timeouts
from ftrma.launch import nexthosts, severalnodes
from ftrma.launch.job import Cause
from ftrma.launch.rankstate import describe
from ftrma.machine.topology import make_layout
from ftrma.native import job
from ftrma.protocol.job_end import OwnExit

NOTED = plain(Checkpoint(7, "coordinated", 0.5, 80, 8))


def test_the_clock_of_the_supervisor_can_be_asked_for(board: Board) -> None:
    connection, _ = board.connect(0)
    before = time.monotonic_ns()
    connection.sendall(link.line("clock"))
    answer: list[bytes] = []
    thread = threading.Thread(target=lambda: answer.append(connection.recv(1000)))
    thread.start()
    board.until(lambda: bool(answer))
    assert before < json.loads(answer[0])["ns"] < time.monotonic_ns()


@pytest.mark.plain
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


@pytest.mark.plain
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


@pytest.mark.plain
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
