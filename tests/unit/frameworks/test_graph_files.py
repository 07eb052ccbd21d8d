"""Files as people have them: read as other tools read them, told how, or refused in words."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from ftrma.graph import data
from ftrma.graph.data import Graph, Partition

Edge = tuple[Any, Any, float]


def edges_of(graph: Graph) -> list[Edge]:
    """By the names of vertices, with weight 0 where the graph has none."""
    found: list[Edge] = []
    names = np.arange(graph.n) if graph.names is None else graph.names
    for source, target, weight in graph.chunks():
        weights = np.zeros(len(source)) if weight is None else weight
        found += zip(names[source].tolist(), names[target].tolist(), weights.tolist(), strict=True)
    return found


BANNER = "%%MatrixMarket matrix coordinate {} {}\n"
CYCLE = [(v, w, 0.0) for v in range(4) for w in ((v + 1) % 4, (v - 1) % 4)]

# A text, how it is asked to be read, vertices, edges, words that tell how it is read.
FILES: dict[str, tuple[str | bytes, dict[str, Any], int, list[Edge], str]] = {
    "mtx as txt": (BANNER.format("real", "general") + "3 3 2\n1 2 0.5\n3 1 2\n", {}, 3,
                   [(0, 1, .5), (2, 0, 2)], "Matrix Market, directed, 3 vertices, ids from 1"),
    "mtx in capitals": ((BANNER.format("pattern", "symmetric") + "%\n\n3 3 2\n1 1\n3 1\n").upper(),
                        {}, 3, [(0, 0, 0), (2, 0, 0), (0, 2, 0)], "each edge in both directions"),
    "mtx skew": (BANNER.format("integer", "skew-symmetric") + "2 2 1\n2 1 -7\n", {}, 2,
                 [(1, 0, -7), (0, 1, 7)], "weights from column 3"),
    "metis": ("4 4\n2 4\n1 3\n2 4\n3 1\n", {}, 4, CYCLE, "METIS, each edge in both"),
    "metis as edges": ("4 4\n2 4\n1 3\n2 4\n3 1\n", {"columns": (0, 1)}, 5, [
        (4, 4, 0), (2, 4, 0), (1, 3, 0), (2, 4, 0), (3, 1, 0)], "directed, 5 vertices"),
    "metis, vertices alone": ("% a\n4 1\n3\n\n1\n\n", {}, 4, [(0, 2, 0), (2, 0, 0)], "METIS"),
    "metis weights": ("3 2 011 1\n9 2 5\n8 1 5 3 7\n7 2 7\n", {}, 3, [
        (0, 1, 5), (1, 0, 5), (1, 2, 7), (2, 1, 7)], "METIS, "),
    "no metis": ("3 3\n1 2\n2 3\n3 1\n", {}, 4, [(3, 3, 0), (1, 2, 0), (2, 3, 0), (3, 1, 0)],
                 "0-based though the least id is 1"),
    "dimacs": ("c a road\np sp 3 2\nc\na 1 2 5\na 3 1 7\n", {}, 3, [(0, 1, 5), (2, 0, 7)],
               "DIMACS, directed, 3 vertices, ids from 1, weights from column 4"),
    "dimacs edges": ("p edge 3 9\ne 1 2\ne 3 1\n", {}, 3, [
        (0, 1, 0), (1, 0, 0), (2, 0, 0), (0, 2, 0)], "DIMACS, each edge in both"),
    "header": ("source,target,weight\n0,1,2.5\n2,0,1\n", {}, 3, [(0, 1, 2.5), (2, 0, 1)],
               "weights from column 3 (weight)"),
    "header, elsewhere": ("weight;dst;src\n2.5;1;0\n", {}, 2, [(0, 1, 2.5)], "from column 1"),
    "header, unnamed": ("a b c\n0 1 5\n", {}, 2, [(0, 1, 0)], "no weights: column 3 is c"),
    "header, asked": ("a b c\n0 1 5\n", {"weighted": True}, 2, [(0, 1, 5)], "from column 3"),
    "quotes": ('"from","to","note"\r\n"0","1","a, ""b"""\r\n"2","0",""\r\n', {}, 3,
               [(0, 1, 0), (2, 0, 0)], "no weights: column 3 is note"),
    "semicolons": ("0;1;0.5\n1;0;1\n", {}, 2, [(0, 1, .5), (1, 0, 1)], "weights from column 3"),
    "slashes": ("// a comment\n0 1\n// one\n1 2\n", {}, 3, [(0, 1, 0), (1, 2, 0)], "no weights"),
    "four columns": ("1\t2\t3\t881250949\n3\t1\t5\t891717742\n", {}, 4, [(1, 2, 3), (3, 1, 5)],
                     "weights from column 3"),
    "empty column": ("0,1,,4\n1,0,,5\n", {"columns": (0, 1, 3)}, 2, [(0, 1, 4), (1, 0, 5)],
                     "weights from column 4"),
    "names of columns": ("w,u,v\n1.5,0,1\n", {"columns": ("v", "u", "w")}, 2, [(1, 0, 1.5)], ""),
    "times": ("0 1 1082040961\n1 0 1082155839\n", {}, 2, [(0, 1, 0), (1, 0, 0)],
              "no weights: column 3 looks like times"),
    "times as weights": ("0 1 1082040961\n", {"weighted": True}, 2, [(0, 1, 1082040961)], ""),
    "dates": ("0 1 2019-02-03\n", {}, 2, [(0, 1, 0)], "column 3 has no numbers"),
    "left out": ("0 1 5\n", {"weighted": False}, 2, [(0, 1, 0)], "weights left out"),
    "skip": ("5 7 some words\n0 1\n", {"skip": 1}, 2, [(0, 1, 0)], ""),
    "separator": ("0:1:3\n", {"separator": ":"}, 2, [(0, 1, 3)], ""),
    "bom": (b"\xef\xbb\xbf0,1\n1,2\n", {}, 3, [(0, 1, 0), (1, 2, 0)], ""),
    "cr": ("source target\r0 1\r1 2\r", {}, 3, [(0, 1, 0), (1, 2, 0)], ""),
    "bz2": (bz2.compress(b"0 1\n"), {}, 2, [(0, 1, 0)], ""),
    "xz": (lzma.compress(b"0 1\n"), {}, 2, [(0, 1, 0)], ""),
    "gz without a suffix": (gzip.compress(b"0 1\n"), {}, 2, [(0, 1, 0)], ""),
    "one-based": ("1 2\n3 1\n", {"one_based": True}, 3, [(0, 1, 0), (2, 0, 0)], "1-based"),
    "words": ("alice bob\nbob carol\nalice bob\n", {}, 3, [
        ("alice", "bob", 0), ("bob", "carol", 0), ("alice", "bob", 0)],
        "ids are words ('alice' is 0)"),
    "words in quotes": ('from,to,weight\n"Smith, J.",bob,2\nbob,"O""Neil" ,3\n', {}, 3, [
        ("Smith, J.", "bob", 2), ("bob", 'O"Neil', 3)], "weights from column 3 (weight)"),
    "words with a header alone known by name": ("source\ttarget\na b\tc d\n", {}, 2, [
        ("a b", "c d", 0)], ""),
    "numbers as words": ("18446744073709551615 007\n", {"labels": True}, 2, [
        ("18446744073709551615", "007", 0)], "ids are words"),
    "exact": ("0 1 9007199254740992\n1 0 9007199254740994\n", {}, 2, [
        (0, 1, 2.0**53), (1, 0, 2.0**53 + 2)], ""),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_read(tmp_path: Path, name: str) -> None:
    """Law: an edge for each, in the order of the file, whatever the file is called."""
    text, wishes, n, expected, told = FILES[name]
    path = tmp_path / "graph.dat"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    graph = data.load(path, **wishes)
    assert sorted(edges_of(graph)) == sorted(expected) and graph.n == n, graph.read_as
    assert told in graph.read_as and "\n" not in graph.read_as
    part = graph.part(Partition("hash", n, 1), 0)
    assert len(part.target) == len(expected)


