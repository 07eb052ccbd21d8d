"""The program that `bench aic` runs: delta PageRank, some times one after another.

The argument is one JSON object: ``graph``, as ``ftrma aic`` has it; ``eps``; ``pace``, seconds that
an update takes, by sleeping, or a list of them, for each slot (0: as long as it takes); ``runs``,
the words of the snapshots of each run; and perhaps ``die``, a slot and a number of its updates: in
the first attempt its process dies behind them. The last line of output is one JSON object: for each
run what `aic.run` has counted, the error against scipy's solution, and the seconds in all attempts.
With ``scipy`` the power iteration is timed, too, as far as each run's error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "apps"))

import aic as command
import aic_programs

from ftrma import MPI, aic, framework
from ftrma.frameworks.aic.modes import make


class Dying(aic_programs.PageRank):
    """PageRank that keeps the time of its first begin in this process.

    Args:
        most: updates behind which this process dies; None: it does not.

    Attributes:
        cpu_s: of this process when the run began.
    """

    def __init__(self, most: int | None) -> None:
        self.cpu_s = 0.0
        self.left = float("inf") if most is None else most

    def init(self, v: Any) -> None:
        if "began" not in framework.kept:
            framework.kept["began"] = time.time()
        self.cpu_s = time.process_time()
        super().init(v)

    def send(self, v: Any, delta: Any) -> Any:
        self.left -= len(delta)
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().send(v, delta)


def program_of(asked: dict[str, Any]) -> Dying:
    slot, updates = asked.get("die") or (-1, None)
    dies = slot == MPI.COMM_WORLD.rank and framework.attempt() == 1
    return Dying(updates if dies else None)


def amid(result: aic.Result) -> dict[str, float]:
    """Seconds of all slots in which a snapshot was open; in which they stood still for it: they
    staged, waited, or had nothing to do; and in which they staged."""
    mine = [(one.open_s, one.staging_s + one.idle_s, one.staging_s)
            for one in result.outcome.snapshots]
    found = MPI.COMM_WORLD.allgather(np.array(mine).reshape(-1, 3).sum(axis=0))
    return dict(zip(("open_s", "still_s", "staging_s"), map(float, sum(found)), strict=True))


def power_iteration(graph: Any, expected: Any, error: float) -> dict[str, Any]:
    """The time until scipy's iteration has such an error; it looks at the error for nothing."""
    import aic_oracles

    step, begin = aic_oracles.pagerank_step(graph), np.full(graph.n, 1 - aic_programs.DAMPING)
    x, seconds, cpu_s, steps = begin, 0.0, 0.0, 0
    while abs(x - expected).sum() > error:
        began, cpu = time.perf_counter(), time.process_time()
        x = begin + step @ x
        seconds += time.perf_counter() - began
        cpu_s += time.process_time() - cpu
        steps += 1
    return {"seconds": seconds, "cpu_s": cpu_s, "steps": steps}


def main() -> None:
    asked = json.loads(sys.argv[1])
    graph = command.graph_of(asked["graph"])
    found, values, whole_s = [], [], 0.0
    for word in asked["runs"]:
        program = program_of(asked)
        result = aic.run(program, graph, eps=asked["eps"],
                         pace=asked["pace"], snapshot=make(word))
        whole_s = time.time() - float(framework.kept["began"])
        cpu_s = time.process_time() - program.cpu_s
        values.append(result.gather())
        found.append({"snapshot": word, "bound": result.bound, **result.stats, **amid(result),
                      "cpu_s": cpu_s})
    if MPI.COMM_WORLD.rank == 0:
        import aic_oracles  # here, since scipy takes a while

        expected = aic_oracles.pagerank(graph)
        for run, ranks in zip(found, values, strict=True):
            run["error"] = float(abs(ranks - expected).sum())
            if asked.get("scipy"):
                run["scipy"] = power_iteration(graph, expected, run["error"])
        print(json.dumps({"runs": found, "whole_s": whole_s}, default=float), flush=True)


main()
