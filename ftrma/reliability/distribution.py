"""The failures per day P_j(x) that hit exactly x elements of a level at once.

An exponential A exp(-b x), as in section 7.1 of Besta & Hoefler, or a table. The values are rates
and not probabilities of anything, so their sum over x may exceed 1 on a large machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Distribution(Protocol):
    """Failures per day by the number of elements that fail at once."""

    def per_day(self, x: NDArray[Any]) -> Array:
        """Return the failures per day that hit exactly x elements, x >= 1; same shape as x."""

    def beyond(self, x: int, count: int) -> float:
        """Return the failures per day that hit more than x and at most `count` elements."""


@dataclass(frozen=True)
class Exponential:
    """A exp(-b x), with A = `amplitude_per_day` and b = `decay` > 0 (no unit)."""

    amplitude_per_day: float
    decay: float

    def per_day(self, x: NDArray[Any]) -> Array:
        return np.asarray(self.amplitude_per_day * np.exp(-self.decay * x), dtype=np.float64)

    def beyond(self, x: int, count: int) -> float:
        if count <= x:
            return 0.0
        # A geometric series; expm1 keeps the digits where the decay is slow.
        first = self.amplitude_per_day * np.exp(-self.decay * (x + 1))
        return float(first * np.expm1(-self.decay * (count - x)) / np.expm1(-self.decay))


@dataclass(frozen=True)
class TabledFailures:
    """The values for x = 1, 2, ...; zero beyond."""

    values_per_day: tuple[float, ...]

    @classmethod
    def of(cls, values_per_day: Sequence[float]) -> TabledFailures:
        return cls(tuple(float(value) for value in values_per_day))

    def per_day(self, x: NDArray[Any]) -> Array:
        values = np.array([0.0, *self.values_per_day, 0.0])
        return values[np.minimum(x.astype(np.int64), len(values) - 1)]

    def beyond(self, x: int, count: int) -> float:
        return float(sum(self.values_per_day[x:count]))
