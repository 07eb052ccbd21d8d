"""Functions of the workers in `bench apgas --peers`, and the sizes of their programs.

They have a module of their own because some systems pickle what is in the script itself by its
contents. Programs of `bench/apps` are imported when a worker needs them: who only reads the sizes
does not have that folder in its path.
"""

from __future__ import annotations

import functools
from typing import Any

POINTS, DIMENSIONS, CLUSTERS, STEPS = 50_000, 10, 30, 12  # of KMeans, points of each worker
DEPTH = 10  # of the tree


def nothing() -> None:
    """A call without work."""


@functools.cache
def points(ordinal: int) -> Any:
    """The points of a worker."""
    import kmeans

    return kmeans.points_of(ordinal, POINTS, DIMENSIONS)


def sums(ordinal: int, centres: Any) -> tuple[Any, Any]:
    """A worker's part of a step of KMeans."""
    import kmeans

    found: tuple[Any, Any] = kmeans.sums(points(ordinal), centres)
    return found


def nodes_of(bag: Any) -> int:
    """Count a bag of the tree to its end."""
    while bag.process(100_000):
        pass
    return int(bag.result)
