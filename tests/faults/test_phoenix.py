"""Phoenix's programs under real kills: `ftrma.graph` without a checkpoint and without a log.

Law: whatever slots die, wherever, how often and how many at once, the result is right: in all bits
where it is distances, components or a core, a proper colouring, ranks within their tolerance of the
fixed point. Nobody goes back, and nothing is launched again.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from jobs import Result, run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes
from programs import kinds
from scipy.sparse import csgraph
from tiers import tiers

from ftrma.graph import data

SCRIPT = Path(__file__).parent / "phoenixes.py"
SLOTS = 4
ROUNDS = {"bfs": 42, "sssp": 45, "cc": 27, "colour": 28, "pull": 100, "residual": 103, "kcore": 21}
SPARES = ("--spares", "3")
PERCENT = (25, 50, 75, 99)
PLACES = ("compute", "exchange", "sync")


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def run(names: tuple[str, ...], *options: str, recovery: str = "phoenix",
        slots: int = SLOTS) -> Result:
    return run_job(SCRIPT, slots, *options, args=[recovery, *names])


def kill(*rules: str) -> list[str]:
    return [word for rule in rules for word in ("--kill", rule)]


def at(name: str, percent: int) -> int:
    """The round of a program after so much of them."""
    return max(ROUNDS[name] * percent // 100, 1)


@functools.cache
def programs() -> Any:
    spec = importlib.util.spec_from_file_location("phoenixes", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def edges(name: str) -> Any:
    """Adjacency of a program's graph without directions or repetitions, or the least weight."""
    chunks = list(programs().PROGRAMS[name][0]().chunks())
    source, target = (np.concatenate([chunk[i] for chunk in chunks]) for i in (0, 1))
    n = int(max(source.max(), target.max())) + 1
    weight = np.ones(len(source))
    if name == "sssp":
        weight = np.concatenate([chunk[2] for chunk in chunks])
    order = np.lexsort((weight, target, source))
    source, target, weight = source[order], target[order], weight[order]
    first = np.concatenate([[True], (np.diff(source) != 0) | (np.diff(target) != 0)])
    if name in ("pull", "residual"):
        first[:] = True  # that are added up
    return scipy.sparse.coo_matrix((weight[first], (source[first], target[first])), (n, n)).tocsr()


@functools.cache
def oracle(name: str) -> Any:
    """By other means: Dijkstra, the labels' least ids, peeling, and the linear system."""
    graph, matrix = programs().PROGRAMS[name][0](), edges(name)
    matrix.resize(graph.n, graph.n)
    if name in ("bfs", "sssp"):
        return csgraph.dijkstra(matrix, indices=0, unweighted=name == "bfs")
    if name == "cc":
        _, label = csgraph.connected_components(matrix, directed=False)
        _, least, back = np.unique(label, return_index=True, return_inverse=True)
        return least[back]
    if name == "kcore":
        matrix.setdiag(0)
        there = np.ones(graph.n, bool)
        for _ in range(graph.n):
            there &= np.asarray(matrix[:, there].sum(axis=1)).ravel() >= programs().K
        return there
    if name == "pull":  # has the graph reversed
        matrix = matrix.T.tocsr()
    degree = np.asarray(matrix.sum(axis=1)).ravel().clip(1)
    share = scipy.sparse.diags(1 / degree) @ matrix
    system = (scipy.sparse.identity(graph.n) - 0.85 * share.T).tocsc()
    return scipy.sparse.linalg.spsolve(system, np.full(graph.n, 0.15 / graph.n))


def assert_right(result: Result, names: tuple[str, ...]) -> None:
    assert result.status == 0, result
    for name in names:
        found = result.results[f"whole-{name}"]
        if name == "colour":
            pairs = edges(name).tocoo()
            other = pairs.row != pairs.col
            assert (found[pairs.row] != found[pairs.col])[other].all(), result
        elif name in ("pull", "residual"):
            assert abs(found - oracle(name)).sum() <= programs().TOLERANCE * (1 + 1e-9), result
        else:
            assert (found == oracle(name)).all(), (name, result)


