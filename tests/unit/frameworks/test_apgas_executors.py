"""Executors, in real processes: a death at each place of the loop leaves the result as it is.

A small application has a field that is saved at first, one that is saved each time, one that is
saved now and then, and one that one place has alone. Its oracle is a loop in one process; results
have equal bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from placeprograms import Kill, run_program

from ftrma import apgas
from ftrma.frameworks.apgas.localrun import runs
from ftrma.frameworks.apgas.team import TeamRevoked

pytestmark = pytest.mark.plain
PLACES, STEPS, EVERY = 4, 23, 4


def begin(ordinal: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(ordinal)
    return rng.random(5), rng.random(5)


def step(x: Any, c: Any, total: Any) -> Any:
    return np.sin(c + 0.1 * total) + x


class Small(apgas.SPMDIterativeApp):
    """Each place mixes its vector with the sum of all."""

    def __init__(self) -> None:
        self.ordinal = apgas.group().index_of(apgas.here())
        self.x, self.c = begin(self.ordinal)
        self.i, self.d, self.e = 0, np.zeros(1), 0

    def is_finished_local(self) -> bool:
        return self.i == STEPS

    def step_local(self, team: Any) -> None:
        self.c = step(self.x, self.c, team.allreduce(self.c))
        self.i += 1
        if self.i % (2 * EVERY) == 0:
            self.d = self.d + self.c[:1]
        self.e += self.i

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        saved = {"c": self.c, "i": self.i}
        if first:
            saved["x"] = self.x
        if first or self.i % (2 * EVERY) == 0:
            saved["d"] = self.d
        if self.ordinal == 1:
            saved["e"] = self.e
        return saved

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        if self.ordinal != 1:
            self.e = sum(range(self.i + 1))

    def result(self) -> tuple[bytes, bytes, int]:
        return self.c.tobytes(), self.d.tobytes(), self.e


class Global(apgas.IterativeApp):
    """The steps of `Small`, driven by one place."""

    def __init__(self) -> None:
        self.x, self.c = begin(apgas.group().index_of(apgas.here()))
        self.i = 0

    def is_finished(self) -> bool:
        return self.i == STEPS

    def step(self) -> None:
        total = 0.0
        for part in self.everywhere("part"):
            total = total + part
        self.everywhere("mix", total)
        self.i += 1

    def part(self) -> Any:
        return self.c

    def mix(self, total: Any) -> None:
        self.c = step(self.x, self.c, total)

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        return {"c": self.c, "i": self.i} | ({"x": self.x} if first else {})

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)


def oracle() -> list[tuple[bytes, bytes, int]]:
    xs, cs = map(list, zip(*map(begin, range(PLACES)), strict=True))
    ds = [np.zeros(1)] * PLACES
    for i in range(1, STEPS + 1):
        total = cs[0]
        for c in cs[1:]:
            total = total + c
        cs = [step(x, c, total) for x, c in zip(xs, cs, strict=True)]
        if i % (2 * EVERY) == 0:
            ds = [d + c[:1] for d, c in zip(ds, cs, strict=True)]
    return [(c.tobytes(), d.tobytes(), sum(range(STEPS + 1))) for c, d in zip(cs, ds, strict=True)]


def local_result() -> Any:
    (run,) = runs().by_name.values()
    return run.app.result() if hasattr(run.app, "result") else run.app.c.tobytes()


def run_small(implicit: bool = False) -> Any:
    manager = apgas.PlaceManager()
    executor = apgas.SPMDIterativeExecutor(manager, EVERY, implicit_step_synchronization=implicit)
    executor.run(Small)
    return [apgas.at(place, local_result) for place in apgas.group()], executor.statistics


def test_without_a_death() -> None:
    """Law: checkpoints come after each four steps, but for the last ones."""
    found, statistics = run_program(PLACES, run_small)
    assert found == oracle()
    assert (statistics.steps, statistics.checkpoints) == (STEPS, 5)
    assert not statistics.recoveries and 0 < statistics.first_checkpoint_s < statistics.total_s


def test_without_barriers_between_steps() -> None:
    assert run_program(PLACES, lambda: run_small(True))[0] == oracle()


POINTS = {"apgas.step": 7, "apgas.team": 21, "apgas.checkpoint": 3}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("victim", (1, 2, 3))
def test_one_death(point: str, victim: int) -> None:
    """Law: the result has the bits of a run without a death; at most four steps are done again."""
    found, statistics = run_program(PLACES, run_small, spares=1,
                                    kills=[(victim, point, POINTS[point])])
    assert found == oracle()
    assert statistics.failures == 1
    assert all(recovery.redone_steps <= EVERY for recovery in statistics.recoveries)


SECOND = {"apgas.remake": 1, "apgas.restore": 1}


@pytest.mark.full
@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("victim", (3, pytest.param(4, marks=pytest.mark.nightly)))
def test_a_second_death_in_the_recovery(first: str, second: str, victim: int) -> None:
    """Law: a death during the recovery from another one, of the place that came or of one that
    stayed, begins it again."""
    kills: list[Kill] = [(1, first, POINTS[first]), (victim, second, SECOND[second])]
    found, statistics = run_program(PLACES, run_small, spares=2, kills=kills)
    assert found == oracle()
    assert statistics.failures == 2


def test_many_deaths() -> None:
    """Law: one after the other, as many as there are reserves."""
    kills: list[Kill] = [(1, "apgas.step", 3), (4, "apgas.step", 6), (5, "apgas.checkpoint", 1),
                         (2, "apgas.step", 19)]
    found, statistics = run_program(PLACES, run_small, spares=4, kills=kills)
    assert found == oracle()
    assert statistics.failures == 4


class Begins(Small):
    """`Small`, which says at its end how often it has made the data of a run that begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def begin_local(self) -> None:
        self.begun += 1

    def result_local(self) -> tuple[int, int]:
        return apgas.here(), self.begun


