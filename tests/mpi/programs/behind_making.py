"""Counters whose owner sets them to 0 right behind their making, while the others count already."""

import json

import numpy as np
from common import MPI, RESULTS, comm, me

WINDOWS, COUNTS = 60, 5


def made(call: str) -> MPI.Win:
    """A window with one counter, at rank 0, that nobody has synchronized yet."""
    size = 8 if me == 0 else 0
    if call == "Create":
        win = MPI.Win.Create(np.full(size // 8, 7), 8, comm=comm)
    else:
        win = getattr(MPI.Win, call)(size, 8, comm=comm)
    if me == 0:
        np.frombuffer(win.tomemory(), "i8")[:] = 0
    return win


def is_lost(call: str) -> bool:
    """Some count is, or was had twice."""
    win, one, found = made(call), np.ones(1, "i8"), np.empty(COUNTS, "i8")
    for i in range(COUNTS):
        win.Lock(0)
        win.Fetch_and_op(one, found[i:i + 1], 0)
        win.Unlock(0)
    win.Free()
    every = np.concatenate(comm.allgather(found))
    return sorted(every.tolist()) != list(range(every.size))


lost = {call: sum(is_lost(call) for _ in range(WINDOWS))
        for call in ("Allocate", "Create", "Allocate_shared")}
(RESULTS / f"lost-{me}.json").write_text(json.dumps(lost))
