"""Law: what a program has written to a file before the checkpoint that it goes on from is there.

What it writes behind it may come twice. Python holds lines back, so each slot's file is looked at
and not what the program believes to have written.
"""

from __future__ import annotations

from typing import Any

import pytest
from jobs import run_job

STEPS = 30
LINES = """
import logging, logging.handlers, os, sys
import numpy as np
import ftrma
from ftrma import MPI

comm, steps, kind = MPI.COMM_WORLD, {steps}, sys.argv[2]
window = MPI.Win.Allocate(8 * 64, 8, comm=comm)
field = np.frombuffer(window.tomemory())
field[:] = 0
state = ftrma.protect("main", step=0)
path = os.path.join(sys.argv[1], f"lines-{{comm.rank}}.txt")
if kind == "logging":
    handler = logging.handlers.MemoryHandler(1000, target=logging.FileHandler(path, "a"))
    log = logging.getLogger("lines")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    write, close = log.info, handler.close
else:
    file = open(path, "a")
    write, close = lambda line: file.write(line + "\\n"), file.close
one = np.ones(1)
while state.step < steps:
    ftrma.safepoint()
    window.Fence()
    write(f"step {{state.step}}")
    for _ in range({puts}):
        window.Put(one, (comm.rank + 1) % comm.size, [state.step, 1])
    window.Fence()
    state.step += 1
close()
"""


def lines_of(result: Any) -> list[list[str]]:
    assert result.status == 0, result
    return [text.splitlines() for text in result.of_slots("lines", 2)]


def check(result: Any, kind: str) -> None:
    """Every line is there; what was repeated lies behind one and the same checkpoint."""
    (recovery,) = result.stats["recoveries"]
    assert recovery["kind"] == kind, result
    for lines in lines_of(result):
        assert sorted(set(lines), key=lines.index) == [f"step {s}" for s in range(STEPS)], lines
        assert len(lines) - len(set(lines)) <= 1, "a checkpoint at every step: one is repeated"


@pytest.mark.parametrize(("policy", "kind"), [
    ("auto", "causal"),
    pytest.param("rollback", "rollback", marks=pytest.mark.full),
])
@pytest.mark.parametrize("way", ["file", pytest.param("logging", marks=pytest.mark.full)])
def test_no_line_before_the_checkpoint_is_lost(policy: str, kind: str, way: str) -> None:
    program = LINES.format(steps=STEPS, puts=1)
    result = run_job(program, 2, "--interval", "0", "--policy", policy, "--kill", "1@put:20",
                     args=[way])
    check(result, kind)


@pytest.mark.full
def test_a_relaunch_loses_none_either() -> None:
    """Law: also where all processes end, those that had not died."""
    program = LINES.format(steps=STEPS, puts=1)
    result = run_job(program, 2, "--interval", "0", "--spares", "0", "--kill", "1@put:20",
                     args=["file"])
    check(result, "relaunch")


@pytest.mark.full
def test_demand_checkpoints_hold_what_was_written_before() -> None:
    """Law: a slot that is replayed from a checkpoint of its own repeats what it wrote since."""
    program = LINES.format(steps=STEPS, puts=5000)
    result = run_job(program, 2, "--interval", "never", "--log-budget", "1M", "--kill",
                     f"1@put:{5000 * 25}", args=["file"])
    (recovery,) = result.stats["recoveries"]
    assert recovery["kind"] == "causal" and recovery["demand"], result
    for lines in lines_of(result):
        assert {*lines} == {f"step {s}" for s in range(STEPS)}, lines
