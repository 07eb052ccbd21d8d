"""Vertex programs under real kills: `ftrma.graph` by eight programs and their oracles.

Law: whatever slots die, wherever and how often, by each recovery: the same bits as without failure,
nothing launched again.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from jobs import FTRMA, Result, run_command, run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes
from programs import final_memory, kinds
from scipy.sparse import csgraph
from tiers import tiers
from tree import APPS

SCRIPT = Path(__file__).parent / "graphs.py"
SLOTS = 4
PROGRAMS = ("pagerank", "distance", "component")
FULL = ("sv", "triangles", "matching", "kcore", "doubling")  # masks, lists, changes of edges
# Programs in bench/apps/analytics.py.
ANALYTICS = ("lists", "walks", "hits", "labels", "mis", "betweenness", "forest",
             "paths")
RECOVERIES = ("hwcp", "lwcp", "hwlog", "lwlog")
SPARES = ("--spares", "3")
STRONG = ("--checksums", "2", "--group-size", "4")


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
    result = run("lwlog", PROGRAMS + FULL + ANALYTICS)
    assert result.status == 0 and not kinds(result), result
    return result


def assert_same(result: Result, names: tuple[str, ...]) -> None:
    assert result.status == 0, result
    for slot, arrays in final_memory(result).items():
        assert sorted(arrays) == sorted(names)
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


@pytest.mark.full
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
    partition = module.data.Partition("hash", len(rank), SLOTS)
    for slot in range(SLOTS):
        mine = found["whole-pagerank"][partition.ids(slot)]
        assert (found[f"slot-{slot}"]["pagerank"] == mine).all()


def undirected(graph: Any) -> scipy.sparse.csr_matrix:
    """Adjacency: 1 between two that have an edge, nothing from a vertex to itself."""
    found = matrix(graph, counted=True)
    found.setdiag(0)
    found.eliminate_zeros()
    found.data[:] = 1
    return found


def test_oracles_of_full_programs() -> None:
    """Law: pointer jumping has the components; triangles are the trace's sixth; a matching that
    takes each edge's ends or one of them, half of a maximum at least; a core is what peeling
    leaves; edges are there to those 1, 2, 4 ... further on."""
    module, found = graphs(), reference().results
    assert (found["whole-sv"] == found["whole-component"]).all()
    edges = undirected(module.dense())
    assert found["whole-triangles"].sum() == (edges @ edges).multiply(edges).sum() / 6 > 100
    edges, partner = undirected(module.bipartite()).tocoo(), found["whole-matching"]
    taken = np.flatnonzero(partner >= 0)
    assert (partner[partner[taken]] == taken).all()
    assert ((partner[edges.row] >= 0) | (partner[edges.col] >= 0)).all()
    assert {*zip(taken, partner[taken], strict=True)} <= {*zip(edges.row, edges.col, strict=True)}
    most = csgraph.maximum_bipartite_matching(edges.tocsr()[:200, 200:])
    assert len(taken) / 2 >= (most >= 0).sum() / 2
    edges = undirected(module.simple())
    core = np.ones(edges.shape[0], bool)
    for _ in range(len(core)):
        core &= np.asarray(edges[:, core].sum(axis=1)).ravel() >= 2
    assert (found["whole-kcore"] == core).all() and 100 < core.sum() < len(core)
    ids = np.arange(500)
    expected = np.full(500, -1)
    for step in 1 << np.arange(9):
        expected[step:] = ids[: 500 - step]
    assert (found["whole-doubling"] == expected).all()


@pytest.mark.full
def test_oracles_of_analytics() -> None:
    """Law: lists of neighbours have the triangles of each vertex; weighted walks with restarts end
    within their tolerance of the linear system's ranks; hubs are those of the power iteration,
    labels those that a loop counts; a set is independent and maximal; betweenness is what paths
    that are counted pair by pair have; a forest weighs what scipy's does; the edge to each
    vertex of a shortest path makes up its distance."""
    module, found = graphs(), reference().results
    edges = undirected(module.data.simple(module.data.rmat(8, degree=6, seed=module.SEED)))
    triangles = (edges @ edges).multiply(edges).sum(axis=1).A1 / 2
    assert (found["whole-lists"] == triangles).all() and triangles.max() > 100
    (source, target, weight), = module.weighted().chunks()
    edges = scipy.sparse.coo_matrix((weight, (source, target))).tocsr()
    share = scipy.sparse.diags(1 / edges.sum(axis=1).A1) @ edges
    restart = np.isin(np.arange(600), [3, 17, 400]) / 3
    rank = scipy.sparse.linalg.spsolve((scipy.sparse.identity(600) - 0.7 * share.T).tocsc(),
                                       0.3 * restart)
    assert abs(found["whole-walks"] - rank).sum() <= 1e-4 * 0.7 / 0.3, found["whole-walks"]
    edges = matrix(module.data.rmat(8, degree=6, seed=module.SEED), counted=True)
    left, hub = edges @ edges.T, np.ones(256)
    for _ in range(100):
        hub = left @ hub / (left @ hub).sum()
    assert abs(found["whole-hits"] - hub).sum() < 1e-5
    edges, inside = undirected(module.simple()), found["whole-mis"]
    assert not edges[inside][:, inside].nnz and (edges @ inside + inside > 0).all()
    assert (found["whole-labels"] == communities(matrix(module.dense(), counted=True), 12)).all()
    edges = matrix(module.data.rmat(7, degree=2, seed=module.SEED), counted=True)
    assert np.allclose(found["whole-betweenness"][:128], 128 / 3 * shares(edges, range(3)),
                       rtol=1e-12)
    parent, edges = found["whole-paths"], matrix(module.weighted(), counted=False)
    distance, to = csgraph.dijkstra(edges, indices=0), np.arange(1, 600)
    assert parent[0] == -1
    assert (distance[parent[1:]] + edges[parent[1:], to].A1 == distance[1:]).all()
    edges = matrix(module.data.symmetric(module.weighted()), counted=False)
    assert found["whole-forest"].sum() == csgraph.minimum_spanning_tree(edges).sum()


def communities(edges: scipy.sparse.csr_matrix, rounds: int) -> Any:
    """Labels after some rounds in which each takes its neighbours' commonest, the least of those.
    """
    label = np.arange(edges.shape[0])
    for _ in range(rounds):
        told = scipy.sparse.coo_matrix(edges)
        votes = scipy.sparse.coo_matrix((told.data, (told.row, label[told.col])),
                                        edges.shape).toarray()
        label = np.where(votes.any(axis=1), votes.argmax(axis=1), label)
    return label


def shares(edges: scipy.sparse.csr_matrix, sources: Any) -> Any:
    """Betweenness by paths that are counted pair by pair, from some sources."""
    steps = csgraph.dijkstra(edges, unweighted=True)
    found = np.zeros(edges.shape[0])
    paths = np.zeros((len(found), len(found)))  # between any two
    np.fill_diagonal(paths, 1)
    for level in range(1, int(steps[np.isfinite(steps)].max()) + 1):
        paths = np.where(steps == level, np.where(steps == level - 1, paths, 0) @ edges, paths)
    for s in sources:
        total = paths[s].copy()
        total[[s]] = 0
        for v in np.flatnonzero(np.isfinite(steps[s])):
            if v != s:
                over = (steps[s] == steps[s, v] + steps[v]) & (total > 0)
                over[v] = False
                found[v] += (paths[s, v] * paths[v, over] / total[over]).sum()
    return found



PLACES = ("graph.load", "graph.recover", "graph.compute:8", "graph.emit:9", "graph.exchange:7",
          "graph.sync:13", "checkpoint:2", "stage:2", "staged:2", "graph.end")
SOON = ("graph.load", "graph.recover", "graph.compute:6", "graph.emit:7", "graph.exchange:8",
        "graph.sync:11", "checkpoint:2", "stage:2", "staged:2", "graph.end")


@pytest.mark.parametrize(("place", "slot", "recovery", "name"), tiers(
    [(place, slot, recovery, name) for name in FULL for place in SOON for slot in (0, 3)
     for recovery in RECOVERIES],
    full=["graph.emit:7-3-lwlog-sv"]))
def test_a_death_in_a_full_program(place: str, slot: int, recovery: str, name: str) -> None:
    """Law: masked steps, lists and changes of edges come back in all bits."""
    result = run(recovery, (name,), *SPARES, *kill(f"{slot}@{place}"))
    assert_same(result, (name,))
    assert kinds(result) == ["reentry"] or (kinds(result) == [] and place == "graph.end"), result


@pytest.mark.parametrize(("place", "slot", "recovery", "name"), tiers(
    itertools.product(PLACES, (0, 3), RECOVERIES, PROGRAMS),
    full=["graph.sync:13-3-hwlog-distance"]))
def test_a_death(place: str, slot: int, recovery: str, name: str) -> None:
    result = run(recovery, (name,), *SPARES, *kill(f"{slot}@{place}"))
    assert_same(result, (name,))
    assert kinds(result) == ["reentry"] or (kinds(result) == [] and place == "graph.end"), result


@pytest.mark.parametrize(("rules", "recovery"), tiers(
    [pytest.param(rules, recovery, id=f"{rules}-{recovery}") for recovery in RECOVERIES
     for rules in ("2@graph.compute:4 0@graph.emit:11", "1@graph.exchange:6 3@graph.sync:15")],
    full=["2@graph.compute:4 0@graph.emit:11-lwlog"]))
def test_deaths_in_analytics(rules: str, recovery: str) -> None:
    """Law: each program of `bench/apps/analytics.py` comes back in all bits."""
    result = run(recovery, ANALYTICS, *SPARES, *kill(*rules.split()))
    assert_same(result, ANALYTICS)
    assert set(kinds(result)) == {"reentry"}, result


UPON = [("1@graph.compute:12", "2@graph.recover:2"), ("1@graph.compute:13", "1@graph.compute:18"),
        ("0@graph.sync:9", "3@graph.compute:12", "0@graph.emit:24"),
        ("2@graph.exchange:14", "3@repair")]


@pytest.mark.parametrize(("rules", "recovery"), tiers(
    [pytest.param(rules, recovery, id=f"{'-'.join(rules)}-{recovery}")
     for rules in UPON for recovery in RECOVERIES],
    full=["1@graph.compute:12-2@graph.recover:2-lwlog"]))
def test_deaths_upon_deaths(rules: tuple[str, ...], recovery: str) -> None:
    """Law: three levels of steps at once, and a replaced slot that dies again."""
    options = ("--spares", "4", *STRONG)
    result = run(recovery, ("pagerank",), *options, *kill(*rules))
    assert_same(result, ("pagerank",))
    assert set(kinds(result)) == {"reentry"}, result


ROLES = [  # rules, options, kinds of what follows
    *((rule, (), ()) for rule in ("c0@sum:2", "c0@commit:2", "c0@fold:2", "c0@folded:2")),
    *((f"c0@{place}:2 1@graph.compute:13", STRONG, ("reentry",))
      for place in ("sum", "commit", "fold", "folded")),
    ("s0@time:0.05 1@graph.compute:12", (), ("reentry",)),
    ("0@graph.compute:12 2@graph.compute:12", ("--group-size", "2"), ("reentry",)),
    ("0@graph.emit:13 1@graph.emit:13", STRONG, ("reentry",)),
]


@pytest.mark.parametrize(("rules", "options", "expected", "recovery"), tiers(
    [pytest.param(*role, recovery, id=f"{role[0]}-{recovery}")
     for role in ROLES for recovery in RECOVERIES],
    full=["c0@commit:2 1@graph.compute:13-lwlog"]))
def test_other_roles(rules: str, options: tuple[str, ...], expected: tuple[str, ...],
                     recovery: str) -> None:
    """Law: whoever has the parity may die, a spare, and as many of each group as it stands."""
    result = run(recovery, ("pagerank",), *SPARES, *options, *kill(*rules.split()))
    assert_same(result, ("pagerank",))
    assert set(kinds(result)) == {*expected}, result


@pytest.mark.parametrize("recovery", tiers(RECOVERIES, full=["lwlog"]))
def test_more_than_a_group_stands(recovery: str) -> None:
    """Law: what cannot be had is told, and answered by nobody."""
    result = run(recovery, ("pagerank",), *SPARES,
                 *kill("1@graph.compute:12", "2@graph.compute:12"))
    assert result.status == 70 and "group 0 lost slot 1 and slot 2 at once" in result.stderr, result


@pytest.mark.parametrize(("place", "recovery"), [
    pytest.param(place, recovery, marks=pytest.mark.full if
                 (place, recovery) == ("graph.compute:12", "lwlog") else pytest.mark.nightly)
    for place in ("graph.load", "graph.compute:3", "graph.compute:12", "staged", "graph.end")
    for recovery in RECOVERIES])
def test_the_graph_from_parity(place: str, recovery: str) -> None:
    """Law: a slot's part of the graph comes out of a checkpoint, too."""
    result = run_job(SCRIPT, SLOTS, *SPARES, *kill(f"2@{place}"),
                     args=[recovery, "parity", "pagerank", "kcore"])
    assert_same(result, ("pagerank", "kcore"))
    assert set(kinds(result)) == {"reentry"}, result


