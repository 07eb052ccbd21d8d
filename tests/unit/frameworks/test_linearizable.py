"""The checker of histories: it accepts what has an order, and nothing else."""

from __future__ import annotations

import pytest
from linearizable import NEVER, Operation, is_linearizable


def w(called: float, returned: float, value: int, *seen: int | None) -> Operation:
    return Operation(called, returned, True, value, *seen)


def r(called: float, returned: float, value: int | None) -> Operation:
    return Operation(called, returned, False, value)


@pytest.mark.parametrize(("history", "well"), [
    ([], True),
    ([r(0, 1, None)], True),
    ([r(0, 1, 1)], False),
    ([w(0, 1, 1), r(2, 3, 1)], True),
    ([w(0, 1, 1), r(2, 3, None)], False),
    ([w(0, 9, 1), r(2, 3, 1), r(4, 5, None)], False),  # read, and gone again
    ([w(0, 9, 1), r(2, 3, None), r(4, 5, 1)], True),
    ([w(0, 1, 1), w(2, 9, 2), r(3, 4, 2), r(5, 6, 1)], False),
    ([w(0, 9, 1), w(0, 9, 2), r(3, 4, 2), r(5, 6, 1)], True),
    ([w(0, NEVER, 1), r(5, 6, 1)], True),  # a write that has not returned may have happened
    ([w(0, NEVER, 1), r(5, 6, None)], True),
    ([w(0, NEVER, 1), r(5, 6, 1), r(7, 8, None)], False),
    ([w(0, 1, 1), w(2, 9, 2, 1), r(10, 11, 2)], True),  # it has read what it replaces
    ([w(0, 1, 1), w(2, 9, 2, 1), w(3, 8, 3), r(10, 11, 3)], True),
    ([w(0, 1, 1), w(2, 9, 3, 1), w(2, 9, 2, 1)], False),  # one of them is lost
])
def test_histories(history: list[Operation], well: bool) -> None:
    """Law: see above."""
    assert is_linearizable(history) == well


def test_many_at_once() -> None:
    """Law: the memory of states keeps the search short where most orders are alike."""
    history = [w(0, 100, i % 3) for i in range(12)] + [r(101, 102, 5)]
    assert not is_linearizable(history)
