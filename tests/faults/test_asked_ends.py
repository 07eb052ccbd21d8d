"""Ends that are asked for: a time limit, a signal, ``ftrma halt``.

Law: the job takes a checkpoint at its next safepoint and ends behind it with status 85, in words
that say how to go on; nothing is computed twice by who goes on; the bits are those of a run that
was not ended. Where no checkpoint comes in time, the job ends all the same, and what was saved last
stands.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from batch import Batch
from byhand import STEPS, Job, ftrma, results, same
from jobs import FTRMA, SHARED, marked
from nodes import remove_fake_ssh, run_on_nodes, why_not
from tiers import tiers
from tree import ROOT

KEPT = re.compile(r"'ftrma run --resume (ftrma-\d+-\w{8})' goes on here")
ASKED = "the job ends behind a checkpoint at its next safepoint"
BUSY = """
import sys, time
import ftrma
from ftrma import MPI
comm, home = MPI.COMM_WORLD, sys.argv[1]
state = ftrma.protect("s", step=0)
while True:
    if state.step < int(sys.argv[2]):
        ftrma.safepoint()
        state.step += 1
    elif comm.rank == 0:
        open(f"{home}/busy", "w").close()
    time.sleep(0.05)
"""


def said(ended: Job) -> str:
    """All that a job has written; it has ended."""
    assert ended.process.stdout
    text = ended.process.stdout.read()
    ended.process.wait(timeout=20)
    return text


def steps_of(home: Path) -> int:
    """The last step that the program has begun."""
    return max((int(p.name.removeprefix("step-")) for p in home.glob("step-*")), default=0)


def assert_goes_on(asked: Job, home: Path, expected: Any, why: str, deaths: int = 0) -> None:
    """The job has ended behind a checkpoint, and is gone on with without repeating a step."""
    text = said(asked)
    assert asked.process.returncode == 85, text
    assert f"ftrma: {why}: {ASKED}" in text, text
    found = KEPT.search(text)
    assert found and f"ftrma: {why}: ended behind checkpoint" in text, text
    directory = SHARED / found[1]
    assert directory.exists() and not (directory / "halt").exists()
    assert not marked(asked.mark), "a process of the job lives"
    assert text.count(" died") == deaths, f"the end of the launch was taken for failures: {text}"
    assert "program.py" in ftrma("clean").stdout
    done = steps_of(home)
    assert 0 < done < STEPS, text
    for step in range(1, done + 1):
        (home / f"step-{step}").unlink()
    resumed = ftrma("run", "--resume", directory.name, cwd=home, env={**asked.env, "NAP": "0.01"})
    assert resumed.returncode == 0, resumed.stderr
    assert "the job was ended as asked; launching the job again from checkpoint" in resumed.stderr
    assert not (home / f"step-{done}").exists(), "a step was computed twice"
    assert same(results(home), expected) and not directory.exists()


@pytest.mark.parametrize("how", ["halt", pytest.param("USR1", marks=pytest.mark.nightly)])
def test_the_job_ends_behind_a_checkpoint(job: Any, tmp_path: Path, expected: Any, how: str
                                          ) -> None:
    """Law: whoever asks, see also `test_it_ends_again_and_again`."""
    asked = job(*(["--signal", "USR1"] if how == "USR1" else []), nap="0.05")
    asked.until((tmp_path / "step-3").exists)
    directory = asked.directory
    if how == "halt":
        answer = ftrma("halt", directory.name)
        assert answer.returncode == 0 and answer.stdout.startswith(
            f"{directory.name}: ends behind a checkpoint at its next safepoint"), answer
    else:
        asked.process.send_signal(signal.SIGUSR1)
    assert_goes_on(asked, tmp_path, expected, "ftrma halt" if how == "halt" else "SIGUSR1")


@pytest.mark.full
def test_a_warning_at_the_very_start(job: Any, tmp_path: Path, expected: Any) -> None:
    """Law: a signal that comes as soon as ``ftrma run`` handles it, before there is a job, asks
    for the end of the job as a later one does."""
    asked = job("--signal", "USR1", nap="0.05")
    status = Path(f"/proc/{asked.process.pid}/status")
    bit = 1 << (signal.SIGUSR1 - 1)
    while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) & bit:
        assert asked.process.poll() is None
    asked.process.send_signal(signal.SIGUSR1)
    assert_goes_on(asked, tmp_path, expected, "SIGUSR1")


@pytest.mark.full
def test_a_slot_dies_while_the_job_is_to_end(job: Any, tmp_path: Path, expected: Any) -> None:
    """Law: a death in the checkpoint of the end is repaired, and the job ends behind another one.
    """
    asked = job("--signal", "USR1", "--interval", "never", "--kill", "1@staged", nap="0.05")
    asked.until((tmp_path / "step-3").exists)
    asked.process.send_signal(signal.SIGUSR1)
    assert_goes_on(asked, tmp_path, expected, "SIGUSR1", deaths=1)


@pytest.mark.nightly
def test_it_ends_again_and_again(job: Any, tmp_path: Path, expected: Any) -> None:
    """Law: who goes on with a job may limit it anew, as often as it takes."""
    limit = ["--time-limit", "5", "--margin", "2"]
    asked = job(*limit, nap="0.1")
    text, rounds = said(asked), 1
    status, seen = asked.process.returncode, steps_of(tmp_path)
    while status == 85:
        found = KEPT.search(text)
        assert found and f"--time-limit 5: {ASKED}" in text and rounds < 30, text
        again = ftrma("run", "--resume", found[1], *limit, cwd=tmp_path, env=asked.env)
        text, status, rounds = again.stderr, again.returncode, rounds + 1
        assert steps_of(tmp_path) >= seen
        seen = steps_of(tmp_path)
    assert status == 0 and rounds > 2, text
    assert same(results(tmp_path), expected)


@pytest.mark.parametrize("safepoints", tiers(["0", "3"], full=["3"]))
def test_no_safepoint_in_time(job: Any, tmp_path: Path, safepoints: str) -> None:
    """Law: the job ends all the same; with what was saved before, or with an error if nothing was.
    """
    (tmp_path / "busy.py").write_text(BUSY)
    asked = job("--signal", "USR1", "--margin", "1", "--interval", "0", "--stats", "stats",
                "busy.py", str(tmp_path), safepoints)
    asked.until((tmp_path / "busy").exists)
    directory = asked.directory
    asked.process.send_signal(signal.SIGUSR1)
    text = said(asked)
    assert "SIGUSR1, and no checkpoint came within 1" in text, text
    assert '"whole": false' in (tmp_path / "stats").read_text()
    if safepoints == "0":
        assert asked.process.returncode == 70 and "error: SIGUSR1, and no" in text
        assert "nothing is left to go on from" in text and not directory.exists(), text
    else:
        assert asked.process.returncode == 85 and KEPT.search(text) and directory.exists(), text


@pytest.mark.nightly
def test_a_second_sigterm_ends_the_job_at_once(job: Any, tmp_path: Path) -> None:
    """Law: the first one waits for a safepoint, the second one for nothing; one that comes twice
    from timeout(1) is one."""
    (tmp_path / "busy.py").write_text(BUSY)
    asked = job("--signal", "TERM", "busy.py", str(tmp_path), "1")
    asked.until((tmp_path / "busy").exists)
    directory = asked.directory
    asked.process.terminate()
    asked.process.terminate()
    asked.read_until(ASKED, 5)
    time.sleep(0.6)  # the law is about this time
    assert asked.process.poll() is None
    asked.process.terminate()
    asked.process.wait(timeout=5)
    assert asked.process.returncode == 128 + signal.SIGTERM
    assert not directory.exists() and not marked(asked.mark)


@pytest.mark.nightly
def test_without_files_sigterm_ends_the_job_as_ever(job: Any, tmp_path: Path) -> None:
    """Law: nothing stays in memory of a job that nobody asked to be kept."""
    asked = job(nap="0.1")
    asked.until((tmp_path / "step-3").exists)
    directory = asked.directory
    asked.process.terminate()
    said(asked)
    assert asked.process.returncode == 128 + signal.SIGTERM and not directory.exists()


@pytest.mark.full
def test_halt_at_its_time_listed_and_withdrawn(job: Any, tmp_path: Path) -> None:
    """Law: what was asked is listed, can be withdrawn, and the job goes on untouched."""
    living = job("--time-limit", "1h", nap="0.1")
    living.until((tmp_path / "step-2").exists)
    name = living.directory.name
    listed = ftrma("halt", "--list").stdout
    assert f"{name}: its time limit comes in 60 min, with a checkpoint 90 s before" in listed
    answer = ftrma("halt", name, "--after", "2h", "--checkpoints", "100000").stdout
    assert "behind a checkpoint in 2 h or when 100000 more checkpoints have passed" in answer
    assert answer == ftrma("halt", name, "--list").stdout
    assert "2 h" not in ftrma("halt", str(living.directory), "--unset").stdout
    step = steps_of(tmp_path)
    living.until((tmp_path / f"step-{step + 3}").exists)
    assert ftrma("halt", name, "--checkpoints", "2").returncode == 0
    text = said(living)
    assert living.process.returncode == 85 and "ftrma halt: ended behind checkpoint" in text, text


@pytest.mark.nightly
def test_halt_now(job: Any, tmp_path: Path, expected: Any) -> None:
    """Law: nobody waits, and the newest checkpoint stands."""
    living = job(nap="0.1")
    living.until((tmp_path / "step-5").exists)
    assert "ends at once" in ftrma("halt", living.directory.name, "--now").stdout
    text = said(living)
    assert living.process.returncode == 85 and "ftrma halt --now; status 85" in text, text
    assert ftrma("run", "--resume", living.directory.name, cwd=tmp_path,
                 env={**living.env, "NAP": "0.01"}).returncode == 0
    assert same(results(tmp_path), expected)


@pytest.mark.full
def test_halting_what_is_not_there_or_not_yours(job: Any, tmp_path: Path) -> None:
    """Law: one line with the reason, status 2, and the job that lives goes on."""
    living = job(nap="0.1")
    living.until((tmp_path / "step-2").exists)
    directory = living.directory
    passed = f"@{time.time() - 7200:.0f}"
    for words, why in [
        (["ftrma-0-nosuch00"], f"no such job on this host; of yours there is {directory.name}"),
        ([], f"which job? of yours there is {directory.name}"),
        ([directory.name, "--now", "--after", "5"], "--now: goes with no other option; leave out "),
        ([directory.name, "--after", passed], f"--after {passed}: this moment passed 2 h ago"),
        ([directory.name, "--checkpoints", "0"], "--checkpoints 0: expected a whole number, 1 or"),
        (["/dev/shm"], "not yours to end" if os.geteuid() else "is open to others"),
    ]:
        refused = ftrma("halt", *words)
        assert refused.returncode == 2 and why in refused.stderr, (words, refused.stderr)
        assert refused.stderr.count("\n") == 1 and not refused.stdout
    if os.geteuid() == 0:
        os.chown(directory, 20002, 20002)
        refused = ftrma("halt", directory.name)
        os.chown(directory, 0, 0)
        assert refused.returncode == 2 and "not yours to end" in refused.stderr
        assert "belongs to user 20002 and not to user 0" in refused.stderr
    assert living.process.poll() is None
    living.kill()
    dead = ftrma("halt", directory.name)
    assert dead.returncode == 2 and "has ended already; 'ftrma clean' lists" in dead.stderr


@pytest.mark.nightly
def test_a_supervisor_that_does_not_answer(job: Any, tmp_path: Path) -> None:
    """Law: that is told after 5 s, with status 1; the request stands until it can be obeyed."""
    living = job(nap="0.1")
    living.until((tmp_path / "step-2").exists)
    living.process.send_signal(signal.SIGSTOP)
    try:
        silent = ftrma("halt", living.directory.name)
    finally:
        living.process.send_signal(signal.SIGCONT)
    assert silent.returncode == 1 and "has not answered within 5 s" in silent.stderr, silent
    said(living)
    assert living.process.returncode == 85


NODES_PROGRAM = """
import os, sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
window = MPI.Win.Allocate(8 * n, 8, comm=comm)
state = ftrma.protect("ring", step=0)
while state.step < 1000:
    ftrma.safepoint()
    window.Fence()
    window.Put(np.array([100 * me + state.step]), (me + 1) % n, (me, 1, MPI.INT64_T))
    window.Fence()
    state.step += 1
    time.sleep(0.02)
