"""Phoenix's rounds of all slots in one process, killed at random: `phoenix_slot` and
`phoenix_runner` by a model.

Each slot is a thread; `Away` stands for what is between them. A kill takes the memory of one slot
or more and interrupts all, at any place of a round, of the recovery or of the end; then all enter
again, with what that has left them. The result has to be the oracle's. A rule that is left out has
to show.
"""

from __future__ import annotations

import functools
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse import csgraph
from tiers import tiers
from tree import APPS

from ftrma.frameworks.graph import phoenix_program, phoenix_runner, phoenix_slot, runner
from ftrma.frameworks.graph.phoenix_slot import PhoenixSlot
from ftrma.graph import (
    Block,
    Field,
    GloballyConsistent,
    LocallyCorrecting,
    Round,
    SelfStabilizing,
    data,
)
from ftrma.graph.data import Partition

sys.path.insert(0, str(APPS))

import phoenix as apps

SLOTS, N, EVERY, TOLERANCE, K = 4, 24, 3, 1e-2, 3
PLACES = ("recover", "compute", "exchange", "meet", "meet", "sync", "stage", "end")


class Killed(BaseException):
    """Unwinds all slots."""


class Job:
    """All that outlives slots' attempts: their memory, the checkpoints, and who kills."""

    def __init__(self, seed: int, deaths: int) -> None:
        self.dice = random.Random(seed)
        self.kept: list[dict[str, Any]] = [{} for _ in range(SLOTS)]
        self.saved: list[dict[str, Any]] = [{} for _ in range(SLOTS)]
        self.deaths = deaths
        self.turn()

    def turn(self) -> None:
        """All enter; one of them is killed at a place and visit, and others with it or nobody."""
        self.board: list[Any] = [None] * SLOTS
        self.barrier = threading.Barrier(SLOTS)
        self.lanes: dict[tuple[int, int, int], Any] = {}
        self.dead: set[int] = set()
        self.at: tuple[int, str, int] | None = None
        if self.deaths:
            self.deaths -= 1
            place = self.dice.choice(PLACES)
            visit = self.dice.randrange(1, 3 if place == "end" else 9)
            self.at = self.dice.randrange(SLOTS), place, visit
            self.dead = set() if self.dice.random() < 0.15 else {
                self.at[0], *self.dice.sample(range(SLOTS), self.dice.randrange(SLOTS - 1))}


class Saved:
    """Entries of one slot: `put` what the next version has, `read` what the newest one had."""

    def __init__(self, copy: dict[str, Any]) -> None:
        self.copy = copy
        self.now = dict(copy)

    def put(self, key: str, value: Any, kind: str = "value") -> None:
        self.now[key] = value

    def read(self, key: str) -> Any:
        return self.copy[key]

    def drop(self, key: str) -> None:
        self.now.pop(key, None)

    def __contains__(self, key: str) -> bool:
        return key in self.copy


class Away:
    """Between slot `me` and the others."""

    def __init__(self, job: Job, me: int, saved: Saved) -> None:
        self.job, self.me, self.saved = job, me, saved
        self.visits: dict[str, int] = {}

    def kill_place(self, name: str) -> None:
        self.visits[name] = self.visits.get(name, 0) + 1
        if self.job.at == (self.me, name, self.visits[name]):
            self.job.barrier.abort()
            raise Killed
        if self.job.barrier.broken and self.job.dice.random() < 0.5:
            raise Killed  # the alarm is seen early, or at the next wait

    def confirm(self, version: int) -> bool:
        return True  # what is taken is committed here

    def due(self) -> bool:
        return False

    def tell(self, report: runner.StepReport) -> None:
        pass

    def wait(self) -> None:
        try:
            self.job.barrier.wait(timeout=20)
        except threading.BrokenBarrierError:
            raise Killed from None

    def gather(self, value: Any) -> list[Any]:
        self.job.board[self.me] = value
        self.wait()
        found = list(self.job.board)
        self.wait()
        return found

    def send(self, turn: int, lanes: Sequence[Any]) -> int:
        for slot, lane in enumerate(lanes):
            self.job.lanes[self.me, slot, turn % 2] = lane
        return sum(map(len, lanes))

    def meet(self, partial: Any) -> list[Any]:
        found = self.gather(partial.copy())
        self.kill_place("meet")
        return found

    def incoming(self, turn: int) -> list[Any]:
        return [self.job.lanes[slot, self.me, turn % 2] for slot in range(SLOTS)]

    def checkpoint(self) -> int:
        self.kill_place("stage")
        staged = self.gather({key: np.array(value) for key, value in self.saved.now.items()})
        self.job.saved = staged  # by all the same
        self.saved.copy = staged[self.me]
        self.wait()
        return 1


