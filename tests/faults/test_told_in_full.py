"""A log has the lines of all processes of a job, and the terminal those that were asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Result, run_job
from nodes import NODES, run_on_nodes

from ftrma.launch import mpirun

LIMIT_S = 40
PROGRAM = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
window = MPI.Win.Allocate(8, 8, comm=comm)
memory = np.frombuffer(window.tomemory())
memory[:] = 0
state = ftrma.protect("main", step=0)
while state.step < 10:
    ftrma.safepoint()
    window.Fence()
    window.Put(np.ones(1), 1 - comm.rank)
    window.Fence()
    state.step += 1
"""
RECOVERED = r"slot 1 died; replayed from checkpoint \d+ .*"


def run(*options: str) -> Result:
    return run_job(PROGRAM, 2, "--interval", "0", "--kill", "1@fence:11", *options,
                   timeout=LIMIT_S)


@pytest.mark.full
def test_a_log_beside_a_quiet_terminal(tmp_path: Path) -> None:
    """Law: a quiet job says nothing of a recovery; its log has what the replacement said, in its
    role, and the death, each in the order of time, and begins and ends with the job."""
    log = tmp_path / "log"
    job = run("--quiet", "--log-file", str(log))
    assert job.status == 0 and job.stderr == "", job.stderr
    lines = log.read_text().splitlines()
    assert all(re.match(r"\S+T\S+ ftrma-\d+-\w{8} ", line) for line in lines)
    texts = [line.split(" ", 2)[2] for line in lines]
    assert " run " in texts[0] and texts[-1] == "supervisor: the job has ended with status 0"
    assert [text for text in texts if re.fullmatch(f"slot 1: {RECOVERED}", text)]
    assert [text for text in texts if re.fullmatch(r"supervisor: slot 1 .* died at fence", text)]
    assert sum("coordinated checkpoint, version" in text for text in texts) >= 5


@pytest.mark.full
def test_a_verbose_terminal() -> None:
    """Law: each line has the time, the job and the role, those of other processes too."""
    job = run("--verbose")
    assert job.status == 0
    lines = job.stderr.splitlines()
    assert all(re.match(r"ftrma: \S+T\S+ ftrma-\d+-\w{8} (slot \d|supervisor): ", line)
               for line in lines), job.stderr
    assert any(re.search(rf" slot 1: {RECOVERED}", line) for line in lines)
    assert lines[-1].endswith("the job has ended with status 0")


@pytest.mark.full
def test_a_log_without_a_supervisor(tmp_path: Path) -> None:
    """Law: under another launcher each process adds its own lines."""
    log = tmp_path / "log"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with mpirun.session_directory() as session:
        command = [*mpirun.mpirun_command(4, session), sys.executable, "-m", "ftrma", str(program)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path,
            env={**os.environ, **mpirun.launcher_environment(), "FTRMA_LOG_FILE": str(log),
                 "FTRMA_SLOTS": "2", "FTRMA_QUIET": "yes", "FTRMA_INTERVAL": "0",
                 "FTRMA_KILL": "1@fence:11"})
    assert re.search(rf" slot 1: {RECOVERED}\n", log.read_text()), done.stderr
    assert "replayed" not in done.stderr


@pytest.mark.full
def test_one_log_for_several_nodes(tmp_path: Path) -> None:
    """Law: lines of processes on all nodes are in the log beside the supervisor, with their hosts,
    though the nodes cannot reach that file."""
    log = tmp_path / "log"
    job = run_on_nodes(PROGRAM, 2, "--spares", "3", "--interval", "0", "--kill", "1@fence:11",
                       "--quiet", "--log-file", str(log))
    assert job.status == 0 and job.stderr == "", job.stderr
    texts = [line.split(" ", 2)[2] for line in log.read_text().splitlines()]
    hosts = "|".join(map(re.escape, NODES))
    assert [text for text in texts if re.fullmatch(rf"slot \d on ({hosts}): slot 1 died; .*", text)]
    assert texts[-1] == "supervisor: the job has ended with status 0"


@pytest.mark.full
def test_a_time_out_reaches_all_processes() -> None:
    """Law: a choice on the command line is in force in processes on other nodes."""
    program = PROGRAM.replace("import sys\n", "import sys\nfrom ftrma.host import timeouts\n", 1)
    program += """
import json, pathlib
found = [timeouts.STUCK.s, timeouts.AGENT_REACH.s]
pathlib.Path(sys.argv[1], f"{comm.rank}.json").write_text(json.dumps(found))
"""
    job = run_on_nodes(program, 2, "--spares", "3", "--timeout", "stuck=7.5", "--timeout",
                       "agent-reach=33")
    assert job.status == 0 and job.results == {"0": [7.5, 33.0], "1": [7.5, 33.0]}, job
