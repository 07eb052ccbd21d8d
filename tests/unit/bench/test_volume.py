"""The parts of the hashtable benchmark that need no MPI: random numbers, places, volumes.

Why: the benchmark judges a run by what `volume` says the volumes must hold, and fault tests compare
what it finds in them, so neither may depend on timing or overlook a damage.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree import APPS

# The benchmark programs are scripts beside each other, not a package.
sys.path.insert(0, str(APPS))

import volume
from volume import COUNTER, FIRST, PAIR, Shape, Words

SMALL = Shape(volumes=3, buckets=8, cells=64)
INSERTS = 20


# ---- random numbers -------------------------------------------------------------------------


def test_the_generator_is_splitmix64() -> None:
    """The published sequence for the seed 0."""
    first = volume.draw(0, volume.KEYS, np.arange(3)).tolist()
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_no_value_comes_twice_and_none_is_empty() -> None:
    """Neither within a stream, nor in two streams, nor for two seeds, up to the largest number."""
    far = 2**volume.INDEX_BITS - 1000
    seeds = (0, 1, 2**volume.SEED_BITS - 1)
    parts = [
        volume.draw(seed, stream, np.arange(first, first + 1000))
        for seed in seeds
        for stream in (volume.KEYS, volume.THINKING, volume.LOOKUPS)
        for first in (0, far)
    ]
    values = np.concatenate(parts)
    assert len(np.unique(values)) == len(values) == 18000
    assert values.all()


def test_a_batch_is_that_part_of_the_whole() -> None:
    whole = volume.keys(5, volume.numbers_of(2, 0, 100, 100))
    batch = volume.keys(5, volume.numbers_of(2, 30, 60, 100))
    assert batch.tolist() == whole[30:60].tolist()
    assert not np.isin(volume.keys(5, volume.numbers_of(1, 0, 100, 100)), whole).any()


def test_thinking_is_exponential() -> None:
    times = volume.thinking(0, np.arange(100_000), 20.0)
    assert times.min() >= 0
    assert times.mean() == pytest.approx(20.0, rel=0.02)
    assert times.std() == pytest.approx(20.0, rel=0.02)
    assert (times > 40.0).mean() == pytest.approx(np.exp(-2), rel=0.03)
    assert not volume.thinking(0, np.arange(10), 0.0).any()


def test_questions_know_their_answers() -> None:
    inserted = volume.keys(3, np.arange(1000))
    asked, there = volume.questions(3, np.arange(9000), 1000)
    assert np.isin(asked, inserted).tolist() == there.tolist()
    assert there.mean() == pytest.approx(2 / 3, abs=0.02)


# ---- places and volumes ---------------------------------------------------------------------


def test_keys_spread_evenly() -> None:
    shape = Shape(volumes=4, buckets=16, cells=0)
    slots, words = volume.places(shape, volume.keys(0, np.arange(64_000)))
    counts = np.bincount(slots * 16 + (words - FIRST) // PAIR, minlength=64)
    assert counts.min() > 850 and counts.max() < 1150


def insert(memory: Words, shape: Shape, key: int) -> None:
    """Change a volume as the program does, with plain loads and stores."""
    word = int(volume.places(shape, np.array([key]))[1][0])
    if memory[word] == 0:
        memory[word] = key
        return
    cell = shape.heap + PAIR * int(memory[COUNTER])
    memory[COUNTER] += 1
    memory[cell : cell + 2] = key, memory[word + 1]
    memory[word + 1] = cell


def filled(order: list[int], slot: int = 1) -> Words:
    """A volume after its keys, picked from all by `order`, were inserted."""
    memory = np.zeros(SMALL.words, dtype=np.int64)
    keys = volume.keys(0, np.arange(SMALL.volumes * INSERTS))[order]
    for key in keys[volume.places(SMALL, keys)[0] == slot].tolist():
        insert(memory, SMALL, key)
    return memory


@given(st.permutations(range(SMALL.volumes * INSERTS)))
def test_content_does_not_depend_on_the_order_of_inserts(order: list[int]) -> None:
    memory = filled(order)
    expected = volume.expected_content(0, SMALL, 1, INSERTS)
    assert volume.content(memory, SMALL, 1).tolist() == expected.tolist()
    assert memory[COUNTER] == volume.overflow(SMALL, expected) > 0


def test_all_volumes_together_hold_all_keys() -> None:
    parts = [volume.expected_content(0, SMALL, v, INSERTS) for v in range(SMALL.volumes)]
    keys = volume.keys(0, np.arange(SMALL.volumes * INSERTS))
    assert np.sort(np.concatenate(parts)).tolist() == np.sort(keys).tolist()


def test_an_empty_volume_has_no_content() -> None:
    assert len(volume.content(np.zeros(SMALL.words, dtype=np.int64), SMALL, 0)) == 0


def chained(memory: Words) -> int:
    """The word of a bucket whose chain has a cell at least."""
    return next(w for w in range(FIRST, SMALL.heap, PAIR) if memory[w + 1])


@pytest.mark.parametrize("damage", ["lost link", "wild link", "circle", "empty cell", "moved"])
def test_content_shows_damage(damage: str) -> None:
    """A key that a lookup would miss is missing, and a circle comes to an end."""
    memory = filled(list(range(SMALL.volumes * INSERTS)))
    whole = volume.content(memory, SMALL, 1)
    bucket = chained(memory)
    cell = memory[bucket + 1]
    if damage == "lost link":
        memory[bucket + 1] = 0
    elif damage == "wild link":
        memory[bucket + 1] = SMALL.words + 10
    elif damage == "circle":
        memory[cell + 1] = cell
    elif damage == "empty cell":
        memory[cell] = 0
    elif damage == "moved":  # to a bucket where no lookup would search for it
        other = next(w for w in range(FIRST, SMALL.heap, PAIR) if w != bucket and memory[w])
        memory[other], memory[bucket] = memory[bucket], memory[other]
    found = volume.content(memory, SMALL, 1)
    assert found.tolist() != whole.tolist()
    assert np.isin(found, whole).all()