REFUSED: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "uint64": ("18446744073709551615 0\n", {}, "line 1: id 18446744073709551615 is out of range; "),
    "rounded": ("0 1 9007199254740993\n", {}, "line 1: weight '9007199254740993' is no number"),
    "floats": ("1.0 2.0\n", {}, "line 1: '1.0' is no id of a vertex"),
    "below the base": ("0 1\n", {"one_based": True}, "line 1: id 0, and ids begin at 1"),
    "ragged": ("0 1\n0 1 2\n", {}, "line 2: 3 columns, and 2 are expected; say which"),
    "no such column": ("0 1\n", {"columns": (0, 5)}, "has 2 columns, and the target is column 6"),
    "no such name": ("a,b\n0,1\n", {"columns": ("a", "x")}, "no column x; there are a, b"),
    "no names": ("0,1\n", {"columns": ("a", "x")}, "no column a; the file names none: give num"),
    "no weights": ("0 1\n", {"weighted": True}, "weighted: there is no column of weights"),
    "one column": ("0 1\n", {"columns": (1,)}, "columns 1; give those of source, target and"),
    "twice": ("0 1\n", {"columns": (1, 1)}, "columns 1,1; give those of source, target"),
    "two weights": ("0 1\n", {"columns": (0, 1), "weighted": True}, "weighted, and columns"),
    "separators": ("0 1\n", {"separator": "ab"}, "separator 'ab'; give one character"),
    "skip": ("0 1\n", {"skip": -1}, "skip -1; give lines, 0 or more"),
    "based words": ("a b\n", {"one_based": True, "labels": True}, "one_based and labels"),
    "n of words": ("a b\n", {"n": 9}, "n 9, and ids that are words"),
    "empty id": ("source,target\na,\n", {}, "line 2: an id is empty"),
    "quote": ('0,"1\n', {}, "line 1: '\"1' has no quote at its end"),
    "xml": ("<?xml version='1.0'?><graphml/>", {}, "is XML, such as GraphML or GEXF; read it with"),
    "json": ("{}", {}, "is JSON"), "gml": ("graph [\n", {}, "is GML"),
    "pajek": ("*Vertices 3\n1 2\n", {}, "is Pajek"), "dot": ("digraph {a -> b}\n", {}, "is DOT"),
    "utf-16": ("0 1\n".encode("utf-16"), {}, "is UTF-16; save it as UTF-8"),
    "zstd": (b"\x28\xb5\x2f\xfd123456", {}, "is packed by zstd; unpack it"),
    "cut xz": (lzma.compress(b"0 1\n" * 9)[:-9], {}, "is damaged"),
    "cut bz2": (bz2.compress(b"0 1\n" * 9)[:-9], {}, "is damaged"),
    "odd bz2": (b"BZh9 no", {}, "is damaged"),
    "mtx, wide": (BANNER.format("real", "general") + "2 3 1\n1 1 1\n", {}, "a matrix of 2 x 3"),
    "mtx, complex": (BANNER.format("complex", "general") + "2 2 0\n", {}, "of complex numbers"),
    "mtx, hermitian": (BANNER.format("real", "hermitian") + "2 2 0\n", {}, "a hermitian matrix"),
    "mtx, sizes": (BANNER.format("real", "general") + "2 2\n1 1 1\n", {}, "line 2 has not rows"),
    "mtx, id 0": (BANNER.format("pattern", "general") + "2 2 1\n0 1\n", {}, "id 0, and ids begin"),
    "dimacs, cut": ("p sp 3 2\na 1 2 5\n", {}, "has 1 arcs, and its head says 2"),
    "arrow": (b"PAR1 and no more of it", {}, "is damaged|pyarrow reads such files"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_are_refused(tmp_path: Path, name: str) -> None:
    """Law: one message with what is wrong, and the remedy."""
    text, wishes, words = REFUSED[name]
    path = tmp_path / "graph.dat"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ValueError, match=words) as caught:
        edges_of(data.load(path, **wishes))
    assert "\n" not in str(caught.value)


