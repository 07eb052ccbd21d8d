"""Effective time: each instant of a job counts once, and what is left is useful."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftrma.fabric.story import Began, Checkpoint, Entered, Event, Phases, Recovery
from ftrma.launch.effectivetime import (
    AGAIN,
    CHECKPOINTS,
    KINDS,
    RECOVERIES,
    STARTING,
    Span,
    apart,
    effective_time,
    lost_spans,
)

T = 1_700_000_000.0  # some time of day


def checkpoint(at: float, version: int, seconds: float, slot: int | None = None) -> Checkpoint:
    kind = "coordinated" if slot is None else "demand"
    return Checkpoint(version, kind, seconds, 0, 0, slot=slot, time=T + at)


def recovery(at: float, kind: str, version: int, seconds: float) -> Recovery:
    return Recovery(kind, (1,), version, seconds, Phases(0, seconds, 0), "", 0.0, time=T + at)


START: list[Event] = [Began(time=T), Entered(time=T + 2)]


def test_a_job_without_failure() -> None:
    """Law: coming up and checkpoints are no progress; all else is."""
    events = [*START, checkpoint(10, 1, 0.5), checkpoint(20, 2, 0.5)]
    found = effective_time(events, 4, T + 30)
    assert (found.starting_s, found.checkpoints_s) == (2.0, 1.0)
    assert (found.total_s, found.useful_s, found.share) == (30.0, 27.0, 0.9)


def test_work_that_is_done_again() -> None:
    """Law: a rollback throws away what was done since its checkpoint, without what was no progress
    before; a causal recovery throws nothing away."""
    events = [*START, checkpoint(10, 1, 1.0), recovery(15, "causal", 1, 2.0),
              checkpoint(18, 1, 2.0, slot=0), recovery(25, "rollback", 1, 4.0)]
    found = effective_time(events, 4, T + 30)
    assert found.recoveries_s == 6.0
    assert found.checkpoints_s == pytest.approx(1.5)  # the demand checkpoint held up one of four
    assert found.again_s == pytest.approx(11 - 2 - 0.5)  # 10 to 21
    assert found.useful_s == pytest.approx(30 - 2 - 6 - 1.5 - 8.5)


def test_back_to_the_start_of_the_program() -> None:
    events = [*START, recovery(12, "relaunch", 0, 3.0), Entered(time=T + 12)]
    found = effective_time(events, 4, T + 20)
    assert (found.starting_s, found.again_s, found.recoveries_s) == (2.0, 7.0, 3.0)


def test_a_run_that_goes_on_from_files() -> None:
    """Law: work since the run began is thrown away by a rollback to the checkpoint of before."""
    events = [Began(time=T), Entered(7, time=T + 2), recovery(12, "rollback", 7, 1.0)]
    assert effective_time(events, 4, T + 20).again_s == 9.0


def test_a_job_that_has_not_come_up() -> None:
    found = effective_time(START[:1], 4, T + 5)
    assert (found.total_s, found.starting_s, found.useful_s, found.share) == (5.0, 5.0, 0.0, 0.0)


def test_no_story() -> None:
    assert effective_time([], 4, T).share == 1.0


def test_a_clock_that_is_set_back() -> None:
    """Law: no span goes beyond the job, so no share is outside of 0 to 1."""
    events = [*START, recovery(-50, "rollback", 0, 3.0), checkpoint(500, 1, 0.5)]
    found = effective_time(events, 4, T + 10)
    assert 0.0 <= found.share <= 1.0 and found.useful_s == 8.0


times = st.integers(0, 40).map(float)
spans = st.lists(st.builds(
    lambda kind, a, b: Span(kind, min(a, b), max(a, b) + 1), st.sampled_from(KINDS), times, times))


@given(spans)
def test_each_instant_counts_once(found: list[Span]) -> None:
    """Law: the pieces are in order, do not overlap, and each has the first kind of its instants."""
    pieces = list(apart(found))
    assert all(a.end <= b.begin for a, b in itertools.pairwise(pieces))
    for second in range(42):
        kinds = [s.kind for s in found if s.begin <= second + 0.5 < s.end]
        now = [s.kind for s in pieces if s.begin <= second + 0.5 < s.end]
        assert now == sorted(set(kinds), key=KINDS.index)[:1]


def test_the_order_of_kinds() -> None:
    """Law: a span is cut where another one covers it."""
    events = [*START, checkpoint(10, 1, 1.0), recovery(20, "rollback", 1, 4.0)]
    found = [(s.kind, s.begin - T, s.end - T) for s in lost_spans(events, 4, T, T + 30)]
    assert found == [(STARTING, 0, 2), (CHECKPOINTS, 9, 10), (AGAIN, 10, 16), (RECOVERIES, 16, 20)]
