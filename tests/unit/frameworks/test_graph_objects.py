"""Objects that programs have become graphs; results become tables; what does not fit is told."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse

from ftrma.frameworks.graph import changes, fitting, results
from ftrma.frameworks.graph.messages import Contributions, Sending, aggregates_of, receive
from ftrma.frameworks.graph.pregel_program import Context, VertexProgram, Vertices
from ftrma.frameworks.graph.results import Result
from ftrma.graph import data
from ftrma.graph.data import Graph, Partition

PAIRS = [("a", "b", 1.5), ("b", "c", 2.0), ("c", "a", 3.0)]
NUMBERS = [(0, 1, 1.5), (1, 2, 2.0), (2, 0, 3.0)]


def edges_of(graph: Graph) -> Counter[tuple[Any, Any, float]]:
    names = np.arange(graph.n) if graph.names is None else graph.names
    found: Counter[tuple[Any, Any, float]] = Counter()
    for source, target, weight in graph.chunks():
        weights = np.zeros(len(source)) if weight is None else weight
        found.update(zip(names[source].tolist(), names[target].tolist(), weights.tolist(),
                         strict=True))
    return found


def both(edges: Any) -> Counter[tuple[Any, Any, float]]:
    return Counter([(a, b, w) for a, b, w in edges]
                   + [(b, a, w) for a, b, w in edges if a != b])


@pytest.mark.parametrize("kind", ["coo_matrix", "csr_matrix", "csc_array", "coo_array",
                                  "lil_array", "dia_array"])
def test_sparse(kind: str) -> None:
    """Law: rows are sources, entries weights; a rectangular one is refused."""
    source, target, weight = zip(*NUMBERS, strict=True)
    made = scipy.sparse.coo_array((weight, (source, target)), (4, 4))
    graph = data.load(getattr(scipy.sparse, kind)(made))
    assert graph.n == 4 and edges_of(graph) == Counter(NUMBERS)
    assert edges_of(data.load(made, weighted=False)) == Counter((a, b, 0) for a, b, _ in NUMBERS)
    with pytest.raises(ValueError, match="a matrix of 2 x 3; that of a graph is square"):
        data.load(getattr(scipy.sparse, kind)(np.ones((2, 3))))


def test_arrays() -> None:
    """Law: sources and targets, perhaps weights; one array of pairs; what is neither is told."""
    columns = [np.array(column) for column in zip(*NUMBERS, strict=True)]
    assert edges_of(data.load(tuple(columns))) == Counter(NUMBERS)
    pairs = np.stack(columns[:2], axis=1)
    graph = data.load(pairs.astype(np.int64), n=9)
    assert graph.n == 9 and set(edges_of(graph)) == {(a, b, 0.0) for a, b, _ in NUMBERS}
    assert edges_of(data.load([[0, 1], [1, 2]])) == Counter([(0, 1, 0.0), (1, 2, 0.0)])
    few = data.load((np.array([7, 9]), np.array([9, 50])), relabel=True)
    assert few.n == 3 and edges_of(few) == Counter([(7, 9, 0.0), (9, 50, 0.0)])
    assert data.load(few) .n == 3
    one, same, other = (data.load(tuple(columns), n=n).key for n in (3, 3, 4))
    assert one == same != other
    for wrong, words in ((np.ones((4, 4)), r"ndarray of shape \(4, 4\): give arrays \(source"),
                         ([1, 2, 3], "list of shape"), ((columns[0], columns[1][:2]), "one entry"),
                         ((columns[2], columns[1]), "ids of dtype float64")):
        with pytest.raises(ValueError, match=words):
            data.load(wrong)
    for odd in (7, object(), {"a": 1}, None):
        with pytest.raises(TypeError, match=f"a graph of {type(odd).__name__}: give a path, a mat"):
            data.load(odd)
    for wishes, words in (({"skip": 1}, "is no text"),
                          ({"columns": (0, 1)}, "for files and tables"),
                          ({"weighted": True}, "weighted, and it has no weights"),
                          ({"n": 4, "relabel": True}, "n 4 and relabel")):
        with pytest.raises(ValueError, match=words):
            data.load(pairs.astype(int), **wishes)


@pytest.mark.plain
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("words", [False, True])
def test_networkx(directed: bool, words: bool) -> None:
    """Law: nodes are the vertices, in their order; an undirected edge goes both ways."""
    networkx = pytest.importorskip("networkx")
    edges = [*(PAIRS if words else NUMBERS), ("a", "a", 4.0) if words else (0, 0, 4.0)]
    made = networkx.MultiDiGraph() if directed else networkx.Graph()
    made.add_nodes_from([] if words else range(5))
    made.add_weighted_edges_from(edges)
    graph = data.load(made)
    assert edges_of(graph) == (Counter(edges) if directed else both(edges))
    assert graph.n == (3 if words else 5) and (graph.names is None) == (not words)
    assert ("directed" if directed else "each edge in both directions") in graph.read_as
    made.add_edge(*edges[0][:2][::-1])
    if directed:
        with pytest.raises(ValueError, match="4 of 5 edges have a weight; give all of them one"):
            data.load(made)
    assert data.load(networkx.path_graph(1)).n == 1
    grid = data.load(networkx.grid_2d_graph(2, 2))
    assert grid.names is not None and grid.names[1] == (0, 1)


def test_igraph() -> None:
    """Law: vertices have their numbers, or their names if they have some."""
    igraph = pytest.importorskip("igraph")
    made = igraph.Graph(n=5, edges=[(a, b) for a, b, _ in NUMBERS])
    assert edges_of(data.load(made)) == both([(a, b, 0.0) for a, b, _ in NUMBERS])
    made = igraph.Graph.TupleList(PAIRS, directed=True, weights=True)
    assert edges_of(data.load(made)) == Counter(PAIRS)
    assert edges_of(data.load(made, weighted=False)) == Counter((a, b, 0.0) for a, b, _ in PAIRS)


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("words", [False, True])
def test_tables(package: str, words: bool) -> None:
    """Law: columns by their names, or those that are named; what has no value is refused."""
    module = pytest.importorskip(package)
    make = module.table if package == "pyarrow" else module.DataFrame
    rows = PAIRS if words else NUMBERS
    names = ("from", "to", "weight")
    columns = {name: list(column) for name, column in zip(names, zip(*rows, strict=True),
                                                          strict=True)}
    graph = data.load(make({name: columns[name] for name in ("weight", "to", "from")}))
    assert edges_of(graph) == Counter(rows) and "weights from column 1 (weight)" in graph.read_as
    turned = data.load(make(columns), columns=("to", "from"))
    assert edges_of(turned) == Counter((b, a, 0.0) for a, b, _ in rows)
    columns["to"][1] = None  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="edges have no value in a column; leave such edges out"):
        data.load(make(columns))
    with pytest.raises(ValueError, match="has 1 columns; give those of source and target"):
        data.load(make({"a": [1]}))


class Comm:
    """The only slot, or another one."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def gather(self, part: Any, root: int) -> Any:
        return [part] if self.rank == root else None