@pytest.mark.full
def test_oracles() -> None:
    """Law: without a failure all have what others have by other means, and what is written here of
    their rounds is so; there is much to find."""
    names = tuple(ROUNDS)
    result = run(names)
    assert_right(result, names)
    assert kinds(result) == [] and str(ROUNDS).replace("'", '"') in result.stdout, result
    for slot, arrays in enumerate(result.of_slots("slot", SLOTS)):
        for name, array in arrays.items():
            whole = result.results[f"whole-{name}"]
            mine = whole[data.Partition("hash", len(whole), SLOTS).ids(slot)]
            assert (mine == array).all(), (slot, name)
    assert len(set(oracle("cc"))) > 100 and 30 < oracle("kcore").sum() < 100
    assert np.ptp(result.results["whole-colour"]) < 40


@pytest.mark.parametrize(("rules", "recovery"), [
    pytest.param("1@graph.compute:100", "phoenix", marks=pytest.mark.full),
    pytest.param("0@graph.sync:60 2@graph.exchange:90", "phoenix", marks=pytest.mark.nightly),
    pytest.param("1@graph.compute:60", "cr", marks=pytest.mark.nightly)])
def test_factors_after_a_death(rules: str, recovery: str) -> None:
    """Law: lost factors begin anew and the error falls again: below a fifth of the ratings' spread
    at the end, and to the bit where all go back."""
    found = [run(("factors",), *SPARES, *kill(*killed), recovery=recovery)
             for killed in ((), rules.split())]
    assert all(result.status == 0 for result in found), found
    assert kinds(found[1]) == ["reentry"] * len(rules.split()) and not kinds(found[0]), found[1]
    chunks = list(programs().rated().chunks())
    ratings = np.concatenate([chunk[2] for chunk in chunks])
    for result in found:
        error = np.sqrt(result.results["whole-factors"].sum() / len(ratings))
        assert error < ratings.std() / 5, (error, ratings.std())
    if recovery == "cr":
        a, b = (result.results["whole-factors"].tobytes() for result in found)
        assert a == b


DEATHS = [(name, percent, PLACES[(i + j) % 3], (i + j) % SLOTS)
          for i, name in enumerate(ROUNDS) for j, percent in enumerate(PERCENT)]


@pytest.mark.parametrize(("name", "percent", "place", "slot"), tiers(
    DEATHS, plain=["sssp-50-sync-2"], full=["colour-99-compute-2"]))
def test_a_death(name: str, percent: int, place: str, slot: int) -> None:
    """Law: of one slot, in each phase of each program."""
    result = run((name,), *SPARES, *kill(f"{slot}@graph.{place}:{at(name, percent)}"))
    assert_right(result, (name,))
    assert kinds(result) == ["reentry"], result


@pytest.mark.parametrize(("name", "place"), tiers(
    itertools.product(ROUNDS, ("load", "recover", "end")), full=["bfs-load", "sssp-end"]))
def test_a_death_at_the_edges(name: str, place: str) -> None:
    """Law: of one that has nothing yet, or that has its result already."""
    result = run((name,), *SPARES, *kill(f"1@graph.{place}"))
    assert_right(result, (name,))
    assert kinds(result) == ["reentry"] or (kinds(result) == [] and place == "end"), result


@pytest.mark.parametrize(("name", "percent"), tiers(
    itertools.product(ROUNDS, PERCENT), full=["kcore-50"]))
def test_half_of_the_slots_at_once(name: str, percent: int) -> None:
    """Law: 4 of 8, of which no parity is there; some die a moment later than others."""
    rules = (f"{slot}@graph.compute:{at(name, percent)}" for slot in (0, 3, 4, 6))
    result = run((name,), "--spares", "4", *kill(*rules), slots=8)
    assert_right(result, (name,))
    assert set(kinds(result)) == {"reentry"}, result


