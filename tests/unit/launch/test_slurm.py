"""Hosts and starts of daemons in a Slurm allocation; srun and scontrol are stand-ins here.

`tests/faults/test_slurm.py` runs jobs under a stand-in, and under Slurm itself where it is
installed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ftrma.launch import mpirun, relays, slurm, slurmstart

STARTER = f"{sys.executable} -I {slurmstart.__file__}"
HANDED = [*mpirun.HOSTS_FROM_OPTIONS, "--prtemca", "plm_ssh_agent", STARTER]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of srun and scontrol: the latter knows n[1-3] alone."""
    for name in [*mpirun.BATCH_SYSTEMS, slurm.STEP_TASKS, slurm.CPUS, *(
            each for each in os.environ if each.startswith("PRTE_MCA_"))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mpirun, "default_hostfiles", list)
    for program, script in {
        "srun": 'printf "%s\\n" "$LD_PRELOAD|" "$@"; cat',
        "scontrol": '[ "$*" = "show hostnames n[1-3]" ] && printf "n1\\nn2\\nn3\\n"',
    }.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def allocation(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {slurm.JOB: "7", slurm.NODES: "n[1-3]", slurm.TASKS: "2(x2),1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("text", "tasks"), [
    ("4", [4]), ("2(x3)", [2, 2, 2]), ("2(x2),1", [2, 2, 1]), ("", []), ("2(x0)", []), ("x", []),
    ("0", [])])
def test_numbers_of_nodes(text: str, tasks: list[int]) -> None:
    assert slurm.numbers_of_nodes(text) == tasks


@pytest.mark.usefixtures("allocation")
@pytest.mark.parametrize("tasks", ["1", "2(x2)", ""])
def test_in_a_step_of_fewer_nodes_cpus_count(tasks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slurm.TASKS, tasks)
    monkeypatch.setenv(slurm.CPUS, "8(x3)")
    assert slurm.slots_of_nodes() == {"n1": 8, "n2": 8, "n3": 8}


@pytest.mark.usefixtures("allocation")
@pytest.mark.parametrize(("words", "processes", "oversubscribe", "expected"), [
    ("", 5, True, "--host n1:2,n2:2,n3:1"),
    ("", 8, True, "--host n1:4,n2:3,n3:1"),
    ("", 8, False, "--host n1:2,n2:2,n3:1"),
    ("--map-by node", 3, True, "--map-by node --host n1:2,n2:2,n3:1"),
    ("-H n1:4,n3:4", 8, True, "-H n1:4,n3:4"),
    ("--hostfile=some", 8, True, "--hostfile=some"),
])
def test_hosts_are_named(
    words: str, processes: int, oversubscribe: bool, expected: str
) -> None:
    found = slurm.words_in_allocation(words.split(), processes, oversubscribe=oversubscribe)
    assert found == [*expected.split(), *HANDED]


@pytest.mark.usefixtures("allocation")
def test_a_lost_node_is_replaced_in_place() -> None:
    """Law: these hosts have relays; hosts of which the launcher learns from Slurm have none."""
    found = slurm.words_in_allocation([], 5)
    assert relays.hosts_of_ranks(found, 5) == ["n1", "n1", "n2", "n2", "n3"]
    assert relays.starting_agent(found) == STARTER.split()
    assert not relays.why_none(found) and "batch system" in relays.why_none(["--host", "n1:2"])
    assert relays.slots_of_hosts(found) == {"n1": 2, "n2": 2, "n3": 1}
    assert not mpirun.on_one_node(found) and mpirun.on_one_node(
        [*mpirun.HOSTS_FROM_OPTIONS, "--host", os.uname().nodename])


@pytest.mark.usefixtures("allocation")
@pytest.mark.parametrize("words", [
    "--prtemca plm slurm", "--prtemca plm_ssh_agent ssh", "--prtemca ras ^pbs",
    "--mca plm_rsh_agent ssh"])
def test_a_choice_of_the_user_stays(words: str) -> None:
    assert slurm.words_in_allocation(words.split(), 5) == words.split()


@pytest.mark.usefixtures("allocation")
@pytest.mark.parametrize(("variable", "value"), [
    ("PRTE_MCA_plm_slurm_args", "--mem=0"), (slurm.NODES, "m[1-3]"), (slurm.NODES, ""),
    (slurm.TASKS, "2(x2)"), (slurm.TASKS, ""), ("PATH", "/nowhere")])
def test_nothing_is_guessed(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert slurm.words_in_allocation(["--map-by", "node"], 5) == ["--map-by", "node"]


@pytest.mark.usefixtures("programs")
def test_without_an_allocation_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slurm.words_in_allocation(["--host", "n1:2"], 5) == ["--host", "n1:2"]
    monkeypatch.setenv(slurm.NODES, "n[1-3]")
    assert slurm.words_in_allocation([], 5) == []


@pytest.mark.usefixtures("allocation")
def test_many_tasks_of_one_step_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slurm.STEP_TASKS, "1")
    assert slurm.words_in_allocation([], 5)
    monkeypatch.setenv(slurm.STEP_TASKS, "6")
    with pytest.raises(ValueError, match=r"^SLURM_STEP_NUM_TASKS=6: srun .* leave srun out"):
        slurm.words_in_allocation([], 5)


@pytest.mark.usefixtures("programs")
def test_a_daemon_is_started_by_a_step_of_its_own() -> None:
    """Law: srun gets the host and one command for a shell there; it has neither input nor a library
    that is preloaded on this host alone."""
    done = subprocess.run([*shlex.split(STARTER), "-x", "n2", "A=1;", "prted", "--x", '"y z"'],
                          input="never read", text=True, capture_output=True, timeout=10,
                          env={**os.environ, "LD_PRELOAD": ""}, check=True)
    preloaded, *words = done.stdout.splitlines()
    assert preloaded == "|" and "--overlap" in words and "--nodelist=n2" in words
    assert words[-5:] == [sys.executable, "-I", slurmstart.__file__, slurmstart.IN_STEP,
                          'A=1; prted --x "y z"']


def test_srun_outlives_the_launcher(programs: Path) -> None:
    """Law: who kills the launcher's child does not kill the step, which cleans up on its node."""
    (programs / "srun").write_text(f"#!/bin/sh\necho $$; read go < {programs}/end; exit 3\n")
    os.mkfifo(programs / "end")
    with subprocess.Popen([*shlex.split(STARTER), "n2", "x"], stdout=subprocess.PIPE) as child:
        assert child.stdout
        srun = int(child.stdout.readline())
        assert os.getsid(srun) == srun
        child.kill()
        child.wait()
        (programs / "end").write_text("\n")  # it waits for srun, which reads
        assert child.stdout.read() == b""


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("kill -KILL $$", 137)])
def test_a_step_has_the_status_of_its_command(command: str, status: int) -> None:
    done = subprocess.run([*shlex.split(STARTER), slurmstart.IN_STEP, command], timeout=10)
    assert done.returncode == status


def test_a_step_lasts_as_long_as_its_processes(tmp_path: Path) -> None:
    """Law: Slurm kills whoever is left at a step's end, and so the end waits for the last process,
    also after SIGTERM."""
    script = f"(cd {tmp_path}; touch up; read go < end; touch done) & exit 0"
    os.mkfifo(tmp_path / "end")
    with subprocess.Popen([*shlex.split(STARTER), slurmstart.IN_STEP, script]) as step:
        deadline = time.monotonic() + 10.0
        while not (tmp_path / "up").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        step.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            step.wait(0.2)
        (tmp_path / "end").write_text("\n")
        assert step.wait(10.0) == 0 and (tmp_path / "done").exists()
