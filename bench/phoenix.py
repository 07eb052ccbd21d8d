"""Measures Phoenix's recovery: its cost without a failure, and the rounds more with one.

Without a failure a job under ``ftrma run`` and one under plain mpirun take turns of seconds; each
makes one run again and again. Times of rounds and of whole runs are compared turn by turn. The
target is for the sum of the rounds if each is as fast as it ever was, which other work on the
machine disturbs least. Then one of all slots, or half of them, are killed at once behind a share of
the rounds. There are no checkpoints. A round in which they die counts as one, and results have to
have equal bits but for PageRank, which has a tolerance.

With ``--faults`` the time that failures cost is measured, see ``phoenix_faults.py``.

With ``--cr 5 50 500`` runs with a checkpoint every so many rounds, to go back to, take turns with
those by Phoenix: that is the cost of checkpoints in memory for a whole run.

Source: R. Dathathri et al., "Phoenix: A Substrate for Resilient Distributed Graph Analytics",
ASPLOS 2019, section 6.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from typing import Any

from . import common, figures, launching, phoenix_faults, sides
from .common import Parser, spread
from .ft import by_turn
from .launching import HERE, BenchError, JsonObject
from .turns import take_turns

SCRIPT = HERE / "phoenix_app.py"
PROGRAMS = ("bfs", "cc", "pagerank", "kcore", "colour")
PERCENT = (25, 50, 75, 99)
TURN_S = 4.0  # the slowest program takes 2 s a run at rmat:14
# The paper's, section 5.2: percent that runs with a checkpoint every so many rounds take more.
PAPER_CR = {"5": "542", "50": "31", "500": "8"}
OVERHEAD, EXTRA = 1.0, 50.0  # percent, that are aimed at; of the extra rounds as a median


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("phoenix", "Recovery without a checkpoint and without a log.")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=list(PROGRAMS),
                        help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--graph", default="rmat:14", metavar="GRAPH", help="as ftrma graph has it")
    parser.add_argument("-n", dest="slots", type=common.whole, default=8, metavar="N",
                        help="slots that failures are among")
    parser.add_argument("--pair", type=common.whole, default=2, metavar="N",
                        help="slots that are timed without a failure")
    parser.add_argument("--repeat", type=common.whole_or_none, default=60, metavar="K",
                        help="runs in a launch without a failure; 0: none is timed")
    parser.add_argument("--faults", action="store_true",
                        help="time with failures, beside checkpoints (--cr: every 5 and 50 rounds)")
    parser.add_argument("--percent", type=common.whole, nargs="+", default=phoenix_faults.PERCENT,
                        metavar="P", help="with --faults: of the rounds, behind which slots are "
                        "lost")
    parser.add_argument("--cr", type=common.whole, nargs="+", default=[], metavar="K",
                        help="rounds between checkpoints; such runs are timed, too")
    options = parser.parse_args(arguments)
    for name in options.programs:
        if name not in PROGRAMS:
            parser.error(f"{name}: give one of {', '.join(PROGRAMS)}")
    if options.slots < 2:
        parser.error(f"-n {options.slots}: slot 0 counts the rounds, others die; give 2 or more")
    return options


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    if options.faults:
        return phoenix_faults.main(options)
    report = common.begin("phoenix")
    report.update(graph=options.graph, slots=options.slots, pair=options.pair,
                  repeat=options.repeat, rounds=options.rounds, cr=options.cr, found={})
    for name in options.programs:
        found = report["found"][name] = {"lost": lose(options, name)}
        if options.repeat:
            pairs = []
            for i in range(options.rounds):
                common.progress(f"phoenix: {name}, pair {i + 1} of {options.rounds}")
                pairs.append(pair(options, name))
            found["overhead"] = {what: spread(p[what] for p in pairs) for what in pairs[0]}
        if options.cr and options.repeat:
            costs = []
            for i in range(options.rounds):
                common.progress(f"phoenix: {name}, by checkpoints, {i + 1} of {options.rounds}")
                costs.append(checkpointed(options, name))
            found["cr"] = {every: spread(c[every] for c in costs) for every in costs[0]}
    common.finish(report, options, text, draw)
    return 0


def pair(options: Namespace, name: str) -> JsonObject:
    """Both sides in turns: percent that rounds and whole runs take longer with Phoenix."""
    words = [name, options.graph, str(options.repeat)]
    launches = {side: lambda started, how=how: how(options.pair, SCRIPT, words, options.timeout,
                                                   started)[0]
                for side, how in ((sides.BASELINE, sides.unprotected),
                                  ("phoenix", sides.protected("--spares", "1")))}
    runs = take_turns(launches, TURN_S)
    if len({run["crc"] for run in runs.values()}) != 1:
        raise BenchError(f"{name}: the sides have not come to the same bits")
    fastest = [runs[side]["fastest_s"] for side in ("phoenix", sides.BASELINE)]
    found = {"fastest, ms": 1e3 * fastest[0],
             "fastest, % more": 100 * (fastest[0] / fastest[1] - 1)}
    for what, place in (("rounds", 1), ("whole run", 2)):
        timed = {side: {**run, "mops": 1.0, "each": [(one[0], one[place]) for one in run["each"]]}
                 for side, run in runs.items()}
        by_turn(timed)
        overhead, _ = sides.overheads([timed["phoenix"]], [timed[sides.BASELINE]],
                                      "seconds_median")
        found[f"{what}, % more"] = overhead["median"]
        found[f"{what}, ms"] = 1e3 * statistics.median(timed["phoenix"]["seconds_median"])
    return found


def checkpointed(options: Namespace, name: str) -> dict[str, float]:
    """Percent that a whole run takes longer than by Phoenix, by rounds between checkpoints."""
    words = [name, options.graph, str(options.repeat)]
    side = sides.protected("--spares", "1")
    launches = {str(every): lambda started, every=every: side(
        options.pair, SCRIPT, [*words, f"cr:{every}" if every else "phoenix"], options.timeout,
        started)[0] for every in (0, *options.cr)}
    runs = take_turns(launches, TURN_S)
    if len({run["crc"] for run in runs.values()}) != 1:
        raise BenchError(f"{name}: Phoenix and checkpoints have not come to the same bits")
    timed = {every: {**run, "mops": 1.0, "each": [(one[0], one[2]) for one in run["each"]]}
             for every, run in runs.items()}
    by_turn(timed)
    phoenix = timed.pop("0")
    return {every: sides.overheads([run], [phoenix], "seconds_median")[0]["median"]
            for every, run in timed.items()}


def lose(options: Namespace, name: str) -> list[JsonObject]:
    """The rounds that each failure takes more, in percent of those without one."""
    without, crc, _ = launch(options, name, [])
    found = []
    for count in dict.fromkeys((1, options.slots // 2)):
        for percent in PERCENT:
            common.progress(f"phoenix: {name}, {count} lost at {percent} %")
            place = max(without * percent // 100, 1)
            # Every other one, from slot 1 on: slot 0 counts.
            rules = [f"{1 + 2 * i}@graph.compute:{place}" for i in range(count)]
            taken, other, recoveries_s = launch(options, name, rules)
            if other != crc and name != "pagerank":
                raise BenchError(f"{name}: {count} lost at {percent} %: a wrong result")
            taken += len(recoveries_s)  # rounds that were broken off
            found.append({"lost": count, "percent": percent, "rounds": without, "taken": taken,
                          "extra_percent": 100 * (taken / without - 1),
                          "recovery_ms": 1e3 * sum(recoveries_s)})
    return found


def launch(options: Namespace, name: str, rules: list[str]) -> tuple[int, int, list[float]]:
    """A run with these kills: rounds, a checksum of the result, and of each recovery (one, but for
    a slot that is late) the seconds until all are seated."""
    flags = ["--spares", str(len(rules)), "--interval", "never",
             *(word for rule in rules for word in ("--kill", rule))]
    said, stats = launching.run_protected(options.slots, SCRIPT, [name, options.graph, "1"], flags,
                                          options.timeout, deaths=len(rules))
    found = stats["recoveries"]
    if {recovery["kind"] for recovery in found} != {*["reentry"] * bool(rules)}:
        raise BenchError(f"{name}: recoveries that are no re-entries alone: {found}")
    return said["rounds"], said["crc"], [recovery["seconds"] for recovery in found]


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The tables for people."""
    return "\n".join([*text_without(report), *text_of_checkpoints(report), *text_of_losses(report)])


