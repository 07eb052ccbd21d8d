"""Measures the cost of logs for the key-value store: inserts with atomics, flushed one by one.

Sides, each a launch of its own (names as in figure 11c of Besta & Hoefler):

  no-FT        under mpirun, nothing of ftrma loaded
  f-puts       protected, puts are logged (an atomic is a put, too)
  f-puts-gets  protected, puts and gets are logged
  ML           message logging with extra logger processes

Protected sides take no checkpoints but those that full logs demand. Between inserts a slot thinks:
with a duty of 0.1, inserts take a tenth of the time. All sides think equally long, by the
cost of inserts in an unprotected launch before each round, so a dearer insert makes the run longer
and not the thinking too. Overheads are those of the whole time, thinking included; the
sides of a round are alive together and take turns of a moment each.

More slots than cores share the cores, also with the extra processes.
"""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from functools import partial
from typing import Any

from . import common, figures, sides
from .common import Parser, spread
from .launching import HERE, BenchError, JsonObject, Started, ignore
from .sides import BASELINE, ML, Side
from .turns import active_s, take_turns

SCRIPT = HERE / "apps" / "dht.py"
# Highest overhead in percent that the project aims at, at a duty of 0.1.
TARGETS = {"f-puts": 3.0, "f-puts-gets": 8.0}
TARGET_DUTY = 0.1
PAPER = {"f-puts": "12", "f-puts-gets": "33", ML: "40"}  # its overheads at 256 ranks, figure 11c
# Inserts per slot at a duty of 1; as many fewer as thinking takes longer, so that launches at all
# duties take about as long, some two seconds.
INSERTS = 200_000
TURN_S = 0.3


def duty(text: str) -> float:
    value = common.positive(text)
    if value > 1:
        raise ArgumentTypeError(f"{text} is no share of the time; give a number above 0, at most 1")
    return value


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("dht", "Overhead of logging on the key-value store.")
    parser.add_argument("-n", dest="slots", type=common.whole, nargs="+", default=[2, 4],
                        metavar="N", help="slots; several numbers in turn")
    parser.add_argument("--duty", type=duty, nargs="+", default=[0.1, 1.0], metavar="SHARE",
                        help="share of time that inserts take in no-FT; 1: all of it")
    parser.add_argument("--inserts", type=common.whole, metavar="K", default=None,
                        help="per slot (default: for some seconds)")
    parser.add_argument("--log-budget", type=common.size, metavar="SIZE", default=None,
                        help="of the protected sides (default: that of `ftrma run`)")
    parser.add_argument("--spares", type=common.whole_or_none, default=1, metavar="S",
                        help="spare processes of the protected sides")
    sides.add_message_logging(parser)
    return parser.parse_args(arguments)


def sides_of(options: Namespace) -> dict[str, Side]:
    """The sides, the baseline first."""
    more = ["--policy", "auto", "--interval", "never", "--spares", str(options.spares)]
    if options.log_budget:
        more += ["--log-budget", str(options.log_budget)]
    return {
        BASELINE: sides.unprotected,
        "f-puts": sides.protected(*more, "--log", "puts"),
        "f-puts-gets": sides.protected(*more, "--log", "all"),
        ML: sides.message_logging(options),
    }


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = common.begin("dht")
    report.update(
        slots=options.slots, duties=options.duty, rounds=options.rounds, spares=options.spares,
        loggers=options.loggers, units={"seconds": "s", "inserts_per_second": "1/s"},
    )
    report["results"] = [
        measure(slots, share, options) for share in options.duty for slots in options.slots
    ]
    common.finish(report, options, text, draw)
    return 0


# ---- measuring ------------------------------------------------------------------------------


def measure(slots: int, share: float, options: Namespace) -> JsonObject:
    """All rounds of all sides with so many slots that insert for this share of the time."""
    inserts = options.inserts or max(1, round(INSERTS * share))
    program = ["--inserts", str(inserts), "--lookups", "0"]
    compared = sides_of(options)
    limit_s = options.timeout * len(compared)

    def launch(pause: list[str], side: Side, started: Started) -> JsonObject:
        report, stats = side(slots, SCRIPT, [*program, *pause], limit_s, started)
        if report["verified"] is not True:
            raise BenchError(f"the store's content is wrong with {slots} slots and {pause}")
        return {**report, **sides.told(stats)}

    runs: dict[str, list[JsonObject]] = {name: [] for name in compared}
    for number in range(options.rounds):
        common.progress(f"dht: {slots} slots, duty {share:g}, round {number + 1}/{options.rounds}")
        thinking = launch(["--duty", str(share)], sides.unprotected, ignore)["think_us"]
        pause = ["--think-us", str(thinking)]
        found = take_turns(
            {name: partial(launch, pause, side) for name, side in compared.items()}, TURN_S
        )
        for name, run in found.items():
            runs[name].append(in_turns(run))
    return {
        "slots": slots, "duty": share, "inserts_per_slot": inserts,
        "sides": {name: summary(found, runs[BASELINE]) for name, found in runs.items()},
    }


