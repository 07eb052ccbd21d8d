"""Slots that count and wait for nobody, each at a pace of its own; each stages when it likes.

Version k is staged by each slot behind its step k * EVERY, in two parts: the sums, and three steps
later a copy of them as they were at the first part. Slots know of each other by committed versions
alone; they put the steps that they take into each other's windows, and nobody looks.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from ftrma import MPI
from ftrma import framework as fw

STEPS, EVERY, MOST, ROWS = 40, 8, 1_000_003, 3000
LAST = STEPS // EVERY
directory, *options = sys.argv[1:]
comm = MPI.COMM_WORLD
me = comm.rank


def put(version: int) -> None:
    for name, value in (("sums", sums), ("step", step), ("version", version)):
        fw.entries.put(name, value)


fw.claim("stagers", forfeit="forfeit" in options)
info = MPI.Info.Create({"ftrma_protect": "false"})
window = MPI.Win.Allocate(8, 8, info=info, comm=comm)
window.Lock_all()
staged = fw.committed()
assert set(comm.allgather(staged)) == {staged}, "slots have read different versions"
step, sums = 0, np.arange(ROWS) * (me + 1)
if staged:
    step, sums = int(fw.entries.read("step")), fw.entries.read("sums").copy()
    assert int(fw.entries.read("version")) == staged and step >= min(staged * EVERY, STEPS)
    assert fw.entries.read("table")[7] == me
    assert fw.entries.read("late").tolist() == [*sums, *range(staged)]
else:
    fw.entries.put("table", np.full(100_000, me), "static")
fw.staging.prepare()
generation, due = fw.staging.generation, 0
while step < STEPS or (fw.attempt() and fw.committed() < LAST):
    time.sleep(0.001 * (1 + me % 3))
    if step < STEPS:
        step, sums = step + 1, (sums * 31 + step) % MOST
        window.Put(np.array([step]), (me + 1) % comm.size)
        window.Flush_all()
    if fw.staging.generation != generation:  # what was not committed is undone
        staged, generation, due = fw.committed(), fw.staging.generation, 0
    if due and step >= due:
        fw.staging.add()
        staged, due = fw.staging.end() or staged, 0
    elif not due and staged < LAST and step >= (staged + 1) * EVERY:
        put(staged + 1)
        if fw.staging.begin():
            fw.entries.put("late", np.append(sums, range(staged + 1)))
            fw.kill_place("stagers.half")
            due = min(step + 3, STEPS)
last = max(LAST, staged) + 1  # a slot may have died behind this checkpoint, even twice
put(last)
fw.entries.put("late", np.append(sums, range(last)))
while not fw.confirm(fw.safepoint(take=True)):
    pass
window.Unlock_all()
fw.note(slot_of=me, versions=fw.committed())
np.savez(f"{directory}/slot-{me}.npz", sums=sums)
