"""A framework of thirty lines: slots on a ring, each computes from what its left one has sent.

Whoever is replaced computes its steps since the checkpoint again, from what survivors have kept of
what they sent; those compute nothing twice.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from ftrma import MPI
from ftrma import framework as fw

STEPS, EVERY, MOST, ROWS = 40, 6, 1_000_003, 3000
directory, *options = sys.argv[1:]
comm = MPI.COMM_WORLD
me, right = comm.rank, (comm.rank + 1) % comm.size

fw.claim("ring", forfeit="forfeit" in options)
info = MPI.Info.Create({"ftrma_protect": "false"})
lane = MPI.Win.Allocate(2 * ROWS * 8, 8, info=info, comm=comm)
inbox = np.frombuffer(lane.tomemory(), "i8").reshape(2, ROWS)
found = "step" in fw.entries
committed = int(fw.entries.read("step")) if found else 0
if found:
    table, base = fw.entries.read("table"), fw.entries.read("values")
    assert not table.flags.writeable and list(fw.entries.read("sums").shape) == [committed]
else:
    table, base = np.arange(100_000) * (me + 1) % MOST, np.arange(ROWS) * (me + 1)
    fw.entries.put("table", table, "static")
if "step" not in fw.kept:  # a fresh process
    fw.kept.update(step=committed, values=base.copy(), computed=0,
                   sums=fw.entries.read("sums").copy() if found else np.zeros(0, "i8"))
levels = comm.allgather(int(fw.kept["step"]))
lane.Fence()
for i in range(committed, STEPS + 1):
    if i > fw.kept["step"]:
        time.sleep(0.002)
        values = (fw.kept["values"] * 31 + inbox[(i - 1) % 2] + table[i * 7]) % MOST
        fw.kept.update({"step": i, "values": values, "computed": fw.kept["computed"] + 1,
                        "sums": np.append(fw.kept["sums"], values.sum()), f"sent {i}": values})
    fw.kill_place("ring.send")
    if levels[right] <= i:
        lane.Put(base if i == committed else fw.kept[f"sent {i}"], right, i % 2 * ROWS)
    lane.Fence()
    if i >= max(levels) and i > committed:
        fw.entries.put("values", fw.kept["values"])
        fw.entries.put("sums", fw.kept["sums"], "append")
        fw.entries.put("step", i)
        fw.safepoint(take=i % EVERY == 0)
fw.note(slot_of=me, versions=fw.committed())
np.savez(f"{directory}/slot-{me}.npz", values=fw.kept["values"], sums=fw.kept["sums"])
np.save(f"{directory}/computed-{me}.npy", np.array([fw.kept["computed"]]))
