"""`bench recovery --many`: ten recoveries in ten runs of NAS FT (figure 12).

Every run begins with a checkpoint, and in the middle of each a slot dies, another one each time.
Sides, each a launch of its own and in turn:

  no-FT       under mpirun, nothing of ftrma loaded, and nobody dies
  f-K         causal recovery (`--policy auto`), a checksum rank for each K slots
  rollback-K  rollback after those kills

The paper has one checksum rank for 8 and for 16 slots (|CH| = 12.5 % and 6.25 %). So many slots do
not run on a few cores at once; here it is one for 4 and for 2 by default, and `-n 8 --groups 8 4`
has the paper's 12.5 %. There are as many spares as kills, and the cost of having them is part of
the result.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import common, figures, launching, sides
from .common import spread
from .launching import HERE, BenchError, JsonObject
from .sides import BASELINE

SCRIPT = HERE / "recovery_ft.py"
PHASES = {"detect": "#56b4e9", "repair": "#0072b2", "restore": "#009e73", "replay": "#e69f00"}
PAPER_PERCENT = 60.0  # that ten recoveries cost with |CH| = 12.5 %, section 7.2.1
ITERATIONS = {"S": 6, "W": 6, "A": 6, "B": 20}  # of NPB, in one run
SETTLE_S_PER_SPARE = 0.5  # measured: importing NumPy and SciPy takes a core 0.3 s


class Times(NamedTuple):
    """Notes of a slot, in order: (run, when it began), (step, when it was done)."""

    began: list[tuple[int, float]]
    done: list[tuple[int, float]]


class Done(NamedTuple):
    """One launch of FT."""

    report: JsonObject
    stats: JsonObject
    times: list[Times]  # notes, by slot


def run_ft(
    options: Namespace, *, runs: int, iterations: int,
    kills: Sequence[tuple[int, int, int]] = (), settle_s: float = 0.0,
    flags: Sequence[str] | None = None,
) -> Done:
    """Launch FT once; slots kill themselves.

    Args:
        runs: of FT, the first of which is the warm-up.
        iterations: in each run, which has one step more.
        kills: (slot, run, step before which it dies).
        settle_s: to wait after the warm-up.
        flags: of `ftrma run`; None: unprotected.
    """
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as directory:
        program = ["--class", options.problem_class, "--runs", str(runs),
                   "--iterations", str(iterations), "--settle-s", str(settle_s),
                   "--directory", directory,
                   "--kill", *(":".join(map(str, kill)) for kill in kills)]
        if flags is None:
            report, stats = sides.unprotected(options.slots, SCRIPT, program, options.timeout)
        else:
            more = [*flags, "--interval", "0", "--log-budget", str(options.log_budget)]
            report, stats = launching.run_protected(
                options.slots, SCRIPT, program, more, options.timeout, deaths=len(kills)
            )
        texts = [(Path(directory) / f"times-{s}").read_text() for s in range(options.slots)]
    if report["verified"] is not True:
        raise BenchError(f"the checksums of FT are wrong with {options.slots} slots and {flags}")
    return Done(report, stats, [read_times(text) for text in texts])


def read_times(text: str) -> Times:
    """Parse a slot's notes."""
    times = Times([], [])
    for line in text.splitlines():
        what, number, seconds = line.split()
        (times.began if what == "began" else times.done).append((int(number), float(seconds)))
    return times


def main(options: Namespace) -> int:
    """Measure, print, draw."""
    for size in options.groups:
        if options.slots % size:
            raise common.UsageError(
                f"-n {options.slots}: --many forms groups of {size} slots; give a multiple of "
                f"{size}, or other --groups")
    report = common.begin("recovery --many")
    report.update(slots=options.slots, rounds=options.rounds, runs=options.runs,
                  problem_class=options.problem_class,
                  units={"seconds": "s", "phases": "s"})
    runs: dict[str, list[JsonObject]] = {BASELINE: []}
    for number in range(options.rounds):
        expected = None
        for name, flags in flags_of(options).items():
            common.progress(f"recovery --many: round {number + 1}/{options.rounds}, {name}")
            row, sums = launch(options, flags)
            expected = sums if flags is None else expected
            if sums != expected:
                raise BenchError(f"{name}: FT's checksums are not those without failures")
            runs.setdefault(name, []).append(row)
    report["sides"] = {name: summary(found, runs[BASELINE]) for name, found in runs.items()}
    common.finish(report, options, text, draw)
    return 0


# ---- measuring ------------------------------------------------------------------------------


def flags_of(options: Namespace) -> dict[str, list[str] | None]:
    """Options of `ftrma run` for each side; None: unprotected."""
    shapes = {k: ["--group-size", str(k), "--spares", str(options.runs)] for k in options.groups}
    found: dict[str, list[str] | None] = {BASELINE: None}
    for k, shape in shapes.items():
        found[f"f-{k}"] = [*shape, "--policy", "auto"]
    first = options.groups[0]
    found[f"rollback-{first}"] = [*shapes[first], "--policy", "rollback"]
    return found