class Case:
    """A program, its graph, and what it has to come to."""

    def __init__(self, make: Callable[[data.Graph], tuple[data.Graph, Any]], field: str,
                 oracle: Callable[[data.Graph, Any], Any], *, close: bool = False) -> None:
        self.make, self.field, self.oracle, self.close = make, field, oracle, close


def edges_of(graph: data.Graph) -> tuple[Any, Any, Any]:
    chunks = list(graph.chunks())
    source, target = (np.concatenate([chunk[i] for chunk in chunks]) for i in (0, 1))
    return source, target, np.concatenate([chunk[2] for chunk in chunks])


@functools.cache
def random_graph(seed: int) -> data.Graph:
    dice = np.random.default_rng(seed)
    return data.of_edges(N, dice.integers(0, N, 40), dice.integers(0, N, 40),
                         dice.integers(1, 9, 40))


def distances(graph: data.Graph, program: Any) -> Any:
    source, target, weight = edges_of(graph)
    found = np.where(np.arange(N) == program.source, 0.0, np.inf)
    for _ in range(N):  # Bellman and Ford
        np.minimum.at(found, target, found[source] + (weight if program.weighted else 1))
    return found


def components(graph: data.Graph, program: Any) -> Any:
    source, target, _ = edges_of(graph)
    matrix = scipy.sparse.coo_matrix((np.ones(len(source)), (source, target)), (N, N))
    _, label = csgraph.connected_components(matrix, directed=False)
    return np.array([np.flatnonzero(label == label[v])[0] for v in range(N)])


def colours(graph: data.Graph, program: Any) -> Any:
    """By going through the vertices, highest priority first."""
    source, target, _ = edges_of(graph)
    found = np.full(N, -1)
    for v in np.argsort(apps.priority(np.arange(N)))[::-1]:
        taken = set(found[target[source == v]].tolist())
        found[v] = min(set(range(N)) - taken)
    return found


def ranks(graph: data.Graph, program: Any) -> Any:
    """Solves the linear system; the pulling program has the graph reversed."""
    source, target, _ = edges_of(graph)
    if isinstance(program, apps.Pulled):
        source, target = target, source
    matrix = np.zeros((N, N))
    np.add.at(matrix, (target, source), 1)
    matrix /= matrix.sum(axis=0).clip(1)
    return np.linalg.solve(np.eye(N) - 0.85 * matrix, np.full(N, 0.15 / N))


def core(graph: data.Graph, program: Any) -> Any:
    source, target, _ = edges_of(graph)
    there = np.ones(N, bool)
    for _ in range(N):
        there &= np.bincount(source[there[source] & there[target]], minlength=N) >= K
    return there


class Mirrored(apps.Core):
    """A field whose lost values come back from the ghosts."""

    fields: ClassVar = {**apps.Core.fields,
                        "value": Field(bool, recover=np.logical_and, mirror=True)}


class Both(LocallyCorrecting):
    """Two fields at once: the least and the greatest id that reach a vertex, one mirrored too."""

    fields: ClassVar = {"value": Field(np.int64, reduce=np.minimum, mirror=True),
                        "most": Field(np.uint16, reduce=np.maximum)}

    def init(self, v: Block) -> None:
        v.value, v.most = v.ids, v.ids
        v.activate()

    def operate(self, v: Block, ctx: Round) -> None:
        v.push("value", v.value)
        v.push("most", v.most)


class Counting(GloballyConsistent):
    """Everything depends on the rounds that were made: values, who is active, the sum before."""

    fields: ClassVar = {"value": Field(np.uint64, reduce=np.add), "seen": Field(np.int64)}
    aggregates: ClassVar = {"sum": np.uint64}

    def init(self, v: Block) -> None:
        v.value = v.ids
        v.activate()

    def operate(self, v: Block, ctx: Round) -> None:
        ctx.contribute("sum", v.value.sum())
        v.seen += ctx.round
        v.value = v.value * np.uint64(6364136223846793005) + ctx["sum"] + np.uint64(ctx.round)
        if ctx.round < 11:
            v.push("value", v.value ^ np.uint64(77), where=v.value % np.uint64(3) > 0)
            v.activate(v.value % np.uint64(5) == 0)


def counted(graph: data.Graph, program: Any) -> Any:
    source, target, _ = edges_of(graph)
    program = Counting()
    part = data.of_edges(N, source, target).part(Partition("range", N, 1), 0)
    rows = [np.arange(N)[part.targets]]
    slot = PhoenixSlot(program, part, N, rows, "cr", {}, Saved({}), 1, 7, [(0, 0)])

    class Alone(Away):
        def gather(self, value: Any) -> list[Any]:
            return [value]

        def kill_place(self, name: str) -> None:
            pass

        def wait(self) -> None:
            pass

        def incoming(self, turn: int) -> list[Any]:
            return [self.job.lanes[0, 0, turn % 2]]

    return phoenix_runner.run(slot, Alone(Job(0, 0), 0, Saved({})), every=0, most=60)["value"]


