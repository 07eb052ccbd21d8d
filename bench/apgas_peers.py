"""`bench apgas --peers`: tasks of `ftrma.apgas` beside other systems that run functions elsewhere.

In each round every system has its turn: concurrent.futures, and Ray, Dask and charm4py where they
are installed. A call goes to one worker, with no more processes than needed; a fan-out goes to all
of `-n` workers at once; a worker is killed, and a call that was meant for it is answered in its
place. KMeans and the tree search run with as many workers as there are cores: `ftrma.apgas` runs
the programs of `ftrma apgas`, KMeans with checkpoints; the others send functions to their workers.

What they survive differs: concurrent.futures makes a new pool, and all that was running is lost;
Ray starts the actor again, without its state; Dask asks another worker; charm4py ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from . import apgas_peers_tasks as tasks
from . import common, figures, launching
from .common import spread
from .launching import HERE, BenchError, JsonObject

SCRIPT = HERE / "apgas_peers_app.py"
# The module that each system needs; None: nothing.
SYSTEMS = {"apgas": None, "futures": None, "ray": "ray", "dask": "distributed",
           "charm": "charm4py"}
NAMES = {"apgas": "ftrma.apgas", "futures": "concurrent.futures", "ray": "Ray", "dask": "Dask",
         "charm": "charm4py"}
WHATS = {"call": ("a call and its value, us", 1e6),
         "fan-out": ("a call at each of {n} workers at once, us", 1e6),
         "kill": ("SIGKILL to an answer in its place, ms", 1e3),
         "kmeans": ("a step of KMeans, ms", 1e3),
         "uts": ("tree search, million nodes a second", 1e-6)}
DIGITS = {"uts": 2, "kill": 1}
CHECKPOINT = 5  # steps


def main(options: Namespace) -> int:
    """Measure, print, draw."""
    report = common.begin("apgas --peers")
    systems = [system for system, needs in SYSTEMS.items()
               if needs is None or importlib.util.find_spec(needs)]
    cores = len(os.sched_getaffinity(0))
    report.update(workers=options.places, cores=cores, rounds=options.rounds)
    with paths():
        found: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
        for i in range(options.rounds):
            for system in systems[::-1] if i % 2 else systems:
                common.progress(f"apgas --peers: round {i + 1} of {options.rounds}, {system}")
                found[system].append({
                    **measure(options, system, "call", 1),
                    **measure(options, system, "calls", options.places),
                    **(packaged(options, cores) if system == "apgas"
                       else measure(options, system, "programs", cores))})
    report["found"] = {
        system: {what: {"value": spread(run[what] for run in runs),
                        "by apgas": spread(run[what] / ours[what]
                                           for run, ours in zip(runs, found["apgas"], strict=True))}
                 for what in WHATS if runs[0][what] is not None}
        for system, runs in found.items()}
    common.finish(report, options, text, draw)
    return 0


@contextlib.contextmanager
def paths() -> Iterator[None]:
    """Have workers find modules, and Ray ask for no token of a cluster of its own."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = f"{HERE / 'apps'}:{HERE}"
    os.environ["RAY_AUTH_MODE"] = "disabled"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def measure(options: Namespace, system: str, what: str, workers: int) -> JsonObject:
    """Run the program of a system; return the times that it has printed."""
    arguments = [str(SCRIPT), system, what, str(workers)]
    if system == "apgas":
        said, _ = launching.run_protected(
            workers + 1, SCRIPT, arguments[1:], ["--spares", "1"], options.timeout,
            deaths=what == "calls")
        return said
    command = [sys.executable, *arguments]
    if system == "charm":
        command[1:1] = ["-m", "charmrun.start", f"+p{workers + 1}", "++local"]
    status, out, err = launching.run_once(command, options.timeout)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if status or not lines:
        raise BenchError(f"exit status {status} of: {launching.shown(command)}\n"
                         f"{(err.strip() or out.strip())[-2000:]}")
    found: JsonObject = json.loads(lines[-1])
    return found


def packaged(options: Namespace, places: int) -> JsonObject:
    """The programs of `ftrma apgas`."""
    script, spares = HERE / "apps" / "apgas.py", ["--spares", "0"]
    numbers = {"points": tasks.POINTS, "clusters": tasks.CLUSTERS, "dimensions": tasks.DIMENSIONS,
               "steps": tasks.STEPS, "checkpoint": CHECKPOINT}
    words = [word for name, number in numbers.items() for word in (f"--{name}", str(number))]
    clusters, _ = launching.run_protected(places, script, ["kmeans", "--check", *words], spares,
                                          options.timeout)
    if not clusters["equal"]:
        raise BenchError("the centres are not those of a run in one process")
    tree, _ = launching.run_protected(places, script, ["uts", "--depth", str(tasks.DEPTH)],
                                      spares, options.timeout)
    return {"kmeans": clusters["single step"], "uts": tree["found_per_s"]}


def text(report: JsonObject) -> str:
    """The table for people."""
    rows = [["", "median (min .. max)", "by ftrma.apgas"]]
    for what, (name, scale) in WHATS.items():
        rows.append([name.format(n=report["workers"]), "", ""])
        for system, found in report["found"].items():
            if what not in found:
                rows.append(["  " + NAMES[system], "the job ends", "-"])
                continue
            value = common.scaled(found[what]["value"], scale)
            rows.append(["  " + NAMES[system], common.with_range(value, DIGITS.get(what, 0)),
                         "-" if system == "apgas"
                         else common.with_range(found[what]["by apgas"], against=1)])
    return "\n".join([
        f"{report['rounds']} rounds; median (min .. max). KMeans and the search with "
        f"{report['cores']} workers; {tasks.POINTS} points of {tasks.DIMENSIONS} dimensions each, "
        f"{tasks.CLUSTERS} clusters; a tree of depth {tasks.DEPTH}.", "", common.table(rows)])


def draw(report: JsonObject, path: Any) -> None:
    """Each system's times by those of ftrma.apgas."""
    others = [system for system in report["found"] if system != "apgas"]
    whats = [what for what in WHATS
             if all(what in report["found"][system] for system in others) or what != "kill"]
    figure, axes = figures.chart(
        [WHATS[what][0].format(n=report["workers"]) for what in whats],
        {NAMES[system]: [report["found"][system][what]["by apgas"] for what in whats]
         for system in others}, "by ftrma.apgas", logarithmic=True)
    axes.axvline(1.0, color="0.2", lw=0.8)
    common.save(figure, path, report)
