"""From one launch over several nodes to the next: its hosts, what it is told, what is removed."""

from __future__ import annotations

import dataclasses
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rankboard import Board
from rankboard import board as board

from ftrma.fabric import link
from ftrma.fabric.story import Checkpoint, Entered, Failure, Recovery, Seats, emit, read
from ftrma.host import timeouts
from ftrma.launch import eachhost, failover, mpirun, nexthosts
from ftrma.launch.job import Cause
from ftrma.machine.topology import make_layout
from ftrma.settings import options as settings
from ftrma.settings.killrules import KillRule
from ftrma.settings.options import Options


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


@pytest.mark.plain
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
