"""Graphs and their parts: every edge is in one place, the same whenever it is made."""

from __future__ import annotations

import gzip
import io
import os
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from ftrma.frameworks.graph import changes, data, files, generate, memory, parts
from ftrma.frameworks.graph.messages import Sending, neutral
from ftrma.frameworks.graph.pregel_program import VertexProgram, Vertices, check
from ftrma.frameworks.graph.pregel_slot import PregelSlot
from ftrma.graph.data import Graph, Part, Partition


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
       st.sampled_from(["hash", "range", "edges"]), st.integers(0, 2**32))
def test_parts_are_the_graph(n: int, m: int, slots: int, kind: str, seed: int) -> None:
    """Law: each vertex has one owner and number there; each edge is at its source, in the order of
    the graph; targets are grouped by owner, ascending, and none is there for nothing."""
    graph = some_graph(n, m, seed)
    partition = data.partition_of(kind, graph, slots)
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
    if kind == "edges":
        most = max(part.degree.max(initial=0) for part in parts)
        assert max(len(part.target) for part in parts) <= -(-m // slots) + most


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
        sending = Sending(changes.topology(part, changes.none()), program)
        sending.along(rows, values[rows].astype(program.message), weight)
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
    program: Any = type("Program", (VertexProgram,), {
        "fields": {"a": int}, "combine": combine, "message": message,
        "compute": lambda self, v, inbox, ctx: None})()
    check(program)
    found = neutral(program, 3)
    assert found.dtype == np.dtype(message) and found.tolist() == [expected] * 3
    values = np.array([0, 1, 1]).astype(message)
    assert combine(found, values).astype(message).tolist() == values.tolist()


def test_rmat_is_made_by_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: edges follow from seed and number; another seed gives others; hubs are hubs."""
    monkeypatch.setattr(generate, "CHUNK", 1000)
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


def all_edges(graph: Graph) -> list[tuple[int, int, float]]:
    """In the graph's order, with weight 0 where it has none."""
    found: list[tuple[int, int, float]] = []
    for source, target, weight in graph.chunks():
        weights = np.zeros(len(source)) if weight is None else weight
        found += zip(source.tolist(), target.tolist(), weights.tolist(), strict=True)
    return found


TEXT = """# a comment
0 1 0.5
% another

2,3\t1e300
  7  0  -0.1
"""


@pytest.mark.parametrize("stretch", [16, 19, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretch: int, packed: bool,
              end: str) -> None:
    """Law: lines are the graph's edges, however they end and however much is read at a time."""
    monkeypatch.setattr(files, "TEXT_BYTES", stretch)
    text = (TEXT.replace("\n", end) if end else TEXT[:-1]).encode()
    path = tmp_path / ("edges.txt.gz" if packed else "edges.txt")
    path.write_bytes(gzip.compress(text) if packed else text)
    graph = data.load(path)
    assert graph.n == 8 and graph.file and all_edges(graph) == [
        (0, 1, 0.5), (2, 3, 1e300), (7, 0, -0.1)]
    assert data.load(path, n=100).n == 100
    few = data.load(path, relabel=True)
    assert few.n == 5 and few.names is not None and few.names.tolist() == [0, 1, 2, 3, 7]
    assert all_edges(few) == [(0, 1, 0.5), (2, 3, 1e300), (4, 0, -0.1)]


def test_long_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: what has no ends of lines is not read whole."""
    monkeypatch.setattr(files, "TEXT_BYTES", 16)
    (tmp_path / "long.txt").write_text("0 1\n" + "1" * 100)
    with pytest.raises(ValueError, match=r"long\.txt: a line of more than 16 bytes; give lines"):
        data.load(tmp_path / "long.txt")


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrix_market(tmp_path: Path, suffix: str, field: str) -> None:
    """Law: a matrix comes back; of a pattern without weights, of a symmetric one both halves."""
    random = np.random.default_rng(1)
    matrix = scipy.sparse.random(20, 20, 0.2, random_state=1, data_rvs=random.random).tocoo()
    if field == "integer":
        matrix.data = np.arange(1, matrix.nnz + 1)
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix, field=field, precision=17, symmetry="general")
    text = (tmp_path / "a.mtx").read_bytes()
    path = tmp_path / f"b{suffix}"
    path.write_bytes(gzip.compress(text) if suffix == ".mtx.gz" else text)
    graph = data.load(path)
    weights = matrix.data.astype(float) if field != "pattern" else np.zeros(matrix.nnz)
    assert graph.n == 20 and sorted(all_edges(graph)) == sorted(
        zip(matrix.row.tolist(), matrix.col.tolist(), weights.tolist(), strict=True))
    scipy.io.mmwrite(tmp_path / "c.mtx", matrix + matrix.T, symmetry="symmetric")
    both = {(source, target) for source, target, _ in all_edges(data.load(tmp_path / "c.mtx"))}
    assert both == {(target, source) for source, target in both}


def test_relabelling_twice() -> None:
    """Law: names are those of the first graph; who has no edges has none."""
    graph = data.relabel(data.of_edges(100, [7, 50], [50, 99], [1, 2]))
    assert graph.names is not None and graph.names.tolist() == [7, 50, 99]
    assert all_edges(graph) == [(0, 1, 1.0), (1, 2, 2.0)]
    again = data.relabel(data.Graph(3, lambda: iter([next(graph.chunks())]), "", graph.names))
    assert again.names is not None and again.names.tolist() == [7, 50, 99]


def test_grids_and_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: edges lead to neighbours, and are the same however many are made at a time."""
    assert all_edges(data.path(4)) == [(0, 1, 0), (1, 2, 0), (2, 3, 0)]
    assert all_edges(data.path(1)) == []
    whole = all_edges(data.grid(3, 4))
    places = [(r, c) for r in range(3) for c in range(4)]
    assert [edge[:2] for edge in whole] == [
        (4 * r + c, 4 * a + b) for r, c in places for a, b in places
        if abs(r - a) + abs(c - b) == 1]
    monkeypatch.setattr(generate, "VERTICES", 5)
    assert all_edges(data.grid(3, 4)) == whole


def test_rmat_is_the_same_by_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: an edge follows from its number."""
    whole = all_edges(data.rmat(7, degree=3, seed=5))
    for chunk in (1, 7, 384, 1000):
        monkeypatch.setattr(generate, "CHUNK", chunk)
        assert all_edges(data.rmat(7, degree=3, seed=5)) == whole


def test_power_law() -> None:
    """Law: each vertex has an edge, and degree d comes as often as d**-alpha says."""
    graph = data.power_law(20_000, 2.3, seed=3)
    source = np.concatenate([source for source, _, _ in graph.chunks()])
    degree = np.bincount(source, minlength=graph.n)
    assert degree.min() == 1
    assert (degree == 2).sum() / (degree == 1).sum() == pytest.approx(2**-2.3, rel=0.1)
    again = np.concatenate([target for _, target, _ in data.power_law(20_000, 2.3, 3).chunks()])
    assert (again == np.concatenate([target for _, target, _ in graph.chunks()])).all()


def test_lognormal() -> None:
    """Law: degrees have the distribution that is asked for; the same seed gives the same edges."""
    graph = data.lognormal(10_000, 1.0, 0.5, seed=3)
    (one, *_), (same, *_) = list(graph.chunks()), list(graph.chunks())
    assert (one[0] == same[0]).all() and (one[1] == same[1]).all()
    other = next(data.lognormal(10_000, 1.0, 0.5, seed=4).chunks())
    assert len(other[0]) != len(one[0]) or (other[1] != one[1]).any()
    degree = graph.degrees()
    assert len(degree) == 10_000 and degree.mean() == pytest.approx(np.exp(1 + 0.125), rel=0.05)
    assert np.median(degree) == pytest.approx(np.e, abs=0.5)
    target = np.concatenate([chunk[1] for chunk in graph.chunks()])
    assert target.min() >= 0 and target.max() < 10_000


@pytest.mark.parametrize(("bounds", "owners"), [
    ([0, 4, 4, 6], [0, 0, 0, 0, 2, 2]), ([0, 0, 6, 6], [1] * 6), ([0, 0, 0, 6], [2] * 6)])
def test_slots_may_have_nothing(bounds: list[int], owners: list[int]) -> None:
    """Law: whose stretch is empty owns none."""
    partition = Partition("edges", 6, 3, bounds)
    assert partition.owner(np.arange(6)).tolist() == owners
    assert [len(partition.ids(slot)) for slot in range(3)] == np.diff(bounds).tolist()


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
    (lambda at: data.of_edges(3, [0], [0], [1j]), "weights of dtype complex128; give real"),
    (lambda at: data.rmat(99), "rmat: scale 99"),
    (lambda at: data.rmat(3, degree=-1), "rmat: degree -1; give 0 or more"),
    (lambda at: data.grid(0, 4), "grid: 0 rows of 4"),
    (lambda at: data.lognormal(5, 1, -1), "lognormal: mu 1, sigma -1"),
    (lambda at: data.power_law(5, 1.0), "power_law: alpha 1.0"),
    (lambda at: data.relabel(data.path(1)), "path: has no edges"),
    (lambda at: Partition("odd", 3, 1), "partition 'odd': give"),
    (lambda at: Partition("edges", 3, 1), r"partition 'edges' needs bounds: partition_of\(\)"),
    (lambda at: Partition("edges", 3, 2, [0, 4, 3]), "partition 'edges': bounds"),
    (lambda at: data.of_edges(2**40, [0], [0]).part(Partition("hash", 2**40, 1), 0),
     "vertices on 1 slots, which have less"),
    (lambda at: data.load(at / "cut.txt.gz"), r"cut\.txt\.gz: is damaged"),
    (lambda at: data.load(at / "plain.gz"), r"plain\.gz: is damaged"),
    (lambda at: data.load(at / "none.txt"), r"none\.txt: cannot be read: No such file"),
    (lambda at: data.load(at), "is a directory; give a file"),
    (lambda at: data.load(at / "empty.txt"), r"empty\.txt: has no edges; give n"),
    (lambda at: data.load(at / "word.txt"), r"word\.txt: line 3: 'x' is no id of a vertex"),
    (lambda at: data.load(at / "short.txt"), r"short\.txt: line 2: '7' has no target"),
    (lambda at: data.load(at / "nan.txt"), r"nan\.txt: line 1: the weight is NaN"),
    (lambda at: data.load(at / "mixed.txt"), r"mixed\.txt: line 2: 2 columns, and 3 are"),
    (lambda at: data.load(at / "large.txt"), r"large\.txt: line 1: id 9223372036854775808 is out"),
    (lambda at: data.load(at / "pairs.txt", n=2).part(Partition("hash", 2, 1), 0),
     r"pairs\.txt: an edge has target 2; vertices are 0 to 1"),
    (lambda at: data.load(at / "pairs.txt", n=2, relabel=True), r"pairs\.txt: n 2 and relabel"),
    (lambda at: data.load(at / "none.mtx"), r"none\.mtx: cannot be read: No such file"),
    (lambda at: data.load(at / "cut.mtx").degrees(), r"cut\.mtx: line 4: 2 columns, and 3 are"),
    (lambda at: data.load(at / "few.mtx").degrees(), r"few\.mtx: .* it has 1 entries, and"),
    (lambda at: data.load(at / "text.mtx"), r"text\.mtx: cannot be read as \.mtx"),
    (lambda at: data.load(at / "wide.mtx"), r"wide\.mtx: a matrix of 2 x 3"),
    (lambda at: data.load(at / "dense.mtx"), r"dense\.mtx: a matrix of real numbers in array"),
    (lambda at: data.load(at / "odd.npz"), r"odd\.npz: indptr does not ascend from 0"),
    (lambda at: data.load(at / "n.npz"), r"n\.npz: n is float64 of shape \(2,\)"),
    (lambda at: data.load(at / "names.npz"), r"names\.npz: ids of dtype <U1 and int64"),
    (lambda at: data.load(at / "uint.npz"), r"uint\.npz: id 18446744073709551615 is out of range"),
    (lambda at: data.load(at / "line.txt"), r"line\.txt: a line of more than 4194304 bytes"),
    (lambda at: data.load(at / "fifo.txt"), r"fifo\.txt: cannot be read: it is a FIFO, a device"),
    (lambda at: data.load(at / "esc\x1b[31m.txt"), r"^esc\\x1b\[31m\.txt: line 2: 'x\\x1b\]0;a\\"),
    *((lambda at, make=make: data.partition_of("hash", make(at), 2),
       r"a graph of \d{18,} vertices: more than 2\*\*44; give a smaller one, or relabel it")
      for make in (lambda at: data.load(at / "most.txt"), lambda at: data.load(at / "most.npz"),
                   lambda at: data.grid(10**11, 10**11), lambda at: data.path(10**20),
                   lambda at: data.lognormal(10**25, 1, 1))),
    (lambda at: data.partition_of("edges", data.path(2**43), 2),
     "path: 8796093022208 vertices do not fit: to count their edges takes 65536.0 GiB"),
])
def test_bad_graphs_are_told(tmp_path: Path, make: Any, words: str) -> None:
    """Law: a ValueError with what is wrong and where."""
    np.savez(tmp_path / "other.npz", x=1)
    np.save(tmp_path / "array.npy", np.arange(9))
    (tmp_path / "text.npz").write_text("0 1\n1 2\n")
    np.savez(tmp_path / "uint.npz", src=np.array([0], "u8"), dst=np.array([2**64 - 1], "u8"))
    np.savez(tmp_path / "most.npz", src=np.array([0]), dst=np.array([2**63 - 1]))
    (tmp_path / "most.txt").write_text("0 9223372036854775807\n")
    (tmp_path / "line.txt").write_bytes(b"%" * (files.TEXT_BYTES + 9))
    (tmp_path / "esc\x1b[31m.txt").write_text("0 1\nx\x1b]0;a\x07 1\n")
    os.mkfifo(tmp_path / "fifo.txt")
    scipy.sparse.save_npz(tmp_path / "blocks.npz", scipy.sparse.identity(4).tobsr())
    np.savez(tmp_path / "odd.npz", indptr=[0, 3, 1], indices=[0], shape=[2, 2])
    np.savez(tmp_path / "n.npz", src=[0], dst=[1], n=[2.0, 3.0])
    np.savez(tmp_path / "names.npz", src=["a"], dst=[1])
    packed = gzip.compress(b"0 1\n" * 10_000)
    (tmp_path / "cut.txt.gz").write_bytes(packed[: len(packed) // 2])
    head = "%%MatrixMarket matrix {} real general\n"
    for name, text in {
            "plain.gz": "0 1\n", "empty.txt": "# nothing\n", "word.txt": "0 1\n\nx 1\n",
            "short.txt": "0 1\n7\n", "nan.txt": "0 1 nan\n", "mixed.txt": "0 1 2\n0 1\n",
            "large.txt": "9223372036854775808 0\n", "pairs.txt": "0 1\n1 2\n",
            "cut.mtx": head.format("coordinate") + "3 3 5\n1 1 1.0\n2 2",
            "few.mtx": head.format("coordinate") + "3 3 2\n1 1 1.0\n",
            "text.mtx": "0 1\n", "wide.mtx": head.format("coordinate") + "2 3 1\n1 1 1.0\n",
            "dense.mtx": head.format("array") + "1 1\n1.0\n"}.items():
        (tmp_path / name).write_text(text)
    np.savez(tmp_path / "whole.npz", src=np.arange(1000), dst=np.arange(1000))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:5000])
    with pytest.raises(ValueError, match=words):
        make(tmp_path)


BOMB = 1 << 24  # bytes to which a file of a few KiB unpacks


@pytest.mark.parametrize("name", ["a.npz", "lie.npz", "other.npz", "a.txt.gz", "a.mtx.gz", "n.mtx"])
def test_what_unpacks_to_more_than_fits_is_told(tmp_path: Path, name: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: before it is there: what is taken of memory is bounded by what is left of it; an array
    that no graph has is not read."""
    path, zeros, fits = tmp_path / name, np.zeros(BOMB // 16, np.int64), name == "other.npz"
    if name == "lie.npz":  # its length is told in a header that few would believe
        with zipfile.ZipFile(path, "w") as file:
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                head, {"descr": "<i8", "fortran_order": False, "shape": (1 << 50,)})
            file.writestr("src.npy", head.getvalue())
            file.writestr("dst.npy", head.getvalue())
    elif name.endswith(".npz"):
        arrays = {"x": zeros} if fits else {"src": zeros, "dst": zeros}
        np.savez_compressed(path, **({"src": [0], "dst": [1]} | arrays if fits else arrays))
    elif name == "n.mtx":
        path.write_text(f"%%MatrixMarket matrix coordinate pattern general\n9 9 {BOMB}\n1 1\n")
    else:
        head = b"" if "txt" in name else \
            b"%%MatrixMarket matrix coordinate pattern general\n9 9 4194304\n"
        path.write_bytes(gzip.compress(head + b"1 1\n" * (BOMB // 4), 1))
    assert path.stat().st_size < BOMB // 100
    room = 1 << 20
    monkeypatch.setattr(memory, "LOOK_BYTES", 1 << 18)
    monkeypatch.setattr(files, "TEXT_BYTES", 1 << 16)
    for module in (memory, parts):
        monkeypatch.setattr(module, "available_bytes", lambda: room)
    tracemalloc.start()
    try:
        if fits:
            data.load(path).part(Partition("hash", 2, 1), 0)
        else:
            words = "cannot be read as" if name == "lie.npz" else \
                r"9 vertices and \d+ edges do not fit: each of 1 slots" if "mtx" in name else \
                r"does not fit: \d\.\d GiB are here, \d\.\d GiB more are needed, and the machine"
            with pytest.raises(ValueError, match=f"^{name}: {words}"):
                data.load(path, n=9 if "txt" in name else None).part(Partition("hash", 9, 1), 0)
            if "txt" in name:
                with pytest.raises(memory.DoesNotFit):
                    data.load(path, n=9).part(Partition("range", 9, 1), 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    text = 0 if name.endswith(".npz") else 20 * files.TEXT_BYTES  # of a stretch, as it is parsed
    assert peak < 2 * room + text, (peak, room)


@pytest.mark.plain
def test_a_graph_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: before its edges are made, in words, with what it takes and what there is."""
    graph, partition = data.rmat(20), Partition("hash", 1 << 20, 2)
    monkeypatch.setattr(parts, "available_bytes", lambda: 100 << 20)
    with pytest.raises(ValueError, match=r"1048576 vertices and 16777216 edges do not fit: each of "
                       r"2 slots takes 0.1 GiB at first, and its machine has 0.1 GiB free"):
        graph.part(partition, 0)
    monkeypatch.setattr(parts, "available_bytes", lambda: 200 << 20)
    assert graph.part(partition, 0).ptr[-1] > 1 << 22


def test_messages_go_along_what_is_there_then() -> None:
    """Law: in a masked step, too, and whom they are for is as it was when they were sent."""
    part = data.path(4).part(Partition("range", 4, 1), 0)
    topology, rows = changes.topology(part, changes.none()), np.arange(4)
    sending, fields = Sending(topology, Least()), {"to": np.array([0, 1, 2, 3])}
    v = Vertices(topology, fields, rows, sending, 4, changes.none(), writes=True)
    v.drop_edges(v.edges.target == 2)
    v.add_edges([3], [0])
    v.send(v.ids + 10)
    assert part.targets[sending.got].tolist() == [1, 3]
    v.send_to(v.to[:1], 7)
    v.to = 3
    ids, values = sending.records
    assert ids.tolist() == [0, 0] and values.tolist() == [13, 7]
    with pytest.raises(ValueError, match="read-only"):
        Vertices(topology, fields, rows[1:], sending, 4, changes.none(), writes=True).degree[0] = 1


class Masked(VertexProgram):
    fields: ClassVar = {"a": int}

    def compute(self, v: Vertices, inbox: Any, ctx: Any) -> None:
        pass


@pytest.mark.parametrize(("recovery", "expected"), [
    ("lwcp", "hwcp"), ("lwlog", "hwlog"), ("hwcp", "hwcp"), ("hwlog", "hwlog"), ("none", "none")])
def test_a_program_of_compute_alone_is_saved_heavily(recovery: str, expected: str) -> None:
    """Law: where messages cannot be emitted again the heavy form of the same recovery is taken."""
    part, saved = data.path(4).part(Partition("range", 4, 1), 0), SimpleNamespace()
    slot = PregelSlot(Masked(), part, 4, [np.arange(4)], recovery, {}, saved, 1)
    assert slot.recovery == expected and slot.logs == expected.endswith("log")
