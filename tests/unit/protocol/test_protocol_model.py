"""Causal recovery is exact, whatever program, schedule and deaths: the model of the protocol.

Law: when a recovered slot goes live, and again when all have ended, parts and local states equal
those of the same events executed one at a time in the order in which they took effect
(`Machine.compare`).  Every rule of the protocol is needed: broken, the same law fails.

FTRMA_MODEL_SEED and FTRMA_MODEL_CASES choose other and more cases.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import fields
from itertools import product

import pytest
from hypothesis import HealthCheck, Phase, find, given, note, seed, settings
from hypothesis import strategies as st
from unit.protocol.model import Machine
from unit.protocol.model_programs import FLAG, Op, Program, programs, settled
from unit.protocol.model_words import Rules

SEED = int(os.environ.get("FTRMA_MODEL_SEED", "1"))
CASES = int(os.environ.get("FTRMA_MODEL_CASES", "1000"))
Deaths = list[tuple[int, int]]
Case = tuple[Program, int | list[int], Deaths]

quick = settings(deadline=None, database=None, print_blob=True,
                 suppress_health_check=list(HealthCheck))


X = (0,)
# The smallest programs that need the rules which one might think unneeded; slot 0 dies.
SMALL: dict[str, Program] = {
    # A load happens before a put though the slot has called nothing but an atomic in between.
    "clock_counts_atomics": (
        (Op("load", 0, X), Op("signal", 1, (FLAG,)), Op("fence")),
        (Op("poll", 1, (FLAG,), 1), Op("put", 0, X), Op("fence")),
    ),
    # The one that comes second to the lock has read the clock first.
    "clock_under_lock": (
        (Op("swap", 0, X), Op("fence")),
        (Op("swap", 0, X, 1), Op("fence")),
    ),
    # The clock is read while the dead has begun an event that its replacement has not begun yet.
    "clock_stays": (
        (Op("sync"), Op("fence")),
        (Op("swap", 0, X), Op("swap", 0, X), Op("fence")),
    ),
    # One has its turn at the dead slot, another has been waiting for its own.
    "waiting_too": (
        (Op("fence"),),
        (Op("swap", 0, X), Op("fence")),
        (Op("swap", 0, X, 1), Op("fence")),
    ),
    # An access is under way while the records are collected.
    "drain": (
        (Op("fence"),),
        (Op("put", 0, X), Op("fence")),
    ),
}
# Two come one after the other to what slot 0 checkpoints on demand; the second must win.
TWO_SWAPS: Program = (
    (Op("put", 0, (1,)), Op("put", 0, (1,)), Op("demand", 0), Op("fence")),
    (Op("swap", 0, X), Op("fence")),
    (Op("swap", 0, X, 1), Op("fence")),
)
ONE_PUT: Program = (
    (Op("demand", 0), Op("fence")),
    (Op("put", 0, X), Op("fence")),
)
# Rules that the snapshot needs: one slot that stops in the middle of something breaks each.
DEMANDED: dict[str, Program] = {
    "numbers_first": TWO_SWAPS,
    "held_by_number": TWO_SWAPS,
    "number_of_each": TWO_SWAPS,
    "held_by_event": ONE_PUT,
    "unheld_again": ONE_PUT,
    # The first swap is over, but its event is not: the slot's own comes next, then the snapshot.
    "atomic_done": (
        (Op("swap", 0, X), Op("demand", 0), Op("fence")),
        (Op("swap", 0, X, 1), Op("fence")),
    ),
}


@st.composite
def cases(draw: st.DrawFn, least: int = 0, most: int = 2) -> Case:
    """A program, a seed for its schedule, and deaths at steps that the slots may come to."""
    program = draw(programs())
    deaths = []
    for _ in range(draw(st.integers(least, most))):
        slot = draw(st.integers(0, len(program) - 1))
        step = draw(st.integers(0, 10 * len(program[slot]) + 15))
        deaths.append((slot, step))
        if draw(st.booleans()):  # its replacement, too, perhaps before it is live
            deaths.append((slot, step + draw(st.integers(1, 30))))
    return program, draw(st.integers(0, 2**32)), deaths


@pytest.mark.plain
@seed(SEED)
@settings(quick, max_examples=CASES)
@given(cases())
def test_recovery_is_exact(case: Case) -> None:
    """Law: up to four deaths, also of the replacement in its replay and of others meanwhile."""
    note(f"FTRMA_MODEL_SEED={SEED}")
    Machine(*case).run()


@pytest.mark.plain
@seed(SEED)
@settings(quick, max_examples=CASES // 4)
@given(cases(1), st.integers(0, 2))
def test_one_slot_dead_is_always_recovered_causally(case: Case, slot: int) -> None:
    """Law: as long as only one slot dies, however often, nobody rolls back."""
    program, schedule, deaths = case
    slot %= len(program)
    machine = Machine(program, schedule, [(slot, step) for _, step in deaths]).run()
    assert set(machine.outcomes) <= {"causal"}


@pytest.mark.plain
@seed(SEED)
@settings(quick, max_examples=CASES // 8)
@given(cases(1).filter(lambda case: settled(case[0])), st.integers(0, 2**32))
def test_settled_programs_end_as_without_failure(case: Case, other: int) -> None:
    """Law: where no lock and no atomic leaves a choice, the end is that of any run without deaths,
    rollbacks included."""
    failed, whole = Machine(*case).run(), Machine(case[0], other).run()
    for mine, theirs in zip(failed.shared, whole.shared, strict=True):
        assert mine.part == theirs.part
    assert [p.state for p in failed.processes] == [p.state for p in whole.processes]


@pytest.mark.full
def test_cases_reach_what_they_are_for() -> None:
    """Law: the cases contain recoveries, deaths in a replay, in a demand checkpoint and with one,
    and each reason for a rollback."""
    outcomes: Counter[str] = Counter()

    class Watched(Machine):
        def die(self, q: int) -> None:
            outcomes["in replay"] += self.processes[q].replaying and q in self.down
            outcomes["inside an atomic"] += any(q in s.serial for s in self.shared)
            outcomes["holding a lock"] += any(
                s.owner == q or q in s.holders for s in self.shared)
            own = self.processes[q]
            ops = self.program[q][own.state.pc : own.state.pc + 1]
            outcomes["in a demand checkpoint"] += (
                not own.replaying and any(op.kind == "demand" for op in ops))
            outcomes["with a demand checkpoint"] += self.shared[q].demand is not None
            super().die(q)

    @seed(SEED)
    @settings(quick, max_examples=800, phases=[Phase.generate])
    @given(cases(1))
    def run(case: Case) -> None:
        outcomes.update(Watched(*case).run().outcomes)

    run()
    print(outcomes)
    assert outcomes["causal"] > 400 and min(outcomes.values()) > 10
    assert len(outcomes) == 8


BROKEN = [
    Rules(clock_counts_atomics=False),
    Rules(shift=1),
    Rules(shift=-1),
    Rules(all_at_once=True),
    Rules(wait=False),
    Rules(drain=False),
    Rules(repair_first=False),
    Rules(suppress=False),
    Rules(own_puts=False),
    Rules(by_number=False),
    Rules(undo=False),
    Rules(done_counts=False),
    Rules(words=False),
    Rules(two_buffers=False),
    Rules(keep_horizon=False),
    Rules(mine=False),
    Rules(copy_last=False),
    Rules(publish_last=False),
    Rules(published_counts=False),
]


def breaks(rules: Rules) -> str:
    return ", ".join(f"{f.name}={getattr(rules, f.name)}" for f in fields(rules)
                     if getattr(rules, f.name) != f.default)


def fails(case: Case, rules: Rules) -> bool:
    try:
        Machine(*case, rules).run()
    except AssertionError:
        return True
    return False


@pytest.mark.full
@pytest.mark.parametrize("rules", BROKEN, ids=breaks)
def test_every_rule_is_needed(rules: Rules) -> None:
    """Law: with any one rule broken the law above fails for some case, and for that case holds
    with the rule kept."""
    found = find(cases(1), lambda case: fails(case, rules), random=random.Random(SEED),
                 settings=settings(quick, max_examples=5000, phases=[Phase.generate]))
    assert not fails(found, Rules())


def test_every_rule_is_broken_somewhere() -> None:
    """Law: the list above and the smallest programs miss no rule."""
    names = {f.name for f in fields(Rules)}
    listed = {breaks(rules).split("=")[0] for rules in BROKEN}
    assert names == listed | set(SMALL) | set(DEMANDED)


@pytest.mark.plain
@pytest.mark.parametrize("name", SMALL)
def test_smallest_programs(name: str) -> None:
    """Law: a few operations suffice to need the rule, and with it kept no schedule goes wrong."""
    program, rules = SMALL[name], Rules(**{name: False})
    luck = random.Random(SEED)
    wrong = []
    for _ in range(1500):
        deaths = [(0, luck.randrange(15)), (0, luck.randrange(30))]
        case = program, luck.getrandbits(32), deaths
        assert not fails(case, Rules()), case
        wrong = wrong or [case] * fails(case, rules)
    print("the first that is wrong:", *wrong)
    assert wrong


@pytest.mark.plain
@pytest.mark.parametrize("name", DEMANDED)
def test_smallest_programs_with_a_demand_checkpoint(name: str) -> None:
    """Law: the same for all schedules in which one slot stops once, at any of its steps, until the
    others can go no further; slot 0 dies in its checkpoint or after it."""
    program, rules = DEMANDED[name], Rules(**{name: False})
    wrong = []
    for pause, death in product(range(45), range(20, 45, 3)):
        for schedule in (
            [0] * pause + [1] * 60 + [2] * 60 + [0] * 60,
            [1] * pause + [0] * 60 + [2] * 60 + [1] * 60,
        ):
            case = program, schedule, [(0, death)]
            assert not fails(case, Rules()), case
            wrong = wrong or [case] * fails(case, rules)
    print("the first that is wrong:", *wrong)
    assert wrong
