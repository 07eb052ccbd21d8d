"""The message-logging baseline: builds it, and makes the command line that runs a program under it.

See ``ml.c`` for the protocol. The library is built with the MPI's own compiler wrapper when it is
needed, into a directory that is gone with this process; the program is started by the launcher's
plain command line, with the library preloaded and some processes more: the loggers.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from csrc.build import find_mpicc
from csrc.calls import Call, declare, read_header
from ftrma.launch.mpirun import mpirun_command

from . import launching
from .launching import HERE, BenchError, JsonObject, Started

SOURCE = HERE / "ml.c"
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations",
         "-fPIC", "-shared"]
# Attributes lie at the MPI library's own world, where the predefined ones are; Abort ends all.
NOT_TRANSLATED = {"Abort", "Comm_get_attr", "Comm_set_attr", "Comm_delete_attr"}


def run(
    slots: int,
    script: Path,
    arguments: Sequence[str],
    limit_s: float,
    *,
    loggers: int,
    ring_bytes: int,
    started: Started,
) -> tuple[JsonObject, JsonObject]:
    """Run a program with message logging.

    Args:
        slots: ranks of the program; `loggers` processes come on top, at most as many.
        script: the program, and `arguments` its arguments.
        limit_s: time limit.
        ring_bytes: memory of each logger.
        started: is told of the process.

    Returns:
        The program's JSON object, and what the loggers stored: ``records``, ``bytes``, ``wraps``
        (how often a ring was full).
    """
    with tempfile.TemporaryDirectory(prefix="bench-ml-") as directory:
        command = command_line(slots, script, arguments, loggers, ring_bytes, directory)
        report = launching.run(command, limit_s, started)
        return report, stored(Path(directory), loggers)


def command_line(
    slots: int, script: Path, arguments: Sequence[str], loggers: int, ring_bytes: int,
    directory: str, more: Sequence[str] = (),
) -> list[str]:
    """The launcher's command line; `more` are further settings for the library."""
    settings = [f"LD_PRELOAD={library()}", f"ML_LOGGERS={loggers}", f"ML_RING_BYTES={ring_bytes}",
                f"ML_DIRECTORY={directory}", *more]
    exported = [word for setting in settings for word in ("-x", setting)]
    program = [sys.executable, str(script), *arguments]
    return [*mpirun_command(slots + loggers, launching.new_session(), exported), *program]


def stored(directory: Path, loggers: int) -> JsonObject:
    """Sums over what each logger has told."""
    told = []
    for index in range(loggers):
        path = directory / f"logger-{index}.json"
        if not path.exists():
            raise BenchError(f"message logging: logger {index} did not come to its end")
        told.append(json.loads(path.read_text()))
    return {key: sum(t[key] for t in told) for key in told[0]}


@functools.cache
def library() -> Path:
    """Build the library once; its directory is removed when this process ends."""
    mpicc = find_mpicc()
    calls = read_header(mpicc)
    if any(call.name == "Put_c" for call in calls):
        raise BenchError(
            "this MPI library has large-count calls, which the message-logging baseline does not "
            "intercept; measure with Open MPI 5"
        )
    wrappers = [w for w in map(translation, calls) if w]
    directory = Path(_directory().name)
    source, target = directory / "ml_world.c", directory / "libml.so"
    head = "#include <mpi.h>\nMPI_Comm ml_comm(MPI_Comm comm);\n"
    source.write_text(head + "\n".join(wrappers))
    command = [mpicc, *FLAGS, str(SOURCE), str(source), "-o", str(target)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise BenchError(f"cannot build the message-logging baseline:\n{built.stderr[-2000:]}")
    return target


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-ml-")


def translation(call: Call) -> str:
    """A wrapper that puts the slots in the place of MPI_COMM_WORLD; empty if there is none."""
    if call.name in NOT_TRANSLATED or not any(kind == "MPI_Comm" for kind, _ in call.parameters):
        return ""
    head = ", ".join(declare(kind, name) for kind, name in call.parameters)
    given = ", ".join(
        f"ml_comm({name})" if kind == "MPI_Comm" else name for kind, name in call.parameters
    )
    return f"int MPI_{call.name}({head})\n{{\n    return PMPI_{call.name}({given});\n}}\n"
