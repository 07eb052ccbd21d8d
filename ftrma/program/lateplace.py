"""Starts processes that join a framework's program after the job has begun.

Such a process is a member of a framework that is told of deaths (`framework.Members.start`). It is
a child of the root's process. If the root dies, the attempt ends, and the kernel ends the child as
well. A thread of the root waits for the child and tells its death. The child runs `lateprogram`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from ..fabric.view import JobView
from ..host.errors import FtrmaError
from ..host.helper import Helper
from ..native import job, mail
from . import deathmail

COMMAND = (
    "import sys; getattr(sys.flags, 'safe_path', 0) or sys.path.pop(0); "
    "from ftrma.program.lateprogram import main; main()"
)
# Variables by which an MPI launcher passes information to its processes.
LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_")


def start(view: JobView, words: list[str], traces: bool, number: int) -> None:
    """Start a process with this number, as the root; it comes up while the caller goes on.

    Args:
        words: the program's words, see `script.UserProgram`.
        traces: whether it writes a trace.
    """
    about = [os.getpid(), view.directory, number, view.words.attempt, view.layout.slots,
             ",".join(map(str, deathmail.everyone(view))), len(view.all_procs()),
             job.clock_ahead_ns()]
    Helper(_watch, view, number, [*map(str, about)], words, traces).start()


def _open_trace(view: JobView, number: int) -> int:
    """Open a descriptor for a process's trace; return -1, and say why, if that is not possible."""
    try:
        return view.trace_of_late(number)
    except (OSError, FtrmaError) as error:
        view.tell(f"warning: no trace of place {number}: {error}")
        return -1


def _watch(view: JobView, number: int, about: list[str], words: list[str], traces: bool) -> None:
    """Start a process and wait for its end, in one thread: the process ends with its thread."""
    told = mail.Mail(deathmail.path_of(view), view.proc)
    trace = _open_trace(view, number) if traces else -1
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(LAUNCHERS)}
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    try:
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", COMMAND, *about, str(trace), *words], env=environment,
            stdin=subprocess.DEVNULL, pass_fds=(trace,) * (trace >= 0))
    except OSError as error:
        view.tell(f"place {number} cannot be started: {error.strerror}")
        told.note_death(number)
        return
    finally:
        if trace >= 0:
            os.close(trace)
    status = process.wait()
    told.note_death(number)
    if status:
        how = (f"of {signal.Signals(-status).name}" if status < 0 else f"with status {status}")
        view.tell(f"place {number} died {how} (process {process.pid}); {view.claimant} goes on "
                  "without it")
