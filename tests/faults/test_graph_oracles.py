"""Results of vertex programs without a failure, against what others compute.

Law: SciPy, or a few lines of NumPy or Python, come to the same.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from graphruns import SCRIPT, SLOTS, reference
from scipy.sparse import csgraph


def graphs() -> Any:
    spec = importlib.util.spec_from_file_location("graphs", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def matrix(graph: Any, *, counted: bool) -> scipy.sparse.csr_matrix:
    """Adjacency: number of edges between two, or their least weight."""
    chunks = list(graph.chunks())
    source, target = (np.concatenate([chunk[i] for chunk in chunks]) for i in (0, 1))
    if counted:
        ones = np.ones(len(source))
        return scipy.sparse.coo_matrix((ones, (source, target)), (graph.n, graph.n)).tocsr()
    weight = np.concatenate([chunk[2] for chunk in chunks])
    order = np.lexsort((weight, target, source))
    first = np.concatenate([[True], (np.diff(source[order]) != 0) | (np.diff(target[order]) != 0)])
    at = order[first]
    return scipy.sparse.coo_matrix((weight[at], (source[at], target[at])),
                                   (graph.n, graph.n)).tocsr()


@pytest.mark.full
def test_oracles() -> None:
    """Law: PageRank as a loop over a matrix has it, distances as Dijkstra's, components as scipy's;
    each slot alone has what it owns of them."""
    module, found = graphs(), reference().results
    edges = matrix(module.data.rmat(module.SCALE, seed=module.SEED), counted=True)
    degree = np.asarray(edges.sum(axis=1)).ravel()
    rank = np.full(len(degree), 1 / len(degree))
    for _ in range(module.STEPS):
        spread = edges.T @ (rank / degree.clip(1))
        rank = (0.15 + 0.85 * rank[degree == 0].sum()) / len(degree) + 0.85 * spread
    assert np.allclose(found["whole-pagerank"], rank, rtol=1e-12, atol=0)
    dijkstra = csgraph.dijkstra(matrix(module.weighted(), counted=False), indices=0)
    assert found["whole-distance"].tolist() == dijkstra.tolist()
    count, label = csgraph.connected_components(matrix(module.sparse(), counted=True))
    least = found["whole-component"]
    assert len(set(least.tolist())) == count > 100
    assert len(set(zip(least.tolist(), label.tolist(), strict=True))) == count
    partition = module.data.Partition("hash", len(rank), SLOTS)
    for slot in range(SLOTS):
        mine = found["whole-pagerank"][partition.ids(slot)]
        assert (found[f"slot-{slot}"]["pagerank"] == mine).all()


def undirected(graph: Any) -> scipy.sparse.csr_matrix:
    """Adjacency: 1 between two that have an edge, nothing from a vertex to itself."""
    found = matrix(graph, counted=True)
    found.setdiag(0)
    found.eliminate_zeros()
    found.data[:] = 1
    return found


@pytest.mark.full
def test_oracles_of_full_programs() -> None:
    """Law: pointer jumping has the components; triangles are the trace's sixth; a matching that
    takes each edge's ends or one of them, half of a maximum at least; a core is what peeling
    leaves; edges are there to those 1, 2, 4 ... further on."""
    module, found = graphs(), reference().results
    assert (found["whole-sv"] == found["whole-component"]).all()
    edges = undirected(module.dense())
    assert found["whole-triangles"].sum() == (edges @ edges).multiply(edges).sum() / 6 > 100
    edges, partner = undirected(module.bipartite()).tocoo(), found["whole-matching"]
    taken = np.flatnonzero(partner >= 0)
    assert (partner[partner[taken]] == taken).all()
    assert ((partner[edges.row] >= 0) | (partner[edges.col] >= 0)).all()
    assert {*zip(taken, partner[taken], strict=True)} <= {*zip(edges.row, edges.col, strict=True)}
    most = csgraph.maximum_bipartite_matching(edges.tocsr()[:200, 200:])
    assert len(taken) / 2 >= (most >= 0).sum() / 2
    edges = undirected(module.simple())
    core = np.ones(edges.shape[0], bool)
    for _ in range(len(core)):
        core &= np.asarray(edges[:, core].sum(axis=1)).ravel() >= 2
    assert (found["whole-kcore"] == core).all() and 100 < core.sum() < len(core)
    ids = np.arange(500)
    expected = np.full(500, -1)
    for step in 1 << np.arange(9):
        expected[step:] = ids[: 500 - step]
    assert (found["whole-doubling"] == expected).all()


@pytest.mark.full
def test_oracles_of_analytics() -> None:
    """Law: lists of neighbours have the triangles of each vertex; weighted walks with restarts end
    within their tolerance of the linear system's ranks; hubs are those of the power iteration,
    labels those that a loop counts; a set is independent and maximal; betweenness is what paths
    that are counted pair by pair have; a forest weighs what scipy's does; the edge to each
    vertex of a shortest path makes up its distance."""
    module, found = graphs(), reference().results
    edges = undirected(module.data.simple(module.data.rmat(8, degree=6, seed=module.SEED)))
    triangles = (edges @ edges).multiply(edges).sum(axis=1).A1 / 2
    assert (found["whole-lists"] == triangles).all() and triangles.max() > 100
    (source, target, weight), = module.weighted().chunks()
    edges = scipy.sparse.coo_matrix((weight, (source, target))).tocsr()
    share = scipy.sparse.diags(1 / edges.sum(axis=1).A1) @ edges
    restart = np.isin(np.arange(600), [3, 17, 400]) / 3
    rank = scipy.sparse.linalg.spsolve((scipy.sparse.identity(600) - 0.7 * share.T).tocsc(),
                                       0.3 * restart)
    assert abs(found["whole-walks"] - rank).sum() <= 1e-4 * 0.7 / 0.3, found["whole-walks"]
    edges = matrix(module.data.rmat(8, degree=6, seed=module.SEED), counted=True)
    left, hub = edges @ edges.T, np.ones(256)
    for _ in range(100):
        hub = left @ hub / (left @ hub).sum()
    assert abs(found["whole-hits"] - hub).sum() < 1e-5
    edges, inside = undirected(module.simple()), found["whole-mis"]
    assert not edges[inside][:, inside].nnz and (edges @ inside + inside > 0).all()
    assert (found["whole-labels"] == communities(matrix(module.dense(), counted=True), 12)).all()
    edges = matrix(module.data.rmat(7, degree=2, seed=module.SEED), counted=True)
    assert np.allclose(found["whole-betweenness"][:128], 128 / 3 * shares(edges, range(3)),
                       rtol=1e-12)
    parent, edges = found["whole-paths"], matrix(module.weighted(), counted=False)
    distance, to = csgraph.dijkstra(edges, indices=0), np.arange(1, 600)
    assert parent[0] == -1
    assert (distance[parent[1:]] + edges[parent[1:], to].A1 == distance[1:]).all()
    edges = matrix(module.data.symmetric(module.weighted()), counted=False)
    assert found["whole-forest"].sum() == csgraph.minimum_spanning_tree(edges).sum()


def communities(edges: scipy.sparse.csr_matrix, rounds: int) -> Any:
    """Labels after some rounds in which each takes its neighbours' commonest, the least of those.
    """
    label = np.arange(edges.shape[0])
    for _ in range(rounds):
        told = scipy.sparse.coo_matrix(edges)
        votes = scipy.sparse.coo_matrix((told.data, (told.row, label[told.col])),
                                        edges.shape).toarray()
        label = np.where(votes.any(axis=1), votes.argmax(axis=1), label)
    return label


def shares(edges: scipy.sparse.csr_matrix, sources: Any) -> Any:
    """Betweenness by paths that are counted pair by pair, from some sources."""
    steps = csgraph.dijkstra(edges, unweighted=True)
    found = np.zeros(edges.shape[0])
    paths = np.zeros((len(found), len(found)))  # between any two
    np.fill_diagonal(paths, 1)
    for level in range(1, int(steps[np.isfinite(steps)].max()) + 1):
        paths = np.where(steps == level, np.where(steps == level - 1, paths, 0) @ edges, paths)
    for s in sources:
        total = paths[s].copy()
        total[[s]] = 0
        for v in np.flatnonzero(np.isfinite(steps[s])):
            if v != s:
                over = (steps[s] == steps[s, v] + steps[v]) & (total > 0)
                over[v] = False
                found[v] += (paths[s, v] * paths[v, over] / total[over]).sum()
    return found
