"""Delta-accumulative programs in several slots of one process: results, state, what is refused.

Law: whatever the order of updates and messages, all slots come to the result of one equation; what
a snapshot would hold is the whole state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import spsolve

from ftrma.frameworks.aic.delta_program import (
    DeltaProgram,
    WrongProgram,
    check_eps,
    check_program,
    check_weights,
)
from ftrma.frameworks.aic.delta_workload import DeltaWorkload, Diverged
from ftrma.frameworks.graph.data import Graph, Partition, of_edges
from ftrma.frameworks.graph.references import AnyArray

N, EDGES, LIMIT_BYTES = 200, 1500, 4096
DAMPING, BEGIN = 0.85, 0.15


class PageRank(DeltaProgram):
    accumulate, zero, linear, factor = np.add, 0.0, True, DAMPING

    def init(self, v: Any) -> None:
        v.value[:], v.delta[:] = 0.0, BEGIN

    def send(self, v: Any, delta: AnyArray) -> AnyArray:
        return DAMPING * delta / v.degree.clip(1)


class Distances(DeltaProgram):
    accumulate, zero, weight = np.minimum, np.inf, "plus"

    def init(self, v: Any) -> None:
        v.delta[v.ids == 3] = 0.0

    def send(self, v: Any, delta: AnyArray) -> AnyArray:
        return delta


class Received(PageRank):
    """PageRank whose damping is the receiver's work."""

    def receive(self, v: Any, message: AnyArray) -> AnyArray:
        return DAMPING * message

    def send(self, v: Any, delta: AnyArray) -> AnyArray:
        return delta / v.degree.clip(1)


def drawn(seed: int = 1) -> tuple[AnyArray, AnyArray, AnyArray]:
    random = np.random.default_rng(seed)
    source, target = random.integers(0, N, (2, EDGES))
    return (np.append(source, np.arange(N)), np.append(target, (np.arange(N) + 1) % N),
            np.append(random.random(EDGES), np.ones(N)))


def workloads(graph: Graph, program: DeltaProgram, slots: int, kind: str = "hash",
              **options: Any) -> list[DeltaWorkload]:
    partition = Partition(kind, graph.n, slots)
    parts = [graph.part(partition, slot) for slot in range(slots)]
    return [DeltaWorkload(program, parts[me], graph.n,
                          [partition.local(parts[slot].targets[parts[slot].to(me)])
                           for slot in range(slots)], me, LIMIT_BYTES, **options)
            for me in range(slots)]


def run(slots: Sequence[DeltaWorkload], seed: int = 1,
        each: Callable[[], None] = lambda: None) -> None:
    """Let the slots compute and exchange records in an order that a number chooses, to the end."""
    random = np.random.default_rng(seed)
    channels: dict[tuple[int, int], list[bytes]] = {}

    def append_of(me: int) -> Callable[[int, Any], bool]:
        def append(to: int, data: Any) -> bool:
            if random.random() < 0.2:
                return False  # no room
            channels.setdefault((me, to), []).append(bytes(data))
            return True
        return append

    for _ in range(100_000):
        me = int(random.integers(len(slots)))
        slots[me].compute()
        slots[me].send(append_of(me), all=bool(random.random() < 0.3))
        for _ in range(int(random.integers(2 * len(slots)))):
            full = [pair for pair, records in channels.items() if records]
            if not full:
                break
            source, to = full[int(random.integers(len(full)))]
            slots[to].receive(source, memoryview(channels[source, to].pop(0)))
        each()
        if not any(channels.values()) and all(slot.passive() for slot in slots):
            return
    raise AssertionError("the slots do not come to an end")


def gathered(slots: Sequence[DeltaWorkload]) -> AnyArray:
    whole = np.zeros(N, slots[0].dtype)
    for slot in slots:
        whole[slot.part.ids] = slot.value
    return whole


def matrix() -> Any:
    source, target, weight = drawn()
    return sp.csr_matrix((weight, (source, target)), (N, N)), source, target


def ranks() -> AnyArray:
    _, source, target = matrix()
    degree = np.bincount(source, minlength=N)
    along = sp.csr_matrix((DAMPING / degree[source], (target, source)), (N, N))
    found: AnyArray = spsolve(sp.identity(N, format="csc") - along.tocsc(), np.full(N, BEGIN))
    return found


@pytest.mark.parametrize("slots, kind", [(1, "hash"), (2, "range"), (3, "hash")])
@pytest.mark.parametrize("program", [PageRank, Received])
@pytest.mark.parametrize("portion", [0.2, 1.0])
def test_pagerank_is_the_solution(program: type[DeltaProgram], slots: int, kind: str,
                                  portion: float) -> None:
    """Law: of all states the sum (1 - d) V + I + O is the same; the end is the equation's."""
    source, target, _ = drawn()
    loads = workloads(of_edges(N, source, target), program(), slots, kind, eps=1e-12,
                      portion=portion, send_seconds=np.inf)
    run(loads)
    assert abs(gathered(loads) - ranks()).max() < N * 1e-12 / (1 - DAMPING)
    if program is PageRank:
        total = sum((1 - DAMPING) * slot.value.sum() + slot.pending.sum() for slot in loads)
        assert total == pytest.approx(N * BEGIN, rel=1e-9)


