"""Every named place, every role, both ways back: one process is killed there, and the final memory
is the same.

Law: for each program, role, place and policy, a job in which that role is killed at that place ends
with status 0 and with the memory of the run without failure, bit for bit; nobody else dies. With
the policy rollback all slots go back; with auto the lost slot is replayed, and no survivor enters
the program again, unless the program has made a call that no replay can repeat: the reason names
it. Checksum ranks and spares are replaced while the slots go on.
"""

from __future__ import annotations

import itertools

import pytest
from programs import SLOTS, assert_causal, assert_rollback, assert_same_bits, deaths, kinds, run
from tiers import tiers

# place:visit chosen so that it falls in the middle of the run.
SLOT_PLACES = {
    "stencil": ["start", "put:30", "fence:25", "call:7", "safepoint:20", "checkpoint:20",
                "stage:20", "staged:20", "end"],
    "ft": ["start", "put:50", "fence:13", "checkpoint:4", "stage:4", "staged:4", "end"],
    "mixed": ["put:10", "get:10", "atomic:10", "flush:10", "lock-held:11", "fence:17", "call:40"],
    "lock": ["lock-held:30", "put:30"],
    "lockall": ["lock-held:1", "flush:30"],
    "pscw": ["put:30", "call:7"],
}
PLACES = [(program, place) for program, places in SLOT_PLACES.items() for place in places]


@pytest.mark.parametrize(("program", "place", "slot", "policy"), tiers(
    [(*case, slot, policy) for case in PLACES for slot in (0, 2)
     for policy in ("auto", "rollback")],
    quick=["stencil-put:30-0-auto", "stencil-put:30-0-rollback"],
    full=["stencil-start-0-auto", "mixed-get:10-0-rollback"]))
def test_slot(program: str, place: str, slot: int, policy: str) -> None:
    result = run(program, "--interval", "0", "--policy", policy, "--kill", f"{slot}@{place}")
    assert_same_bits(program, result)
    name = place.split(":")[0]
    assert deaths(result) == [("slot", slot, name)]
    assert result.stats["recoveries"][0]["slots"] == [slot]
    if policy == "rollback":
        assert_rollback(result, "the policy is rollback")
    elif program == "mixed" and kinds(result) == ["rollback"]:
        # Behind protect() it synchronizes, and its safepoint is at the end of the loop.
        assert_rollback(result, "call safepoint() at the top of the loop")
    else:
        assert_causal(result, [slot], SLOTS + (name != "start"))


@pytest.mark.parametrize(("program", "kill"), tiers(
    itertools.product(("stencil", "ft"), ("c0@sum:4", "c0@commit:4", "c0@fold:4", "c0@folded:4",
                                          "c0@time:0.02", "s0@time:0.02")),
    quick=["stencil-c0@sum:4", "stencil-s0@time:0.02"],
    full=["stencil-c0@commit:4", "stencil-c0@folded:4"]))
def test_server(program: str, kill: str) -> None:
    result = run(program, "--interval", "0", "--kill", kill)
    assert_same_bits(program, result)
    role = {"c": "checksum", "s": "spare"}[kill[0]]
    assert deaths(result) == [(role, 0, kill[3:].split(":")[0])]
    assert kinds(result) == []
    assert len(result.stats["reseats"]) == (role == "checksum")


GROUPS = ("--interval", "0", "--policy", "rollback", "--group-size", "2", "--spares", "3")


@pytest.mark.parametrize(("program", "second"), tiers(
    itertools.product(("stencil", "mixed"), (
        "2@repair:1", "3@restore:1", "c1@restore:1", "3@reentry:1", "c0@folded:9", "1@restore:1",
        "c1@repair:1", "s1@repair:1", "s2@restore:1")),
    full=["stencil-2@repair:1", "stencil-3@reentry:1"]))
def test_second_failure_during_rollback(program: str, second: str) -> None:
    result = run(program, *GROUPS, "--kill", "1@put:9", "--kill", second)
    assert_same_bits(program, result)
    assert len(deaths(result)) == 2, deaths(result)
    assert set(kinds(result)) == {"rollback"}
