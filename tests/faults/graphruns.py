"""Jobs of `ftrma.graph` by the programs of ``graphs.py``, and the results that they must have."""

from __future__ import annotations

import functools
from pathlib import Path

from jobs import Result, run_job
from programs import final_memory, kinds

SCRIPT = Path(__file__).parent / "graphs.py"
SLOTS = 4
PROGRAMS = ("pagerank", "distance", "component")
FULL = ("sv", "triangles", "matching", "kcore", "doubling")  # masks, lists, changes of edges
# Programs in bench/apps/analytics.py.
ANALYTICS = ("lists", "walks", "hits", "labels", "mis", "betweenness", "forest",
             "paths")
RECOVERIES = ("hwcp", "lwcp", "hwlog", "lwlog")
SPARES = ("--spares", "3")
STRONG = ("--checksums", "2", "--group-size", "4")


def run(recovery: str, names: tuple[str, ...], *options: str) -> Result:
    return run_job(SCRIPT, SLOTS, *options, args=[recovery, *names])


def kill(*rules: str) -> list[str]:
    return [word for rule in rules for word in ("--kill", rule)]


@functools.cache
def reference() -> Result:
    result = run("lwlog", PROGRAMS + FULL + ANALYTICS)
    assert result.status == 0 and not kinds(result), result
    return result


def assert_same(result: Result, names: tuple[str, ...]) -> None:
    assert result.status == 0, result
    for slot, arrays in final_memory(result).items():
        assert sorted(arrays) == sorted(names)
        for name, array in arrays.items():
            expected = final_memory(reference())[slot][name]
            assert array.tobytes() == expected.tobytes(), (slot, name, result)
