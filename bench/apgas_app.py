"""The program that `bench apgas` times: patterns of tasks, calls and the store.

The last line of output is one JSON object: for each pattern the seconds that one takes from place
zero and from another place, the median of many.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrma import apgas

LOCAL = 20  # tasks of a place in the pattern with work of its own
LEAST = 20  # times that a pattern is repeated, however long one takes


def nothing() -> None:
    """A task without work."""


def back(home: int) -> None:
    apgas.async_at(home, nothing)


def local_work() -> None:
    for _ in range(LOCAL):
        apgas.async_(nothing)


def everywhere() -> None:
    for place in apgas.places():
        apgas.async_at(place, nothing)


def nested() -> None:
    with apgas.finish():
        everywhere()


def tree(ordinal: int) -> None:
    places = list(apgas.places())
    for child in (2 * ordinal + 1, 2 * ordinal + 2):
        if child < len(places):
            apgas.async_at(places[child], tree, child)


def ring(left: int) -> None:
    if left:
        places = list(apgas.places())
        after = places[(places.index(apgas.here()) + 1) % len(places)]
        apgas.async_at(after, ring, left - 1)


def other() -> int:
    """A place beside this one."""
    return next(place for place in apgas.places() if place != apgas.here())


def at_all(function: Callable[..., None], *arguments: Any) -> None:
    for place in apgas.places():
        apgas.async_at(place, function, *arguments)


# The body of a finish, by the name of the pattern.
PATTERNS: dict[str, Callable[[], None]] = {
    "local": lambda: apgas.async_(nothing),
    "single": lambda: apgas.async_at(other(), nothing),
    "single, back": lambda: apgas.async_at(other(), back, apgas.here()),
    "fan-out": lambda: at_all(nothing),
    "fan-out, back": lambda: at_all(back, apgas.here()),
    "fan-out, local work": lambda: at_all(local_work),
    "fan-out squared": lambda: at_all(everywhere),
    "fan-out, nested": lambda: at_all(nested),
    "tree": lambda: tree(0),
    "ring": lambda: ring(len(apgas.places())),
}


def timed(once: Callable[[], object], seconds: float) -> float:
    """Median seconds of one call, over so many seconds of calls."""
    for _ in range(LEAST):
        once()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < LEAST:
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def of_pattern(name: str, seconds: float) -> float:
    """Time a pattern from this place."""
    def once() -> None:
        with apgas.finish():
            PATTERNS[name]()
    return timed(once, seconds)


def of_store(seconds: float) -> dict[str, float]:
    """Time commits of this place's shelf, beside copies of as many bytes."""
    store = apgas.ResilientStore(apgas.places(), "bench")
    small, large = np.zeros(1), np.zeros(1 << 17)
    source = np.ones(1 << 17)
    found = {"set 8 B": timed(lambda: store.set("small", small), seconds),
             "set 1 MiB": timed(lambda: store.set("large", large), seconds),
             "get 8 B": timed(lambda: store.get("small"), seconds)}
    return {**found, "memcpy 1 MiB": timed(lambda: np.copyto(large, source), seconds)}


def main() -> None:
    seconds = float(sys.argv[2])
    found: dict[str, Any] = {"zero": {}, "one": {}}
    for name in PATTERNS:
        found["zero"][name] = of_pattern(name, seconds)
        found["one"][name] = apgas.at(other(), of_pattern, name, seconds)
    if sys.argv[1] != "none":
        found["store"] = of_store(seconds)
    found["at"] = timed(lambda: apgas.at(other(), nothing), seconds)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    apgas.run(main, finish=sys.argv[1])
