"""What does protection cost a whole program? NAS FT, unprotected and with checkpoints.

Variants, each a launch of its own and in turn (names as in figure 10 of Besta & Hoefler):

  no-FT        under mpirun, nothing of ftrma loaded
  f-daly       protected, time between checkpoints after Daly
  f-no-daly    protected, a fixed time between checkpoints
  every-fence  protected, a checkpoint at every safepoint: one after each transform, whose fences
               end all accesses

A launch runs the benchmark many times in one process, after its warm-up. Three times are taken from
it. The median says what a typical run costs; the mean also contains the runs in which a checkpoint
happened to fall, and so is the cost of protection as a long program pays it, at the price of more
noise; the fastest is the least disturbed by other work on the machine, and by checkpoints. Each is
compared with that of no-FT in the same round.

Protected variants start a checksum rank and the spares beside the slots; where there are fewer
cores than processes they compete with the program, as they would for any user there.
"""

from __future__ import annotations

import argparse
import statistics
from argparse import Namespace
from typing import Any

from . import common
from .common import HERE, BenchError, JsonObject, Parser, spread

SCRIPT = HERE / "apps" / "ft.py"
BASELINE = "no-FT"
# Runs in a launch: enough for some seconds, so that checkpoints come due in it.
TIMES = ("median", "mean", "fastest")
REPEAT = {"S": 400, "W": 100, "A": 10, "B": 2}
COLORS = {BASELINE: "0.55", "f-daly": "#0072b2", "f-no-daly": "#56b4e9", "every-fence": "#d55e00"}


def variants(options: Namespace) -> dict[str, list[str] | None]:
    """Options of `ftrma run` for each variant; None: unprotected."""
    spares = ["--spares", str(options.spares)]
    return {
        BASELINE: None,
        "f-daly": [*spares, "--interval", "daly", "--mtbf", str(options.mtbf)],
        "f-no-daly": [*spares, "--interval", str(options.interval)],
        "every-fence": [*spares, "--interval", "0"],
    }


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("ft", "Overhead of protection on NAS FT.")
    parser.add_argument("--class", dest="problem_class", default="W", choices=("S", "W", "A", "B"),
                        help="problem class of NPB")  # fmt: skip
    parser.add_argument("-n", dest="slots", type=common.whole, nargs="+", default=[4], metavar="N",
                        help="ranks of the program; several numbers in turn")  # fmt: skip
    parser.add_argument("--repeat", type=common.whole, metavar="K", default=argparse.SUPPRESS,
                        help="timed runs in each launch (default: for some seconds)")  # fmt: skip
    parser.add_argument("--interval", type=common.positive, default=1.0, metavar="SECONDS",
                        help="between checkpoints of f-no-daly")  # fmt: skip
    parser.add_argument("--mtbf", type=common.positive, default=3600.0, metavar="SECONDS",
                        help="mean time between failures, for f-daly")  # fmt: skip
    parser.add_argument("--spares", type=common.whole_or_none, default=1, metavar="S",
                        help="spare processes of the protected variants")  # fmt: skip
    options = parser.parse_args(arguments)
    options.repeat = getattr(options, "repeat", REPEAT[options.problem_class])
    return options


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = common.begin("ft")
    report.update(
        problem_class=options.problem_class, ranks=options.slots, rounds=options.rounds,
        repeat=options.repeat, interval_s=options.interval, mtbf_s=options.mtbf,
        spares=options.spares,
        units={"seconds_*": "s", "mops": "Mop/s", "*_percent": "%", "*_bytes": "B"},
    )  # fmt: skip
    report["results"] = [measure(slots, options) for slots in options.slots]
    common.finish(report, options, text(report))
    if "plot" in options:
        draw(report, options.plot)
    return 0


# ---- measuring ------------------------------------------------------------------------------


def measure(slots: int, options: Namespace) -> JsonObject:
    """All rounds of all variants with this many slots."""
    runs: dict[str, list[JsonObject]] = {name: [] for name in variants(options)}
    for number in range(options.rounds):
        for name, run_options in variants(options).items():
            common.progress(f"ft: {slots} ranks, round {number + 1}/{options.rounds}, {name}")
            runs[name].append(launch(slots, options, run_options))
    return {
        "slots": slots,
        "variants": {name: summary(found, runs[BASELINE]) for name, found in runs.items()},
    }


def launch(slots: int, options: Namespace, run_options: list[str] | None) -> JsonObject:
    """One launch: its typical and mean time, and its checkpoints."""
    program = ["--class", options.problem_class, "--repeat", str(options.repeat)]
    stats: JsonObject = {"checkpoints": []}
    if run_options is None:
        report = common.run(common.plain(slots, SCRIPT, program), options.timeout)
    else:
        report, stats = common.run_protected(slots, SCRIPT, program, run_options, options.timeout)
    if report["verified"] is not True:
        raise BenchError(f"the checksums of FT are wrong with {slots} ranks and {run_options}")
    seconds = statistics.median(report["seconds_each"])
    return {
        "seconds_median": seconds,
        "seconds_mean": statistics.fmean(report["seconds_each"]),
        "seconds_fastest": report["seconds"],
        "mops": report["mops"] * report["seconds"] / seconds,  # mops is that of the fastest run
        "checkpoints": stats["checkpoints"],
    }


