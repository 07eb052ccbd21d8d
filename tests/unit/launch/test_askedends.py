"""Ends that are asked for, decided by a clock and a launch that are made up."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.fabric import story
from ftrma.fabric.saved import Saved
from ftrma.launch import askedends, haltrequests
from ftrma.launch.askedends import AskedEnds
from ftrma.launch.haltrequests import HaltRequest
from ftrma.launch.onenode import OneNode
from ftrma.native import job
from ftrma.protocol.job_end import JobEnd
from ftrma.settings.options import Options
from ftrma.settings.timelimits import TimeLimit

TERM, USR1, INT = signal.SIGTERM, signal.SIGUSR1, signal.SIGINT


class Clock:
    """Time that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1e9


class Launch:
    """A launch whose slots come to a safepoint when the test says so."""

    def __init__(self, **saved: Any) -> None:
        self.state, self.halt = Saved(**saved), False

    def saved(self, *, halt: bool) -> Saved:
        self.halt = halt
        return self.state


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(askedends, "time", made)
    return made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(askedends, "tell", lines.append)
    return lines


@pytest.fixture
def make(tmp_path: Path, clock: Clock, told: list[str]) -> Any:
    def build(spill: str = "", *, stays: bool = True, **options: Any) -> AskedEnds:
        if limit := options.get("time_limit"):
            options["time_limit"] = TimeLimit.parse("--time-limit", limit)
        return AskedEnds(tmp_path, Options(**options), spill=spill, stays=stays)
    return build


def ask(tmp_path: Path, **request: Any) -> None:
    haltrequests.ask(tmp_path, HaltRequest(**request))


@pytest.fixture
def ckpt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory "ckpt" with checkpoints in files, of which version 2 is the newest whole one."""
    monkeypatch.chdir(tmp_path)
    for name in ("0001-000001", "0001-000002", "0001-000003"):
        (tmp_path / "ckpt" / name).mkdir(parents=True)
        if name != "0001-000003":
            (tmp_path / "ckpt" / name / "manifest.json").touch()
    return tmp_path / "ckpt"


def test_a_limit_asks_its_margin_before(make: Any, clock: Clock, told: list[str]) -> None:
    """Law: nothing happens before; then the slots are asked, and the job ends when all of them
    wait behind a version that is committed."""
    ends, launch = make(time_limit="100", margin=10.0), Launch(committed=4)
    clock.now += 89
    assert ends.step(launch) is None and not launch.halt and not told
    clock.now += 1.5
    assert ends.step(launch) is None and launch.halt
    assert told == ["--time-limit 100: the job ends behind a checkpoint at its next safepoint, or "
                    "in 9.5 s"]
    launch.state = Saved(committed=5)  # it was under way: the slots do not wait behind it
    assert ends.step(launch) is None
    launch.state = Saved(committed=6, behind=6)
    end = ends.step(launch)
    assert end and end.status == 85 and ends.keeps
    assert "--time-limit 100: ended behind checkpoint 6, status 85" in end.words
    assert f"'ftrma run --resume {ends.directory.name}' goes on" in end.words


def test_no_checkpoint_in_time(make: Any, clock: Clock) -> None:
    """Law: the job ends at its limit all the same; what was saved last stands, and is named."""
    ends, launch = make(time_limit="100", margin=10.0), Launch(committed=4)
    clock.now += 99.9
    assert ends.step(launch) is None
    clock.now += 0.2
    end = ends.step(launch)
    assert end and end.status == 85 and ends.keeps
    assert "no checkpoint came within 0.2 s" in end.words and "checkpoint 4 stays" in end.words


def test_nothing_saved_is_an_error(make: Any, clock: Clock, told: list[str]) -> None:
    """Law: a job that would begin at its start does not end with the status "run me again"."""
    ends = make(time_limit="100")
    clock.now += 101
    end = ends.step(Launch())
    assert end and end.status == 70 and not ends.keeps and end.words.startswith("error: ")
    assert "nothing is left to go on from" in end.words


def test_files_count_where_there_are_files(make: Any, clock: Clock, ckpt: Path) -> None:
    """Law: with --spill the job ends when the files of the version are all there; its memory goes,
    and a version that is in memory alone is not one to go on from."""
    ends, launch = make("ckpt", time_limit="100", margin=10.0), Launch(committed=4, spilled=2)
    clock.now += 95
    launch.state = Saved(committed=5, spilled=2, behind=5, named=5)
    assert ends.step(launch) is None
    launch.state = Saved(committed=5, spilled=5, behind=5)
    (ckpt / "0001-000005").mkdir()
    (ckpt / "0001-000005/manifest.json").touch()
    end = ends.step(launch)
    assert end and end.status == 85 and not ends.keeps
    assert "checkpoint 5 is in ckpt; 'ftrma run --resume ckpt' goes on" in end.words


def test_files_that_are_not_there(make: Any, clock: Clock, ckpt: Path) -> None:
    """Law: what an earlier job has left is something to go on from; files of the last checkpoint
    that could not be written are named, and nobody waits for them."""
    late = make("ckpt", time_limit="100")
    clock.now += 101
    end = late.step(Launch(committed=5))  # resumed from version 2
    assert end and "checkpoint 2 is in ckpt" in end.words and end.status == 85
    full, launch = make("ckpt", time_limit="100", margin=10.0), Launch(committed=4)
    clock.now += 95
    launch.state = Saved(committed=5, spilled=2, behind=5, named=2)
    end = full.step(launch)
    assert end and "and the files of checkpoint 5 were not written; status 85" in end.words
    assert "what was saved last: checkpoint 2 is in ckpt" in end.words


def test_a_program_that_ends_is_let_end(make: Any, clock: Clock) -> None:
    """Law: who has come to the program's end is not killed a moment before it is out."""
    ends = make(time_limit="100")
    clock.now += 101
    assert ends.step(Launch(committed=3, over=True)) is None


