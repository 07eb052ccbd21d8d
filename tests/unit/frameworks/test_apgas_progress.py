"""An executor as users see it: steps, their rate, and who takes the part of a dead place."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from placeprograms import run_program

from ftrma import apgas, framework
from ftrma.frameworks.apgas import progress
from ftrma.frameworks.apgas.placemanager import replacements


class Counter(apgas.SPMDIterativeApp, apgas.IterativeApp):
    """Counts steps, by both executors."""

    def __init__(self, last: int) -> None:
        self.i, self.last = 0, last

    def is_finished_local(self) -> bool:
        return self.i == self.last

    def step_local(self, team: Any) -> None:
        self.i += 1

    def is_finished(self) -> bool:
        return self.i == self.last

    def step(self) -> None:
        self.everywhere("step_local", None)

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        return {"i": self.i}

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)


@pytest.mark.plain
@pytest.mark.parametrize("kind", [apgas.SPMDIterativeExecutor, apgas.IterativeExecutor])
def test_steps_are_counted(kind: Any) -> None:
    """Law: the root's count goes up by one a step, goes back with the run after a death, and a
    later run's steps come on top."""
    def main() -> list[int]:
        seen: list[int] = []
        framework.count_step = seen.append
        manager = apgas.PlaceManager()
        kind(manager, checkpoint=2).run(Counter, 5)
        kind(manager, checkpoint=9).run(Counter, 3)
        return seen

    quiet = run_program(2, main)
    assert quiet == [*range(1, 6), *range(6, 9)]
    point = "apgas.step" if kind is apgas.SPMDIterativeExecutor else "apgas.admit"
    nth = 4 if kind is apgas.SPMDIterativeExecutor else 12
    seen = run_program(3, main, spares=1, kills=[(2, point, nth)])
    back = [a for a, b in itertools.pairwise(seen) if b <= a]
    assert len(back) <= 1 and seen[-4:] == [5, 6, 7, 8] and set(seen) == set(range(1, 9))


def test_people_are_told_now_and_then(monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    """Law: a line each half second at most, with the steps that were taken since the last one."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told = progress.Progress("run 3")
    for step in (1, 2, 3, 2, 3, 4):  # it goes back once
        now[0] += 0.2
        told.tell(step)
    assert capsys.readouterr().err.splitlines() == [
        "apgas: run 3, step 3, 5 steps/s", "apgas: run 3, step 4, 5 steps/s"]


@pytest.mark.plain
def test_an_executor_tells_people_if_they_want_it(capfd: pytest.CaptureFixture[str]) -> None:
    """Law: `progress=True` tells, and without it nothing is told."""
    def main(wanted: bool) -> None:
        progress.PROGRESS_S = 0.0
        apgas.SPMDIterativeExecutor(apgas.PlaceManager(), progress=wanted).run(Counter, 3)

    run_program(2, lambda: main(True))
    lines = capfd.readouterr().err.splitlines()
    assert [line.rsplit(",", 1)[0] for line in lines] == [
        f"apgas: run 0, step {i}" for i in (1, 2, 3)]
    run_program(2, lambda: main(False))
    assert capfd.readouterr().err == ""


def test_replacements_are_told() -> None:
    """Law: a line for each dead place says who takes its part, or that nobody does."""
    assert list(replacements((1, 2), (5,), 3)) == [
        "place 5 replaces place 1", "no reserve replaces place 2; 3 places left"]
    assert list(replacements((1,), (), 1)) == ["no reserve replaces place 1; 1 place left"]
    assert list(replacements((), (), 4)) == []


@pytest.mark.plain
def test_a_death_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Law: the replacement of a dead place is one line, at the place that runs main()."""
    run_program(3, lambda: apgas.SPMDIterativeExecutor(apgas.PlaceManager()).run(Counter, 6),
                spares=1, kills=[(1, "apgas.step", 3)])
    assert capfd.readouterr().err.splitlines() == ["apgas: place 3 replaces place 1"]
