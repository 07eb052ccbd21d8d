"""A protected program computes what the unprotected one does, to the last bit.

Law: for every program below, run on N slots under ``ftrma run`` and on N ranks under mpirun, all
memories that it keeps (window parts and what was fetched) have equal names, types and bytes. The
programs also assert what must hold in both (exact sums, mutual exclusion, attributes).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Result, run_job, run_plain
from nodes import run_on_nodes
from tiers import tiers

PROGRAMS = Path(__file__).parent / "programs"
SLOTS = 3
SEED = 61803  # in programs/common.py


def memories(result: Result, slots: int) -> list[dict[str, np.ndarray]]:
    assert result.status == 0, str(result)
    found: list[Any] = result.of_slots("memory", slots)
    assert all(found), "a slot kept nothing"
    return found


def compare(protected: Result, plain: Result, slots: int = SLOTS) -> None:
    both = zip(memories(protected, slots), memories(plain, slots), strict=True)
    for slot, (got, expected) in enumerate(both):
        assert got.keys() == expected.keys(), f"slot {slot}"
        wrong = [
            f"slot {slot}, {label!r}: {np.flatnonzero(got[label] != expected[label]).size} of "
            f"{expected[label].size} elements differ"
            for label in expected
            if got[label].dtype != expected[label].dtype
            or got[label].tobytes() != expected[label].tobytes()
        ]
        assert not wrong, "\n".join(wrong[:20])


TOPICS = ("data", "derived", "columns", "atomics", "requests", "objects", "sync")


@pytest.mark.parametrize("topic", tiers(
    TOPICS, full=["columns"]))
def test_over_nodes_they_are_the_same(topic: str) -> None:
    """Law of this file, with slots on two nodes, of which one has two."""
    script = PROGRAMS / f"win_{topic}.py"
    protected = run_on_nodes(script, SLOTS, "--interval", "never", timeout=60)
    compare(protected, run_plain(script, SLOTS, timeout=40))
    assert protected.stats["exit"] == 0 and not protected.stats["failures"]


@pytest.mark.parametrize("slots", tiers([3, 5], full=["3"]))
def test_derived_communicators_over_nodes(slots: int) -> None:
    """Law of this file, for communicators of each kind on two and three nodes: their members,
    collective calls of several areas, windows and messages on them."""
    script = PROGRAMS / "derived.py"
    spares = str(5 - slots)  # a process on each node
    protected = run_on_nodes(script, slots, "--interval", "never", "--spares", spares, timeout=100)
    compare(protected, run_plain(script, slots, timeout=60), slots)


@pytest.mark.parametrize("topic", tiers(
    TOPICS, plain=["atomics"], full=["derived", "sync", "requests"]))
def test_final_memories_are_those_of_the_unprotected_run(topic: str) -> None:
    """Law of this file, by topic."""
    print(f"seed {SEED}")
    script = PROGRAMS / f"win_{topic}.py"
    protected = run_job(script, SLOTS, "--interval", "never", timeout=40)
    compare(protected, run_plain(script, SLOTS, timeout=40))
    assert protected.stats["exit"] == 0 and not protected.stats["failures"]


@pytest.mark.full
def test_the_first_member_leaves_the_making_of_a_window_before_the_others() -> None:
    """A counter that rank 0 sets to 0 behind its making, without synchronization, loses counts in a
    few windows of 60 at most. The program races, but it mostly works unprotected; where rank 0 was
    let out with the others, half of the windows lost some."""
    result = run_job(PROGRAMS / "behind_making.py", 4, "--interval", "never", timeout=40)
    assert result.status == 0, str(result)
    lost = result.of_slots("lost", 4)[0]
    assert max(lost.values()) <= 10, lost
