"""A job whose nodes reach each other by another engine than TCP, as the page says."""

from __future__ import annotations

from pathlib import Path

import exampleengine
import pytest
from nodes import run_on_nodes

from ftrma.native import wire

SLOTS, ROUNDS = 4, 30
PROGRAM = f"""
import os
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8 * comm.size, 8, comm=comm)
mine = np.frombuffer(win.tomemory(), "i8")
win.Fence()
for i in range({ROUNDS}):
    for target in range(comm.size):
        win.Put(np.array([i + comm.rank], "i8"), target, target=comm.rank)
    win.Fence()
print(comm.rank, mine.tolist(), os.environ["{wire.ENGINE}"], flush=True)
win.Free()
"""


@pytest.mark.full
def test_a_death_in_a_job_over_it(tmp_path: Path) -> None:
    """Law: a job over several nodes needs nothing but the engine's name and its library in the
    environment of its processes; a slot that dies is replaced."""
    env = {wire.ENGINE: exampleengine.NAME, "LD_PRELOAD": str(exampleengine.build(tmp_path))}
    result = run_on_nodes(PROGRAM, SLOTS, "--checksums", "1", "--kill", "1@fence:10",
                          files=tmp_path, timeout=60, env=env)
    seen = [ROUNDS - 1 + slot for slot in range(SLOTS)]
    said = [f"{slot} {seen} {exampleengine.NAME}" for slot in range(SLOTS)]
    assert result.status == 0 and sorted(result.stdout.splitlines()) == said, result
    assert "slot 1 died" in result.stderr, result
