"""SIGUSR1 and SIGUSR2 to ``ftrma run``, by which batch systems warn, and what becomes of them.

Law: a slot gets one if its program handles it, and dies of none that it does not; that is told
once. Who dies of one all the same ends the job, with the status that tells the signal and in words:
it is no failure.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import FILES, FTRMA, Result, run_command
from nodes import launcher_options, remove_fake_ssh, why_not
from tiers import tiers

SLOTS = 4
MINE = signal.SIGUSR1
PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
comm, (ready, how) = MPI.COMM_WORLD, sys.argv[1:]

def die_of(number, frame):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

def got(number):
    print("got", number)

if how == "one" and comm.rank == 1:
    signal.signal(signal.SIGUSR1, lambda number, frame: got(number))
elif how == "waits":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    threading.Thread(target=lambda: got(signal.sigwait([signal.SIGUSR1])), daemon=True).start()
elif how == "dies" and comm.rank == 1:
    signal.signal(signal.SIGUSR1, die_of)
elif how == "late":
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
elif how == "killed":
    def handler(number, frame):
        got(number)
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGUSR1, handler)
win = MPI.Win.Allocate(8, 8, comm=comm)
comm.Barrier()
if comm.rank == 0:
    open(ready, "w").close()
for step in range(100):
    if how == "late" and step == 20:
        signal.signal(signal.SIGUSR1, lambda number, frame: got(number))
    win.Fence()
    win.Put(np.array([step]), (comm.rank + 1) % comm.size)
    win.Fence()
    time.sleep(0.03)
assert np.frombuffer(win.tomemory(), "i8") == 99
print("right", comm.rank)
"""
# Sends a signal three times once a file is there; its status is that of the job.
SENDER = """
import os, signal, subprocess, sys, time
ready, number, *command = sys.argv[1:]
job = subprocess.Popen(command)
while not os.path.exists(ready) and job.poll() is None:
    time.sleep(0.01)
for _ in range(3):
    job.send_signal(int(number))
    time.sleep(0.1)
status = job.wait()
sys.exit(status if status >= 0 else 128 - status)
"""

@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    yield
    remove_fake_ssh()


def warn(tmp_path: Path, how: str, *, several: bool = False) -> Result:
    if several and why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    program, stats = tmp_path / "program.py", tmp_path / "stats.json"
    program.write_text(PROGRAM)
    where = ["--aware", "none", "--mpirun", launcher_options()] if several else []
    ready = str(tmp_path / "ready")
    result = run_command(
        [sys.executable, "-c", SENDER, ready, str(MINE.value), FTRMA, "run", "-n", str(SLOTS),
         "--stats", str(stats), *where, str(program), ready, how],
        env={FILES: str(tmp_path)}, timeout=40, patience_s=5.0 * several)
    result.stats = json.loads(stats.read_text())
    return result


def both(*marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("several", [
        pytest.param(False, id="one node", marks=marks),
        pytest.param(True, id="several", marks=pytest.mark.nightly)])


@pytest.mark.full
@both()
def test_who_does_not_handle_one_does_not_get_it(tmp_path: Path, several: bool) -> None:
    result = warn(tmp_path, "nobody", several=several)
    assert result.status == 0 and not result.stats["failures"], result
    assert sorted(result.stdout.splitlines()) == [f"right {slot}" for slot in range(SLOTS)], result
    (line,) = result.stderr.splitlines()
    assert "warning: SIGUSR1 has come and is not handed on to" in line, result


@both(pytest.mark.full)
def test_who_handles_one_gets_it(tmp_path: Path, several: bool) -> None:
    result = warn(tmp_path, "one", several=several)
    assert result.status == 0 and not result.stats["failures"], result
    assert result.stdout.count("got 10\n") == 3 and result.stdout.count("right") == SLOTS, result
    assert result.stderr.count("SIGUSR1 has come and is not handed on to slot") == 1, result


@pytest.mark.parametrize("how", tiers(["waits", "late"], full=["late"]))
def test_who_waits_for_one_or_will_handle_it_soon_gets_it(tmp_path: Path, how: str) -> None:
    """Law: a blocked signal is that of who waits for it; a program has a moment for its handler."""
    result = warn(tmp_path, how)
    assert result.status == 0 and not result.stats["failures"], result
    assert result.stdout.count("got 10\n") >= SLOTS and not result.stderr, result


@both(pytest.mark.full)
def test_who_dies_of_one_ends_the_job(tmp_path: Path, several: bool) -> None:
    result = warn(tmp_path, "dies", several=several)
    assert result.status == 128 + MINE and not result.stats["recoveries"], result
    assert "ftrma: slot 1 died of SIGUSR1, which had been sent to 'ftrma run'" in result.stderr


@pytest.mark.skipif(tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15),
                    reason="before Linux 6.15 nobody but its parent learns of what a process died")
@pytest.mark.nightly
def test_a_kill_behind_a_signal_is_a_failure(tmp_path: Path) -> None:
    """The replacement may be told of, as one that does not handle the signal, until it does."""
    result = warn(tmp_path, "killed")
    assert result.status == 0 and result.stats["recoveries"], result
    assert "died of SIGUSR1" not in result.stderr and result.stdout.count("right") == SLOTS, result
