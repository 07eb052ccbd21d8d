"""A slot dies while the others are inside of MPI_Win_free, and all go back.

The first member of a node removes the window's file once all have arrived there, while another one
may come back from its call without having freed the window: it has told the other nodes that it has
arrived, and the alarm comes before they acknowledge that. Law: in the next attempt all members of a
node have one file, and the result has the bits of a run without deaths.
"""

from __future__ import annotations

import numpy as np
from jobs import Result, run_job
from programs import kinds

SLOTS, STEPS = 4, 6
PROGRAM = """
import os, sys
from pathlib import Path
import numpy as np
import ftrma
from ftrma import MPI, framework

comm, directory, freed = MPI.COMM_WORLD, sys.argv[1], sys.argv[2:]
win = MPI.Win.Allocate(8 * 64, 8, comm=comm)
cells = np.frombuffer(win.tomemory())
cells[:] = comm.rank
state = ftrma.protect("s", step=0, mine=np.arange(64.0) * (comm.rank + 1))
while state.step < STEPS:
    ftrma.safepoint()
    win.Fence()
    for other in range(comm.size):
        win.Put([state.mine[other * 16:], 16, MPI.DOUBLE], other, comm.rank * 16)
    win.Fence()
    state.mine[:] = state.mine / 2 + cells[::-1]
    state.step += 1
    if freed and state.step == STEPS - 1 and framework.attempt() == 1 and comm.rank == 1:
        for file in Path(os.environ["FTRMA_JOB"]).glob("window-*"):
            file.unlink()  # as the first member does
np.savez(f"{directory}/slot-{comm.rank}.npz", cells=cells, mine=state.mine)
win.Free()
""".replace("STEPS", str(STEPS))


def expected() -> list[np.ndarray]:
    """The slots' arrays, computed in one process."""
    mine = [np.arange(64.0) * (rank + 1) for rank in range(SLOTS)]
    for _ in range(STEPS):
        cells = [np.concatenate([mine[rank][other * 16:other * 16 + 16] for rank in range(SLOTS)])
                 for other in range(SLOTS)]
        mine = [mine[rank] / 2 + cells[rank][::-1] for rank in range(SLOTS)]
    return mine


def assert_right(result: Result) -> None:
    assert result.status == 0, result
    for slot, mine in enumerate(expected()):
        assert result.results[f"slot-{slot}"]["mine"].tobytes() == mine.tobytes(), result


def test_a_file_that_the_first_member_has_removed() -> None:
    """Law: its replacement makes another one, which all others take, too.

    Over two nodes this is number 1000032 of the campaign, in about one run of fifteen.
    """
    result = run_job(PROGRAM, SLOTS, "--policy", "rollback", "--interval", "0", "--kill",
                     f"0@safepoint:{STEPS}", args=["freed"], timeout=30)
    assert_right(result)
    assert kinds(result) == ["rollback"], result
