"""Vertex programs under real kills: `ftrma.graph`.

Law: whatever slots die, wherever and how often, by each recovery: the same bits as without failure,
nothing launched again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from graphruns import (
    ANALYTICS,
    FULL,
    PROGRAMS,
    RECOVERIES,
    SCRIPT,
    SLOTS,
    SPARES,
    STRONG,
    assert_same,
    kill,
    reference,
    run,
)
from jobs import run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes
from programs import kinds
from tiers import tiers


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


PLACES = ("graph.load", "graph.recover", "graph.compute:8", "graph.emit:9", "graph.exchange:7",
          "graph.sync:13", "checkpoint:2", "stage:2", "staged:2", "graph.end")
SOON = ("graph.load", "graph.recover", "graph.compute:6", "graph.emit:7", "graph.exchange:8",
        "graph.sync:11", "checkpoint:2", "stage:2", "staged:2", "graph.end")


def deaths(places: Sequence[str], names: Sequence[str]) -> list[tuple[str, int, str, str]]:
    """Each place with each recovery and program; slots 0 and 3 take turns, so that each of them
    meets each of the others."""
    return [(place, (3, 0)[(i + j + k) % 2], recovery, name)
            for i, place in enumerate(places) for j, recovery in enumerate(RECOVERIES)
            for k, name in enumerate(names)]


@pytest.mark.parametrize(("place", "slot", "recovery", "name"), tiers(
    deaths(SOON, FULL),
    full=["graph.emit:7-3-lwlog-sv"]))
def test_a_death_in_a_full_program(place: str, slot: int, recovery: str, name: str) -> None:
    """Law: masked steps, lists and changes of edges come back in all bits."""
    result = run(recovery, (name,), *SPARES, *kill(f"{slot}@{place}"))
    assert_same(result, (name,))
    assert kinds(result) == ["reentry"] or (kinds(result) == [] and place == "graph.end"), result


@pytest.mark.parametrize(("place", "slot", "recovery", "name"), tiers(
    deaths(PLACES, PROGRAMS),
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
