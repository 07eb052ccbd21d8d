"""Demand checkpoints: one slot checkpoints alone when logs run short, and is replayed from there.

Law: whatever the program and wherever a slot dies, before, in and behind its demand checkpoint, the
job ends with the bits of the run without failure, and no other slot has done anything twice. Logs
stay within their budget, although nothing but demand checkpoints frees them.
"""

from __future__ import annotations

import pytest
from jobs import Result
from programs import SLOTS, assert_causal, assert_rollback
from test_causal import assert_same, kills, run
from test_not_replayable import assert_within

STEPS = 150
BUDGET = 65536
SMALL = ("--interval", "never", "--log-budget", "64K")


def run_small(program: str, *options: str, mode: str = "bulk") -> Result:
    """With logs so small that every slot takes several demand checkpoints."""
    result = run(program, "top", *SMALL, "--demand", mode, *options, steps=STEPS)
    assert_same(program, result, steps=STEPS)
    return result


def demands(result: Result) -> list[int]:
    """Slots that have taken demand checkpoints, in their order; there are no others."""
    checkpoints = result.stats["checkpoints"]
    recovered = bool(result.stats["recoveries"])
    assert recovered or {c["kind"] for c in checkpoints} == {"demand"}, checkpoints
    return [c["slot"] for c in checkpoints if c["kind"] == "demand"]


@pytest.mark.parametrize("mode", ["bulk", "stream"])
def test_each_slot_checkpoints_alone(mode: str) -> None:
    """Nobody is held up with it, no version is committed, and no log runs over."""
    result = run_small("fenced", mode=mode)
    found = demands(result)
    assert {found.count(s) > 1 for s in range(SLOTS)} == {True}, found
    assert {c["version"] for c in result.stats["checkpoints"]} == {0}
    assert_within(result, BUDGET)
    assert not result.stderr


# The program, a place where slot 1 dies late in the run, and in its middle.
LATE = {
    "fenced": ("put:230", "atomic:150"),
    "locked": ("put:120", "lock-held:400"),
    "atomics": ("atomic:900", "flush:600"),
    "windows": ("put:110", "fence:400"),
}


@pytest.mark.parametrize("mode", ["bulk", pytest.param("stream", marks=pytest.mark.long)])
@pytest.mark.parametrize("slot", [1, *(pytest.param(s, marks=pytest.mark.long) for s in (0, 2, 3))])
@pytest.mark.parametrize(("program", "place"), [(p, at) for p in LATE for at in LATE[p]])
def test_a_replay_from_a_demand_checkpoint(
    program: str, place: str, slot: int, mode: str, repetition: int
) -> None:
    result = run_small(program, "--kill", f"{slot}@{place}", mode=mode)
    assert_causal(result, [slot], SLOTS + 1)
    assert result.stats["recoveries"][0]["demand"] > 0, result.stats


@pytest.mark.parametrize("count", [1, 2, pytest.param(3, marks=pytest.mark.long)])
def test_a_death_in_a_demand_checkpoint(count: int, repetition: int) -> None:
    """The one before is still there."""
    result = run_small("fenced", "--kill", f"1@demand:{count}")
    assert_causal(result, [1], SLOTS + 1)
    assert result.stats["recoveries"][0]["demand"] == count - 1


@pytest.mark.parametrize("count", [1, 2])
def test_a_death_in_a_streamed_one(count: int, repetition: int) -> None:
    """The one before is written over; the version before the first is not."""
    result = run_small("fenced", "--kill", f"1@demand:{count}", mode="stream")
    if count == 1:
        assert_causal(result, [1], SLOTS + 1)
        assert result.stats["recoveries"][0]["demand"] == 0
    else:
        assert_rollback(result, "slot 1's demand checkpoint is lost")


def test_a_version_behind_a_demand_checkpoint_is_the_newer_one(repetition: int) -> None:
    """A causal recovery is followed by a checkpoint of all; then a second slot is lost."""
    rules = kills("1@put:100", "2@put:110")
    result = run_small("fenced", "--spares", "2", *rules)
    assert_causal(result, [1, 2], SLOTS + 2)
    first, second = result.stats["recoveries"]
    assert (first["version"], second["version"], second["demand"]) == (0, 1, 0)
    assert first["demand"] > 0