"""


@pytest.mark.nightly
def test_over_several_nodes_nothing_stays_in_memory() -> None:
    """Law: that is told at the start, and at the limit, at which the job ends with status 70."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    try:
        result = run_on_nodes(NODES_PROGRAM, 4, "--time-limit", "5", "--margin", "2")
    finally:
        remove_fake_ssh()
    assert result.status == 70, result
    first, last = result.stderr.splitlines()
    assert first == ("ftrma: warning: --time-limit 5 without --spill: nothing of the job outlives "
                     "it over several nodes; give --spill DIR"), result
    assert last == ("ftrma: error: --time-limit 5; status 70; what was saved last: nothing is left "
                    "to go on from; give --spill DIR"), result


# ---- under a batch system -------------------------------------------------------------------

PAGE = ROOT / "ftrma/docs/batch.md"
APP = """
import os, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
window = MPI.Win.Allocate(8 * 500, 8, comm=comm)
cells = np.frombuffer(window.tomemory())
cells[:] = me
state = ftrma.protect("s", step=0, field=np.arange(500.0) + me, words={})
while state.step < int(os.environ["STEPS"]):
    ftrma.safepoint()
    if me == 0:
        with open("steps", "a") as file:
            print(state.step, file=file)
    window.Fence()
    window.Put(np.cos(state.field), (me + 1) % n)
    window.Fence()
    state.field += cells * 0.25 + np.sin(state.field * state.step)
    state.words[state.step % 7] = float(state.field.sum())
    state.step += 1
    time.sleep(0.05)
np.savez(f"out-{me}.npz", cells=cells, field=state.field, words=[*state.words.values()])
"""


