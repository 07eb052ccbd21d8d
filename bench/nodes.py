"""Measures one-sided calls over several nodes: protected and logged, and the library's own.

Both sides run on the same nodes, which the launcher's options name:

    python -m bench nodes --mpirun "--host a:4,b:4 --map-by node"

`--map-by node` has ranks 0 and 1 on different nodes. Times are those that a Python program sees,
through mpi4py; a launch times each call in batches, and its result is the median batch. Sides take
turns; ratios are formed within a round.
"""

from __future__ import annotations

import shlex
import statistics
from argparse import Namespace
from pathlib import Path
from typing import Any

from ftrma.launch.mpirun import words_for_nodes

from . import common, figures, launching
from .common import Parser, spread
from .launching import JsonObject
from .micro import BASELINE, SCRIPT, SIDES

PROTECTED = "protected"
# Highest ratio of protected to unprotected time that the project aims at.
TARGETS = {
    "Put 8 B + Flush": 1.3, "Get 8 B + Flush": 1.3, "Fetch_and_op + Flush": 0.6,
    "Lock + Put 8 B + Unlock": 1.0, "64 Puts 8 B + Flush": 0.2, "Put 1 MiB + Flush": 1.8,
    "Fence, 2 ranks": 4.0,
}
COPY = "memcpy 1 MiB to cold memory"


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("nodes", "Cost of one-sided calls over several nodes.")
    parser.add_argument("--mpirun", required=True, metavar="OPTIONS",
                        help="the launcher's, that name the nodes")
    parser.add_argument("--fence-ranks", type=common.whole, nargs="+", default=[2, 4], metavar="N",
                        help="numbers of ranks to measure fences with")
    parser.add_argument("--batches", type=common.whole, default=51, metavar="B",
                        help="timed loops of each call in a launch")
    parser.add_argument("--batch-ms", type=common.positive, default=2.0, metavar="MS",
                        help="least time of a loop")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure and print."""
    options = parse(arguments)
    report = common.begin("nodes")
    report.update(rounds=options.rounds, batches=options.batches, launcher=options.mpirun)
    times: dict[str, dict[str, list[list[float]]]] = {}
    sides = (BASELINE, PROTECTED)
    for number in range(options.rounds):
        for side in sides[:: 1 - 2 * (number % 2)]:
            common.progress(f"nodes: round {number + 1}/{options.rounds}, {side}")
            for call, each in launch(side, options):
                times.setdefault(call, {name: [] for name in sides})[side].append(each)
    report["results"] = [summary(call, found) for call, found in times.items()]
    common.finish(report, options, text, draw)
    return 0


def launch(side: str, options: Namespace) -> list[tuple[str, list[float]]]:
    """One launch for passive calls, one toward a rank that computes, one for each fence."""
    program = ["--batches", str(options.batches), "--batch-s", str(options.batch_ms / 1e3)]
    found = []
    fences = [(n, ["--only-fence"]) for n in options.fence_ranks]
    for ranks, more in [(2, []), (2, ["--only-busy"]), *fences]:
        if side == BASELINE:
            words = shlex.split(options.mpirun)
            command = launching.plain(ranks, SCRIPT, [*program, *more], words, words_for_nodes)
            report = launching.run(command, options.timeout)
        else:
            protection = ["--mpirun", options.mpirun, *SIDES["with logs"], "--interval", "0",
                          "--spares", "0"]
            report, _ = launching.run_protected(
                ranks, SCRIPT, [*program, *more], protection, options.timeout
            )
        name = f", {ranks} ranks" if "--only-fence" in more else ""
        found += [(call + name, each) for call, each in report["seconds_per_call"].items()]
    return [(call, each) for call, each in found if call != COPY]


def summary(call: str, times: dict[str, list[list[float]]]) -> JsonObject:
    """Spreads over the rounds of one call; times: of each side and round, seconds per call."""
    found: JsonObject = {"call": call, "target": TARGETS.get(call)}
    for name, choose in (("", statistics.median), ("_fastest", min)):
        seconds = {side: [float(choose(each)) for each in times[side]] for side in times}
        for side in times:
            found[f"us{name}_{side}"] = spread(1e6 * s for s in seconds[side])
        found[f"ratio{name}"] = spread(common.ratios(seconds[PROTECTED], seconds[BASELINE]))
    return found


def text(report: JsonObject) -> str:
    """The table for people."""
    rows: list[list[Any]] = [["call", "library us", "protected us", "ratio, median batches",
                              "ratio, fastest", "target"]]
    for r in report["results"]:
        target = r["target"]
        met = "met" if target and r["ratio"]["median"] <= target else "missed"
        rows.append([
            r["call"], f"{r['us_' + BASELINE]['median']:.2f}",
            f"{r['us_' + PROTECTED]['median']:.2f}", common.with_range(r["ratio"], against=1),
            f"{r['ratio_fastest']['median']:.2f}", f"<= {target:.1f} {met}" if target else "-",
        ])
    return (
        f"One-sided calls over nodes through mpi4py, {report['rounds']} rounds of "
        f"{report['batches']} batches for each side; median (min .. max) over the rounds.\n\n"
        + common.table(rows)
    )


def draw(report: JsonObject, path: Path) -> None:
    """Time of each call, protected and by the library."""
    results = report["results"]
    figure, _ = figures.chart(
        [r["call"] for r in results],
        {PROTECTED: [r[f"us_{PROTECTED}"] for r in results],
         "the library's own": [r[f"us_{BASELINE}"] for r in results]},
        "us a call (log scale)", logarithmic=True)
    common.save(figure, path, report)