ONCE = """
import sys
import numpy as np
from ftrma import framework, graph
from ftrma.graph import data
sys.path.insert(0, sys.argv[2])
from graphs import PageRank, SCALE, SEED
made = data.rmat(SCALE, seed=SEED)
def chunks():
    if framework.attempt() > 1:
        raise RuntimeError("made again")
    return made.chunks()
engine = graph.Engine(cache=sys.argv[3], partition="edges")
result = engine.run(graph.Graph(made.n, chunks, "once", key="once"), PageRank())
ranks = result.gather("rank")
if engine.comm.rank == 0:
    np.save(f"{sys.argv[1]}/whole.npy", ranks)
"""


@pytest.mark.full
def test_the_graph_from_files(tmp_path: Path) -> None:
    """Law: a replaced slot has its part from the cache, and does not make it."""
    result = run_job(ONCE, SLOTS, *SPARES, *kill("2@graph.compute:12"),
                     args=[str(SCRIPT.parent), str(tmp_path / "cache")])
    assert result.status == 0 and kinds(result) == ["reentry"], result
    assert len(list((tmp_path / "cache").iterdir())) == SLOTS
    assert np.allclose(result.results["whole"], reference().results["whole-pagerank"], rtol=1e-12)


DECLARED = [("1@graph.compute:40", ()), ("2@graph.load", ()), ("0@graph.exchange:3", ()),
            ("3@graph.sync:12", ()), ("0@graph.end:1", ()), ("1@graph.end:2", ()),
            ("0@checkpoint:2", ()), ("3@stage:3", ()), ("0@staged:2", ()), ("c0@fold:2", ()),
            ("1@graph.compute:9 2@graph.emit:24", ()), ("1@graph.emit:14 1@graph.sync:30", ()),
            ("0@graph.emit:13 3@graph.emit:13", STRONG), ("2@graph.load:2", ())]


