"""The program that `bench apgas --apps` times: an application of `ftrma apgas`, without a check.

Arguments: the finish, the application, its sizes as JSON, and seconds between two commits or steps
between two checkpoints, 0 for none. The last line of output is one JSON object: the seconds from
the first step to the end of the run, by the clock of the place that runs `main`; a checksum of
the result; of an executor, the times of its phases, and for each recovery the time from the begin
of the step in which a place died to the begin of the first step after it, at place zero.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "apps"))

import apgas as packaged
import uts

from ftrma import apgas

NEVER = 10**9  # steps


def timed(name: str, *sizes: int) -> Any:
    """An object of an application that notes how long each recovery keeps it from its steps."""
    app = packaged.ITERATIVE[name](*sizes)
    step, restore = app.step_local, app.restore_local
    app.first_s, app.began_s, app.back, app.stood_s = 0.0, 0.0, False, []

    def step_local(team: Any) -> None:
        now = time.perf_counter()
        if app.back:
            app.stood_s.append(now - app.began_s)
        app.first_s = app.first_s or now
        app.began_s, app.back = now, False
        step(team)

    def restore_local(saved: dict[str, Any]) -> None:
        restore(saved)
        app.back = True

    app.step_local, app.restore_local = step_local, restore_local
    return app


def of_steps(name: str, sizes: list[int], every: int) -> dict[str, Any]:
    """Run an application in steps."""
    executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(), every or NEVER,
                                           implicit_step_synchronization=True)
    app = executor.run(timed, name, *sizes)
    found = executor.statistics
    return {"seconds": time.perf_counter() - app.first_s,
            "crc": zlib.crc32(packaged.whole(executor.results).tobytes()),
            "step_s": found.step_s, "first_s": found.first_checkpoint_s,
            "checkpoint_s": found.checkpoints_s / max(1, found.checkpoints),
            "stood_s": app.stood_s,
            "recoveries": [{"runtime_s": recovery.detect_s + recovery.rebuild_s,
                            "data_s": recovery.remake_s + recovery.restore_s,
                            "redone_s": recovery.redone_s} for recovery in found.recoveries]}


def of_search(depth: int, commit_s: float) -> dict[str, Any]:
    """Count a tree at all places."""
    begin = time.perf_counter()
    total, _ = apgas.glb.run(uts.Nodes.root(depth), commit_s=commit_s or None)
    return {"seconds": time.perf_counter() - begin, "crc": total}


def main() -> None:
    _, name, sizes, every = sys.argv[1:]
    found = (of_search(*json.loads(sizes), float(every)) if name == "uts"
             else of_steps(name, json.loads(sizes), int(every)))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "sequential":
        began = time.perf_counter()
        count = uts.sequential(*json.loads(sys.argv[3]))
        print(json.dumps({"seconds": time.perf_counter() - began, "crc": count}))
    else:
        apgas.run(main, finish=sys.argv[1])
