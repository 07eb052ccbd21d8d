"""Tiers of tests: which run takes a test.

| tier | its mark | the runs that take it |
|---|---|---|
| quick | `quick`; in `tests/unit` no mark | `pytest -m quick`, `pytest` |
| plain | no mark; in `tests/unit` `plain` | `pytest` |
| full | `full` | `pytest -m full` |
| nightly | `nightly` | `.ci/nightly` |

A mark stands at a test, at a case of a parametrized test, or at a file (`pytestmark`). Where
several of them apply to one case, the latest tier counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

TIERS = ("quick", "plain", "full", "nightly")
PLAIN_RUN = "not full and not nightly"


def latest(names: Iterable[str]) -> str | None:
    """The latest tier among the names of marks; None if no tier is among them."""
    return max(set(TIERS).intersection(names), key=TIERS.index, default=None)


def name_of(case: Any) -> str:
    """A case as pytest names it: "fenced-put:20-3"."""
    if isinstance(case, tuple) and hasattr(case, "marks"):
        if isinstance(case.id, str):  # type: ignore[attr-defined]
            return case.id  # type: ignore[attr-defined]
        values = case.values  # type: ignore[attr-defined]
    else:
        values = case if isinstance(case, tuple) else (case,)
    return "-".join(name_of(value) if isinstance(value, tuple) else
                    getattr(value, "__name__", None) or str(value) for value in values)


def tiers(cases: Iterable[Any], others: str = "nightly", **named: Iterable[str]) -> list[Any]:
    """Say in which tier each case of a parametrized test is.

    Args:
        cases: values for `pytest.mark.parametrize`, `pytest.param`s among them.
        others: tier of the cases that have no name in `named`.
        named: for a tier, the names of its cases (`name_of`), which may hold no others.

    Raises:
        ValueError: a name is that of no case, or of a case that another tier has.
    """
    tier_of: dict[str, str] = {}
    for tier, names in named.items():
        for name in [names] if isinstance(names, str) else names:
            if tier not in TIERS or name in tier_of:
                raise ValueError(f"{name}: in {tier}, and in {tier_of.get(name, 'no tier')}")
            tier_of[name] = tier
    found = []
    for case in cases:
        tier = tier_of.pop(name_of(case), others)
        marks = [getattr(pytest.mark, tier)]
        if isinstance(case, tuple) and hasattr(case, "marks"):
            found.append(pytest.param(*case.values, id=case.id, marks=[*case.marks, *marks]))
        else:
            found.append(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks))
    if tier_of:
        raise ValueError(f"no case has the name {' or '.join(tier_of)}")
    return found
