"""Vertex programs under real kills: `ftrma.graph` by three programs and their oracles.

Law: whatever slots die, wherever and how often, by each recovery: the same bits as without failure,
nothing launched again.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from jobs import FTRMA, Result, run_command, run_job, run_plain
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
    if i == 11:
        return []
    return [pytest.mark.rest if i in (1, 8, 19) else pytest.mark.long]


@pytest.mark.parametrize(("place", "slot", "recovery", "name"), [
    pytest.param(*case, marks=when(i))
    for i, case in enumerate([*CASES, *(case for case in MORE if case not in CASES)])])
def test_a_death(place: str, slot: int, recovery: str, name: str, repetition: int) -> None:
    result = run(recovery, (name,), *SPARES, *kill(f"{slot}@{place}"))
    assert_same(result, (name,))
    assert kinds(result) == ["reentry"] or (kinds(result) == [] and place == "graph.end"), result


UPON = [(rules, recovery) for rules in (
    ("1@graph.compute:12", "2@graph.recover:2"), ("1@graph.compute:13", "1@graph.compute:18"),
    ("0@graph.sync:9", "3@graph.compute:12", "0@graph.emit:24"),
    ("2@graph.exchange:14", "3@repair"),
) for recovery in RECOVERIES[::-1]]


@pytest.mark.parametrize(("rules", "recovery"), [
    pytest.param(*case, marks=pytest.mark.long if i else pytest.mark.rest)
    for i, case in enumerate(UPON)])
def test_deaths_upon_deaths(rules: tuple[str, ...], recovery: str, repetition: int) -> None:
    """Law: three levels of steps at once, and a replaced slot that dies again."""
    options = ("--spares", "4", "--checksums", "2", "--group-size", "4")
    result = run(recovery, ("pagerank",), *options, *kill(*rules))
    assert_same(result, ("pagerank",))
    assert set(kinds(result)) == {"reentry"}, result


@pytest.mark.parametrize("rule", [
    pytest.param("1@graph.compute:25", marks=pytest.mark.rest),
    pytest.param("2@graph.recover:2", marks=pytest.mark.long),
    pytest.param("3@graph.sync:50", marks=pytest.mark.long)])
def test_runs_that_have_ended_are_not_run_again(rule: str, repetition: int) -> None:
    """Law: by the entry that follows their results are there."""
    result = run("lwlog", PROGRAMS, *SPARES, *kill(rule))
    assert_same(result, PROGRAMS)
    assert kinds(result) == ["reentry"], result


@pytest.mark.parametrize("rule", [
    pytest.param(rule, marks=pytest.mark.long)
    for rule in ("3@graph.compute:12", "a3@graph.compute:12", "0@graph.emit:7")])
def test_over_nodes(rule: str, repetition: int) -> None:
    """Law: a framework does not know where a slot is."""
    result = run_on_nodes(SCRIPT, SLOTS, "--spares", "2", "--checksums", "2", "--group-size", "2",
                          *kill(rule), args=["lwlog", "pagerank"], in_turn=2)
    assert_same(result, ("pagerank",))
    assert kinds(result) == ["reentry"] * (rule[0] != "a"), result


@pytest.mark.long
def test_a_relaunch_begins_with_the_checkpoint(repetition: int) -> None:
    """Law: where nothing is kept what is checkpointed is, by each recovery."""
    for recovery in RECOVERIES:
        result = run(recovery, ("pagerank",), "--spares", "0", *kill("2@graph.compute:13"))
        assert_same(result, ("pagerank",))
        assert [(r["kind"], r["version"]) for r in result.stats["recoveries"]] == [("relaunch", 2)]


@pytest.mark.rest
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
def votes(self, v, ctx): v.vote_to_halt()
def masks(self, v, ctx): v.send(1, where=np.ones(len(v), int))
def weighs(self, v, ctx): v.send(1, weight="plus")
def names(self, v, inbox, ctx): v.b = 1
def adds(self, v, ctx): ctx.contribute("x", 1)
for program in (of(update=never), of(emit=writes), of(update=sends), of(emit=weighs),
                of(update=names), of(emit=adds), of(emit=votes), of(emit=masks), of(fields={}),
                of(fields={"degree": int}), of(aggregates={"active": int}), of(message=complex),
                of(combine=np.subtract)):
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
        "NotEnded: the program has not ended after 3 steps",
        "RuntimeError: emit() writes field 'a': it may be done again, so all that changes is "
        "changed in update()",
        "RuntimeError: send() in update(): messages are sent in emit(), from the fields",
        "ValueError: send(weight='plus'): the graph has no weights",
        "AttributeError: vertices have no field 'b'; fields are a",
        "RuntimeError: contribute('x') in emit(), which may be done again: contribute in update()",
        "RuntimeError: vote_to_halt() in emit(), which may be done again: vote in update()",
        "ValueError: send: a mask of int64 and shape (9,); give bool, one for each of the block's "
        "9 vertices",
        "ValueError: Program: declare what a vertex has, such as fields = {\"rank\": float}",
        "ValueError: Program: 'degree' is a name that vertices or steps have already; choose "
        "another",
        "ValueError: Program: 'active' is a name that vertices or steps have already; choose "
        "another",
        "ValueError: Program: message has dtype complex128; give bool, integers or floats",
        "ValueError: Program: combine = <ufunc 'subtract'> has no neutral value; give a NumPy "
        "ufunc such as np.add or np.minimum",
    ]


LOOP = """
import sys
import numpy as np
import ftrma
from ftrma import graph
from ftrma.graph import data
class Hops(graph.VertexProgram):
    fields = {"hops": np.int64}
    message, combine = np.int64, np.minimum
    def __init__(self, first): self.first = first
    def update(self, v, inbox, ctx):
        if ctx.step == 1:
            v.hops = np.where(v.ids == self.first, 0, 99)
        v.hops = np.minimum(v.hops, inbox.values)
        v.vote_to_halt()
    def emit(self, v, ctx):
        v.send(v.hops + 1, where=v.hops == ctx.step - 1)
