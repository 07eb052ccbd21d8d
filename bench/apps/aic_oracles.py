"""Values of the programs of ``aic_programs.py``, by scipy: by other means, in one process.

What: systems of small graphs are solved directly, others by Jacobi's iteration until nothing
changes; distances are Dijkstra's; components are found by a search.

Why: a module of its own, since scipy takes a while to come up, and a run does without.
"""

from __future__ import annotations

from typing import Any

import aic_programs
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import spsolve

from ftrma import aic

DIRECT = 2000  # vertices up to which systems are solved directly: beyond, factors fill up


def oracle(choice: aic_programs.Choice) -> Any:
    """The values of a program on its graph, (n,)."""
    program, graph = choice.program, choice.graph
    if isinstance(program, aic_programs.PageRank):
        return pagerank(graph)
    if isinstance(program, aic_programs.Distance):
        return distances(graph, program.source)
    if isinstance(program, aic_programs.Component):
        return components(graph)
    if isinstance(program, aic_programs.Katz):
        return katz(graph, program)
    assert isinstance(program, aic_programs.Adsorption)
    return adsorption(graph, program)


def edges_of(graph: aic.Graph) -> tuple[Any, Any, Any]:
    """Sources, targets and weights of all edges; weights of 1 where there are none."""
    chunks = [(source, target, np.ones(len(source)) if weight is None else weight)
              for source, target, weight in graph.chunks()]
    source, target, weight = (np.concatenate([np.zeros(0, kind), *(c[i] for c in chunks)])
                              for i, kind in enumerate((np.int64, np.int64, np.float64)))
    return source, target, weight


def matrix(graph: aic.Graph) -> Any:
    """Weights by source and target, those of repeated edges added up."""
    source, target, weight = edges_of(graph)
    return sparse.csr_matrix((weight, (source, target)), (graph.n, graph.n))


def fixed_point(step: Any, begin: Any) -> Any:
    """The x for which x = begin + step @ x, step being a contraction."""
    n = len(begin)
    if n <= DIRECT:
        return spsolve(sparse.csc_matrix(sparse.identity(n) - step), begin)
    x = begin
    while True:
        last, x = x, begin + step @ x
        if abs(x - last).max() <= 4 * np.finfo(float).eps * abs(x).max():
            return x


def pagerank_step(graph: aic.Graph) -> Any:
    """The matrix by which ranks are handed on, the damping in it."""
    source, target, _ = edges_of(graph)
    degree = np.bincount(source, minlength=graph.n).clip(1)
    share = aic_programs.DAMPING / degree[source]
    return sparse.csr_matrix((share, (target, source)), (graph.n, graph.n))


def pagerank(graph: aic.Graph) -> Any:
    return fixed_point(pagerank_step(graph), np.full(graph.n, 1 - aic_programs.DAMPING))


def distances(graph: aic.Graph, source: int) -> Any:
    begins, ends, weight = edges_of(graph)
    order = np.lexsort((weight, ends, begins))
    begins, ends, weight = begins[order], ends[order], weight[order]
    first = np.ones(len(begins), bool)  # of repeated edges the least one counts
    first[1:] = (np.diff(begins) != 0) | (np.diff(ends) != 0)
    least = sparse.csr_matrix((weight[first], (begins[first], ends[first])), (graph.n, graph.n))
    return csgraph.dijkstra(least, indices=source)


def components(graph: aic.Graph) -> Any:
    _, label = csgraph.connected_components(matrix(graph), directed=False)
    _, least, back = np.unique(label, return_index=True, return_inverse=True)
    return least[back]


def katz(graph: aic.Graph, program: aic_programs.Katz) -> Any:
    source, target, _ = edges_of(graph)
    paths = sparse.csr_matrix((np.ones(len(source)), (target, source)), (graph.n, graph.n))
    begin = np.ones(graph.n) if program.source is None else np.zeros(graph.n)
    if program.source is not None:
        begin[program.source] = 1.0
    return fixed_point(program.beta * paths, begin)


def adsorption(graph: aic.Graph, program: aic_programs.Adsorption) -> Any:
    begin = (1 - aic_programs.KEPT) * aic_programs.labelled(np.arange(graph.n), program.every)
    return fixed_point(aic_programs.KEPT * matrix(graph).T.tocsr(), begin)