def result_of(graph: Graph, rank: int = 0) -> Result:
    fields = {"rank": np.array([0.1, 1e-300, 2.5]), "level": np.array([3, 3, 1])}
    return Result(Comm(rank), graph, np.arange(3), fields, [], {}, 3)


NAMED = data.relabel(data.of_edges(60, [7, 9], [9, 50]))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "npz", "parquet", "npy", "dat", "pandas"])
def test_results_are_tables(tmp_path: Path, suffix: str) -> None:
    """Law: every bit comes back, beside the vertices as the graph names them, at slot 0 alone."""
    path = tmp_path / f"out.{suffix}"
    words = data.Graph(3, NAMED.chunks, "", np.array(["Ω, \"x\"", "b", "c"], object))
    for graph, ids in ((NAMED, [7, 9, 50]), (words, ["Ω, \"x\"", "b", "c"]),
                       (data.path(3), [0, 1, 2])):
        result = result_of(graph)
        if suffix == "pandas":
            pandas = pytest.importorskip("pandas")
            frame = result.frame()
            assert isinstance(frame, pandas.DataFrame) and list(frame.vertex) == ids
            assert frame["rank"].tolist() == result["rank"].tolist()
            assert list(result.frame("level").columns) == ["vertex", "level"]
            continue
        if suffix == "parquet":
            pytest.importorskip("pyarrow")
        if suffix in ("npy", "dat"):
            result.save(path, "rank")
            assert np.load(path).tolist() == result["rank"].tolist()
            with pytest.raises(ValueError, match="holds one field; name that field, or"):
                result.save(path)
            continue
        result.save(path)
        if suffix == "npz":
            found = dict(np.load(path))
        elif suffix == "parquet":
            from pyarrow import parquet

            found = parquet.read_table(path).to_pydict()
        else:
            with open(path, newline="") as file:
                head, *rows = csv.reader(file, delimiter="," if suffix == "csv" else "\t")
            columns = zip(*rows, strict=True)
            found = {name: [type(like)(word) for word in column] for name, column, like
                     in zip(head, columns, (ids[0], 0.5, 1), strict=True)}
        assert {name: list(column) for name, column in found.items()} == {
            "vertex": ids, "rank": [0.1, 1e-300, 2.5], "level": [3, 3, 1]}
    assert result_of(NAMED, 1).frame() is None and result_of(NAMED, 1).top("rank") == []
    result_of(NAMED, 1).save(tmp_path / "never.csv")
    assert not (tmp_path / "never.csv").exists()


