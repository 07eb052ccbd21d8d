"""The supervisor's course from launch to launch, with launches that are made up."""

from __future__ import annotations

import io
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.fabric import story
from ftrma.fabric.control_file import make_control
from ftrma.fabric.story import Relaunch
from ftrma.host import timeouts
from ftrma.host.errors import CATASTROPHE
from ftrma.host.key import Key
from ftrma.host.signals import keep_warnings, kept_warnings
from ftrma.launch import (
    deadjobs,
    relaunch,
    severalnodes,
    supervisor,
)
from ftrma.launch.connections import Peer
from ftrma.launch.job import LAUNCHER_DIED, Cause, Job
from ftrma.launch.launchwatch import LaunchWatch
from ftrma.launch.ranklinks import RankLinks
from ftrma.launch.supervisor import EndAsked, Signals
from ftrma.machine.topology import Layout, make_layout
from ftrma.native import loading
from ftrma.settings.options import Options


def test_signals_interrupt_the_watching_only() -> None:
    """Law: a signal ends the watching at once, or as soon as there is some again; what is done
    between, and after the first signal, is not interrupted."""
    signals = Signals()
    old = signal.signal(signal.SIGTERM, signals)
    try:
        signal.raise_signal(signal.SIGTERM)
        for _ in range(2):
            with pytest.raises(EndAsked), signals.heeded():
                pytest.fail("watched on")
        signals = Signals()
        signal.signal(signal.SIGTERM, signals)
        with pytest.raises(EndAsked) as raised, signals.heeded():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # once more, while the first one is obeyed
        assert raised.value.args == (signal.SIGTERM,)
    finally:
        signal.signal(signal.SIGTERM, old)


