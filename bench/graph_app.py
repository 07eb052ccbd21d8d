"""The program that `bench graph` times: each of three vertex programs, twice.

The last line of output is one JSON object: of each program the seconds that the steps of its second
run took in slot 0, which waits for the others in each, and those of the whole run, its setting up
and its result's checkpoint.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "apps"))

import graph as command
import pregel

from ftrma import graph
from ftrma.graph import data

STEPS = 20
PROGRAMS: dict[str, Callable[[], graph.VertexProgram]] = {
    "pagerank": lambda: pregel.PageRank(STEPS),
    "bfs": lambda: pregel.Distance(0, weighted=False),
    "cc": pregel.Component,
}


def main() -> None:
    name, partition, recovery = sys.argv[1:]
    engine = graph.Engine(recovery=recovery, partition=partition)
    given = command.graph_of(engine, name)
    found = {}
    for program, make in PROGRAMS.items():
        of = data.symmetric(given) if program == "cc" else given
        for _ in range(2):
            began = time.perf_counter()
            result = engine.run(of, make())
            seconds = time.perf_counter() - began
        found[program] = {"steps_s": sum(report.seconds for report in result.reports),
                          "run_s": seconds}
    if engine.comm.rank == 0:
        print(json.dumps(found), flush=True)


main()
