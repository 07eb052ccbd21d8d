"""Snapshots and the end of an asynchronous run, in a simulator that runs the shipped worker.

The law: a committed snapshot has each message exactly once; a run ends, and never too early;
nothing is left in channels. `FTRMA_AIC_SEED` takes other cases, `FTRMA_AIC_RUNS` another
number of them.
"""

from __future__ import annotations

import os

import aicsim
import pytest

SEED = int(os.environ.get("FTRMA_AIC_SEED", "0"))
RUNS = int(os.environ.get("FTRMA_AIC_RUNS", "4"))


@pytest.mark.parametrize("mode", aicsim.MODES)
def test_snapshots_and_the_end(mode: str) -> None:
    """Law: whatever the order of turns, records, repairs and deaths."""
    for seed in range(SEED, SEED + RUNS):
        simulation = aicsim.Simulation(seed, mode)
        try:
            simulation.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, {mode}: {error}") from error
