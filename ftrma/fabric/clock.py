"""One clock for the processes of a job over several nodes.

Each machine's monotonic clock counts from its own start. A job counts by the supervisor's, with
which a process of each node compares its own at the start of a launch. Of some comparisons the one
with the shortest way there and back counts; it is off by half of that at most. Clocks that run
apart later are not followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

COMPARISONS = 32


def ahead_ns(ask: Callable[[], int]) -> int:
    """How far another monotonic clock is ahead of this process's, in nanoseconds.

    Args:
        ask: reads the other one.
    """
    found = []
    for _ in range(COMPARISONS):
        began_ns = time.monotonic_ns()
        there_ns = ask()
        ended_ns = time.monotonic_ns()
        found.append((ended_ns - began_ns, there_ns - (began_ns + ended_ns) // 2))
    return min(found)[1]
