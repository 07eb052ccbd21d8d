"""The status of a job: read from shared memory without MPI, from a mapping for reading alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.command.test_json import check, printed

from ftrma.command import cli
from ftrma.fabric import story
from ftrma.fabric.control_file import make_control
from ftrma.fabric.story import (
    Began,
    Checkpoint,
    Entered,
    Event,
    Failure,
    Phases,
    Recovery,
    Stall,
)
from ftrma.host import lock, private
from ftrma.host.errors import FtrmaError
from ftrma.launch import deadjobs, jobstatus
from ftrma.launch.haltrequests import EndsInMind, HaltRequest
from ftrma.launch.stepcount import StepCount
from ftrma.machine.topology import make_layout
from ftrma.native import job, loading
from ftrma.native.constants import CLAIM_TOLD, WHAT
from ftrma.native.controlimage import CONTROL_BYTES, control_image

T = time.time() - 100.0
STORY: list[Event] = [
    Began(time=T), Entered(time=T + 2),
    Checkpoint(1, "coordinated", 0.5, 1000, 10, step=100, time=T + 12),
    Failure("slot", 2, 11, "unknown", time=T + 19),
    Recovery("causal", (2,), 1, 1.0, Phases(0.1, 0.1, 0.1, 0.7), "", 0.0, time=T + 20),
    Checkpoint(2, "coordinated", 0.5, 2000, 10, step=300, time=T + 32),
    Checkpoint(2, "demand", 0.5, 500, 10, slot=1, time=T + 33),
]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    """A job's directory with 4 slots in 2 groups, and its control file: all is well."""
    loading.load()
    directory = tmp_path / f"ftrma-{os.getuid()}-00000000"
    directory.mkdir(0o700)
    ctl = make_control(directory / "control", make_layout(4, 4, 2, 2), 64 << 20)
    ctl.commit, ctl.start_ns, ctl.supervisor, ctl.taken = 2 << 1, 1, os.getpid(), 300
    for p in range(ctl.nprocs):
        ctl.proc[p].pid, ctl.proc[p].state, ctl.proc[p].ready = os.getpid(), 1, 1
    for s in range(4):
        ctl.proc[s].ordinal = ctl.proc[s].arrived = 340 + s
        ctl.proc[s].arrived = 300
    with lock.lock_shared(directory):
        yield directory, ctl


def look(directory: Path, at: float = 34.0) -> jobstatus.JobStatus:
    return jobstatus.look(directory, STORY, T + at)


def test_a_job_that_runs(made: tuple[Path, Any]) -> None:
    found = look(made[0])
    assert (found.job, found.state, found.seconds) == (made[0].name, "running", 34.0)
    assert (found.slots, found.groups, found.strength, found.spares_left) == (4, 2, 2, 2)
    assert (found.version, found.checkpoint_age_s, found.protected_bytes) == (2, 2.0, 2000)
    assert found.step == 340 and found.steps_per_s == pytest.approx(40 / 2)
    assert found.checkpoints == {"coordinated": 2, "demand": 1}
    assert found.deaths == {"slot": 1} and found.recoveries == {"causal": 1}
    assert found.repair_s == pytest.approx(0.3) and found.loss_s == 2.0
    assert not found.degraded and found.worst_lack == 0
    assert found.effective.recoveries_s == 1.0
    assert {slot.state for slot in found.each_slot} == {"computes"}
    json.dumps(found.plain())


