"""Matrix completion: each column is at one place, a snapshot is exact, errors reach the noise."""

from __future__ import annotations

import copy
from collections import Counter, deque
from itertools import pairwise
from typing import Any

import aicsim
import numpy as np
import pytest

from ftrma.frameworks.aic.completion import MatrixCompletion
from ftrma.frameworks.aic.completion_workload import HEAD, CompletionWorkload, Rules, Tokens
from ftrma.frameworks.aic.ending import Reason
from ftrma.frameworks.aic.kinds import Floats
from ftrma.frameworks.aic.matrices import Known, known_entries, planted
from ftrma.frameworks.aic.snapshots import LOG, unpack
from ftrma.frameworks.aic.worker import HELD

RULES = Rules(rank=5, regularization=0.001, step=0.03, decay=0.01, epochs=30, rmse=0.0, seed=3,
              owner="random")


class Slots:
    """Workloads in one process, and the records between them; a number draws who does what next."""

    def __init__(self, known: Known, size: int, rules: Rules, seed: int) -> None:
        self.known, self.size, self.rules = known, size, rules
        self.random = np.random.default_rng(seed)
        self.slots = [CompletionWorkload(rules, known.share(me, size), me, size, 800)
                      for me in range(size)]
        self.channels: dict[tuple[int, int], deque[bytes]] = {
            (a, b): deque() for a in range(size) for b in range(size) if a != b}

    def turn(self) -> None:
        """Let one slot do one thing."""
        me, what = (int(self.random.integers(most)) for most in (self.size, 3))
        slot = self.slots[me]
        if what == 0:
            slot.compute()
        elif what == 1:
            slot.send(lambda to, data: self.append(me, to, data))
        else:
            full = [pair for pair, records in self.channels.items() if pair[1] == me and records]
            if full:
                pair = full[int(self.random.integers(len(full)))]
                slot.receive(pair[0], memoryview(self.channels[pair].popleft()))

    def append(self, me: int, to: int, data: Any) -> bool:
        if self.random.random() < 0.2:
            return False  # no room
        record = bytes(np.ascontiguousarray(data))
        assert 0 < len(record) <= 800
        self.channels[me, to].append(record)
        return True

    def tokens(self) -> Floats:
        """All tokens, wherever they are."""
        flying = [np.frombuffer(record).reshape(-1, self.rules.rank + HEAD)
                  for records in self.channels.values() for record in records]
        return np.concatenate([*(slot.columns() for slot in self.slots), *flying])

    def over(self) -> bool:
        return all(slot.passive() for slot in self.slots) and not any(self.channels.values())

    def run(self) -> None:
        for _ in range(10**6):
            if self.over():
                return
            self.turn()
        raise AssertionError("no end")

    def restored(self) -> Slots:
        """Fresh slots with the state of these, the records between them, and equal chance."""
        other = Slots(self.known, self.size, self.rules, 0)
        other.random = copy.deepcopy(self.random)
        other.channels = copy.deepcopy(self.channels)
        for mine, theirs in zip(self.slots, other.slots, strict=True):
            arrays = {name: array.copy() for name, array in mine.arrays().items()}
            for array in arrays.values():
                array.flags.writeable = False
            theirs.load(arrays)
        return other

    def state(self) -> list[dict[str, bytes]]:
        return [{name: array.tobytes() for name, array in slot.arrays().items()}
                for slot in self.slots]


def small(seed: int, n: int = 80, m: int = 30) -> Known:
    return known_entries(*planted(n, m, 3, density=0.4, seed=seed), (n, m))


