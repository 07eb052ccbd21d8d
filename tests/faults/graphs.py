"""Vertex programs for tests, one after another: three of its own, and those that come along."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np

from ftrma import graph
from ftrma.graph import Context, Inbox, NotEnded, Vertices, data

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "apps"))
import analytics
import pregel

SCALE, SEED, STEPS = 9, 5, 16


class PageRank(graph.VertexProgram):
    fields: ClassVar = {"rank": float}
    message = float
    combine = np.add
    aggregates: ClassVar = {"dangling": float}

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            v.rank = 1 / ctx.n
        else:
            v.rank = (0.15 + 0.85 * ctx["dangling"]) / ctx.n + 0.85 * inbox.values
        ctx.contribute("dangling", v.rank[v.degree == 0].sum())
        if ctx.step > STEPS:
            v.vote_to_halt()

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step <= STEPS:
            v.send(v.rank / v.degree.clip(1))


class Distance(graph.VertexProgram):
    fields: ClassVar = {"distance": float, "changed": bool}
    message = float
    combine = np.minimum

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        before = v.distance if ctx.step > 1 else np.where(v.ids == 0, 0.0, np.inf)
        now = np.minimum(before, inbox.values)
        v.changed = (now < before) | ((ctx.step == 1) & (v.ids == 0))
        v.distance = now
        v.vote_to_halt()

    def emit(self, v: Vertices, ctx: Context) -> None:
        v.send(v.distance, weight="plus", where=v.changed)


class Component(graph.VertexProgram):
    fields: ClassVar = {"least": np.int64, "changed": bool}
    message = np.int64
    combine = np.minimum

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        before = v.least if ctx.step > 1 else v.ids
        now = np.minimum(before, inbox.values)
        v.changed = (now < before) | (ctx.step == 1)
        v.least = now
        v.vote_to_halt()

    def emit(self, v: Vertices, ctx: Context) -> None:
        v.send(v.least, where=v.changed)


def weighted() -> data.Graph:
    """Paths in it are long: a ring with some chords."""
    random = np.random.default_rng(SEED)
    n, m = 600, 500
    source = np.concatenate([np.arange(n), random.integers(0, n, m)])
    target = np.concatenate([(np.arange(n) + 1) % n, (source[n:] + random.integers(2, 30, m)) % n])
    return data.of_edges(n, source, target, random.integers(1, 9, n + m))


def sparse() -> data.Graph:
    """A graph of many components, some of them long."""
    random = np.random.default_rng(SEED)
    source = random.integers(0, 900, 500)
    return data.symmetric(data.of_edges(900, source, (source + random.integers(1, 40, 500)) % 900))


def simple() -> data.Graph:
    """A graph with each edge in both directions, none from a vertex to itself.

    Trees hang from it, and a path, which unravels from its end.
    """
    random = np.random.default_rng(SEED)
    source, target = random.integers(0, 700, (2, 900))
    path = np.arange(699, 720)
    keys = np.unique(np.concatenate([
        np.minimum(source, target) * 720 + np.maximum(source, target), path[:-1] * 720 + path[1:]]))
    source, target = keys // 720, keys % 720
    return data.symmetric(data.of_edges(720, source[source < target], target[source < target]))


def bipartite() -> data.Graph:
    random = np.random.default_rng(SEED)
    keys = np.unique(random.integers(0, 200, 700) * 200 + random.integers(0, 200, 700))
    return data.symmetric(data.of_edges(400, keys // 200, keys % 200 + 200))


def dense() -> data.Graph:
    return data.symmetric(data.rmat(7, degree=6, seed=SEED))


def triangle_lists() -> analytics.TriangleCount:
    """Lists of a few vertices in each step."""
    return analytics.TriangleCount(data.rmat(8, degree=6, seed=SEED).degrees(), 200)


def walks() -> pregel.PageRank:
    return pregel.PageRank(60, damping=0.7, tolerance=1e-4, restart=np.array([3, 17, 400]),
                           weighted=True)


# Programs: what they are run on, and the field that is their result.
PROGRAMS = {
    "pagerank": (lambda: data.rmat(SCALE, seed=SEED), PageRank, "rank"),
    "distance": (weighted, Distance, "distance"),
    "component": (sparse, Component, "least"),
    "sv": (sparse, pregel.PointerJumping, "value"),
    "triangles": (dense, pregel.Triangles, "count"),
    "matching": (bipartite, lambda: pregel.Matching(200), "partner"),
    "kcore": (simple, lambda: pregel.Core(2), "kept"),
    "lists": (lambda: data.simple(data.rmat(8, degree=6, seed=SEED)), triangle_lists, "count"),
    "walks": (weighted, walks, "rank"),
    "hits": (lambda: data.both(data.rmat(8, degree=6, seed=SEED)),
             lambda: analytics.Hits(20, 1e-6), "hub"),
    "labels": (dense, lambda: analytics.Labels(12), "label"),
    "mis": (simple, analytics.Independent, "inside"),
    "betweenness": (lambda: data.copies(data.both(data.rmat(7, degree=2, seed=SEED)), 2),
                    lambda: analytics.Betweenness(128, np.arange(3), 2, directed=True), "value"),
    "paths": (weighted, lambda: analytics.ShortestPaths(0, weighted=True), "parent"),
    "forest": (lambda: data.symmetric(weighted()), analytics.Forest, "weight"),
    "doubling": (lambda: data.path(500), lambda: pregel.Doubling(8), "least"),
}


def main() -> None:
    directory = sys.argv.pop(1)  # another one in each launch
    recovery, *names = sys.argv[1:]
    topology = names.pop(0) if names[0] in ("parity", "loader") else None
    engine = graph.Engine(recovery=recovery, checkpoint=5, topology=topology)
    found, steps = {}, {}
    for name in names:
        make, program, field = PROGRAMS[name]
        try:
            result = engine.run(make(), program(), most=int(os.environ.get("MOST", "1000")))
        except NotEnded as error:
            print(error, file=sys.stderr)
            return
        found[name] = result[field]
        steps[name] = [report.step for report in result.reports]
        whole = result.gather(field)
        if whole is not None:
            np.save(f"{directory}/whole-{name}.npy", whole)
    np.savez(f"{directory}/slot-{engine.comm.rank}.npz", **found)
    if engine.comm.rank == 0:
        print({name: max(taken, default=0) for name, taken in steps.items()}, flush=True)
        with open(f"{directory}/steps.json", "w") as file:
            json.dump(steps, file)


if __name__ == "__main__":
    main()