def script_of_the_page(number: int) -> str:
    """A script of the page for users, with as many slots as this machine can bear."""
    found = re.findall(r"(?ms)^```sh\n(#!/bin/bash\n.*?)^```$", PAGE.read_text())[number]
    assert len(found.splitlines()) <= 5 and found.count("-n 64") == 1
    return found.replace("-n 64", "-n 3")


def computed(home: Path) -> list[dict[str, Any]]:
    """The results of the program in one piece."""
    (plain := home / "plain").mkdir()
    (plain / "app.py").write_text(APP.replace("time.sleep(0.05)", ""))
    undisturbed = ftrma("run", "-n", "3", "app.py", cwd=plain)
    assert undisturbed.returncode == 0, undisturbed.stderr
    return results(plain)


def steps_begun(home: Path) -> list[int]:
    file = home / "steps"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.mark.parametrize(("steps", "limit_s", "number"), tiers(
    [(60, 3.0, 0), (100, 12.0, 1), (2700, 20.0, 0)], full=["60-3.0-0"]))
def test_a_job_goes_through_its_allocations(tmp_path: Path, monkeypatch: Any, steps: int,
                                            limit_s: float, number: int) -> None:
    """Law: the page's script goes on by itself, from one allocation to the next, until the program
    has ended; no step is computed twice, and the bits are those of one piece."""
    monkeypatch.setenv("STEPS", str(steps))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "app.py").write_text(APP)
    script = script_of_the_page(number).replace("--time-limit", "--margin 6 --time-limit")
    batch = Batch(tmp_path, script, limit_s, 2.0)
    if number == 0 and limit_s < 20:
        batch.progress = lambda: len(steps_begun(tmp_path))
    batch.run(most=25)
    *before, last = batch.runs
    assert before and not last.overdue and last.status == 0, last
    for run in before:
        assert not run.overdue and run.status == 0, run
        assert "ended behind checkpoint" in run.said and "status 85" in run.said, run.said
    assert steps_begun(tmp_path) == list(range(steps))
    assert same(results(tmp_path), computed(tmp_path))
    print(f"{len(before)} requeues")


