"""Layouts: how many processes, in which roles and groups; by property."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ftrma.machine.topology import (
    MAX_MEMBERS,
    MAX_PROCESSES,
    Domains,
    Layout,
    domains_of_nodes,
    make_layout,
)

SLOTS = st.integers(1, 300)
SPARES = st.integers(0, 5)


@given(SLOTS, st.integers(1, 300), SPARES)
def test_groups_cover_all_slots_once(slots: int, group_size: int, spares: int) -> None:
    """Law: every slot is in exactly one group, the one that group_of names; no group is empty."""
    assume(min(slots, group_size) < MAX_MEMBERS)
    layout = make_layout(slots, group_size=group_size, spares=spares)
    seen = [s for g in range(layout.groups) for s in layout.members(g)]
    assert seen == list(range(slots))
    for group in range(layout.groups):
        assert 1 <= len(layout.members(group)) <= layout.group_size <= group_size
        assert {layout.group_of(s) for s in layout.members(group)} == {group}


@given(SLOTS, st.integers(1, 300), SPARES, st.integers(1, 4))
def test_each_group_has_m_checksum_ranks(
    slots: int, group_size: int, spares: int, strength: int
) -> None:
    """Law: m checksum ranks serve each group, one for each parity; together with the slots and the
    spares they are all processes. Without --checksums m is 1."""
    assume(min(slots, group_size) + strength <= MAX_MEMBERS)
    groups = -(-slots // min(slots, group_size))
    assume(slots + strength * groups + spares <= MAX_PROCESSES)
    given_checksums = strength * groups if strength > 1 else None
    layout = make_layout(slots, given_checksums, group_size, spares)
    assert (layout.groups, layout.strength) == (groups, strength)
    for group in range(groups):
        served = list(layout.checksums_of(group))
        assert [layout.parity_index(c) for c in served] == list(range(strength))
        assert {layout.group_of_checksum(c) for c in served} == {group}
    assert {c for g in range(groups) for c in layout.checksums_of(g)} == set(
        range(layout.checksums)
    )
    assert layout.processes == slots + layout.checksums + spares and layout.spares == spares


@given(st.lists(st.integers(0, 3), min_size=4, max_size=30))
def test_groups_need_not_be_neighbours(wish: list[int]) -> None:
    """Law: with any table of groups, members come in order and their index is their position."""
    table = tuple(sorted(range(len(wish)), key=lambda s: (wish[s], s)))
    slot_group = tuple(table.index(s) // 3 for s in range(len(wish)))
    layout = Layout(len(wish), -(-len(wish) // 3), 0, 3, slot_group)
    for slot in range(len(wish)):
        members = layout.members(layout.group_of(slot))
        assert list(members) == sorted(members)
        assert members[layout.index_in_group(slot)] == slot


@given(SLOTS, st.integers(1, 300))
def test_given_checksums_choose_the_group_size(slots: int, checksums: int) -> None:
    """Law: M checksum ranks make groups of N / M rounded up, or an error that names a way out."""
    size = -(-slots // checksums)
    assume(size < MAX_MEMBERS)
    if -(-slots // size) == checksums:
        layout = make_layout(slots, checksums)
        assert (layout.group_size, layout.groups) == (size, checksums)
        return
    with pytest.raises(ValueError) as error:
        make_layout(slots, checksums)
    advice = re.search(r"use --checksums (\d+)", str(error.value))
    assert advice and f"--checksums {checksums}" in str(error.value)
    assert make_layout(slots, int(advice[1])).checksums == int(advice[1])


def test_defaults_are_one_group_and_one_spare() -> None:
    """Law: without options all slots are in one group, with one checksum rank and one spare."""
    layout = make_layout(4)
    assert (layout.groups, layout.checksums, layout.spares, layout.group_size) == (1, 1, 1, 4)


@pytest.mark.parametrize(
    ("arguments", "value", "remedy"),
    [
        ({"slots": 0}, "-n 0", "at least 1 slot"),
        ({"slots": -3}, "-n -3", "at least 1 slot"),
        ({"slots": 4, "spares": -1}, "--spares -1", "0 or more"),
        ({"slots": 4, "checksums": 0}, "--checksums 0", "1 or more"),
        ({"slots": 4, "group_size": 0}, "--group-size 0", "1 or more"),
        ({"slots": 4, "checksums": 3, "group_size": 2}, "--checksums 3", "--checksums 2 or 4 or"),
        ({"slots": 9, "checksums": 2, "group_size": 3}, "--checksums 2", "use --checksums 3 or"),
        ({"slots": 4, "checksums": 5}, "--checksums 5", "use --checksums 4, or"),
        ({"slots": 4, "checksums": 8}, "--checksums 8", "use --checksums 4, or"),
        ({"slots": 300}, "--group-size 300", "at most 255 members in all; use a smaller"),
        ({"slots": 255}, "--group-size 255", "at most 255 members in all; use a smaller"),
        ({"slots": 6, "checksums": 250, "group_size": 6}, "6 with 250", "or fewer --checksums"),
        ({"slots": 1020, "group_size": 100}, "-n 1020", f"at most {MAX_PROCESSES}"),
    ],
)
def test_bad_value_is_named_with_a_remedy(
    arguments: dict[str, int], value: str, remedy: str
) -> None:
    """Law: what cannot be served is a ValueError with the option, its value and a remedy."""
    with pytest.raises(ValueError) as error:
        make_layout(**arguments)
    assert value in str(error.value) and remedy in str(error.value)


def test_largest_job_is_served() -> None:
    """Law: the limits themselves are allowed."""
    assert make_layout(254, spares=0).group_size == 254
    assert make_layout(5, 250, 5).strength == 250
    assert make_layout(MAX_PROCESSES - 11, group_size=100, spares=0).processes == MAX_PROCESSES


def test_levels_of_awareness() -> None:
    """Law: "none" covers no level, each other name all levels up to its own; a wrong name is told
    with those that exist."""
    domains = Domains(("nodes", "racks"), (("n1", "r1"), ("n2", "r1"), ("n3", "r2")))
    assert [domains.height(level) for level in ("none", "nodes", "racks")] == [0, 1, 2]
    assert [domains.level(height) for height in range(3)] == ["none", "nodes", "racks"]
    with pytest.raises(ValueError, match="--aware switches: levels here are none, nodes, racks"):
        domains.height("switches")
    plain = domains_of_nodes(["a", "a", "b"])
    assert (plain.levels, plain.paths) == (("nodes",), (("a",), ("a",), ("b",)))
