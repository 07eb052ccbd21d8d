"""Real jobs for tests: run a script under ``ftrma run`` or plain mpirun, and leave nothing behind.

A program under test gets a directory as its first argument and writes its results there, one file
per slot: ``<name>.json``, ``<name>.npy`` or ``<name>.npz``. `Result.results` maps ``<name>`` to the
content. A test judges these files; an exit status alone proves nothing.

Every process of a job carries a mark in its environment, by which it is found wherever the launcher
has moved it. After each job `run_job` asserts that no process of it lives, that no file of it is
left in shared memory, and that no log has used more than its budget; a job that outlives its time
limit is killed and fails the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FTRMA = str(Path(sys.executable).parent / "ftrma")
SHARED = Path("/dev/shm")
MARK = "FTRMA_TEST_MARK"
FILES = "FTRMA_TEST_FILES"  # directories that all nodes of a job have in common, by colons
# Beginnings of a job's directory and of the MPI library's files, which should be in it: other jobs
# have other numbers there.
OURS = re.compile(
    r"/dev/shm/(ftrma-\d+-\w{8}|(?:sm_segment|osc_sm|osc_rdma|vader_segment)\.\S*\.)"
)
# Or NumPy starts as many as there are cores, in each process of each job, for nothing.
NODE_DIRECTORY = str(Path(__file__).parents[1] / "ftrma/host/nodedirectory.py")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
MADE_OF_S = 5.0  # an emulated node ends with its last process, on a crowded machine within seconds
LOOK_S = 0.1  # how often a job is asked which files it has


@dataclass
class Result:
    """Outcome and files of a job.

    Attributes:
        status: exit status of the command.
        stdout, stderr: of all its processes.
        stats: content of the ``--stats`` file; empty if it was not written.
        results: content of the files that the program wrote, by name without ending.
    """

    status: int
    stdout: str
    stderr: str
    stats: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict, repr=False)

    def of_slots(self, name: str, n: int) -> list[Any]:
        """The files ``<name>-0`` to ``<name>-<n-1>``, in this order; all must be there."""
        missing = [s for s in range(n) if f"{name}-{s}" not in self.results]
        assert not missing, f"slots {missing} wrote no {name!r}\n{self}"
        return [self.results[f"{name}-{s}"] for s in range(n)]

    def __str__(self) -> str:
        return f"status {self.status}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


def run_job(
    script: str | Path,
    n: int | str,
    *options: str,
    args: Sequence[str] = (),
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    patience_s: float = 0.0,
    inside: Sequence[str] = (),
) -> Result:
    """Run a program protected.

    Args:
        script: path of the program, or its text.
        n: slots.
        options: of ``ftrma run``, such as ``"--spares", "2"``.
        args: of the program, after the directory for its results.
        timeout: seconds until the job is killed and the test fails.
        env: additions to the environment.
        stdin: what comes by a pipe, a page at most.
        patience_s: that its processes get to end after it.
        inside: words of a command that runs ``ftrma run``.
    """
    return _run(lambda stats: [*inside, FTRMA, "run", "-n", str(n), "--stats", str(stats),
                               *options],
                script, args, timeout, env or {}, stdin, patience_s)


def run_plain(
    script: str | Path,
    n: int,
    *,
    args: Sequence[str] = (),
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> Result:
    """Run the same program unprotected, under the launcher that protected jobs use.

    It runs by ``-m mpi4py``, which ends all ranks when one raises. `launcher` has more of the
    launcher's options.
    """
    from ftrma.launch.mpirun import launcher_environment, mpirun_command, session_directory

    with session_directory() as session:
        command = [*mpirun_command(n, session, launcher), sys.executable, "-m", "mpi4py"]
        return _run(lambda stats: command, script, args, timeout,
                    {**launcher_environment(), **(env or {})})


def run_command(
    command: Sequence[str],
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    patience_s: float = 0.0,
) -> Result:
    """Run any command line under the same watch: time limit, no process and no file left."""
    mark = secrets.token_hex(8)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FTRMA_")}
    prefixes: set[str] = set()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        # Files, not pipes: a process that is left behind must not keep the test waiting.
        job = subprocess.Popen(
            list(command), stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=out,
            stderr=err, env={**clean, **ONE_THREAD, **(env or {}), MARK: mark},
            start_new_session=True,
        )
        if job.stdin:
            with job.stdin:
                job.stdin.write(stdin.encode())
        try:
            late = not _wait(job, mark, timeout, prefixes)
            deadline = time.monotonic() + patience_s
            while marked(mark) and time.monotonic() < deadline:
                time.sleep(0.01)
            # The parts of an emulated node end a moment after all in it has ended.
            deadline = time.monotonic() + MADE_OF_S
            while (there := marked(mark)) and time.monotonic() < deadline and all(
                    is_of_a_node(command_line(p)) for p in there):
                time.sleep(0.01)
        finally:
            left = [f"{p} {command_line(p)}" for p in marked(mark) if p != job.pid]
            kill_marked(mark)
            job.wait()
        out.seek(0), err.seek(0)
        result = Result(job.returncode, out.read().decode(), err.read().decode())
    theirs = " ".join(command)  # who makes a session directory for a command removes it later
    files = sorted(p for p in SHARED.iterdir()
                   if p.name.startswith(tuple(prefixes)) and f"{p}/launch-" not in theirs)
    remove(files)
    assert not late, f"{' '.join(command)}: not ended after {timeout} s; {left}\n{result}"
    assert not left, f"processes left: {left}\n{result}"
    assert not files, f"files left: {', '.join(map(str, files))}\n{result}"
    return result


def _wait(job: subprocess.Popen[bytes], mark: str, timeout: float, prefixes: set[str]) -> bool:
    """Wait for the end, noting meanwhile which files in shared memory the job has mapped."""
    deadline = time.monotonic() + timeout
    end = os.pidfd_open(job.pid)
    others = set[int]()
    try:
        while time.monotonic() < deadline:
            if select.select([end], [], [], LOOK_S)[0]:
                job.wait()
                return True
            for pid in marked(mark, others):
                with contextlib.suppress(OSError):
                    prefixes.update(OURS.findall(Path(f"/proc/{pid}/maps").read_text()))
        return False
    finally:
        os.close(end)


def _run(make: Any, script: str | Path, args: Sequence[str], timeout: float,
         env: Mapping[str, str], stdin: str = "", patience_s: float = 0.0) -> Result:
    with tempfile.TemporaryDirectory(prefix="job-") as home:
        directory = Path(home) / "results"
        directory.mkdir()
        if isinstance(script, str):
            (Path(home) / "program.py").write_text(script)
            script = Path(home) / "program.py"
        stats = Path(home) / "stats.json"
        command = [*make(stats), str(script), str(directory), *args]
        files = ":".join({home, env.get(FILES, home)})
        result = run_command(command, timeout, {**env, FILES: files}, stdin, patience_s)
        if stats.exists():
            result.stats = json.loads(stats.read_text())
        logs = result.stats.get("log", [])
        assert all(log["peak_bytes"] <= log["budget_bytes"] for log in logs), logs
        result.results = {p.stem: read_result(p) for p in sorted(directory.iterdir())}
        return result


def read_result(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return dict(archive)
    return np.load(path) if path.suffix == ".npy" else path.read_text()


def until(fd: int, wanted: str, text: str, deadline: float) -> str:
    """Read what a job writes until this has come.

    Args:
        text: that was read before.
        deadline: on the monotonic clock.

    Returns:
        All that was read.
    """
    while wanted not in text:
        ready = select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]
        piece = os.read(fd, 4096) if ready else b""
        assert piece, f"{wanted!r} has not come: {text}"
        text += piece.decode()
    return text


# ---- what is left ---------------------------------------------------------------------------


def processes() -> Iterator[int]:
    return (int(p) for p in os.listdir("/proc") if p.isdigit())


def marked(mark: str, others: set[int] | None = None) -> list[int]:
    """Living processes of the job that carries this mark.

    Args:
        others: processes that are passed over; those that are found to be of no such job are added,
            since a process has the mark from its begin or never.
    """
    needle = f"{MARK}={mark}".encode()
    found = []
    for pid in processes():
        if others and pid in others:
            continue
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/environ").read_bytes()
            if needle in words.split(b"\0"):
                found.append(pid)
            elif words and others is not None:  # none: it may be amid its exec
                others.add(pid)
    return found


def kill_marked(mark: str) -> None:
    """Kill until nobody is left; a process that is being killed can no longer start others."""
    while pids := marked(mark):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def command_line(pid: int) -> str:
    try:
        # A process that is ending has no words any more.
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() or "?"
    except OSError:
        return "?"


def is_of_a_node(command: str) -> bool:
    """A command is part of an emulated node: its namespaces, first process, or daemon; or
    it has just ended."""
    return (command.startswith(("unshare ", "?")) or " -ISc " in command
            or f" -I {NODE_DIRECTORY} " in command)


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