def launch(options: Namespace, flags: list[str] | None) -> tuple[JsonObject, Any]:
    """One launch with a recovery in each run; what it took, and FT's checksums."""
    iterations = ITERATIONS[options.problem_class]
    kills = [] if flags is None else [
        (1 + run % (options.slots - 1), run, iterations // 2 + 1)
        for run in range(1, options.runs + 1)
    ]
    done = run_ft(options, runs=options.runs + 1, iterations=iterations, kills=kills, flags=flags,
                  settle_s=SETTLE_S_PER_SPARE * len(kills))
    recoveries = done.stats.get("recoveries", [])
    if len(recoveries) != len(kills):
        raise BenchError(f"{len(kills)} kills and {len(recoveries)} recoveries")
    began_s = next(s for run, s in done.times[0].began if run == 1)
    return {
        "seconds": done.times[0].done[-1][1] - began_s,
        "kinds": {k: sum(r["kind"] == k for r in recoveries) for k in ("causal", "rollback")},
        "reasons": sorted({r["reason"] for r in recoveries if r["reason"]}),
        "phases": {p: sum(r["phases"].get(p, 0.0) for r in recoveries) for p in PHASES},
    }, done.report["sums"]


def summary(rows: list[JsonObject], baseline: list[JsonObject]) -> JsonObject:
    """Spreads over the rounds of one side."""
    found: JsonObject = {
        "seconds": spread(r["seconds"] for r in rows),
        "phases": {p: spread(r["phases"][p] for r in rows) for p in PHASES},
        "kinds": {k: spread(r["kinds"][k] for r in rows) for k in rows[0]["kinds"]},
        "reasons": sorted({reason for r in rows for reason in r["reasons"]}),
    }
    if rows is not baseline:
        found["overhead_percent"], each = sides.overheads(rows, baseline, "seconds")
        found["overhead_percent_each"] = each
    return found


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The table for people."""
    runs = report["runs"]
    rows = [["side", f"s for {runs} runs", "overhead %", "causal", "rollback",
             *(f"{phase}, ms each" for phase in PHASES)]]
    for name, found in report["sides"].items():
        overhead = found.get("overhead_percent")
        cells = [name, common.with_range(found["seconds"])]
        if overhead:
            cells += [common.with_range(overhead, 0, 0)]
            cells += [f"{kind['median']:g}" for kind in found["kinds"].values()]
            cells += [f"{1e3 * p['median'] / runs:.1f}" for p in found["phases"].values()]
        rows.append(cells + ["-"] * (len(rows[0]) - len(cells)))
    lines = [
        f"NAS FT class {report['problem_class']}, {report['slots']} slots, {runs} runs with a "
        f"checkpoint and a death in each (none in no-FT); {report['rounds']} rounds; median (min "
        ".. max).",
        "f-K: causal, one checksum rank for each K slots; rollback-K: the same kills, all go back. "
        f"The paper, ten deaths and |CH| = 12.5 %: {PAPER_PERCENT:g} %.",
        "",
        common.table(rows),
    ]
    lines += [f"note: {name}: {reason}" for name, found in report["sides"].items()
              for reason in found["reasons"] if name.startswith("f-")]
    return "\n".join(lines)


def draw(report: JsonObject, path: Any) -> None:
    """Time of all runs on each side, with the share of each phase of recovery."""
    plt = common.pyplot()
    figure, axes = plt.subplots(figsize=(4.4, 3), layout="constrained")
    shown = report["sides"]
    whole = shown[BASELINE]["seconds"]["median"] * (1 + PAPER_PERCENT / 100)
    for place, (name, found) in enumerate(shown.items()):
        total = found["seconds"]["median"]
        spent = {p: found["phases"][p]["median"] for p in PHASES}
        bottom = max(0.0, total - sum(spent.values()))
        axes.bar(place, bottom, 0.7, color="0.75",
                 label="FT, checkpoints" if place == 0 else None)
        for phase, height in spent.items():
            axes.bar(place, height, 0.7, bottom=bottom, color=PHASES[phase],
                     label=phase if place == 0 else None)
            bottom += height
        axes.errorbar(place, total, yerr=common.whiskers([found["seconds"]]), color="0.2",
                      capsize=2, lw=0.8)
        if "overhead_percent" in found:
            top = max(total, whole) if name.startswith("f-") else total
            axes.annotate(f"{found['overhead_percent']['median']:+.0f} %", (place, top),
                          (0, 6), textcoords="offset points", ha="center", fontsize=8)
    figures.beside(axes, range(len(shown)),
                   [(whole, whole) if name.startswith("f-") else None for name in shown],
                   upright=True)
    axes.set_xticks(range(len(shown)), list(shown))
    axes.set_ylabel(f"time for {report['runs']} runs [s]")
    axes.set_title(f"FT class {report['problem_class']}, {report['slots']} slots, "
                   f"{report['runs']} recoveries", fontsize=9, loc="left")
    axes.grid(axis="y")
    axes.set_ylim(0, 1.12 * max(whole, *(found["seconds"]["q3"] for found in shown.values())))
    figure.legend(ncols=3, loc="outside upper left", fontsize=7, handlelength=1, columnspacing=1)
    common.save(figure, path, report)
