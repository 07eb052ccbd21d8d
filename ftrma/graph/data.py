"""Graphs for programs: the names that programs use of `ftrma.frameworks.graph.data`."""

from __future__ import annotations

from ..frameworks.graph.data import (
    Graph,
    Part,
    Partition,
    bipartite,
    both,
    copies,
    grid,
    load,
    lognormal,
    of_edges,
    partition_of,
    path,
    relabel,
    reverse,
    rmat,
    simple,
    symmetric,
)

__all__ = [
    "Graph", "Part", "Partition", "bipartite", "both", "copies", "grid", "load", "lognormal",
    "of_edges", "partition_of", "path", "relabel", "reverse", "rmat", "simple", "symmetric",
]