@pytest.mark.parametrize(("rules", "options", "recovery"), tiers(
    [pytest.param(*case, recovery, id=f"{case[0]}-{recovery}")
     for case in DECLARED for recovery in ("causal", "rollback")],
    full=["1@graph.compute:40-causal", "3@graph.sync:12-rollback"]))
def test_recovered_as_any_program(rules: str, options: tuple[str, ...], recovery: str) -> None:
    """Law: by causal one slot is replayed while the others go on, by rollback all go back, in the
    first run and behind one that has ended. All go back when two die at once, and for one that
    begins a run when there is a checkpoint already; nobody for one that has not begun any."""
    names = ("pagerank", "component")
    result = run(recovery, names, *SPARES, *options, *kill(*rules.split()))
    assert_same(result, names)
    late = recovery == "rollback" and rules != "2@graph.load"  # it has no lanes before
    back = options or rules == "2@graph.load:2" or late
    deaths = 1 if options else len([rule for rule in rules.split() if rule[0] != "c"])
    assert kinds(result) == ["rollback" if back else "causal"] * deaths, result


@pytest.mark.parametrize(("recovery", "name", "rule"), tiers(
    itertools.product(("causal", "rollback"), FULL,
                      ("1@graph.compute:6", "2@graph.emit:4", "0@graph.sync:7")),
    full=["causal-triangles-1@graph.compute:6", "rollback-matching-2@graph.emit:4"]))
