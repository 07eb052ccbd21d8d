"""Graphs and their parts: every edge is in one place, the same whenever it is made."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from ftrma.graph import data
from ftrma.graph.data import Graph, Part, Partition
from ftrma.graph.program import Sending, VertexProgram, check, neutral


def edges_of(part: Part) -> list[tuple[int, int, float]]:
    """By global ids, in the order of the part."""
    source = np.repeat(part.ids, part.degree)
    weight = part.weight if part.weight is not None else np.zeros(len(source))
    return list(zip(source.tolist(), part.targets[part.target].tolist(), weight.tolist(),
                    strict=True))


def some_graph(n: int, m: int, seed: int) -> Graph:
    random = np.random.default_rng(seed)
    weight = random.random(m) if seed % 2 else None
    return data.of_edges(n, random.integers(0, n, m), random.integers(0, n, m), weight)


@given(st.integers(1, 60), st.integers(0, 200), st.integers(1, 7),
       st.sampled_from(["hash", "range"]), st.integers(0, 2**32))
def test_parts_are_the_graph(n: int, m: int, slots: int, kind: str, seed: int) -> None:
    """Law: each vertex has one owner and number there; each edge is at its source, in the order of
    the graph; targets are grouped by owner, ascending, and none is there for nothing."""
    graph, partition = some_graph(n, m, seed), Partition(kind, n, slots)
    parts = [graph.part(partition, slot) for slot in range(slots)]
    assert sorted(v for part in parts for v in part.ids.tolist()) == [*range(n)]
    found: list[tuple[int, int, float]] = []
    for slot, part in enumerate(parts):
        assert part.ids.tolist() == partition.ids(slot).tolist()
        assert (partition.owner(part.ids) == slot).all()
        assert partition.local(part.ids).tolist() == [*range(len(part.ids))]
        assert sorted(set(part.target.tolist())) == [*range(len(part.targets))]
        for other in range(slots):
            there = part.targets[part.to(other)]
            assert (partition.owner(there) == other).all() and (np.diff(there) > 0).all()
        found += edges_of(part)
    (source, target, weight), = graph.chunks()
    every = weight if weight is not None else np.zeros(m)
    given_edges = list(zip(source.tolist(), target.tolist(), every.tolist(), strict=True))
    assert Counter(found) == Counter(given_edges)
    in_order = sorted(given_edges, key=lambda edge: edge[0])
    assert sorted(found, key=lambda edge: edge[0]) == in_order


class Least(VertexProgram):
    message = np.int64
    combine = np.minimum


class Total(VertexProgram):
    message = float
    combine = np.add


@given(st.integers(1, 40), st.integers(0, 150), st.integers(0, 2**32), st.booleans())
def test_messages_are_combined(n: int, m: int, seed: int, few: bool) -> None:
    """Law: of each target the combination of what its sources send, the sum in their order; none
    where no source sends."""
    graph = some_graph(n, m, seed | 1)
    part = graph.part(Partition("hash", n, 1), 0)
    random = np.random.default_rng(seed)
    values = random.integers(-1000, 1000, n)
    rows = np.flatnonzero(random.random(n) < 0.5) if few else np.arange(n)
    for program, weight in ((Least(), None), (Total(), None), (Total(), "plus"),
                            (Total(), "times")):
        sending = Sending(part, program)
        sending.send(rows, values[rows].astype(program.message), weight)
        expected: dict[int, Any] = {}
        for source, target, w in edges_of(part):
            if source not in rows:
                continue
            one = values[source] + w * (weight == "plus") if weight != "times" \
                else values[source] * w
            before = expected.get(target)
            expected[target] = one if before is None else (
                min(before, one) if isinstance(program, Least) else before + one)
        assert part.targets[sending.got].tolist() == sorted(expected)
        found = dict(zip(part.targets.tolist(), sending.values.tolist(), strict=True))
        for target, value in expected.items():
            assert found[target] == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("combine", "message", "expected"), [
    (np.minimum, float, np.inf), (np.maximum, float, -np.inf), (np.minimum, np.uint8, 255),
    (np.maximum, np.int16, -32768), (np.minimum, bool, True), (np.maximum, bool, False),
    (np.add, float, 0.0), (np.multiply, np.int32, 1), (np.bitwise_and, np.uint16, 65535),
    (np.bitwise_or, np.uint64, 0), (np.logical_or, bool, False), (np.logical_and, bool, True),
])
def test_neutral_values(combine: np.ufunc, message: Any, expected: Any) -> None:
    """Law: combined with anything they change nothing."""
    program: Any = type("Program", (VertexProgram,),
                        {"fields": {"a": int}, "combine": combine, "message": message})()
    check(program)
    found = neutral(program, 3)
    assert found.dtype == np.dtype(message) and found.tolist() == [expected] * 3
    values = np.array([0, 1, 1]).astype(message)
    assert combine(found, values).astype(message).tolist() == values.tolist()


def test_rmat_is_made_by_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: edges follow from seed and number; another seed gives others; hubs are hubs."""
    monkeypatch.setattr(data, "CHUNK", 1000)
    first, again = ([np.stack(e[:2]) for e in data.rmat(9, seed=3).chunks()] for _ in range(2))
    assert [len(chunk[0]) for chunk in first] == [1000] * 8 + [192]
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    other = [np.stack(e[:2]) for e in data.rmat(9, seed=4).chunks()]
    assert not any((a == b).all() for a, b in zip(first, other, strict=True))
    degree = np.bincount(np.concatenate(first, axis=1)[0], minlength=512)
    assert degree.max() > 10 * degree.mean() and degree[0] == degree.max()


