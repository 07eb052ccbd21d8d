"""Figures: each measurement draws one, and the papers' values stand where they belong."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

sys.path.insert(0, str(ROOT))

from bench import __main__ as bench_main
from bench import aic, apgas, common, completion, figures, files, ft, nodes

ONE = common.spread([1.0, 2.0, 3.0])


@pytest.mark.parametrize("name", bench_main.QUESTIONS)
def test_each_measurement_draws(name: str) -> None:
    """Law: a measurement has a function that draws it, so --plot is never passed over."""
    assert callable(importlib.import_module(f"bench.{name}").draw)


@pytest.mark.parametrize(("told", "bounds"), [
    ("13 to 27", (13.0, 27.0)), ("0.51", (0.51, 0.51)), ("-2", (-2.0, -2.0)),
    ("<= 3", (0.0, 3.0)), ("-", None), ("", None)])
def test_a_value_of_a_paper_has_bounds(told: str, bounds: figures.Range | None) -> None:
    assert figures.range_of(told) == bounds


def test_a_value_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'some': write '13 to 27'"):
        figures.range_of("some")


def test_the_papers_overhead_lowers_the_unprotected_performance() -> None:
    """Law: a paper's overhead of 25 to 100 % is shown at 4/5 to 1/2 of the unprotected speed."""
    result = {"variants": {ft.BASELINE: {"mops": {"median": 100.0}}}}
    assert ft.slower(result, (25.0, 100.0)) == (50.0, 80.0)


def reports() -> dict[Any, dict[str, Any]]:
    """Return a report for each of these modules, all of whose numbers are made up."""
    arms = {arm: {"cost_s": ONE} for arm in aic.MODES}
    return {
        aic: {"unpaced": {"arms": arms}, "paced": {"arms": arms}, "skewed": {"arms": arms},
              "failure": [{"part": "paced", "share": 0.2, "saved_percent": ONE}],
              "scaling": {"4": {"of ideal": ONE}}},
        apgas: {"places": 4, "patterns": {
            place: {name: {"ratio": ONE} for name in ("local", "tree")} for place in apgas.FROM}},
        completion: {"rows": 9, "cols": 9, "rank": 2, "rmse": 0.1,
                     "sides": {name: {"fit_s": ONE} for name in ("ours", "theirs")}},
        files: {"slots": 4, "size_bytes": 1 << 20, "every_s": 5.0,
                "cost_percent": {side: ONE for side in files.SIDES[1:]}},
        nodes: {"results": [{"call": "Put", "us_protected": ONE, f"us_{nodes.BASELINE}": ONE}]},
    }


@pytest.mark.full
def test_figures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "figure.svg"
    for module, report in reports().items():
        module.draw({**common.begin(module.__name__), "rounds": 3, **report}, path)
        assert (figures.PAPER in path.read_text()) == (module in (aic, apgas))
        path.unlink()
