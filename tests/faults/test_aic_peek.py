"""Snapshots of ftrma.aic that are read while a run goes on.

Law: all slots that read a snapshot read parts of one: the result exceeds the values by no more than
their bounds say; values of later snapshots are nearer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import run_job

SCRIPT = Path(__file__).parent / "aicpeeks.py"
SLOTS = 2


@pytest.mark.full
def test_a_snapshot_is_read_while_the_run_goes_on() -> None:
    result = run_job(SCRIPT, SLOTS)
    assert result.status == 0, result
    parts = result.of_slots("slot", SLOTS)
    assert len(parts[0]["progress snapshots"]) > 1, result
    read = [{int(n): i for i, n in enumerate(part["thread snapshots"])} for part in parts]
    common = sorted(set.intersection(*map(set, read)))
    assert common, result
    before = np.inf
    for number in common:
        at = [of[number] for of in read]
        missing = [part["values"] - part["thread values"][i]
                   for part, i in zip(parts, at, strict=True)]
        left = sum(abs(array).sum() for array in missing)
        bound = sum(part["thread bounds"][i] for part, i in zip(parts, at, strict=True))
        assert left <= bound + parts[0]["bound"], (number, left, bound)
        assert left <= before + 1e-9
        before = left
