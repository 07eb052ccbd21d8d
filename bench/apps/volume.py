"""Volumes of the distributed hashtable: their keys, where a key belongs, what is in a volume.

What: everything about the hashtable that is arithmetic on arrays; nothing here communicates.

Why so: a key is a function of the seed, its slot and its number alone. So a run can be repeated
whatever the timing was, a batch that is done again after a failure has the keys that it had, and at
the end each slot can tell without asking anybody what its volume must hold.

Invariants: all keys of a run are different and none is 0, which marks an empty bucket; `content`
returns exactly what a lookup could find in the volume.

A volume is an array of 64-bit words:

    word 0          number of heap cells that were asked for; word 1 only keeps what follows aligned
    then buckets    two words each: element (0: empty) and link
    then the heap   cells of two words each: element and link

A link is the word at which the next cell of the chain begins, or 0 at its end. A bucket and a cell
look alike, so a chain is followed in the same way from its first step to its last.

Source: Besta & Hoefler, section 7.2.2: a fixed-size array and an overflow heap in each volume. The
generator is SplitMix64: G. Steele, D. Lea, C. Flood, Fast Splittable Pseudorandom Number
Generators, OOPSLA 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COUNTER = 0
FIRST = 2
PAIR = 2  # words of a bucket and of a cell
WORD_BYTES = 8

# Streams of random numbers. They never meet: see `draw`.
KEYS, THINKING, LOOKUPS = range(3)
INDEX_BITS = 40
STREAM_BITS = 2
SEED_BITS = 20
# SplitMix64: the odd integer next to 2^64 over the golden ratio, and the multipliers of its mix.
GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

Words = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """The number of volumes, and the size of each."""

    volumes: int
    buckets: int
    cells: int

    @property
    def heap(self) -> int:
        """The word at which the heap begins."""
        return FIRST + PAIR * self.buckets

    @property
    def words(self) -> int:
        """Words of a volume."""
        return self.heap + PAIR * self.cells


def numbers_of(slot: int, begin: int, end: int, each: int) -> Words:
    """A slot's numbers `begin` to `end` - 1, counted among those of all slots, `each` per slot."""
    return np.arange(slot * each + begin, slot * each + end)


def draw(seed: int, stream: int, numbers: Words) -> NDArray[np.uint64]:
    """The members of a stream with these numbers, as unsigned 64-bit integers.

    Seed, stream and number are parts of one counter that is never 0, and both the multiplication by
    an odd integer and the mix are one-to-one and map only 0 to 0. So no value is 0, and none comes
    twice, neither within a stream nor in two of them.
    """
    origin = ((seed << STREAM_BITS | stream) << INDEX_BITS) + 1
    z = (numbers.astype(np.uint64) + np.uint64(origin)) * GAMMA
    z = (z ^ (z >> np.uint64(30))) * MIX[0]
    z = (z ^ (z >> np.uint64(27))) * MIX[1]
    return z ^ (z >> np.uint64(31))


def keys(seed: int, numbers: Words) -> Words:
    """The keys with these numbers: different from each other, and none of them 0."""
    return draw(seed, KEYS, numbers).view(np.int64)


def places(shape: Shape, wanted: Words) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The volume of each key, and the word of its bucket there.

    The keys are random, so a remainder spreads them as evenly as any hash function would.
    """
    number = wanted.view(np.uint64) % np.uint64(shape.volumes * shape.buckets)
    volume, bucket = np.divmod(number.astype(np.intp), shape.buckets)
    return volume, FIRST + PAIR * bucket


def thinking(seed: int, numbers: Words, mean: float) -> NDArray[np.float64]:
    """Exponentially distributed times with this mean, in its unit."""
    uniform = (draw(seed, THINKING, numbers) >> np.uint64(11)) * 2.0**-53
    times: NDArray[np.float64] = -mean * np.log1p(-uniform)
    return times


def questions(seed: int, numbers: Words, inserted: int) -> tuple[Words, NDArray[np.bool_]]:
    """Keys to look up, and which of them are there once the first `inserted` keys are.

    Each is picked from half as many keys again as were inserted, so a third is not there.
    """
    pool = np.uint64(inserted + (inserted + 1) // 2)
    picked = (draw(seed, LOOKUPS, numbers) % pool).astype(np.int64)
    return keys(seed, picked), picked < inserted


def content(memory: Words, shape: Shape, volume: int) -> Words:
    """All keys that a lookup could find in a volume, sorted.

    A key off its bucket's chain, and what lies behind a link out of the heap, is left out. A chain
    that runs in a circle makes its keys come up more than once, but not for ever.
    """
    at = np.arange(FIRST, shape.heap, PAIR)
    bucket = at
    found = [np.empty(0, dtype=np.int64)]
    for _ in range(shape.cells + 1):
        element = memory[at]
        its_volume, its_bucket = places(shape, element)
        found.append(element[(element != 0) & (its_volume == volume) & (its_bucket == bucket)])
        link = memory[at + 1]
        linked = (link >= shape.heap) & (link <= shape.words - PAIR)
        at, bucket = link[linked], bucket[linked]
        if len(at) == 0:
            break
    return np.sort(np.concatenate(found))


def expected_content(seed: int, shape: Shape, volume: int, inserts: int) -> Words:
    """The value that `content` must return after every slot has inserted `inserts` keys."""
    parts = []
    for slot in range(shape.volumes):
        of_slot = keys(seed, numbers_of(slot, 0, inserts, inserts))
        parts.append(of_slot[places(shape, of_slot)[0] == volume])
    return np.sort(np.concatenate(parts))


def overflow(shape: Shape, held: Words) -> int:
    """Heap cells that a volume with these keys uses: all but the first of each bucket."""
    return len(held) - len(np.unique(places(shape, held)[1]))
