"""Measures the cost of protection for a whole program: NAS FT, unprotected and in several ways.

Four questions, each with sides of its own; every launch is one side, and sides take turns (names
as in figures 10 and 11 of Besta & Hoefler):

  what do checkpoints cost?  (figure 10d)
    no-FT        under mpirun, nothing of ftrma loaded
    f-daly       protected, time between checkpoints after Daly
    f-no-daly    protected, a fixed time between checkpoints
    every-fence  protected, a checkpoint at every safepoint: one after each transform, whose fences
                 end all accesses
    own-RAM      under mpirun; the program writes as much to files in tmpfs, as often as f-no-daly
    own-PFS      the same on a disk, with fsync (the paper's SCR-RAM and SCR-PFS, without their XOR)
  --logging: what do logs cost?  (figure 11b)
    no-FT
    f            protected with logs, no checkpoints but those that full logs demand
    ML           message logging with extra logger processes
  --demand: what do small logs cost?  (figure 11a)
    no-FT
    bulk-SIZE    as f with logs of this size, demand checkpoints in bulk
    stream-SIZE  the same, as a stream

  --awareness: what do the number of checksum ranks and their places cost? (section 7.2.1)
    no-FT
    f-K          as f-daly, a checksum rank for each K slots; processes are wherever they come
    f-K-nodes    no two processes of a group, checksum rank included, share a node

The sides of the first and the last question take checkpoints and log nothing.

A launch runs the benchmark many times in one process, after its warm-up. Three times are taken from
it. The median is a typical run. The mean contains also the runs in which a checkpoint happened to
fall, so it is the cost of protection for a long program, with more noise. The fastest is the least
disturbed by other work on the machine, and by checkpoints. Each is compared with that of no-FT in
the same round.

With --logging and --demand, where no checkpoint goes by the clock, the sides of a round are alive
together and take turns of a moment each; typical runs are compared turn by turn. There the first
third of a launch's runs is its warm-up: windows, logs and checkpoints take their memory in it.

Protected sides start a checksum rank and the spares beside the slots, message logging its loggers;
where there are fewer cores than processes they compete with the program, as they would for any user
there.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ftrma.launch.mpirun import words_for_nodes

from . import common, figures, ft_demand, launching, sides
from .common import Parser, spread
from .launching import HERE, BenchError, JsonObject, Started, ignore
from .sides import BASELINE, ML, Side
from .turns import take_turns

SCRIPT = HERE / "apps" / "ft.py"
TIMES = ("median", "mean", "fastest")
# Runs in a launch: enough for some seconds, so that checkpoints come due in it.
REPEAT = {"S": 400, "W": 100, "A": 15, "B": 3}
# Seconds of a turn: some runs each.
TURN_S = {"S": 0.2, "W": 0.4, "A": 6.0, "B": 60.0}
# Highest overhead of logging in percent that the project aims at, for a typical run.
TARGETS = {"f": 4.0}
# The paper's overheads in percent, section 7.2.1; it has ML about 9 % behind f.
PAPER = {"f-daly": "1 to 5", "f-no-daly": "1 to 15", "f": "8", ML: "17", "own-RAM": "21 to 37",
         "own-PFS": "46 to 67"}
PAPER_AWARENESS = "1 to 5"


def sides_of(options: Namespace) -> dict[str, Side]:
    """The sides of the question that is asked, the baseline first."""
    spares = ["--spares", str(options.spares)]
    logs = [*spares, "--policy", "auto", "--interval", "never"]
    found: dict[str, Side] = {BASELINE: sides.unprotected}
    if options.demand:
        return found | ft_demand.sides_of(options, logs)
    if options.logging:
        if options.log_budget:
            logs += ["--log-budget", str(options.log_budget[0])]
        return found | {"f": sides.protected(*logs), ML: sides.message_logging(options)}
    spares += ["--policy", "rollback"]  # checkpoints alone, as in figure 10
    daly = [*spares, "--interval", "daly", "--mtbf", str(options.mtbf)]
    if options.awareness:
        return awareness_sides(options, daly)
    found |= {
        "f-daly": sides.protected(*daly),
        "f-no-daly": sides.protected(*spares, "--interval", str(options.interval)),
        "every-fence": sides.protected(*spares, "--interval", "0"),
        "own-RAM": own_files("/dev/shm", options.interval),
        "own-PFS": own_files(options.directory, options.interval, "--durable"),
    }
    return {name: side for name, side in found.items()
            if name == BASELINE or name in (options.only or found)}


def awareness_sides(options: Namespace, daly: Sequence[str]) -> dict[str, Side]:
    """The sides of --awareness, all on the nodes that --mpirun names."""
    nodes = ["--mpirun", options.mpirun] if options.mpirun else []

    def unprotected(slots: int, script: Path, arguments: Sequence[str], limit_s: float,
                    started: Started) -> tuple[JsonObject, JsonObject]:
        words = shlex.split(options.mpirun)
        command = launching.plain(slots, script, arguments, words, words_for_nodes)
        return launching.run(command, limit_s, started), {}

    found: dict[str, Side] = {BASELINE: unprotected}
    for level, suffix in (("none", ""), ("nodes", "-nodes")):
        for k in options.groups:
            found[f"f-{k}{suffix}"] = sides.protected(
                *daly, *nodes, "--aware", level, "--group-size", str(k))
    return found


def own_files(directory: str, every_s: float, *flags: str) -> Side:
    """A side without ftrma whose program writes checkpoints to files of its own."""

    def side(
        slots: int, script: Path, arguments: Sequence[str], limit_s: float, started: Started
    ) -> tuple[JsonObject, JsonObject]:
        with tempfile.TemporaryDirectory(prefix="bench-ftrma-", dir=directory) as files:
            report, _ = sides.unprotected(
                slots, script, [*arguments, "--save", files, "--every", str(every_s), *flags],
                limit_s, started)
            size_bytes = sum(file.stat().st_size for file in Path(files).glob("*.npy"))
        return report, {"checkpoints": [
            {"kind": "own", "bytes": size_bytes, "dirty_bytes": size_bytes, "seconds": seconds}
            for seconds in report["saved_seconds"]]}

    return side


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("ft", "Overhead of protection on NAS FT.")
    question = parser.add_mutually_exclusive_group()
    question.add_argument("--logging", action="store_true",
                          help="what logs cost, instead of checkpoints")
    question.add_argument("--demand", action="store_true",
                          help="what small logs cost, by demand checkpoints")
    question.add_argument("--awareness", action="store_true",
                          help="what the number and the places of checksum ranks cost")
    parser.add_argument("--only", nargs="+", choices=("f-daly", "f-no-daly", "every-fence",
                                                      "own-RAM", "own-PFS"),
                        metavar="SIDE", default=[],
                        help="of the sides without another question, beside no-FT")
    parser.add_argument("--groups", type=common.whole, nargs="+", default=[4, 2], metavar="K",
                        help="with --awareness: slots of a group, each of which has a checksum "
                        "rank")
    parser.add_argument("--mpirun", default="", metavar="OPTIONS",
                        help="with --awareness: the launcher's, that name the nodes")
    parser.add_argument("--class", dest="problem_class", default="W", choices=("S", "W", "A", "B"),
                        help="problem class of NPB")
    parser.add_argument("-n", dest="slots", type=common.whole, nargs="+", default=[4], metavar="N",
                        help="ranks of the program; several numbers in turn")
    parser.add_argument("--repeat", type=common.whole, metavar="K", default=argparse.SUPPRESS,
                        help="timed runs in each launch (default: for some seconds)")
    parser.add_argument("--interval", type=common.positive, default=1.0, metavar="SECONDS",
                        help="between checkpoints of f-no-daly")
    parser.add_argument("--mtbf", type=common.positive, default=3600.0, metavar="SECONDS",
                        help="mean time between failures, for f-daly")
    parser.add_argument("--log-budget", type=common.size, nargs="+", metavar="SIZE", default=[],
                        help="memory for logs of each slot; several with --demand")
    parser.add_argument("--directory", default=".", metavar="DIR",
                        help="on the disk for the files of own-PFS")
    parser.add_argument("--spares", type=common.whole_or_none, default=1, metavar="S",
                        help="spare processes of the protected sides")
    sides.add_message_logging(parser)
    options = parser.parse_args(arguments)
    if options.mpirun and not options.awareness:
        parser.error("--mpirun goes with --awareness; calls over nodes: python -m bench nodes")
    if options.only and (options.logging or options.demand or options.awareness):
        parser.error(f"--only {' '.join(options.only)}: those are sides without another question")
    options.repeat = getattr(options, "repeat", REPEAT[options.problem_class])
    if options.demand and not options.log_budget:
        options.log_budget = [mib << 20 for mib in ft_demand.BUDGETS_MIB[options.problem_class]]
    elif not options.demand and len(options.log_budget) > options.logging:
        parser.error("--log-budget takes one size with --logging, several with --demand")
    return options


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    question = " ".join(["ft", *(f"--{name}" for name in ("logging", "demand", "awareness")
                                 if getattr(options, name))])
    report = common.begin(question)
    report.update(
        problem_class=options.problem_class, ranks=options.slots, rounds=options.rounds,
        repeat=options.repeat, interval_s=options.interval, mtbf_s=options.mtbf,
        spares=options.spares, loggers=options.loggers, launcher=options.mpirun,
        units={"seconds_*": "s", "mops": "Mop/s", "*_percent": "%", "*_bytes": "B"},
    )
    report["results"] = [measure(slots, options) for slots in options.slots]
    telling = (ft_demand.text, ft_demand.draw) if options.demand else (text, draw)
    common.finish(report, options, *telling)
    return 0


# ---- measuring ------------------------------------------------------------------------------


def measure(slots: int, options: Namespace) -> JsonObject:
    """All rounds of all sides with this many slots."""
    program = ["--class", options.problem_class, "--repeat", str(options.repeat)]
    compared, heading = sides_of(options), f"ft: {slots} ranks"
    if options.logging or options.demand:
        limit_s = options.timeout * len(compared)
        launches = {
            name: partial(launch, side, slots, program, limit_s) for name, side in compared.items()
        }
        runs: dict[str, list[JsonObject]] = {name: [] for name in compared}
        for number in range(options.rounds):
            common.progress(f"{heading}, round {number + 1}/{options.rounds}")
            found = take_turns(launches, TURN_S[options.problem_class])
            by_turn(found)
            for name, run in found.items():
                runs[name].append(run)
    else:
        runs = sides.in_turn(
            compared, options.rounds, heading,
            lambda side: launch(side, slots, program, options.timeout),
        )
    return {
        "slots": slots,
        "variants": {name: summary(found, runs[BASELINE]) for name, found in runs.items()},
    }


def launch(
    side: Side, slots: int, program: list[str], limit_s: float, started: Started = ignore
) -> JsonObject:
    """One launch: its typical and mean time, its checkpoints and logs."""
    report, stats = side(slots, SCRIPT, program, limit_s, started)
    if report["verified"] is not True:
        raise BenchError(f"the checksums of FT are wrong with {slots} ranks")
    seconds = statistics.median(report["seconds_each"])
    return {
        "each": list(zip(report["began_each"], report["seconds_each"], strict=True)),
        "seconds_median": seconds,
        "seconds_mean": statistics.fmean(report["seconds_each"]),
        "seconds_fastest": report["seconds"],
        "mops": report["mops"] * report["seconds"] / seconds,  # mops is that of the fastest run
        **sides.told(stats),
    }


def by_turn(found: dict[str, JsonObject]) -> None:
    """Give the launches of a round the times of those warm runs that lie within a turn of theirs.

    Turns in which a side has no such run do not count. A typical run is one of a turn: there is
    a value for each. The others are of all these runs.
    """
    whole = [
        [[s for t, s in run["each"][len(run["each"]) // 3 :] if began <= t and t + s <= ended]
         for began, ended in run["turns"]]
        for run in found.values()
    ]
    cycles = [cycle for cycle in zip(*whole, strict=False) if all(cycle)]
    if not cycles:
        raise BenchError("no run lies within a turn; give a larger --repeat")
    for run, mine in zip(found.values(), zip(*cycles, strict=True), strict=True):
        seconds = [s for turn in mine for s in turn]
        run["seconds_median"] = [statistics.median(turn) for turn in mine]
        run["seconds_mean"], run["seconds_fastest"] = statistics.fmean(seconds), min(seconds)
        run["mops"] *= statistics.median(s for _, s in run["each"]) / statistics.median(seconds)
        run["turns"] = len(cycles)


def summary(runs: list[JsonObject], baseline: list[JsonObject]) -> JsonObject:
    """Spreads over the rounds of one side."""
    found: JsonObject = {key: spread(sides.value(r[key]) for r in runs)
                         for key in (*(f"seconds_{t}" for t in TIMES), "mops")}
    found["verified"] = True  # or the launch was an error
    found.update(sides.summary_of_told(runs))
    if runs is not baseline:
        for key in TIMES:
            overhead, each = sides.overheads(runs, baseline, f"seconds_{key}")
            found[f"overhead_{key}_percent"] = overhead
            found[f"overhead_{key}_percent_each"] = each
    return found


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The table for people."""
    lines = [
        f"NAS FT class {report['problem_class']}, {report['rounds']} rounds of {report['repeat']} "
        "runs for each variant; overhead against no-FT of the same round; median (min .. max) "
        "over the rounds.",
        legend(report),
    ]
    for result in report["results"]:
        rows = [["variant", "s per run", "Mop/s", "overhead %: typical run", "all runs", "paper",
                 "fastest", "target", "checkpoints", "bytes each", "held up ms", "logged",
                 "verified"]]
        rows += [row(name, found) for name, found in result["variants"].items()]
        lines += ["", f"{result['slots']} ranks", common.table(sides.filled(rows))]
        lines += [
            f"note: {name} came to no checkpoint; its cost is that of the calls alone (a larger "
            "--repeat makes launches longer)"
            for name, found in result["variants"].items()
            if "overhead_median_percent" in found
            and report["benchmark"] in ("ft", "ft --awareness")
            and not found["checkpoints_per_launch"]["max"]
        ]
    return "\n".join(lines)


