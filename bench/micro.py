"""Measures the cost of protection for each one-sided call, protected against unprotected.

Times are those that a Python program sees, through mpi4py, whose part is the same on all sides:

  unprotected   under mpirun, nothing of ftrma loaded
  without logs  protected by checkpoints alone (`--policy rollback`)
  with logs     protected with logs of puts and gets, for causal recovery

What is measured is the interposer: checkpoints are taken between batches only, to empty the logs.
Two ranks on one node; rank 0 calls toward rank 1. A launch times each call in batches, shorter than
the time slices that other work on the machine takes, and its result is the median batch; sides take
turns, and which one goes first changes from round to round.

The ratio of the fastest batches is given beside that of the medians: other work on the machine only
ever makes a batch slower, so it is the less disturbed of the two.

A logged Put of 1 MiB copies its data once more, into a log that is in no cache; so it is compared
with the unprotected one plus a memcpy to cold memory, too.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from typing import Any

from . import common, launching
from .common import Parser, spread
from .launching import HERE, BenchError, JsonObject

SCRIPT = HERE / "micro_app.py"
BASELINE = "unprotected"
# More for the logs than the program lets them grow to between two checkpoints.
LOG_BUDGET = "256M"
SIDES: dict[str, list[str]] = {
    BASELINE: [],
    "without logs": ["--policy", "rollback"],
    "with logs": ["--policy", "auto", "--log-budget", LOG_BUDGET],
}
COLORS = {"without logs": "#0072b2", "with logs": "#d55e00"}
LARGE_PUT, COLD_COPY = "Put 1 MiB + Flush", "memcpy 1 MiB to cold memory"
WITH_COPY = "Put 1 MiB + Flush, to Put and memcpy"
# Highest ratio of protected to unprotected time that the project aims at.
TARGETS = {
    "without logs": {"Put 8 B + Flush": 1.10, LARGE_PUT: 1.02, "Fence": 1.5},
    "with logs": {
        "Put 8 B + Flush": 1.25, "Get 8 B + Flush": 1.6, "Fetch_and_op + Flush": 1.6,
        WITH_COPY: 1.10,
    },
}


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("micro", "Cost of each protected one-sided call.")
    parser.add_argument("--fence-ranks", type=common.whole, nargs="+", default=[2, 4], metavar="N",
                        help="numbers of ranks to measure fences with")
    parser.add_argument("--batches", type=common.whole, default=51, metavar="B",
                        help="timed loops of each call in a launch")
    parser.add_argument("--batch-ms", type=common.positive, default=1.0, metavar="MS",
                        help="least time of a loop")
    parser.add_argument("--spares", type=common.whole_or_none, default=1, metavar="S",
                        help="spare processes of the protected sides")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = common.begin("micro")
    report.update(
        ranks=sorted({2, *options.fence_ranks}), rounds=options.rounds, batches=options.batches,
        batch_ms=options.batch_ms, spares=options.spares,
        units={"*_us": "microseconds per call or pair of calls", "ratio*": "protected/unprotected"},
    )
    report["results"] = measure(options)
    common.finish(report, options, text, draw)
    return 0


# ---- measuring ------------------------------------------------------------------------------


def measure(options: Namespace) -> list[JsonObject]:
    """All rounds; one result for each call."""
    times: dict[tuple[str, int], dict[str, list[list[float]]]] = {}
    for number in range(options.rounds):
        for side in list(SIDES) if number % 2 == 0 else list(SIDES)[::-1]:
            common.progress(f"micro: round {number + 1}/{options.rounds}, {side}")
            for call, ranks, each in launch(side, options):
                found = times.setdefault((call, ranks), {name: [] for name in SIDES})
                found[side].append(each)
    results = [summary(call, ranks, each) for (call, ranks), each in times.items()]
    put, copy = times[LARGE_PUT, 2], times[COLD_COPY, 2]
    return [*results, summary(WITH_COPY, 2, {**put, BASELINE: together(put, copy)})]


def together(
    put: dict[str, list[list[float]]], copy: dict[str, list[list[float]]]
) -> list[list[float]]:
    """Seconds of both, one after the other, both unprotected: median and least of each round."""
    return [
        [min(p) + min(c), statistics.median(p) + statistics.median(c), max(p) + max(c)]
        for p, c in zip(put[BASELINE], copy[BASELINE], strict=True)
    ]


def launch(side: str, options: Namespace) -> list[tuple[str, int, list[float]]]:
    """One launch for all passive calls and one for each number of ranks that fence."""
    program = ["--batches", str(options.batches), "--batch-s", str(options.batch_ms / 1e3)]
    found = []
    for ranks, more in [(2, []), *((n, ["--only-fence"]) for n in options.fence_ranks)]:
        if side == BASELINE:
            command = launching.plain(ranks, SCRIPT, [*program, *more])
            report = launching.run(command, options.timeout)
        else:
            protection = [*SIDES[side], "--interval", "0", "--spares", str(options.spares)]
            report, stats = launching.run_protected(
                ranks, SCRIPT, [*program, *more], protection, options.timeout
            )
            if side == "with logs" and not more:
                check_logs(stats)
        found += [(call, ranks, each) for call, each in report["seconds_per_call"].items()]
    return found


def check_logs(stats: JsonObject) -> None:
    """Refuse a measurement in which rank 0 did not log all of its accesses."""
    peak_bytes, budget_bytes = stats["log"][0]["peak_bytes"], stats["log"][0]["budget_bytes"]
    if not 0 < peak_bytes <= budget_bytes:
        raise BenchError(
            f"rank 0 has logged up to {peak_bytes} bytes, with a budget of {budget_bytes}: not "
            "everything was logged"
        )


def summary(call: str, ranks: int, times: dict[str, list[list[float]]]) -> JsonObject:
    """Spreads over the rounds of one call.

    Args:
        times: of each side, for each round, seconds per call of each batch.
    """
    found: JsonObject = {"call": call, "ranks": ranks}
    for side, rounds in times.items():
        found[side] = {"target": TARGETS.get(side, {}).get(call)}
        for name, choose in (("", statistics.median), ("_fastest", min)):
            seconds = [float(choose(each)) for each in rounds]
            found[side][f"us{name}"] = spread(1e6 * s for s in seconds)
            if side != BASELINE:
                each = common.ratios(seconds, [float(choose(e)) for e in times[BASELINE]])
                found[side][f"ratio{name}"] = spread(each)
                found[side][f"ratio{name}_each"] = each
    return found


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The table for people."""
    rows = [["call", "ranks", "unprotected us", "protected", "us", "ratio, median batches",
             "ratio, fastest", "target"]]
    for r in report["results"]:
        if r["call"] == COLD_COPY:
            rows.append([r["call"], "1", f"{r[BASELINE]['us']['median']:.3f}", *["-"] * 5])
            continue
        for side in COLORS:
            found, target = r[side], "-"
            if found["target"]:
                met = "met" if found["ratio"]["median"] <= found["target"] else "missed"
                target = f"<= {found['target']:.2f} {met}"
            elif r["call"] == WITH_COPY:
                continue
            rows.append(
                [
                    r["call"], str(r["ranks"]), f"{r[BASELINE]['us']['median']:.3f}", side,
                    f"{found['us']['median']:.3f}", common.with_range(found["ratio"], 3, 1),
                    f"{found['ratio_fastest']['median']:.3f}", target,
                ]
            )
    return (
        f"One-sided calls through mpi4py, {report['rounds']} rounds of {report['batches']} batches "
        "for each side; median (min .. max) over the rounds.\nWindows from Allocate unless named "
        "otherwise; no checkpoint falls into a batch.\n\n" + common.table(rows)
    )


