"""What does protection cost each one-sided call? Protected against unprotected, call by call.

Times are those that a Python program sees, through mpi4py, whose part is the same on both sides.
Protected means without checkpoints (`--interval never`): what is measured is the interposer. Two
ranks on one node; rank 0 calls toward rank 1. A launch times each call in batches, shorter than the
time slices that other work on the machine takes, and its result is the median batch; sides take
turns, and which one goes first changes from round to round.

The ratio of the fastest batches is given beside that of the medians: other work on the machine only
ever makes a batch slower, so it is the less disturbed of the two.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from typing import Any

from . import common
from .common import HERE, JsonObject, Parser, spread

SCRIPT = HERE / "micro_app.py"
SIDES = ("unprotected", "protected")
# Highest ratio of protected to unprotected time that the project aims at.
TARGETS = {
    "Put 8 B + Flush": 1.10,
    "Put 1 MiB + Flush": 1.02,
    "Fence": 1.5,
}


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("micro", "Cost of each protected one-sided call.")
    parser.add_argument("--fence-ranks", type=common.whole, nargs="+", default=[2, 4], metavar="N",
                        help="numbers of ranks to measure fences with")  # fmt: skip
    parser.add_argument("--batches", type=common.whole, default=51, metavar="B",
                        help="timed loops of each call in a launch")  # fmt: skip
    parser.add_argument("--batch-ms", type=common.positive, default=1.0, metavar="MS",
                        help="least time of a loop")  # fmt: skip
    parser.add_argument("--spares", type=common.whole_or_none, default=1, metavar="S",
                        help="spare processes of the protected side")  # fmt: skip
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = common.begin("micro")
    report.update(
        ranks=sorted({2, *options.fence_ranks}), rounds=options.rounds, batches=options.batches,
        batch_ms=options.batch_ms, spares=options.spares,
        units={"*_us": "microseconds per call or pair of calls", "ratio*": "protected/unprotected"},
    )  # fmt: skip
    report["results"] = measure(options)
    common.finish(report, options, text(report))
    if "plot" in options:
        draw(report, options.plot)
    return 0


# ---- measuring ------------------------------------------------------------------------------


def measure(options: Namespace) -> list[JsonObject]:
    """All rounds; one result for each call."""
    times: dict[tuple[str, int], dict[str, list[list[float]]]] = {}
    for number in range(options.rounds):
        for side in SIDES if number % 2 == 0 else SIDES[::-1]:
            common.progress(f"micro: round {number + 1}/{options.rounds}, {side}")
            for call, ranks, each in launch(side, options):
                found = times.setdefault((call, ranks), {name: [] for name in SIDES})
                found[side].append(each)
    return [summary(call, ranks, sides) for (call, ranks), sides in times.items()]


def launch(side: str, options: Namespace) -> list[tuple[str, int, list[float]]]:
    """One launch for all passive calls and one for each number of ranks that fence."""
    program = ["--batches", str(options.batches), "--batch-s", str(options.batch_ms / 1e3)]
    found = []
    for ranks, more in [(2, []), *((n, ["--only-fence"]) for n in options.fence_ranks)]:
        if side == "protected":
            protection = ["--interval", "never", "--spares", str(options.spares)]
            report, _ = common.run_protected(
                ranks, SCRIPT, [*program, *more], protection, options.timeout
            )
        else:
            report = common.run(common.plain(ranks, SCRIPT, [*program, *more]), options.timeout)
        found += [(call, ranks, each) for call, each in report["seconds_per_call"].items()]
    return found


def summary(call: str, ranks: int, sides: dict[str, list[list[float]]]) -> JsonObject:
    """Spreads over the rounds of one call."""
    found: JsonObject = {"call": call, "ranks": ranks, "target": TARGETS.get(call)}
    for name, choose in (("", statistics.median), ("_fastest", min)):
        seconds = {side: [float(choose(each)) for each in sides[side]] for side in SIDES}
        for side in SIDES:
            found[f"{side}{name}_us"] = spread(1e6 * s for s in seconds[side])
        each = common.ratios(seconds["protected"], seconds["unprotected"])
        found[f"ratio{name}"] = spread(each)
        found[f"ratio{name}_each"] = each
    return found


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The table for people."""
    rows = [["call", "ranks", "unprotected us", "protected us", "ratio, median batches",
             "ratio, fastest", "target"]]  # fmt: skip
    for r in report["results"]:
        target = "-"
        if r["target"]:
            met = "met" if r["ratio"]["median"] <= r["target"] else "missed"
            target = f"<= {r['target']:.2f} {met}"
        rows.append(
            [
                r["call"], str(r["ranks"]), f"{r['unprotected_us']['median']:.3f}",
                f"{r['protected_us']['median']:.3f}", common.with_range(r["ratio"], 3),
                f"{r['ratio_fastest']['median']:.3f}", target,
            ]
        )  # fmt: skip
    return (
        f"One-sided calls through mpi4py, {report['rounds']} rounds of {report['batches']} batches "
        "for each side; median (min .. max) over the rounds.\nWindows from Allocate unless named "
        "otherwise; protected without checkpoints.\n\n" + common.table(rows)
    )


def draw(report: JsonObject, path: Any) -> None:
    """Ratio of each call with its target."""
    plt = common.pyplot()
    results = report["results"][::-1]
    figure, axes = plt.subplots(figsize=(5.6, 0.8 + 0.26 * len(results)))
    places = range(len(results))
    ratio = [r["ratio"] for r in results]
    axes.errorbar([r["median"] for r in ratio], places, xerr=common.whiskers(ratio), fmt="o", ms=4,
                  capsize=2, lw=0.9, color="#0072b2", label="median batches")  # fmt: skip
    axes.plot([r["ratio_fastest"]["median"] for r in results], places, "x", ms=5,
              color="#d55e00", label="fastest batches")  # fmt: skip
    aims = [(r["target"], i) for i, r in enumerate(results) if r["target"]]
    axes.plot([a for a, _ in aims], [i for _, i in aims], "|", ms=12, mew=1.5, color="0.2",
              label="target")  # fmt: skip
    axes.axvline(1, color="0.5", lw=0.8)
    ranks = [f", {r['ranks']} ranks" if r["call"] == "Fence" else "" for r in results]
    axes.set_yticks(places, [r["call"] + more for r, more in zip(results, ranks, strict=True)])
    axes.set_xlabel("time per call, protected / unprotected (log scale)")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="x")
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, handlelength=1.2)
    common.save(figure, path, report)