def legend(report: JsonObject) -> str:
    if report["benchmark"] == "ft --logging":
        return (
            f"f: protected with logs, no checkpoints but on demand; ML: {report['loggers']} logger "
            "process(es)."
        )
    if report["benchmark"] == "ft --awareness":
        return (
            f"f-K: a checksum rank for each K slots, MTBF {report['mtbf_s']:g} s; f-K-nodes: no "
            "two processes of a group share a node."
        )
    return (
        f"f-daly: MTBF {report['mtbf_s']:g} s; f-no-daly: every {report['interval_s']:g} s; "
        "every-fence: at each safepoint; own-RAM, own-PFS: files that the program writes, in tmpfs "
        "and on a disk, every so often as f-no-daly (paper: SCR-RAM, SCR-PFS); 'all runs' contains "
        "those in which a checkpoint fell."
    )


def row(name: str, found: JsonObject) -> list[str]:
    def overhead(key: str) -> str:
        values = found.get(f"overhead_{key}_percent")
        return common.with_range(values, 1, 0) if values else "-"

    fastest = found.get("overhead_fastest_percent")
    size, held = found.get("checkpoint_bytes"), found.get("checkpoint_seconds")
    aim, target = TARGETS.get(name), "-"
    if aim:
        met = "met" if found["overhead_median_percent"]["median"] <= aim else "missed"
        target = f"<= {aim:g} {met}"
    return [
        name,
        f"{found['seconds_median']['median']:.4f}",
        f"{found['mops']['median']:.0f}",
        overhead("median"),
        overhead("mean"),
        paper(name),
        f"{fastest['median']:.1f}" if fastest else "-",
        target,
        f"{found['checkpoints_per_launch']['median']:g}" if name not in (BASELINE, ML) else "-",
        common.size_text(size["median"]) if size else "-",
        f"{1e3 * held['median']:.2f}" if held else "-",
        sides.logged(found),
        "yes",
    ]


