"""Starts a daemon of the launcher on another node of a Slurm allocation, in a step of its own.

    python slurmstart.py [-OPTION...] HOST WORD...
    python slurmstart.py --in-step COMMAND

The launcher calls this file as it would call ``ssh``, and it has itself started on the other node.
There it waits until all processes have ended that the command has left behind. Slurm kills what is
left of a step when the step's first process has ended or its srun is killed, also the process that
removes a job's directories (`host.nodedirectory`). See `slurm`. The file is run by its path and
imports next to nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

IN_STEP = "--in-step"
# The step takes no place from other steps, has all of its node, and ends alone.
SRUN = ("srun", "--quiet", "--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1",
        "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0", "--export=ALL")
PR_SET_CHILD_SUBREAPER = 36  # prctl(2): orphans become children of this process


def start(words: list[str]) -> int:
    """Start a command on a node by srun, and wait for it.

    A launcher that ends kills this process. srun goes on, in a session of its own and without the
    job's mark in its environment, until the node has cleaned up.

    Args:
        words: those that the launcher would give to ssh.

    Returns:
        The exit status of srun.
    """
    at = next(i for i, word in enumerate(words) if not word.startswith("-"))
    host, command = words[at], " ".join(words[at + 1:])
    # A library that is preloaded here is in a directory that only this host has.
    os.environ.pop("LD_PRELOAD", None)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in [name for name in os.environ if name.startswith("FTRMA_JOB")]:
        del os.environ[name]
    if not (child := os.fork()):
        os.setsid()
        os.execvp(SRUN[0], [*SRUN, f"--nodelist={host}", sys.executable, "-I", __file__, IN_STEP,
                            command])
    return shell_status(os.waitpid(child, 0)[1])


def in_step(command: str) -> int:
    """Run a command of a shell and wait for all processes that it leaves behind.

    Returns:
        The command's exit status.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    # SIGTERM ends a step; whoever is left in it has until SIGKILL to clean up. A handler, unlike
    # SIG_IGN, is not inherited by the command.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    shell, status = os.spawnl(os.P_NOWAIT, "/bin/sh", "sh", "-c", command), 0
    try:
        while True:
            pid, ended = os.wait()
            if pid == shell:
                status = shell_status(ended)
    except ChildProcessError:
        return status


def shell_status(ended: int) -> int:
    """Return the exit status that a shell has for a status of wait(2)."""
    status = os.waitstatus_to_exitcode(ended)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    if sys.argv[1] == IN_STEP:
        sys.exit(in_step(sys.argv[2]))
    sys.exit(start(sys.argv[1:]))
