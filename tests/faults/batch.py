"""A stand-in for a batch system: runs a script again and again as Slurm does, with its signals.

A script has a time limit. Before it, as the script's ``--signal=B:USR1@90`` asks, a signal goes to
the script's shell alone. At the limit SIGTERM goes to all processes of the script, and SIGKILL soon
after. ``scontrol requeue`` puts the script back into the queue, and so does the failure of a node,
which kills all its processes at once. Times are those of a test, not of the script.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jobs import FILES, FTRMA, MARK, ONE_THREAD, kill_marked, marked

COME_UP_S = 30.0
KILL_WAIT_S = 5.0  # Slurm's KillWait is 30 s
SCONTROL = """#!/bin/bash
[ "$1" = requeue ] && [ "$2" = "$SLURM_JOB_ID" ] && touch "$SLURM_STANDIN/requeue"
"""


@dataclass
class Run:
    """One run of the script.

    Attributes:
        status: of the script, as Python has it.
        said: all that it has written.
        overdue: it was there at its limit still.
        failed: its node failed.
    """

    status: int
    said: str
    overdue: bool = False
    failed: bool = False


@dataclass
class Batch:
    """A queue with one script.

    Args:
        home: directory of the script.
        script: its text.
        limit_s: time limit. warn_s: before it the warning comes, instead of the script's own.
        fails_s: asked before each run: after so many seconds the node fails; None: it does not.
        progress: a number that the program changes; the time of a run counts from there on, since
            a crowded machine may take long to start it. None: it counts from the start.
    """

    home: Path
    script: str
    limit_s: float
    warn_s: float
    fails_s: Callable[[], float | None] = lambda: None
    progress: Callable[[], int] | None = None
    runs: list[Run] = field(default_factory=list)

    def run(self, most: int) -> None:
        """Run the script until nobody requeues it, at most so often."""
        tools = self.home / "tools"
        tools.mkdir()
        for name, text in (("scontrol", SCONTROL), ("script", self.script),
                           ("ftrma", f"#!/bin/sh\nexec {FTRMA} \"$@\"\n")):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        again = True
        while again and len(self.runs) < most:
            again = self.once()
        assert not again, f"requeued {most} times:\n{self.runs[-1].said}"

    def once(self) -> bool:
        """Run the script once; True if it is requeued."""
        mark, requeue = secrets.token_hex(8), self.home / "requeue"
        requeue.unlink(missing_ok=True)
        path = f"{self.home}/tools:{os.environ['PATH']}"
        fails_s = self.fails_s()
        env = {**os.environ, **ONE_THREAD, MARK: mark, FILES: str(self.home), "PATH": path,
               "SLURM_JOB_ID": "4711", "SLURM_STANDIN": str(self.home),
               "SLURM_JOB_END_TIME": f"{time.time() + self.limit_s:.0f}",
               "SLURM_RESTART_COUNT": str(len(self.runs))}
        log = self.home / f"log-{len(self.runs)}"
        with log.open("wb") as out:
            shell = subprocess.Popen([self.home / "tools/script"], cwd=self.home, env=env,
                                     stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                     start_new_session=True)
        run = Run(0, "")
        try:
            began = self.wait_for_begin(shell)
            warned = self.wait(shell, began + min(self.limit_s - self.warn_s,
                                                  fails_s or self.limit_s))
            if fails_s is not None and not warned and fails_s < self.limit_s - self.warn_s:
                run.failed = True
                return True
            name = re.search(r"--signal=B:(\w+)@", self.script)
            if not warned and name:
                shell.send_signal(signal.Signals[f"SIG{name[1]}"])
            if not self.wait(shell, began + self.limit_s):
                run.overdue = True
                for pid in marked(mark):
                    os.kill(pid, signal.SIGTERM)
                self.wait(shell, time.monotonic() + KILL_WAIT_S)
            return requeue.exists()
        finally:
            kill_marked(mark)
            run.status, run.said = shell.wait(), log.read_text()
            self.runs.append(run)

    def wait_for_begin(self, shell: subprocess.Popen[bytes]) -> float:
        """Wait until the time of a run counts; time.monotonic() then."""
        deadline, before = time.monotonic() + COME_UP_S, self.progress and self.progress()
        while self.progress and self.progress() == before and shell.poll() is None and (
                time.monotonic() < deadline):
            time.sleep(0.02)
        return time.monotonic()

    @staticmethod
    def wait(shell: subprocess.Popen[bytes], deadline: float) -> bool:
        """Wait for the script's end; False if it has not come by then."""
        try:
            shell.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True
