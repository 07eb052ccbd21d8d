"""Measures checkpoints and logs of vertex programs, light and heavy, and the time that they save.

One of the slots is killed some steps behind a checkpoint, under each recovery in turn; the results
have to have equal bits. Names are the paper's, times those of slot 0, which survives:

  T_norm     of a step without failure: of those that are taken again, as they went at first
  T_recov    of a step that is taken again, before the one in which the slot died
  T_last     of that one, which has all messages for the first time
  T_cpstep   of the step that an attempt begins with, whose messages are sent again
  T_cp0      by which a first checkpoint that has the edges, too, holds a slot up
  T_cpload   to compute the checkpoint of the slot that died from the others' and from parity
  T_cp       by which the first checkpoint holds a slot up; all T_cp: of the run's steps without
             failure, by all checkpoints
  T_log      (bytes) that a step leaves in the logs
  T_logload  to have the messages of a step that was taken before, from logs

With several numbers behind --lost, T_recov is measured with so many slots killed at once, see
`lwcp_lost.py`.

Source: D. Yan, J. Cheng, F. Yang, "Lightweight Fault Tolerance in Large-Scale Distributed Graph
Processing", tables 2 to 9.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from . import common, launching, lwcp_lost
from . import figures as drawing
from .common import Parser, ratios, spread
from .launching import HERE, BenchError, JsonObject
from .recovery import only_recovery

SCRIPT = HERE / "lwcp_app.py"
RECOVERIES = ("hwcp", "lwcp", "hwlog", "lwlog", "none")
EDGES = "T_cp0"  # lwcp with edges in the checkpoint, without a kill
MIB = 2.0**20
# Name of a ratio: a figure, the two recoveries, the paper's ratio, and the aim.
RATIOS: dict[str, tuple[str, str, str, str, float]] = {
    "checkpoint, bytes: hwcp / lwcp": ("bytes, MiB", "hwcp", "lwcp", "13 to 27", 20),
    "T_cp: hwcp / lwcp": ("T_cp, ms", "hwcp", "lwcp", "13 to 27", 4),
    "T_cp: hwlog / lwlog": ("T_cp, ms", "hwlog", "lwlog", "22 to 44", 4),
    "T_cp0 / T_cp: lwcp": ("T_cp, ms", EDGES, "lwcp", "8.6 to 19", 0),
    "T_cpload: hwcp / lwcp": ("T_cpload, ms", "hwcp", "lwcp", "1.4 to 1.8", 0),
    "T_cpstep: lwcp / hwcp": ("T_cpstep, ms", "lwcp", "hwcp", "2.6 to 3.3", 0),
    "T_log, bytes: hwlog / lwlog": ("T_log, MiB", "hwlog", "lwlog", "7 to 10", 5),
    "T_logload: hwlog / lwlog": ("T_logload, ms", "hwlog", "lwlog", "8 to 28", 0),
}
SPEEDS = {"hwlog": 3.0, "lwlog": 3.0}  # T_norm / T_recov that are aimed at
SHARE = 2.0  # percent of a run that light checkpoints may take
LAST = {"lwcp": "0.97 to 0.99", "hwlog": "0.91 to 0.92", "lwlog": "0.93 to 0.95"}  # the paper
LOGGING = 3.0  # percent of T_norm that logging may take


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("lwcp", "Light and heavy checkpoints and logs of vertex programs.")
    parser.add_argument("program", nargs="?", choices=("pagerank", "triangles"),
                        default="pagerank", help="what is run")
    parser.add_argument("--graph", default="rmat:17", metavar="GRAPH",
                        help="as ftrma graph takes it")
    parser.add_argument("-n", dest="slots", type=common.whole, default=8, metavar="N",
                        help="slots; slot 1 is killed")
    parser.add_argument("--every", type=common.whole, default=10, metavar="K",
                        help="steps between two checkpoints")
    parser.add_argument("--kill", type=common.whole, default=17, metavar="K",
                        help="the step in which it is killed")
    parser.add_argument("--steps", type=common.whole, default=60, metavar="K", help="of pagerank")
    parser.add_argument("--quota", type=common.whole, default=1, metavar="Q",
                        help="of triangles: pairs that a vertex asks about in a step, for each of "
                        "its edges")
    parser.add_argument("--lost", type=common.whole, nargs="+", default=[1], metavar="K",
                        help="slots that are killed at once; several: T_recov by their number")
    parser.add_argument("--spill", metavar="DIR",
                        help="have checkpoints go to files there, too")
    options = parser.parse_args(arguments)
    if options.spill and not Path(options.spill).is_dir():
        parser.error(f"--spill {options.spill}: give a directory that is there")
    if options.slots <= max(options.lost):
        parser.error(f"-n {options.slots}: slot 0 takes the times, {max(options.lost)} others die; "
                     f"give {max(options.lost) + 1} or more")
    if options.kill < options.every + 2:
        parser.error(f"--kill {options.kill}: give {options.every + 2} or more, so that a step "
                     "between the checkpoint and the kill is taken again")
    if options.program == "pagerank" and not options.every < options.kill < options.steps:
        parser.error(f"--kill {options.kill}: give a step behind the first checkpoint "
                     f"({options.every}) and before the end ({options.steps})")
    return options


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    if len(options.lost) > 1:
        return lwcp_lost.main(options, launch)
    report = common.begin("lwcp")
    report.update(program=options.program, graph=options.graph, slots=options.slots,
                  every=options.every, kill=options.kill, lost=options.lost[0],
                  rounds=options.rounds, files=bool(options.spill))
    rows: dict[str, list[JsonObject]] = {recovery: [] for recovery in (*RECOVERIES, EDGES)}
    for i in range(options.rounds):
        common.progress(f"lwcp: round {i + 1} of {options.rounds}")
        results = set()
        for recovery in RECOVERIES:
            crc, found = launch(options, recovery)
            results.add(crc)
            rows[recovery].append(found)
        crc, found = with_edges(options)
        results.add(crc)
        rows[EDGES].append(found)
        if len(results) != 1:
            raise BenchError("the recoveries have not come to the same bits")
    report["found"] = {recovery: {name: spread(row[name] for row in found) for name in found[0]}
                       for recovery, found in rows.items()}
    report["ratios"] = compare(rows)
    common.finish(report, options, text, draw)
    return 0


def run_job(options: Namespace, recovery: str, lost: int, *more: str
            ) -> tuple[JsonObject, JsonObject]:
    """One job, of which slots 1 to `lost` are killed: what the program says, and statistics.

    Args:
        more: options of `lwcp_app.py`.
    """
    flags = ["--spares", str(lost), "--interval", "never", "--group-size", str(options.slots),
             "--checksums", str(max(lost, 1)),
             *(word for slot in range(1, lost + 1)
               for word in ("--kill", f"{slot}@graph.compute:{options.kill}"))]
    words = [options.program, options.graph, recovery, str(options.every), str(options.steps),
             "--quota", str(options.quota), *more]
    with ExitStack() as stack:
        if options.spill:
            flags += ["--spill", stack.enter_context(TemporaryDirectory(dir=options.spill)),
                      "--spill-interval", "1-th"]
        return launching.run_protected(options.slots, SCRIPT, words, flags, options.timeout,
                                       deaths=lost)


def launch(options: Namespace, recovery: str) -> tuple[int, JsonObject]:
    """A run with kills: a checksum of its result, and its figures."""
    said, stats = run_job(options, recovery, options.lost[0])
    found = only_recovery(stats, "reentry")
    values = {**figures(said["slots"], recovery, options), "recovery, ms": found["seconds"] * 1e3,
              **checkpoint(stats, recovery)}
    if recovery != "none":
        values["T_cpload, ms"] = found["phases"].get("restore", 0.0) * 1e3
    return said["crc"], values


def with_edges(options: Namespace) -> tuple[int, JsonObject]:
    """A run without a kill whose first checkpoint has the edges: a checksum, T_cp0."""
    said, stats = run_job(options, "lwcp", 0, "--topology", "parity")
    return said["crc"], {"T_cp, ms": held_up(said["slots"], options.every),
                         **checkpoint(stats, EDGES)}


def figures(slots: list[list[JsonObject]], recovery: str, options: Namespace) -> JsonObject:
    """Figures of a run from the reports of the slots' steps, in milliseconds and MiB."""
    mine = slots[0]
    normal = [r["seconds"] * 1e3 for r in of_kind(mine, "normal")
              if options.every < r["step"] < options.kill]
    again = [r["seconds"] * 1e3 for r in of_kind(mine, "again") if r["step"] < options.kill]
    first = [r["seconds"] * 1e3 for r in of_kind(mine, "checkpoint")]
    survivors = [slots[0], *slots[1 + options.lost[0]:]]
    found = {"T_norm, ms": statistics.mean(normal)}
    if recovery == "none":
        return found
    found["T_recov, ms"] = statistics.mean(again)
    found["T_last, ms"] = [r["seconds"] * 1e3 for r in mine if r["step"] == options.kill][-1]
    # A heavy checkpoint has the messages received: the step after it is the first one.
    found["T_cpstep, ms"] = statistics.mean(first) if first else again[0]
    found["T_cp, ms"] = held_up(survivors, options.every)
    usual = of_kind(mine, "normal")
    saving = sum(r["saving_s"] for r in usual)
    found["all T_cp, %"] = 100 * saving / (saving + sum(r["seconds"] for r in usual))
    if "log" in recovery:
        found |= log_figures(mine, survivors, options.kill)
        found["T_log, MiB"] *= len(slots)
    return found


