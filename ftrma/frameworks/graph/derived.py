"""Graphs that are made from another graph, by a change of its edges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import kernels
from .parts import Graph, Part, Partition
from .references import AnyArray, EdgeArrays, Floats, Ints, Numbers


class Simple(Graph):
    """A graph without directions: one edge each way between neighbours, and no loops.

    Edges have no weights; those of a vertex are in the order of the slot's targets.
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
    """Return the graph without directions, repetitions, weights and loops."""
    return Simple(graph)


def reverse(graph: Graph) -> Graph:
    """Return the graph with each edge in the other direction."""

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        yield target, source, weight

    chunks, slices = graph.through(change)
    return Graph(graph.n, chunks, graph.what, graph.names, file=graph.file, edges=graph.edges,
                 key=graph.derived("reversed"), slices=slices)


def bipartite(graph: Graph) -> Graph:
    """Return the graph in which sources and targets are different vertices; edges go both ways.

    A target gets the id n + target; so user 7 and film 7 are two vertices.
    """

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        yield source, target + graph.n, weight
        yield target + graph.n, source, weight

    chunks, slices = graph.through(change)
    names = None if graph.names is None else np.concatenate([graph.names, graph.names])
    return Graph(2 * graph.n, chunks, graph.what, names, file=graph.file, edges=2 * graph.edges,
                 key=graph.derived("bipartite"), slices=slices)


def both(graph: Graph, *, weighted: bool = False) -> Graph:
    """Return the graph with each edge twice: as it is, and reversed with the negative weight.

    By it a program can send to the sources of edges, too, with a `weight` that is a function.

    Args:
        weighted: use the weights of the graph, which must be positive; if false, all are 1.
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
    """Return `count` copies of the graph, side by side: copy c of vertex v has the id c * n + v.

    By it a program can use many starting points at once, one in each copy.
    """
    n = graph.n

    def change(source: Ints, target: Ints, weight: Floats | None) -> Iterator[EdgeArrays]:
        for copy in range(count):
            yield source + copy * n, target + copy * n, weight

    chunks, slices = graph.through(change)
    return Graph(count * n, chunks, graph.what, file=graph.file, edges=count * graph.edges,
                 key=graph.derived(f"{count} copies of"), slices=slices)
