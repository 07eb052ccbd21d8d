"""Estimates P_cf by drawing failures: places groups, kills elements, counts each group's losses.

The module shares no formula and no code with `model`, so that the two can confirm each other. At
each level where members lie apart, a trial draws the number of elements that fail at once (by P_j)
and the elements, and looks if some group lost more than m members. The share of such trials times
the level's failures per day is the level's part of P_cf. Levels above are catastrophic by
assumption and are not drawn.

The places of groups are drawn as well, once per batch. Trials of one batch are not independent, so
the bounds are computed from the scatter between batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .machine import MOST_ENTRIES, Level, Machine
from .model import Groups

BATCHES = 50
CONFIDENCE_STANDARD_ERRORS = 3.29  # covers 99.9 % of a normal distribution
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Estimate:
    """An estimated P_cf per day, and the half width of its 99.9 % confidence interval."""

    p_cf_per_day: float
    half_width_per_day: float

    @property
    def low(self) -> float:
        return max(0.0, self.p_cf_per_day - self.half_width_per_day)

    @property
    def high(self) -> float:
        return self.p_cf_per_day + self.half_width_per_day


def simulate(
    machine: Machine, groups: Groups, aware: int, placement: str, trials: int, seed: int
) -> Estimate:
    """Estimate P_cf by `trials` draws per level.

    Args:
        machine, groups, aware: see `model.p_cf_per_day`.
        placement: ``aligned`` or ``scattered``.
        trials: draws at each level, at least `BATCHES`.
        seed: seed of the generator; the same seed gives the same estimate.
    """
    rng = np.random.default_rng(seed)
    certain = sum(level.total_per_day() for level in machine.levels[aware:])
    found = [draw_level(level, groups, placement, trials, rng) for level in machine.levels[:aware]]
    half_width = math.sqrt(sum(error**2 for _, error in found)) * CONFIDENCE_STANDARD_ERRORS
    return Estimate(certain + sum(part for part, _ in found), half_width)


def draw_level(
    level: Level, groups: Groups, placement: str, trials: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return a level's part of P_cf per day and its standard error."""
    rate = level.total_per_day()
    if level.failures is None or not rate:
        return 0.0, 0.0
    x = np.arange(1, min(level.count, MOST_ENTRIES) + 1)
    weights = level.failures.per_day(x)
    sizes = rng.choice(x, p=weights / weights.sum(), size=(BATCHES, max(1, trials // BATCHES)))
    shares = []
    for batch in sizes:
        where = draw_places(level.count, groups, placement, rng)
        hits = 0
        for failing in batch:
            failed = np.zeros(level.count + 1, dtype=bool)
            failed[rng.choice(level.count, failing, replace=False)] = True
            hits += int(np.count_nonzero(failed[where], axis=1).max() > groups.m)
        shares.append(hits / len(batch))
    mean, scatter = float(np.mean(shares)), float(np.std(shares, ddof=1))
    # With no hits, or very few, the scatter says too little: three more hits would not be
    # surprising.
    least = math.sqrt(mean * (1 - mean) / sizes.size) if mean else 1 / sizes.size
    return rate * mean, rate * max(scatter / math.sqrt(BATCHES), least)


def draw_places(count: int, groups: Groups, placement: str, rng: np.random.Generator) -> Places:
    """Return the element of each member, one row per group; `count` stands for no member."""
    members = [groups.ranks // groups.count + (i < groups.ranks % groups.count) + groups.m
               for i in range(groups.count)]
    where = np.full((groups.count, max(members)), count)
    order = rng.permutation(count)
    width = max(members)
    blocks = min(groups.count, count // width)
    for i, size in enumerate(members):
        if placement == "aligned":
            first = (i % blocks) * width
            where[i, :size] = order[first : first + size]
        else:
            where[i, :size] = rng.choice(count, size, replace=False)
    return where
