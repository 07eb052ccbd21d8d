"""A figure of a run's progress: the residual over time, with snapshots and failures marked."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from ftrma.host import outfile

SUFFIXES = (".pdf", ".svg", ".png")


def check(path: str) -> None:
    """Refuse a figure that cannot be drawn.

    Raises:
        ValueError: with the remedy.
    """
    if Path(path).suffix not in SUFFIXES:
        raise ValueError(f"--plot {path}: give a name in {', '.join(SUFFIXES)}")
    pyplot()


def pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ValueError("--plot needs matplotlib; install it with pip install 'ftrma[bench]'"
                         ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
                         "grid.color": "0.88", "savefig.dpi": 200, "legend.frameon": False,
                         "pdf.fonttype": 42, "svg.fonttype": "none"})
    return plt


def draw(history: Any, path: str, title: str, what: str = "pending") -> None:
    """Draw a run.

    Args:
        history: what slot 0 was told of it, such as `aic.Progress`.
        what: the attribute that is drawn.
    """
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5.4, 2.6), layout="constrained")
    rows = [(one.time, one.attempt, one.snapshots, getattr(one, what)) for one in history]
    lines(axis, np.array(rows, float).reshape(-1, 4), what)
    axis.set_xlabel("seconds")
    axis.set_ylabel(what)
    axis.set_title(title, fontsize=9, loc="left")
    axis.grid(axis="y")
    axis.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix[1:], bbox_inches="tight")
    plt.close(figure)
    outfile.write(path, [drawn.getvalue()])


def lines(axis: Any, rows: Any, what: str) -> None:
    """Draw a line for each attempt, and a mark for each snapshot and each failure."""
    if not len(rows):
        return
    when, attempt, snapshots, value = (rows - [rows[0, 0], 0, 0, 0]).T
    first = attempt[0]
    for number in np.unique(attempt):
        mine = (attempt == number) & (value > 0)
        axis.plot(when[mine], value[mine], color="tab:blue", lw=1,
                  label=what if number == first else None)
    fresh = np.diff(attempt, prepend=first) > 0
    begun = ~fresh & (np.diff(snapshots, prepend=0) > 0)
    for there, name, style in ((begun, "snapshot", dict(color="0.6", lw=0.8, ls=":")),
                               (fresh, "failure", dict(color="tab:red", lw=1.2, ls="--"))):
        for i, at in enumerate(when[there]):
            axis.axvline(at, **style, label=None if i else name)
    axis.set_yscale("log")
