"""LULESH in one process: the published number of steps and final energy at the origin."""

from __future__ import annotations

import sys

import pytest
from tree import ROOT

sys.path.insert(0, str(ROOT / "bench" / "apps"))
import lulesh


@pytest.mark.parametrize("edge", (
    5, pytest.param(10, marks=pytest.mark.full), pytest.param(20, marks=pytest.mark.nightly)))
def test_published_results(edge: int) -> None:
    slab = lulesh.oracle(edge)
    assert (slab.cycle, float(f"{slab.e[0, 0, 0]:.6e}")) == lulesh.PUBLISHED[edge]
