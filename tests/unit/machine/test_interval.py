"""Checkpoint intervals and expected waste. (Daly's interval itself: test_checkpoint_policy.)"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.machine.interval import daly_interval, expected_waste, young_interval


@given(st.floats(1e-3, 100), st.floats(1e4, 1e7))
def test_young_is_dalys_first_order(delta_s: float, mtbf_s: float) -> None:
    """Law: they differ by less than 2/3 delta and a term of higher order."""
    gap = young_interval(delta_s, mtbf_s) - daly_interval(delta_s, mtbf_s)
    assert 0 < gap <= delta_s * (2 / 3 + 1e-6)
    assert young_interval(8, 100) == pytest.approx(40)


@given(st.floats(1e-2, 100), st.floats(1e3, 1e6), st.floats(0, 100))
def test_dalys_interval_wastes_least(delta_s: float, mtbf_s: float, restart_s: float) -> None:
    """Law: to a thousandth, no other interval wastes less; Young's wastes no less either."""
    best = expected_waste(daly_interval(delta_s, mtbf_s), delta_s, mtbf_s, restart_s)
    for factor in (0.3, 0.7, 1.5, 3.0):
        other = factor * daly_interval(delta_s, mtbf_s)
        assert best <= expected_waste(other, delta_s, mtbf_s, restart_s) * 1.001
    young = expected_waste(young_interval(delta_s, mtbf_s), delta_s, mtbf_s, restart_s)
    assert best <= young * 1.001


def test_waste_is_what_a_simulated_job_loses() -> None:
    """Law: a job with failures at exponential times, also in checkpoints and restarts, loses that
    share (20,000 intervals, fixed seed; 1 %)."""
    rng = random.Random(7)
    interval_s, delta_s, mtbf_s, restart_s = 40.0, 5.0, 100.0, 10.0
    passed_s = 0.0
    for _ in range(20_000):
        to_do_s = interval_s + delta_s
        while (failure_s := rng.expovariate(1 / mtbf_s)) < to_do_s:
            passed_s += failure_s
            while (again_s := rng.expovariate(1 / mtbf_s)) < restart_s:
                passed_s += again_s
            passed_s += restart_s
        passed_s += to_do_s
    lost = 1 - 20_000 * interval_s / passed_s
    assert expected_waste(interval_s, delta_s, mtbf_s, restart_s) == pytest.approx(lost, rel=0.01)


def test_limits() -> None:
    """Law: without failures only checkpoints cost; with too many, nothing is ever done."""
    assert expected_waste(90, 10, 1e12) == pytest.approx(0.1)
    assert expected_waste(1e6, 1, 1) == 1.0
    assert math.isclose(expected_waste(100, 0, 1e12), 0, abs_tol=1e-9)