def paper(name: str) -> str:
    """The paper's overhead for a side, in percent, or "-"."""
    counted = name.startswith("f-") and name.split("-")[1].isdigit()
    return PAPER_AWARENESS if counted else PAPER.get(name, "-")


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
            places, [m["median"] for m in mops], width * 0.92, color=sides.COLORS.get(name),
            label=name, yerr=common.whiskers(mops), capsize=2, error_kw={"lw": 0.8},
        )
        if name != BASELINE:
            labels = [f"{f['overhead_mean_percent']['median']:+.1f} %" for f in found]
            bounds = figures.range_of(paper(name))
            figures.beside(axes, places, [bounds and slower(r, bounds) for r in results],
                           upright=True)
            axes.bar_label(bars, labels, label_type="center", fontsize=7, rotation=90,
                           color="k" if name in ("f-no-daly", ML) else "w")
    axes.set_xticks(range(len(results)), [str(r["slots"]) for r in results])
    axes.set_xlabel("ranks")
    axes.set_ylabel("performance [Mop/s]")
    axes.set_title(f"NAS FT class {report['problem_class']}; in the bars: overhead of all runs",
                   fontsize=9, loc="left", pad=24)
    axes.grid(axis="y")
    axes.set_ylim(bottom=0)
    shown = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))  # each label once
    axes.legend(shown.values(), shown, ncols=len(shown), loc="lower left", bbox_to_anchor=(0, 1),
                fontsize=7, columnspacing=0.9, handlelength=1, borderaxespad=0.2)
    common.save(figure, path, report)


def slower(result: JsonObject, percent: figures.Range) -> figures.Range:
    """The unprotected performance of a result, less by these overheads."""
    whole = result["variants"][BASELINE]["mops"]["median"]
    return whole / (1 + percent[1] / 100), whole / (1 + percent[0] / 100)