@pytest.mark.parametrize("again", [False, True])
def test_data_are_made_where_a_run_begins(tmp_path: Path, again: bool) -> None:
    """Law: neither a place that replaces a dead one makes them, nor any place of a run that goes on
    from a file; the results are those of the places that are active at the end."""
    def main() -> Any:
        for _ in range(1 + again):
            executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(), EVERY,
                                                   file=tmp_path / "run.npz")
            executor.run(Begins)
        return executor.results

    made = int(not again)
    assert run_program(PLACES, main, spares=1, kills=[(2, "apgas.step", 7)]) == [
        (0, made), (1, made), (4, 0), (3, made)]


def run_global() -> Any:
    executor = apgas.IterativeExecutor(apgas.PlaceManager(), EVERY)
    executor.run(Global)
    return [apgas.at(place, local_result) for place in apgas.group()]


@pytest.mark.parametrize("kills", ((), ((2, "apgas.checkpoint", 3),), ((1, "apgas.restore", 1),
                                                                       (3, "apgas.checkpoint", 2))))
def test_the_global_executor(kills: tuple[Kill, ...]) -> None:
    found = run_program(PLACES, run_global, spares=2, kills=kills)
    assert found == [c for c, _, _ in oracle()]


class Sum(apgas.SPMDIterativeApp):
    """Counts its numbers in each step; a place takes over the numbers of one that is lost."""

    def __init__(self) -> None:
        self.numbers, self.total, self.i = [apgas.here()], 0, 0

    def is_finished_local(self) -> bool:
        return self.i == STEPS

    def step_local(self, team: Any) -> None:
        self.total += team.allreduce(sum(self.numbers))
        self.i += 1

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        return {"total": self.total, "i": self.i} | ({"numbers": self.numbers} if first else {})

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)

    def adopt_local(self, saved: dict[str, Any]) -> None:
        self.numbers = self.numbers + saved["numbers"]


@pytest.mark.parametrize("kills", ([(2, "apgas.step", 6)],
                                   [(1, "apgas.step", 6), (2, "apgas.step", 14)],
                                   [(1, "apgas.step", 6), (2, "apgas.restore", 1)],
                                   [(3, "apgas.checkpoint", 2), (1, "apgas.checkpoint", 6)]))
def test_shrinking(kills: list[Kill]) -> None:
    """Law: survivors take over what a lost place had saved, once, and go on with fewer."""
    def main() -> Any:
        executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(allow_shrinking=True), EVERY)
        return executor.run(Sum).total, len(apgas.group())

    assert run_program(PLACES, main, kills=kills) == (6 * STEPS, PLACES - len(kills))


