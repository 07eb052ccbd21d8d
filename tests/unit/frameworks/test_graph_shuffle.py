"""Slots that read a graph together have the parts that each makes alone, bit by bit."""

from __future__ import annotations

import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from ftrma.frameworks.graph import (
    arrayfiles,
    arrayslices,
    files,
    generate,
    shuffle,
    tablefiles,
    textedges,
)
from ftrma.frameworks.graph.derived import bipartite, both, reverse, simple
from ftrma.frameworks.graph.slices import Sliced
from ftrma.graph import data
from ftrma.graph.data import Graph, Part, Partition

LIMIT_S = 30


class Comm:
    """Slots that are threads; calls meet."""

    def __init__(self, size: int, rank: int = 0, shared: Any = None) -> None:
        self.size, self.rank = size, rank
        self.board, self.barrier = shared or ([None] * size, threading.Barrier(size))

    def allgather(self, value: Any) -> list[Any]:
        self.barrier.wait(LIMIT_S)
        self.board[self.rank] = value
        self.barrier.wait(LIMIT_S)
        found = list(self.board)
        self.barrier.wait(LIMIT_S)
        return found

    def Alltoall(self, given: Any, found: Any) -> None:
        found[:] = [row[self.rank] for row in self.allgather(given)]

    def Allreduce(self, given: Any, found: Any) -> None:
        found[:] = sum(self.allgather(given))

    def Alltoallv(self, given: Any, found: Any) -> None:
        into, (counts, begins) = found
        for slot, (array, (theirs, at)) in enumerate(self.allgather(given)):
            assert array.dtype == into.dtype and theirs[self.rank] == counts[slot]
            begin = at[self.rank]
            into[begins[slot] : begins[slot] + counts[slot]] = \
                array[begin : begin + theirs[self.rank]]


def on_all(size: int, work: Callable[[Comm], Any]) -> list[Any]:
    """Have slots work; the result of each, or the words of its ValueError."""
    shared = [None] * size, threading.Barrier(size)
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = work(Comm(size, rank, shared))
        except ValueError as error:
            found[rank] = str(error)
        except BaseException:
            shared[1].abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def same(a: Part, b: Part) -> bool:
    return all(x is y is None or (x.dtype == y.dtype and x.tobytes() == y.tobytes())
               for x, y in ((getattr(part, name) for part in (a, b)) for name in (
                   "ids", "ptr", "target", "weight", "targets", "bounds")))


MAKES: list[Callable[[Graph], Graph]] = [
    lambda graph: graph, data.symmetric, simple, reverse, bipartite, both, data.relabel]


@pytest.mark.plain
@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(16, 200),
       st.sampled_from(["text", "weights", "head", "mtx", "symmetric", "dimacs"]),
       st.sampled_from(["hash", "range"]), st.sampled_from(range(len(MAKES))))
def test_parts_are_the_same(tmp_path_factory: pytest.TempPathFactory, seed: int, slots: int,
                            block: int, form: str, kind: str, make: int) -> None:
    """Law: of any text, any size of its blocks, any number of slots; the text is read once."""
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 40)), int(random.integers(1, 120))
    rows = random.integers(1, n + 1, (m, 2))
    weights = random.integers(-9, 9, m) / 8
    lines = [f"{a} {b}" + (f" {w}" if form not in ("text", "head") else "")
             for (a, b), w in zip(rows.tolist(), weights.tolist(), strict=True)]
    symmetry = "symmetric" if form == "symmetric" else "general"
    head = {"head": ["# a comment", "source target"], "dimacs": ["c x", f"p sp {n} {m}"],
            "mtx": [f"%%MatrixMarket matrix coordinate real {symmetry}", f"{n} {n} {m}"]}
    head["symmetric"] = head["mtx"]
    if form == "dimacs":
        lines = [f"a {line}" for line in lines]
    path = tmp_path_factory.mktemp("shuffle") / "graph.dat"
    end = "" if seed % 3 else "\n"
    path.write_text("\n".join([*head.get(form, []), *lines]) + end)
    whole = MAKES[make](data.load(path))
    partition = Partition(kind, whole.n, slots)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "TEXT_BYTES", max(block, len(max(head.get(form, [""]), key=len)) + 1))
        patch.setattr(Sliced, "seen", {})

        def work(comm: Comm) -> tuple[str, Part]:
            graph = MAKES[make](data.load(path, comm=comm))
            if form in ("text", "weights"):  # a head may be longer than a block
                assert (graph.slices is not None) == (slots > 1)
            if graph.slices is None:
                return graph.read_as, graph.part(partition, comm.rank)
            return graph.read_as, shuffle.part(comm, graph, partition)

        alone = MAKES[make](data.load(path))
        for slot, found in enumerate(on_all(slots, work)):
            assert found[0] == whole.read_as and same(found[1], alone.part(partition, slot))


