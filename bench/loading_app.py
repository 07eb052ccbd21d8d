"""The program that `bench loading` times: its slots load a graph, and each makes its part.

The last line of output is one JSON object: seconds from the same moment on until all slots have
their parts, and the memory that this took more at its peak, of all slots, in bytes for each edge.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

from ftrma import graph
from ftrma.frameworks.graph import shuffle
from ftrma.graph import data


def memory(key: str) -> int:
    """A line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def main() -> None:
    (path,) = sys.argv[1:]
    if Path(path).name.startswith("parquet"):
        importlib.import_module("pyarrow.parquet")  # the peer has it, too
    engine = graph.Engine()
    comm = engine.comm
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that from here on
    comm.Barrier()
    before, began = memory("VmRSS"), time.perf_counter()
    found = engine.load(path)
    partition = data.partition_of("hash", found, comm.size)
    part = shuffle.part(comm, found, partition)
    comm.Barrier()
    seconds, more = time.perf_counter() - began, memory("VmHWM") - before
    edges = comm.allreduce(len(part.target))
    taken = comm.allreduce(more) / edges
    if comm.rank == 0:
        print(json.dumps({"seconds": seconds, "bytes": taken, "edges": edges}), flush=True)


main()
