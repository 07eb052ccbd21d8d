"""Checks that histories of single keys are linearizable, by Wing and Gong's search with memory.

A history is a list of operations, each with the times at which it was called and returned. It is
linearizable if each operation can be given one moment between the two so that every read shows the
last write before it. An operation that did not return may have its moment at any time later, or
none.

Source: J. Wing and C. Gong, "Testing and Verifying Concurrent Objects", JPDC 1993; the memory of
states that were seen is Lowe's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

NEVER = math.inf
ANYTHING = object()


class Operation(NamedTuple):
    """An operation on one key.

    Attributes:
        called, returned: times; `NEVER`: it has not returned.
        write: it is a write; else a read.
        value: that was written or read.
        seen: what a write has read at its moment, if it has read.
    """

    called: float
    returned: float
    write: bool
    value: Any
    seen: Any = ANYTHING


def is_linearizable(history: Sequence[Operation], first: Any = None) -> bool:
    """Say that operations can be put into one order that fits their times and their values.

    Args:
        first: value before all of them.
    """
    operations = sorted((o for o in history if o.write or o.returned < NEVER),
                        key=lambda o: o.called)
    must = frozenset(i for i, o in enumerate(operations) if o.returned < NEVER)
    seen: set[tuple[frozenset[int], Any]] = set()
    stack: list[tuple[frozenset[int], Any]] = [(frozenset(), first)]
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        done, value = state
        if must <= done:
            return True
        # Whoever has its moment next was called before any of the others returned.
        latest = min(operations[i].returned for i in must - done)
        for i, operation in enumerate(operations):
            if operation.called > latest:
                break
            expected = operation.seen if operation.write else operation.value
            if i in done or not (expected is ANYTHING or expected == value):
                continue
            stack.append((done | {i}, operation.value))
    return False
