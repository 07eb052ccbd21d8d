"""Measures snapshots of `ftrma.aic`: what they cost, what they archive, what they save.

In each round one job runs delta PageRank to one error with each mode of snapshots, in turn and in
another order each time: without snapshots, virtual, Chandy and Lamport's, synchronous, hybrid, and
virtual without aggregation (the paper's FAIC-D). The cost of a snapshot is the time that a run
takes more than the one without, divided by its snapshots, as in the paper. It is a difference of
two long times, and few messages may mean more updates. So the updates that a snapshot loses are
counted, too: while it is open, a slot stands still as long as it stages, waits, or has nothing to
do; without snapshots it has nothing to do for a part of the run, which is taken off.

On few cores workers wait for cores and not for each other. So there are paced runs, too, an
*emulation*: an update takes a fixed time, by sleeping, and on slow slots 1/0.6 of it, as on the
paper's slower machines. Messages are not slowed down.

With a death after a share of the updates the time to the error is compared with that of a run that
begins anew (Restart), and of other modes. Runs on more slots that sleep show how it scales. On one
slot and a million vertices the time stands beside that of scipy's power iteration to an equal
error.

Source: T. Zhou, L. Gao, X. Guan, "A Fault-Tolerant Distributed Framework for Asynchronous Iterative
Computations", IEEE TPDS 2021, section 5.
"""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from . import common, figures, launching
from .common import Parser, ratios, spread
from .launching import HERE, BenchError, JsonObject

SCRIPT = HERE / "aic_app.py"
MODES = ("virtual", "chandy-lamport", "synchronous", "hybrid", "faic-d")
SLOW = 1 / 0.6  # time of an update on the paper's slower machines
PARTS = ("unpaced", "paced", "skewed", "failure", "scaling", "single")
COSTS = PARTS[:3]
SCALES = (4, 8, 16)
DEATHS = (("paced", 0.2), ("paced", 0.3), ("paced", 0.8), ("skewed", 0.3))
LOST = ("virtual", "chandy-lamport", "synchronous")  # modes that are compared with a death
# The paper's: a snapshot of FAIC by one of another mode, figures 7 and 8; percent of the run that
# are saved with a death against Restart, section 5.4; percent by other modes, figures 11 and 12.
PAPER_SAVED = {("paced", 0.2): "12", ("paced", 0.8): "70"}
PAPER_LOST = {("paced", 0.3, "synchronous"): "-2", ("paced", 0.3, "chandy-lamport"): "-0.4",
              ("skewed", 0.3, "synchronous"): "-8", ("skewed", 0.3, "chandy-lamport"): "-0.4"}
PAPER = {("paced", "synchronous"): "0.51", ("paced", "chandy-lamport"): "0.90",
         ("skewed", "synchronous"): "0.31"}


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("aic", "Snapshots of asynchronous computations.")
    parser.add_argument("parts", nargs="*", metavar="PART", default=list(PARTS),
                        help=f"of {', '.join(PARTS)}")
    parser.add_argument("-n", dest="slots", type=common.whole, default=6, metavar="N",
                        help="slots, but in scaling and single")
    parser.add_argument("--graph", default="powerlaw:100000", metavar="GRAPH",
                        help="as ftrma aic has it")
    parser.add_argument("--single", default="powerlaw:1000000", metavar="GRAPH",
                        help="of single")
    parser.add_argument("--eps", type=common.positive, default=1e-6, metavar="E",
                        help="a vertex waits while less than this is new to it")
    parser.add_argument("--pace", type=common.positive, default=1e-5, metavar="S",
                        help="seconds of an update in paced runs")
    parser.add_argument("--slow", type=common.whole, default=2, metavar="K",
                        help="slots that are slower in skewed runs")
    parser.add_argument("--interval", type=common.positive, default=0.5, metavar="S",
                        help="seconds between two snapshots")
    parser.add_argument("--modes", type=modes, default=MODES, metavar="MODE,...",
                        help=f"measured beside virtual snapshots, of {', '.join(MODES[1:])}; "
                             "none: virtual ones alone")
    options = parser.parse_args(arguments)
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"{name}: give one of {', '.join(PARTS)}")
    if "plot" in options and options.parts == ["single"]:
        parser.error(f"--plot: the figure shows {', '.join(PARTS[:-1])}; measure one of them")
    if options.slots < 2:
        parser.error(f"-n {options.slots}: give 2 or more slots")
    if options.slow >= options.slots and {"skewed", "failure"} & {*options.parts}:
        parser.error(f"-n {options.slots}, --slow {options.slow}: give fewer slow slots")
    return options


