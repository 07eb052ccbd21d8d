"""Channels of ftrma.aic in jobs: records come once, whole and in their order, also where rings run
full, on one node, over several, and under plain mpiexec; after a failure they are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import Result, run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes

APP = Path(__file__).parent / "ringsapp.py"
RECORDS = "600"


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def all_came(result: Result, slots: int, records: str = RECORDS) -> None:
    assert result.status == 0, result
    for part in result.of_slots("slot", slots):
        got: Any = part["got"]
        assert got.tolist() == [int(records)] * slots


@pytest.mark.full
def test_a_death_leaves_nothing_behind() -> None:
    """Law: the channels of a new attempt are empty, in survivors too."""
    result = run_job(APP, 3, "--spares", "1", "--kill", "1@rings.turn:200", args=[RECORDS])
    all_came(result, 3)
    assert len(result.stats["failures"]) == 1


@pytest.mark.full
def test_under_plain_mpiexec() -> None:
    all_came(run_plain(APP, 3, args=[RECORDS]), 3)


@pytest.mark.full
def test_over_two_nodes() -> None:
    all_came(run_on_nodes(APP, 3, "--spares", "1", "--kill", "1@rings.turn:200", timeout=60,
                          args=["100"]), 3, "100")
