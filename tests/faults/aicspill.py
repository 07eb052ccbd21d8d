"""Distances and PageRank of a graph, one after the other, with snapshots in files as well."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from ftrma import MPI, aic
from ftrma.frameworks.aic import modes

directory = sys.argv.pop(1)  # another one in each launch
mode = sys.argv[1]


class Distances(aic.DeltaProgram):
    accumulate, zero = np.minimum, np.inf

    def init(self, v: Any) -> None:
        v.delta[v.ids == 3] = 0.0

    def send(self, v: Any, delta: Any) -> Any:
        return delta + 1 + v.ids % 7


class PageRank(aic.DeltaProgram):
    accumulate, zero, linear, factor = np.add, 0.0, True, 0.85

    def init(self, v: Any) -> None:
        v.value[:], v.delta[:] = 0.0, 0.15

    def send(self, v: Any, delta: Any) -> Any:
        return 0.85 * delta / v.degree.clip(1)


options: dict[str, Any] = {"snapshot": modes.make(mode), "spill": os.environ.get("SPILL"),
                           "portion": 0.05, "pace": 3e-5}
graph = aic.rmat(9)
distances = aic.run(Distances(), graph, eps=0.0, **options)
ranks = aic.run(PageRank(), graph, eps=1e-6, **options)
np.savez(f"{directory}/slot-{MPI.COMM_WORLD.rank}.npz", distances=distances.values,
         ranks=ranks.values, bound=ranks.bound,
         ended_before=[r.stats.get("ended_before", 0) for r in (distances, ranks)])
