"""PageRank, distances and components of a graph, by vertex programs that survive failures.

What: `pagerank` follows Pregel's (Malewicz et al., SIGMOD 2010), with the ranks of vertices without
edges spread over all; `bfs` and `sssp` relax distances from one vertex, by steps and by weights;
`cc` gives each vertex the least id that it is connected with (Hash-Min), edges taken in both
directions. The graph is an .npz file or ``rmat:SCALE``. The last line on standard output is one
JSON object.

Why: they are what users begin with, and what the recoveries of `ftrma.graph` are compared by.

Source: J. Rastogi et al., "Finding connected components in map-reduce in logarithmic rounds", ICDE
2013, for Hash-Min.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, ClassVar, NoReturn

import numpy as np

from ftrma import MPI, graph
from ftrma.graph import Context, Inbox, Vertices, data, superstep

DAMPING = 0.85


class PageRank(graph.VertexProgram):
    """So many steps of the power iteration."""

    fields: ClassVar = {"rank": float}
    message = float
    combine = np.add
    aggregates: ClassVar = {"dangling": float}

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            v.rank = 1 / ctx.n
        else:
            spread = (1 - DAMPING + DAMPING * ctx["dangling"]) / ctx.n
            v.rank = spread + DAMPING * inbox.values
        ctx.contribute("dangling", v.rank[v.degree == 0].sum())
        if ctx.step > self.steps:
            v.vote_to_halt()

    def emit(self, v: Vertices, ctx: Context) -> None:
        if ctx.step <= self.steps:
            v.send(v.rank / v.degree.clip(1))


class Least(graph.VertexProgram):
    """The least value that reaches a vertex; whoever has got a lesser one tells its neighbours."""

    fields: ClassVar = {"value": float, "changed": bool}
    message = float
    combine = np.minimum

    def first(self, v: Vertices) -> Any:
        """Values before the first step."""
        raise NotImplementedError

    def update(self, v: Vertices, inbox: Inbox, ctx: Context) -> None:
        if ctx.step == 1:
            v.value = self.first(v)
            v.changed = np.isfinite(v.value)
        else:
            v.changed = inbox.values < v.value
            v.value = np.minimum(v.value, inbox.values)
        v.vote_to_halt()


class Distance(Least):
    """From one vertex, in steps or by weights."""

    def __init__(self, source: int, *, weighted: bool) -> None:
        self.source, self.weighted = source, weighted

    def first(self, v: Vertices) -> Any:
        return np.where(v.ids == self.source, 0.0, np.inf)

    def emit(self, v: Vertices, ctx: Context) -> None:
        if self.weighted:
            v.send(v.value, weight="plus", where=v.changed)
        else:
            v.send(v.value + 1, where=v.changed)


class Component(Least):
    """The least id in a vertex's component."""

    fields: ClassVar = {"value": np.int64, "changed": bool}
    message = np.int64

    def first(self, v: Vertices) -> Any:
        return v.ids

    def emit(self, v: Vertices, ctx: Context) -> None:
        v.send(v.value, where=v.changed)


class Parser(argparse.ArgumentParser):
    """One line from slot 0 alone."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="graph", description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("program", choices=("pagerank", "bfs", "sssp", "cc"))
    parser.add_argument("graph")
    parser.add_argument("--recovery", choices=superstep.RECOVERIES, default="lwlog")
    parser.add_argument("--checkpoint", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--source", type=int, default=0)
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        raise ValueError(f"--steps {options.steps}: give 1 or more")
    return options


def graph_of(engine: graph.Engine, name: str) -> data.Graph:
    """From a file, or as the name says."""
    kind, _, number = name.partition(":")
    if kind == "rmat" and number:
        if not number.isdigit():
            raise ValueError(f"{name}: expected rmat:SCALE, such as rmat:16")
        return engine.rmat(int(number))
    return engine.load(name)


def program_of(options: argparse.Namespace, found: data.Graph) -> graph.VertexProgram:
    if not 0 <= options.source < found.n:
        raise ValueError(f"--source {options.source}: vertices are 0 to {found.n - 1}")
    if options.program == "pagerank":
        return PageRank(options.steps)
    if options.program == "cc":
        return Component()
    return Distance(options.source, weighted=options.program == "sssp")


def save(path: str, values: Any) -> None:
    """Write a file whole or not at all."""
    with open(f"{path}.part", "wb") as file:
        np.save(file, values)
    os.replace(f"{path}.part", path)


def main(arguments: list[str]) -> int:
    """Run one of them; the result is the exit status."""
    slot = MPI.COMM_WORLD.rank
    try:
        options = parse(arguments)
        engine = graph.Engine(recovery=options.recovery, checkpoint=options.checkpoint)
        found = graph_of(engine, options.graph)
        if options.program == "cc":
            found = data.symmetric(found)
        began = time.monotonic()
        result = engine.run(found, program_of(options, found))
        seconds = time.monotonic() - began
        values = result.gather("rank" if options.program == "pagerank" else "value")
        if slot == 0:
            if options.out:
                save(options.out, values)
            print(json.dumps({
                "program": options.program, "graph": options.graph, "vertices": found.n,
                "slots": engine.comm.size, "recovery": options.recovery, "seconds": seconds,
                "out": options.out}), flush=True)
    except (ValueError, OSError) as error:
        if slot == 0:
            print(f"graph: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
