"""The job's clock: how far one machine's clock is ahead of another's."""

from __future__ import annotations

import time

import pytest

from ftrma.fabric.clock import ahead_ns

SLOW_S = 0.01


@pytest.mark.plain
def test_the_fastest_comparison_counts() -> None:
    """Law: answers that were long under way do not spoil it."""
    for ahead in (10**15, -(10**9)):
        turns = iter(range(1000))

        def ask() -> int:
            read_ns = time.monotonic_ns() + ahead  # noqa: B023
            time.sleep(SLOW_S * (next(turns) != 5))  # noqa: B023
            return read_ns

        assert abs(ahead_ns(ask) - ahead) < SLOW_S / 4 * 1e9