def text_without(report: JsonObject) -> list[str]:
    """The table of runs without a failure, if they were timed."""
    lines = []
    if report["repeat"]:
        names = [f"{what}, {of}" for what in ("fastest", "rounds", "whole run")
                 for of in ("ms", "% more")]
        rows = [["without a failure", *names, f"target (fastest) <= {OVERHEAD:g} %"]]
        for name, found in report["found"].items():
            over = found["overhead"]
            rows.append([name, *(common.with_range(over[what], against=0 if "%" in what else None)
                                for what in names),
                         met(over["fastest, % more"]["median"], OVERHEAD)])
        lines += [f"{report['graph']}, {report['pair']} slots, in turns of {TURN_S:g} s with plain "
                  f"mpirun; {report['rounds']} rounds; median (min .. max).",
                  "", common.table(rows), ""]
    return lines


def text_of_checkpoints(report: JsonObject) -> list[str]:
    """The table of runs with checkpoints, if there were any."""
    lines = []
    if any("cr" in found for found in report["found"].values()):
        rows = [["whole run, % more than by Phoenix", "rounds",
                 *(f"CR-{every}" for every in report["cr"])]]
        rows += [[name, str(found["lost"][0]["rounds"]),
                  *(common.with_range(cost, against=0) for cost in found["cr"].values())]
                 for name, found in report["found"].items()]
        paper = [PAPER_CR.get(str(every), "-") for every in report["cr"]]
        rows += [["the paper, section 5.2", "-", *paper]]
        lines += ["By checkpoints of all fields, one every so many rounds and one of the result.",
                  "", common.table(rows), ""]
    return lines