@pytest.mark.plain
@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 5), st.sampled_from(["text", "packed", "rmat"]))
def test_what_all_edges_tell(tmp_path_factory: pytest.TempPathFactory, seed: int, slots: int,
                             form: str) -> None:
    """Law: degrees, and ids that have edges, are those that a slot finds alone; each slot reads its
    slice and no more."""
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 40)), int(random.integers(1, 120))
    rows = random.integers(0, n, (m, 2))
    path = tmp_path_factory.mktemp("shuffle") / ("graph.npz" if form == "packed" else "graph.txt")
    if form == "packed":
        np.savez_compressed(path, src=rows[:, 0], dst=rows[:, 1])
    else:
        path.write_text("".join(f"{a} {b}\n" for a, b in rows.tolist()))

    def load(comm: Comm | None = None, *, relabel: bool = False) -> Graph:
        if form == "rmat":
            made = data.rmat(4, seed=seed)
            return data.relabel(made) if relabel else made
        return data.load(path, comm=comm, relabel=relabel)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "TEXT_BYTES", 64)
        patch.setattr(arrayfiles, "CHUNK", 16)
        patch.setattr(generate, "CHUNK", 16)
        patch.setattr(Sliced, "seen", {})
        whole, few = load(), load(relabel=True)

        def work(comm: Comm) -> tuple[Any, Any]:
            with pytest.MonkeyPatch.context() as alone:
                graph = load(comm)
                assert graph.slices is not None
                alone.setattr(graph, "chunks", None)  # nobody reads all of it
                degrees = shuffle.degrees(comm, graph)
                again = load(comm, relabel=True)
                ids = again.names if form != "rmat" else shuffle.ids_with_edges(comm, graph)
                return degrees.tolist(), ids.tolist()

        expected = whole.degrees().tolist(), few.names.tolist()
        assert on_all(slots, work) == [expected] * slots


@pytest.mark.parametrize("make", [
    lambda: data.rmat(6, degree=5), lambda: data.path(60), lambda: data.grid(7, 9),
    lambda: data.lognormal(50, 0.4, 1.1),
    lambda: generate.power_law(50)])
@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_parts_of_made_graphs(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Graph],
                              slots: int) -> None:
    """Law: slots that make a share of the edges each have the parts that each makes alone."""
    monkeypatch.setattr(generate, "CHUNK", 32)
    monkeypatch.setattr(generate, "VERTICES", 8)
    graph = make()
    partition = Partition("hash", graph.n, slots)
    parts = on_all(slots, lambda comm: shuffle.part(comm, graph, partition))
    assert all(same(part, graph.part(partition, slot)) for slot, part in enumerate(parts))


def test_problems_of_a_slice_are_those_of_all(tmp_path: Path) -> None:
    """Law: what one slot cannot read is told on all, whatever it is read for."""
    path = tmp_path / "graph.txt"
    path.write_text("0 1\n" * 40)
    words = []

    def work(comm: Comm) -> None:
        graph = data.load(path, comm=comm)
        graph.n = 1
        shuffle.degrees(comm, graph)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "TEXT_BYTES", 64)
        words = on_all(3, work)
    assert words == ["graph.txt: an edge has target 1; vertices are 0 to 0"] * 3