def modes(text: str) -> tuple[str, ...]:
    """Read the modes that are measured; virtual snapshots are always among them."""
    asked = {"virtual", *text.split(",")} - {"none"}
    if asked - {*MODES}:
        raise argparse.ArgumentTypeError(f"{text}: give none, or some of {', '.join(MODES)}, with "
                                         "commas between")
    return tuple(mode for mode in MODES if mode in asked)


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = common.begin("aic")
    report.update(graph=options.graph, single_graph=options.single, slots=options.slots,
                  eps=options.eps, pace_s=options.pace, slow=options.slow,
                  interval_s=options.interval, rounds=options.rounds)
    for name in options.parts:
        report[name] = (costs(options, name) if name in COSTS else
                        {"failure": failures, "scaling": scaling, "single": single}[name](options))
    common.finish(report, options, text, draw)
    return 0


def paces(options: Namespace, part: str, slots: int) -> Any:
    """Seconds of an update: 0, a number, or one for each slot."""
    if part == "unpaced":
        return 0.0
    slow = options.slow if part == "skewed" else 0
    return [options.pace * (SLOW if slot >= slots - slow else 1.0) for slot in range(slots)]


def launch(options: Namespace, slots: int, words: Sequence[str], pace: Any, *,
           die: tuple[int, int] | None = None, graph: str = "", scipy: bool = False) -> JsonObject:
    """One job that runs with each of these snapshots, one after another."""
    asked = {"graph": graph or options.graph, "eps": options.eps, "pace": pace,
             "runs": list(words), "die": die, "scipy": scipy}
    found, stats = launching.run_protected(
        slots, SCRIPT, [json.dumps(asked)], ["--spares", "1" if die else "0", "--interval",
                                             "never"],
        options.timeout, deaths=int(die is not None))
    kinds = [recovery["kind"] for recovery in stats["recoveries"]]
    if kinds != ["reentry"] * (die is not None):
        raise BenchError(f"recoveries that are no re-entries: {kinds}")
    return found


def word_of(arm: str, interval_s: float) -> str:
    return arm if arm == "none" else f"{arm}:{interval_s}"


# ---- the cost of snapshots ------------------------------------------------------------------


def costs(options: Namespace, part: str) -> JsonObject:
    """Runs with each mode in turn; what each snapshot costs and archives."""
    rounds: list[dict[str, JsonObject]] = []
    turns = ("none", *options.modes)
    for i in range(options.rounds):
        common.progress(f"aic: {part}, round {i + 1} of {options.rounds}")
        turn = i % len(turns)
        order = [*turns[turn:], *turns[:turn]]
        found = launch(options, options.slots, [word_of(arm, options.interval) for arm in order],
                       paces(options, part, options.slots))
        rounds.append(dict(zip(order, found["runs"], strict=True)))
    arms = {arm: cost_of(arm, options.slots, rounds) for arm in options.modes}
    for arm in options.modes[1:]:
        for what in ("cost_s", "lost", "archived_entries", "archived_bytes"):
            arms[arm][f"virtual / this, {what}"] = spread(
                ratios(arms["virtual"]["each"][what], arms[arm]["each"][what]))
    return {"seconds": spread(r["none"]["seconds"] for r in rounds),
            "updates": spread(r["none"]["updates"] for r in rounds), "arms": arms}


