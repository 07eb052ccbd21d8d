"""A job that a test kills by hand, at what it sees the job do."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jobs import FILES, FTRMA, MARK, command_line, is_of_a_node, marked, until

SLOTS, STEPS, END_S = 3, 60, 5.0
PROGRAM = """
import os, subprocess, sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm, home = MPI.COMM_WORLD, sys.argv[1]
win = MPI.Win.Allocate(8 * 3000, 8, comm=comm)
cells = np.frombuffer(win.tomemory())
cells[:] = comm.rank
if comm.rank == 0:
    subprocess.Popen(["sleep", "100"])
order = list({f"word {n}" for n in range(20)})
state = ftrma.protect("s", step=0, field=np.arange(3000.0) * comm.rank, order=order)
while state.step < STEPS:
    ftrma.safepoint()
    assert state.order == order, "sets have another order than before"
    win.Fence()
    win.Put(state.field, (comm.rank + 1) % comm.size)
    win.Fence()
    state.field[:] = state.field * 0.5 + cells * 0.25 + state.step
    state.step += 1
    if comm.rank == 1:
        open(f"{home}/step-{state.step}", "w").close()
    time.sleep(float(os.environ.get("NAP", "0.01")))
np.savez(f"{home}/out-{comm.rank}.npz", cells=cells, field=state.field)
""".replace("STEPS", str(STEPS))


class Job:
    """A job under ``ftrma run`` that is going to be killed.

    Args:
        inside: words of a command that runs another one, behind which ``ftrma run`` stands.
        program: takes the directory as its argument.
    """

    def __init__(self, home: Path, *options: str, slots: int = SLOTS, nap: str = "0.01",
                 inside: Sequence[str] = (), program: str = PROGRAM) -> None:
        self.home, self.slots, self.mark = home, slots, secrets.token_hex(8)
        self.found: Path | None = None
        self.env = {**os.environ, MARK: self.mark, FILES: str(home), "NAP": nap}
        (home / "program.py").write_text(program)
        # By a name that only its own directory gives a meaning.
        self.process = subprocess.Popen(
            [*inside, FTRMA, "run", "-n", str(slots), "--interval", "0.05", *options, "program.py",
             str(home)], cwd=home, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )

    @property
    def directory(self) -> Path:
        """In shared memory; known since a process of the job was seen."""
        for pid in marked(self.mark) if not self.found else ():
            with contextlib.suppress(OSError):
                found = re.search(rb"FTRMA_JOB=([^\0]+)", Path(f"/proc/{pid}/environ").read_bytes())
                if found:
                    self.found = Path(os.fsdecode(found[1]))
        assert self.found, "no process of the job tells its directory"
        return self.found

    def until(self, condition: Any, seconds: float = 30) -> Any:
        """Wait for a condition; what it gives then."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"not within {seconds} s"
            time.sleep(0.005)
        return found

    def read_until(self, wanted: str, seconds: float) -> str:
        """Read the job's output until this text has come."""
        assert self.process.stdout
        return until(self.process.stdout.fileno(), wanted, "", time.monotonic() + seconds)

    def results(self) -> list[dict[str, Any]]:
        return results(self.home, self.slots)

    def resume(self, directory: Path) -> None:
        """Go on with it, after `kill`."""
        assert self.process.stdout
        self.process.stdout.close()
        self.process = subprocess.Popen(
            [FTRMA, "run", "--resume", str(directory)], env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )

    def kill(self) -> Path:
        """Kill ``ftrma run`` and wait for the end of its processes; the directory that is left.

        On another node one process waits there for a next launch, and cleans the node then.
        """
        directory = self.directory
        self.process.send_signal(signal.SIGKILL)
        self.until(lambda: not [p for p in marked(self.mark) if p != self.process.pid
                                and not is_of_a_node(command_line(p))], END_S)
        self.process.wait()
        return directory


def ftrma(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FTRMA, *words], capture_output=True, text=True, timeout=60, **more)


def results(home: Path, slots: int = SLOTS) -> list[dict[str, Any]]:
    return [dict(np.load(home / f"out-{s}.npz")) for s in range(slots)]


def same(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> bool:
    return all(np.array_equal(x[k], y[k]) for x, y in zip(a, b, strict=True) for k in x)