def test_full_programs_as_any_program(recovery: str, name: str, rule: str) -> None:
    """Law: with masked steps, lists and changes of edges, too."""
    result = run(recovery, (name,), *SPARES, *kill(rule))
    assert_same(result, (name,))
    assert kinds(result) == [recovery], result


@pytest.mark.parametrize("recovery", tiers(["causal", "rollback"], full=["rollback"]))
def test_over_nodes_as_any_program(recovery: str) -> None:
    """Law: over several nodes, too."""
    result = run_on_nodes(SCRIPT, SLOTS, "--spares", "2", "--checksums", "2", "--group-size", "2",
                          *kill("3@graph.compute:12"), args=[recovery, "pagerank"], in_turn=2)
    assert_same(result, ("pagerank",))
    assert kinds(result) == [recovery], result


BEHIND = """
import sys
import numpy as np
import ftrma
from ftrma import MPI, graph
from ftrma.graph import data
sys.path.insert(0, sys.argv[3])
from graphs import Component, sparse
engine = graph.Engine(recovery=sys.argv[2], checkpoint=4)
found = engine.run(sparse(), Component())["least"]
comm = MPI.COMM_WORLD
window = MPI.Win.Allocate(8 * 16, 8, comm=comm)
memory = np.frombuffer(window.tomemory())
memory[:] = 0
state = ftrma.protect("main", step=0)
while state.step < 12:
    ftrma.safepoint()
    window.Fence()
    window.Put(np.array([found[state.step] + comm.rank + 1.0]), (comm.rank + 1) % comm.size,
               state.step)
    window.Fence()
    state.step += 1
np.savez(f"{sys.argv[1]}/slot-{comm.rank}.npz", memory=memory, found=found)
"""


@pytest.mark.parametrize(("recovery", "visit"), [
    pytest.param(recovery, visit, marks=pytest.mark.full if
                 (recovery, visit) == ("lwlog", 9) else pytest.mark.nightly)
    for recovery in ("lwlog", "causal", "rollback") for visit in (1, 9, 17)])
def test_windows_behind_a_run(recovery: str, visit: int) -> None:
    """Law: the program's own windows, made when a run has ended, come back."""
    arguments = [recovery, str(SCRIPT.parent)]
    results = [run_job(BEHIND, 3, "--interval", "0", *rules, args=arguments)
               for rules in ((), kill(f"1@fence:{visit}"))]
    for result in results:
        assert result.status == 0, result
    assert len(kinds(results[1])) == 1, results[1]
    for a, b in zip(*(result.of_slots("slot", 3) for result in results), strict=True):
        assert a["memory"].tobytes() == b["memory"].tobytes() and a["memory"][:12].all()
        assert a["found"].tobytes() == b["found"].tobytes()


