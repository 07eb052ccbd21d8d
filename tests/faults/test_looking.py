"""Looking at a real job: `ftrma status` while it runs, its metrics, and the report of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jobs import FTRMA, Result, run_command
from nodes import run_on_nodes

pytestmark = pytest.mark.full

PROGRAM = """
import sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
window = MPI.Win.Allocate(8, 8, comm=comm)
state = ftrma.protect("main", step=0)
while state.step < 60:
    ftrma.safepoint()
    window.Fence()
    time.sleep(0.02)
    window.Put(np.full(1, state.step + 1.0), (comm.rank + 1) % comm.size)
    window.Fence()
    state.step += 1
"""
ON_NODES = """
import json, subprocess, sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
window = MPI.Win.Allocate(8, 8, comm=comm)
state = ftrma.protect("main", step=0)
while state.step < 30:
    ftrma.safepoint()
    window.Fence()
    window.Put(np.full(1, state.step + 1.0), (comm.rank + 1) % comm.size)
    window.Fence()
    state.step += 1
    if state.step == 25:
        time.sleep(0.5)  # so that the nodes have each other's words
        done = subprocess.run([sys.argv[2], "status", "--json"], capture_output=True, text=True)
        with open(f"{sys.argv[1]}/look-{comm.rank}.json", "w") as file:
            json.dump({"said": json.loads(done.stdout), "error": done.stderr}, file)
"""
# Runs a job and looks at it as a person would, from another process, until it has ended.
LOOK = """
import json, subprocess, sys, time
ftrma, to, *command = sys.argv[1:]
job = subprocess.Popen(command)
with open(to, "w") as file:
    while job.poll() is None:
        done = subprocess.run([ftrma, "status", "--json"], capture_output=True, text=True)
        assert not done.returncode and not done.stderr, done
        file.write(json.dumps(json.loads(done.stdout)) + "\\n")
        time.sleep(0.1)
sys.exit(job.wait())
"""


def run(tmp_path: Path, *options: str) -> tuple[Result, list[dict[str, Any]]]:
    """Run the program under `ftrma run`; all that `ftrma status` said of its job."""
    (tmp_path / "program.py").write_text(PROGRAM)
    result = run_command([
        sys.executable, "-c", LOOK, FTRMA, str(tmp_path / "looks"), FTRMA, "run", "-n", "4",
        "--group-size", "2", "--interval", "0.3", "--stats", str(tmp_path / "stats"),
        "--trace", str(tmp_path / "trace"), "--metrics", str(tmp_path / "a.prom"), *options,
        str(tmp_path / "program.py")])
    assert result.status == 0, result
    stats = json.loads((tmp_path / "stats").read_text())
    looks = [json.loads(line)["jobs"] for line in (tmp_path / "looks").read_text().splitlines()]
    return result, [job for jobs in looks for job in jobs if job["job"] == stats["job"]]


def test_a_job_with_a_death_is_seen(tmp_path: Path) -> None:
    """Law: each look is right for its moment: steps grow, the death and its recovery are told, and
    what comes after the run agrees with it."""
    result, looks = run(tmp_path, "--kill", "1@fence:60")
    stats = json.loads((tmp_path / "stats").read_text())
    states = [look["state"] for look in looks]
    assert states[0] == "starting" and "running" in states, states
    steps = [look["step"] for look in looks if look["each_slot"] and look["state"] != "starting"]
    assert steps == sorted(steps) and max(steps) > 30, steps
    last = [look for look in looks if look["state"] == "running"][-1]
    assert last["deaths"] == {"slot": 1} and last["recoveries"] == {"causal": 1}, last
    assert last["program"] == [str(tmp_path / "program.py")] and last["version"] > 0
    assert {slot["slot"] for slot in last["each_slot"]} == {0, 1, 2, 3}
    assert abs(last["began"] - stats["began"]) < 0.01
    assert [each["step"] for each in stats["checkpoints"]] == sorted(
        each["step"] for each in stats["checkpoints"])
    account = stats["effective"]
    assert 0 < account["share"] < 1 and account["recoveries_s"] > 0
    metrics = (tmp_path / "a.prom").read_text()
    assert 'state="ended"} 1\n' in metrics and 'ftrma_deaths_total{' in metrics, metrics
    page = tmp_path / "page.html"
    subprocess.run([FTRMA, "report", str(tmp_path / "stats"), str(tmp_path / "trace"), "-o",
                    str(page)], check=True, timeout=60)
    text = page.read_text()
    assert "slot 1, at fence" in text and "data:image/png" in text, result
    assert "Own time of a step" in text


@pytest.mark.nightly
def test_a_watch_ends_with_its_job(tmp_path: Path) -> None:
    """Law: `--watch` shows a rate between two looks, and ends by itself when the job has ended,
    whatever other jobs there are."""
    (tmp_path / "program.py").write_text(PROGRAM.replace("state =", """
