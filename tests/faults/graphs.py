"""Vertex programs for tests: PageRank, shortest paths, components; one after another."""

from __future__ import annotations

import sys
from typing import ClassVar

import numpy as np

from ftrma import graph
from ftrma.graph import Context, Inbox, Vertices, data

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
    """Of many components, some of them long."""
    random = np.random.default_rng(SEED)
    source = random.integers(0, 900, 500)
    return data.symmetric(data.of_edges(900, source, (source + random.integers(1, 40, 500)) % 900))


def main() -> None:
    directory, recovery, *names = sys.argv[1:]
    engine = graph.Engine(recovery=recovery, checkpoint=5)
    found = {}
    for name in names:
        if name == "pagerank":
            result = engine.run(engine.rmat(SCALE, seed=SEED), PageRank())
            found["rank"] = result["rank"]
        elif name == "distance":
            result = engine.run(weighted(), Distance())
            found["distance"] = result["distance"]
        else:
            result = engine.run(sparse(), Component())
            found["least"] = result["least"]
        whole = result.gather(list(found)[-1])
        if whole is not None:
            np.save(f"{directory}/whole-{name}.npy", whole)
    np.savez(f"{directory}/slot-{engine.comm.rank}.npz", **found)


if __name__ == "__main__":
    main()
