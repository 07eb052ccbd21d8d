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

LATE_S = 0.002  # that a sleep may be too long


class Paced(aic_programs.PageRank):
    """PageRank that takes its time.

    Args:
        pace_s: seconds of an update, by sleeping; 0: as long as it takes.
        most: updates behind which this process dies; None: it does not.
    """

    def __init__(self, pace_s: float, most: int | None) -> None:
        self.pace_s, self.left = pace_s, float("inf") if most is None else most
        self.awake_s = 0.0  # when the updates so far are over

    def init(self, v: Any) -> None:
        if "began" not in framework.kept:  # the first one in this process
            framework.kept["began"] = time.time()
        super().init(v)

    def send(self, v: Any, delta: Any) -> Any:
        self.left -= len(delta)
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.pace_s:
            # A sleep that was too long is made up for by the next one, but no idle time is.
            now = time.monotonic()
            self.awake_s = max(self.awake_s, now - LATE_S) + self.pace_s * len(delta)
            time.sleep(max(self.awake_s - now, 0.0))
        return super().send(v, delta)


def program_of(asked: dict[str, Any]) -> aic.DeltaProgram:
    me, pace = MPI.COMM_WORLD.rank, asked["pace"]
    slot, updates = asked.get("die") or (-1, None)
    dies = slot == me and framework.attempt() == 1
    return Paced(pace[me] if isinstance(pace, list) else pace, updates if dies else None)


def power_iteration(graph: Any, expected: Any, error: float) -> dict[str, Any]:
    """The time until scipy's iteration has such an error; it looks at the error for nothing."""
    import aic_oracles

    step, begin = aic_oracles.pagerank_step(graph), np.full(graph.n, 1 - aic_programs.DAMPING)
    x, seconds, steps = begin, 0.0, 0
    while abs(x - expected).sum() > error:
        began = time.perf_counter()
        x = begin + step @ x
        seconds += time.perf_counter() - began
        steps += 1
    return {"seconds": seconds, "steps": steps}


def main() -> None:
    asked = json.loads(sys.argv[1])
    graph = command.graph_of(asked["graph"])
    found, values, whole_s = [], [], 0.0
    for word in asked["runs"]:
        result = aic.run(program_of(asked), graph, eps=asked["eps"],
                         snapshot=make(word))
        whole_s = time.time() - float(framework.kept["began"])
        values.append(result.gather())
        found.append({"snapshot": word, "bound": result.bound, **result.stats})
    if MPI.COMM_WORLD.rank == 0:
        import aic_oracles  # here, since scipy takes a while

        expected = aic_oracles.pagerank(graph)
        for run, ranks in zip(found, values, strict=True):
            run["error"] = float(abs(ranks - expected).sum())
            if asked.get("scipy"):
                run["scipy"] = power_iteration(graph, expected, run["error"])
        print(json.dumps({"runs": found, "whole_s": whole_s}, default=float), flush=True)


main()