def write(path: Path, form: str, n: int, rows: Any, weights: Any) -> dict[str, Any]:
    """Write edges as a kind of file of arrays or a table; the wishes that it is loaded with."""
    source, target = rows[:, 0], rows[:, 1]
    kind, _, how = form.partition(" ")
    matrix = scipy.sparse.coo_array((weights, (source, target)), (n, n))
    if kind == "ends":
        arrays = {"src": source, "dst": target.astype(">i4"), "weight": weights.astype(np.float32)}
        (np.savez_compressed if how == "packed" else np.savez)(path, allow_pickle=False, **arrays)
        path.with_suffix(".dat.npz").rename(path)
    elif kind in ("coo", "csr", "csc"):
        with open(path, "wb") as file:
            scipy.sparse.save_npz(file, matrix.asformat(kind), compressed=how == "packed")
    else:
        import pyarrow
        from pyarrow import ipc, parquet

        table = pyarrow.table({"note": weights, "to": target, "from": source, "w": weights})
        if kind == "parquet":
            parquet.write_table(table, path, row_group_size=7)
        else:
            with ipc.new_file(path, table.schema) as file:
                file.write_table(table, max_chunksize=7)
        return {"one_based": how == "one-based"}
    return {"weighted": False} if how == "unweighted" else {}


ARRAYS = ["ends", "ends packed", "coo", "coo packed", "coo unweighted", "csr", "csr packed", "csc",
          "csc packed", "csr unweighted"]
TABLES = ["parquet", "parquet one-based", "arrow"]


@pytest.mark.plain
@pytest.mark.parametrize("forms", [ARRAYS, TABLES], ids=["arrays", "tables"])
@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 40), st.data(),
       st.sampled_from(range(len(MAKES))))
