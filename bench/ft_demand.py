"""`bench ft --demand`: what does it cost when the memory for logs is small (figure 11a)?

A log that runs short demands a checkpoint of the slot with the largest share in it, and is freed of
that: the smaller the budget, the more checkpoints (section 6.2 of Besta & Hoefler). Both ways of
taking them are measured, in bulk and as a stream.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from . import common, figures, sides
from .launching import JsonObject
from .sides import BASELINE, Side

# For 4 slots, from the least that holds what one iteration logs: a slot puts a quarter of the field
# twice in each, half of it to others.
BUDGETS_MIB = {
    "S": [2, 4, 8, 16],
    "W": [4, 8, 16, 64],
    "A": [64, 128, 256, 512],
    "B": [256, 512, 1024],
}
COLORS = {"bulk": "#0072b2", "stream": "#009e73"}
PAPER_MIB = 44  # class A: with smaller logs checkpoints are demanded, section 7.2.1


def sides_of(options: Namespace, logs: list[str]) -> dict[str, Side]:
    """One side for each budget and way of taking the checkpoints."""
    return {
        name(mode, size): sides.protected(*logs, "--log-budget", str(size), "--demand", mode)
        for size in options.log_budget
        for mode in COLORS
    }


def name(mode: str, size_bytes: int) -> str:
    """The name of a side; `budget_mib` reads the budget from it."""
    return f"{mode}-{common.size_text(size_bytes).replace(' ', '')}"


def budget_mib(name: str) -> float:
    """The budget in the name of a side."""
    return common.size(name.split("-")[1]) / 2**20


def text(report: JsonObject) -> str:
    """The table for people."""
    lines = [
        f"NAS FT class {report['problem_class']}, {report['rounds']} rounds of {report['repeat']} "
        "runs for each budget; overhead against no-FT of the same round; median (min .. max) over "
        "the rounds.",
        "A budget is for the logs of one slot; 'all runs' contains those in which a checkpoint "
        "fell.",
    ]
    for result in report["results"]:
        rows = [["log budget", "s per run", "overhead %: typical run", "all runs",
                 "demand checkpoints", "other", "held up ms", "log used"]]
        rows += [row(side, found) for side, found in result["variants"].items()]
        lines += ["", f"{result['slots']} ranks", common.table(rows)]
    return "\n".join(lines)


def row(side: str, found: JsonObject) -> list[str]:
    cells = [side, f"{found['seconds_median']['median']:.4f}"]
    if side == BASELINE:
        return [*cells, *["-"] * 6]
    demanded, held = found["demand_checkpoints_per_launch"], found.get("checkpoint_seconds")
    return [
        *cells,
        common.with_range(found["overhead_median_percent"], 1, 0),
        common.with_range(found["overhead_mean_percent"], 1, 0),
        f"{demanded['median']:g}",
        f"{found['checkpoints_per_launch']['median'] - demanded['median']:g}",
        f"{1e3 * held['median']:.2f}" if held else "-",
        sides.logged(found),
    ]


def draw(report: JsonObject, path: Any) -> None:
    """Overhead, and below it the number of demand checkpoints, over the budget."""
    plt = common.pyplot()
    results = report["results"]
    figure, panels = plt.subplots(
        2, len(results), figsize=(1.2 + 3 * len(results), 3.6), sharex=True, squeeze=False,
        height_ratios=[2, 1], layout="constrained",
    )
    for column, result in enumerate(results):
        above, below = panels[:, column]
        for mode, color in COLORS.items():
            found = {budget_mib(side): each for side, each in result["variants"].items()
                     if side.startswith(mode)}
            overhead = [each["overhead_mean_percent"] for each in found.values()]
            above.errorbar(
                list(found), [o["median"] for o in overhead], yerr=common.whiskers(overhead),
                fmt="o-", ms=4, lw=1, capsize=2, color=color, label=mode,
            )
            demanded = [each["demand_checkpoints_per_launch"] for each in found.values()]
            below.plot(list(found), [d["median"] for d in demanded], "o-", ms=4, lw=1, color=color)
        below.axvline(PAPER_MIB, color=figures.PAPER_COLOR, lw=0.8, ls="--",
                      label="the paper, class A: none above")
        above.axhline(0, color="0.5", lw=0.8)
        above.set_title(f"FT class {report['problem_class']}, {result['slots']} ranks", fontsize=9,
                        loc="left")
        below.set_xscale("log", base=2)
        below.xaxis.set_major_formatter("{x:g}")
        below.set_xlabel("log budget of a slot [MiB] (log scale)")
        below.set_ylim(bottom=0)
        for axes in (above, below):
            axes.grid(axis="y")
    panels[0][0].legend(fontsize=8)
    panels[1][0].legend(fontsize=7)
    panels[0][0].set_ylabel("overhead of all runs [%]")
    panels[1][0].set_ylabel("demand\ncheckpoints")
    common.save(figure, path, report)
