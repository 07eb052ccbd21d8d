"""Any two values of two factors meet in a case of `tests/pairwise.py`, and the cases are few."""

from __future__ import annotations

import itertools

from pairwise import pairwise

FACTORS = {"a": range(7), "b": range(3), "c": "xyz", "d": range(5), "e": range(8)}


def test_all_pairs_meet() -> None:
    cases = pairwise(FACTORS)
    met = {(a, c[a], b, c[b]) for c in cases for a, b in itertools.combinations(FACTORS, 2)}
    assert met == {(a, x, b, y) for a, b in itertools.combinations(FACTORS, 2)
                   for x in FACTORS[a] for y in FACTORS[b]}
    assert 7 * 8 <= len(cases) <= 1.3 * 7 * 8
    assert cases == pairwise(FACTORS)
