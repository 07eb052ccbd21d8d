"""Causal recovery over several nodes is exact, whatever program, schedule and deaths.

Law: when a recovered slot goes live, and again when all have ended, parts and local states equal
those of the same events executed one at a time in the order in which they took effect
(`Job.compare`).  Every rule of the protocol is needed: broken, the same law fails.

FTRMA_MODEL_SEED and FTRMA_MODEL_CASES choose other and more cases.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from itertools import count, islice

import pytest
from unit.protocol.model_nodes import Machine
from unit.protocol.model_nodes_cases import Case, case, demanding
from unit.protocol.model_nodes_small import SMALL
from unit.protocol.model_nodes_words import Rules, Wrong
from unit.protocol.model_programs import settled

SEED = int(os.environ.get("FTRMA_MODEL_SEED", "1"))
CASES = int(os.environ.get("FTRMA_MODEL_CASES", "800"))

# The number of a case, or of a smallest program's, that shows the need; the search begins there.
FOUND: dict[str, int] = {
    "numbers": 18, "gaps": 31, "answers": 36, "applied_first": 29, "serial": 3, "undo": 560,
    "undo_cleared": 109, "undo_first": 1828, "dead_refused": 2433, "requests_of_epoch": 130,
    "replies_of_epoch": 110, "forget": 106, "between": 196, "hold": 76, "mine": 420,
    "lock_numbers": 54, "flush_waits": 2, "unlock_after": 16, "unlock_acknowledged": 360,
    "resend_live": 36, "resend_agent": 2, "resend_moved": 17, "set_acknowledged": 48,
    "set_maximum": 2162, "set_again": 0, "set_two": 291, "set_moved": 1671, "words_move": 412,
    "above_number": 0, "pending_counts": 269, "pending_last": 178, "answers_rebuilt": 95,
    "answers_kept": 95, "number_between": 2016, "dead_locality": 3, "neighbours": 36,
    "moved_once": 363, "demand_numbers": 18, "demand_looks": 230, "demand_whole": 2596,
    "demand_looks_again": 5098, "demand_flushes": 29,
}

# Rules for slots that come back on another node, which shipped code does not let be replayed.
MOVING = ("resend_moved", "set_again", "set_moved", "words_move", "dead_locality", "neighbours",
          "moved_once")


def numbers(cases: int, stride: int = 10_000_000) -> range:
    return range(SEED * stride, SEED * stride + cases)


def fails(case: Case, rules: Rules) -> bool:
    try:
        Machine(*case, rules).run()
    except AssertionError:
        return True
    return False


def outcomes_of(made: Callable[[int], Case]) -> Counter[str]:
    """Outcomes of all cases."""
    outcomes: Counter[str] = Counter()
    for number in numbers(CASES):
        machine = Machine(*made(number))
        try:
            machine.run()
        except AssertionError as wrong:
            raise Wrong(f"case {number}: {wrong}") from wrong
        outcomes.update(machine.outcomes)
    print(CASES, "cases", dict(outcomes))
    return outcomes


@pytest.mark.plain
def test_recovery_is_exact() -> None:
    """Law: up to four deaths of processes, agents and nodes, also of replacements, in a replay, and
    of agents during a recovery; and the cases reach what they are for."""
    outcomes = outcomes_of(case)
    assert len(outcomes) == 9
    assert min(outcomes["causal"], outcomes["agent"]) > CASES // 4
    assert min(outcomes.values()) > CASES // 200


@pytest.mark.full
def test_recovery_from_a_demand_checkpoint_is_exact() -> None:
    """Law: the same where slots checkpoint alone, while others write to them or have just."""
    outcomes = outcomes_of(demanding)
    assert outcomes["demand"] > CASES
    assert outcomes["causal from a demand checkpoint"] > CASES // 40


@pytest.mark.plain
def test_settled_programs_end_as_without_failure() -> None:
    """Law: where no lock and no atomic leaves a choice, the end is that of any run without deaths,
    rollbacks included."""
    cases = (case(number, settled=True) for number in count(SEED * 10_000_000))
    for program, home, schedule, deaths in islice(
            (c for c in cases if settled(c.program) and c.deaths), CASES // 8):
        failed = Machine(program, home, schedule, deaths).run()
        whole = Machine(program, home[::-1], 0).run()
        assert [s.part for s in failed.slots] == [s.part for s in whole.slots]
        assert [p.state for p in failed.processes] == [p.state for p in whole.processes]


@pytest.mark.parametrize("name", FOUND)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """Law: with any one rule broken the law above fails for some case, and for that case holds
    with the rule kept; random programs need some rules, the rest only smallest ones."""
    random = demanding if name.startswith("demand") else case
    made = SMALL[name].case if name in SMALL else random
    for number in range(FOUND[name], FOUND[name] + 5000):
        if fails(made(number), Rules(**{name: False})):
            print("case", number)
            assert not fails(made(number), Rules())
            return
    raise AssertionError(f"no case needs {name}")


@pytest.mark.plain
def test_rules_for_slots_that_move() -> None:
    """Law: where each slot comes back on its node, none of these rules is needed; so shipped code,
    which has all go back if one does not, can do without them."""
    broken = Rules(**dict.fromkeys(MOVING, False))
    for made in map(case, numbers(CASES // 4)):
        deaths = [death._replace(to=-1) for death in made.deaths]
        assert not fails(made._replace(deaths=deaths), broken), made


def test_every_rule_is_broken_somewhere() -> None:
    """Law: the cases above miss no rule."""
    assert {f.name for f in fields(Rules)} == set(FOUND)
