"""Launches: one side of a comparison is started, read and ended.

Both sides run under the launcher command line that `ftrma run` uses, so what differs between them
is the protection alone. Every launch has a time limit and a session of its own, and whatever it
started is ended with it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ftrma.launch.mpirun import launcher_environment, make_session, mpirun_command

TERM_PATIENCE_S = 10.0  # what `ftrma run` may take to clean up after SIGTERM
HERE = Path(__file__).resolve().parent

JsonObject = dict[str, Any]
# Told of each process that a launch starts.
Started = Callable[[subprocess.Popen[bytes]], None]


class BenchError(RuntimeError):
    """A measurement cannot be made; the text says why."""


def ignore(_process: subprocess.Popen[bytes]) -> None:
    """The launch concerns nobody else."""


def plain(
    slots: int, script: Path, arguments: Sequence[str], options: Sequence[str] = (),
    prepare: Callable[[Path], list[str]] = lambda session: [],
) -> list[str]:
    """Command line of an unprotected run, with the launcher options of a protected one.

    Args:
        options: more for the launcher; prepare: those that depend on the launch's directory.
    """
    session = new_session()
    words = [*prepare(session), *options]
    return [*mpirun_command(slots, session, words), sys.executable, str(script), *arguments]


def new_session() -> Path:
    """A directory for one launch; all go at the end of the measurement."""
    return make_session(Path(sessions().name))


@functools.cache
def sessions() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ftrma-", dir="/dev/shm")


def protected(
    slots: int, script: Path, arguments: Sequence[str], options: Sequence[str]
) -> list[str]:
    """Command line of a protected run."""
    cli = "from ftrma.command.cli import main; main()"
    run = [sys.executable, "-c", cli, "run", "-n", str(slots)]
    return [*run, *options, str(script), *arguments]


def environment() -> dict[str, str]:
    """The environment of both sides: no setting of the user's, one thread per rank."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FTRMA_", "OMPI_MCA_"))}
    return {**kept, **launcher_environment(), "FTRMA_CONFIG": "none", "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1"}


def run(command: Sequence[str], limit_s: float, started: Started = ignore) -> JsonObject:
    """Run a command to its end and return the JSON object in its last line of output.

    `started` is told of the process.

    Raises:
        BenchError: it takes longer than `limit_s`, fails, or says something else.
    """
    status, out, err = run_once(command, limit_s, started)
    if status:
        said = err.strip()[-2000:] or out.strip()[-2000:]
        raise BenchError(f"exit status {status} of: {shown(command)}\n{said}")
    return last_object(out, shown(command))


def run_once(
    command: Sequence[str], limit_s: float, started: Started = ignore
) -> tuple[int, str, str]:
    """Run a command to its end: its exit status, output and errors."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment(),
            start_new_session=True,
        )
        try:
            started(process)
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"no end after {limit_s:g} s (--timeout): {shown(command)}") from None
        finally:
            end(process)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return process.returncode, texts[0], texts[1]


def run_protected(
    slots: int, script: Path, arguments: Sequence[str], options: Sequence[str], limit_s: float,
    *, deaths: int = 0, started: Started = ignore,
) -> tuple[JsonObject, JsonObject]:
    """Run protected; returns the program's JSON object and that of ``--stats``.

    Raises:
        BenchError: as `run`, or not as many processes died as are meant to.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "stats.json"
        command = protected(slots, script, arguments, [*options, "--stats", str(path)])
        report = run(command, limit_s, started)
        stats: JsonObject = json.loads(path.read_text())
    if len(stats["failures"]) != deaths:
        raise BenchError(
            f"{len(stats['failures'])} processes died instead of {deaths}: {shown(command)}"
        )
    return report, stats


def shown(command: Sequence[str]) -> str:
    return shlex.join(command)


def last_object(text: str, source: str) -> JsonObject:
    """The JSON object in the last line of `text`."""
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise BenchError(f"no JSON object in the last line of output: {source}")
    return found


def processes() -> dict[int, tuple[int, int, str]]:
    """All processes: pid -> parent, session, start time (that tells a reused pid)."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = (int(fields[1]), int(fields[3]), fields[19])
    return found


def family(leader: int) -> dict[int, str]:
    """The processes below `leader` and in its session: pid -> start time."""
    everyone = processes()
    found = {p for p, (_, session, _) in everyone.items() if leader in (p, session)}
    while True:
        more = {p for p, (parent, _, _) in everyone.items() if parent in found} - found
        if not more:
            return {p: everyone[p][2] for p in found}
        found |= more


def end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of a launch behind: neither processes nor shared memory."""
    members = family(process.pid)
    if process.poll() is None:
        process.terminate()  # `ftrma run` and mpirun clean up
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERM_PATIENCE_S)
        left = processes()
        for pid, started in members.items():
            if pid in left and left[pid][2] == started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.wait()
    else:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def end_on_signals() -> None:
    """SIGTERM ends the measurement like Ctrl-C, so that its launches are ended too."""

    def stop(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
