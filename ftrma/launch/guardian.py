"""Ending a job's processes, wherever they are, in one way for all who do: what it leaves is found
by its mark.

    python guardian.py DIRECTORY DESCRIPTOR

SIGKILL leaves the supervisor no time. Its launcher and the ranks are killed with it by the kernel,
but not what ranks have started, and nobody would remove the session directory. So the supervisor
starts this file as a process of its own, which waits at a pipe whose other end only the supervisor
has. When that closes without a word, it ends whatever belongs to the job and removes what is of no
use to anybody. The job's directory stays, with the vaults, for ``ftrma run --resume``.

Its command line is not that of ``ftrma run``, or it would be killed by the same pkill; it is run by
its path and imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

DISMISSED = b"x"


def kill_all_of(directory: Path) -> None:
    """Kill whatever carries this job's mark, until there is nobody left who could start others."""
    mark = f"FTRMA_JOB={directory}".encode()
    found = True
    while found:
        found = False
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True


def end_launcher(launcher: subprocess.Popen[bytes], patience_s: float = 0.0) -> None:
    """End a launcher, which was started in a session of its own, with what it has started here.

    Args:
        patience_s: that it gets to end by itself.
    """
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(patience_s)
    finally:
        with contextlib.suppress(OSError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


def remove_sessions(directory: Path) -> None:
    """Remove what ended launches have left in the job's directory."""
    for session in directory.glob("launch-*"):
        shutil.rmtree(session, ignore_errors=True)


class Guardian:
    """The supervisor's end of it.

    Args:
        directory: of the job.
        lock: descriptor of the job's lock: while the guardian works, the job is not dead.
    """

    def __init__(self, directory: Path, lock: int) -> None:
        end, self.pipe = os.pipe()
        # Away from the terminal: Ctrl-C and a kill of the process group are not for this one. Nor
        # is the end of a job that this one is part of.
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(directory), str(end)], pass_fds=[end, lock],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, cwd="/",
            env={name: value for name, value in os.environ.items() if name != "FTRMA_JOB"},
        )
        os.close(end)

    def dismiss(self) -> None:
        """The supervisor ends by itself and has cleaned up."""
        with contextlib.suppress(OSError):
            os.write(self.pipe, DISMISSED)
        os.close(self.pipe)
        self.process.wait()


def main(directory: Path, pipe: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
                   signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    if os.read(pipe, 1) == DISMISSED:
        return
    kill_all_of(directory)
    remove_sessions(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
