"""Slots stage versions alone: `ftrma.framework.staging` by stagers.py, whose slots wait for nobody.

Law: whoever dies, wherever and how often, each slot reads its part of one version, both parts of a
part are of one moment, and the job ends with the memory of the run without failure, bit for bit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Result, run_job, run_plain
from nodes import remove_fake_ssh
from programs import final_memory, kinds
from tiers import tiers

STAGERS = Path(__file__).parent / "stagers.py"
SLOTS, LAST = 4, 5
SPARES = ("--spares", "2")


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def stagers(*options: str) -> Result:
    return run_job(STAGERS, SLOTS, *options)


@functools.cache
def whole() -> Result:
    """The run without failure."""
    result = stagers()
    assert result.status == 0 and not result.stats["failures"], result
    return result


def assert_same(result: Result) -> None:
    assert result.status == 0, result
    expected = final_memory(whole())
    for slot, arrays in final_memory(result).items():
        for name, array in arrays.items():
            assert array.tobytes() == expected[slot][name].tobytes(), (slot, name, result)


def kill(*rules: str) -> list[str]:
    return [word for rule in rules for word in ("--kill", rule)]


def test_a_run_without_failure() -> None:
    """Law: each version is committed once, by the slots' parts, and told; static entries are saved
    once."""
    taken = whole().stats["checkpoints"]
    assert [c["version"] for c in taken] == [*range(1, LAST + 2)], taken
    assert taken[0]["dirty_bytes"] > SLOTS * 400_000, taken
    assert max(c["dirty_bytes"] for c in taken[1:]) < 400_000, taken


PLACES = ["checkpoint:3", "stage:3", "stagers.half:3", "staged:3"]


@pytest.mark.parametrize(("place", "slot"), tiers(
    itertools.product(PLACES, (0, 3)), quick=["stagers.half:3-3"],
    plain=["staged:3-0"], full=["stage:3-3", "checkpoint:3-0", "stagers.half:3-0"]))
def test_a_slot_dies(place: str, slot: int) -> None:
    """Law: what is not committed is undone, and all read the version before."""
    result = stagers(*SPARES, *kill(f"{slot}@{place}"))
    assert_same(result)
    assert kinds(result) == ["reentry"], result
    assert result.stats["recoveries"][0]["version"] == 2, result


@pytest.mark.parametrize("place", tiers(
    ["sum:2", "commit:2", "fold:2", "folded:2"], plain=["commit:2"], full=["sum:2"]))
def test_a_checksum_rank_dies(place: str) -> None:
    """Law: its seat is taken while the slots go on."""
    result = stagers(*SPARES, *kill(f"c0@{place}"))
    assert_same(result)
    assert len(result.stats["reseats"]) + len(kinds(result)) == 1, result


@pytest.mark.full
def test_unprotected() -> None:
    """Law: under plain mpirun nothing is saved, and a version is begun and ended for nothing."""
    result = run_plain(STAGERS, SLOTS)
    assert_same(result)
