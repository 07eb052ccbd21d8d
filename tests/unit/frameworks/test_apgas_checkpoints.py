"""Red and black: whatever a checkpoint that fails half-way has written, the one before is whole.

A small machine takes checkpoints of three shelves, whose fields are given always, now and then, or
at first only. A checkpoint is cut after any of its writes. Then each field that the flip record
names must be what the newest committed checkpoint knew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ftrma.frameworks.apgas import checkpoints
from ftrma.frameworks.apgas.checkpoints import Flip, flipped, next_versions, slot

FIELDS = ("always", "second", "seldom", "first")


def given(rng: random.Random, whole: bool) -> list[str]:
    return [name for name in FIELDS if whole or name == "always"
            or (name != "first" and rng.random() < 0.4)]


def sweep(versions: Callable[..., dict[str, int]], cases: int) -> int:
    """Count the runs that leave something else than the newest committed state."""
    wrong = 0
    for seed in range(cases):
        rng = random.Random(seed)
        store: dict[tuple[int, str], Any] = {}
        flip: Flip | None = None
        committed: dict[tuple[int, str], Any] = {}
        for attempt in range(12):
            whole = flip is None or rng.random() < 0.1
            fields = {shelf: given(rng, whole) for shelf in range(3)}
            cut = rng.randrange(1, 12) if flip is not None and rng.random() < 0.4 else 99
            written = {shelf: versions(flip, shelf, names) for shelf, names in fields.items()}
            now = dict(committed)
            for shelf, names in fields.items():
                for name in names:
                    cut -= 1
                    if cut > 0:
                        store[shelf, slot("run", name, written[shelf][name])] = (attempt, name)
                    now[shelf, name] = (attempt, name)
            if cut > 0:
                flip, committed = flipped(flip, attempt, written, whole), now
            assert flip is not None
            found = {(shelf, name): store[shelf, slot("run", name, version)]
                     for shelf, names in flip.versions.items() for name, version in names.items()}
            wrong += found != committed
    return wrong


def test_the_committed_checkpoint_is_whole() -> None:
    assert sweep(next_versions, 400) == 0


def test_one_version_for_all_fields_mixes_checkpoints() -> None:
    """Law: the machine finds what the paper's rule, read literally, gets wrong."""
    def one(flip: Flip | None, shelf: int, names: list[str]) -> dict[str, int]:
        last = max((v for each in flip.versions.values() for v in each.values()),
                   default=-1) if flip else -1
        return dict.fromkeys(names, last + 1)

    assert sweep(one, 400) > 0


def test_a_counter_mixes_checkpoints() -> None:
    """Law: versions follow from the record, not from how often a checkpoint was tried."""
    tries: dict[tuple[int, str], int] = {}

    def count(flip: Flip | None, shelf: int, names: list[str]) -> dict[str, int]:
        for name in names:
            tries[shelf, name] = tries.get((shelf, name), -1) + 1
        return {name: tries[shelf, name] for name in names}

    assert sweep(count, 400) > 0


def test_fields_that_are_not_given_keep_their_version() -> None:
    first = flipped(None, 0, {0: {"x": 0, "c": 0}, 1: {"x": 0, "c": 0}}, True)
    second = flipped(first, 10, {0: {"c": 1}, 1: {"c": 1}}, False)
    assert second == Flip(10, {0: {"x": 0, "c": 1}, 1: {"x": 0, "c": 1}})
    assert next_versions(second, 0, ["x", "c", "new"]) == {"x": 1, "c": 2, "new": 0}


def test_a_whole_checkpoint_forgets_shelves_that_are_gone() -> None:
    first = flipped(None, 0, {0: {"x": 0}, 1: {"x": 0}}, True)
    assert flipped(first, 10, {0: {"x": 1}}, True) == Flip(10, {0: {"x": 1}})


@pytest.mark.parametrize("name", ("red", "a/b", ""))
def test_keys_differ(name: str) -> None:
    keys = {slot("run 1", name, 0), slot("run 1", name, 1), slot("run 2", name, 1),
            checkpoints.flip_key("run 1"), checkpoints.flip_key("run 2")}
    assert len(keys) == 5
    assert slot("run 1", name, 2) == slot("run 1", name, 0)