def test_the_first_vertices() -> None:
    """Law: by value, then in the order of the vertices."""
    result = result_of(NAMED)
    assert result.top("rank", 2) == [(50, 2.5), (7, 0.1)]
    assert result.top("level") == [(7, 3), (9, 3), (50, 1)]
    assert result.top("level", 2, least=True) == [(50, 1), (7, 3)]
    with pytest.raises(ValueError, match="field 'x': there are rank, level"):
        result.top("x")


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: without it the remedy is told, and nothing is written."""
    monkeypatch.setattr(results, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pyarrow writes Parquet: pip install pyarrow, or name a"):
        result_of(NAMED).save(tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("values", "kind", "said"), [
    (np.nan, np.int64, "nan"), ([1.0, 2.5], np.int32, "2.5"), (np.inf, np.int64, "inf"),
    (2.0**63, np.int64, "9.22"), (-1.0, np.uint64, "-1.0"), (-1, np.uint64, "-1"),
    ([1, 2**40], np.int32, "1099511627776"), (np.array([2**63], np.uint64), np.int64, "92233"),
    (300, np.uint8, "300"), (2.0**31, np.int32, "2147483648.0"), (256.0, np.uint8, "256.0"),
])
def test_values_that_do_not_fit(values: Any, kind: Any, said: str) -> None:
    """Law: a number that the dtype has no room for is told with the remedy, not cast."""
    with pytest.raises(ValueError, match=f"field 'a' is of {np.dtype(kind)}, which {said}"):
        fitting.fitted(values, kind, "field 'a'")


@pytest.mark.parametrize(("values", "kind"), [
    ([1.0, -3.0], np.int64), (2.0**62, np.int64), (True, np.int32), (0.5, np.float32),
    (np.nan, float), (2**31 - 1, np.int32), (2147483647.0, np.int32), (255.0, np.uint8), ([], int),
    (7, bool)])
def test_values_that_fit(values: Any, kind: Any) -> None:
    """Law: they come back as they are."""
    found = fitting.fitted(values, kind, "x")
    assert (found == np.asarray(values)).all() or np.isnan(values)


class Counts(VertexProgram):
    fields: ClassVar = {"level": np.int32}
    message = np.int64
    combine = np.add
    aggregates: ClassVar = {"sum": np.int64, "most": (np.int32, np.maximum)}


def test_programs_are_told() -> None:
    """Law: a field, a message, an aggregate and a sum of messages that its dtype does not hold."""
    star = data.of_edges(4, [0, 1, 2], [3, 3, 3], [0.5, 1, 1]).part(Partition("hash", 4, 1), 0)
    topology, rows, program = changes.topology(star, changes.none()), np.arange(4), Counts()
    sending = Sending(topology, program)
    v = Vertices(topology, {"level": np.zeros(4, np.int32)}, rows, sending, 4, changes.none(),
                 writes=True)
    v.level = np.array([1.0, 2, 3, 4])
    with pytest.raises(ValueError, match="field 'level' is of int32, which nan is not: declare"):
        v.level = np.array([1.0, np.nan, 3, 4])
    assert v.level.tolist() == [1, 2, 3, 4]
    for send in (lambda: v.send(0.5), lambda: v.send_to([1], 0.5),
                 lambda: v.send(1, weight="plus")):
        with pytest.raises(ValueError, match=r"message( with weights)? is of int64, which 0.5"):
            send()
    context = Context(1, 4, {}, Contributions(aggregates_of(program)))
    context.contribute("sum", 2**62)
    with pytest.raises(ValueError, match="aggregate 'sum' is of int64, which the sum 92233"):
        context.contribute("sum", 2**62)
    with pytest.raises(ValueError, match="aggregate 'most' is of int32, which 0"):
        context.contribute("most", 0.5)
    context.contribute("sum", np.int64(2**62 - 1))
    assert fitting.combined(np.add, np.uint64(2**63), 2**63 + 2, "checksum") == 2


def test_sums_of_messages() -> None:
    """Law: those that overflow are told, at the sender and where lanes meet; none that does not."""
    star = data.of_edges(4, [0, 1, 2], [3, 3, 3]).part(Partition("hash", 4, 1), 0)
    topology, rows, program = changes.topology(star, changes.none()), np.arange(4), Counts()
    for value, fits in ((2**62, False), (-2**62, False), (2**61, True), (2**63 // 3, True)):
        values = np.full(4, value)
        if fits:
            sending = Sending(topology, program)
            sending.along(rows, values, None)
            assert sending.values.tolist() == [3 * value]
        else:
            with pytest.raises(ValueError, match=r"messages are of int64, which their sum 1.3"):
                Sending(topology, program).along(rows, values, None)
    near = np.array([2**62])
    lanes = [(near, None), (near, None)]
    where = [np.array([0]), np.array([0])]
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="messages are of int64, which their sum"):
        receive(program, 1, where, lanes, none)
    apart = [np.array([0]), np.array([1])]
    assert receive(program, 2, apart, lanes, none).values.tolist() == [2**62, 2**62]
    with pytest.raises(ValueError, match="messages are of int64, which their sum"):
        receive(program, 1, where[:1], lanes[:1], (np.array([0]), near))
