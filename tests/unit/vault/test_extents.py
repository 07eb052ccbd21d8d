"""Places of regions in a vault: `vault.Extents` by property."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ftrma.vault.vault import BLOCK, Extents, blocks

KEYS = st.sampled_from(["a", "b", "c", "d", "e", ("window", 1), "record"])
SIZES = st.one_of(st.integers(0, 12 * BLOCK), st.sampled_from([0, 1, BLOCK, BLOCK + 1]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("place"), KEYS, SIZES),
        st.tuples(st.just("keep"), st.sets(KEYS), st.just(0)),
    ),
    max_size=40,
)


def check(extents: Extents) -> None:
    """No region overlaps another or block 0, or goes past the end."""
    at = 1
    for first, count in sorted(extents.regions.values()):
        assert first >= at and count >= 1
        at = first + count
    assert at <= extents.end


@given(STEPS)
def test_regions_never_overlap(steps: list) -> None:
    """Law: after any sequence of placements, all extents are apart and room for each suffices."""
    extents = Extents()
    for what, which, size in steps:
        if what == "keep":
            extents.keep(which)
            assert set(extents.regions) <= which
        else:
            first = extents.allocate(which, size)
            assert extents.regions[which][0] == first
            assert extents.regions[which][1] >= max(1, blocks(size))
        check(extents)


@given(STEPS, KEYS, SIZES, SIZES)
def test_region_stays_while_it_fits(steps: list, key: str, size: int, other: int) -> None:
    """Law: a region that has not outgrown its extent keeps its place, and nobody else moves."""
    extents = Extents()
    for what, which, count in steps:
        extents.keep(which) if what == "keep" else extents.allocate(which, count)
    first = extents.allocate(key, size)
    before = dict(extents.regions)
    if blocks(other) <= max(1, blocks(size)):
        assert extents.allocate(key, other) == first
        assert extents.regions == before
    else:
        extents.allocate(key, other)
        assert {k: v for k, v in extents.regions.items() if k != key} == {
            k: v for k, v in before.items() if k != key
        }


def test_gaps_are_used_again() -> None:
    """Law: the first gap that is large enough is taken before the end grows."""
    extents = Extents()
    for key in "abcd":
        extents.allocate(key, 3 * BLOCK)
    end = extents.end
    extents.keep({"a", "c", "d"})
    assert extents.allocate("e", 2 * BLOCK) == 4
    assert extents.allocate("f", BLOCK) == 6
    assert extents.end == end
    assert extents.allocate("g", BLOCK) == end


@given(st.lists(SIZES, min_size=1, max_size=6))
def test_same_program_needs_no_more_room_each_time(sizes: list[int]) -> None:
    """Law: placing the same regions again and again does not grow the vault."""
    extents = Extents()
    for _ in range(2):
        for i, size in enumerate(sizes):
            extents.allocate(i, size)
    end, regions = extents.end, dict(extents.regions)
    for i, size in enumerate(sizes):
        extents.allocate(i, size)
    assert (extents.end, extents.regions) == (end, regions)


@given(STEPS)
def test_map_survives_a_copy(steps: list) -> None:
    """Law: extents made from (regions, end), as a record keeps them, place as the original does."""
    extents = Extents()
    for what, which, size in steps:
        extents.keep(which) if what == "keep" else extents.allocate(which, size)
    twin = Extents(extents.regions, extents.end)
    assert twin.allocate("new", 5 * BLOCK) == extents.allocate("new", 5 * BLOCK)
    assert twin.regions == extents.regions and twin.regions is not extents.regions


def test_blocks_are_rounded_up() -> None:
    """Law: a block is 4 KiB; a region of nothing still has one, so that every key has a place."""
    assert [blocks(n) for n in (0, 1, BLOCK, BLOCK + 1)] == [0, 1, 1, 2]
    assert Extents().allocate("empty", 0) == 1