@pytest.mark.parametrize("rule", [
    pytest.param("1@graph.compute:25", marks=pytest.mark.full),
    pytest.param("2@graph.recover:2", marks=pytest.mark.nightly),
    pytest.param("3@graph.sync:50", marks=pytest.mark.nightly)])
def test_runs_that_have_ended_are_not_run_again(rule: str) -> None:
    """Law: by the entry that follows their results are there."""
    result = run("lwlog", PROGRAMS, *SPARES, *kill(rule))
    assert_same(result, PROGRAMS)
    assert kinds(result) == ["reentry"], result


@pytest.mark.parametrize("rule", tiers(
    ["3@graph.compute:12", "a3@graph.compute:12", "0@graph.emit:7"], full=["3@graph.compute:12"]))
def test_over_nodes(rule: str) -> None:
    """Law: a framework does not know where a slot is."""
    result = run_on_nodes(SCRIPT, SLOTS, "--spares", "2", "--checksums", "2", "--group-size", "2",
                          *kill(rule), args=["lwlog", "pagerank"], in_turn=2)
    assert_same(result, ("pagerank",))
    assert kinds(result) == ["reentry"] * (rule[0] != "a"), result


@pytest.mark.parametrize("name", tiers(FULL, full=["kcore"]))
def test_full_programs_over_nodes(name: str) -> None:
    """Law: nor where records go to."""
    result = run_on_nodes(SCRIPT, SLOTS, "--spares", "2", "--checksums", "2", "--group-size", "2",
                          *kill("3@graph.compute:7"), args=["lwlog", name], in_turn=2)
    assert_same(result, (name,))
    assert kinds(result) == ["reentry"], result


@pytest.mark.nightly
def test_a_relaunch_begins_with_the_checkpoint() -> None:
    """Law: where nothing is kept what is checkpointed is, by each recovery."""
    for recovery in RECOVERIES:
        result = run(recovery, ("pagerank",), "--spares", "0", *kill("2@graph.compute:13"))
        assert_same(result, ("pagerank",))
        assert [(r["kind"], r["version"]) for r in result.stats["recoveries"]] == [("relaunch", 2)]


@pytest.mark.full
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
told(lambda: graph.Engine(recovery="later"))
told(lambda: graph.Engine(recovery="causal", topology="parity"))
told(lambda: graph.Engine(recovery="rollback", checkpoint=2.5))
told(lambda: graph.Engine(topology="files"))
told(lambda: graph.Engine(partition="odd"))
told(lambda: graph.Engine(checkpoint=-1))
engine = graph.Engine()
told(lambda: graph.Engine(recovery="causal"))
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
def drops(self, v, inbox, ctx): v.drop_edges(np.ones(3, bool))
def comes(self, v, inbox, ctx): v.add_edges([9], [0])
def leaves(self, v, inbox, ctx): v.add_edges([0], [9])
def writes_to(self, v, ctx): v.send_to([0, -1], 1)
class Nothing(graph.VertexProgram): fields = {"a": float}
for program in (of(update=never), of(emit=writes), of(update=sends), of(emit=weighs),
                of(update=names), of(emit=adds), of(emit=votes), of(emit=masks), of(fields={}),
                of(fields={"degree": int}), of(aggregates={"active": int}), of(message=complex),
                of(combine=np.subtract), of(update=drops), of(update=comes), of(update=leaves),
                of(emit=writes_to), graph.VertexProgram.__new__(Nothing)):
    told(lambda: engine.run(path, program, most=3))
json.dump(found, open(f"{sys.argv[1]}/found.json", "w"))
"""


def test_mistakes_are_told() -> None:
    """Law: what cannot be done again, or is not there, is refused in words."""
    result = run_plain(MISTAKES, 1)
    assert result.status == 0, result
    assert result.results["found"] == [
        "ValueError: recovery 'later': give one of hwcp, lwcp, hwlog, lwlog, none, causal, "
        "rollback, phoenix, cr",
        "ValueError: topology 'parity' with recovery 'causal', which saves no graph; give "
        "\"loader\", or \"files\" and a cache",
        "ValueError: checkpoint 2.5 with recovery 'rollback': give steps between two, \"daly\" or "
        "\"never\"; seconds are for ftrma run's --interval",
        "ValueError: topology 'files': give a directory too, as cache",
        "ValueError: partition 'odd': give 'hash', 'range', 'edges'",
        "ValueError: checkpoint -1: give steps between two (a whole number), seconds (with a "
        "point), \"daly\" or \"never\"",
        "ValueError: recovery 'causal' beside an engine of another kind: those of a program have "
        "causal or rollback all, or none",
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
        "ufunc such as np.add or np.minimum, or None",
        "ValueError: drop_edges: a mask of bool and shape (3,); give bool, one for each of the "
        "block's 8 edges",
        "ValueError: add_edges: places 9 to 9 in a block of 9 vertices",
        "ValueError: add_edges: vertex 9; vertices are 0 to 8",
        "ValueError: send_to: vertex -1; vertices are 0 to 8",
        "ValueError: Nothing: define update and emit, or compute",
    ]


DIFFERING = """
from ftrma import graph, MPI
from ftrma.graph import data
class Program(graph.VertexProgram):
    fields = {"a": float}
    def update(self, v, inbox, ctx): pass
    def emit(self, v, ctx): pass
    def compute(self, v, inbox, ctx): pass
    def masked(self, ctx): return ctx.step == 3 and MPI.COMM_WORLD.rank == 1
