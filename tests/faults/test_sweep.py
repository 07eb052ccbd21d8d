"""Every named place, every role: one process is killed there, and the final memory is the same.

Law: for each program, role and place, a job in which that role is killed at that place ends with
status 0 and with the memory of the run without failure, bit for bit; nobody else dies. Slots come
back by rollback; checksum ranks and spares are replaced while the slots go on.
"""

from __future__ import annotations

import pytest
from programs import assert_same_bits, deaths, kinds, run

# place:visit chosen so that it falls in the middle of the run.
SLOT_PLACES = {
    "stencil": ["start", "put:30", "fence:25", "call:7", "safepoint:20", "checkpoint:20",
                "stage:20", "staged:20", "end"],
    "ft": ["start", "put:50", "fence:13", "checkpoint:4", "stage:4", "staged:4", "end"],
    "mixed": ["put:10", "get:10", "atomic:10", "flush:10", "lock-held:11", "fence:17", "call:40"],
    "lock": ["lock-held:30", "put:30"],
    "lockall": ["lock-held:1", "flush:30"],
    "pscw": ["put:30", "call:7"],
}  # fmt: skip
PLACES = [(program, place) for program, places in SLOT_PLACES.items() for place in places]
# Each place once by default, with slot 0 and slot 2 in turn; each with both in longer sweeps.
CASES = [
    pytest.param(*case, slot, marks=[pytest.mark.long] * (i % 2 != slot // 2))
    for i, case in enumerate(PLACES)
    for slot in (0, 2)
]
SERVER_CASES = [
    (program, kill)
    for program in ("stencil", "ft")
    for kill in ("c0@sum:4", "c0@commit:4", "c0@fold:4", "c0@folded:4", "c0@time:0.02",
                 "s0@time:0.02")
]  # fmt: skip


@pytest.mark.parametrize(("program", "place", "slot"), CASES)
def test_slot(program: str, place: str, slot: int, repetition: int) -> None:
    result = run(program, "--interval", "0", "--kill", f"{slot}@{place}")
    assert_same_bits(program, result)
    assert deaths(result) == [("slot", slot, place.split(":")[0])]
    assert kinds(result) == ["rollback"]
    assert result.stats["recoveries"][0]["slots"] == [slot]


@pytest.mark.parametrize(("program", "kill"), SERVER_CASES)
def test_server(program: str, kill: str, repetition: int) -> None:
    result = run(program, "--interval", "0", "--kill", kill)
    assert_same_bits(program, result)
    role = {"c": "checksum", "s": "spare"}[kill[0]]
    assert deaths(result) == [(role, 0, kill[3:].split(":")[0])]
    assert kinds(result) == []
    assert len(result.stats["reseats"]) == (role == "checksum")


GROUPS = ("--interval", "0", "--group-size", "2", "--spares", "3")


@pytest.mark.parametrize("program", ["stencil", pytest.param("mixed", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "second",
    ["2@repair:1", "3@restore:1", "1@restore:1", "c1@repair:1", "c1@restore:1", "s1@repair:1",
     "s2@restore:1", "3@reentry:1", "c0@folded:9"],
)  # fmt: skip
def test_second_failure_during_recovery(program: str, second: str, repetition: int) -> None:
    result = run(program, *GROUPS, "--kill", "1@put:9", "--kill", second)
    assert_same_bits(program, result)
    assert len(deaths(result)) == 2, deaths(result)
    assert set(kinds(result)) == {"rollback"}