def test_frameworks_that_stage_alone_wait_nowhere(make: Any, clock: Clock) -> None:
    """Law: the next version that is committed after the asking is enough, and no earlier one."""
    ends, launch = make(signal="USR1"), Launch(committed=4, alone=True)
    assert ends.heed(USR1)
    assert ends.step(launch) is None
    launch.state = Saved(committed=5, alone=True)
    end = ends.step(launch)
    assert end and "ended behind checkpoint 5" in end.words


def test_signals(make: Any, clock: Clock) -> None:
    """Law: SIGTERM asks if there are files; a named signal always; the others do not. SIGTERM that
    comes again ends the job, but not the echo of timeout(1); a warning that comes again does not.
    """
    plain = make()
    assert not any(plain.heed(n) for n in (TERM, USR1, INT)) and not plain.why
    ends = make("ckpt")
    assert not ends.heed(INT) and ends.heed(TERM) and ends.why == "SIGTERM"
    clock.now += 0.1
    assert ends.heed(TERM), "the echo of timeout(1)"
    clock.now += 1
    assert not ends.heed(TERM)
    ends = make(signal="USR1")
    assert not ends.heed(TERM) and ends.heed(USR1) and ends.until == clock.now + 90
    clock.now += 5
    assert ends.heed(USR1) and ends.until == clock.now + 85
    both = make("ckpt", signal="USR1")
    assert both.heed(USR1)
    clock.now += 5
    assert not both.heed(TERM), "the batch system's last word"


def test_where_nothing_can_stay(make: Any, clock: Clock, told: list[str]) -> None:
    """Law: over several nodes without files, nobody waits for a checkpoint that would be lost:
    the job computes up to its limit, and that is told at the start and at the end."""
    ends, launch = make(stays=False, time_limit="100", signal="USR1"), Launch(committed=4)
    ends.tell_start()
    assert told == ["warning: --time-limit 100 without --spill: nothing of the job outlives it "
                    "over several nodes; give --spill DIR"]
    assert not ends.heed(USR1)
    clock.now += 99
    assert ends.step(launch) is None and not launch.halt
    clock.now += 2
    end = ends.step(launch)
    assert end and end.status == 70 and "give --spill DIR" in end.words