graph.Engine().run(data.path(9), Program())
"""


@pytest.mark.full
def test_a_mask_that_differs_is_told() -> None:
    """Law: it ends the job in words, on all slots, and nobody waits for somebody."""
    result = run_job(DIFFERING, 2)
    assert result.status == 1, result
    assert ("step 3 is masked on 1 of 2 slots: masked() may depend on the step and the aggregates "
            "alone") in result.stderr


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


@pytest.mark.full
@pytest.mark.parametrize("words", ["within", pytest.param("between", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("visit", [30, pytest.param(45, marks=pytest.mark.nightly),
                                   pytest.param(9, marks=pytest.mark.nightly)])
def test_runs_in_a_loop_of_the_program(words: str, visit: int) -> None:
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


@pytest.mark.parametrize("visit", tiers([3, 9, 25, 40], full=["9"]))
def test_a_run_that_has_not_ended_is_one_of_the_others(visit: int) -> None:
    """Law: a program that goes on behind it goes on so after a failure, too."""
    arguments = [str(SCRIPT.parent)]
    result = run_job(CAUGHT, 2, "--interval", "0", *kill(f"1@graph.compute:{visit}"),
                     args=arguments)
    undisturbed = run_job(CAUGHT, 2, "--interval", "0", args=arguments)
    assert result.status == undisturbed.status == 0, result
    assert kinds(result) == ["reentry"] and not kinds(undisturbed), result
    for a, b in zip(result.of_slots("slot", 2), undisturbed.of_slots("slot", 2), strict=True):
        assert a["told"] == b["told"] == 1 and a["found"].tobytes() == b["found"].tobytes()


DUE = """
import sys, time
import numpy as np
from ftrma import graph
from ftrma.graph import data
sys.path.insert(0, sys.argv[3])
from graphs import PageRank, SCALE, SEED
class Slow(PageRank):
    def update(self, v, inbox, ctx):
        time.sleep(0.02)
        super().update(v, inbox, ctx)
options = {"logs": {"checkpoint": "never", "log_bytes": 20_000}, "seconds": {"checkpoint": 0.08},
           "daly": {"checkpoint": "daly"}, "never": {"checkpoint": "never"}}[sys.argv[2]]
engine = graph.Engine(partition="edges", **options)
result = engine.run(data.rmat(SCALE, seed=SEED), Slow())
saved = [report.step for report in result.reports if report.saving_s]
ranks = result.gather("rank")
if engine.comm.rank == 0:
    np.savez(f"{sys.argv[1]}/found.npz", rank=ranks, saved=saved)
