"""Measures what checkpoints in files cost, and how long it takes to go on from them.

One program, all of whose memory changes in each step, runs in turns

  memory  with checkpoints in memory every few seconds
  files   with the same, each of which goes to files, too (``--spill``)
  own     with those in memory, and files that the program writes itself, with fsync, as often

Costs are formed within a round against "memory". Then a job is killed as a whole and resumed: the
time from the command to the first step that is new, less the time of reading the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from argparse import Namespace
from pathlib import Path

from ftrma.fabric import spillfiles

from . import common, figures, launching
from .common import Parser, spread
from .launching import HERE, BenchError, JsonObject

SCRIPT = HERE / "files_app.py"
SIDES = ("memory", "files", "own")
FEW_S = 60.0  # until a job has left its first checkpoint


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("files", "Checkpoints in files, beside those in memory.")
    parser.add_argument("-n", dest="slots", type=common.whole, default=4, metavar="N",
                        help="slots, in one group")
    parser.add_argument("--size", type=common.size, default="64MiB", metavar="SIZE",
                        help="of each slot's window")
    parser.add_argument("--steps", type=common.whole, default=400, metavar="K",
                        help="steps of a run")
    parser.add_argument("--every", type=common.positive, default=5.0, metavar="SECONDS",
                        help="between checkpoints")
    parser.add_argument("--directory", default=".", metavar="DIR",
                        help="on the disk that is measured")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure and print."""
    options = parse(arguments)
    report = common.begin("files")
    report.update(slots=options.slots, size_bytes=options.size, steps=options.steps,
                  every_s=options.every, rounds=options.rounds)
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    counts: dict[str, list[float]] = {side: [] for side in SIDES}
    resumed: list[JsonObject] = []
    for i in range(options.rounds):
        common.progress(f"files: round {i + 1} of {options.rounds}")
        for side in SIDES[i % 3:] + SIDES[:i % 3]:
            took_s, count = launch(options, side)
            seconds[side].append(took_s)
            counts[side].append(count)
        resumed.append(resume(options))
    report["seconds"] = {side: spread(found) for side, found in seconds.items()}
    report["checkpoints"] = {side: spread(found) for side, found in counts.items()}
    report["cost_percent"] = {
        side: spread(100 * (ratio - 1)
                     for ratio in common.ratios(seconds[side], seconds["memory"]))
        for side in SIDES[1:]}
    report["resumed"] = {name: spread(row[name] for row in resumed) for name in resumed[0]}
    common.finish(report, options, text, draw)
    return 0


def launch(options: Namespace, side: str) -> tuple[float, float]:
    """Run one side; returns seconds of its steps and the number of checkpoints."""
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        words = [str(options.size), str(options.steps), "--every", str(options.every)]
        flags = ["--interval", str(options.every)]
        if side == "files":
            flags += ["--spill", directory, "--spill-interval", "1-th"]
        if side == "own":
            words += ["--own", directory]
        said, stats = launching.run_protected(options.slots, SCRIPT, words, flags, options.timeout)
        written = list(Path(directory).iterdir())
        if side != "memory" and not written:
            raise BenchError(f"{side}: nothing was written; give more --steps")
    return said["seconds"], len(stats["checkpoints"])


def resume(options: Namespace) -> JsonObject:
    """Kill a job as a whole, and go on from its files."""
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        files = Path(directory) / "files"
        words = [str(options.size), "1000000"]
        flags = ["--interval", "1", "--spill", str(files), "--spill-interval", "1-th"]
        command = launching.protected(options.slots, SCRIPT, words, flags)
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=launching.environment(), start_new_session=True)
        family = dict[int, str]()
        try:
            until = time.monotonic() + FEW_S
            while not (files.exists() and spillfiles.points(files)):
                if time.monotonic() > until or job.poll() is not None:
                    raise BenchError(f"no checkpoint came: {launching.shown(command)}")
                time.sleep(0.05)
            family = launching.family(job.pid)
        finally:
            job.kill()
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            job.wait()
        done = spillfiles.points(files)[-1].version
        begun_s = time.monotonic()
        command = launching.protected(
            options.slots, SCRIPT, [str(options.size), "1"], ["--resume", str(files)])
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout,
                                 env=launching.environment())
        said = launching.last_object(outcome.stdout, outcome.stderr)
        read_s = float(re.findall(r"read in ([\d.]+) s", outcome.stderr)[0])
    return {"version": done, "entered_s": said["entered_s"] - begun_s, "read_s": read_s}


def text(report: JsonObject) -> str:
    """The tables for people."""
    rows = [["side", "s", "checkpoints", "cost against memory, %"]]
    for side in SIDES:
        cost = report["cost_percent"].get(side)
        rows.append([side, common.with_range(report["seconds"][side], 2),
                     f"{report['checkpoints'][side]['median']:g}",
                     common.with_range(cost, 1, 0) if cost else "-"])
    resumed = report["resumed"]
    size = common.size_text(report["size_bytes"])
    return "\n".join([
        f"{report['slots']} slots of {size}, all of which changes in each of {report['steps']} "
        f"steps; checkpoints every {report['every_s']:g} s; median (min .. max) of "
        f"{report['rounds']} rounds.", "", common.table(rows), "",
        f"resumed: first new step after {common.with_range(resumed['entered_s'], 2)} s, of which "
        f"reading took {common.with_range(resumed['read_s'], 2)} s"])


def draw(report: JsonObject, path: Path) -> None:
    """Draw the cost of files over checkpoints in memory alone."""
    names = {"files": "--spill", "own": "files that the program writes itself"}
    figure, axes = figures.chart(
        list(names.values()), {"cost": [report["cost_percent"][side] for side in names]},
        f"% over checkpoints in memory, {common.size_text(report['size_bytes'])} of each of "
        f"{report['slots']} slots every {report['every_s']:g} s")
    axes.axvline(0, color="0.5", lw=0.8)
    common.save(figure, path, report)