@pytest.mark.parametrize("named", [None, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
def test_a_warning_that_comes_late_ends_nothing(named: signal.Signals | None) -> None:
    """Law: once a job has ended, SIGUSR1, SIGUSR2 and the signal that was named are ignored, so
    that the status stays the job's; other signals are as they were."""
    numbers = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM}
    old = {number: signal.getsignal(number) for number in numbers}
    try:
        with Signals(named).handled():
            pass
        ignored = {n for n in numbers if signal.getsignal(n) is signal.SIG_IGN}
        assert ignored == {signal.SIGUSR1, signal.SIGUSR2} | ({named} if named else set())
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("named", [None, signal.SIGUSR1])
def test_a_warning_that_comes_early_is_kept(named: signal.Signals | None) -> None:
    """Law: before there is a job, a warning ends nothing: it goes to the job's ends if it is the
    named one, else to the program."""
    heeded: list[int] = []
    ends: Any = SimpleNamespace(heed=lambda number: not heeded.append(number))
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    old = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        keep_warnings()
        signal.raise_signal(signal.SIGUSR1)
        made = Signals(named)
        with made.handled():
            signal.raise_signal(signal.SIGUSR2)
            made.serve(ends)
            with made.heeded():
                pass
        assert heeded == ([signal.SIGUSR1] if named else [])
        assert made.forwarder.arrived == [*([] if named else [signal.SIGUSR1]), signal.SIGUSR2]
        assert kept_warnings() == []
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class MadeUp:
    """A launch whose processes never come; the first one is over several nodes and has failed."""

    made_up = 0

    def __init__(self, made: Job) -> None:
        MadeUp.made_up += 1
        self.made, self.directory, self.layout = made, made.directory, made.layout
        self.options, self.stdin, self.came_up = made.options, made.stdin, time.monotonic()
        self.ctl = SimpleNamespace(start_ns=0)
        self.ranks = dict[int, int]()
        self.mpirun = SimpleNamespace(poll=lambda: 1, pid=1)
        self.rank_links = RankLinks(
            made.layout.processes, made.key, None, lambda event: None, list, made.cause, {},
            lambda rank, clock: io.BytesIO(), made.stdin.serve_far,
        )
        self.log = made.directory / "launcher.log"
        self.log.write_text("no such node\n")
        if MadeUp.made_up == 1:
            board = self.rank_links
            board.spread = board.ranks.entered = True
            peer = Peer(socket.socket(), "link", host="node2", role="slot", index=1, open=False)
            board.ranks.links[1] = peer
            peer.died_at = -1.0
            board.ranks.deaths.append(peer)

    def serve_terminal(self, timeout_s: float) -> None:
        pass

    def dead(self) -> list[int]:
        return []

    def says_why(self) -> bool:
        return True

    def refused(self) -> str:
        return ""

    def end(self, **_: Any) -> None:
        self.rank_links.ranks.attempt = 6
        self.rank_links.close()


def test_a_relaunch_that_does_not_come_up_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: a job that cannot be launched again ends with the status of failures that cannot be
    repaired, and shows what the launcher said."""
    loading.load()
    monkeypatch.setattr(MadeUp, "made_up", 0)
    monkeypatch.setattr(supervisor, "Launch", MadeUp)
    monkeypatch.setitem(timeouts.chosen, "launcher", 0.0)
    monkeypatch.setitem(timeouts.chosen, "end", 0.0)
    monkeypatch.setattr(severalnodes.failover, "clean_up", lambda *_: None)
    monkeypatch.setattr(severalnodes.nexthosts, "next_hosts",
                        lambda *given: severalnodes.nexthosts.Next(*given[1:3]))
    monkeypatch.setattr(severalnodes.eachhost, "sweep", lambda *_: None)
    made = Job(tmp_path, Key.make(), make_layout(2), Options(slots=2), ["x.py"])
    status = supervisor._supervise(made, Signals())
    assert status == CATASTROPHE and MadeUp.made_up == 2
    said = capsys.readouterr().err
    assert "no such node" in said and "did not start again: the launcher died" in said
    assert made.cause and made.cause.slots == () and made.relaunches == 1
    assert made.cause.attempt == 7  # one was begun while the launch was being ended


@pytest.mark.parametrize(("status", "first", "named"), [
    (1, "aab", True), (None, "aabb", True), (-9, "aab", False), (1, "ab", False), (1, "a", False),
    (1, "", False)])
def test_the_host_whose_loss_ends_the_launcher_is_named(
    tmp_path: Path, status: int | None, first: str, named: bool
) -> None:
    """Law: one all of whose processes were the first to die; not where the launcher was killed."""
    made = Job(tmp_path, Key.make(), make_layout(2), Options(slots=2), ["x.py"])
    launch: Any = MadeUp(made)
    launch.mpirun.poll = lambda: status
    ranks = launch.rank_links.ranks
    ranks.links, ranks.deaths = {}, []
    for rank, host in enumerate("aabb"):
        ranks.links[rank] = Peer(socket.socket(), "link", host=host, role="slot", index=rank,
                                 rank=rank)
    for host in first:
        ranks.deaths.append(next(p for p in ranks.links.values()
                                 if p.host == host and p not in ranks.deaths))
    found = severalnodes.SeveralNodes(launch).why_launcher_ended()
    words = "all processes on a died, and the launcher with it"
    assert found == (words if named else LAUNCHER_DIED)


@pytest.mark.parametrize("entered", [False, True])
def test_what_was_moving_is_looked_for_at_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entered: bool
) -> None:
    """Law: a launch that ends before all is brought back does not hide where it was before."""
    monkeypatch.setitem(timeouts.chosen, "end", 0.0)
    made = Job(tmp_path, Key.make(), make_layout(2), Options(slots=2), ["x.py"])
    made.cause = Cause("slot 1 died", (1,), 0.0, 0.0, homes=(("slot", 0, "node1"),))
    launch: Any = MadeUp(made)
    board = launch.rank_links
    board.cause, board.spread, board.ranks.entered = made.cause, True, entered
    board.ranks.homes = {("slot", 0): "node2"}
    assert severalnodes.SeveralNodes(launch).prepare_next("slot 0 died") is None
    before = [] if entered else [("slot", 0, "node1")]
    assert made.cause.homes == (*before, ("slot", 0, "node2"))


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_who_watches(tmp_path: Path, spread: bool, again: bool) -> None:
    """Law: connections are watched once a rank has come by one, in this launch or one before."""
    made = Job(tmp_path, Key.make(), make_layout(2), Options(slots=2), ["x.py"])
    if again:
        made.cause = Cause("slot 1 died", (1,), 0.0, 0.0)
    launch: Any = MadeUp(made)
    launch.rank_links.spread = spread
    watch = LaunchWatch(launch, [])
    assert watch.control is (watch.several if spread or again else watch.one)
    launch.end()


def made_control(directory: Path, layout: Layout) -> Any:
    """A job whose launch has come to version 5."""
    loading.load()
    ctl = make_control(directory / "control", layout)
    ctl.commit = 5 << 1
    for p in range(layout.processes):
        ctl.proc[p].ready = 1
        (directory / f"vault-{p}").touch()
    return Job(directory, Key.make(), layout, Options(slots=layout.slots), ["x.py"]), ctl


def test_what_a_relaunch_has_lost(tmp_path: Path) -> None:
    """Law: vaults of who died by himself, was not ready, or has none; a group that has lost more
    than its checksum ranks make up for is beyond repair, unless there was no checkpoint yet."""
    made, ctl = made_control(tmp_path, make_layout(4))
    checksum = made.layout.slots
    assert relaunch.lost_roles(made, set()) == []
    assert relaunch.beyond_repair(made, []) is None
    assert relaunch.lost_roles(made, {1}) == [1]
    assert relaunch.beyond_repair(made, [1]) is None
    ctl.proc[0].ready = 0
    (tmp_path / f"vault-{checksum}").unlink()
    assert relaunch.lost_roles(made, {1}) == [0, 1, checksum]
    failure = relaunch.beyond_repair(made, [0, 1, checksum])
    assert failure and failure.members == ("slot 0", "slot 1", "checksum 0")
    assert failure.version == 5
    ctl.commit = 0
    assert relaunch.beyond_repair(made, [0, 1, checksum]) is None


@pytest.mark.parametrize(("reason", "lost"), [("no spare is left", [1]), (LAUNCHER_DIED, [])])
def test_who_died_with_the_launcher_has_lost_nothing(
    tmp_path: Path, reason: str, lost: list[int]
) -> None:
    """Law: what died with all others keeps its vault; the next launch is told what is lost."""
    made, _ = made_control(tmp_path, make_layout(3))
    assert relaunch.relaunch(made, reason, {1}, 7)
    ctl = made.ctl
    assert [at for at in range(made.layout.processes) if ctl.lost[at]] == lost
    assert ctl.resume == 1 and ctl.attempt == 2 and ctl.commit == 5 << 1 and ctl.death_ns == 7
    (event,) = story.read(tmp_path)
    assert isinstance(event, Relaunch)
    assert (list(event.slots), event.version, event.noticed_ns) == (lost, 5, 7)


def test_what_is_left_is_listed_without_escapes() -> None:
    """Law: names that a program was given do nothing to the terminal of who looks."""
    start = deadjobs.Start({}, ["a\x1b]0;b\x07.py", "\x9b31m", "c\nd"], "/", "", False)
    line = deadjobs.DeadJob(Path("/dev/shm/ftrma-0-x"), 3 << 20, 60.0, start).line()
    assert line.isprintable() and line.endswith(r"  a\x1b]0;b\x07.py \x9b31m c\nd"), line
