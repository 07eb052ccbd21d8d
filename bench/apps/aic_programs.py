"""Delta-accumulative programs: what ``aic.py`` runs, each with its oracle.

What: PageRank; distances from a vertex (sssp), by weights or in steps; connected components (cc),
by least ids; Katz's metric, the number of paths that lead to each vertex, a path of k edges
counting beta**k; adsorption, in which a vertex has the average of those that lead to it, and some
have a label of their own.

Why: they are the programs of Maiter. A vertex has a value and a delta, what has come to it and is
not in the value yet. Deltas are added up, or the least one counts, in any order.

Oracle: see ``aic_oracles.py``.

Source: Y. Zhang et al., "Maiter: an asynchronous graph processing framework for delta-based
accumulative iterative computation", IEEE TPDS 25, 2014; S. Baluja et al., "Video suggestion and
discovery for YouTube", WWW 2008, for adsorption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ftrma import aic
from ftrma.graph.data import Graph, symmetric

DAMPING = 0.85
KEPT = 0.8  # of adsorption: the share that an average has of a value; a label has the others
INF = np.iinfo(np.int64).max


class PageRank(aic.DeltaProgram):
    """Ranks whose sum is n where each vertex has edges; the rank of others is lost."""

    accumulate, zero = np.add, 0.0
    linear, factor = True, DAMPING

    def init(self, v: Any) -> None:
        v.value[:], v.delta[:] = 0.0, 1 - DAMPING

    def send(self, v: Any, delta: Any) -> Any:
        return DAMPING * delta / v.degree.clip(1)

    def priority(self, v: Any) -> Any:
        return abs(v.delta)


class Distance(aic.DeltaProgram):
    """Distances from a vertex in steps; infinite where no path leads."""

    accumulate, zero = np.minimum, np.inf

    def __init__(self, source: int) -> None:
        self.source = source

    def init(self, v: Any) -> None:
        v.value[:], v.delta[:] = np.inf, np.where(v.ids == self.source, 0.0, np.inf)

    def send(self, v: Any, delta: Any) -> Any:
        return delta + 1


class WeightedDistance(Distance):
    """Distances from a vertex by weights, none of them negative."""

    weight = "plus"

    def send(self, v: Any, delta: Any) -> Any:
        return delta


class Component(aic.DeltaProgram):
    """The least id in a vertex's component; edges are there in both directions."""

    accumulate, zero, dtype = np.minimum, INF, np.int64

    def init(self, v: Any) -> None:
        v.value[:], v.delta[:] = INF, v.ids

    def send(self, v: Any, delta: Any) -> Any:
        return delta


class Katz(aic.DeltaProgram):
    """Paths that lead to a vertex, one of k edges counting beta**k: from one vertex, or from all.

    Args:
        beta: less than 1 / degree of any vertex, for the error to have a bound.
        degree: edges of the vertex that has most.
        source: where paths begin; None: anywhere.
    """

    accumulate, zero = np.add, 0.0
    linear = True

    def __init__(self, beta: float, degree: int, source: int | None = None) -> None:
        self.beta, self.source = beta, source
        self.factor = beta * degree if beta * degree < 1 else None

    def init(self, v: Any) -> None:
        v.value[:] = 0.0
        v.delta[:] = 1.0 if self.source is None else v.ids == self.source

    def send(self, v: Any, delta: Any) -> Any:
        return self.beta * delta

    def priority(self, v: Any) -> Any:
        return abs(v.delta)


class Adsorption(aic.DeltaProgram):
    """The share of a label that a vertex has; of a graph that `averaged` has made.

    Each vertex has KEPT times the average of those that lead to it, and every `every`-th one has
    the label itself. What is left of the error is bounded for each vertex, not for their sum.
    """

    accumulate, zero, weight = np.add, 0.0, "times"
    linear, factor = True, KEPT

    def __init__(self, every: int) -> None:
        self.every = every

    def init(self, v: Any) -> None:
        v.value[:], v.delta[:] = 0.0, (1 - KEPT) * labelled(v.ids, self.every)

    def send(self, v: Any, delta: Any) -> Any:
        return KEPT * delta

    def priority(self, v: Any) -> Any:
        return abs(v.delta)


def labelled(ids: Any, every: int) -> Any:
    return (ids % every == 0).astype(float)


def averaged(graph: Graph) -> Graph:
    """The graph with each weight divided by the sum of those that lead to its target.

    Raises:
        ValueError: a weight is negative, when edges are looked at.
    """

    @cache
    def total() -> Any:
        found = np.zeros(graph.n)
        for _, target, weight in graph.chunks():
            if weight is not None and len(weight) and weight.min() < 0:
                raise ValueError(f"an edge of weight {weight.min()}; averages need weights from 0 "
                                 "up")
            found += np.bincount(target, weight, graph.n)
        return np.where(found > 0, found, 1.0)

    def chunks() -> Iterator[Any]:
        for source, target, weight in graph.chunks():
            yield source, target, (1.0 if weight is None else weight) / total()[target]

    return Graph(graph.n, chunks, graph.what, graph.names, file=graph.file, edges=graph.edges,
                 key=graph.derived("averaged"))


def is_weighted(graph: Graph) -> bool:
    """A graph has weights, by its first edges; without edges it has none."""
    return next((weight is not None for _, _, weight in graph.chunks()), False)


# ---- the programs by their names --------------------------------------------------------------


@dataclass
class Choice:
    """A program on its graph.

    Attributes:
        graph: that it runs on, made of the one that was given.
        norm: of the errors of all vertices, the one that the bound is for; None: there is no error.
    """

    program: aic.DeltaProgram
    graph: Graph
    norm: Callable[[Any], float] | None = None


def total(errors: Any) -> float:
    return float(abs(errors).sum())


def largest(errors: Any) -> float:
    return float(abs(errors).max())


NAMES = ("pagerank", "sssp", "cc", "katz", "adsorption")


def choose(name: str, graph: Graph, *, source: int | None = None, beta: float | None = None,
           every: int = 100) -> Choice:
    """The program of this name on a graph.

    Args:
        source: of sssp (0) and katz (None: anywhere).
        beta: of katz; by default DAMPING / degree of the vertex that has most edges.
        every: of adsorption: each so many-th vertex has the label.

    Raises:
        ValueError: there is no such vertex.
    """
    if source is not None and not 0 <= source < graph.n:
        raise ValueError(f"--source {source}: vertices are 0 to {graph.n - 1}")
    if name == "pagerank":
        return Choice(PageRank(), graph, total)
    if name == "sssp":
        kind = WeightedDistance if is_weighted(graph) else Distance
        return Choice(kind(source or 0), graph)
    if name == "cc":
        return Choice(Component(), symmetric(graph))
    if name == "katz":
        degree = max(int(graph.degrees().max()), 1)
        beta = DAMPING / degree if beta is None else beta
        return Choice(Katz(beta, degree, source), graph, total)
    return Choice(Adsorption(every), averaged(graph), largest)
