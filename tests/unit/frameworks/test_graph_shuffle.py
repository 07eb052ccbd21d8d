"""Slots that read a graph together have the parts that each makes alone, bit by bit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftrma.frameworks.graph import files, shuffle, textedges
from ftrma.frameworks.graph.derived import bipartite, both, reverse, simple
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
        patch.setattr(textedges._Sliced, "seen", {})

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