def summary(runs: list[JsonObject], baseline: list[JsonObject]) -> JsonObject:
    """Spreads over the rounds of one variant."""

    def overhead(key: str) -> list[float]:
        pairs = common.ratios([r[key] for r in runs], [b[key] for b in baseline])
        return [100 * (ratio - 1) for ratio in pairs]

    checkpoints = [c for r in runs for c in r["checkpoints"]]
    found: JsonObject = {key: spread(r[key] for r in runs)
                         for key in (*(f"seconds_{t}" for t in TIMES), "mops")}  # fmt: skip
    found["verified"] = True  # or the launch was an error
    found["checkpoints_per_launch"] = spread(len(r["checkpoints"]) for r in runs)
    for key in ("bytes", "dirty_bytes", "seconds"):
        if checkpoints:
            found[f"checkpoint_{key}"] = spread(c[key] for c in checkpoints)
    if runs is not baseline:
        for key in TIMES:
            each = overhead(f"seconds_{key}")
            found[f"overhead_{key}_percent"] = spread(each)
            found[f"overhead_{key}_percent_each"] = each
    return found


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The table for people."""
    lines = [
        f"NAS FT class {report['problem_class']}, {report['rounds']} rounds of {report['repeat']} "
        "runs for each variant; overhead against no-FT of the same round; median (min .. max) "
        "over the rounds.",
        f"f-daly: MTBF {report['mtbf_s']:g} s; f-no-daly: every {report['interval_s']:g} s; "
        "every-fence: at each safepoint; 'all runs' contains those in which a checkpoint fell.",
    ]
    for result in report["results"]:
        rows = [["variant", "s per run", "Mop/s", "overhead %: typical run", "all runs", "fastest",
                 "checkpoints", "bytes each", "held up ms", "verified"]]  # fmt: skip
        rows += [row(name, found) for name, found in result["variants"].items()]
        lines += ["", f"{result['slots']} ranks", common.table(rows)]
        lines += [
            f"note: {name} came to no checkpoint; its cost is that of the calls alone (a larger "
            "--repeat makes launches longer)"
            for name, found in result["variants"].items()
            if name != BASELINE and not found["checkpoints_per_launch"]["max"]
        ]
    return "\n".join(lines)


def row(name: str, found: JsonObject) -> list[str]:
    def overhead(key: str) -> str:
        values = found.get(f"overhead_{key}_percent")
        return common.with_range(values, 1) if values else "-"

    fastest = found.get("overhead_fastest_percent")
    size, held = found.get("checkpoint_bytes"), found.get("checkpoint_seconds")
    return [
        name,
        f"{found['seconds_median']['median']:.4f}",
        f"{found['mops']['median']:.0f}",
        overhead("median"),
        overhead("mean"),
        f"{fastest['median']:.1f}" if fastest else "-",
        f"{found['checkpoints_per_launch']['median']:g}" if name != BASELINE else "-",
        common.size_text(size["median"]) if size else "-",
        f"{1e3 * held['median']:.2f}" if held else "-",
        "yes",
    ]


def draw(report: JsonObject, path: Any) -> None:
    """Performance of each variant, grouped by the number of ranks; overheads over the bars."""
    plt = common.pyplot()
    results = report["results"]
    figure, axes = plt.subplots(figsize=(2.4 + 1.8 * len(results), 3))
    names = list(results[0]["variants"])
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        found = [r["variants"][name] for r in results]
        mops = [f["mops"] for f in found]
        places = [g + (i - (len(names) - 1) / 2) * width for g in range(len(results))]
        bars = axes.bar(
            places, [m["median"] for m in mops], width * 0.92, color=COLORS[name], label=name,
            yerr=common.whiskers(mops), capsize=2, error_kw={"lw": 0.8},
        )  # fmt: skip
        if name != BASELINE:
            labels = [f"{f['overhead_mean_percent']['median']:+.1f} %" for f in found]
            axes.bar_label(bars, labels, label_type="center", fontsize=7, rotation=90,
                           color="k" if name == "f-no-daly" else "w")  # fmt: skip
    axes.set_xticks(range(len(results)), [str(r["slots"]) for r in results])
    axes.set_xlabel("ranks")
    axes.set_ylabel("performance [Mop/s]")
    axes.set_title(f"NAS FT class {report['problem_class']}; in the bars: overhead of all runs",
                   fontsize=9, loc="left", pad=24)  # fmt: skip
    axes.grid(axis="y")
    axes.set_ylim(bottom=0)
    axes.legend(ncols=len(names), loc="lower left", bbox_to_anchor=(0, 1), fontsize=7,
                columnspacing=0.9, handlelength=1, borderaxespad=0.2)  # fmt: skip
    common.save(figure, path, report)
