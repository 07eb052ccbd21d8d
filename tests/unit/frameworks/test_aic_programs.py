"""Programs of ``ftrma aic`` and their oracles agree, by a run of deltas in one process.

Law: deltas may be taken in any order, a part of the vertices at a time; what is left of the error
is within the bound that the program states.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tree import APPS

from ftrma.frameworks.graph import references
from ftrma.graph.data import Graph, grid, of_edges, path, rmat

sys.path.insert(0, str(APPS))
import aic_oracles
import aic_programs
from aic_oracles import edges_of, fixed_point, oracle, pagerank_step
from aic_programs import Choice, choose, is_weighted

SCALE, EPS = 7, 1e-10


def weighted(n: int = 120, edges: int = 700) -> Graph:
    rng = np.random.default_rng(3)
    ends = rng.integers(0, n, (2, edges))
    return of_edges(n, *ends, rng.integers(1, 9, edges).astype(float))


def run(choice: Choice, seed: int = 1) -> tuple[Any, Any]:
    """Values in the end, and the deltas that are left; vertices are drawn at random."""
    rng, program, graph = np.random.default_rng(seed), choice.program, choice.graph
    source, target, weight = edges_of(graph)
    order = np.argsort(source, kind="stable")
    target, weight = target[order], weight[order]
    degree = np.bincount(source, minlength=graph.n)
    ptr = np.concatenate([[0], np.cumsum(degree)])
    dtype = getattr(program, "dtype", np.float64)
    value, delta = np.zeros(graph.n, dtype), np.zeros(graph.n, dtype)

    def block(rows: Any) -> Any:
        return SimpleNamespace(ids=rows, degree=degree[rows], value=value[rows], delta=delta[rows],
                               n=graph.n)

    everyone = block(np.arange(graph.n))
    program.init(everyone)
    value[:], delta[:] = everyone.value, everyone.delta
    op, zero = program.accumulate, program.zero
    while True:
        due = (abs(delta) > EPS if op is np.add else op(value, delta) != value).nonzero()[0]
        if not len(due):
            return value, delta
        rows = rng.permutation(due)[:max(len(due) // 3, 1)]
        rows.sort()
        news = delta[rows]
        value[rows] = op(value[rows], news)
        sent = program.send(block(rows), news)
        delta[rows] = zero
        got = np.zeros(graph.n, bool)
        references.scatter(op, delta, got, ptr, target, weight, program.weight, rows,
                           np.asarray(sent, dtype))


GRAPHS = {"rmat": lambda: rmat(SCALE), "weighted": weighted, "grid": lambda: grid(9, 9),
          "path": lambda: path(40)}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", aic_programs.NAMES)
def test_values_are_the_oracles(name: str, graph: str) -> None:
    choice = choose(name, GRAPHS[graph]())
    value, delta = run(choice)
    expected = oracle(choice)
    if choice.norm is None:
        assert np.array_equal(value, expected)
        return
    bound = abs(delta).sum() / (1 - choice.program.factor)
    rounding = 1e-13 * choice.norm(expected)
    assert choice.norm(value - expected) <= bound + rounding
    assert bound < 1e-4 * choice.norm(expected) and len(np.unique(expected)) > 1


def test_ranks_keep_their_sum() -> None:
    """Law: where each vertex has edges, (1 - d) of the values and the deltas are n (1 - d)."""
    choice = choose("pagerank", grid(9, 9))
    value, delta = run(choice)
    assert abs(0.15 * value.sum() + delta.sum() - 0.15 * 81) < 1e-10


@pytest.mark.parametrize("name", ("pagerank", "katz", "adsorption"))
def test_iteration_and_solver_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a large graph's oracle is as good as a small one's."""
    choice = choose(name, rmat(SCALE))
    direct = oracle(choice)
    monkeypatch.setattr(aic_oracles, "DIRECT", 0)
    assert abs(direct - oracle(choice)).max() <= 1e-13 * abs(direct).max()


def test_katz_from_a_vertex() -> None:
    """Law: along a path each vertex has beta times the one before it; from nowhere else."""
    value, _ = run(choose("katz", path(6), source=2, beta=0.5))
    assert np.array_equal(value, [0, 0, 1, 0.5, 0.25, 0.125])
    assert choose("katz", path(6), beta=0.9).program.factor == 0.9
    assert choose("katz", grid(3, 3), beta=0.5).program.factor is None


def test_ranks_hold_still() -> None:
    """Law: what Jacobi's iteration gives is a fixed point to the last bits."""
    step = pagerank_step(rmat(SCALE))
    begin = np.full(1 << SCALE, 0.15)
    found = fixed_point(step, begin)
    assert abs(begin + step @ found - found).max() <= 1e-14 * found.max()


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"--source 40: vertices are 0 to 39"):
        choose("sssp", path(40), source=40)
    negative = choose("adsorption", of_edges(2, [0], [1], [-1.0])).graph
    with pytest.raises(ValueError, match=r"weight -1\.0; averages need"):
        list(negative.chunks())
    assert is_weighted(weighted()) and not is_weighted(path(2)) and not is_weighted(path(1))