@pytest.mark.parametrize("slots", [1, 3])
def test_distances_are_exact(slots: int) -> None:
    source, target, weight = drawn()
    loads = workloads(of_edges(N, source, target, weight), Distances(), slots, eps=0.0)
    run(loads)
    least: dict[tuple[int, int], float] = {}
    for s, t, w in zip(source.tolist(), target.tolist(), weight.tolist(), strict=True):
        least[s, t] = min(w, least.get((s, t), np.inf))
    pairs = np.array(list(least))
    graph = sp.csr_matrix((list(least.values()), (pairs[:, 0], pairs[:, 1])), (N, N))
    assert (gathered(loads) == dijkstra(graph, indices=3)).all()


def test_a_snapshot_has_the_whole_state() -> None:
    """Law: slots that load what others had at some moment, with empty channels, come to the same.
    """
    source, target, weight = drawn()
    graph = of_edges(N, source, target, weight)
    loads, saved = workloads(graph, Distances(), 3, eps=0.0), []
    for load in loads:
        for _ in range(3):
            load.compute()
        saved.append({name: array.copy() for name, array in load.arrays().items()})
    run(loads)
    others = workloads(graph, Distances(), 3, eps=0.0)
    for other, arrays in zip(others, saved, strict=True):
        for array in arrays.values():
            array.flags.writeable = False
        other.load(arrays)
    run(others, seed=2)
    assert (gathered(others) == gathered(loads)).all()


@pytest.mark.parametrize("program", [PageRank, Distances])
def test_survivors_go_on_from_any_values(program: type[DeltaProgram]) -> None:
    """Law: one slot begins anew and the others keep their values; the result is as ever."""
    source, target, weight = drawn()
    graph = of_edges(N, source, target, weight)
    undisturbed = workloads(graph, program(), 3, eps=1e-13)
    run(undisturbed)
    loads, rounds = workloads(graph, program(), 3, eps=1e-13), 0

    def stop() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 25:
            raise StopIteration

    with pytest.raises(StopIteration):
        run(loads, each=stop)
    values = [load.value.copy() for load in loads]
    again = workloads(graph, program(), 3, eps=1e-13)
    for load, value in zip(again[1:], values[1:], strict=True):
        load.begin_from(value)
    again[0].begin_from(again[0].value.copy())
    run(again, seed=5)
    differ = abs(gathered(again) - gathered(undisturbed))
    assert np.nan_to_num(differ).max() <= (0 if program is Distances else 1e-9)


def test_messages_wait_for_their_portion() -> None:
    """Law: messages leave when enough of a slot's vertices have one, after a time, or at the end.
    """
    source, target, _ = drawn()
    now = [0.0]
    load = workloads(of_edges(N, source, target), PageRank(), 2, eps=1e-3, portion=1.0,
                     send_portion=2.0, send_seconds=1.0, clock=lambda: now[0])[0]
    sent: list[bytes] = []

    def append(to: int, data: Any) -> bool:
        sent.append(bytes(data))
        return True

    load.compute()
    load.send(append)
    assert not sent
    now[0] = 1.0
    load.send(append)
    assert len(sent) == 1
    while load.compute():
        pass
    load.send(append)
    assert len(sent) == 2
    assert load.passive()


class Subtracts(PageRank):
    accumulate = np.subtract


class ZeroOfMinimum(Distances):
    zero = 0.0


class Grows(PageRank):
    def send(self, v: Any, delta: AnyArray) -> AnyArray:
        return 1.5 * delta


class NotLinear(PageRank):
    linear = False


@pytest.mark.parametrize("program, recovery, words", [
    (Subtracts(), "all", "not commutative"),
    (ZeroOfMinimum(), "all", "zero 0.0 is none of minimum"),
    (NotLinear(), "survivors", "not declared linear"),
    (Received(), "survivors", "receive"),
    (PageRank(), "some", "give \"all\" or \"survivors\""),
])
def test_programs_that_are_none(program: DeltaProgram, recovery: str, words: str) -> None:
    with pytest.raises(WrongProgram, match=words):
        check_program(program, recovery)


def test_weights_that_are_forbidden() -> None:
    graph = of_edges(2, [0], [1], [-1.0])
    part = graph.part(Partition("hash", 2, 1), 0)
    with pytest.raises(WrongProgram, match=r"weight -1\.0"):
        check_weights(Distances(), part, "edges")
    bare = of_edges(2, [0], [1]).part(Partition("hash", 2, 1), 0)
    with pytest.raises(WrongProgram, match="has none"):
        check_weights(Distances(), bare, "edges")


@pytest.mark.parametrize("eps", [-1.0, np.nan, np.inf, 1e-18])
def test_bounds_that_cannot_be_reached(eps: float) -> None:
    with pytest.raises(WrongProgram, match="eps"):
        check_eps(PageRank(), eps, np.full(3, BEGIN))


def test_deltas_that_do_not_shrink_are_told() -> None:
    source, target, _ = drawn()
    loads = workloads(of_edges(N, source, target), Grows(), 2, eps=1e-6, most_updates=5000)
    with pytest.raises(Diverged, match="do not shrink"):
        run(loads)


def test_a_message_that_is_no_number_is_told() -> None:
    class Divides(PageRank):
        def send(self, v: Any, delta: AnyArray) -> AnyArray:
            return 0 * delta / (v.degree - v.degree)

    source, target, _ = drawn()
    loads = workloads(of_edges(N, source, target), Divides(), 1, eps=1e-6)
    with pytest.raises(Diverged, match="is NaN"), np.errstate(all="ignore"):
        run(loads)
