"""`bench ft --demand`: what does it cost when the memory for logs is small (figure 11a)?

A log that is full demands a checkpoint, after which it is trimmed: the smaller the budget, the more
checkpoints. Each budget is measured with both ways to take a demand checkpoint, streamed piece by
piece and in one bulk (section 6.2 of Besta & Hoefler).
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from . import common, sides
from .common import JsonObject
from .sides import BASELINE, Side

HOW = ("stream", "bulk")
# For 4 slots, from the least that holds what one iteration logs: a slot puts a quarter of the field
# twice in each, half of it to others.
BUDGETS_MIB = {
    "S": [2, 4, 8, 16, 32],
    "W": [4, 8, 16, 32, 64],
    "A": [64, 96, 128, 256, 512],
    "B": [256, 512, 1024],
}
STYLES = {"stream": ("o", "-", "#0072b2"), "bulk": ("s", "--", "#d55e00")}


def sides_of(options: Namespace, logs: list[str]) -> dict[str, Side]:
    """One side for each budget and way."""
    return {
        name(size, how): sides.protected(*logs, "--log-budget", str(size), "--demand", how)
        for size in options.log_budget
        for how in options.how
    }


def name(size_bytes: int, how: str) -> str:
    """Of a side; `budget_mib` reads the budget from it."""
    return f"f-{common.size_text(size_bytes).replace(' ', '')} {how}"


def budget_mib(name: str) -> float:
    """The budget in the name of a side."""
    return common.size(name.split()[0].removeprefix("f-")) / 2**20


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
                 "demand checkpoints", "other", "held up ms", "log used"]]  # fmt: skip
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
        common.with_range(found["overhead_median_percent"], 1),
        common.with_range(found["overhead_mean_percent"], 1),
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
    )  # fmt: skip
    for column, result in enumerate(results):
        above, below = panels[:, column]
        for how, (marker, style, color) in STYLES.items():
            found = {budget_mib(side): each for side, each in result["variants"].items()
                     if side.endswith(how)}  # fmt: skip
            if not found:
                continue
            overhead = [each["overhead_mean_percent"] for each in found.values()]
            above.errorbar(
                list(found), [o["median"] for o in overhead], yerr=common.whiskers(overhead),
                fmt=marker, ls=style, ms=4, lw=1, capsize=2, color=color, label=how,
            )  # fmt: skip
            demanded = [each["demand_checkpoints_per_launch"] for each in found.values()]
            below.plot(list(found), [d["median"] for d in demanded], marker=marker, ls=style, ms=4,
                       lw=1, color=color)  # fmt: skip
        above.axhline(0, color="0.5", lw=0.8)
        above.set_title(f"FT class {report['problem_class']}, {result['slots']} ranks", fontsize=9,
                        loc="left")  # fmt: skip
        below.set_xscale("log", base=2)
        below.xaxis.set_major_formatter("{x:g}")
        below.set_xlabel("log budget of a slot [MiB] (log scale)")
        below.set_ylim(bottom=0)
        for axes in (above, below):
            axes.grid(axis="y")
    panels[0][0].set_ylabel("overhead of all runs [%]")
    panels[1][0].set_ylabel("demand\ncheckpoints")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=2, loc="outside upper left", fontsize=8,
                  title="demand checkpoints taken by", title_fontsize=8)  # fmt: skip
    common.save(figure, path, report)
