"""Deaths while a job comes up: in its first launch, in one that follows, in one by ``--resume``.

Law: until a launch has taken over the vaults of the launch before, they are the job's, whoever dies
of its processes, its launcher, or ``ftrma run`` itself. The next launch goes on from the same
version, the end is that of a run without failure, and each launch counts as one of --max-relaunch.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from byhand import PROGRAM, SLOTS, Job, results, same
from jobs import Result, command_line, kill_marked, marked, remove, run_command, run_job
from nodes import NODES, home_of, launcher_options, remove_fake_ssh, shared_of, why_not
from tiers import tiers

from ftrma.host.errors import FtrmaError
from ftrma.launch.mpirun import find_mpirun
from ftrma.native import job as native
from ftrma.native import loading
from ftrma.native.job import Takeover

FEW_OVER_NODES = [("next", "control", "launcher")]
PROCESSES = SLOTS + 1  # and the checksum rank; spares, if there are any, come behind


def launcher_of(job: Job) -> int:
    """The launcher of a job's ranks, or 0."""
    for pid in marked(job.mark):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if b"ftrma.program.main" in words and b"prterun" in words and parent == job.process.pid:
                return pid
    return 0


def ranks_of(launcher: int) -> list[int]:
    with contextlib.suppress(OSError):
        return sorted(map(int, Path(f"/proc/{launcher}/task/{launcher}/children")
                          .read_text().split()))
    return []


def come_to(job: Job, before: int, step: str) -> Callable[[], int]:
    """A condition: the launch behind that of the launcher `before` has come to a step; the pid of
    its launcher then."""

    def condition() -> int:
        launcher = launcher_of(job)
        if launcher in (0, before):
            return 0
        with contextlib.suppress(FtrmaError):  # the file is just being exchanged
            ctl = native.open_control(job.directory / "control")
            if ctl.launcher != launcher:
                return 0
            procs = [ctl.proc[p] for p in range(PROCESSES)]
            reached = {
                "started": True,
                "forked": len(ranks_of(launcher)) >= PROCESSES,
                "joining": any(p.pid for p in procs),
                "joined": all(p.pid for p in procs),
                "opened": any(p.ready for p in procs),
                "all opened": sum(p.ready for p in procs) >= PROCESSES - 1,
                "taken over": ctl.takeover == Takeover.DONE and all(p.ready for p in procs),
            }
            return launcher if reached[step] else 0
        return 0

    return condition


STEPS = ("started", "forked", "joining", "joined", "opened", "all opened", "taken over")
VICTIMS = ("launcher", "rank", "ftrma run")
FEW = [("first", "joining", "rank"), ("resume", "opened", "rank"), ("next", "opened", "launcher"),
       ("next", "opened", "ftrma run")]


@pytest.mark.parametrize(("launch", "step", "victim"), [
    pytest.param(*case, marks=[pytest.mark.full if case in FEW else pytest.mark.nightly])
    for case in itertools.product(("first", "next", "resume"), STEPS, VICTIMS)])
def test_a_death_while_a_job_comes_up(
    job: Any, tmp_path: Path, expected: Any, launch: str, step: str, victim: str
) -> None:
    loading.load()
    struck = job("--spares", "0", "--max-relaunch", "2")
    before = 0
    if launch != "first":
        struck.until((tmp_path / "step-20").exists)
        before = launcher_of(struck)
        if launch == "next":
            os.kill(ranks_of(before)[1], signal.SIGKILL)  # no spare: all come anew
        else:
            struck.resume(struck.kill())
    launcher = struck.until(come_to(struck, before, step))
    directory = struck.directory
    if victim == "ftrma run":
        struck.kill()
        struck.resume(directory)
    else:
        for pid in [launcher] if victim == "launcher" else ranks_of(launcher)[2:3]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    said = struck.process.communicate(timeout=60)[0]
    assert struck.process.returncode == 0, said
    assert same(results(tmp_path), expected), said
    assert "Catastrophic" not in said and not directory.exists()
    from_versions = re.findall(r"from checkpoint (\d+)", said)
    assert launch == "first" or len(set(from_versions)) == 1, said


@pytest.mark.parametrize("who", tiers(["0", "2", "c0"], full=["c0"]))
def test_a_process_dies_amid_taking_over(who: str) -> None:
    """Law: there, who is lost from before and who dies now are not too many together."""
    reference = run_job(PROGRAM, SLOTS, env={"NAP": "0"})
    ended = run_job(PROGRAM, SLOTS, "--interval", "0", "--spares", "0", "--kill", "1@fence:20",
                    "--kill", f"{who}@restore", env={"NAP": "0"})
    check(ended, reference)


@pytest.mark.parametrize(("launch", "step", "victim"), [
    pytest.param(*case, marks=[pytest.mark.full if case in FEW_OVER_NODES else pytest.mark.nightly])
    for case in itertools.product(("first", "next"), ("ranks", "control"),
                                  ("launcher", "rank", "daemon", "agent"))])
