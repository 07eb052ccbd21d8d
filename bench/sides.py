"""The sides of a comparison: how each runs a program, and how they are compared round by round.

A side is a function that launches the program and returns its report together with what the job
has told about checkpoints and logs. All sides of a measurement are launched once per round, one
after the other (`in_turn`), or side by side with turns of a moment each (`turns`), which is more
exact and cannot be done where checkpoints are taken at intervals. Overheads are formed within a
round against the side that comes first, which is unprotected.

  no-FT   under mpirun, nothing of ftrma loaded
  ML      message logging with extra logger processes, see ``ml.c``
  others  under `ftrma run` with the options given
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import common, launching, ml
from .common import Parser, spread
from .launching import JsonObject, Started, ignore

BASELINE = "no-FT"
ML = "ML"
COLORS = {
    BASELINE: "0.55", ML: "#cc79a7", "f": "#0072b2", "f-puts": "#56b4e9", "f-puts-gets": "#0072b2",
    "f-daly": "#0072b2", "f-no-daly": "#56b4e9", "every-fence": "#d55e00",
    "own-RAM": "#009e73", "own-PFS": "#f0e442",
}
MARKERS = {BASELINE: "o", ML: "s"}

# Slots, script, its arguments, time limit in seconds, who is told of the process -> the program's
# report, the job's statistics.
Side = Callable[[int, Path, Sequence[str], float, Started], tuple[JsonObject, JsonObject]]


def unprotected(
    slots: int, script: Path, arguments: Sequence[str], limit_s: float, started: Started = ignore
) -> tuple[JsonObject, JsonObject]:
    """The baseline."""
    return launching.run(launching.plain(slots, script, arguments), limit_s, started), {}


def protected(*options: str) -> Side:
    """A side under `ftrma run` with these options."""

    def side(
        slots: int, script: Path, arguments: Sequence[str], limit_s: float, started: Started
    ) -> tuple[JsonObject, JsonObject]:
        return launching.run_protected(slots, script, arguments, options, limit_s, started=started)

    return side


def message_logging(options: Namespace) -> Side:
    """A side under message logging; `options` has those of `add_message_logging`."""

    def side(
        slots: int, script: Path, arguments: Sequence[str], limit_s: float, started: Started
    ) -> tuple[JsonObject, JsonObject]:
        loggers = min(options.loggers, slots)
        ring_bytes = options.ring * slots // loggers
        report, stored = ml.run(
            slots, script, arguments, limit_s, loggers=loggers, ring_bytes=ring_bytes,
            started=started,
        )
        return report, {"stored": stored}

    return side


def add_message_logging(parser: Parser) -> None:
    """The options that `message_logging` reads."""
    parser.add_argument("--loggers", type=common.whole, default=1, metavar="L",
                        help="logger processes of ML")
    parser.add_argument("--ring", type=common.size, default="64MiB", metavar="SIZE",
                        help="memory of ML's loggers for each slot")


# ---- rounds ---------------------------------------------------------------------------------


def in_turn(
    sides: Mapping[str, Side], rounds: int, heading: str, launch: Callable[[Side], JsonObject]
) -> dict[str, list[JsonObject]]:
    """Launch every side once in each round, one after the other; the results by side, in the order
    of the rounds."""
    runs: dict[str, list[JsonObject]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            common.progress(f"{heading}, round {number + 1}/{rounds}, {name}")
            runs[name].append(launch(side))
    return runs


def value(measured: float | Sequence[float]) -> float:
    """A value of a launch, which may have one for each turn: their median."""
    return measured if isinstance(measured, float) else statistics.median(measured)


def overheads(
    runs: Sequence[JsonObject], baseline: Sequence[JsonObject], key: str
) -> tuple[JsonObject, list[float]]:
    """Percent that each round took longer than the baseline's: spread, and each.

    Where a round has several values, one for each turn, they are compared turn by turn, and the
    median is the round's.
    """
    each = []
    for run, base in zip(runs, baseline, strict=True):
        above, below = ([v] if isinstance(v, float) else v for v in (run[key], base[key]))
        each.append(100 * (value(common.ratios(above, below)) - 1))
    return spread(each), each


# ---- what a job has told --------------------------------------------------------------------


def told(stats: Mapping[str, Any]) -> JsonObject:
    """The job's statistics that a launch keeps; an unprotected side has none.

    Returns:
        ``checkpoints``, and for sides that log ``log_peak_bytes``, the largest use of any slot's
        log, ``log_budget_bytes``, or what message loggers ``stored``.
    """
    found: JsonObject = {"checkpoints": stats.get("checkpoints", [])}
    if "log" in stats:
        found["log_peak_bytes"] = max(slot["peak_bytes"] for slot in stats["log"])
        found["log_budget_bytes"] = max(slot["budget_bytes"] for slot in stats["log"])
    if "stored" in stats:
        found["stored"] = stats["stored"]
    return found


def summary_of_told(runs: Sequence[JsonObject]) -> JsonObject:
    """Spreads of the statistics that `told` has kept of each launch."""
    found: JsonObject = {}
    checkpoints = [c for r in runs for c in r["checkpoints"]]
    found["checkpoints_per_launch"] = spread(len(r["checkpoints"]) for r in runs)
    found["demand_checkpoints_per_launch"] = spread(
        sum(c["kind"] == "demand" for c in r["checkpoints"]) for r in runs
    )
    if checkpoints:
        for key in ("bytes", "dirty_bytes", "seconds"):
            found[f"checkpoint_{key}"] = spread(c[key] for c in checkpoints)
    return found | summary_of_logs(runs)


def summary_of_logs(runs: Sequence[JsonObject]) -> JsonObject:
    """Spreads of the use of logs, or of message loggers, for sides that log."""
    found: JsonObject = {}
    for key in ("log_peak_bytes", "log_budget_bytes"):
        if all(key in r for r in runs):
            found[key] = spread(r[key] for r in runs)
    if all("stored" in r for r in runs):
        for key in ("records", "bytes"):
            found[f"stored_{key}"] = spread(r["stored"][key] for r in runs)
    return found


def filled(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """A table without the columns that say nothing in any row."""
    kept = [i for i in range(len(rows[0])) if any(row[i] != "-" for row in rows[1:])]
    return [[row[i] for i in kept] for row in rows]


def logged(found: JsonObject) -> str:
    """The use of logs, as a cell of a table."""
    if "log_peak_bytes" in found:
        peak, budget = found["log_peak_bytes"]["median"], found["log_budget_bytes"]["median"]
        return f"{common.size_text(peak)} of {common.size_text(budget)}"
    if "stored_bytes" in found:
        records = found["stored_records"]["median"]
        return f"{records:.0f} messages, {common.size_text(found['stored_bytes']['median'])}"
    return "-"
