"""Finds what atomics on one location leave behind, without their order.

An atomic replaces the value of a location in one step and fetches the old one; logged are both. In
which order different slots came is nowhere in their logs, and the paper falls back to a rollback
there (the M flag of section 4.2). It need not: the order is not needed for the end.

**The trail.** Take the values as nodes and each atomic as an edge from its old to its new value.
The atomics came one after another, each finding what the one before left (nothing else may write
the location meanwhile). So the edges in their true order form a trail: it begins at the
checkpoint's value and uses every edge exactly once.

**The end.** A trail enters each node as often as it leaves it, but for its two ends. Count the
start as one more entry, for it is where the trail comes from, and let the surplus of a node be its
entries less its leavings. Then the surplus is 1 at the last node and 0 at all others, also if the
trail ends where it began. Surpluses are counts over the edges as a set: no order enters. So every
order in which each atomic finds what the one before left ends at the same value, the true order
among them, and the end alone may be written. That is exact: what each slot fetched is in its log,
and a local load, which is in none, comes by right only after synchronization; all atomics up to
there are a trail too.

**What is checked.** Conversely, edges with such surpluses are a trail from the start if and only if
all of them hang together with it (Euler). If they do not, the logs are wrong, and the reason says
how. An atomic that changes nothing (old and new equal: a compare that failed, an addition of 0) is
a loop. It adds an entry and a leaving to one node, so it does not count, but its value must lie on
the trail.

**What is not.** A lost record is found out if its new value is not the end's: then that node lacks
an entry. The record *into the end* can be lost unseen, since what is left is a trail that stopped
earlier; likewise one out of the end can be doubled. Only who knows how many there were finds that:
the target's order word counts them, and `count` takes the number.

Plain accumulates fetch nothing, and each is an operand instead of an edge. They need no order where
the operation is exact and commutes, see `order_free`.

Source: the algorithm is this project's (design, section "Logs and causal recovery"); paper section
4.2 for what it replaces.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeVar

Value = TypeVar("Value", int, bytes)

# Exact on integers of a fixed width: sums and products modulo a power of two, bits, order, and
# truth (all but 0 is true; one operation makes it 0 or 1, and which does not depend on order).
_INTEGER = frozenset({"SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR"})
_ORDER_FREE = {
    "i": _INTEGER,
    "u": _INTEGER,
    "b": frozenset({"LAND", "LOR", "LXOR"}),  # truth values: no arithmetic is defined for them
    "V": frozenset({"BAND", "BOR", "BXOR"}),  # MPI_BYTE: bits alone
    # Rounding depends on order; so do, in bits, minima of 0.0 and -0.0, and of NaNs.
    "f": frozenset[str](),
    "c": frozenset[str](),
}
_OTHERS = frozenset({"REPLACE", "NO_OP", "MINLOC", "MAXLOC"})


def final_value(start: Value, edges: Iterable[tuple[Value, Value]], *,
                count: int | None = None) -> Value:
    """Return the value that a location has after all atomics on it, given in any order.

    Args:
        start: value of the location at the checkpoint.
        edges: for each atomic since then the pair (old value, new value).
        count: how many atomics there were, if that is known from elsewhere.

    Returns:
        The value after the last of them; `start` if there are none.

    Raises:
        ValueError: the atomics cannot have come one after another from `start` on: a record is
            missing, doubled or wrong; the message says where it shows.
        TypeError: values are not all bytes or all ints.

    Source: module docstring.
    """
    edges = list(edges)
    _check_types(start, edges)
    if count is not None and count != len(edges):
        raise ValueError(
            f"there were {count} atomics on this location and {len(edges)} are in the logs: "
            + ("a record is missing" if len(edges) < count else "a record is doubled")
        )
    entries: Counter[Value] = Counter(new for _, new in edges)
    entries[start] += 1
    leavings: Counter[Value] = Counter(old for old, _ in edges)
    for value in leavings:
        if leavings[value] > entries[value]:
            raise ValueError(
                f"the atomics on this location are no trail from {start!r}: {leavings[value]} of "
                f"them found {value!r}, which was there {_times(entries[value])}; a record that "
                "led to it is missing, or one that left it is doubled"
            )
    _check_reach(start, edges)
    # The surpluses are not negative and add up to 1: one entry more than leavings, the start's.
    return next(value for value in entries if entries[value] > leavings[value])


def order_free(op: str, kind: str) -> bool:
    """Tell whether accumulates with one operation on one location give the same bits in any order.

    That holds for one operation at a time: sums among minima do depend on order. NO_OP changes
    nothing and may be mixed with any; REPLACE never commutes.

    Args:
        op: name of the MPI operation without its prefix, such as "SUM".
        kind: NumPy's letter for the kind of the elements: i, u, b, f, c, or V for MPI_BYTE.

    Raises:
        ValueError: no such operation or kind.
    """
    if op not in _INTEGER | _OTHERS:
        raise ValueError(f"order_free: {op!r} is no predefined operation of MPI; name one of "
                         f"{', '.join(sorted(_INTEGER | _OTHERS))}")
    if kind not in _ORDER_FREE:
        raise ValueError(f"order_free: {kind!r} is no kind of elements; name one of "
                         f"{', '.join(_ORDER_FREE)}")
    return op == "NO_OP" or op in _ORDER_FREE[kind]


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _check_types(start: Value, edges: list[tuple[Value, Value]]) -> None:
    # 1 == True and 1 == 1.0, but they are other bits; so nothing but plain ints and bytes.
    kind = bytes if isinstance(start, bytes) else int
    for value in [start, *(value for edge in edges for value in edge)]:
        if type(value) is not kind:
            raise TypeError(
                f"values of one location are all bytes or all int, got {type(value).__name__} "
                f"({value!r}) beside {kind.__name__}"
            )


def _check_reach(start: Value, edges: list[tuple[Value, Value]]) -> None:
    """All edges hang together with the start; with the surpluses right, direction is no matter."""
    neighbours: defaultdict[Value, set[Value]] = defaultdict(set)
    for old, new in edges:
        neighbours[old].add(new)
        neighbours[new].add(old)
    reached, todo = {start}, [start]
    while todo:
        found = neighbours[todo.pop()] - reached
        reached |= found
        todo += found
    for old, new in edges:
        if old not in reached:
            raise ValueError(
                f"the atomics on this location are no trail from {start!r}: the one from {old!r} "
                f"to {new!r} is never reached; a record that led there is missing, or it belongs "
                "to another location"
            )