def test_over_nodes_a_death_while_a_job_comes_up(
    job: Any, tmp_path: Path, expected: Any, launch: str, step: str, victim: str
) -> None:
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    try:
        struck = job("--mpirun", launcher_options(NODES[:2]), "--spares", "0")
        node, before, control = NODES[1], 0, 0
        if launch == "next":
            struck.until((tmp_path / "step-20").exists)
            before, control = launcher_of(struck), control_of(struck, node)
            os.kill(ranks(struck)[1], signal.SIGKILL)  # no spare: all come anew
        struck.until(lambda: launcher_of(struck) not in (0, before) and ranks(struck) and (
            step == "ranks" or control_of(struck, node) not in (0, control)))
        for pid in victims_of(struck, victim):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        said = struck.process.communicate(timeout=60)[0]
        assert struck.process.returncode == 0, said
        assert same(results(tmp_path), expected), said
        assert "Catastrophic" not in said, said
        versions = re.findall(r"from checkpoint (\d+)", said)
        assert launch == "first" or len(set(versions)) == 1, said
    finally:
        kill_marked(struck.mark)
        remove(home_of(node) for node in NODES)
        remove_fake_ssh()


def ranks(job: Job) -> list[int]:
    """Processes that the launcher has started over nodes, by their ranks."""
    found = {}
    for pid in marked(job.mark):
        with contextlib.suppress(OSError):
            rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)",
                             Path(f"/proc/{pid}/environ").read_bytes())
            if rank and b"-c\0import sys" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found[int(rank[1])] = pid
    return [pid for _, pid in sorted(found.items())]


def control_of(job: Job, node: str) -> int:
    """The inode of a node's control file, which each launch makes anew; 0: there is none."""
    with contextlib.suppress(OSError, AssertionError):
        return (shared_of(node) / job.directory.name / node / "control").stat().st_ino
    return 0


def victims_of(job: Job, victim: str) -> list[int]:
    if victim == "launcher":
        return [launcher_of(job)]
    if victim == "rank":
        return ranks(job)[-1:]
    word = {"daemon": "prted ", "agent": "ftrma.launch.agent"}[victim]
    return [pid for pid in marked(job.mark) if command_line(pid).startswith(word)
            or (victim == "agent" and word in command_line(pid))][-1:]


@pytest.mark.full
def test_launches_that_do_not_come_up_are_counted(job: Any, tmp_path: Path) -> None:
    """Law: each is one of --max-relaunch; behind the last one the job ends, and says so."""
    loading.load()
    struck = job("--max-relaunch", "1")
    launcher = 0
    for _ in range(2):
        launcher = struck.until(come_to(struck, launcher, "joining"))
        os.kill(launcher, signal.SIGKILL)
    said = struck.process.communicate(timeout=30)[0]
    assert struck.process.returncode == 70, said
    assert "the launcher died; launching the job again from the start" in said, said
    assert "the job was launched again 1 times already (--max-relaunch); giving up" in said, said


LAUNCHER = """#!/bin/sh
case "$*" in *--version*) exec {real} "$@";; esac
[ "$(ls {home} | wc -l)" -ge {silent} ] && exec {real} "$@"
mktemp {home}/XXXXXX
exit 14
"""
WITH_LAUNCHER = """
import sys
from ftrma.command.cli import main
from ftrma.launch import mpirun
launcher = sys.argv.pop(1)
mpirun.find_mpirun = lambda: launcher
sys.exit(main())
"""


@pytest.mark.full
@pytest.mark.parametrize("silent", [1, 2])
def test_a_launcher_ends_without_a_word(tmp_path: Path, silent: int) -> None:
    """Law: another launch follows the first one; if the last one ends alike, the end says so."""
    (tmp_path / "ended").mkdir()
    script = tmp_path / "well.py"
    script.write_text("print('well')")
    launcher = tmp_path / "launcher"
    launcher.write_text(LAUNCHER.format(real=find_mpirun(), home=tmp_path / "ended", silent=silent))
    launcher.chmod(0o700)
    ended = run_command([sys.executable, "-c", WITH_LAUNCHER, str(launcher), "run", "-n", "2",
                         "--max-relaunch", "1", str(script)])
    if silent == 1:
        assert ended.status == 0 and ended.stdout == "well\n" * 2, ended
        assert "the launcher died; launching the job again from the start" in ended.stderr, ended
    else:
        assert ended.status == 70, ended
        why = "did not start: the launcher died without saying why (exit status 14)"
        assert why in ended.stderr, ended


def check(ended: Result, reference: Result) -> None:
    """Both are well, with the same bits, and the first by two launches behind the first one."""
    assert reference.status == 0 and ended.status == 0, ended
    assert ended.stderr.count("launching the job again") == 2, ended
    assert "Catastrophic" not in ended.stderr, ended
    for s in range(SLOTS):
        for name, array in reference.results[f"out-{s}"].items():
            assert (array == ended.results[f"out-{s}"][name]).all(), (s, name)
