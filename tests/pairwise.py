"""Chooses few of all combinations, so that any two values of two factors meet in one of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Combinations in which each pair of values of two factors occurs; always the same ones.

    Greedy: the next one is begun with a pair that is missing, and each further factor gets the
    value that meets the most missing pairs.
    """
    names = list(factors)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2)
               for x in range(len(factors[a])) for y in range(len(factors[b]))}
    chosen = []
    while missing:
        case = dict(min(missing))
        for name in names:
            if name not in case:
                case[name] = max(range(len(factors[name])), key=lambda value, name=name: (sum(
                    pair in missing for other, its in case.items()
                    for pair in [((name, value), (other, its)), ((other, its), (name, value))]),
                    -value))
        missing -= set(itertools.product(case.items(), case.items()))
        chosen.append({name: factors[name][case[name]] for name in names})
    return chosen
