"""Owners of vertices, simple graphs and triangles: by other means, and by kernels and references.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from ftrma.frameworks.graph import kernels, references
from ftrma.graph import data
from ftrma.graph.data import Partition

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "apps"))


def some_edges(n: int, m: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    source, target = random.integers(0, n, (2, m))
    return source, target


def adjacency(n: int, source: Any, target: Any) -> scipy.sparse.csr_matrix:
    """1 between neighbours, without directions, and nothing from a vertex to itself."""
    found = scipy.sparse.coo_matrix((np.ones(len(source)), (source, target)), (n, n)).tocsr()
    found = (found + found.T).tocsr()
    found.setdiag(0)
    found.eliminate_zeros()
    found.data[:] = 1
    return found


@given(st.lists(st.integers(0, 2**44)), st.integers(1, 1000))
def test_owners_are_those_of_the_reference(ids: list[int], slots: int) -> None:
    given_ids = np.array(ids, np.int64)
    found = kernels.owners(given_ids, slots)
    assert found.tolist() == references.owners(given_ids, slots).tolist()
    rounds = np.arange(0, 50 * slots, dtype=np.int64)
    assert (np.sort(kernels.owners(rounds, slots).reshape(50, slots)) == np.arange(slots)).all()


@pytest.mark.parametrize("slots", [2, 3, 8])
def test_no_slot_has_many_more_edges_than_others(slots: int) -> None:
    """Law: of graphs whose ids have a pattern, no slot has more than 1.2 shares; by v mod N
    one of eight had 3 shares of R-MAT."""
    for graph in (data.rmat(14), data.symmetric(data.rmat(14, seed=3)), data.grid(96, 96)):
        source = np.concatenate([chunk[0] for chunk in graph.chunks()])
        partition = Partition("hash", graph.n, slots)
        edges = np.bincount(partition.owner(source), minlength=slots)
        assert edges.max() <= 1.2 * edges.mean(), (graph.what, slots, edges)
    mod = np.bincount(np.concatenate([c[0] for c in data.rmat(14).chunks()]) % 8)
    assert mod.max() > 3 * mod.mean()


@given(st.integers(1, 40), st.integers(0, 150), st.integers(1, 4), st.integers(0, 2**32))
def test_a_simple_graph(n: int, m: int, slots: int, seed: int) -> None:
    """Law: each pair of neighbours once in each direction, nobody with itself, whatever weights,
    repetitions and directions were given; what is left is in order, and no target is for nothing.
    """
    source, target = some_edges(n, m, seed)
    graph = data.simple(data.of_edges(n, source, target, np.ones(m) if seed % 2 else None))
    partition, rows, columns = data.partition_of("hash", graph, slots), [], []
    for slot in range(slots):
        part = graph.part(partition, slot)
        rows += np.repeat(part.ids, part.degree).tolist()
        columns += part.targets[part.target].tolist()
        assert part.weight is None and set(part.target.tolist()) == {*range(len(part.targets))}
        for mine in np.split(part.target.astype(np.int64), part.ptr[1:-1]):
            assert (np.diff(mine) > 0).all()
    expected = adjacency(n, source, target).tocoo()
    assert sorted(zip(rows, columns, strict=True)) == sorted(
        zip(expected.row.tolist(), expected.col.tolist(), strict=True))


@given(st.integers(1, 30), st.integers(0, 120), st.integers(0, 2**32))
def test_distinct_targets_and_their_triangles(n: int, m: int, seed: int) -> None:
    """Law: kernels have what references have; the triangles are those of the matrix's square."""
    source, target = some_edges(n, m, seed)
    matrix = adjacency(n, source, target)
    both = np.concatenate([source, target]), np.concatenate([target, source])
    other = both[0] != both[1]
    ptr, numbers, _ = kernels.csr(both[0][other], both[1][other], None, n)
    found = kernels.distinct(ptr, numbers, n)
    for mine, theirs in zip(found, references.distinct(ptr, numbers, n), strict=True):
        assert mine.dtype == theirs.dtype and mine.tolist() == theirs.tolist()
    row = np.repeat(np.arange(n), np.diff(found[0]))
    above = found[1] > row
    lists, member, _ = kernels.csr(row[above], found[1][above], None, n)
    count = kernels.triangles(*found, lists, member)
    assert count.tolist() == references.triangles(*found, lists, member).tolist()
    assert count.tolist() == ((matrix @ matrix).multiply(matrix).sum(axis=1).A1 // 2).tolist()


def test_triangles_of_other_numbers_are_refused() -> None:
    ptr, target = np.array([0, 1]), np.array([5], np.uint32)
    with pytest.raises(ValueError, match="triangles: 1 targets of 1 edges, 0 members of 0, with"):
        kernels.triangles(ptr, target, np.zeros(3, np.int64), np.zeros(0, np.uint32))
