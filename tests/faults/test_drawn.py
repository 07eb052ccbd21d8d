"""Programs that nobody has thought of, killed at places that nobody has chosen.

Law: the final memory is that of the same program unprotected, bit for bit, on one node and over
several, whoever dies; what a get or a swap returned is in it. A number draws the program, the
options and the kills.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jobs import Result, run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes
from programs import ROOT, SLOTS
from tiers import tiers

SCRIPT = ROOT / "tests/faults/replay/drawn.py"
STEPS = 10
PLACES = {
    "slot": ["put", "get", "atomic", "flush", "fence", "call", "lock-held", "safepoint", "stage",
             "staged", "repair", "replay", "live", "end"],
    "checksum": ["sum", "fold", "commit", "repair"],
    "spare": ["repair"],
}


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def draw(dice: random.Random, spares: int, checksums: int) -> list[str]:
    """Rules for one or two deaths; a place where nobody comes by strikes nobody."""
    roles = [("slot", str(s)) for s in range(SLOTS)]
    roles += [("checksum", f"c{c}") for c in range(checksums)]
    roles += [("spare", f"s{s}") for s in range(spares)]
    victims = dice.sample(roles, dice.choice([1, 1, 2]))
    return [f"{name}@{dice.choice(PLACES[role])}:{dice.randrange(1, 7)}" for role, name in victims]


def run(nodes: int, mode: str, number: int, *options: str) -> Result:
    args = [mode, str(STEPS), str(number)]
    if nodes == 1:
        return run_job(SCRIPT, SLOTS, *options, args=args)
    return run_on_nodes(SCRIPT, SLOTS, *options, args=args, in_turn=nodes, timeout=60)


def assert_same(result: Result, expected: list[dict[str, Any]]) -> None:
    assert result.status == 0, str(result)
    for slot, (found, right) in enumerate(zip(result.of_slots("slot", SLOTS), expected,
                                              strict=True)):
        for name, array in right.items():
            same = np.asarray(found[name]).tobytes() == np.asarray(array).tobytes()
            assert same, f"slot {slot}'s {name} differs from the unprotected run\n{result}"


@pytest.mark.parametrize(("number", "nodes"), tiers(
    [(10 * i + nodes, nodes) for i in range(10) for nodes in (1, 2, 3)],
    full=["1-1", "12-2"]))
def test_its_memory_is_that_of_the_unprotected_run(number: int, nodes: int) -> None:
    dice = random.Random(number)
    # By shared memory Open MPI 5.0.11 never ends a Put of program 53: two ranks spin in it.
    plain = run_plain(SCRIPT, SLOTS, args=["plain", str(STEPS), str(number)],
                      launcher=["--mca", "btl", "self,tcp"])
    assert plain.status == 0, plain
    strength, spares = dice.choice([1, 1, 2]), dice.choice([1, 2, 3])
    options = ["--group-size", "4", "--checksums", str(strength), "--spares", str(spares),
               "--interval", dice.choice(["0", "0", "never"]),
               "--policy", dice.choice(["auto", "auto", "auto", "rollback"])]
    for rule in draw(dice, spares, strength):
        options += ["--kill", rule]
    mode = dice.choice(["plain", "top", "bottom"])
    print(number, nodes, mode, *options)
    assert_same(run(nodes, mode, number, *options), plain.of_slots("slot", SLOTS))
