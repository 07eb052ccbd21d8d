"""Compares two monotonic clocks, so that a job over several nodes has one clock.

Each machine's monotonic clock counts from the machine's own start. A job counts by the supervisor's
clock: at the start of a launch one process of each node compares its clock with that one. Of
several comparisons the one with the shortest time there and back counts; its error is at most half
of that time. Clocks that drift apart later are not corrected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

COMPARISONS = 32


def ahead_ns(ask: Callable[[], int]) -> int:
    """Measure how far another monotonic clock is ahead of this process's, in nanoseconds.

    Args:
        ask: reads the other clock.
    """
    found = []
    for _ in range(COMPARISONS):
        began_ns = time.monotonic_ns()
        there_ns = ask()
        ended_ns = time.monotonic_ns()
        found.append((ended_ns - began_ns, there_ns - (began_ns + ended_ns) // 2))
    return min(found)[1]
