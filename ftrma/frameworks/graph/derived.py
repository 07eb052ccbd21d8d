"""Graphs that are made of another one by a look at the edges of each slot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import kernels
from .parts import Graph, Part, Partition
from .references import EdgeArrays


class Simple(Graph):
    """A graph without directions: one edge each way between neighbours, none to oneself.

    Edges have no weights; those of a vertex ascend as the slot's targets do.
    """

    def __init__(self, graph: Graph) -> None:
        def chunks() -> Iterator[EdgeArrays]:
            for source, target, _ in graph.chunks():
                other = source != target
                first, second = source[other], target[other]
                yield first, second, None
                yield second, first, None

        super().__init__(graph.n, chunks, graph.what, graph.names, file=graph.file,
                         edges=2 * graph.edges, key=graph.derived("simple"))

    def part(self, partition: Partition, slot: int) -> Part:
        part = super().part(partition, slot)
        ptr, target = kernels.distinct(part.ptr, part.target, len(part.targets))
        return Part(part.ids, ptr, target, None, part.targets, part.bounds)


def simple(graph: Graph) -> Graph:
    """The graph without directions, repetitions, weights and edges from a vertex to itself."""
    return Simple(graph)


def reverse(graph: Graph) -> Graph:
    """The graph with each edge in the other direction."""

    def chunks() -> Iterator[EdgeArrays]:
        for source, target, weight in graph.chunks():
            yield target, source, weight

    return Graph(graph.n, chunks, graph.what, graph.names, file=graph.file, edges=graph.edges,
                 key=graph.derived("reversed"))


def bipartite(graph: Graph) -> Graph:
    """The graph between sources and targets as vertices of two kinds, edges in both directions.

    Targets get the ids n + target: so user 7 and film 7 are two vertices.
    """

    def chunks() -> Iterator[EdgeArrays]:
        for source, target, weight in graph.chunks():
            yield source, target + graph.n, weight
            yield target + graph.n, source, weight

    names = None if graph.names is None else np.concatenate([graph.names, graph.names])
    return Graph(2 * graph.n, chunks, graph.what, names, file=graph.file, edges=2 * graph.edges,
                 key=graph.derived("bipartite"))


def both(graph: Graph, *, weighted: bool = False) -> Graph:
    """The graph with each edge twice: as it is, and reversed with the negative of its weight.

    So a program reaches the sources of edges, too: it sends with a `weight` that is a function.

    Args:
        weighted: the weights of the graph, which are to be positive; else all are 1.
    """

    def chunks() -> Iterator[EdgeArrays]:
        for source, target, weight in graph.chunks():
            if not weighted or weight is None:
                weight = np.ones(len(source))
            yield source, target, weight
            yield target, source, -weight

    return Graph(graph.n, chunks, graph.what, graph.names, file=graph.file, edges=2 * graph.edges,
                 key=graph.derived(f"both ways {'weighted' if weighted else ''}"))