def test_the_json_form(
    made: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: the page has each field with its type."""
    directory, _ = made
    for event in STORY:
        story.emit(directory, event)
    monkeypatch.setattr(deadjobs, "SHARED", directory.parent)
    (found,) = check(printed(capsys, "status --json"), "status")["jobs"]
    assert found["step"] == 340 and len(found["each_slot"]) == 4


def test_states_of_slots(made: tuple[Path, Any]) -> None:
    """Law: each state is told, and what a slot waits for."""
    directory, ctl = made
    ctl.proc[0].waiting, ctl.proc[0].awaits = 1, WHAT["FENCE"] << 32 | 3
    ctl.proc[1].calls = 1
    ctl.proc[2].state = 2
    ctl.slots[3].replaying = 1
    each = look(directory).each_slot
    assert [slot.state for slot in each] == ["waits", "in MPI", "died", "is replayed"]
    assert each[0].awaited == 2 and "fence" in each[0].waits_in
    assert not each[1].waits_in and each[1].awaited is None
    ctl.proc[0].waiting, ctl.proc[0].finished = 0, ctl.attempt
    ctl.proc[1].arrived, ctl.proc[1].calls = 341, 0
    ctl.proc[2].state = 0
    states = [slot.state for slot in look(directory).each_slot]
    assert states == ["has ended", "checkpoints", "is not there yet", "is replayed"]


def test_a_stopped_process(made: tuple[Path, Any]) -> None:
    directory, ctl = made
    process = subprocess.Popen(["sleep", "60"])
    try:
        ctl.proc[1].pid = process.pid
        os.kill(process.pid, 19)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert look(directory).each_slot[1].state == "is stopped"
    finally:
        process.kill()
        process.wait()


def test_states_of_jobs(made: tuple[Path, Any]) -> None:
    """Law: a job's state is that of its words; without a process it is left behind."""
    directory, ctl = made
    seen = []
    for name, value in (("halt", 1), ("replays", 1), ("start_ns", 0), ("alarm", 1),
                        ("alarm", jobstatus.ENDED)):
        setattr(ctl, name, value)
        seen.append(look(directory).state)
    assert seen == ["halting", "replaying", "starting", "repairing", "ending"]
    (directory / "lock").unlink()
    assert look(directory).state == "left behind"


def test_a_job_that_is_being_made(made: tuple[Path, Any]) -> None:
    """Law: a job without a lock, a start record and processes has just begun."""
    directory, ctl = made
    (directory / "lock").unlink()
    for p in range(ctl.nprocs):
        ctl.proc[p].pid = 0
    assert jobstatus.look(directory, [], T).state == "starting"
    private.write(directory / "start", json.dumps({"program": ["app.py"]}).encode())
    assert jobstatus.look(directory, [], T).state == "left behind"


def test_a_job_of_another_version_is_left_out(
    made: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: it is named, and hides no other job."""
    directory, ctl = made
    ctl.magic += 1
    monkeypatch.setattr(deadjobs, "SHARED", directory.parent)
    with pytest.raises(SystemExit) as end:
        cli.main(["status"])
    said = capsys.readouterr()
    assert not end.value.code and directory.name in said.err and "version" in said.err
    assert "no job of yours" in said.out


def test_lost_redundancy(made: tuple[Path, Any]) -> None:
    """Law: a member that is dead, or whose vault is not whole, is missing in its group."""
    directory, ctl = made
    ctl.proc[3].state, ctl.proc[6].ready = 2, 0  # slot 3, checksum 2: both of group 1
    found = look(directory)
    assert (found.degraded, found.worst_lack) == ([1], 2)


def test_words_on_other_nodes(made: tuple[Path, Any]) -> None:
    """Law: where no process of the job is, the story says how far it is."""
    directory, ctl = made
    for p in range(ctl.nprocs):
        ctl.proc[p].pid = 0
    found = look(directory)
    assert (found.state, found.version, found.each_slot) == ("running", 2, [])
    assert found.steps_per_s is None and not found.degraded


BACK = Recovery("rollback", (), 1, 1.0, Phases(0, 1, 0), "", 0.0, time=T + 40)


@pytest.mark.parametrize(("events", "step", "now", "rate"), [
    (STORY[:2], 60, 8.0, 10.0), (STORY, 340, 32.5, pytest.approx(240 / 20.5)),
    (STORY[:1], 5, 9.0, None), (STORY[:2], 1, 2.5, None), ([], 7, 9.0, None),
    ([*STORY, BACK], 150, 45.0, 10.0),
    ([*STORY, BACK, Checkpoint(3, "coordinated", 1, 9, 9, step=20, time=T + 42)], 150, 45.0, 10.0),
], ids=["from the start", "an old checkpoint", "not entered", "too short", "no story", "rollback",
        "a checkpoint after it"])
def test_steps_per_second(events: list[Event], step: int, now: float, rate: float | None) -> None:
    """Law: the rate is that since the last known step, a second ago or more; the steps of an
    attempt come on top of those at its checkpoint."""
    assert StepCount(events, T + now, 1.0).rate(step, T + now, 1.0) == rate


def test_steps_of_a_later_attempt(made: tuple[Path, Any]) -> None:
    """Law: a slot's safepoints count from the checkpoint that its attempt has begun with."""
    directory, ctl = made
    for s in range(4):
        ctl.proc[s].ordinal = 50
    found = jobstatus.look(directory, [*STORY, BACK], T + 45)
    assert (found.step, found.steps_per_s) == (150, 10.0)


def test_steps_of_a_framework_that_is_told(made: tuple[Path, Any]) -> None:
    """Law: slot 0's count is the job's, whatever dead slots have counted; no rate is told where an
    attempt has begun somewhere else than at 0."""
    directory, ctl = made
    ctl.claim, ctl.proc[0].step, ctl.proc[1].step = CLAIM_TOLD, 84, 7
    found = jobstatus.look(directory, STORY[:2], T + 44)
    assert (found.step, found.steps_per_s) == (84, 2.0)
    assert [slot.step for slot in found.each_slot] == [84, 7, 0, 0]
    later = jobstatus.look(directory, [*STORY[:2], BACK], T + 60)
    assert (later.step, later.steps_per_s) == (84, None)


def test_slots_that_hang() -> None:
    """Law: a stall is told until the slots have come on."""
    stall = Stall("stall", (1, 2), 10.0, ("slot 1: f (a.py:3)", "slot 2 waits"), time=T + 5)
    said = jobstatus.hangs([*STORY, stall], T + 8)
    assert said == "stall of slots 1, 2 for 13 s: slot 1: f (a.py:3); slot 2 waits"
    assert not jobstatus.hangs([stall, STORY[2]], T + 8) and not jobstatus.hangs([], T)


@pytest.mark.parametrize(("in_mind", "said"), [
    (None, ""), (EndsInMind(), ""), (EndsInMind(why="SIGUSR1 has come"), "SIGUSR1 has come"),
    (EndsInMind(limit=T + 70.4), "time limit in 70 s"),
    (EndsInMind(limit=T + 70, request=HaltRequest(after=T + 30)),
     "asked for, in 30 s; time limit in 70 s"),
    (EndsInMind(request=HaltRequest(checkpoints=2)), "asked for, behind 2 checkpoints"),
    (EndsInMind(request=HaltRequest(after=T + 30, unset=True)), ""),
])
def test_ends_in_sight(in_mind: EndsInMind | None, said: str) -> None:
    assert jobstatus.ends(in_mind, T) == said


def test_a_node_without_the_story(made: tuple[Path, Any]) -> None:
    """Law: it says nothing of times that it does not know."""
    found = jobstatus.look(made[0], [], T)
    assert found.began is None and found.loss_s is None and found.checkpoint_age_s is None
    assert found.step == 340 and found.version == 2 and found.state == "running"


def test_the_start_record(made: tuple[Path, Any]) -> None:
    directory, _ = made
    assert look(directory).program == ()
    private.write(directory / "start", json.dumps({"program": ["app.py", "7"]}).encode())
    assert look(directory).program == ["app.py", "7"]


def test_nothing_can_be_written(made: tuple[Path, Any]) -> None:
    """Law: the kernel refuses every write of a reader."""
    directory, _ = made
    with control_image(directory / "control") as ctl:
        assert ctl.nslots == 4
        lines = Path("/proc/self/maps").read_text().splitlines()
    assert any(line.split()[1] == "r--s" for line in lines
               if line.endswith(str(directory / "control")))


@pytest.mark.parametrize("damage", ["cut", "another version", "open to others"])
def test_what_is_no_control_file(made: tuple[Path, Any], damage: str) -> None:
    """Law: a file that is not this user's job's is refused in words."""
    directory, ctl = made
    path = directory / "control"
    if damage == "cut":
        os.truncate(path, CONTROL_BYTES - 1)
    elif damage == "another version":
        ctl.magic -= 1
    else:
        path.chmod(0o644)
    with pytest.raises(FtrmaError):
        look(directory)


def test_128_slots_are_looked_at_fast(tmp_path: Path) -> None:
    """Law: a look takes a fraction of 0.2 s, of which most is Python's start."""
    loading.load()
    ctl = make_control(tmp_path / "control", make_layout(128, 16, None, 2), 64 << 20)
    for p in range(ctl.nprocs):
        ctl.proc[p].pid, ctl.proc[p].state = os.getpid(), job.ProcessState.ALIVE
    tmp_path.chmod(0o700)
    began = time.process_time()
    assert len(look(tmp_path).each_slot) == 128
    assert time.process_time() - began < 0.05


def test_the_command_waits_for_no_library() -> None:
    """Law: the command line imports neither NumPy nor MPI, which take longer than the look."""
    code = ("import sys\nfrom ftrma.command import cli\nfrom ftrma.launch import jobstatus\n"
            "print([name for name in ('numpy', 'mpi4py', 'scipy') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done
