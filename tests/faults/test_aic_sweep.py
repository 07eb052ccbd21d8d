"""Random kills of asynchronous programs: a number draws the program, the victims, and when.

Law: the result is right, within the stated error or bit by bit; each committed snapshot keeps its
sum; nothing hangs and nothing is left. ``FTRMA_AIC_SEED`` and ``FTRMA_AIC_KILLS`` take other
numbers and so many of them.
"""

from __future__ import annotations

import os
import random

import pytest
from programs import kinds
from test_aic import MODES, PROGRAMS, SLOTS, TWO, assert_right, run

pytestmark = pytest.mark.nightly
SEED, KILLS = (int(os.environ.get(f"FTRMA_AIC_{name}", number))
               for name, number in (("SEED", 0), ("KILLS", 200)))
LONGEST_S = 1.5  # until a death: about what a run takes


@pytest.mark.parametrize("seed", range(SEED, SEED + KILLS))
def test_random_kills(seed: int) -> None:
    rng = random.Random(seed)
    name, mode = rng.choice(PROGRAMS), rng.choice((*MODES, "faic-d"))
    recovery = rng.choice(("all", "survivors"))
    victims = rng.sample([*map(str, range(SLOTS)), "c0", "c1", "s0"], rng.choice((1, 1, 2)))
    rules = [f"{victim}@time:{rng.uniform(0.01, LONGEST_S):.4f}" for victim in victims]
    result = run(name, mode, *rules, recovery=recovery, options=TWO)
    assert_right(name, result)
    assert set(kinds(result)) <= {"reentry"}, result
