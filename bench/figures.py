"""Pieces of figures: bars side by side, and the papers' values beside what was measured.

Each measurement draws its figure by a function ``draw`` of its own; `common.finish` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import common

PAPER = "the paper"
PAPER_COLOR = "#d55e00"
COLORS = ("tab:blue", "0.6", "tab:cyan", "0.8", "tab:green")
Range = tuple[float, float]


def range_of(told: str) -> Range | None:
    """The bounds of a paper's value: "13 to 27", "0.51", "<= 3"; None if it has none: "" and "-".

    Raises:
        ValueError: the text has another form.
    """
    if told in ("", "-"):
        return None
    match = re.fullmatch(r"(?:(<=) )?(-?[\d.]+)(?: to (-?[\d.]+))?", told)
    if match is None:
        raise ValueError(f"{told!r}: write '13 to 27', '0.51', '<= 3' or '-'")
    most = float(match[3] or match[2])
    return (0.0 if match[1] else float(match[2])), most


def beside(axes: Any, places: Sequence[float], found: Sequence[Range | None], *,
           upright: bool = False) -> None:
    """Mark the papers' values: a diamond, and a line between the bounds of a range.

    Args:
        places: of the values, along the axis that has the names.
        found: the values, None where the paper has none.
        upright: values are heights.
    """
    shown = [(place, *bounds) for place, bounds in zip(places, found, strict=True) if bounds]
    if not shown:
        return
    at, low, high = ([row[i] for row in shown] for i in range(3))
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    half = [(b - a) / 2 for a, b in zip(low, high, strict=True)]
    given = {"fmt": "D", "ms": 5, "mfc": "white", "color": PAPER_COLOR, "lw": 1.6, "label": PAPER,
             "zorder": 4}
    if upright:
        axes.errorbar(at, middle, yerr=half, **given)
    else:
        axes.errorbar(middle, at, xerr=half, **given)


def bars(axes: Any, names: Sequence[str], sides: Mapping[str, Sequence[Any]], *,
         scale: float = 1.0, paper: Sequence[Range | None] | None = None,
         paper_side: int | None = None, logarithmic: bool = False) -> None:
    """Draw a group of horizontal bars for each name, from the top, with quartiles as whiskers.

    Args:
        sides: for each side and name a spread of `common.spread`; None: no bar there.
        scale: by which values are multiplied, such as 1e3 for ms.
        paper: a value of the paper for each name, in the unit that is shown.
        paper_side: number of the side that they belong to; None: to all sides.
        logarithmic: draw points on a logarithmic axis, which has no 0 for bars to begin at.
    """
    high = 0.8 / len(sides)
    offsets = [(i - (len(sides) - 1) / 2) * high for i in range(len(sides))]
    for i, (side, found) in enumerate(sides.items()):
        offset = offsets[i]
        shown = [(at + offset, f) for at, f in enumerate(found) if f]
        places = [place for place, _ in shown]
        spreads = [f for _, f in shown]
        widths = [scale * f["median"] for f in spreads]
        whiskers = common.whiskers(spreads, scale)
        if logarithmic:
            axes.errorbar(widths, places, xerr=whiskers, fmt="o", ms=4, color=COLORS[i], capsize=2,
                          lw=0.8, label=side)
            continue
        axes.barh(places, widths, 0.92 * high, color=COLORS[i], label=side)
        axes.errorbar(widths, places, xerr=whiskers, fmt="none", color="0.2", capsize=2, lw=0.8)
    if paper:
        offset = 0.0 if paper_side is None else offsets[paper_side]
        beside(axes, [at + offset for at in range(len(names))], paper)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x")
    if logarithmic:
        axes.set_xscale("log", base=2)
        axes.locator_params(axis="x", numticks=8)
        axes.xaxis.set_major_formatter("{x:.3g}")


def chart(names: Sequence[str], sides: Mapping[str, Sequence[Any]], label: str, *,
          scale: float = 1.0, paper: Sequence[Range | None] | None = None,
          paper_side: int | None = None, logarithmic: bool = False) -> tuple[Any, Any]:
    """Make a figure of `bars` alone; label: what its axis shows. Returns figure and axes."""
    plt = common.pyplot()
    rows = len(names) * max(1.0, 0.6 * len(sides))
    figure, axes = plt.subplots(figsize=(5.6, 0.9 + 0.3 * rows), layout="constrained")
    bars(axes, names, sides, scale=scale, paper=paper, paper_side=paper_side,
         logarithmic=logarithmic)
    axes.set_xlabel(label)
    if len(sides) > 1 or paper:
        figure.legend(ncols=4, loc="outside upper left", fontsize=7, handlelength=1.2)
    return figure, axes
