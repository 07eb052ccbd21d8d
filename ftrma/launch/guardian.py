"""Ends all processes of a job on this node, which are found by a mark in their environment.

    python guardian.py DIRECTORY DESCRIPTOR

SIGKILL leaves the supervisor no time to clean up. The kernel kills the launcher and the ranks with
it, but not the processes that ranks have started, and nobody would remove the session directory. So
the supervisor starts this file as a separate process, the guardian, which waits at a pipe whose
other end only the supervisor has. When the pipe closes without a word, the guardian ends the job's
processes and removes its session directories. The job's directory stays, with the vaults, for
``ftrma run --resume``.

The guardian's command line differs from that of ``ftrma run``, so that a pkill does not hit both.
It is run by its path and imports next to nothing.
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
    """Kill all processes with this job's mark, repeatedly, until none is left that could start
    others."""
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
    """End a launcher, which has a session of its own, and its children on this host.

    Args:
        patience_s: time for it to end by itself.
    """
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(patience_s)
    finally:
        with contextlib.suppress(OSError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


def remove_sessions(directory: Path) -> None:
    """Remove the session directories of ended launches."""
    for session in directory.glob("launch-*"):
        shutil.rmtree(session, ignore_errors=True)


class Guardian:
    """The guardian process, as the supervisor sees it.

    Args:
        directory: of the job.
        lock: descriptor of the job's lock; while the guardian works, the job does not count as
            dead.
    """

    def __init__(self, directory: Path, lock: int) -> None:
        end, self.pipe = os.pipe()
        # The guardian has a session of its own, so that neither Ctrl-C nor a kill of the process
        # group ends it. It does not inherit the mark of a job inside which this job runs, so the
        # end of that job does not end it either.
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(directory), str(end)], pass_fds=[end, lock],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, cwd="/",
            env={name: value for name, value in os.environ.items() if name != "FTRMA_JOB"},
        )
        os.close(end)

    def dismiss(self) -> None:
        """End the guardian: the supervisor ends by itself and has cleaned up."""
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