def text_of_losses(report: JsonObject) -> list[str]:
    """The table of runs in which slots were killed."""
    rows = [["rounds more, %", "rounds", *(f"{lost} of {report['slots']} at {percent} %"
                                           for lost, percent in places(report))]]
    for name, found in report["found"].items():
        rows.append([name, str(found["lost"][0]["rounds"]),
                     *(f"{row['extra_percent']:.0f}" for row in found["lost"])])
    every = [row for found in report["found"].values() for row in found["lost"]]
    extra = spread(row["extra_percent"] for row in every)
    less = sum(row["extra_percent"] < 100 for row in every)
    return [f"{report['graph']}, {report['slots']} slots, no checkpoint; slots killed behind so "
            "much of the rounds.", "", common.table(rows), "",
            f"All: {common.with_range(extra, 0)} %, target < {EXTRA:g} "
            f"{met(extra['median'], EXTRA)}; {less} of {len(every)} below 100 %."]


def met(value: float, aim: float) -> str:
    return "met" if value <= aim else "missed"


def places(report: JsonObject) -> list[tuple[int, int]]:
    first = next(iter(report["found"].values()))
    return [(row["lost"], row["percent"]) for row in first["lost"]]


def draw(report: JsonObject, path: Any) -> None:
    """Rounds more, by what was lost and when; what checkpoints cost, if they were timed."""
    plt = common.pyplot()
    costs = {name: found["cr"] for name, found in report["found"].items() if "cr" in found}
    figure, panels = plt.subplots(1, 1 + bool(costs), figsize=(5.2 + 3.6 * bool(costs), 2.4),
                                  layout="constrained", squeeze=False,
                                  width_ratios=[5, 3][:1 + bool(costs)])
    axis = panels[0][0]
    half = len(PERCENT)
    for i, (name, found) in enumerate(report["found"].items()):
        more = [row["extra_percent"] for row in found["lost"]]
        for first in range(0, len(more), half):  # a line for each number of slots
            axis.plot(range(first, first + half), more[first : first + half], "o-", ms=3, lw=1,
                      color=f"C{i}", label=None if first else name)
    labels = [f"{lost}, {percent} %" for lost, percent in places(report)]
    axis.set_xticks(range(len(labels)), labels, fontsize=7)
    axis.set_xlabel(f"slots lost of {report['slots']}, behind so much of the rounds")
    axis.set_ylabel("rounds more, %")
    axis.grid(axis="y")
    axis.legend(fontsize=7)
    if costs:
        every = [str(number) for number in report["cr"]]
        figures.bars(panels[0][1], [f"CR-{number}" for number in every],
                     {name: [cost[number] for number in every] for name, cost in costs.items()},
                     paper=[figures.range_of(PAPER_CR.get(number, "")) for number in every])
        panels[0][1].set_xlabel("whole run, % more than by Phoenix")
        panels[0][1].legend(fontsize=7)
    common.save(figure, path, report)