@pytest.mark.plain
def test_a_long_metis_file(tmp_path: Path) -> None:
    """Law: it is known by its first lines, and refused if the others do not fit its head."""
    lines = [f"{(v - 1) % 30000 + 1} {(v + 1) % 30000 + 1}" for v in range(30000)]
    path = tmp_path / "graph.dat"
    path.write_text("\n".join(["30000 30000", *lines]) + "\n")
    graph = data.load(path)
    assert graph.n == 30000 and "METIS" in graph.read_as and len(edges_of(graph)) == 60000
    path.write_text("\n".join(["30000 30000", *lines[:-1]]) + "\n")
    with pytest.raises(ValueError, match=r"29999 vertices and 59998 neighbours, and its head says"):
        edges_of(data.load(path))


def test_comments_that_are_long(tmp_path: Path) -> None:
    """Law: the form is that of the first lines that are no comments."""
    path = tmp_path / "graph.dat"
    path.write_text("# a comment\n" * 20000 + "source;target;rating\n0;1;5\n")
    graph = data.load(path)
    assert edges_of(graph) == [(0, 1, 5.0)] and "(rating)" in graph.read_as
    with pytest.raises(ValueError, match="line 20003: '7' has no target"):
        path.write_text("# a comment\n" * 20000 + "source;target;rating\n0;1;5\n7\n")
        data.load(path)


