"""Graphs for programs: from files, computed, and given as edges."""

from __future__ import annotations

from .derived import bipartite, both, copies, reverse, simple
from .generate import grid, lognormal, path, power_law, rmat
from .given import of_edges
from .objects import load
from .parts import Graph, Part, Partition, partition_of, relabel, symmetric

__all__ = ["Graph", "Part", "Partition", "bipartite", "both", "copies", "grid", "load",
           "lognormal", "of_edges", "partition_of", "path", "power_law", "relabel", "reverse",
           "rmat", "simple", "symmetric"]
