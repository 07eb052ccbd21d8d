"""A matrix completion for tests: each slot writes its model, and the snapshots that it has read.

``completions.py DIRECTORY PARAMETERS``: JSON, in which "matrix" is rows, columns and rank of a
planted matrix, and "snapshot" a mode as on a command line. Files of slot s: ``model-s.npz``,
factors and errors; ``loaded-s-a.npz``, its part of the snapshot from which attempt a has gone on;
``peeked-s-a-e.npz``, of snapshot e of attempt a.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ftrma import MPI, aic, framework
from ftrma.frameworks.aic import modes
from ftrma.frameworks.aic.completion_workload import CompletionWorkload
from ftrma.frameworks.aic.snapshots import LOG, unpack
from ftrma.frameworks.aic.worker import HELD, Worker

directory, parameters = Path(sys.argv[1]), json.loads(sys.argv[2])
slot = MPI.COMM_WORLD.rank
matrix = aic.planted(*parameters.pop("matrix"), seed=1)
snapshot = modes.make(parameters.pop("snapshot"))
rank = parameters["rank"] = parameters.get("rank", 5)


def part(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """A slot's part of a snapshot: its columns, wherever they are, and what it has counted."""
    logged = [np.frombuffer(data).reshape(-1, rank + 2)
              for name in (LOG, HELD) if name in arrays for _, data in unpack(arrays[name])]
    return {"rows": arrays["row_factors"], "visits": arrays["numbers"][1],
            "squares": arrays["errors"].sum(), "columns": np.concatenate(
                [arrays["queue"], arrays["packed"], arrays["finished"], *logged])}


def save(name: str, **arrays: Any) -> None:
    """Write a file, or none if the process dies."""
    path = directory.parent / f"{name}.npz"
    np.savez(path, **arrays)
    path.rename(directory / path.name)


def peek() -> None:
    """Read snapshots, as long as the run goes on."""
    seen = 0
    while not over.wait(0.02):
        found = aic.peek()
        if found is not None and found.number != seen:
            seen = found.number
            save(f"peeked-{slot}-{framework.attempt()}-{seen}", **part(found.arrays))


restore = Worker.restore


def restore_and_tell(worker: Worker, arrays: Mapping[str, Any]) -> None:
    restore(worker, arrays)
    assert isinstance(worker._workload, CompletionWorkload)
    save(f"loaded-{slot}-{framework.attempt()}", **part(arrays))


Worker.restore = restore_and_tell  # type: ignore[method-assign]
over = threading.Event()
reader = threading.Thread(target=peek)
reader.start()
try:
    model = aic.MatrixCompletion(snapshot=snapshot, **parameters)
    model.fit(*matrix, shape=matrix.shape)
finally:
    over.set()
    reader.join()
save(f"model-{slot}", rows=model.row_factors_, columns=model.column_factors_,
     rmse=model.rmse_, held_out=-model.score(*matrix.held_out), updates=model.stats_["updates"],
     visits=model.stats_["visits"], entries=len(matrix.rows))
