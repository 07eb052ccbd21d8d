"""The program that `bench phoenix` runs: one of Phoenix's, some times one after another.

The last line of output is one JSON object: a checksum of the result, the number of rounds that the
process of slot 0 has taken for the last run and the bytes that it has sent in them, and for each
run the time of its begin, and the seconds of its rounds and of all of it, failures included; and
the seconds of a run's rounds if each is as fast as ever; runs with failures have more rounds.
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

from ftrma import framework, graph
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
    parser.add_argument("recovery", nargs="?", default="phoenix",
                        help="phoenix, or cr:K and phoenix:K with K rounds between checkpoints")
    parser.add_argument("--cache", help="directory of the slots' parts of the graph")
    options = parser.parse_args()
    make, program, field = PROGRAMS[options.program]
    recovery, _, every = options.recovery.partition(":")
    engine = graph.Engine(recovery, int(every) if every else None, cache=options.cache)
    given = make(command.graph_of(engine, options.graph))
    each, rounds = [], []
    for run in range(options.runs):
        # A failure begins the program again in this process, and the run's begin is kept.
        began = framework.kept.setdefault(f"bench began {run}", time.time())
        result = engine.run(given, program(given))
        whole = time.time() - began
        rounds.append([report.seconds for report in result.reports])
        each.append((began, sum(rounds[-1]), whole))
    values = result.gather(field)
    if values is not None:
        print(json.dumps({"crc": zlib.crc32(values.tobytes()), "rounds": len(rounds[-1]),
                          "sent": sum(report.sent_bytes for report in result.reports),
                          "each": each, "fastest_s": sum(map(min, zip(*rounds, strict=False)))}),
              flush=True)


main()