def test_halt_asks_and_withdraws(make: Any, clock: Clock, tmp_path: Path, told: list[str]) -> None:
    """Law: a request is obeyed once, has no last moment of its own, and can be taken back."""
    ends, launch = make(), Launch(committed=4)
    ask(tmp_path)
    assert ends.step(launch) is None and ends.step(launch) is None and launch.halt
    assert ends.until == math.inf and ends.why == "ftrma halt"
    state = haltrequests.state_of(tmp_path)
    assert state and state.why == "ftrma halt" and state.request == ends.request
    ask(tmp_path, unset=True)
    assert ends.step(launch) is None and not launch.halt and not ends.why
    clock.now += 1000
    assert ends.step(launch) is None
    assert told == ["ftrma halt: the job ends behind a checkpoint at its next safepoint",
                    "ftrma halt --unset: the job goes on"]
    ask(tmp_path)
    assert ends.step(launch) is None
    launch.state = Saved(committed=9, behind=9)
    end = ends.step(launch)
    assert end and end.status == 85 and not (tmp_path / "halt").exists()
    (event,) = story.read(tmp_path)
    assert isinstance(event, story.Halt) and (event.version, event.whole) == (9, True)


def test_halt_does_not_lift_a_limit(make: Any, clock: Clock, tmp_path: Path) -> None:
    """Law: --unset withdraws requests alone; the batch system's limit stays."""
    ends, launch = make(time_limit="100", margin=10.0), Launch(committed=4)
    clock.now += 95
    ends.step(launch)
    ask(tmp_path, unset=True)
    assert ends.step(launch) is None and ends.why == "--time-limit 100" and launch.halt


def test_halt_after_a_time_and_after_checkpoints(make: Any, clock: Clock, tmp_path: Path) -> None:
    """Law: whichever comes first; a wall clock that jumps afterwards changes nothing."""
    ends, launch = make(), Launch(committed=4)
    ask(tmp_path, after=clock.time() + 50, checkpoints=2)
    assert ends.step(launch) is None and not launch.halt
    launch.state = Saved(committed=5)
    assert ends.step(launch) is None and not ends.why
    launch.state = Saved(committed=6)
    ends.step(launch)
    assert ends.why == "ftrma halt"
    timed = make()
    ask(tmp_path, after=clock.time() + 50)
    timed.step(launch)
    timed.step(launch)
    clock.now += 49
    timed.step(launch)
    assert timed.why == ""
    clock.now += 2
    timed.step(launch)
    assert timed.why == "ftrma halt"


def test_halt_now(make: Any, tmp_path: Path, ckpt: Path) -> None:
    """Law: the job ends at once, and what was saved last stands."""
    ends, launch = make("ckpt"), Launch(committed=4)
    ask(tmp_path, now=True)
    end = ends.step(launch)
    assert end and end.status == 85 and end.words.startswith("ftrma halt --now; status 85")
    assert "checkpoint 2 is in ckpt" in end.words


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"after": "x"}', b'{"other": 1}',
                                     b'{"checkpoints": null}'])
def test_a_request_that_is_none_is_passed_over(make: Any, tmp_path: Path, told: list[str],
                                               content: bytes) -> None:
    """Law: it is told once, and the job goes on; the next request is obeyed."""
    ends, launch = make(), Launch()
    (tmp_path / "halt").write_bytes(content)
    os.chmod(tmp_path / "halt", 0o600)
    for _ in range(3):
        assert ends.step(launch) is None and not ends.why
    assert len(told) == 1 and "holds no request of 'ftrma halt'" in told[0]
    ask(tmp_path)
    ends.step(launch)
    assert ends.why == "ftrma halt"


def test_a_request_that_others_could_write_is_passed_over(
        make: Any, tmp_path: Path, told: list[str]) -> None:
    """Law: only a file of this user's alone counts."""
    ends = make()
    ask(tmp_path, now=True)
    os.chmod(tmp_path / "halt", 0o666)
    assert ends.step(Launch()) is None and "open to others" in told[0]


def test_a_job_begins_without_the_request_that_ended_it(make: Any, tmp_path: Path) -> None:
    """Law: who goes on with a job that was halted does not halt it again."""
    ask(tmp_path)
    assert make().step(SimpleNamespace()) is None


@pytest.mark.parametrize("asked", [True, False])
def test_the_launch_is_ended_without_failures(*, asked: bool) -> None:
    """Law: before the first process is killed, all know that what dies from now on is no failure:
    else those that are killed later begin to repair."""
    ctl = SimpleNamespace(exit_status=0, request=job.Request.NOTHING)
    seen: list[int] = []
    launch: Any = SimpleNamespace(made=None, ctl=ctl,
                                  end=lambda patience_s=0.0: seen.append(ctl.request))
    if asked:
        assert OneNode(launch).finish(JobEnd(85, "")) == 85
    else:
        OneNode(launch).abandon()
    assert seen == [job.Request.ABORT]