ring = data.of_edges(12, np.arange(12), (np.arange(12) + 1) % 12)
state = ftrma.protect("loop", i=0, sums=np.zeros(5, "i8"))
while state.i < 5:
    engine = graph.Engine(recovery=["lwlog", "hwcp"][state.i % 2], checkpoint=3)
    hops = engine.run(ring, Hops(2 * state.i))["hops"]
    state.sums[state.i] = (hops * np.arange(1, len(hops) + 1) ** 2).sum()
    state.i += 1
    if sys.argv[2] == "between":
        ftrma.safepoint()
comm = engine.comm
np.save(f"{sys.argv[1]}/sums-{comm.rank}.npy", state.sums)
"""


@pytest.mark.parametrize("words", ["within", pytest.param("between", marks=pytest.mark.long)])
@pytest.mark.parametrize("visit", [30, pytest.param(45, marks=pytest.mark.long),
                                   pytest.param(9, marks=pytest.mark.long)])
def test_runs_in_a_loop_of_the_program(words: str, visit: int, repetition: int) -> None:
    """Law: an attempt that goes on in the middle, by state that was declared, goes on with the run
    that was made then, whichever engine makes it."""
    results = [run_job(LOOP, 2, "--interval", "0", *kill_rules, args=[words])
               for kill_rules in ((), kill(f"1@graph.compute:{visit}"))]
    for result in results:
        assert result.status == 0, result
    assert kinds(results[1]) == ["reentry"], results[1]
    for undisturbed, found in zip(*(result.of_slots("sums", 2) for result in results), strict=True):
        assert found.tolist() == undisturbed.tolist() and len(set(found.tolist())) == 5


CAUGHT = """
import sys
import numpy as np
import ftrma
from ftrma import graph
sys.path.insert(0, sys.argv[2])
from graphs import Distance, weighted
engine, told = graph.Engine(checkpoint=4), 0
state = ftrma.protect("loop", i=0, told=0)
while state.i < 3:
    try:
        found = engine.run(weighted(), Distance(), most=6 if state.i == 0 else 1000)["distance"]
    except RuntimeError:
        state.told += 1
    state.i += 1
    ftrma.safepoint()
