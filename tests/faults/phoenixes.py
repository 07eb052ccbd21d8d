"""Phoenix's programs for tests, one after another: each class, on graphs that take rounds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ftrma import graph
from ftrma.graph import data

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "apps"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import phoenix
from graphs import SCALE, SEED, sparse, weighted

TOLERANCE, K = 1e-6, 2


def web() -> data.Graph:
    return data.rmat(SCALE, seed=SEED)


def rated() -> data.Graph:
    """Some entries of a matrix of rank 2, between 1 and 5."""
    random = np.random.default_rng(SEED)
    users, films = random.random((60, 2)) + 0.5, random.random((60, 2)) + 0.5
    pairs = np.unique(random.integers(0, 3600, 1500))
    source, target = pairs // 60, pairs % 60
    return data.bipartite(data.of_edges(60, source, target, (users @ films.T)[source, target]))


# For each its graph, the program on it, and the field that is its result.
PROGRAMS: dict[str, tuple[Callable[[], data.Graph], Callable[[data.Graph], Any], str]] = {
    "bfs": (weighted, lambda g: phoenix.Distance(0, weighted=False), "value"),
    "sssp": (weighted, lambda g: phoenix.Distance(0, weighted=True), "value"),
    "cc": (sparse, lambda g: phoenix.Component(), "value"),
    "colour": (lambda: data.simple(web()), lambda g: phoenix.Colour(), "colour"),
    "pull": (lambda: data.reverse(web()),
             lambda g: phoenix.Pulled(phoenix.out_degree(web()), TOLERANCE), "rank"),
    "residual": (web, lambda g: phoenix.Residual(g.n, TOLERANCE), "rank"),
    "factors": (rated, lambda g: phoenix.Factors(3, 150, 1e-9), "squares"),
    "kcore": (lambda: data.simple(sparse()), lambda g: phoenix.Core(K), "value"),
}


def main() -> None:
    directory = sys.argv.pop(1)  # another one in each launch
    recovery, *names = sys.argv[1:]
    engine = graph.Engine(recovery)
    found, rounds = {}, {}
    for name in names:
        make, program, field = PROGRAMS[name]
        given = make()
        result = engine.run(given, program(given))
        found[name] = result[field]
        rounds[name] = len(result.reports)
        whole = result.gather(field)
        if whole is not None:
            np.save(f"{directory}/whole-{name}.npy", whole)
    np.savez(f"{directory}/slot-{engine.comm.rank}.npz", **found)
    if engine.comm.rank == 0:
        print(json.dumps(rounds), flush=True)


if __name__ == "__main__":
    main()
