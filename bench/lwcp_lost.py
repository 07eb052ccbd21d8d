"""`bench lwcp --lost K K ...`: the time of a step that is taken again, by the slots killed at once.

Survivors send the messages in their logs to all new processes, and these compute, so T_recov grows
with their number. Each number is a launch of its own, and those of a round follow one another.

Source: D. Yan, J. Cheng, F. Yang, "Lightweight Fault Tolerance in Large-Scale Distributed Graph
Processing", tables 3 (PageRank, 120 workers) and 7 (triangles).
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import common
from . import figures as drawing
from .common import spread
from .launching import BenchError, JsonObject

RECOVERIES = ("hwlog", "lwlog")
# The paper's T_recov with 1 to 5 killed, by that with one.
PAPER = {
    "pagerank": {"hwlog": (1.0, 1.02, 1.30, 1.42, 1.67), "lwlog": (1.0, 1.20, 1.25, 1.55, 1.73)},
    "triangles": {"hwlog": (1.0, 1.46, 2.02, 2.78, 3.10), "lwlog": (1.0, 1.48, 1.99, 2.40, 2.86)},
}


def main(options: Namespace, launch: Callable[[Namespace, str], tuple[int, JsonObject]]) -> int:
    """Measure, print, draw.

    Args:
        launch: makes a run with these options and a recovery; a checksum of its result, its times.
    """
    report = common.begin("lwcp --lost")
    report.update(program=options.program, graph=options.graph, slots=options.slots,
                  every=options.every, kill=options.kill, rounds=options.rounds, lost=options.lost)
    rows: dict[str, list[JsonObject]] = {
        name(recovery, lost): [] for recovery in RECOVERIES for lost in options.lost}
    for i in range(options.rounds):
        common.progress(f"lwcp --lost: round {i + 1} of {options.rounds}")
        results = set()
        for recovery in RECOVERIES:
            for lost in options.lost:
                crc, found = launch(Namespace(**{**vars(options), "lost": [lost]}), recovery)
                results.add(crc)
                rows[name(recovery, lost)].append(found)
        if len(results) != 1:
            raise BenchError("the recoveries have not come to the same bits")
    report["found"] = {side: summary(found) for side, found in rows.items()}
    common.finish(report, options, text, draw)
    return 0


def name(recovery: str, lost: int) -> str:
    return f"{recovery}, {lost}"


def summary(found: list[JsonObject]) -> JsonObject:
    """Spreads of a side's times, and of T_norm / T_recov."""
    return {what: spread(row[what] for row in found) for what in ("T_norm, ms", "T_recov, ms")} | {
        "T_norm / T_recov": spread(row["T_norm, ms"] / row["T_recov, ms"] for row in found)}


def text(report: JsonObject) -> str:
    """The table for people."""
    found, lost = report["found"], report["lost"]
    rows = [["", *(f"{count} killed" for count in lost)]]
    for recovery in RECOVERIES:
        sides = [found[name(recovery, count)] for count in lost]
        rows.append([f"{recovery}: T_recov, ms",
                     *(common.with_range(side["T_recov, ms"], 1) for side in sides)])
        rows.append(["  T_norm / T_recov",
                     *(common.with_range(side["T_norm / T_recov"], 1) for side in sides)])
        first = sides[0]["T_recov, ms"]["median"]
        rows.append([f"  by that with {lost[0]}",
                     *(f"{side['T_recov, ms']['median'] / first:.2f}" for side in sides)])
        paper = PAPER[report["program"]][recovery]
        rows.append(["  the paper, by that with 1",
                     *(f"{paper[count - 1]:.2f}" if count <= len(paper) else "-"
                       for count in lost)])
    return "\n".join([
        f"{report['program']} on {report['graph']}, {report['slots']} slots, a checkpoint every "
        f"{report['every']} steps, slots from 1 on killed in step {report['kill']}; "
        f"{report['rounds']} rounds; median (min .. max).",
        "", common.table(rows)])


def draw(report: JsonObject, path: Path) -> None:
    """T_recov of each recovery by the number of slots that are killed."""
    sides: dict[str, list[Any]] = {
        recovery: [report["found"][name(recovery, count)]["T_recov, ms"]
                   for count in report["lost"]] for recovery in RECOVERIES}
    figure, _ = drawing.chart([f"{count} killed" for count in report["lost"]], sides, "T_recov, ms")
    common.save(figure, path, report)