def held_up(slots: list[list[JsonObject]], step: int) -> float:
    """Milliseconds for which the checkpoint of a step held these slots up: their median."""
    return statistics.median(r["saving_s"] * 1e3 for slot in slots for r in slot
                             if r["saving_s"] and r["step"] == step)


def log_figures(mine: list[JsonObject], survivors: list[list[JsonObject]],
                killed: int) -> JsonObject:
    """Figures of the logs of one slot, as a mean of the survivors."""
    logged = [sum(slot[i]["log_bytes"] for slot in survivors) / len(survivors)
              for i, r in enumerate(mine) if 1 < r["step"] < killed and r["kind"] == "normal"]
    load = [r["sending_s"] * 1e3 for slot in survivors for r in of_kind(slot, "again")
            if r["forwarded"]]
    return {"T_log, MiB": statistics.median(logged) / MIB,
            "T_logload, ms": statistics.median(load)}


def of_kind(reports: list[JsonObject], kind: str) -> list[JsonObject]:
    return [report for report in reports if report["kind"] == kind]


def checkpoint(stats: JsonObject, recovery: str) -> JsonObject:
    """The first checkpoint: bytes of all slots, and until it is folded and committed."""
    if recovery == "none":
        return {}
    first = stats["checkpoints"][0]
    return {"bytes, MiB": first["bytes"] / MIB, "until folded, ms": first["seconds"] * 1e3}