def test_parts_of_arrays_are_the_same(tmp_path_factory: pytest.TempPathFactory, forms: list[str],
                                      seed: int, slots: int, chunk: int, drawn: Any,
                                      make: int) -> None:
    """Law: of any file of arrays or table, and any number of slots, again for a second run."""
    if forms == TABLES:
        pytest.importorskip("pyarrow")
    form = drawn.draw(st.sampled_from(forms))
    random = np.random.default_rng(seed)
    n, m = int(random.integers(2, 40)), int(random.integers(1, 120))
    rows = random.integers(1, n, (m, 2))
    path = tmp_path_factory.mktemp("slices") / "graph.dat"
    wishes = write(path, form, n, rows, random.integers(1, 9, m) / 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrayfiles, "CHUNK", chunk)
        patch.setattr(tablefiles, "ROWS", chunk)
        patch.setattr(Sliced, "seen", {})
        whole = MAKES[make](data.load(path, **wishes))
        partition = Partition("hash", whole.n, slots)

        def work(comm: Comm) -> tuple[Graph, list[Part]]:
            graph = MAKES[make](data.load(path, comm=comm, **wishes))
            if graph.slices is None:
                return graph, [graph.part(partition, comm.rank)]
            return graph, [shuffle.part(comm, graph, partition) for _ in range(2)]

        for slot, (graph, found) in enumerate(on_all(slots, work)):
            assert (graph.n, graph.edges, graph.read_as) == (whole.n, whole.edges, whole.read_as)
            assert (graph.slices is not None) == (slots > 1)
            assert all(same(part, whole.part(partition, slot)) for part in found)
            assert same(graph.part(partition, slot), found[0])  # as a replacement makes it


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("where", ["src", "dst"])
def test_damaged_arrays_are_told_by_all(tmp_path: Path, where: str, packed: bool,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a byte that is flipped in the slice of one slot, or in a packed array, and an id that is
    no vertex's are told by all slots; and a file that is no graph in the words for whole ones."""
    path, ids = tmp_path / "graph.npz", np.arange(1000)
    (np.savez_compressed if packed else np.savez)(path, src=ids, dst=ids)
    monkeypatch.setattr(arrayfiles, "CHUNK", 64)
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        info = file.getinfo(f"{where}.npy")
    raw[info.header_offset + 60 + info.compress_size // 2] ^= 8
    path.write_bytes(raw)
    found = on_all(3, lambda comm: data.load(path, comm=comm))
    assert all(str(each).startswith("graph.npz: cannot be read as .npz: ") for each in found), found
    (np.savez_compressed if packed else np.savez)(path, src=ids, dst=ids - 1, n=999)
    found = on_all(3, lambda comm: shuffle.part(comm, data.load(path, comm=comm),
                                                Partition("hash", 999, 3)))
    assert found == ["graph.npz: an edge has target -1; vertices are 0 to 998"] * 3
    np.savez(path, src=ids, dst=ids[1:])
    found = on_all(3, lambda comm: data.load(path, comm=comm))
    assert all("arrays of shapes (999,) and (1000,)" in str(each) for each in found), found


@pytest.mark.parametrize("form", ["ends", "csr", "parquet"])
def test_no_slot_reads_all_of_arrays(tmp_path: Path, form: str,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: of what is not packed, and of groups of rows that slots do not share."""
    if form in TABLES:
        pytest.importorskip("pyarrow")
    random, path = np.random.default_rng(3), tmp_path / "graph.dat"
    write(path, form, 50, random.integers(1, 50, (140, 2)), np.ones(140))
    read: list[int] = []
    edge_arrays = arrayslices.edge_arrays

    def counted(source: Any, *others: Any) -> Any:
        read.append(len(source))
        return edge_arrays(source, *others)

    monkeypatch.setattr(arrayfiles, "CHUNK", 20)
    monkeypatch.setattr(arrayslices, "edge_arrays", counted)
    monkeypatch.setattr(tablefiles, "edge_arrays", counted)
    on_all(4, lambda comm: shuffle.part(comm, data.load(path, comm=comm), Partition("hash", 50, 4)))
    m = len(scipy.sparse.load_npz(path).data) if form == "csr" else 140
    assert sum(read) == m and max(read) <= 20, read


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_checksums_are_joined(first: bytes, second: bytes) -> None:
    whole = arrayslices.joined(zlib.crc32(first), zlib.crc32(second), len(second))
    assert whole == zlib.crc32(first + second)


def test_arrays_that_one_slot_cannot_read_by_slices_are_read_whole(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: slots agree on whether a file has slices, and none waits for the others alone."""
    path, failing = tmp_path / "a.npz", iter([True])
    np.savez(path, src=np.arange(50), dst=np.arange(50)[::-1])
    usual = arrayslices._usual

    def once(*given: Any) -> Any:
        if next(failing, False):
            raise OSError("a stale file handle")
        return usual(*given)

    monkeypatch.setattr(arrayslices, "_usual", once)
    found = on_all(3, lambda comm: data.load(path, comm=comm))
    assert [graph.n for graph in found] == [50] * 3
    assert [graph.slices for graph in found] == [None] * 3
    assert all(graph.slices for graph in on_all(3, lambda comm: data.load(path, comm=comm)))


def test_a_wrong_line_is_told_by_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: with its number in the whole text, whichever slot has read it, and where n is given."""
    monkeypatch.setattr(files, "TEXT_BYTES", 64)
    path, lines = tmp_path / "edges.txt", [f"{v} {v + 1}" for v in range(100)]
    lines[70] = "7 x"
    path.write_text("\n".join(lines))
    words = "edges.txt: line 71: 'x' is no id of a vertex"
    found = on_all(3, lambda comm: data.load(path, comm=comm))
    assert all(str(each).startswith(words) for each in found), found
    found = on_all(3, lambda comm: shuffle.part(
        comm, data.load(path, n=101, comm=comm), Partition("hash", 101, 3)))
    assert all(str(each).startswith(words) for each in found), found
    lines[70] = "70 500"
    path.write_text("\n".join(lines))
    found = on_all(3, lambda comm: shuffle.part(
        comm, data.load(path, n=101, comm=comm), Partition("hash", 101, 3)))
    assert found == ["edges.txt: an edge has target 500; vertices are 0 to 100"] * 3
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n9 9 40\n" + "1 2\n" * 39)
    found = on_all(2, lambda comm: data.load(path, comm=comm))
    assert all("it has 39 entries, and its head says 40" in each for each in found), found


def test_no_slot_reads_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: each line is parsed once in all; when a slot loads the text again, not at all."""
    monkeypatch.setattr(files, "TEXT_BYTES", 64)
    path, parsed = tmp_path / "edges.txt", []
    path.write_text("".join(f"{v} {v + 1}\n" for v in range(200)))
    parse = textedges.edgekernels.parse

    def counted(text: bytes, *arguments: Any) -> Any:
        parsed.append(text.count(b"\n"))
        return parse(text, *arguments)

    monkeypatch.setattr(textedges.edgekernels, "parse", counted)

    def work(comm: Comm) -> Part:
        return shuffle.part(comm, data.load(path, comm=comm), Partition("hash", 201, 4))

    on_all(4, work)
    assert sum(parsed) == 200 and max(parsed) < 20
    on_all(4, lambda comm: data.load(path, comm=comm))
    assert sum(parsed) == 200
