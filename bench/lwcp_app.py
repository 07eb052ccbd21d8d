"""The program that `bench lwcp` kills: PageRank, or triangles, with its steps' times.

The last line of output is one JSON object: a checksum of the result, and of each slot the reports
of the steps that its process has taken.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "apps"))

import graph as command
import pregel

from ftrma import graph
from ftrma.graph import data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=("pagerank", "triangles"))
    parser.add_argument("graph")
    parser.add_argument("recovery")
    parser.add_argument("every", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--quota", type=int, default=1)
    parser.add_argument("--topology", choices=("parity",))
    options = parser.parse_args()
    engine = graph.Engine(options.recovery, options.every, topology=options.topology)
    given = command.graph_of(engine, options.graph)
    if options.program == "pagerank":
        result = engine.run(given, pregel.PageRank(options.steps))
        values = result.gather("rank")
    else:
        result = engine.run(data.symmetric(given), pregel.Triangles(options.quota))
        values = result.gather("count")
    reports = engine.comm.gather([dataclasses.asdict(report) for report in result.reports])
    if values is not None:
        print(json.dumps({"crc": zlib.crc32(values.tobytes()), "slots": reports}), flush=True)


main()