def compare(rows: dict[str, list[JsonObject]]) -> JsonObject:
    """For each ratio its spread, the paper's, and the aim (None: it is reported alone)."""

    def of(recovery: str, name: str) -> list[float]:
        return [row[name] for row in rows[recovery]]

    found: JsonObject = {}
    for name, (what, above, below, paper, aim) in RATIOS.items():
        found[name] = {"spread": spread(ratios(of(above, what), of(below, what))), "paper": paper,
                       "aim": [">=", aim] if aim else None}
    for recovery, speed in SPEEDS.items():
        found[f"T_norm / T_recov: {recovery}"] = {
            "spread": spread(ratios(of(recovery, "T_norm, ms"), of(recovery, "T_recov, ms"))),
            "paper": "3.7 to 9.5", "aim": [">=", speed]}
    for recovery, told in LAST.items():
        found[f"T_last / T_norm: {recovery}"] = {
            "spread": spread(ratios(of(recovery, "T_last, ms"), of(recovery, "T_norm, ms"))),
            "paper": told, "aim": None}
    for recovery in SPEEDS:
        more = [(a / b - 1) * 100 for a, b in zip(of(recovery, "T_norm, ms"),
                                                  of("none", "T_norm, ms"), strict=True)]
        found[f"logging, % of T_norm: {recovery}"] = {"spread": spread(more), "paper": "<= 3",
                                                      "aim": ["<=", LOGGING]}
    found["all T_cp, % of the run: lwcp"] = {"spread": spread(of("lwcp", "all T_cp, %")),
                                             "paper": "-", "aim": ["<=", SHARE]}
    return found


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The tables for people."""
    found = report["found"]
    names = (*RECOVERIES, EDGES)
    rows = [["", *RECOVERIES, "lwcp, edges too"]]
    for name in dict.fromkeys(name for of in found.values() for name in of):
        cells = [found[recovery].get(name) for recovery in names]
        rows.append([name, *(common.with_range(c) if c else "-" for c in cells)])
    compared = [["ratio", "here", "paper", "target"]]
    for name, row in report["ratios"].items():
        compared.append([name, common.with_range(row["spread"], against=1), row["paper"], aim(row)])
    dead = f"slots 1 to {report['lost']}" if report["lost"] > 1 else "slot 1"
    return "\n".join([
        f"{report['program']} on {report['graph']}, {report['slots']} slots, a checkpoint every "
        f"{report['every']} steps{', in files too' * report['files']}, {dead} killed in step "
        f"{report['kill']}; {report['rounds']} rounds; median (min .. max).",
        "", common.table(rows), "", common.table(compared)])


def aim(row: JsonObject) -> str:
    if row["aim"] is None:
        return "-"
    sign, value = row["aim"]
    median = row["spread"]["median"]
    met = median <= value if sign == "<=" else median >= value
    return f"{sign} {value:g} {'met' if met else 'missed'}"


def draw(report: JsonObject, path: Any) -> None:
    """Times of a step and of a checkpoint (tables 2 to 9), and the ratios beside the paper's."""
    plt = common.pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 2.6), layout="constrained",
                                width_ratios=[1, 1, 1.3])
    found, names = report["found"], RECOVERIES[:-1]
    drawing.bars(axes[0], names, {what: [found[name][f"{what}, ms"] for name in names]
                                  for what in ("T_norm", "T_recov")})
    axes[0].set_xlabel("a step, ms")
    axes[0].legend(fontsize=7, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    drawing.bars(axes[1], names, {"T_cp": [found[name]["T_cp, ms"] for name in names]})
    axes[1].set_xlabel("T_cp, ms")
    shown = {name: row for name, row in report["ratios"].items() if "%" not in name}
    drawing.bars(axes[2], list(shown), {"measured": [row["spread"] for row in shown.values()]},
                 paper=[drawing.range_of(row["paper"]) for row in shown.values()],
                 logarithmic=True)
    axes[2].set_xlabel("ratio (log scale)")
    axes[2].legend(fontsize=7, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    common.save(figure, path, report)
