"""The program that `bench phoenix` runs: one of Phoenix's, some times one after another.

The last line of output is one JSON object: a checksum of the result, the number of rounds that the
process of slot 0 has taken for the last run, and for each run the time of its begin and the seconds
of its rounds and of all of it; and the seconds of a run's rounds if each is as fast as ever.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "apps"))

import graph as command
import phoenix

from ftrma import graph
from ftrma.graph import data

# Programs: the graph that is made of the given one, the program, the field that is its result.
PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "bfs": (lambda g: g, lambda g: phoenix.Distance(0, weighted=False), "value"),
    "cc": (data.symmetric, lambda g: phoenix.Component(), "value"),
    "pagerank": (lambda g: g, lambda g: phoenix.Residual(g.n, 1e-6), "rank"),
    "kcore": (data.simple, lambda g: phoenix.Core(16), "value"),
    "colour": (data.simple, lambda g: phoenix.Colour(), "colour")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("graph")
    parser.add_argument("runs", type=int)
    parser.add_argument("every", type=int, nargs="?", default=0,
                        help="rounds between checkpoints, by cr; 0: Phoenix")
    options = parser.parse_args()
    make, program, field = PROGRAMS[options.program]
    engine = graph.Engine("cr", options.every) if options.every else graph.Engine("phoenix")
    given = make(command.graph_of(engine, options.graph))
    each, rounds = [], []
    for _ in range(options.runs):
        began, clock = time.time(), time.perf_counter()
        result = engine.run(given, program(given))
        whole = time.perf_counter() - clock
        rounds.append([report.seconds for report in result.reports])
        each.append((began, sum(rounds[-1]), whole))
    values = result.gather(field)
    if values is not None:
        print(json.dumps({"crc": zlib.crc32(values.tobytes()), "rounds": len(rounds[-1]),
                          "each": each, "fastest_s": sum(map(min, zip(*rounds, strict=True)))}),
              flush=True)


main()
