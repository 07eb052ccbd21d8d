"""Vertex programs under real kills: `ftrma.graph` by three programs and their oracles.

Law: whatever slots die, wherever and how often, by each recovery: the same bits as without failure,
nothing launched again.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from jobs import Result, run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes
from programs import final_memory, kinds
from scipy.sparse import csgraph

SCRIPT = Path(__file__).parent / "graphs.py"
SLOTS = 4
PROGRAMS = ("pagerank", "distance", "component")
RECOVERIES = ("hwcp", "lwcp", "hwlog", "lwlog")
SPARES = ("--spares", "3")


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def run(recovery: str, names: tuple[str, ...], *options: str) -> Result:
    return run_job(SCRIPT, SLOTS, *options, args=[recovery, *names])


def kill(*rules: str) -> list[str]:
    return [word for rule in rules for word in ("--kill", rule)]


@functools.cache
def reference() -> Result:
    result = run("lwlog", PROGRAMS)
    assert result.status == 0 and not kinds(result), result
    return result


def assert_same(result: Result, names: tuple[str, ...]) -> None:
    assert result.status == 0, result
    for slot, arrays in final_memory(result).items():
        assert len(arrays) == len(names)
        for name, array in arrays.items():
            expected = final_memory(reference())[slot][name]
            assert array.tobytes() == expected.tobytes(), (slot, name, result)


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
    for slot in range(SLOTS):
        assert (found[f"slot-{slot}"]["rank"] == found["whole-pagerank"][slot::SLOTS]).all()


PLACES = ("graph.load", "graph.recover", "graph.compute:8", "graph.emit:9", "graph.exchange:7",
          "graph.sync:13", "checkpoint:2", "stage:2", "staged:2", "graph.end")
CASES = [(place, slot, RECOVERIES[(i + j) % 4], PROGRAMS[(i + 2 * j) % 3])
         for i, place in enumerate(PLACES) for j, slot in enumerate((0, 3))]
MORE = [(place, slot, recovery, name) for place in PLACES for slot in (0, 3)
        for recovery in RECOVERIES for name in PROGRAMS]


def when(i: int) -> list[pytest.MarkDecorator]:
    if i >= len(CASES):
        return [pytest.mark.long]
    return [] if i in (4, 11, 14) else [pytest.mark.rest]


@pytest.mark.parametrize(("place", "slot", "recovery", "name"), [
    pytest.param(*case, marks=when(i))
    for i, case in enumerate([*CASES, *(case for case in MORE if case not in CASES)])])
def test_a_death(place: str, slot: int, recovery: str, name: str, repetition: int) -> None:
    result = run(recovery, (name,), *SPARES, *kill(f"{slot}@{place}"))
    assert_same(result, (name,))
    assert kinds(result) == ["reentry"] or (kinds(result) == [] and place == "graph.end"), result


@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("rules", [
    pytest.param(("1@graph.compute:12", "2@graph.recover:2"), marks=pytest.mark.rest),
    pytest.param(("1@graph.compute:13", "1@graph.compute:18"), marks=pytest.mark.rest),
    pytest.param(("0@graph.sync:9", "3@graph.compute:12", "0@graph.emit:24"),
                 marks=pytest.mark.long),
    pytest.param(("2@graph.exchange:14", "3@repair"), marks=pytest.mark.long),
], ids="-".join)
def test_deaths_upon_deaths(rules: tuple[str, ...], recovery: str, repetition: int) -> None:
    """Law: three levels of steps at once, and a replaced slot that dies again."""
    options = ("--spares", "4", "--checksums", "2", "--group-size", "4")
    result = run(recovery, ("pagerank",), *options, *kill(*rules))
    assert_same(result, ("pagerank",))
    assert set(kinds(result)) == {"reentry"}, result


@pytest.mark.parametrize("rule", [
    "1@graph.compute:25", pytest.param("2@graph.recover:2", marks=pytest.mark.rest),
    pytest.param("3@graph.sync:50", marks=pytest.mark.rest)])
def test_runs_that_have_ended_are_not_run_again(rule: str, repetition: int) -> None:
    """Law: by the entry that follows their results are there."""
    result = run("lwlog", PROGRAMS, *SPARES, *kill(rule))
    assert_same(result, PROGRAMS)
    assert kinds(result) == ["reentry"], result


@pytest.mark.parametrize("rule", [
    "3@graph.compute:12", pytest.param("a3@graph.compute:12", marks=pytest.mark.rest),
    pytest.param("0@graph.emit:7", marks=pytest.mark.rest)])
def test_over_nodes(rule: str, repetition: int) -> None:
    """Law: a framework does not know where a slot is."""
    result = run_on_nodes(SCRIPT, SLOTS, "--spares", "2", "--checksums", "2", "--group-size", "2",
                          *kill(rule), args=["lwlog", "pagerank"], in_turn=2)
    assert_same(result, ("pagerank",))
    assert kinds(result) == ["reentry"] * (rule[0] != "a"), result


@pytest.mark.rest
def test_a_relaunch_begins_with_the_checkpoint(repetition: int) -> None:
    """Law: where nothing is kept what is checkpointed is, by each recovery."""
    for recovery in RECOVERIES:
        result = run(recovery, ("pagerank",), "--spares", "0", *kill("2@graph.compute:13"))
        assert_same(result, ("pagerank",))
        assert [(r["kind"], r["version"]) for r in result.stats["recoveries"]] == [("relaunch", 2)]


def test_unprotected() -> None:
    """Law: under plain mpirun the same program has the same results."""
    result = run_plain(SCRIPT, SLOTS, args=["lwlog", *PROGRAMS])
    assert_same(result, PROGRAMS)


MISTAKES = """
import json, sys
import numpy as np
from ftrma import graph
from ftrma.graph import data
found = []
class Program(graph.VertexProgram):
    fields = {"a": float}
    def update(self, v, inbox, ctx): v.vote_to_halt()
    def emit(self, v, ctx): pass