def cost_of(arm: str, slots: int, rounds: Sequence[dict[str, JsonObject]]) -> JsonObject:
    """Figures of a mode, round by round and their spread.

    ``cost_s``: of a snapshot; ``lost``: updates for each; ``percent``: of the run;
    ``still_percent``: of the run, in which slots stood still; ``staging_percent``: in which they
    copied their state, which is a part of that; ``open_s``: of a snapshot in a slot; archived
    entries and bytes of each.
    """
    each: dict[str, list[float]] = {}
    for found in rounds:
        run, base = found[arm], found["none"]
        if not run["snapshots"]:
            raise BenchError(f"{arm}: a run of {run['seconds']:.2f} s has no snapshot; give a "
                             "shorter --interval")
        more = run["seconds"] - base["seconds"]
        idle = base["idle_s"] / (base["idle_s"] + base["computing_s"])
        still_s = run["still_s"] - idle * run["open_s"]
        for what, value in (
                ("snapshots", run["snapshots"]), ("percent", 100 * more / base["seconds"]),
                ("cost_s", more / run["snapshots"]),
                ("lost", still_s * run["updates"] / run["computing_s"] / run["snapshots"]),
                ("still_percent", 100 * still_s / slots / run["seconds"]),
                ("staging_percent", 100 * run["staging_s"] / slots / run["seconds"]),
                ("open_s", run["open_s"] / run["snapshots"] / slots),
                ("archived_entries", run["snapshot_entries"] / run["snapshots"]),
                ("archived_bytes", run["snapshot_bytes"] / run["snapshots"])):
            each.setdefault(what, []).append(value)
    return {"each": each, **{what: spread(values) for what, values in each.items()}}


# ---- failures, scaling, one slot --------------------------------------------------------------


def failures(options: Namespace) -> list[JsonObject]:
    """Paced runs in which slot 1 dies behind a share of its updates."""
    found = []
    for part, share in DEATHS:
        pace = paces(options, part, options.slots)
        each: dict[str, list[float]] = {arm: [] for arm in ("whole", "none", *LOST)}
        for i in range(options.rounds):
            common.progress(f"aic: {part}, a death at {share:.0%}, round {i + 1} of "
                            f"{options.rounds}")
            whole = launch(options, options.slots, ["none"], pace)["runs"][0]
            each["whole"].append(whole["seconds"])
            # A slot makes as many of all updates as its pace allows.
            mine = whole["updates"] / pace[1] / sum(1 / its for its in pace)
            for arm in ["none", *LOST][:: -1 if i % 2 else 1]:
                run = launch(options, options.slots, [word_of(arm, options.interval)], pace,
                             die=(1, int(mine * share)))
                each[arm].append(run["whole_s"])
        found.append({
            "part": part, "share": share,
            "seconds": {arm: spread(times) for arm, times in each.items()},
            "saved_percent": spread(100 * (restart - virtual) / whole for restart, virtual, whole in
                                    zip(each["none"], each["virtual"], each["whole"],
                                        strict=True)),
            "percent": {arm: spread(100 * (ratio - 1) for ratio in
                                    ratios(each["virtual"], each[arm])) for arm in LOST[1:]}})
    return found


def scaling(options: Namespace) -> JsonObject:
    """Paced runs with virtual snapshots on 4 to 16 slots, most of which sleep."""
    times: dict[int, list[float]] = {slots: [] for slots in SCALES}
    for i in range(options.rounds):
        for slots in SCALES[::-1] if i % 2 else SCALES:
            common.progress(f"aic: {slots} slots, round {i + 1} of {options.rounds}")
            run = launch(options, slots, [word_of("virtual", options.interval)],
                         paces(options, "paced", slots))["runs"][0]
            times[slots].append(run["seconds"])
    base = SCALES[0]
    return {str(slots): {"seconds": spread(times[slots]), "of ideal": spread(
        t * slots / (base * b) for t, b in zip(times[slots], times[base], strict=True))}
            for slots in SCALES}