CASCADES = [  # of which the second comes while the first is mended, the others later
    ("cc", "1@graph.compute:9", "2@graph.recover:2"),
    ("bfs", "1@graph.exchange:13", "3@graph.recover:3"),
    ("kcore", "0@graph.sync:7", "1@graph.recover:4"),
    ("residual", "2@graph.exchange:31", "1@graph.recover:5", "3@graph.compute:60"),
    ("colour", "2@graph.compute:11", "0@graph.compute:12", "2@graph.compute:9"),
    ("pull", "1@graph.compute:40", "2@repair"),
    ("sssp", "0@graph.sync:20", "0@graph.recover", "1@graph.compute:30"),
]


@pytest.mark.parametrize("case", tiers(
    [pytest.param(case, id=" ".join(case)) for case in CASCADES],
    full=["cc 1@graph.compute:9 2@graph.recover:2"]))
def test_deaths_upon_deaths(case: tuple[str, ...]) -> None:
    """Law: also while others are mended, and of one that was replaced."""
    name, *rules = case
    result = run((name,), "--spares", "4", *kill(*rules))
    assert_right(result, (name,))
    assert set(kinds(result)) == {"reentry"}, result


@pytest.mark.parametrize("name", tiers(ROUNDS, full=["kcore"]))
def test_all_but_one_at_once(name: str) -> None:
    """Law: what one slot has is enough."""
    rules = (f"{slot}@graph.exchange:{at(name, 50)}" for slot in range(1, SLOTS))
    result = run((name,), *SPARES, *kill(*rules))
    assert_right(result, (name,))
    assert set(kinds(result)) == {"reentry"}, result


@pytest.mark.parametrize("rules", [
    pytest.param(("1@graph.compute:52",), marks=pytest.mark.full),
    pytest.param(("1@graph.compute:52", "2@graph.compute:60"), marks=pytest.mark.nightly),
    pytest.param(("0@graph.end", "2@graph.compute:80"), marks=pytest.mark.nightly)])
def test_one_program_after_another(rules: tuple[str, ...]) -> None:
    """Law: a slot that lost the result of the first one has it again, and the second goes on."""
    names = ("bfs", "cc", "kcore")
    result = run(names, *SPARES, *kill(*rules))
    assert_right(result, names)
    assert set(kinds(result)) == {"reentry"}, result


@pytest.mark.parametrize("name", tiers(ROUNDS, full=["colour"]))
def test_from_checkpoints(name: str) -> None:
    """Law: by "cr" all go back to the same round."""
    result = run((name,), *SPARES, *kill(f"1@graph.compute:{at(name, 75)}"), recovery="cr")
    assert_right(result, (name,))
    assert kinds(result) == ["reentry"], result


@pytest.mark.full
def test_nobody_to_replace_it() -> None:
    """Law: without a spare it begins anew."""
    result = run(("cc",), "--spares", "0", *kill("2@graph.compute:13"))
    assert_right(result, ("cc",))
    assert kinds(result) == ["relaunch"], result


@pytest.mark.parametrize("name", tiers(ROUNDS, full=["cc"]))
def test_over_nodes(name: str) -> None:
    """Law: a framework does not know where a slot is."""
    result = run_on_nodes(SCRIPT, SLOTS, "--spares", "2",
                          *kill(f"3@graph.compute:{at(name, 50)}"), args=["phoenix", name],
                          in_turn=2)
    assert_right(result, (name,))
    assert kinds(result) == ["reentry"], result


@pytest.mark.full
def test_unprotected() -> None:
    """Law: under plain mpirun the same programs have the same results."""
    result = run_plain(SCRIPT, SLOTS, args=["phoenix", "cc", "colour"])
    assert_right(result, ("cc", "colour"))