class Size(SelfStabilizing):
    """Counts the vertices by an aggregate."""

    fields: ClassVar = {"value": Field(np.int64)}
    aggregates: ClassVar = {"size": np.int64}

    def init(self, v: Block) -> None:
        pass

    def operate(self, v: Block, ctx: Round) -> None:
        ctx.contribute("size", len(v))
        v.activate(v.value != ctx["size"])
        v.value = ctx["size"]


def path(graph: data.Graph) -> data.Graph:
    """One vertex after another: whoever is to go on with it, nobody else is."""
    ids = np.arange(N)
    return data.of_edges(N, ids[:-1], ids[1:], np.ones(N - 1))


def undirected(program: Any) -> Callable[[data.Graph], tuple[data.Graph, Any]]:
    return lambda graph: (data.symmetric(graph), program)


CASES = {
    "bfs": Case(lambda g: (g, apps.Distance(0, weighted=False)), "value", distances),
    "path": Case(lambda g: (path(g), apps.Distance(0, weighted=False)), "value", distances),
    "sssp": Case(lambda g: (g, apps.Distance(1, weighted=True)), "value", distances),
    "cc": Case(undirected(apps.Component()), "value", components),
    "both": Case(undirected(Both()), "value", components),
    "colour": Case(undirected(apps.Colour()), "colour", colours),
    "pull": Case(lambda g: (data.reverse(g), apps.Pulled(apps.out_degree(g), TOLERANCE)), "rank",
                 ranks, close=True),
    "residual": Case(lambda g: (g, apps.Residual(N, TOLERANCE)), "rank", ranks, close=True),
    "core": Case(undirected(apps.Core(K)), "value", core),
    "mirrored": Case(undirected(Mirrored(K)), "value", core),
    "size": Case(lambda g: (g, Size()), "value", lambda g, program: np.full(N, N)),
    "counting": Case(lambda g: (g, Counting()), "value", counted),
}
entered: Counter[str] = Counter()


def attempt(job: Job, parts: Sequence[data.Part], rows: Sequence[Sequence[Any]], recovery: str,
            program: Any, every: int) -> list[Any]:
    """All slots enter once, for two runs; what each returns, None where it was interrupted."""
    results: list[Any] = [None] * SLOTS
    errors: list[BaseException] = []

    def enter(me: int) -> None:
        saved, kept = Saved(job.saved[me]), job.kept[me]
        way = Away(job, me, saved)
        try:
            both = []
            for run in (1, 2):
                found = runner.saved_result(program, kept, saved, run, 7)
                if found is None:
                    levels = way.gather(phoenix_slot.level(kept, run, 7))
                    found = phoenix_slot.kept_result(program, kept, run, levels)
                if found is None:
                    slot = PhoenixSlot(program, parts[me], N, rows[me], recovery, kept, saved, run,
                                       7, levels)
                    found = phoenix_runner.run(slot, way, every=every, most=600)
                both.append(found)
            results[me] = both
        except Killed:
            results[me] = None
        except BaseException as error:
            errors.append(error)
            job.barrier.abort()

    threads = [threading.Thread(target=enter, args=(me,)) for me in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@functools.cache
def made(name: str, seed: int) -> tuple[Any, data.Graph, Any]:
    """Program, graph and result."""
    graph, program = CASES[name].make(random_graph(seed))
    return program, graph, CASES[name].oracle(graph, program)


@functools.cache
def parts_of(name: str, seed: int, kind: str) -> tuple[Partition, Any, Any]:
    """The parts of the graph, one for each slot."""
    graph, partition = made(name, seed)[1], Partition(kind, N, SLOTS)
    parts = [graph.part(partition, me) for me in range(SLOTS)]
    return partition, parts, [[partition.local(part.targets[part.to(me)]) for part in parts]
                              for me in range(SLOTS)]


def right(name: str, found: Any, seed: int) -> bool:
    expected = made(name, seed)[2]
    if CASES[name].close:
        return bool(abs(found - expected).sum() <= TOLERANCE * (1 + 1e-9))
    return bool((found == expected).all())


def play(name: str, seed: int, deaths: int, recovery: str, every: int) -> bool:
    """Play a job; true: both of its runs have the right result."""
    program, field = made(name, seed % 7)[0], CASES[name].field
    phoenix_program.check(program, recovery)
    partition, parts, rows = parts_of(name, seed % 7, "hash" if seed % 2 else "range")
    job = Job(seed, deaths)
    for turn in range(deaths + 2):
        entered["again" if turn else "first"] += 1
        results = attempt(job, parts, rows, recovery, program, every)
        if all(result is not None for result in results):
            whole = np.zeros(N, results[0][0][field].dtype)
            for run in (0, 1):
                for me in range(SLOTS):
                    whole[partition.ids(me)] = results[me][run][field]
                if not right(name, whole, seed % 7):
                    return False
            return True
        for me in job.dead:
            job.kept[me] = {}
        job.turn()
    raise AssertionError("it goes on and on")


def wrong(name: str, seeds: range, recovery: str = "phoenix") -> int:
    """Number of jobs with failures that have a wrong result, or none."""
    count = 0
    for seed in seeds:
        try:
            count += not play(name, seed, 1 + seed % 4, recovery, EVERY * (seed % 3 == 0))
        except (AssertionError, KeyError, runner.NotEnded):
            count += 1
    return count


WAYS = [(name, "phoenix") for name in CASES if name != "counting"]
WAYS += [(name, "cr") for name in ("counting", "colour", "core", "both")]


@pytest.mark.plain
@pytest.mark.parametrize(("name", "recovery"), [
    pytest.param(*way, marks=[] if way[0] in ("bfs", "colour", "mirrored") else pytest.mark.full
                 if way[0] in ("residual", "counting") else pytest.mark.nightly) for way in WAYS])
def test_every_failure_is_recovered(name: str, recovery: str) -> None:
    """Law: up to four failures, of no slot, several or all but one, at any place: right results, of
    both runs, with checkpoints and without."""
    before = entered["again"]
    assert wrong(name, range(12), recovery) == 0
    assert entered["again"] - before > 10, "hardly anybody was killed"


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "recovery"), WAYS)
def test_many_failures_are_recovered(name: str, recovery: str) -> None:
    """Law: the same of many more."""
    assert wrong(name, range(12, 424), recovery) == 0


