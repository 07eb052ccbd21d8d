"""A node's part of a job's directory: who looks after it when nobody of the job is there.

The daemon is a shell here, and what it does is the whole of the job on this node.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ftrma.host import nodedirectory

PATIENCE_S = 10.0
RUN = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("nodedirectory", {nodedirectory.__file__!r})
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
made.GAP_S = float(sys.argv[1])
made.main(sys.argv[2], sys.argv[3:])
"""


def start(session: Path, script: str, gap_s: float = 1.0) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(gap_s), str(session), "sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.01)


def test_a_node_without_ranks_keeps_nothing(tmp_path: Path) -> None:
    """Law: the directory goes with the daemon, and not before; who reads what the daemon says is
    not kept waiting."""
    job = tmp_path / "job"
    with start(job / "launch-1", "echo there; read word", gap_s=1000) as daemon:
        assert daemon.stdout and daemon.stdin
        assert daemon.stdout.readline() == b"there\n" and (job / "launch-1").is_dir()
        daemon.stdin.close()
        assert daemon.stdout.read() == b""
    soon(lambda: not job.exists())


def test_nothing_is_kept_when_the_node_is_taken_away(tmp_path: Path) -> None:
    """Law: after SIGTERM to all processes on the node even the vaults of ranks go."""
    job = tmp_path / "job"
    vault = job / os.uname().nodename / "vault"
    script = f"mkdir -p {vault}; echo there; read word"
    with start(job / "launch-1", script, gap_s=1000) as daemon:
        assert daemon.stdout and daemon.stdout.readline() == b"there\n"
        (keeper,) = [int(pid.name) for pid in Path("/proc").glob("[0-9]*")
                     if f"{job}/launch-1".encode() in read(pid / "cmdline")
                     and int(pid.name) != daemon.pid]
        os.kill(keeper, signal.SIGTERM)
        assert daemon.poll() is None and vault.is_dir()  # a process of the job is there still
        daemon.terminate()
    soon(lambda: not job.exists())


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.full
def test_what_ranks_have_left_waits_for_the_next_launch(tmp_path: Path) -> None:
    """Law: vaults stay for GAP_S, and as long as a launch is there that came in that time; then
    they go, and no session directory stays for longer than its launch."""
    job = tmp_path / "job"
    vault = job / os.uname().nodename / "vault"
    with start(job / "launch-1", f"mkdir -p {vault}", gap_s=1.5):
        pass
    soon(lambda: not (job / "launch-1").exists())
    assert vault.exists()
    with start(job / "launch-2", "echo there; read word", gap_s=1.5) as next_one:
        assert next_one.stdout and next_one.stdin
        assert next_one.stdout.readline() == b"there\n"
        time.sleep(2.0)  # longer than the first one's time
        assert vault.exists()
        next_one.stdin.close()
    soon(lambda: not (job / "launch-2").exists())
    assert vault.exists()
    soon(lambda: not job.exists())


@pytest.mark.plain
def test_the_supervisors_directory_is_not_touched(tmp_path: Path) -> None:
    """Law: where a control file is the supervisor is, or was, and its job may be resumed."""
    job = tmp_path / "job"
    job.mkdir(mode=0o700)
    (job / "control").touch()
    with start(job / "launch-1", "true", gap_s=0.0):
        pass
    time.sleep(0.5)
    assert (job / "control").exists()


@pytest.mark.plain
def test_who_comes_while_it_is_removed_makes_it_anew(tmp_path: Path) -> None:
    """Law: a launch never has a directory that is being removed, however they meet."""
    job = tmp_path / "job"
    for number in range(30):
        with start(job / f"launch-{number}", f"test -d {job}/launch-{number} && echo there",
                   gap_s=0.0) as daemon:
            assert daemon.stdout and daemon.stdout.read() == b"there\n"
    soon(lambda: not job.exists())
