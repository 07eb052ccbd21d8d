"""Compares two monotonic clocks, so that a job over several nodes has one clock.

Each machine's monotonic clock counts from the machine's own start. A job uses the supervisor's
clock: at the start of a launch one process of each node compares its own clock with it. Of several
comparisons the one with the shortest round trip is used; its error is at most half of the round
trip. Clocks that drift apart later are not corrected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

COMPARISONS = 32


def ahead_ns(ask: Callable[[], int]) -> int:
    """Measure how many nanoseconds another monotonic clock is ahead of this process's clock.

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
