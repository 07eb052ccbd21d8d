"""Programs over places that survive failures: the one that is asked for.

What: KMeans, logistic regression, PageRank and LULESH by executors with checkpoints; Unbalanced
Tree Search and the N queens by global load balancing. The last line on standard output is one JSON
object.

Why: they are the applications of Resilient X10, and what users begin with.

Source: see ``kmeans.py``, ``logreg.py``, ``pagerank_apgas.py``, ``lulesh.py``,
``uts.py`` and ``queens.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, NoReturn

import kmeans
import logreg
import lulesh
import numpy as np
import pagerank_apgas
import queens
import uts

from ftrma import apgas
from ftrma.host import outfile

ITERATIVE = {"kmeans": kmeans.KMeans, "logreg": logreg.LogisticRegression,
             "pagerank": pagerank_apgas.PageRank, "lulesh": lulesh.Lulesh}


class Parser(argparse.ArgumentParser):
    """One line instead of the usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="apgas", description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("program", choices=(*ITERATIVE, "uts", "queens"))
    for name, default in (("points", 100_000), ("clusters", 30), ("dimensions", 10),
                          ("samples", 50_000), ("features", 30), ("pages", 20_000), ("steps", 0),
                          ("edge", 10), ("depth", 8), ("board", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--checkpoint", default="10")
    parser.add_argument("--commit", type=float, default=0.05)
    parser.add_argument("--reserves", type=int, default=0)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--file")
    parser.add_argument("--file-interval", type=float, default=60.0)
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    if options.checkpoint.isdigit():
        options.checkpoint = int(options.checkpoint)
    if options.program != "lulesh":
        options.steps = options.steps or 50
    return options


def made(options: argparse.Namespace) -> tuple[Any, ...]:
    """Arguments of the application's class, and of its oracle behind the number of places."""
    if options.program == "kmeans":
        return options.points, options.clusters, options.dimensions, options.steps
    if options.program == "logreg":
        return options.samples, options.features, options.steps
    if options.program == "lulesh":
        return options.edge, options.steps
    return options.pages, options.steps


def whole(parts: list[Any]) -> Any:
    """The result of a run, from the places' parts: equal arrays, or blocks by their first rows."""
    if not isinstance(parts[0], dict):
        return parts[0]
    blocks: dict[int, Any] = {}
    for part in parts:
        blocks |= part
    return np.concatenate([blocks[first] for first in sorted(blocks)])


def oracle_of(options: argparse.Namespace, places: int) -> Any:
    """The result, computed in one process."""
    if options.program == "kmeans":
        return kmeans.oracle(places, *made(options))
    if options.program == "logreg":
        return logreg.oracle(places, *made(options))
    if options.program == "lulesh":
        return lulesh.oracle(*made(options)).e
    return pagerank_apgas.oracle(*made(options))


def run_iterative(options: argparse.Namespace, manager: apgas.PlaceManager) -> dict[str, Any]:
    places = len(manager.active_places())
    executor = apgas.SPMDIterativeExecutor(manager, options.checkpoint,
                                           implicit_step_synchronization=True,
                                           progress=options.progress, file=options.file,
                                           file_s=options.file_interval)
    app = executor.run(ITERATIVE[options.program], *made(options))
    values = whole(executor.results)
    if options.out:
        with outfile.opened(options.out) as file:
            np.save(file, values)
    statistics = executor.statistics
    found: dict[str, Any] = {"steps": statistics.steps, "failures": statistics.failures,
                             **{name: round(value, 6) for name, value in statistics.rows()}}
    if options.program == "lulesh":
        found |= {"cycles": app.slab.cycle, "energy": float(values[0, 0, 0])}
    if options.check:
        expected = oracle_of(options, places)
        found["equal"] = values.tobytes() == expected.tobytes()
        found["close"] = bool(np.allclose(values, expected, rtol=1e-9, atol=1e-12))
    return found


def run_bag(options: argparse.Namespace, manager: apgas.PlaceManager) -> dict[str, Any]:
    begin = time.perf_counter()
    is_uts = options.program == "uts"
    bag = uts.Nodes.root(options.depth) if is_uts else queens.Boards(options.board)
    total, tallies = apgas.glb.run(bag, manager, commit_s=options.commit or None)
    seconds = time.perf_counter() - begin
    found = {"nodes" if is_uts else "solutions": total, "seconds": seconds,
             "found_per_s": total / seconds,
             "commits": sum(tally.commits for tally in tallies),
             "parts": sum(tally.given for tally in tallies)}
    if options.check:
        expected = (uts.SIZES.get(options.depth) or uts.sequential(options.depth)) if is_uts \
            else queens.SOLUTIONS.get(options.board) or queens.sequential(options.board)
        found["equal"] = found["close"] = total == expected
    return found


def main() -> None:
    """Run one of them, at the place that leads."""
    try:
        options = parse(sys.argv[1:])
        manager = apgas.PlaceManager(spares=options.reserves,
                                     allow_shrinking=options.shrink)
        run = run_iterative if options.program in ITERATIVE else run_bag
        found = run(options, manager)
    except (ValueError, OSError) as error:
        outfile.tell(f"error: {error}", who="apgas")
        raise SystemExit(2) from None
    print(json.dumps({"program": options.program, "places": len(apgas.group()), **found,
                      "out": options.out}), flush=True)
    if options.check and not found["close"]:
        raise SystemExit(1)


if __name__ == "__main__":
    apgas.run(main)
