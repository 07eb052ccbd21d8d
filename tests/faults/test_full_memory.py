"""Shared memory that fills up while a job runs: an end in words, with status 70, or no end at all.

Each job has a /dev/shm of its own, of a size that the test chooses; the program fills it up itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_command, run_job
from programs import kinds

FULL = "shared memory is full; free space in /dev/shm"
PROGRAM = """
import os, signal, sys
import numpy as np
import ftrma
from ftrma import MPI
comm, home, what = MPI.COMM_WORLD, sys.argv[1], sys.argv[2]
win = MPI.Win.Allocate(8 * 1000, 8, comm=comm)
cells = np.frombuffer(win.tomemory())
cells[:] = 0
state = ftrma.protect("s", step=0, x=np.zeros(200_000), blob=b"")
while state.step < 12:
    ftrma.safepoint()
    win.Fence()
    win.Put(np.array([float(state.step)]), (comm.rank + 1) % comm.size)
    win.Fence()
    state.x += comm.rank + state.step
    if what == "grows":
        state.blob = os.urandom(200_000 * (state.step + 1))
    full = what == "roomy" or os.path.exists("/dev/shm/fill")
    if what == "shrinks" and state.step == 3 and comm.rank == 0:
        room = os.statvfs("/dev/shm")
        used = (room.f_blocks - room.f_bfree) * room.f_frsize
        os.system(f"mount -o remount,size={used} /dev/shm")
        full = True
    if state.step == 3 and comm.rank == 0 and not full:
        with open("/dev/shm/fill", "wb", buffering=0) as fill:
            try:
                while True:
                    fill.write(bytes(4096))
            except OSError:
                pass
    comm.Barrier()
    if what == "window" and state.step == 5:
        MPI.Win.Allocate(10_000_000, 8, comm=comm)
    once = os.path.exists(f"{home}/once")
    if what in ("dies", "roomy") and state.step == 6 and comm.rank == 1 and not once:
        open(f"{home}/once", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    state.step += 1
assert cells[0] == 11 and state.x[7] == 66 + 12 * comm.rank
print("right")
"""


def why_not() -> str:
    outcome = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return outcome.stderr.strip() if outcome.returncode else ""


pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(why_not()), reason="no mount namespace may be made here")]


def run_full(home: Path, what: str, *options: str, limit: str = "") -> Result:
    (home / "program.py").write_text(PROGRAM)
    mount = "mount -t tmpfs -o size=90m tmpfs /dev/shm"
    command = [FTRMA, "run", "-n", "2", "--log-budget", "4M", *options]
    return run_command(
        ["unshare", "--mount", "sh", "-c", f'{mount}; {limit} exec "$@"', "sh", *command,
         str(home / "program.py"), str(home), what], timeout=40,
    )


@pytest.mark.parametrize("what", ["stays", pytest.param("shrinks", marks=pytest.mark.nightly)])
def test_nothing_new_is_needed(tmp_path: Path, what: str) -> None:
    """Law: what a job has taken is enough for it to go on, whether the rest is taken by others or
    the file system is made smaller."""
    result = run_full(tmp_path, what, "--interval", "0")
    assert result.status == 0 and result.stdout.count("right") == 2, result


@pytest.mark.parametrize("interval", ["0", pytest.param("never", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("what", ["grows", "dies", "window"])
def test_the_end_is_told(tmp_path: Path, what: str, interval: str) -> None:
    """Law: 70 and the reason with its remedy, or the right result; no traceback of ftrma's, no
    relaunch into the same full memory."""
    result = run_full(tmp_path, what, "--interval", interval)
    if what == "window":  # the program's own error, as MPI has it
        assert result.status == 1 and "no memory for a window of 10000000 bytes" in result.stderr
    elif result.status:
        assert result.status == 70 and FULL in result.stderr, result
        assert "Traceback" not in result.stderr, result
    else:
        assert result.stdout.count("right") == 2, result
    if (what, interval) == ("grows", "0"):
        assert result.status == 70, result
    assert result.stderr.count("launching the job again") <= 1, result


def test_a_job_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    script = "mount -t tmpfs -o size=1m tmpfs /dev/shm; \"$@\"; echo $? $(ls /dev/shm)"
    result = run_command(
        ["unshare", "--mount", "sh", "-c", script, "sh", FTRMA, "run", "-n", "2",
         str(tmp_path / "program.py")], timeout=20,
    )
    assert result.stdout.strip() == "70" and "no shared memory for the job" in result.stderr, result


def test_addresses_are_no_memory(tmp_path: Path) -> None:
    """Law: what ``ulimit -v`` forbids is not told as full memory."""
    result = run_full(tmp_path, "stays", limit="ulimit -v 8000000;")
    assert result.status == 70 and FULL not in result.stderr, result
    assert "'ulimit -v' allows 7812 MiB" in result.stderr and "Traceback" not in result.stderr




MUCH_MEMORY = """
import os
real = os.sysconf
os.sysconf = lambda name: 2**34 if name == "SC_PHYS_PAGES" else real(name)  # 64 TiB
"""


def test_a_machine_of_very_much_memory(tmp_path: Path) -> None:
    """Law: vaults fit into a process's address space beside each other, whatever there is."""
    (tmp_path / "sitecustomize.py").write_text(MUCH_MEMORY)
    result = run_job(PROGRAM, 8, "--interval", "0", "--group-size", "8", args=["roomy"],
                     env={"PYTHONPATH": str(tmp_path)})
    assert result.status == 0 and result.stdout == 8 * "right\n", result
    assert kinds(result) == ["causal"], result


MANY_EVENTS = """
import os, sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8, 8, comm=comm)
win.Lock_all()
value = np.ones(1)
for _ in range(120_000):
    win.Put(value, comm.rank)
win.Unlock_all()
comm.Barrier()
room = os.statvfs("/dev/shm")
print(room.f_bavail / room.f_blocks)
comm.Barrier()
"""


def test_a_trace_leaves_room_to_the_job(tmp_path: Path) -> None:
    """Law: a trace that would fill shared memory ends where an eighth is left, and that is told;
    what was recorded before is in the file."""
    (tmp_path / "program.py").write_text(MANY_EVENTS)
    trace = tmp_path / "trace.json"
    result = run_command(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=30m tmpfs /dev/shm; exec "$@"',
         "sh", FTRMA, "run", "-n", "2", "--log-budget", "4M", "--trace", str(trace),
         str(tmp_path / "program.py")], timeout=40)
    assert result.status == 0, result
    assert all(0.115 < float(left) < 0.13 for left in result.stdout.split()), result
    assert result.stderr.count("warning: the trace ends before the job did: shared memory") == 1
    puts = json.loads(trace.read_text())["traceEvents"]
    assert 20_000 < sum(event["name"] == "Put" for event in puts) < 240_000


STREAM = """
import os
from ftrma.native import loading, logs
loading.load()
fd = os.open("/dev/shm/trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
logs.trace_to(fd)
for _ in range(30_000):
    logs.trace_text(36, 1, 0, 0, 0, 1, bytes(500))
room = os.statvfs("/dev/shm")
print(room.f_bavail / room.f_blocks, oct(os.fstat(fd).st_mode & 0o777))
"""


def test_a_file_that_a_process_is_given_for_its_trace_is_bounded_too() -> None:
    """Law: so are the files that the root opens for places that come later."""
    result = run_command(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=16m tmpfs /dev/shm; exec "$@"',
         "sh", sys.executable, "-c", STREAM], timeout=40)
    left, mode = result.stdout.split()
    assert 0.115 < float(left) < 0.13 and mode == "0o400", result