@pytest.mark.parametrize("owner", ["random", "ring"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_each_column_is_at_one_place(size: int, owner: str) -> None:
    """Law: at any time each column is there once, and at the end it has had all its visits."""
    known = small(seed=size)
    rules = Rules(**{**vars(RULES), "owner": owner, "epochs": 4})
    slots = Slots(known, size, rules, seed=10 * size)
    while not slots.over():
        assert sorted(slots.tokens()[:, 0]) == [*range(30)]
        slots.turn()
    tokens = slots.tokens()
    assert (tokens[:, 1] == 4 * size).all()
    assert sum(slot.visits for slot in slots.slots) == 30 * 4 * size
    if owner == "ring":
        assert sum(slot.updates for slot in slots.slots) == 4 * len(known.rows)


def test_a_snapshot_is_exact() -> None:
    """Law: slots that have loaded a state go on as those from which it is, bit by bit."""
    slots = Slots(small(seed=1), 4, Rules(**{**vars(RULES), "epochs": 3}), seed=2)
    finished = 0
    while not slots.over():
        finished = max(finished, len(slots.slots[0].finished))
        other = slots.restored()
        assert other.state() == slots.state()
        for _ in range(100):
            slots.turn()
            other.turn()
        assert other.state() == slots.state()
        assert (other.tokens() == slots.tokens()).all()
        for _ in range(40):
            slots.turn()
    assert finished  # some states have columns that stay


@pytest.mark.plain
@pytest.mark.parametrize("size", [1, 4])
def test_the_error_reaches_the_noise(size: int) -> None:
    """Law: of a planted matrix the errors become as small as the noise, on all slots together."""
    matrix = planted(1000, 200, 5, seed=1)
    known = known_entries(*matrix, matrix.shape)
    slots = Slots(known, size, RULES, seed=size)
    slots.run()
    squares = sum(slot.status()[0] for slot in slots.slots)
    assert np.sqrt(squares / len(known.rows)) < 0.1  # as many factors as entries make it smaller
    statuses = np.array([slot.status() for slot in slots.slots])
    assert statuses[:, 1].sum() == len(known.rows)
    reached = CompletionWorkload(Rules(**{**vars(RULES), "rmse": 0.1}), known.share(0, 1), 0, 1)
    assert reached.ended(statuses) and not slots.slots[0].ended(statuses)
    assert not reached.ended(np.where([[True]], np.nan, statuses))


@pytest.mark.plain
def test_the_size_of_the_paper() -> None:
    """Law: a matrix of 10,000 x 200 and rank 20 gets to an error of 0.105, with noise of 0.1."""
    matrix = planted(10_000, 200, 20, seed=1)
    model = MatrixCompletion(20, rmse=0.105).fit(*matrix, shape=matrix.shape)
    assert model.rmse_ <= 0.105
    assert -model.score(*matrix.held_out) < 0.14  # 20 factors of about 60 entries each


def test_slots_have_about_as_many_entries_each() -> None:
    """Law: blocks of rows are as even as rows allow, cover all, and know all columns."""
    random = np.random.default_rng(1)
    rows = np.minimum(random.pareto(1, 5000).astype(int), 99)
    known = known_entries(rows, random.integers(0, 9, 5000), random.random(5000), (120, 11))
    most = int(np.bincount(rows).max())
    for size in (1, 2, 3, 7, 130):
        shares = [known.share(me, size) for me in range(size)]
        assert [shares[0].first, shares[-1].last] == [0, 120]
        assert all(a.last == b.first for a, b in pairwise(shares))
        counts = [int(share.entries.ptr[-1]) for share in shares]
        assert sum(counts) == 5000 and max(counts) <= 5000 / size + most
        assert all([*share.wanted] == [*range(9)] for share in shares)


def test_factors_begin_the_same_on_any_slot() -> None:
    """Law: the first factors of a row do not depend on the block that it is in."""
    all_rows = RULES.first_rows(0, 9000)
    for first, last in ((0, 1), (4095, 4097), (5000, 5000), (4096, 8192), (100, 9000)):
        assert (RULES.first_rows(first, last) == all_rows[first:last]).all()


def test_tokens_are_a_queue() -> None:
    """Law: tokens leave in the order in which they came."""
    random, queue, reference = np.random.default_rng(1), Tokens(3), np.empty((0, 3))
    for _ in range(300):
        if random.random() < 0.5:
            some = random.random((int(random.integers(0, 30)), 3))
            queue.add(some)
            reference = np.concatenate([reference, some])
        else:
            count = int(random.integers(0, len(queue) + 1))
            queue.drop(count)
            reference = reference[count:]
        assert len(queue) == len(reference) and (queue.rows == reference).all()


# ---- the model ----------------------------------------------------------------------------------


def test_the_unit_of_the_values_does_not_matter() -> None:
    """Law: the model of values in another unit, from another zero, is the same but for these."""
    matrix = planted(200, 50, 3, seed=5)
    plain = MatrixCompletion(3, epochs=20).fit(*matrix)
    other = MatrixCompletion(3, epochs=20).fit(matrix.rows, matrix.cols, 1000 * matrix.values - 50)
    assert np.allclose(other.predict(*matrix.held_out[:2]),
                       1000 * plain.predict(*matrix.held_out[:2]) - 50)
    assert np.isclose(other.rmse_, 1000 * plain.rmse_)


def test_biases_help_where_there_are_some() -> None:
    """Law: rows and columns that are above the mean are found to be, and predicted so."""
    random = np.random.default_rng(1)
    matrix = planted(200, 60, 2, density=0.2, seed=1)
    above = random.normal(0, 2, 200), random.normal(0, 2, 60)
    values = matrix.values / 10 + above[0][matrix.rows] + above[1][matrix.cols]
    held = (*matrix.held_out[:2], matrix.held_out[2] / 10 + above[0][matrix.held_out[0]]
            + above[1][matrix.held_out[1]])
    plain, model = (MatrixCompletion(2, biases=biases, regularization=0.05, epochs=20).fit(
        matrix.rows, matrix.cols, values) for biases in (False, True))
    assert model.score(*held) > 0.5 * plain.score(*held)
    assert np.corrcoef(model.row_biases_, above[0])[0, 1] > 0.95
    assert not plain.row_biases_.any() and not plain.column_biases_.any()


def test_it_is_the_same_each_time_on_one_slot() -> None:
    """Law: equal parameters and entries give equal factors; another seed gives others."""
    matrix = planted(100, 40, 3, seed=5)
    first, again, other = (MatrixCompletion(3, epochs=5, seed=seed).fit(*matrix)
                           for seed in (1, 1, 2))
    assert (first.row_factors_ == again.row_factors_).all()
    assert (first.column_factors_ != other.column_factors_).all()


def test_rows_and_columns_without_entries() -> None:
    """Law: of these the mean is predicted."""
    model = MatrixCompletion(2, epochs=3).fit([0, 2], [1, 4], [1.0, 3.0], shape=(4, 6))
    assert (model.predict([1, 3, 0], [1, 4, 0]) == 2.0).all()
    assert model.row_factors_.shape == (4, 2) and model.column_factors_.shape == (6, 2)
    constant = MatrixCompletion(2, epochs=3).fit([0, 1], [0, 1], [7, 7])
    assert np.allclose(constant.predict([0], [1]), 7, atol=0.1)


def test_it_has_the_habits_of_scikit_learn() -> None:
    """Law: parameters are kept as they are given, are set by name, and make an equal model."""
    snapshot = object()
    model = MatrixCompletion(rank=7, step=0.02, snapshot=snapshot)
    params = model.get_params(deep=False)
    assert params["rank"] == 7 and params["snapshot"] is snapshot
    other = MatrixCompletion(**params)
    assert all(other.get_params()[name] is value for name, value in params.items())
    assert other.set_params(rank=3, owner="ring") is other and other.rank == 3
    with pytest.raises(ValueError, match="no parameter 'alpha'; it has rank, "):
        other.set_params(alpha=1)
    assert repr(MatrixCompletion(rank=3, rmse=0.1)) == "MatrixCompletion(rank=3, rmse=0.1)"
    assert not [name for name in vars(model) if name.endswith("_")]  # nothing before fit


@pytest.mark.parametrize(("entries", "shape", "message"), [
    (([0], [0, 1], [1.0]), None, "1 rows, 2 columns and 1 values: give one of each"),
    (([0], [0], [1.0, 2.0]), None, "1 rows, 1 columns and 2 values"),
    (([], [], []), None, "no entries; give one"),
    (([0, 1], [0, 1], [1.0, np.nan]), None, r"values\[1\] = nan; leave out what is not known"),
    (([0, 1], [0, 1], [-np.inf, 1.0]), None, r"values\[0\] = -inf; leave out"),
    (([0, 3], [0, 1], [1, 2]), (3, 3), "entry 1 is row 3, column 1 of a matrix of 3 rows and"),
    (([0, -1], [0, 1], [1, 2]), None, "entry 1 is row -1, .* as np.unique"),
    (([0], [2**40], [1]), None, "give ids from 0 on, as np.unique"),
    (([0], [0], [1]), (0, 1), "shape=0: give a whole number from 1"),
    (([0], [0], [1]), (1, 2, 3), r"shape=\(1, 2, 3\): give the numbers of rows and of columns"),
    (([[0]], [0], [1]), None, r"rows has the shape \(1, 1\); give one for each entry"),
])
def test_bad_entries(entries: tuple[Any, Any, Any], shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MatrixCompletion().fit(*entries, shape=shape)


@pytest.mark.parametrize(("entries", "message"), [
    (([0.5], [0], [1]), "rows is of float64; give integers, counted from 0"),
    (([0], ["a"], [1]), "cols is of <U1; give integers"),
    (([0], [0], [1j]), "values are of complex128; give real numbers"),
])
def test_entries_of_other_types(entries: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        MatrixCompletion().fit(*entries)


@pytest.mark.parametrize(("params", "message"), [
    ({"rank": 0}, "rank=0: give a whole number from 1 to"),
    ({"rank": 2.5}, "rank=2.5: give a whole number"),
    ({"step": 0}, "step=0: give a finite number, above 0"),
    ({"step": np.nan}, "step=nan: give a finite number, above 0"),
    ({"decay": -1}, "decay=-1: give a finite number, at least 0"),
    ({"regularization": "much"}, "regularization='much': give a finite number, at least 0"),
    ({"rmse": 0.0}, "rmse=0.0: give a finite number, above 0"),
    ({"epochs": 0}, "epochs=0: give a whole number from 1"),
    ({"seed": -1}, "seed=-1: give a whole number from 0"),
    ({"owner": "next"}, "owner='next': give \"random\" or \"ring\""),
    ({"step": 2.0}, "step=2: the errors grow without bound; give a smaller step, 0.67 say"),
])
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MatrixCompletion(**params).fit(*planted(60, 20, 3))


def test_bad_predictions() -> None:
    with pytest.raises(ValueError, match="not fitted yet; call fit"):
        MatrixCompletion().predict([0], [0])
    with pytest.raises(ValueError, match="not fitted yet; call fit"):
        MatrixCompletion().score([0], [0], [1])
    model = MatrixCompletion(2, epochs=1).fit([0, 1], [0, 1], [1, 2])
    with pytest.raises(ValueError, match="predict: entry 0 is row 2, column 0 of a matrix"):
        model.predict([2], [0])
    with pytest.raises(ValueError, match="predict: 1 rows and 2 columns"):
        model.predict([0], [0, 1])
    with pytest.raises(ValueError, match="score: 1 entries and 2 values"):
        model.score([0], [0], [1, 2])
    with pytest.raises(ValueError, match="score: no entries"):
        model.score([], [], [])


def test_an_error_that_is_not_reached_is_told() -> None:
    with pytest.warns(UserWarning, match="rmse 0.01 was not reached: it is .* after 2 epochs"):
        MatrixCompletion(2, epochs=2, rmse=0.01).fit(*planted(60, 20, 3))


@pytest.mark.parametrize("bad", [{"n": 0}, {"density": 0}, {"density": 1.5}, {"noise": -1.0}])
def test_bad_plans(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give a"):
        planted(**{"n": 5, "m": 5, **bad})


# ---- under the worker, with snapshots and deaths ------------------------------------------------


class Simulated(CompletionWorkload):
    """A slot of a small completion in a simulation, with the law that its snapshots keep."""

    known = small(seed=9, n=12, m=7)

    def __init__(self, sim: aicsim.Simulation, me: int) -> None:
        endless = sim.visits > 1000
        rules = Rules(**{**vars(RULES), "rank": 2, "epochs": 10**6 if endless else 6,
                         "rmse": 0.9 if endless else 0.0})
        super().__init__(rules, self.known.share(me, sim.slots), me, sim.slots, 64, work=5)

    def law(self, parts: list[dict[str, Any]]) -> str:
        """Say what is wrong with a snapshot; empty if nothing is."""
        found = []
        for part in parts:
            found += [part["queue"], part["packed"], part["finished"]]
            found += [np.frombuffer(data).reshape(-1, self.width)
                      for name in (LOG, HELD) if name in part for _, data in unpack(part[name])]
        columns = sorted(np.concatenate(found)[:, 0])
        return "" if columns == [*range(7)] else f"columns {columns}"


class CompletionSimulation(aicsim.Simulation):
    def _enter(self) -> None:
        self.make = Simulated
        super()._enter()


@pytest.mark.plain
@pytest.mark.parametrize("mode", aicsim.MODES)
def test_snapshots_have_each_column_once(mode: str) -> None:
    """Law: every committed snapshot has each column exactly once; so has the end, however many
    processes die; columns that have had all their visits end a run."""
    counts: Counter[str] = Counter()
    for seed in range(16):
        sim = CompletionSimulation(seed, mode)
        sim.run()
        counts.update(sim.counts)
        tokens = np.concatenate([workload.columns() for workload in sim.workloads])
        assert sorted(tokens[:, 0]) == [*range(7)]
        if sim.workers[0].reason == Reason.QUIESCENT:
            assert (tokens[:, 1] == 6 * sim.slots).all()
            counts["quiescent"] += 1
    assert 0 < counts["quiescent"] < 16
    assert mode == "none" or counts["committed"] > 8
    assert [name for name in counts if name.startswith("death at ")]