def test_files(tmp_path: Path) -> None:
    """Law: what scipy.sparse has saved, and arrays of ends, are the graph that they were."""
    matrix = scipy.sparse.random(30, 30, 0.1, format="csr", random_state=1)
    scipy.sparse.save_npz(tmp_path / "matrix.npz", matrix)
    part = data.load(tmp_path / "matrix.npz").part(Partition("range", 30, 1), 0)
    assert (part.ptr == matrix.indptr).all() and (part.targets[part.target] == matrix.indices).all()
    assert part.weight is not None and (part.weight == matrix.data).all()
    scipy.sparse.save_npz(tmp_path / "columns.npz", matrix.tocsc())
    columns = data.load(tmp_path / "columns.npz").part(Partition("range", 30, 1), 0)
    assert sorted(edges_of(columns)) == sorted(edges_of(part))
    np.savez(tmp_path / "ends.npz", src=[0, 2, 2], dst=[1, 0, 3])
    graph = data.load(tmp_path / "ends.npz")
    assert graph.n == 4 and edges_of(graph.part(Partition("hash", 4, 1), 0)) == [
        (0, 1, 0.0), (2, 0, 0.0), (2, 3, 0.0)]
    both = data.symmetric(graph).part(Partition("hash", 4, 1), 0)
    assert Counter((s, t) for s, t, _ in edges_of(both)) == Counter(
        [(0, 1), (2, 0), (2, 3), (1, 0), (0, 2), (3, 2)])


@pytest.mark.parametrize(("make", "words"), [
    (lambda at: data.load(at / "none.npz"), r"none\.npz: cannot be read"),
    (lambda at: data.load(at / "cut.npz"), r"cut\.npz: "),
    (lambda at: data.load(at / "array.npy"), r"array\.npy: cannot be read as \.npz: one array"),
    (lambda at: data.load(at / "text.npz"), r"text\.npz: cannot be read as \.npz: "),
    (lambda at: data.load(at / "blocks.npz"), r"blocks\.npz: a matrix in format bsr"),
    (lambda at: data.load(at / "other.npz"), r"other\.npz: has x; a graph has indptr"),
    (lambda at: data.of_edges(3, [0, 1], [1]), r"edges: arrays of shapes \(1,\) and \(2,\)"),
    (lambda at: data.of_edges(3, [0.5], [1]), "ids of vertices have to be whole numbers"),
    (lambda at: data.of_edges(0, [], []), "a graph of 0 vertices"),
    (lambda at: data.of_edges(3, [0], [3]).part(Partition("hash", 3, 1), 0),
     "an edge has target 3; vertices are 0 to 2"),
    (lambda at: data.of_edges(3, [-1], [0]).part(Partition("hash", 3, 1), 0),
     "an edge has source -1"),
    (lambda at: data.of_edges(3, [0], [0], [np.nan]).part(Partition("hash", 3, 1), 0), "is NaN"),
    (lambda at: data.rmat(99), "rmat: scale 99"),
    (lambda at: Partition("odd", 3, 1), "partition 'odd': give"),
])
def test_bad_graphs_are_told(tmp_path: Path, make: Any, words: str) -> None:
    """Law: a ValueError with what is wrong and where."""
    np.savez(tmp_path / "other.npz", x=1)
    np.save(tmp_path / "array.npy", np.arange(9))
    (tmp_path / "text.npz").write_text("0 1\n1 2\n")
    scipy.sparse.save_npz(tmp_path / "blocks.npz", scipy.sparse.identity(4).tobsr())
    np.savez(tmp_path / "whole.npz", src=np.arange(1000), dst=np.arange(1000))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:5000])
    with pytest.raises(ValueError, match=words):
        make(tmp_path)
