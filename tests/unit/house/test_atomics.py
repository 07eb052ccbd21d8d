"""Atomics need no order: the end follows from what they found and left, whoever came first."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from atomics import final_value, order_free
from hypothesis import assume, given
from hypothesis import strategies as st

WIDTH = 2**16
Edge = tuple[int, int]


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    """A start and the pairs of concurrent atomics in the order in which they happened to come.

    Each slot executes its own program; a compare expects what the slot fetched last, so what it
    does depends on who came in between.
    """
    # Few values, so that trails cross themselves; all of them, so that sums wrap around.
    small = st.integers(0, 3) | st.integers(WIDTH - 2, WIDTH - 1)
    start = draw(small)
    step = st.tuples(st.sampled_from(["add", "swap", "compare", "read"]), small)
    programs = draw(st.lists(st.lists(step, max_size=8), min_size=1, max_size=4))
    order = [slot for slot, program in enumerate(programs) for _ in program]
    left = [iter(program) for program in programs]
    last, value, edges = [start] * len(programs), start, []
    for slot in draw(st.permutations(order)):
        kind, operand = next(left[slot])
        new = {"add": (value + operand) % WIDTH, "swap": operand, "read": value,
               "compare": operand if value == last[slot] else value}[kind]
        edges.append((value, new))
        last[slot], value = value, new
    return start, edges


def end_of(start: int, edges: list[Edge]) -> int:
    return edges[-1][1] if edges else start


@given(histories(), st.randoms(use_true_random=False))
def test_order_does_not_matter(history: tuple[int, list[Edge]], luck: random.Random) -> None:
    """Law: from the pairs alone, shuffled, comes the value that the last atomic left."""
    start, edges = history
    mixed = luck.sample(edges, len(edges))
    assert final_value(start, mixed, count=len(edges)) == end_of(start, edges)
    raw = [(a.to_bytes(2, "little"), b.to_bytes(2, "little")) for a, b in mixed]
    assert int.from_bytes(final_value(start.to_bytes(2, "little"), raw), "little") == (
        end_of(start, edges)
    )


@given(st.integers(0, 2), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=5))
def test_all_orders_agree(start: int, edges: list[Edge]) -> None:
    """Law: of any pairs at all, every order in which each finds what the one before left ends at
    the value returned; where there is no such order, there is an error."""
    ends = set()
    for order in set(itertools.permutations(edges)):
        found = [start, *(new for _, new in order)]
        if all(old == value for (old, _), value in zip(order, found, strict=False)):
            ends.add(found[-1])
    if ends:
        assert ends == {final_value(start, edges)}
    else:
        with pytest.raises(ValueError, match="no trail"):
            final_value(start, edges)


@given(histories(), st.data())
def test_lost_records_are_found_out(history: tuple[int, list[Edge]], data: st.DataObject) -> None:
    """Law: without one record there is an error, unless it changed nothing, or led to the end; by
    their number all are found out."""
    start, edges = history
    assume(edges)
    gone = data.draw(st.sampled_from(edges))
    rest = list((Counter(edges) - Counter([gone])).elements())
    with pytest.raises(ValueError, match="a record is missing"):
        final_value(start, rest, count=len(edges))
    if gone[0] == gone[1]:
        assert final_value(start, rest) == end_of(start, edges)
    elif gone[1] != end_of(start, edges):
        with pytest.raises(ValueError, match="missing"):
            final_value(start, rest)


@given(histories(), st.data())
def test_doubled_records_are_found_out(
    history: tuple[int, list[Edge]], data: st.DataObject
) -> None:
    """Law: with a record doubled there is an error, unless it changed nothing, or left the end."""
    start, edges = history
    assume(edges)
    double = data.draw(st.sampled_from(edges))
    with pytest.raises(ValueError, match="a record is doubled"):
        final_value(start, [*edges, double], count=len(edges))
    if double[0] == double[1]:
        assert final_value(start, [*edges, double]) == end_of(start, edges)
    elif double[0] != end_of(start, edges):
        with pytest.raises(ValueError, match="doubled"):
            final_value(start, [*edges, double])


def test_reasons() -> None:
    """Law: the message names the value at which it shows; what looks complete is taken for it."""
    assert final_value(5, []) == 5
    assert final_value(5, [(5, 5)]) == 5
    with pytest.raises(ValueError, match="from 5: 1 of them found 7, which was there never"):
        final_value(5, [(7, 8)])
    with pytest.raises(ValueError, match="2 of them found 5, which was there once"):
        final_value(5, [(5, 6), (5, 6)])
    with pytest.raises(ValueError, match="from 7 to 8 is never reached"):
        final_value(5, [(5, 6), (7, 8), (8, 7)])
    with pytest.raises(ValueError, match="from 7 to 7 is never reached"):
        final_value(5, [(5, 6), (7, 7)])
    # The gap that the module's docstring owns up to, and that the number of records closes.
    assert final_value(0, [(0, 1)]) == 1 != final_value(0, [(0, 1), (1, 2)])


@pytest.mark.parametrize("bad", [1.0, True, None, "x", np.int64(1), b"\1"])
def test_values_are_bytes_or_ints(bad: object) -> None:
    """Law: what compares equal without being the same bits is no value of a location."""
    with pytest.raises(TypeError, match="all bytes or all int"):
        final_value(1, [(1, bad), (bad, 2)])  # type: ignore[list-item]


OPERATIONS = {
    "SUM": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
    "LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor,
    "REPLACE": lambda old, new: new, "NO_OP": lambda old, new: old,
}


def ends(op: str, dtype: str, values: list[float]) -> set[bytes]:
    """Bits of a location after accumulates in every order."""
    found = set()
    with np.errstate(all="ignore"):
        for order in itertools.permutations(values[1:]):
            value = np.array(values[0], dtype)
            for operand in order:
                value = OPERATIONS[op](value, np.array(operand, dtype)).astype(dtype)
            found.add(value.tobytes())
    return found


@given(st.sampled_from(sorted(OPERATIONS)), st.sampled_from(["i1", "i4", "u1", "u8", "?"]),
       st.lists(st.integers(0, 127), min_size=2, max_size=5))
def test_what_is_said_to_commute_does(op: str, dtype: str, values: list[float]) -> None:
    """Law: where an operation needs no order, all orders give the same bits."""
    assume(order_free(op, np.dtype(dtype).kind))
    assert len(ends(op, dtype, values)) == 1


@pytest.mark.parametrize(
    "op, dtype, values",
    [
        ("REPLACE", "i4", [0, 1, 2]),
        ("SUM", "f8", [0, 1e100, 1, -1e100]),
        ("PROD", "f8", [1, 1e300, 1e300, 1e-300]),
        ("SUM", "c16", [0, 1e100, 1, -1e100]),
        ("MIN", "f8", [1.0, 0.0, -0.0]),
        ("MAX", "f8", [-1.0, 0.0, -0.0]),
    ],
)
def test_what_does_not_commute_is_not_said_to(op: str, dtype: str, values: list[float]) -> None:
    """Law: for each refusal there are operands that need it."""
    assert not order_free(op, np.dtype(dtype).kind)
    assert len(ends(op, dtype, values)) > 1


def test_unknown_names() -> None:
    """Law: a misspelled operation or kind is told, not taken for one that needs order."""
    with pytest.raises(ValueError, match=r"'MPI_SUM' is no predefined operation.*SUM"):
        order_free("MPI_SUM", "i")
    with pytest.raises(ValueError, match="'int' is no kind of elements; name one of i, u"):
        order_free("SUM", "int")
