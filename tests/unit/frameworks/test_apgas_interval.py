"""Intervals between checkpoints of `ftrma.apgas`: the formulas, and steps instead of seconds."""

from __future__ import annotations

import math

import pytest

from ftrma.frameworks.apgas import interval
from ftrma.machine import interval as core


def test_the_paper_s_numbers() -> None:
    """Law: section 5.4 has 5.1 s and an MTBF of 60 s, and says 24.7 s, 3 iterations of 10.4 s (2.4
    of them); section 5.5 has 0.097 s, and says 3.4 s, 38 steps of 0.0890 s."""
    assert interval.young_interval(5.1, 60) == pytest.approx(24.7, abs=0.05)
    assert interval.steps_between("young", 5.1, 10.4, 60, False) == 2
    assert interval.young_interval(0.097, 60) == pytest.approx(3.4, abs=0.02)
    assert interval.steps_between("young", 0.097, 0.0890, 60, False) == 38


@pytest.mark.parametrize("delta_s", (1e-4, 0.1, 5, 200))
def test_the_formulas_are_the_core_s(delta_s: float) -> None:
    """Law: frameworks may not import the core's, so they are here once more."""
    assert interval.young_interval(delta_s, 60) == core.young_interval(delta_s, 60)
    assert interval.daly_interval(delta_s, 60) == core.daly_interval(delta_s, 60)


def test_a_number_of_steps_is_the_answer() -> None:
    assert interval.steps_between(7, 5.1, 10.4, 0, True) == 7


def test_what_is_not_measured() -> None:
    """Law: until a step, and a checkpoint other than the first, is measured, few steps are taken
    at a time; a checkpoint that takes no time is taken at each step."""
    assert interval.steps_between("daly", 1, 0, 60, True) == interval.UNMEASURED_STEPS
    assert interval.steps_between("daly", 82, 0.01, 60, True) == interval.UNMEASURED_STEPS
    assert interval.steps_between("daly", 82, 0.01, 60, False) > interval.UNMEASURED_STEPS
    assert interval.steps_between("daly", 0, 0.01, 60, False) == 1
    assert interval.steps_between("young", 1e-9, math.inf, 60, False) == 1


@pytest.mark.parametrize("rule", (0, -1, True, "weekly"))
def test_no_interval(rule: int | str) -> None:
    with pytest.raises(ValueError, match=f"checkpoint={rule!r}"):
        interval.check_rule(rule, 60)


def test_a_rule_needs_the_mtbf() -> None:
    interval.check_rule("daly", 60)
    with pytest.raises(ValueError, match="--mtbf"):
        interval.check_rule("daly", 0)
