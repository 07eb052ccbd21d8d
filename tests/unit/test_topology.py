"""Placement of roles, by property."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ftrma.topology import MAX_PROCESSES, make_layout, roles

SLOTS = st.integers(1, 300)
SPARES = st.integers(0, 5)


@given(SLOTS, st.integers(1, 300), SPARES)
def test_groups_cover_all_slots_once(slots: int, group_size: int, spares: int) -> None:
    """Law: every slot is in exactly one group, the one that group_of names; no group is empty."""
    assume(min(slots, group_size) <= 255)
    layout = make_layout(slots, group_size=group_size, spares=spares)
    seen = [s for g in range(layout.groups) for s in layout.members(g)]
    assert seen == list(range(slots))
    for group in range(layout.groups):
        assert 1 <= len(layout.members(group)) <= layout.group_size <= group_size
        assert {layout.group_of(s) for s in layout.members(group)} == {group}


@given(SLOTS, st.integers(1, 300), SPARES)
def test_each_group_has_one_checksum_rank(slots: int, group_size: int, spares: int) -> None:
    """Law: checksums = groups, and the processes are slots, checksum ranks and spares."""
    assume(min(slots, group_size) <= 255)
    layout = make_layout(slots, group_size=group_size, spares=spares)
    assert layout.checksums == layout.groups
    assert layout.processes == slots + layout.checksums + spares
    assert layout.spares == spares


@given(SLOTS, st.integers(1, 300))
def test_given_checksums_choose_the_group_size(slots: int, checksums: int) -> None:
    """Law: M checksum ranks make groups of N / M rounded up, or an error that names a way out."""
    size = -(-slots // checksums)
    assume(size <= 255)
    if -(-slots // size) == checksums:
        layout = make_layout(slots, checksums)
        assert (layout.group_size, layout.groups) == (size, checksums)
        return
    with pytest.raises(ValueError) as error:
        make_layout(slots, checksums)
    advice = re.search(r"use --checksums (\d+)", str(error.value))
    assert advice and f"--checksums {checksums}" in str(error.value)
    assert make_layout(slots, int(advice[1]), size).checksums == int(advice[1])


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
        ({"slots": 4, "checksums": 3, "group_size": 2}, "--checksums 3", "use --checksums 2 or"),
        ({"slots": 4, "checksums": 5}, "--checksums 5", "use --checksums 4 or"),
        ({"slots": 300}, "--group-size 300", "at most 255; use more checksum ranks"),
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
    assert make_layout(255, spares=0).group_size == 255
    assert make_layout(MAX_PROCESSES - 11, group_size=100, spares=0).processes == MAX_PROCESSES


def test_roles_follow_the_order_of_processes() -> None:
    """Law: every role has a process of its own; slots come first, then checksum ranks."""
    layout = make_layout(5, group_size=2, spares=2)
    slot_proc, checksum_proc = roles(["a"] * 4 + ["b"] * 6, layout)
    assert slot_proc == [0, 1, 2, 3, 4]
    assert checksum_proc == [5, 6, 7]