def told(call):
    try:
        call()
    except (ValueError, AttributeError, RuntimeError) as error:
        found.append(f"{type(error).__name__}: {error}")
told(lambda: graph.Engine(recovery="causal"))
told(lambda: graph.Engine(partition="odd"))
told(lambda: graph.Engine(checkpoint=-1))
engine = graph.Engine()
path = data.path(9)
def of(**methods): return type("Program", (Program,), methods)()
def never(self, v, inbox, ctx): pass
def writes(self, v, ctx): v.a = 1
def sends(self, v, inbox, ctx): v.send(1)
def weighs(self, v, ctx): v.send(1, weight="plus")
def names(self, v, inbox, ctx): v.b = 1
def adds(self, v, ctx): ctx.contribute("x", 1)
for program in (of(update=never), of(emit=writes), of(update=sends), of(emit=weighs),
                of(update=names), of(emit=adds)):
    told(lambda: engine.run(path, program, most=3))
json.dump(found, open(f"{sys.argv[1]}/found.json", "w"))
"""


def test_mistakes_are_told() -> None:
    """Law: what cannot be done again, or is not there, is refused in words."""
    result = run_plain(MISTAKES, 1)
    assert result.status == 0, result
    assert result.results["found"] == [
        "ValueError: recovery 'causal': give one of hwcp, lwcp, hwlog, lwlog",
        "ValueError: partition 'odd': give \"hash\" or \"range\"",
        "ValueError: checkpoint -1: give steps between two, or 0 for none",
        "RuntimeError: the program has not ended after 3 steps",
        "RuntimeError: emit() writes field 'a': it may be done again, so all that changes is "
        "changed in update()",
        "RuntimeError: send() in update(): messages are sent in emit(), from the fields",
        "ValueError: send(weight='plus'): the graph has no weights",
        "AttributeError: vertices have no field 'b'; fields are a",
        "RuntimeError: contribute('x') in emit(), which may be done again: contribute in update()",
    ]