"""


@pytest.mark.parametrize(("words", "options", "least", "most"), [
    pytest.param("logs", (), 3, 9, marks=pytest.mark.full),
    pytest.param("seconds", (), 2, 6, marks=pytest.mark.nightly),
    pytest.param("daly", ("--interval", "0.08"), 2, 6, marks=pytest.mark.nightly),
    pytest.param("never", ("--interval", "0.01"), 0, 0, marks=pytest.mark.nightly)])
def test_when_checkpoints_are_due(words: str, options: tuple[str, ...], least: int,
                                  most: int) -> None:
    """Law: by logs that grow, by seconds, by the job's interval, or never; after a death the ranks
    are the same, whatever the partition."""
    result = run_job(DUE, 3, *SPARES, *options, *kill("1@graph.compute:12"),
                     args=[words, str(SCRIPT.parent)])
    assert result.status == 0 and kinds(result) == ["reentry"], result
    found = result.results["found"]
    assert least <= len(found["saved"]) <= most, found["saved"]
    assert np.allclose(found["rank"], reference().results["whole-pagerank"], rtol=1e-12)


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


@pytest.mark.full
def test_another_run_than_before_is_refused() -> None:
    """Law: a program that makes other runs when it is entered again is told, not answered."""
    result = run_job(OTHER, 2, "--kill", "1@graph.compute:9", args=[str(SCRIPT.parent)])
    assert result.status == 1, result
    assert "run 1 of the job was of another program, graph, partition or recovery" in result.stderr


def command(*words: str) -> Result:
    return run_command([FTRMA, "graph", *words])


@pytest.mark.full
def test_the_command_line(tmp_path: Path) -> None:
    """Law: it does what the program does, of a file or a graph that is made, and a kill changes no
    bit; a mistake is one line, before anything starts where that can be known."""
    matrix = scipy.sparse.random(50, 50, 0.04, format="csr", random_state=2)
    scipy.sparse.save_npz(tmp_path / "graph.npz", matrix)
    where, out = str(tmp_path / "graph.npz"), tmp_path / "out.npy"
    result = command("sssp", where, "-n", "2", "--source", "3", "--out", str(out))
    assert result.status == 0 and json.loads(result.stdout)["vertices"] == 50, result
    assert np.allclose(np.load(out), csgraph.dijkstra(matrix, indices=3), rtol=1e-12)
    ranks = []
    for rules in ([], ["--kill", "0@graph.emit:6", "--recovery", "lwcp", "--checkpoint", "2"]):
        result = command("pagerank", "rmat:7", "-n", "3", "--steps", "9", "--out", str(out), *rules)
        assert result.status == 0 and ("graph recovers" in result.stderr) == bool(rules), result
        ranks.append(np.load(out))
    assert ranks[0].tobytes() == ranks[1].tobytes() and abs(ranks[0].sum() - 1) < 1e-12
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph.npz", "out.npy"]
    for words, told in (
        (("cc", str(tmp_path / "none.npz"), "-n", "2"), "No such file or directory; give a file"),
        (("bfs", where, "-n", "2", "--source", "-1"), "--source -1: expected a whole number"),
        (("bfs", where, "-n", "2", "--checkpoint", "x"), "--checkpoint x: expected steps, seconds"),
        (("pagerank", where, "-n", "2", "--tolerance", "0"), "--tolerance 0: expected a number"),
        (("colour", where, "-n", "2", "--recovery", "lwlog"), "give one of phoenix, cr"),
        (("bfs", where), "-n"), (("hops", where, "-n", "2"), "invalid choice: 'hops'"),
    ):
        result = command(*words)
        assert result.status == 2 and told in result.stderr, result
        lines = [line for line in result.stderr.splitlines() if not line.startswith("usage:")]
        assert len(lines) == 1, result


@pytest.mark.full
def test_what_out_names_stays_what_it_is(tmp_path: Path) -> None:
    """Law: a device, a FIFO and a link are written into; what cannot be written when all is done is
    told with a remedy and has a status of its own; what is read, or written already, is refused."""
    where, link, pipe = tmp_path / "g.txt", tmp_path / "link.npy", tmp_path / "pipe"
    where.write_text("0 1\n1 2\n2 0\n")
    link.symlink_to("target.npy")
    os.mkfifo(pipe)
    words = ("bfs", str(where), "-n", "2", "--out")
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for out in ("/dev/null", str(link), str(pipe)):
        result = command(*words, out)
        assert result.status == 0 and json.loads(result.stdout)["out"] == out, result
    assert np.load(io.BytesIO(os.read(end, 1 << 16))).tolist() == [0, 1, 2]
    os.close(end)
    assert Path("/dev/null").is_char_device() and pipe.is_fifo() and link.is_symlink()
    assert np.load(tmp_path / "target.npy").tolist() == [0, 1, 2]
    result = command(*words, "/dev/full")
    assert result.status == 1 and json.loads(result.stdout)["out"] is None, result
    assert result.stderr == (
        "graph: g.txt read as: directed, 3 vertices, 0-based, no weights\n"
        "graph: error: --out /dev/full: No space left on device; free some space, or name a file "
        "where there is some\n"), result
    for more in ([str(where)], [str(link), "--stats", str(where)],
                 [str(link), "--trace", str(link)]):
        result = command(*words, *more)
        assert result.status == 2 and "; name another file" in result.stderr, result
    assert where.read_text() == "0 1\n1 2\n2 0\n"
    assert {path.name for path in tmp_path.iterdir()} == {"g.txt", "link.npy", "target.npy", "pipe"}


@pytest.mark.nightly
def test_all_programs_on_the_command_line(tmp_path: Path) -> None:
    """Law: each is there, by each way to recover it, on files of each kind; what only the graph
    tells to be wrong is one line, too."""
    out, ranks = tmp_path / "out.npy", []
    (tmp_path / "edges.txt").write_text("# a path\n0 1\n1 2\n4 5\n")
    scipy.io.mmwrite(tmp_path / "weights.mtx", scipy.sparse.diags([[-1.0] * 8], [1]).tocoo())
    where = str(tmp_path / "weights.mtx")
    for words, said in (
        (("kcore", "rmat:7", "--k", "9"), {"recovery": "lwlog"}),
        (("kcore", "rmat:7", "--k", "9", "--recovery", "phoenix"), {"recovery": "phoenix"}),
        (("cc", str(tmp_path / "edges.txt"), "--recovery", "cr", "--checkpoint", "0.5"),
         {"components": 3}),
        (("bfs", where), {"vertices": 9}),
        (("matching", "path:9", "--left", "1", "--checkpoint", "daly"), {"pairs": 1}),
        (("colour", "grid:7", "--kill", "1@graph.compute:2"), {"recovery": "phoenix"}),
    ):
        result = command(*words, "-n", "2", "--out", str(out))
        assert result.status == 0, result
        line = json.loads(result.stdout)
        assert said.items() <= line.items(), (line, said)
        if words[0] == "kcore":
            ranks.append(np.load(out))
    assert ranks[0].tobytes() == ranks[1].tobytes() and 0 < ranks[0].sum() < 128
    assert {p.name for p in tmp_path.iterdir()} == {"edges.txt", "weights.mtx", "out.npy"}
    for words, told in (
        (("bfs", "rmat:x"), "rmat:x: expected rmat:NUMBER, such as rmat:16"),
        (("bfs", where, "--source", "50"), "--source 50: vertices are 0 to 8"),
        (("matching", where), "--left is missing: vertices below it are on one side"),
        (("sssp", where), "an edge of weight -1.0; sssp needs weights from 0 up"),
        (("sssp", "path:9"), "the graph has no weights; sssp needs some: give bfs"),
        (("pagerank", "rmat:40"), "1099511627776 vertices on 2 slots, which have less than"),
        (("pagerank", "path:40000000000"), "40000000000 vertices on 2 slots, which have less"),
        (("pagerank", "grid:99999999999"), "vertices: more than 2**44; give a smaller one"),
    ):
        result = command(*words, "-n", "2")
        assert result.status == 2 and told in result.stderr, result
        lines = [line for line in result.stderr.splitlines() if " read as: " not in line]
        assert len(lines) == 1, result


@pytest.mark.full
def test_names_go_through(tmp_path: Path) -> None:
    """Law: a vertex is called by its name on the command line, on the terminal and in the file; a
    kill changes no bit, whatever the slots have read."""
    where, out = tmp_path / "roads.csv", tmp_path / "out.csv"
    where.write_text('from,to,km\n"Ulm, Neu",Augsburg,79.5\nAugsburg,"München",57\nBonn,Ulm,400\n')
    words = (str(where), "-n", "2", "--columns", "from,to,km", "--out", str(out), "--top", "2",
             "--source", "Ulm, Neu")
    written = []
    for rules in ([], ["--kill", "0@graph.compute:2", "--checkpoint", "1"]):
        result = command("sssp", *words, *rules)
        line = json.loads(result.stdout.splitlines()[-1])
        assert result.status == 0 and line["top"] == [["Ulm, Neu", 0.0], ["Augsburg", 79.5]], result
        assert "\nAugsburg  79.5\n" in result.stdout and line["vertices"] == 5, result
        assert result.stderr.count("roads.csv read as: directed, 5 vertices, ids are words") == 1
        written.append(out.read_text())
    assert written[0] == written[1] == (
        'vertex,value\n"Ulm, Neu",0.0\nAugsburg,79.5\nMünchen,136.5\nBonn,inf\nUlm,inf\n')
    result = command("cc", *words[:7])
    assert out.read_text().splitlines()[1:] == [
        '"Ulm, Neu","Ulm, Neu"', 'Augsburg,"Ulm, Neu"', 'München,"Ulm, Neu"', "Bonn,Bonn",
        "Ulm,Bonn"], result
    for more, told in ((("--source", "Rom"), "--source Rom: no vertex has that name"),
                       (("--columns", "from,x"), "no column x; there are from, to, km"),
                       (("--weighted", "--unweighted"), "give one of them")):
        result = command("sssp", *words, *more)
        assert result.status == 2 and told in result.stderr, result


ALONE = """
import sys
from ftrma import MPI
sys.path.insert(0, APPS)
import graph as app
of, bad = app.graph_of, sys.argv[2]
def graph_of(engine, name, **reading):
    if bad in ("all", str(MPI.COMM_WORLD.rank)):
        raise ValueError("edges are odd")
    return of(engine, name, **reading)
app.graph_of = graph_of
sys.exit(app.main(["pagerank", "rmat:8"]))
"""


@pytest.mark.full
@pytest.mark.parametrize("bad", ["0", "2", "all"])
def test_a_mistake_of_any_slot_is_told_once(bad: str) -> None:
    text = ALONE.replace("APPS", repr(str(APPS)))
    result = run_job(text, 3, args=[bad])
    assert result.status == 2 and result.stderr.count("graph: error: edges are odd\n") == 1, result
