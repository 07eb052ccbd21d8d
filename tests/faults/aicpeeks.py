"""PageRank, whose newest snapshot a thread and the progress function read while it goes on."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np

from ftrma import MPI, aic

directory = sys.argv[1]
comm = MPI.COMM_WORLD


class PageRank(aic.DeltaProgram):
    accumulate, zero, factor = np.add, 0.0, 0.85

    def init(self, v: Any) -> None:
        v.value[:], v.delta[:] = 0.0, 0.15

    def send(self, v: Any, delta: Any) -> Any:
        return 0.85 * delta / v.degree.clip(1)


seen: dict[str, list[aic.PeekedValues]] = {"thread": [], "progress": []}
over = threading.Event()


def look(where: str) -> None:
    found = aic.peek()
    if found is not None and [found.snapshot] != [p.snapshot for p in seen[where][-1:]]:
        seen[where].append(found)


def watch() -> None:
    while not over.is_set():
        look("thread")
        time.sleep(0.005)


assert aic.peek() is None
reader = threading.Thread(target=watch, daemon=True)
reader.start()
result = aic.run(PageRank(), aic.power_law(600), eps=1e-7, portion=0.1, pace=2e-5,
                 snapshot=aic.VirtualSnapshot(seconds=0.05), progress=lambda now: look("progress"))
over.set()
reader.join()
assert aic.peek() is None
arrays: dict[str, Any] = {"values": result.values, "bound": result.bound}
for where, peeks in seen.items():
    arrays[f"{where} snapshots"] = [peek.snapshot for peek in peeks]
    arrays[f"{where} values"] = [peek.values for peek in peeks]
    arrays[f"{where} bounds"] = [peek.bound for peek in peeks]
    assert all((peek.ids == result.ids).all() for peek in peeks)
np.savez(f"{directory}/slot-{comm.rank}.npz", **arrays)
