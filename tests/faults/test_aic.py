"""Asynchronous programs under real kills: `ftrma.aic`, with all modes of snapshots.

Law: whoever dies, wherever, the job ends with the values of the oracle: within the stated error
where deltas are added up, bit by bit where the least counts. Each committed snapshot keeps the sum
that no message changes.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Result, run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes
from pairwise import pairwise
from programs import deaths, kinds
from tiers import tiers

SCRIPT = Path(__file__).parent / "aics.py"
SLOTS = 4
MODES = ("virtual", "chandy-lamport", "synchronous", "hybrid")
PROGRAMS = ("pagerank", "sssp", "cc", "katz", "adsorption")
OFTEN_S = 0.03  # between two snapshots; a run takes half a second or more
TWO = ("--spares", "3", "--checksums", "2", "--group-size", "4")
SLOT_PLACES = ("aic.append:9", "aic.drain:9", "aic.begin:2", "aic.clear:2", "aic.half:2",
               "aic.staged:2", "aic.forward:2", "aic.quiet", "stage:2", "staged:2")
SERVER_PLACES = ("sum:2", "commit:2", "fold:2", "folded:2")
FIRST = [f"{victim}@{place}" for place in SLOT_PLACES for victim in (0, 2)] + [
    f"c0@{place}" for place in SERVER_PLACES]
SECOND = ("0@repair", "3@restore", "0@reentry", "3@reentry", "3@aic.begin:3", "0@aic.half:3",
          "c0@restore", "c1@repair", "s0@restore", "s1@repair")


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


@functools.cache
def programs() -> Any:
    spec = importlib.util.spec_from_file_location("aics", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def choice(name: str) -> tuple[Any, Any]:
    """A program on its graph, and the values of its oracle."""
    found = programs().choice_of(name)
    from aic_oracles import oracle  # behind the path that the program has set

    return found, oracle(found)


def words(name: str, mode: str, recovery: str = "all") -> list[str]:
    return [name, mode if mode == "none" else f"{mode}:{OFTEN_S}", recovery]


def kill(rules: Sequence[str]) -> list[str]:
    return [word for rule in rules for word in ("--kill", rule)]


def run(name: str, mode: str, *rules: str, recovery: str = "all",
        options: Sequence[str] = ("--spares", "1"), timed: Sequence[str] = (),
        nodes: int = 1) -> Result:
    """Run a program on a number of slots.

    Args:
        timed: deaths of slots by a timer, see `aics`.
        nodes: to which ranks go in turn.
    """
    options = (*options, "--interval", "never", *kill(rules))
    args = [*words(name, mode, recovery), *timed]
    if nodes > 1:
        return run_on_nodes(SCRIPT, SLOTS, *options, args=args, in_turn=nodes)
    return run_job(SCRIPT, SLOTS, *options, args=args)


def assert_right(name: str, result: Result) -> None:
    assert result.status == 0, str(result)
    found, (its, expected) = result.results["whole"], choice(name)
    if its.norm is None:
        assert np.array_equal(found, expected), result
    else:
        rounding = 1e-12 * its.norm(expected)
        assert its.norm(found - expected) <= result.results["run"]["bound"] + rounding, result
    assert_conserved(name, result)


def sums(result: Result) -> dict[int, dict[int, tuple[float, float]]]:
    """By version and slot, the sums of values and of what is under way in a committed snapshot."""
    found: dict[int, dict[int, tuple[float, float]]] = {}
    for key, text in result.results.items():
        if key.startswith("sums-"):
            for line in text.splitlines():
                version, value, moving = line.split()
                found.setdefault(int(version), {})[int(key.split("-")[1])] = (
                    float(value), float(moving))
    return found


def assert_conserved(name: str, result: Result) -> int:
    """Ranks and what is under way have their sum in each version that all slots have looked at;
    return the number of these."""
    whole = [slots for slots in sums(result).values() if len(slots) == SLOTS]
    if name == "pagerank":
        n = choice(name)[0].graph.n
        for slots in whole:
            total = sum(0.15 * value + moving for value, moving in slots.values())
            assert abs(total / (0.15 * n) - 1) < 1e-12, (total, result)
    return len(whole)


@pytest.mark.parametrize(("name", "mode"), tiers(
    itertools.product(PROGRAMS, ("none", *MODES, "faic-d")),
    full=["sssp-hybrid", "adsorption-faic-d"]))
def test_without_a_death(name: str, mode: str) -> None:
    """Law: there are snapshots, and each that is looked at is whole."""
    result = run(name, mode)
    assert_right(name, result)
    assert kinds(result) == [] and deaths(result) == []
    if mode != "none":
        assert len(sums(result)) >= 2 and result.results["run"]["snapshots"] >= 2, result


DEATHS = [(name, mode, rule) for name in ("pagerank", "sssp") for mode in MODES for rule in FIRST]


@pytest.mark.parametrize(("name", "mode", "rule"), tiers(
    DEATHS, plain=["pagerank-virtual-2@aic.half:2"],
    full=["sssp-hybrid-0@aic.forward:2", "pagerank-chandy-lamport-0@aic.staged:2",
          "pagerank-virtual-c0@sum:2"]))
def test_a_death(name: str, mode: str, rule: str) -> None:
    """Law: all go back to the newest snapshot, but not for a checksum rank."""
    result = run(name, mode, rule)
    assert_right(name, result)
    assert len(deaths(result)) == 1, result
    if rule.startswith("c"):
        assert len(kinds(result)) + len(result.stats["reseats"]) == 1, result
    else:
        assert kinds(result) == ["reentry"], result


PAIRS = pairwise({"first": FIRST, "second": SECOND, "mode": MODES,
                  "program": ("pagerank", "sssp"), "recovery": ("all", "survivors")})


@pytest.mark.parametrize(("name", "mode", "recovery", "first", "second"), tiers(
    [tuple(case[key] for key in ("program", "mode", "recovery", "first", "second"))
     for case in PAIRS]))
def test_a_second_death(name: str, mode: str, recovery: str, first: str, second: str) -> None:
    """Law: also amid the recovery, and amid the snapshot after it."""
    result = run(name, mode, first, second, recovery=recovery, options=TWO)
    assert_right(name, result)
    assert 1 <= len(deaths(result)) <= 2 and set(kinds(result)) <= {"reentry"}, result


@pytest.mark.parametrize(("name", "rule"), tiers(
    itertools.product(PROGRAMS, FIRST), full=["cc-0@aic.drain:9"]))
def test_survivors_stay(name: str, rule: str) -> None:
    """Law: nobody but the dead begins anew, and the values are right."""
    result = run(name, "virtual", rule, recovery="survivors")
    assert_right(name, result)


@pytest.mark.parametrize(("mode", "rule"), tiers(
    itertools.product(MODES, ("3@aic.append:9", "0@aic.half:2", "1@aic.staged:2")),
    full=["virtual-3@aic.append:9"]))
def test_over_nodes(mode: str, rule: str) -> None:
    """Law: a framework does not know where a slot is."""
    result = run("pagerank", mode, rule, options=("--spares", "2"), nodes=2)
    assert_right("pagerank", result)
    assert kinds(result) == ["reentry"], result


@pytest.mark.full
def test_nobody_to_replace_it() -> None:
    """Law: without a spare the job is launched again, and goes on from the snapshot."""
    result = run("sssp", "virtual", "2@aic.append:20", options=("--spares", "0"))
    assert_right("sssp", result)
    assert kinds(result) == ["relaunch"], result


@pytest.mark.full
def test_unprotected() -> None:
    """Law: under plain mpirun the same programs have the same results."""
    result = run_plain(SCRIPT, SLOTS, args=words("pagerank", "virtual"))
    assert_right("pagerank", result)
