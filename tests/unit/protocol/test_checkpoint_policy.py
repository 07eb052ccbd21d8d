"""When a checkpoint is due."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, getcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.protocol import checkpoint_policy
from ftrma.protocol.checkpoint_policy import CheckpointPolicy, daly_interval

getcontext().prec = 40
DELTAS = st.floats(1e-6, 1e4)
MTBFS = st.floats(1e-3, 1e7)


def daly(delta: float, mtbf: float) -> float:
    """Daly's formula in decimal arithmetic, as printed: t = sqrt(2dM)(1 + 1/3 (d/2M)^(1/2) +
    1/9 (d/2M)) - d for d < 2M, else M."""
    d, m = Decimal(delta), Decimal(mtbf)
    if d >= 2 * m:
        return mtbf
    ratio = d / (2 * m)
    return float((2 * d * m).sqrt() * (1 + ratio.sqrt() / 3 + ratio / 9) - d)


@given(DELTAS, MTBFS)
def test_interval_is_dalys(delta: float, mtbf: float) -> None:
    """Law: equal to the formula computed independently, to 12 digits."""
    assert math.isclose(daly_interval(delta, mtbf), daly(delta, mtbf), rel_tol=1e-11)


def test_interval_by_hand() -> None:
    """Law: 8 s checkpoints, one failure in 100 s: 40 (1 + 0.2/3 + 0.04/9) - 8 s."""
    assert daly_interval(8, 100) == pytest.approx(40 * (1 + 0.2 / 3 + 0.04 / 9) - 8)


@given(DELTAS, MTBFS)
def test_interval_is_positive(delta: float, mtbf: float) -> None:
    """Law: there is always time to compute between two checkpoint_policy."""
    assert daly_interval(delta, mtbf) > 0


@given(MTBFS, st.floats(2, 100))
def test_expensive_checkpoints_come_at_the_failure_rate(mtbf: float, factor: float) -> None:
    """Law: from delta = 2M on the interval is M."""
    assert daly_interval(factor * mtbf, mtbf) == mtbf


@given(DELTAS, MTBFS, st.floats(1.01, 10))
def test_rarer_failures_mean_rarer_checkpoints(delta: float, mtbf: float, more: float) -> None:
    """Law: where checkpoints are worth it (delta < 2M), the interval grows with M."""
    if delta < 2 * mtbf:
        assert daly_interval(delta, more * mtbf) > daly_interval(delta, mtbf)


def size(size_bytes: int) -> Callable[[], int]:
    return lambda: size_bytes


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(checkpoint_policy, "time", made)
    return made


def test_fixed_interval_is_kept(clock: Clock) -> None:
    """Law: due from 2.5 s after the last one on, and not before."""
    policy = CheckpointPolicy(2.5, 3600)
    assert not policy.due(size(10**9)) and not policy.every
    clock.now += 2.4375
    assert not policy.due(size(10**9))
    clock.now += 0.0625
    assert policy.due(size(10**9))
    policy.last = clock.now
    assert not policy.due(size(10**9))


def test_never_is_never(clock: Clock) -> None:
    """Law: no time makes a checkpoint due."""
    policy = CheckpointPolicy("never", 1)
    clock.now += 1e9
    assert not policy.due(size(0)) and not policy.every


def test_zero_is_every_safepoint(clock: Clock) -> None:
    """Law: an interval of 0 is due at once, each time."""
    policy = CheckpointPolicy(0.0, 3600)
    assert policy.every and policy.due(size(0)) and policy.due(size(0))


def test_daly_uses_what_was_measured(clock: Clock) -> None:
    """Law: due after Daly's interval of the measured hold-up; before the first, of a guess that
    grows with the bytes."""
    policy = CheckpointPolicy("daly", 100)
    policy.delta_s = 8.0
    interval = daly(8, 100)
    clock.now = 1000.0 + interval - 0.001
    assert not policy.due(size(0))
    clock.now = 1000.0 + interval + 0.001
    assert policy.due(size(0))
    few, many = CheckpointPolicy("daly", 3600), CheckpointPolicy("daly", 3600)
    clock.now += daly(10**8 / checkpoint_policy.FIRST_GUESS_BYTES_PER_S, 3600) + 0.001
    assert few.due(size(10**8)) and not many.due(size(10**10))