np.savez(f"{sys.argv[1]}/slot-{engine.comm.rank}.npz", found=found, told=state.told)
"""


@pytest.mark.long
@pytest.mark.parametrize("visit", [3, 9, 25, 40])
def test_a_run_that_has_not_ended_is_one_of_the_others(visit: int, repetition: int) -> None:
    """Law: a program that goes on behind it goes on so after a failure, too."""
    arguments = [str(SCRIPT.parent)]
    result = run_job(CAUGHT, 2, "--interval", "0", *kill(f"1@graph.compute:{visit}"),
                     args=arguments)
    undisturbed = run_job(CAUGHT, 2, "--interval", "0", args=arguments)
    assert result.status == undisturbed.status == 0, result
    assert kinds(result) == ["reentry"] and not kinds(undisturbed), result
    for a, b in zip(result.of_slots("slot", 2), undisturbed.of_slots("slot", 2), strict=True):
        assert a["told"] == b["told"] == 1 and a["found"].tobytes() == b["found"].tobytes()


OTHER = """
import sys
import numpy as np
from ftrma import framework, graph
from ftrma.graph import data
sys.path.insert(0, sys.argv[2])
from graphs import Component, Distance, sparse, weighted
engine = graph.Engine(checkpoint=2)
if framework.attempt() == 1:
    engine.run(weighted(), Distance())
else:
    engine.run(sparse(), Component())
"""


def test_another_run_than_before_is_refused() -> None:
    """Law: a program that makes other runs when it is entered again is told, not answered."""
    result = run_job(OTHER, 2, "--kill", "1@graph.compute:9", args=[str(SCRIPT.parent)])
    assert result.status == 1, result
    assert "run 1 of the job was of another program, graph, partition or recovery" in result.stderr


def command(*words: str) -> Result:
    return run_command([FTRMA, "graph", *words])


@pytest.mark.rest
def test_the_command_line(tmp_path: Path) -> None:
    """Law: it does what the program does, of a file or a graph that is made, and a kill changes no
    bit; a mistake is one line, before anything starts where that can be known."""
    matrix = scipy.sparse.random(50, 50, 0.04, format="csr", random_state=2)
    scipy.sparse.save_npz(tmp_path / "graph.npz", matrix)
    where, out = str(tmp_path / "graph.npz"), tmp_path / "out.npy"
    expected = {"sssp": csgraph.dijkstra(matrix, indices=3),
                "bfs": csgraph.dijkstra(matrix, indices=3, unweighted=True)}
    for program, distances in expected.items():
        result = command(program, where, "-n", "2", "--source", "3", "--out", str(out))
        assert result.status == 0, result
        assert np.allclose(np.load(out), distances, rtol=1e-12)
        assert json.loads(result.stdout)["vertices"] == 50
    ranks = []
    for rules in ([], ["--kill", "0@graph.emit:6", "--recovery", "lwcp", "--checkpoint", "2"]):
        result = command("pagerank", "rmat:7", "-n", "3", "--steps", "9", "--out", str(out), *rules)
        assert result.status == 0 and ("graph recovers" in result.stderr) == bool(rules), result
        ranks.append(np.load(out))
    assert ranks[0].tobytes() == ranks[1].tobytes() and abs(ranks[0].sum() - 1) < 1e-12
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph.npz", "out.npy"]
    for words, told in (
        (("cc", str(tmp_path / "none.npz"), "-n", "2"), "No such file or directory; give an .npz"),
        (("bfs", "rmat:x", "-n", "2"), "rmat:x: expected rmat:SCALE, such as rmat:16"),
        (("bfs", where, "-n", "2", "--source", "50"), "--source 50: vertices are 0 to 49"),
        (("bfs", where, "-n", "2", "--source", "-1"), "--source -1: expected a whole number"),
        (("bfs", where), "-n"), (("hops", where, "-n", "2"), "invalid choice: 'hops'"),
    ):
        result = command(*words)
        assert result.status == 2 and told in result.stderr, result
        lines = [line for line in result.stderr.splitlines() if not line.startswith("usage:")]
        assert len(lines) == 1, result