class Late(apgas.PlaceManager):
    """Has no reserves before the group has shrunk: they come later, as by `apgas.add_places`."""

    came = False

    def reserves(self) -> tuple[int, ...]:
        return super().reserves() if self.came else ()

    def rebuild_active_places(self) -> apgas.ChangeDescription:
        changes = super().rebuild_active_places()
        self.came = self.came or bool(changes.shrunk)
        return changes


@pytest.mark.parametrize("victim", (2, 3))
def test_a_reserve_that_comes_when_the_group_has_shrunk(victim: int) -> None:
    """Law: it goes on with what the place has saved that it replaces, and not with the shelf of the
    place that was left out, of which nothing is saved any more."""
    def main() -> Any:
        executor = apgas.SPMDIterativeExecutor(Late(allow_shrinking=True), EVERY)
        return executor.run(Sum).total, tuple(apgas.group())

    kills: list[Kill] = [(1, "apgas.step", 6), (victim, "apgas.step", 14)]
    group = tuple(4 if place == victim else place for place in (0, 2, 3))
    assert run_program(PLACES, main, spares=1, kills=kills) == (6 * STEPS, group)


def test_no_reserve_is_left() -> None:
    def main() -> Any:
        with pytest.raises(apgas.NotEnoughPlaces, match="--spares"):
            run_small()

    run_program(PLACES, main, kills=[(2, "apgas.step", 6)])


def test_an_application_that_cannot_shrink() -> None:
    def main() -> Any:
        executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(allow_shrinking=True), EVERY)
        with pytest.raises(apgas.MultipleExceptions, match="adopt_local"):
            executor.run(Small)

    run_program(PLACES, main, kills=[(2, "apgas.step", 6)])


def test_a_death_before_the_first_checkpoint() -> None:
    """Law: nothing is lost but time: all make their objects again."""
    kills: list[Kill] = [(1, "apgas.checkpoint", 1), (4, "apgas.checkpoint", 1)]
    found, _ = run_program(PLACES, run_small, spares=2, kills=kills)
    assert found == oracle()


def test_several_runs() -> None:
    """Law: each run has its own checkpoints, also behind a death in the one before."""
    def main() -> Any:
        manager = apgas.PlaceManager()
        first = apgas.SPMDIterativeExecutor(manager, EVERY).run(Small).i
        return first, apgas.SPMDIterativeExecutor(apgas.PlaceManager(), EVERY).run(Sum).total

    total = 1 + 2 + 0 + 3
    assert run_program(PLACES, main) == (STEPS, total * STEPS)
    found = run_program(PLACES, main, spares=1, kills=[(2, "apgas.step", STEPS)])
    assert found == (STEPS, (total - 2 + 4) * STEPS)


class Failing(Small):
    """Raises at one place."""

    def step_local(self, team: Any) -> None:
        if self.i == 6 and self.ordinal == 2:
            raise ValueError("no step 6")
        super().step_local(team)


def test_an_error_of_the_application() -> None:
    """Law: it is not retried, and the other places do not wait for the one that raised."""
    def main() -> Any:
        with pytest.raises(apgas.MultipleExceptions) as raised:
            apgas.SPMDIterativeExecutor(apgas.PlaceManager(), EVERY).run(Failing)
        assert [str(e) for e in raised.value.of_type(ValueError)] == ["no step 6"]
        return {str(e) for e in raised.value.of_type(TeamRevoked)}

    assert run_program(PLACES, main) == {"place 2 has left the team: ValueError: no step 6"}


class Uneven(Small):
    """One place is finished before the others."""

    def is_finished_local(self) -> bool:
        return self.i == (6 if self.ordinal == 1 else STEPS)


@pytest.mark.parametrize("implicit", (False, True))
def test_places_that_are_finished_at_different_steps(implicit: bool) -> None:
    def main() -> Any:
        executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(), EVERY,
                                               implicit_step_synchronization=implicit)
        with pytest.raises(apgas.MultipleExceptions):
            executor.run(Uneven)

    run_program(PLACES, main)