if comm.rank == 0:
    import os
    print(os.environ["FTRMA_JOB"], flush=True)
state ="""))
    command = [FTRMA, "run", "-n", "2", "--stats", str(tmp_path / "stats"),
               str(tmp_path / "program.py")]
    watching = (
        "import subprocess, sys\n"
        f"job = subprocess.Popen({command!r}, stdout=subprocess.PIPE, text=True)\n"
        "name = job.stdout.readline().strip()\n"
        "watch = subprocess.run([sys.argv[1], 'status', name, '--watch', '0.3'], timeout=40)\n"
        "sys.exit(watch.returncode or job.wait())\n")
    result = run_command([sys.executable, "-c", watching, FTRMA])
    assert result.status == 0, result
    assert result.stdout.rstrip().endswith("the job has ended"), result
    rates = [float(line.split(", ")[1].split()[0]) for line in result.stdout.splitlines()
             if line.startswith("  step") and "-" not in line]
    assert any(5 < rate < 60 for rate in rates), result


def test_each_node_knows_all_slots() -> None:
    """Law: over several nodes any of them tells where all slots are, and that its job lives."""
    result = run_on_nodes(ON_NODES, 4, "--interval", "0.2", args=(FTRMA,))
    assert result.status == 0, result
    account = result.stats["effective"]
    assert len(result.stats["entered"]) == 1 and 0 < account["starting_s"] < account["total_s"]
    for look in result.of_slots("look", 4):
        (job,) = look["said"]["jobs"]
        assert not look["error"] and job["state"] == "running" and job["slots"] == 4, look
        assert [slot["node"] for slot in job["each_slot"]] == [0, 0, 1, 1], look
        assert all(20 <= slot["step"] <= 26 for slot in job["each_slot"]), look


def test_no_such_job() -> None:
    """Law: one message, with what there is."""
    result = run_command([FTRMA, "status", "ftrma-0-nothing"])
    assert result.status == 2 and "there is no such job" in result.stderr, result


def test_a_job_of_somebody_else(tmp_path: Path) -> None:
    """Law: a directory of another user's is named as that."""
    name = f"ftrma-{os.getuid()}-{os.getpid():08x}"
    other = Path("/dev/shm") / name
    other.mkdir(mode=0o755)
    try:
        result = run_command([FTRMA, "status", name])
    finally:
        other.rmdir()
    assert result.status == 2 and "open to others" in result.stderr, result


def test_a_killed_job_is_left_behind(tmp_path: Path) -> None:
    """Law: it is listed with the ways to go on or to remove it."""
    (tmp_path / "program.py").write_text(PROGRAM)
    job = subprocess.Popen([FTRMA, "run", "-n", "2", str(tmp_path / "program.py")])
    try:
        deadline, name = time.monotonic() + 30, ""
        while "running" not in name:
            assert time.monotonic() < deadline
            name = said()
        job.kill()
        job.wait()
        while "left behind" not in name:
            assert time.monotonic() < deadline, name
            name = said()
        assert "ftrma run --resume ftrma-" in name
    finally:
        job.kill()
        job.wait()
        subprocess.run([FTRMA, "clean", "--remove"], check=True, stdout=subprocess.DEVNULL)


def said() -> str:
    return subprocess.run([FTRMA, "status"], capture_output=True, text=True, check=True).stdout