resume, derive, operate = PhoenixSlot.resume, PhoenixSlot.derive, PhoenixSlot.operate


def resets(slot: PhoenixSlot) -> None:
    for name in slot.pushed:
        slot.ghosts[name][...] = slot.program.fields[name].neutral()


def nobody(state: int) -> Callable[[PhoenixSlot], None]:
    """Slots that have so much of the run begin with nobody active."""

    def begin(slot: PhoenixSlot) -> None:
        resume(slot)
        if slot.state == state and not slot.begins:
            slot.active[...] = False

    return begin


def unasked(slot: PhoenixSlot) -> Any:
    """The round after a failure is not taken; it ends if nobody is active."""
    if slot.mends() and not hasattr(slot, "asked"):
        slot.asked = True  # type: ignore[attr-defined]
        slot.active[...] &= not slot.everywhere
        partial = np.zeros((), slot.form)
        partial["active"] = slot.active.sum()
        return partial
    return operate(slot)


def adds_on(slot: PhoenixSlot) -> None:
    """Ghosts that add up go on from the half of a round."""
    slot.clear = lambda: None  # type: ignore[method-assign]
    derive(slot)
    del slot.clear


def at_once(slot: PhoenixSlot) -> None:
    resume(slot)
    slot.keep_all()


RULES: dict[str, tuple[str, Any, str]] = {
    "ghosts are never reset": ("clear", resets, "cc"),
    "who is active stays so": ("resume", nobody(phoenix_slot.KEPT), "path"),
    "ghosts are reduced into what is lost": ("mend", lambda *_: None, "bfs"),
    "mirrors are filled": ("mirror", lambda *_: None, "colour"),
    "one more round is taken": ("operate", unasked, "colour"),
    "it is mended if nobody was lost": ("mends", lambda slot: not slot.begins and any(
        state == phoenix_slot.FRESH for state, _ in slot.levels), "core"),
    "derived fields are made again": ("derive", lambda slot: None, "core"),
    "sums of half a round are dropped": ("derive", adds_on, "core"),
    "a slot is fresh until its ghosts are filled": ("resume", at_once, "mirrored"),
    "a result is begun from with all": ("resume", nobody(phoenix_slot.ENDED), "bfs"),
    "labels of a checkpoint are begun from with all": (
        "resume", nobody(phoenix_slot.FRESH), "cc"),
    "aggregates take two rounds": ("least", 1, "size"),
}


@pytest.mark.parametrize("rule", tiers(RULES, plain=["it is mended if nobody was lost"],
                                       others="quick"))
def test_each_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: left out, it shows."""
    name, instead, case = RULES[rule]
    if name == "least":
        instead = property(lambda slot: 1, lambda slot, value: None)
    monkeypatch.setattr(PhoenixSlot, name, instead, raising=False)
    assert any(wrong(case, range(seed, seed + 1)) for seed in range(200))