def name_of(result: JsonObject) -> str:
    """The call, and the number of ranks if the result depends on it."""
    ranks = f", {result['ranks']} ranks" if result["call"] == "Fence" else ""
    return f"{result['call']}{ranks}"


def draw(report: JsonObject, path: Any) -> None:
    """Ratio of each call on both protected sides, with targets."""
    plt = common.pyplot()
    results = [r for r in report["results"][::-1] if r["call"] != COLD_COPY]
    figure, axes = plt.subplots(figsize=(5.6, 0.8 + 0.36 * len(results)))
    for i, (side, color) in enumerate(COLORS.items()):
        shown = [(place + 0.16 - 0.32 * i, r[side]) for place, r in enumerate(results)
                 if r["call"] != WITH_COPY or r[side]["target"]]
        places, sides = zip(*shown, strict=True)
        ratio = [found["ratio"] for found in sides]
        axes.errorbar([r["median"] for r in ratio], places, xerr=common.whiskers(ratio), fmt="o",
                      ms=4, capsize=2, lw=0.9, color=color, label=side)
        axes.plot([found["ratio_fastest"]["median"] for found in sides], places, "x", ms=5,
                  color=color, label=None if i else "fastest batches")
        aims = [(found["target"], place) for place, found in shown if found["target"]]
        axes.plot([a for a, _ in aims], [p for _, p in aims], "|", ms=12, mew=1.5, color=color,
                  label=None if i else "target")
    axes.axvline(1, color="0.5", lw=0.8)
    axes.set_yticks(range(len(results)), [name_of(r) for r in results])
    axes.set_xlabel("time per call, protected / unprotected (log scale)")
    axes.set_xscale("log", base=2)
    axes.locator_params(axis="x", numticks=8)
    axes.xaxis.set_major_formatter("{x:.3g}")
    axes.grid(axis="x")
    axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(-0.3, 1), fontsize=8, handlelength=1.2)
    common.save(figure, path, report)