MISTAKES = """
import json, sys
import numpy as np
from ftrma import graph
from ftrma.graph import Field, data
found = []
def told(call):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        found.append(f"{type(error).__name__}: {error}")
class Local(graph.LocallyCorrecting):
    fields = {"a": Field(int, reduce=np.minimum)}
    def init(self, v): v.activate()
    def operate(self, v, ctx): pass
class Consistent(graph.GloballyConsistent):
    fields = {"a": Field(int)}
class Stays(graph.SelfStabilizing):
    fields = {"a": Field(int)}
    def init(self, v): pass
    def operate(self, v, ctx): v.activate()
class Pregel(graph.VertexProgram):
    fields = {"a": int}
def of(**methods): return type("Local", (Local,), methods)()
def pulls(self, v, ctx): v.pull("a")
def pushes(self, v): v.push("a", 1)
def unpushed(self, v, ctx): v.push("b", 1)
def weighs(self, v, ctx): v.push("a", 1, weight="plus")
def masks(self, v, ctx): v.push("a", 1, where=np.ones(len(v), int))
added = Field(int, reduce=np.add)
engine, path = graph.Engine(recovery="phoenix"), data.path(9)
for program in (of(fields={"a": Field(int)}), of(fields={"a": added}), Consistent(), Pregel(),
                of(operate=pulls), of(init=pushes), of(operate=weighs), of(operate=masks),
                of(operate=unpushed, fields={**Local.fields, "b": Field(int, recover=np.maximum)}),
                of(fields={"a": Field(int, reduce=np.minimum, derived=True)}),
                of(fields={"a": Field(int, recover=np.add)}), of(fields={"a": int}),
                of(aggregates={"due": int})):
    told(lambda: engine.run(path, program))
told(lambda: engine.run(path, Stays(), most=3))
told(lambda: graph.Engine(recovery="lwlog").run(path, Local()))
json.dump(found, open(f"{sys.argv[1]}/found.json", "w"))
"""


def test_mistakes_are_told() -> None:
    """Law: with what to do instead."""
    result = run_plain(MISTAKES, 1)
    assert result.status == 0, result
    assert result.results["found"] == [
        "ValueError: Local: a is neither idempotent nor derived; give recover=, an idempotent "
        "ufunc such as np.maximum, or derived=True",
        "ValueError: Local: a is reduced by add, so what is lost of it cannot be pushed again; "
        "make it derived=True in a GloballyCorrecting program, or give an idempotent reduce",
        "ValueError: Consistent: a globally consistent program needs checkpoints of all slots: "
        "give recovery=\"cr\"",
        "ValueError: Pregel: recovery 'phoenix' is not for programs of its kind; give one of "
        "hwcp, lwcp, hwlog, lwlog, none, causal, rollback",
        "ValueError: pull('a'): the field has to be one with mirror=True and without reduce=",
        "RuntimeError: push() in init() or reinit(), which make a vertex's values from nothing "
        "but the vertex: do it in operate() or recompute()",
        "ValueError: push(weight='plus'): the graph has no weights; leave weight= out, or give "
        "the edges some",
        "ValueError: push: a mask of int64 and shape (9,); give bool, one for each of the "
        "block's 9 vertices",
        "ValueError: push('b'): give the field a reduce=, such as np.minimum",
        "ValueError: Local: a is derived; only a GloballyCorrecting program has a recompute() "
        "that derives it",
        "ValueError: Local: a has recover=add, by which a value would count as often as it has "
        "ghosts; give an idempotent one such as np.maximum",
        "ValueError: Local: a is <class 'int'>; give a Field",
        "ValueError: Local: 'due' is a name that vertices or rounds have already; choose "
        "another",
        "NotEnded: the program has not ended after 3 rounds",
        "ValueError: Local: recovery 'lwlog' is not for programs of its kind; give one of "
        "phoenix, cr",
    ]
