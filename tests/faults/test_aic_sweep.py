"""Random kills of asynchronous programs: a number draws the program, the victims, and when.

Law: the result is right, within the stated error or bit by bit; each committed snapshot keeps its
sum; nothing hangs and nothing is left. ``FTRMA_AIC_SEED`` and ``FTRMA_AIC_KILLS`` take other
numbers and so many of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from programs import deaths, kinds
from test_aic import MODES, PROGRAMS, SLOTS, TWO, assert_right, run

pytestmark = pytest.mark.nightly
SEED, KILLS = (int(os.environ.get(f"FTRMA_AIC_{name}", number))
               for name, number in (("SEED", 0), ("KILLS", 200)))
LONGEST_S = 0.8  # from the begin of a run to a death: about what it takes


@pytest.mark.parametrize("seed", range(SEED, SEED + KILLS))
def test_random_kills(seed: int, record_property: Callable[[str, Any], None]) -> None:
    rng = random.Random(seed)
    name, mode = rng.choice(PROGRAMS), rng.choice((*MODES, "faic-d"))
    recovery = rng.choice(("all", "survivors"))
    timed = [f"{rng.randrange(SLOTS)}:{attempt}:{rng.uniform(0.0001, LONGEST_S):.4f}"
             for attempt in (1, 2)[:rng.choice((1, 1, 2))]]
    rules = [f"{server}@time:{rng.uniform(0.3, 3):.3f}"
             for server in rng.sample(("c0", "c1", "s0"), rng.choice((0, 0, 1)))]
    result = run(name, mode, *rules, recovery=recovery, options=TWO, timed=timed)
    record_property("deaths", len(deaths(result)))
    assert_right(name, result)
    assert set(kinds(result)) <= {"reentry", "causal"}, result  # before a claim one is replaced