def single(options: Namespace) -> JsonObject:
    """One slot, unpaced, beside scipy's power iteration to an equal error."""
    times, others, errors, cpu = [], [], [], []
    for i in range(options.rounds):
        common.progress(f"aic: one slot, round {i + 1} of {options.rounds}")
        run = launch(options, 1, ["none"], 0.0, graph=options.single, scipy=True)["runs"][0]
        times.append(run["seconds"])
        others.append(run["scipy"]["seconds"])
        errors.append(run["error"])
        cpu.append(run["cpu_s"] / run["scipy"]["cpu_s"])
    return {"seconds": spread(times), "scipy_s": spread(others), "error": spread(errors),
            "ratio": spread(ratios(times, others)), "cpu_ratio": spread(cpu)}


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The tables for people."""
    lines = [f"{report['graph']}, {report['slots']} slots, a snapshot every "
             f"{report['interval_s']:g} s; {report['rounds']} rounds; median (min .. max)."]
    for part in COSTS:
        if part in report:
            lines += ["", *text_of_costs(part, report)]
    for part, of in (("failure", text_of_failures), ("scaling", text_of_scaling),
                     ("single", text_of_single)):
        if part in report:
            lines += ["", *of(report[part])]
    return "\n".join(lines)


def text_of_costs(part: str, report: JsonObject) -> list[str]:
    found = report[part]
    paced = {"unpaced": "Unpaced", "paced": f"Emulation: {1e6 * report['pace_s']:g} us an update",
             "skewed": f"Emulation: {1e6 * report['pace_s']:g} us an update, {report['slow']} "
                       f"slots {SLOW:.2f} times as long"}[part]
    head = (f"{paced}. Without snapshots {common.with_range(found['seconds'])} s, "
            f"{found['updates']['median']:.3g} updates.")
    rows = [["a snapshot", "number", "% of the run", "cost, ms", "open, ms", "still, %",
             "copying, %", "updates lost", "entries", "KiB", "virtual / it: cost", "paper",
             "updates", "entries", "bytes"]]
    for arm, its in found["arms"].items():
        row = [arm, f"{its['snapshots']['median']:.0f}", common.with_range(its["percent"], 1, 0),
               common.with_range(common.scaled(its["cost_s"], 1e3), 1, 0),
               f"{1e3 * its['open_s']['median']:.1f}",
               common.with_range(its["still_percent"], 1),
               f"{its['staging_percent']['median']:.1f}", common.with_range(its["lost"], 0),
               f"{its['archived_entries']['median']:.4g}",
               f"{its['archived_bytes']['median'] / 1024:.4g}"]
        if arm == "virtual":
            row += ["", "", "", "", ""]
        else:
            of = {what: its[f"virtual / this, {what}"] for what in
                  ("cost_s", "lost", "archived_entries", "archived_bytes")}
            row += [common.with_range(of["cost_s"], against=1), PAPER.get((part, arm), ""),
                    common.with_range(of["lost"], against=1),
                    f"{of['archived_entries']['median']:.3f}",
                    f"{of['archived_bytes']['median']:.3f}"]
        rows.append(row)
    lines = [head, "", common.table(rows)]
    if part == "unpaced":
        its = found["arms"]["virtual"]
        cost = its["still_percent"]["median"]
        lines += ["", f"Virtual: slots stood still for {cost:.1f} % of the run, target <= 2 "
                  f"{met(cost <= 2)}; by whole runs {common.with_range(its['percent'], 1, 0)} %; "
                  "paper 8."]
    if part == "skewed" and "chandy-lamport" in found["arms"]:
        lost = found["arms"]["chandy-lamport"]["virtual / this, lost"]["median"]
        lines += ["", f"Updates lost, virtual / chandy-lamport: {lost:.2f}, target <= 0.5 "
                  f"{met(lost <= 0.5)}."]
    if "paced" in report and part == "skewed":
        grown = {arm: its["cost_s"]["median"] / report["paced"]["arms"][arm]["cost_s"]["median"]
                 for arm, its in found["arms"].items()}
        lines += ["A snapshot's cost, skewed / paced: "
                  + ", ".join(f"{arm} {value:.2f}" for arm, value in grown.items())
                  + "; paper: synchronous 1.4, the others 1.08 to 1.15."]
    return lines


def text_of_failures(found: list[JsonObject]) -> list[str]:
    rows = [["a death at", "no death, s", "Restart, s", "virtual, s", "saved, % of the run",
             "paper", "% by chandy-lamport", "paper", "% by synchronous", "paper"]]
    for its in found:
        where = its["part"], its["share"]
        rows.append([f"{its['share']:.0%}, {its['part']}",
                     *(common.with_range(its["seconds"][arm])
                       for arm in ("whole", "none", "virtual")),
                     common.with_range(its["saved_percent"], 0, 0), PAPER_SAVED.get(where, "")])
        for arm in LOST[1:]:
            rows[-1] += [common.with_range(its["percent"][arm], 1, 0),
                         PAPER_LOST.get((*where, arm), "")]
    return ["Emulation: slot 1 dies behind a share of its updates.", "", common.table(rows)]


def text_of_scaling(found: JsonObject) -> list[str]:
    rows = [["slots (emulation)", "s", "time / ideal", "paper"]]
    rows += [[slots, common.with_range(its["seconds"]), common.with_range(its["of ideal"]), "1.0"]
             for slots, its in found.items()]
    return [common.table(rows)]


def text_of_single(found: JsonObject) -> list[str]:
    ratio, cpu_ratio = (common.with_range(found[of], against=1) for of in ("ratio", "cpu_ratio"))
    return [f"One slot, unpaced: {common.with_range(found['seconds'])} s to an error of "
            f"{found['error']['median']:.2e}; scipy's power iteration "
            f"{common.with_range(found['scipy_s'])} s; ratio {ratio}, target <= 3 "
            f"{met(found['ratio']['median'] <= 3)}; of CPU time {cpu_ratio}."]


def met(reached: bool) -> str:
    return "met" if reached else "missed"


def draw(report: JsonObject, path: Any) -> None:
    """A panel for each part: the cost of a snapshot, the time saved with a death, scaling."""
    plt = common.pyplot()
    panels = {**dict.fromkeys(COSTS, draw_costs), "failure": draw_failures, "scaling": draw_scaling}
    shown = [part for part in panels if part in report]
    figure, axes = plt.subplots(1, len(shown), figsize=(0.8 + 2.4 * len(shown), 2.7),
                                layout="constrained", squeeze=False)
    for axis, part in zip(axes[0], shown, strict=True):
        panels[part](axis, report[part], part)
        axis.set_title(part if part == "unpaced" else f"{part} (emulation)", fontsize=9)
        axis.grid(axis="y")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7)
    common.save(figure, path, report)


def columns(axis: Any, names: Sequence[str], found: Sequence[Any], scale: float) -> None:
    """Draw a bar for each name, with quartiles."""
    heights = [scale * f["median"] for f in found]
    axis.bar(range(len(names)), heights, 0.6, color="tab:blue")
    axis.errorbar(range(len(names)), heights, yerr=common.whiskers(found, scale), fmt="none",
                  color="0.2", capsize=2, lw=0.8)
    axis.axhline(0, color="0.2", lw=0.8)
    axis.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)


def draw_costs(axis: Any, found: JsonObject, part: str) -> None:
    """The cost of a snapshot by mode (figures 7 and 8); the paper has ratios."""
    arms = list(found["arms"])
    each = [found["arms"][arm]["cost_s"] for arm in arms]
    columns(axis, arms, each, 1e3)
    virtual = 1e3 * each[0]["median"]
    ratio = [figures.range_of(PAPER.get((part, arm), "")) for arm in arms]
    figures.beside(axis, range(len(arms)), [r and (virtual / r[1], virtual / r[0]) for r in ratio],
                   upright=True)
    axis.set_ylabel("cost of a snapshot, ms")


def draw_failures(axis: Any, found: list[JsonObject], _part: str) -> None:
    """The part of the run that virtual snapshots save with a death (section 5.4)."""
    columns(axis, [f"{its['share']:.0%}, {its['part']}" for its in found],
            [its["saved_percent"] for its in found], 1.0)
    figures.beside(axis, range(len(found)), [
        figures.range_of(PAPER_SAVED.get((its["part"], its["share"]), "")) for its in found],
        upright=True)
    axis.set_ylabel("saved, % of the run")


def draw_scaling(axis: Any, found: JsonObject, _part: str) -> None:
    """Time by the ideal one over the number of slots."""
    columns(axis, list(found), [its["of ideal"] for its in found.values()], 1.0)
    figures.beside(axis, range(len(found)), [(1.0, 1.0)] * len(found), upright=True)
    axis.set_ylabel("time / ideal")
