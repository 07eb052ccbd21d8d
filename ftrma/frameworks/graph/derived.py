"""Graphs that are made of another one by a look at the edges of each slot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import kernels
from .parts import Graph, Part, Partition
from .references import AnyArray, EdgeArrays, Floats, Ints, Numbers


class Simple(Graph):
    """A graph without directions: one edge each way between neighbours, none to oneself.

    Edges have no weights; those of a vertex ascend as the slot's targets do.
    """

    def __init__(self, graph: Graph) -> None:
        def change(source: Ints, target: Ints, _: Floats | None) -> Iterator[EdgeArrays]:
            other = source != target
            first, second = source[other], target[other]
            yield first, second, None
            yield second, first, None

        chunks, slices = graph.through(change)
        super().__init__(graph.n, chunks, graph.what, graph.names, file=graph.file,
                         edges=2 * graph.edges, key=graph.derived("simple"), slices=slices)

    def assemble(self, partition: Partition, slot: int, row: Numbers, target: AnyArray,
                 weight: Floats | None) -> Part:
        """See `Graph.assemble`; equal edges become one."""
        part = super().assemble(partition, slot, row, target, weight)
        ptr, target = kernels.distinct(part.ptr, part.target, len(part.targets))
        return Part(part.ids, ptr, target, None, part.targets, part.bounds)


def simple(graph: Graph) -> Graph:
    """The graph without directions, repetitions, weights and edges from a vertex to itself."""
    return Simple(graph)


def reverse(graph: Graph) -> Graph:
    """The graph with each edge in the other direction."""

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        yield target, source, weight

    chunks, slices = graph.through(change)
    return Graph(graph.n, chunks, graph.what, graph.names, file=graph.file, edges=graph.edges,
                 key=graph.derived("reversed"), slices=slices)


def bipartite(graph: Graph) -> Graph:
    """The graph between sources and targets as vertices of two kinds, edges in both directions.

    Targets get the ids n + target: so user 7 and film 7 are two vertices.
    """

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        yield source, target + graph.n, weight
        yield target + graph.n, source, weight

    chunks, slices = graph.through(change)
    names = None if graph.names is None else np.concatenate([graph.names, graph.names])
    return Graph(2 * graph.n, chunks, graph.what, names, file=graph.file, edges=2 * graph.edges,
                 key=graph.derived("bipartite"), slices=slices)


def both(graph: Graph, *, weighted: bool = False) -> Graph:
    """The graph with each edge twice: as it is, and reversed with the negative of its weight.

    So a program reaches the sources of edges, too: it sends with a `weight` that is a function.

    Args:
        weighted: the weights of the graph, which are to be positive; else all are 1.
    """

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        if not weighted or weight is None:
            weight = np.ones(len(source))
        yield source, target, weight
        yield target, source, -weight

    chunks, slices = graph.through(change)
    return Graph(graph.n, chunks, graph.what, graph.names, file=graph.file, edges=2 * graph.edges,
                 key=graph.derived(f"both ways {'weighted' if weighted else ''}"), slices=slices)


def copies(graph: Graph, count: int) -> Graph:
    """The graph so many times, side by side: copy c of vertex v has the id c * n + v.

    So a program takes many starting points at once: one in each copy.
    """
    n = graph.n

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        for copy in range(count):
            yield source + copy * n, target + copy * n, weight

    chunks, slices = graph.through(change)
    return Graph(count * n, chunks, graph.what, file=graph.file, edges=count * graph.edges,
                 key=graph.derived(f"{count} copies of"), slices=slices)
