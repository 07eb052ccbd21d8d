"""Intervals between checkpoints: Young's and Daly's, and the expected waste for an interval.

These are pure formulas, which ``ftrma run`` uses with the measured cost of a checkpoint and
``ftrma plan`` with an estimate. All times are in seconds.
"""

from __future__ import annotations

import math

FIRST_GUESS_BYTES_PER_S = 2e9  # speed of staging before it is measured; half of the slowest seen


def daly_interval(delta_s: float, mtbf_s: float) -> float:
    """Return the best time between checkpoints, in seconds.

    Args:
        delta_s: time that one checkpoint holds the program up, > 0.
        mtbf_s: mean time between failures M, > 0.

    Source: Daly 2006, as printed in section 6.1 of Besta & Hoefler.
    """
    if delta_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = delta_s / (2 * mtbf_s)
    return math.sqrt(2 * delta_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - delta_s


def young_interval(delta_s: float, mtbf_s: float) -> float:
    """Return the first-order version of `daly_interval`, in seconds; good if delta_s << mtbf_s.

    Source: Young 1974.
    """
    return math.sqrt(2 * delta_s * mtbf_s)


def expected_waste(
    interval_s: float, delta_s: float, mtbf_s: float, restart_s: float = 0.0
) -> float:
    """Return the expected share of the time that is not spent on progress, between 0 and 1.

    It counts checkpoints, lost work that is repeated, and restarts. Failures are assumed to be
    independent of each other (exponential times between them); they may also hit a checkpoint or a
    restart.

    Args:
        interval_s: computing time between two checkpoints, > 0.
        delta_s: time that one checkpoint holds the program up, >= 0.
        mtbf_s: mean time between failures M, > 0.
        restart_s: time from a failure until the program computes again, >= 0.

    Source: Daly 2006, the complete model: per interval the expected time is
        M exp(R/M) (exp((tau + delta)/M) - 1).
    """
    exponent = (interval_s + delta_s) / mtbf_s
    if exponent + restart_s / mtbf_s > 700:  # exp would overflow; no interval is ever completed
        return 1.0
    needed_s = mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent)
    return 1 - interval_s / needed_s
