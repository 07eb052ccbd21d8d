"""Steps between two checkpoints, from the times of a step and a checkpoint: Young's, Daly's rules.

The formulas are pure. `steps_between` applies them to what an executor has measured. All times are
in seconds.
"""

from __future__ import annotations

import math

RULES = ("young", "daly")
UNMEASURED_STEPS = 10  # greatest result as long as only the first checkpoint has been measured


def young_interval(delta_s: float, mtbf_s: float) -> float:
    """Best time between two checkpoints to the first order; good if delta is far below the MTBF.

    Args:
        delta_s: time for which a checkpoint holds the program up, > 0.
        mtbf_s: mean time between failures of the whole job, > 0.

    Source: Young 1974, as section 5.4 of the paper uses it.
    """
    return math.sqrt(2 * delta_s * mtbf_s)


def daly_interval(delta_s: float, mtbf_s: float) -> float:
    """Best time between two checkpoints to a higher order than `young_interval`; same arguments.

    Source: Daly 2006, equation 37.
    """
    if delta_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = delta_s / (2 * mtbf_s)
    return math.sqrt(2 * delta_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - delta_s


def steps_between(rule: int | str, delta_s: float, step_s: float, mtbf_s: float,
                  first: bool) -> int:
    """Return the number of steps until the next checkpoint.

    Args:
        rule: a number of steps, which is then the result, or one of `RULES`.
        delta_s: time of a checkpoint; 0: it was too short to measure.
        step_s: time of a step; 0: no step has been measured.
        mtbf_s: mean time between failures of the whole job, > 0.
        first: `delta_s` is the time of the run's first checkpoint, which has more to save than
            others.

    Returns:
        1 or more.
    """
    if not isinstance(rule, str):
        return rule
    if step_s <= 0:
        return UNMEASURED_STEPS
    formula = young_interval if rule == "young" else daly_interval
    steps = max(1, round(formula(delta_s, mtbf_s) / step_s)) if delta_s > 0 else 1
    return min(steps, UNMEASURED_STEPS) if first else steps


def check_rule(rule: int | str, mtbf_s: float) -> None:
    """Refuse a value that is no interval between checkpoints.

    Raises:
        ValueError: the rule cannot be used; the text has the value and the remedy.
    """
    if isinstance(rule, str):
        if rule not in RULES:
            raise ValueError(f"checkpoint={rule!r}: give steps between two checkpoints, "
                             '"young" or "daly"')
        if mtbf_s <= 0:
            raise ValueError(f"checkpoint={rule!r}: the mean time between failures is not known; "
                             "start the job with --mtbf SECONDS, or give a number of steps")
    elif isinstance(rule, bool) or rule < 1:
        raise ValueError(f"checkpoint={rule!r}: give 1 or more steps between two checkpoints")
