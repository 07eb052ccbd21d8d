"""The clock of the day jumps by an hour while a job runs, and somebody dies before and behind it.

Law: no wait, interval, limit or decision depends on that clock: the job ends with the bits of the
run without failure, nothing is launched again, and no time in its statistics is below zero.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from jobs import run_job
from programs import deaths, kinds
from tiers import tiers
from tree import TESTS

COMPILER = shlex.split(os.environ.get("CC") or "cc")
SLOTS, STEPS, HOUR_S = 3, 30, 3600
PROGRAM = f"""
import sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(64, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
state = ftrma.protect("s", step=0, days=np.zeros({STEPS}))
while state.step < {STEPS}:
    ftrma.safepoint()
    win.Fence()
    win.Put(np.array([10 * me + state.step]), (me + 1) % n, state.step % 8)
    win.Fence()
    state.days[state.step] = time.time()
    if me == 0 and state.step == {STEPS // 2}:
        with open(sys.argv[2], "r+b") as file:  # in place: others have it mapped
            file.write(np.int64(sys.argv[3]).tobytes())
    time.sleep(0.02)
    state.step += 1
np.savez(f"{{sys.argv[1]}}/slot-{{me}}.npz", cells=cells, days=state.days)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library by which the clock jumps."""
    made = tmp_path_factory.mktemp("clock") / "clockjump.so"
    subprocess.run([*COMPILER, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    "-o", str(made), str(TESTS / "c/clockjump.c"), "-ldl"], check=True)
    return made


@pytest.mark.parametrize("jump_s", tiers([HOUR_S, -HOUR_S], full=["-3600"]))
def test_nothing_depends_on_the_clock_of_the_day(jump_s: int, library: Path,
                                                 tmp_path: Path) -> None:
    jump = tmp_path / "jump"
    np.array([0]).tofile(jump)
    began = time.monotonic()
    result = run_job(
        PROGRAM, SLOTS, "--spares", "2", "--interval", "0.05", "--time-limit", "600", "--stall",
        "30", "--kill", "1@put:8", "--kill", "2@put:23", args=[str(jump), str(jump_s)],
        env={"LD_PRELOAD": str(library), "CLOCK_JUMP": str(jump)})
    took_s = time.monotonic() - began
    assert result.status == 0, str(result)
    days = [arrays["days"] for arrays in result.of_slots("slot", SLOTS)]
    jumps = [np.abs(np.diff(times) - jump_s).min() < 60 for times in days]
    assert all(jumps), f"the clock did not jump: {days}"
    for slot, arrays in enumerate(result.of_slots("slot", SLOTS)):
        before = (slot - 1) % SLOTS
        right = [10 * before + max(s for s in range(STEPS) if s % 8 == at) for at in range(8)]
        assert arrays["cells"].tolist() == right, slot
    assert deaths(result) == [("slot", 1, "put"), ("slot", 2, "put")]
    assert kinds(result) == ["causal", "causal"], result.stderr
    effective = result.stats["effective"]  # its spans are off by the jump, within the job's time
    assert all(value >= 0 for value in effective.values()), effective
    assert all(0 <= r["seconds"] < took_s for r in result.stats["recoveries"]), result.stats
