"""Random kills of asynchronous programs: a number draws the program, the victims, and when.

Law: the result is right, within the stated error or bit by bit; each committed snapshot keeps its
sum; nothing hangs and nothing is left. ``FTRMA_AIC_SEED`` and ``FTRMA_AIC_KILLS`` take other
numbers and so many of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nodes import remove_fake_ssh
from programs import deaths, kinds
from test_aic import MODES, PROGRAMS, SLOTS, TWO, assert_right, run

pytestmark = pytest.mark.nightly
SEED, KILLS = (int(os.environ.get(f"FTRMA_AIC_{name}", number))
               for name, number in (("SEED", 0), ("KILLS", 200)))
LONGEST_S = 0.8  # from the begin of a run to a death: about what it takes


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


@pytest.mark.parametrize(("seed", "nodes"), [
    *((seed, 1) for seed in range(SEED, SEED + KILLS)),
    *((seed, 2 + seed % 2) for seed in range(SEED, SEED + KILLS // 5))])
def test_random_kills(seed: int, nodes: int, record_property: Callable[[str, Any], None]) -> None:
    rng = random.Random(seed)
    name, mode = rng.choice(PROGRAMS), rng.choice((*MODES, "faic-d"))
    recovery = rng.choice(("all", "survivors"))
    timed = [f"{rng.randrange(SLOTS)}:{attempt}:{rng.uniform(0.0001, LONGEST_S):.4f}"
             for attempt in (1, 2)[:rng.choice((1, 1, 2))]]
    rules = [f"{server}@time:{rng.uniform(0.3, 3):.3f}"
             for server in rng.sample(("c0", "c1", "s0"), rng.choice((0, 0, 1)))]
    result = run(name, mode, *rules, recovery=recovery, options=TWO, timed=timed,
                 nodes=nodes)
    record_property("deaths", len(deaths(result)))
    assert_right(name, result)
    # Before a claim a slot is replaced; over nodes a survivor may crash because of a death, too.
    lost = {"relaunch"} if nodes > 1 else set()
    assert set(kinds(result)) <= {"reentry", "causal"} | lost, result