def test_sparse_matrices(tmp_path: Path) -> None:
    """Law: COO, CSR and CSC are one graph; a rectangular one is refused, and a long weight too."""
    matrix = scipy.sparse.random(30, 30, 0.1, format="coo", random_state=1)
    found = []
    for kind in ("coo", "csr", "csc"):
        scipy.sparse.save_npz(tmp_path / "a.npz", matrix.asformat(kind))
        found.append(sorted(edges_of(data.load(tmp_path / "a.npz"))))
    (tmp_path / "a.npz").rename(tmp_path / "a.dat")
    found.append(sorted(edges_of(data.load(tmp_path / "a.dat"))))
    expected = sorted(zip(matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(),
                          strict=True))
    assert all(edges == expected for edges in found)
    light = edges_of(data.load(tmp_path / "a.dat", weighted=False))
    assert all(weight == 0 for _, _, weight in light)
    for kind in ("coo", "csr", "csc"):
        scipy.sparse.save_npz(tmp_path / "b.npz", matrix.tocsr()[:20].asformat(kind))
        with pytest.raises(ValueError, match=r"b\.npz: a matrix of 20 x 30; that of a graph is sq"):
            data.load(tmp_path / "b.npz")
    for dtype in (np.int64, np.uint64):
        np.savez(tmp_path / "c.npz", src=[0], dst=[1], weight=np.array([2**53 + 1], dtype))
        with pytest.raises(ValueError, match="weight 9007199254740993 is no number that a float"):
            data.load(tmp_path / "c.npz")
        np.savez(tmp_path / "c.npz", src=[0], dst=[1], weight=np.array([2**62], dtype))
        assert edges_of(data.load(tmp_path / "c.npz")) == [(0, 1, 2.0**62)]
    for wishes in ({"columns": (0, 1)}, {"skip": 1}, {"one_based": True}, {"labels": True}):
        with pytest.raises(ValueError, match=r"c\.npz: \w+, which is for text and tables"):
            data.load(tmp_path / "c.npz", **wishes)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("words", [False, True])
def test_tables(tmp_path: Path, kind: str, words: bool) -> None:
    """Law: columns by their names; ids are numbers or words; what has no value is refused."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    ids = [["a", "b", "c"], ["b", "c", "a"]] if words else [[1, 2, 4], [2, 4, 1]]
    path = tmp_path / "edges.dat"

    def write(columns: dict[str, Any]) -> None:
        table = arrow.table(columns)
        if kind == "parquet":
            parquet.write_table(table, path, row_group_size=2)
        else:
            with ipc.new_file(path, table.schema) as file:
                file.write_table(table, max_chunksize=2)

    write({"cost": [1.5, 2, 3], "to": ids[1], "from": ids[0]})
    graph = data.load(path)
    assert edges_of(graph) == list(zip(*ids, [1.5, 2, 3], strict=True))
    assert graph.n == (3 if words else 5) and "weights from column 1 (cost)" in graph.read_as
    if not words:
        assert data.load(path, one_based=True).n == 4
        assert data.load(path, relabel=True).n == 3
    light = data.load(path, columns=("to", "from"))
    assert edges_of(light) == [(b, a, 0.0) for a, b in zip(*ids, strict=True)]
    with pytest.raises(ValueError, match="no column x; there are cost, to, from"):
        data.load(path, columns=("x", "from"))
    write({"source": ids[0], "target": [*ids[1][:2], None]})
    with pytest.raises(ValueError, match="an edge has no value in a column"):
        data.load(path)
    write({"source": [0.5], "target": [1.5]})
    assert data.load(path).n == 2  # any values may be ids


def test_as_others_read_them(tmp_path: Path) -> None:
    """Law: what pandas and scipy read is what is read here."""
    random = np.random.default_rng(3)
    source, target = random.integers(0, 50, 300), random.integers(0, 50, 300)
    weight = random.normal(0, 1, 300)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"source": source, "target": target, "weight": weight})
    expected = Counter(zip(source.tolist(), target.tolist(), weight.tolist(), strict=True))
    path = tmp_path / "edges.csv"
    for separator, header, quoting in ((",", True, 0), (";", True, 1), ("\t", False, 0)):
        frame.to_csv(path, sep=separator, header=header, index=False, quoting=quoting)
        assert Counter(edges_of(data.load(path))) == expected
    frame.to_csv(path)  # with its index in front, whose column has no name
    assert Counter(edges_of(data.load(path))) == expected
    matrix = scipy.sparse.coo_array((weight, (source, target)), (50, 50))
    scipy.io.mmwrite(tmp_path / "edges.txt", matrix, precision=17)
    (tmp_path / "edges.txt.mtx").rename(tmp_path / "edges.txt")
    again = scipy.io.mmread(tmp_path / "edges.txt")
    assert Counter(edges_of(data.load(tmp_path / "edges.txt"))) == Counter(
        zip(again.row.tolist(), again.col.tolist(), again.data.tolist(), strict=True))