def in_turns(run: JsonObject) -> JsonObject:
    """The report of a launch, its time without that in which it was stopped."""
    began, ended = run["began"], run["began"] + run["seconds"]
    seconds = active_s(run.pop("turns"), began, ended)
    return {**run, "seconds": seconds, "inserts_per_second": run["inserts"] / seconds}


def summary(runs: list[JsonObject], baseline: list[JsonObject]) -> JsonObject:
    """Spreads over the rounds of one side."""
    keys = ("seconds", "inserts_per_second", "think_us", "duty")
    found: JsonObject = {key: spread(r[key] for r in runs) for key in keys}
    found["verified"] = True  # or the launch was an error
    found.update(sides.summary_of_told(runs))
    if runs is not baseline:
        overhead, each = sides.overheads(runs, baseline, "seconds")
        found["overhead_percent"] = overhead
        found["overhead_percent_each"] = each
    return found


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The tables for people."""
    lines = [
        f"Key-value store, {report['rounds']} rounds; overhead in time against no-FT of the same "
        "round, thinking included; median (min .. max) over the rounds.",
        f"All sides think as long as no-FT; ML has {report['loggers']} logger process(es).",
    ]
    for result in report["results"]:
        rows = [["side", "inserts/s", "overhead %", "paper", "target", "inserting", "logged",
                 "checkpoints", "verified"]]
        rows += [row(name, found, result["duty"]) for name, found in result["sides"].items()]
        lines += ["", f"{result['slots']} slots, duty {result['duty']:g}, "
                  f"{result['inserts_per_slot']} inserts each", common.table(rows)]
    return "\n".join(lines)


def row(name: str, found: JsonObject, share: float) -> list[str]:
    overhead = found.get("overhead_percent")
    aim = TARGETS.get(name) if share == TARGET_DUTY else None
    met = "met" if overhead and aim and overhead["median"] <= aim else "missed"
    protected = name not in (BASELINE, ML)
    return [
        name,
        f"{found['inserts_per_second']['median']:.0f}",
        common.with_range(overhead, 1, 0) if overhead else "-",
        PAPER.get(name, "-"),
        f"<= {aim:g} {met}" if aim else "-",
        f"{found['duty']['median']:.2f}",
        sides.logged(found),
        f"{found['checkpoints_per_launch']['median']:g}" if protected else "-",
        "yes",
    ]


def draw(report: JsonObject, path: Any) -> None:
    """Inserts per second over the number of slots, a panel for each duty (figure 11c)."""
    plt = common.pyplot()
    duties = report["duties"]
    figure, panels = plt.subplots(
        1, len(duties), figsize=(0.6 + 3 * len(duties), 2.7), squeeze=False, layout="constrained"
    )
    for axes, share in zip(panels[0], duties, strict=True):
        results = [r for r in report["results"] if r["duty"] == share]
        for i, name in enumerate(results[0]["sides"]):
            found = [r["sides"][name]["inserts_per_second"] for r in results]
            # A little apart, so that whiskers can be told from each other.
            places = [r["slots"] * (1 + 0.015 * (i - 1.5)) for r in results]
            axes.errorbar(
                places, [f["median"] / 1e3 for f in found], yerr=common.whiskers(found, 1e-3),
                fmt=sides.MARKERS.get(name, "^"), ls="-", ms=4, lw=1, capsize=2,
                color=sides.COLORS[name], label=name,
            )
            bounds = figures.range_of(PAPER.get(name, ""))
            if bounds and share == TARGET_DUTY:
                whole = results[-1]["sides"][BASELINE]["inserts_per_second"]["median"] / 1e3
                each = whole / (1 + bounds[0] / 100)
                figures.beside(axes, places[-1:], [(each, each)], upright=True)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xticks(report["slots"], minor=False)
        axes.set_xlabel("slots (log scale)")
        axes.set_title(f"inserts take {100 * share:g} % of no-FT's time", fontsize=9, loc="left")
        axes.grid(axis="y")
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])  # no marker touches the frame
    panels[0][0].set_ylabel("thousand inserts per second")
    shown = {label: handle for axes in panels[0]
             for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown, ncols=5, loc="outside upper left", fontsize=8,
                  handlelength=1.5)
    common.save(figure, path, report)
