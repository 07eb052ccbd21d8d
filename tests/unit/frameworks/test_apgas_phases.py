"""Statistics of a run in the shape of the paper's tables."""

from __future__ import annotations

from ftrma.frameworks.apgas.phases import Recovery, Statistics


def test_a_recovery_that_was_interrupted_counts_with_the_one_that_ended() -> None:
    """Law: times of recoveries are means over those that ended."""
    statistics = Statistics(
        10.0, 50, 5.0, 1.0, 4, 2.0,
        [Recovery((1,), 0.1, 0.2), Recovery((4,), 0.1, 0.2, 0.3, 0.4, 3, 0.3, complete=True),
         Recovery((2, 5), 0.2, 0.2, 0.3, 0.4, 5, 0.5, complete=True)])
    rows = dict(statistics.rows())
    assert statistics.failures == 4
    assert rows["single step"] == 0.1
    assert rows["total checkpointing time"] == 3.0
    assert abs(rows["runtime recovery"] - 0.5) < 1e-12
    assert abs(rows["application data recovery"] - 0.7) < 1e-12
    assert abs(rows["lost work recovery"] - 0.4) < 1e-12
    assert abs(rows["total recovery time"] - 1.6) < 1e-12
    assert "50 steps, 4 checkpoints after the first, 4 failures" in statistics.table()


def test_a_run_without_failure() -> None:
    assert dict(Statistics().rows())["total recovery time"] == 0
