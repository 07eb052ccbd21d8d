"""Draws figures 10a to 10c of Besta & Hoefler, for any machine and any record of failures.

matplotlib is imported when a figure is drawn; if it is absent, the error names the remedy.
"""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..host import outfile
from .history import Fit, History, histogram
from .machine import Machine
from .report import JsonObject, value_of

SUFFIXES = (".pdf", ".svg", ".png")
COLORS = ("#444444", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
MARKS = "osD^vP*"
MOST_LINES = 8  # most lines of a figure's source
MOST_PANELS = 16  # most panels of a figure, one for each level


def check_path(text: str, *inputs: str | None) -> Path:
    """Return the path of a figure, or refuse one that is an input or cannot be written."""
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"--plot {text}: unknown kind of figure; end it in {', '.join(SUFFIXES)}")
    outfile.check("--plot", text, filter(None, inputs))
    pyplot()
    return path


def pyplot() -> Any:
    """Return matplotlib.pyplot, set up for figures in print."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("--plot: needs matplotlib; install it: pip install matplotlib") from None
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its files are its own affair
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
            "axes.axisbelow": True, "axes.grid": True, "grid.color": "0.88", "savefig.dpi": 200,
            "legend.frameon": False, "pdf.fonttype": 42, "svg.fonttype": "none",
        }
    )
    return plt


def plain(text: str) -> str:
    """Return a text from outside so that nothing in it is taken for a formula."""
    return text.replace("$", r"\$")


def save(plt: Any, figure: Any, path: Path, source: str) -> None:
    """Write a figure with its source beneath."""
    width = int(22 * figure.get_figwidth())  # characters of this size in a line
    lines = textwrap.wrap(plain(source), width)[:MOST_LINES]
    figure.text(0.01, 0.01, "\n".join(lines), fontsize=6, color="0.4", va="bottom")
    drawn = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of missing characters, narrow margins
            figure.tight_layout(rect=(0, 0.01 + 0.035 * len(lines), 1, 1))
            figure.savefig(drawn, format=path.suffix[1:])
    finally:
        plt.close(figure)
    try:
        outfile.write(str(path), [drawn.getvalue()])
    except OSError as error:
        outfile.tell(f"warning: --plot {path}: {outfile.why(error)}")


def draw_sweep(machine: Machine, points: Sequence[JsonObject], path: Path) -> None:
    """Draw P_cf against |CH|, one color per awareness level (Figure 10c)."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.8, 3.4))
    strategies = list(dict.fromkeys(p["aware"] for p in points))
    for i, strategy in enumerate(strategies):
        chosen = [p for p in points if p["aware"] == strategy and p["p_cf_per_day"] is not None]
        x = [p["checksums"] for p in chosen]
        color = COLORS[i % len(COLORS)]
        label = "none (no-topo)" if strategy == "none" else plain(strategy)
        axes.plot(x, [value_of(p, "eq9") for p in chosen], color=color, lw=1.4, ms=3.5,
                  marker=MARKS[i % len(MARKS)], label=label)
        if strategy != "none":
            axes.plot(x, [value_of(p, "scattered") for p in chosen], color=color, lw=1, ls=":")
    axes.plot([], [], color="0.3", lw=1.4, label="eq. (9)")
    axes.plot([], [], color="0.3", lw=1, ls=":", label="exact, groups scattered")
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("|CH|: checksum ranks")
    axes.set_ylabel("$P_{cf}$: catastrophic failures per day")
    first = points[0]
    axes.set_title(f"{plain(machine.name)}, {first['ranks']:,} ranks, m = {first['m']}", fontsize=9)
    axes.legend(fontsize=7, title="members apart up to", title_fontsize=7, alignment="left",
                loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(plt, figure, path, "Source: " + machine.source)


def draw_fits(history: History, fits: dict[str, list[Fit]], path: Path) -> None:
    """Draw each level's failures per day by number of elements hit, with the fits (10a and b)."""
    plt = pyplot()
    names = list(history.levels)[:MOST_PANELS]
    title = plain(history.path.name)
    figure, panels = plt.subplots(
        1, len(names), figsize=(max(3.4, 2.9 * len(names)), 3.2), squeeze=False
    )
    for axes, name in zip(panels[0], names, strict=True):
        x, per_day = histogram(history.levels[name], history.days)
        some = per_day > 0
        if np.count_nonzero(some) <= 1000:
            axes.bar(x[some], per_day[some], width=0.6, color="0.8", label="recorded")
        else:  # so many bars take minutes
            axes.plot(x[some], per_day[some], ".", color="0.8", label="recorded")
        fine = np.linspace(1, max(x[-1], 2), 200)
        for fit, color, style in zip(fits.get(name, []), COLORS[1:], ("-", "--"), strict=False):
            a, b = fit.distribution.amplitude_per_day, fit.distribution.decay
            axes.plot(fine, fit.distribution.per_day(fine), color=color, ls=style, lw=1.3,
                      label=f"{fit.method}:\n{a:.3g}/day $e^{{-{b:.3g}x}}$")
        axes.set_yscale("log")
        seen = per_day[per_day > 0]
        axes.set_ylim(seen.min() / 5, seen.max() * 10 * (seen.max() / seen.min()) ** 0.4)
        axes.set_xlim(0.4, max(x[-1], 3) + 0.6)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel(f"x: {plain(name)} that fail at once")
        axes.legend(fontsize=7, loc="upper right")
    panels[0][0].set_ylabel("failures per day")
    figure.suptitle(f"{title}: {history.days:g} days", fontsize=9)
    save(plt, figure, path, f"Source: {history.path.name}")