@pytest.mark.nightly
@pytest.mark.parametrize(("steps", "seed"), [(60, 1), (600, 2)])
def test_a_job_goes_on_although_its_nodes_fail(tmp_path: Path, monkeypatch: Any, steps: int,
                                               seed: int) -> None:
    """Law: killed as a whole at random moments, between its limits, it comes to the same bits."""
    monkeypatch.setenv("STEPS", str(steps))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "app.py").write_text(APP)
    drawn = random.Random(seed)
    files = "--interval 0.2 --spill-interval 0.5 --spill "
    batch = Batch(tmp_path, script_of_the_page(0).replace("--spill ", files), 4.0, 2.0,
                  lambda: drawn.uniform(0.1, 1.9) if drawn.random() < 0.6 else None,
                  lambda: len(steps_begun(tmp_path)))
    batch.run(most=200)
    assert any(run.failed for run in batch.runs) and batch.runs[-1].status == 0
    begun = steps_begun(tmp_path)
    assert {*begun} == {*range(steps)}
    assert same(results(tmp_path), computed(tmp_path))
    print(f"{sum(run.failed for run in batch.runs)} failures, {len(batch.runs)} runs, "
          f"{len(begun) - steps} steps twice")


@pytest.mark.nightly
def test_over_several_nodes_it_goes_on_from_files(tmp_path: Path, monkeypatch: Any) -> None:
    """Law: as on one node, with a directory that the nodes share; no step is computed twice."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (home := tmp_path / "home").mkdir()
    program = APP.replace('os.environ["STEPS"]', '"120"').replace(
        '"steps"', f'"{home}/steps"').replace('f"out-', f'f"{home}/out-')
    files, runs = ("--spill", str(home / "ckpt"), "--resume", str(home / "ckpt")), 0
    try:
        for _ in range(12):
            runs += 1
            result = run_on_nodes(program, 3, "--spares", "2", "--time-limit", "9", "--margin", "5",
                                  *files, files=home)
            if result.status != 85:
                break
            assert "--time-limit 9: ended behind checkpoint" in result.stderr, result
            assert result.stats["halt"]["whole"], result
    finally:
        remove_fake_ssh()
    assert result.status == 0 and runs > 1, result
    assert steps_begun(home) == list(range(120))
    monkeypatch.setenv("STEPS", "120")
    assert same(results(home), computed(tmp_path))


@pytest.mark.nightly
@pytest.mark.parametrize("words", [
    ("graph", "pagerank", "rmat:12", "--steps", "2000"),
    ("aic", "mc", "planted:2000x2000", "--epochs", "1000000", "--snapshot", "virtual:100")],
    ids=["graph", "aic"])
def test_frameworks_end_so_too(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Law: those whose slots meet for a checkpoint, and those whose slots take one each alone; a
    program that goes on comes to the same values."""
    files, stats = tmp_path / "files", tmp_path / "stats"
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "FTRMA_SPILL": str(files),
           "FTRMA_SPILL_INTERVAL": "0", "FTRMA_SIGNAL": "USR1"}
    command = [FTRMA, *words, "-n", "3", "--out", "out.npy"]
    with (tmp_path / "said").open("wb") as said_there:
        asked = subprocess.Popen([*command, "--stats", str(stats)], cwd=tmp_path, env=env,
                                 stdin=subprocess.DEVNULL, stdout=said_there, stderr=said_there)
        try:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:  # aic is asked while it comes up
                if list(files.glob("*-000001/*.data")) or (
                        words[0] == "aic" and "no end was asked" in ftrma("halt", "--list").stdout):
                    break
            asked.send_signal(signal.SIGUSR1)
            asked.wait(30)
        finally:
            asked.kill()
            asked.wait()
    text = (tmp_path / "said").read_text()
    assert asked.returncode == 85 and "SIGUSR1: ended behind checkpoint" in text, text
    assert json.loads(stats.read_text())["halt"]["whole"]
    assert f"'ftrma run --resume {files}' goes on" in text
    if words[0] == "graph":
        resumed = ftrma("run", "--resume", str(files), cwd=tmp_path,
                        env={**env, "FTRMA_SPILL": "", "FTRMA_SIGNAL": ""})
        assert resumed.returncode == 0, resumed.stderr
        one_piece = ftrma(*words, "-n", "3", "--out", "plain.npy", cwd=tmp_path)
        assert one_piece.returncode == 0, one_piece.stderr
        assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "plain.npy").read_bytes()


