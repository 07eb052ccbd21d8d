"""KMeans by Lloyd's algorithm over places, with checkpoints: `ftrma.apgas`.

Each place has points of its own. In a step it finds the nearest centre of each of them, and all
sum the points of each centre. Points are saved once, centres at each checkpoint.

Oracle: `oracle` takes the same steps in one process, place by place. The results have equal bits,
unless the group of places has shrunk.

Source: section 5.3 of Resilient X10 (2019): 20 million points, 30 dimensions, 300 clusters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrma import apgas

BLOCK_ROWS = 4096  # of points whose distances are in memory at a time


def points_of(ordinal: int, points: int, dimensions: int) -> Any:
    """The points of a place."""
    return np.random.default_rng([7, ordinal]).random((points, dimensions))


def sums(x: Any, centres: Any) -> tuple[Any, Any]:
    """Sum and number of the points that are nearest to each centre."""
    total = np.zeros_like(centres)
    count = np.zeros(len(centres), np.int64)
    squares = (centres ** 2).sum(1)
    for first in range(0, len(x), BLOCK_ROWS):
        block = x[first:first + BLOCK_ROWS]
        nearest = (squares - 2 * (block @ centres.T)).argmin(1)
        count += np.bincount(nearest, minlength=len(centres))
        for d in range(x.shape[1]):
            total[:, d] += np.bincount(nearest, weights=block[:, d], minlength=len(centres))
    return total, count


class KMeans(apgas.SPMDIterativeApp):
    """The points of a place, and the centres that all have.

    Args:
        points: of each place.
        clusters: centres, which begin as the first points of ordinal 0.
    """

    def __init__(self, points: int, clusters: int, dimensions: int, steps: int) -> None:
        self.mine = apgas.group().index_of(apgas.here()), points, dimensions
        self.centres = points_of(0, min(clusters, points), dimensions)
        self.step, self.steps = 0, steps

    def begin_local(self) -> None:
        self.x = points_of(*self.mine)

    def is_finished_local(self) -> bool:
        return self.step == self.steps

    def step_local(self, team: Any) -> None:
        total, count = sums(self.x, self.centres)
        total, count = team.allreduce(total), team.allreduce(count)
        self.centres = total / np.maximum(count, 1)[:, None]
        self.step += 1

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        return {"centres": self.centres, "step": self.step} | ({"x": self.x} if first else {})

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)

    def adopt_local(self, saved: dict[str, Any]) -> None:
        self.x = np.concatenate([self.x, saved["x"]])

    def result_local(self) -> Any:
        return self.centres


def oracle(places: int, points: int, clusters: int, dimensions: int, steps: int) -> Any:
    """The centres, computed in one process."""
    parts = [points_of(ordinal, points, dimensions) for ordinal in range(places)]
    centres = parts[0][:clusters].copy()
    for _ in range(steps):
        total, count = sums(parts[0], centres)
        for part in parts[1:]:
            more, others = sums(part, centres)
            total, count = total + more, count + others
        centres = total / np.maximum(count, 1)[:, None]
    return centres