# ---- while the files of the last checkpoint are written ---------------------------------------


def standing(living: Job, home: Path) -> int:
    """Wait until the program stands still behind its checkpoint; the step that it stands at."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        step = steps_of(home)
        time.sleep(1.0)  # twenty steps' time
        if steps_of(home) == step:
            return step
    raise AssertionError("the program goes on")


@pytest.fixture
def writing(job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that was halted and writes its checkpoint slowly."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    living: Job = job("--spill", str(tmp_path / "ckpt"), "--spill-rate", "12K", "--interval",
                      "never", "--spill-interval", "1000", nap="0.05")
    living.until((tmp_path / "step-3").exists)
    assert ftrma("halt", living.directory.name).returncode == 0
    return living


@pytest.mark.nightly
def test_nothing_is_computed_meanwhile_unless_the_end_is_withdrawn(
        writing: Job, tmp_path: Path, expected: Any) -> None:
    """Law: the program stands still as long as the end is wanted, and goes on where it was."""
    step = standing(writing, tmp_path)
    assert 3 <= step < STEPS
    assert ftrma("halt", writing.directory.name, "--unset").returncode == 0
    writing.until((tmp_path / f"step-{step + 3}").exists)
    text = said(writing)
    assert writing.process.returncode == 0 and "ftrma halt --unset: the job goes on" in text, text
    assert same(results(tmp_path), expected)


@pytest.mark.nightly
@pytest.mark.parametrize("slot", range(2))
def test_a_slot_dies_meanwhile(writing: Job, tmp_path: Path, expected: Any, slot: int) -> None:
    """Law: its replacement writes what it has not written, and the job ends behind the checkpoint
    all the same; who goes on from the files comes to the same bits."""
    standing(writing, tmp_path)
    rank = f"OMPI_COMM_WORLD_RANK={slot}".encode()
    (process,) = [p for p in marked(writing.mark) if rank in
                  Path(f"/proc/{p}/environ").read_bytes().split(b"\0")
                  and b"sleep" not in Path(f"/proc/{p}/cmdline").read_bytes()]
    os.kill(process, signal.SIGKILL)
    text = said(writing)
    assert writing.process.returncode == 85, text
    assert f"slot {slot} died" in text and "ftrma halt: ended behind checkpoint" in text, text
    resumed = ftrma("run", "--resume", str(tmp_path / "ckpt"), cwd=tmp_path,
                    env={**writing.env, "NAP": "0.01"})
    assert resumed.returncode == 0, resumed.stderr
    assert same(results(tmp_path), expected)
