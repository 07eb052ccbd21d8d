"""The resilient finish, as it is, with places that stop and die between any two loads or stores.

Programs and laws are those of `test_apgas_random`; the places are threads that take turns, one step
at a time (`apgassim`). Rules of the finish are left out in turn, and some law must fail then. Cases
for quarantine are in `test_apgas_finish`: they need more finishes than a random program has.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from apgassim import Simulation, SimWords
from placeprocesses import Ended

from ftrma import apgas, framework
from ftrma.frameworks.apgas import finish, scopes
from ftrma.frameworks.apgas.records import Records
from ftrma.frameworks.apgas.runtime import current

random_programs = importlib.import_module(__package__ + ".test_apgas_random" if __package__
                                          else "test_apgas_random")
PLACES, SEED = random_programs.PLACES, random_programs.SEED


class SimProgram(random_programs.Program):  # type: ignore[name-defined,misc]
    """A random program, whose notes have the number of the step."""

    def play(self, seed: int) -> list[Any]:
        random_programs.program = self
        self.found: dict[tuple[int, int], tuple[int, int]] = {}
        self.kills = {place: self.rng.randint(5, 200) for place in self.kills}
        self.simulation = Simulation(PLACES, seed, self.kills)
        value = self.simulation.run(lambda: random_programs.do(0))
        dead = self.simulation.dead
        return [value, *(Ended(9) if p in dead else None for p in range(1, PLACES))]

    def note(self, what: int, number: int) -> None:
        holder = current().scheduler.holder
        if holder.ident == threading.get_ident():  # else it is a thread of a dead place, on its way
            self.found[what, number] = self.simulation.now, apgas.here()

    def noted(self) -> dict[tuple[int, int], tuple[int, int]]:
        return self.found


@pytest.fixture(autouse=True)
def steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "kill_place", lambda name: None)
    monkeypatch.setattr(apgas, "sleep", lambda seconds: apgas.yield_())


def sweep(first: int, count: int) -> str:
    """Run so many programs; the first violation, "" if there is none."""
    for seed in range(first, first + count):
        case = SimProgram(seed)
        case.chance = case.rng
        try:
            case.judge(case.play(seed))
        except AssertionError as error:
            return f"seed {seed}: {error}"
    return ""


@pytest.mark.plain
def test_random_interleavings() -> None:
    """Law: F1, F2, and all ends."""
    assert not sweep(SEED, 60)


@pytest.mark.nightly
def test_many_random_interleavings() -> None:
    """Law: see above."""
    assert not sweep(SEED + 1000, 20_000)


def admit_all(patch: pytest.MonkeyPatch) -> None:
    """Let tasks in the rings of the dead begin: another word is looked at than `cut`."""
    patch.setattr(finish, "CUT", 3)


def adopt_none(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Records, "orphans", lambda self, record: [])


def finish_in_an_at_below_the_finish(patch: pytest.MonkeyPatch) -> None:
    """Make finishes of an `at`'s body children of the finish around the `at`, as X10 does."""
    patch.setattr(scopes.AtBody, "nearest", lambda self: self.finish[0])


def lose_what_is_in_rings(patch: pytest.MonkeyPatch) -> None:
    """Tell nobody of tasks that have left a place which is dead, and have not arrived."""
    losses = Records.losses

    def fewer(self: Records, record: int) -> dict[int, int]:
        if record in self._seen:
            now, ended = self._seen[record]
            sent, arrived = (now := now.copy()).reshape(2, self.count, -1)
            for i in self.dead:
                living = [j for j in range(self.count) if j not in self.dead]
                sent[i, living] = arrived[i, living]
            self._seen[record] = now, ended
        return losses(self, record)

    patch.setattr(Records, "losses", fewer)


def read_sent_first(patch: pytest.MonkeyPatch) -> None:
    equal = SimWords.equal
    patch.setattr(SimWords, "equal", lambda self, first, second, count: equal(
        self, second, first, count))


def append_first(patch: pytest.MonkeyPatch) -> None:
    def append(self: Any, kind: int, record: int, to: int, data: bytes) -> None:
        self.mailroom.send(to, kind, data)
        self.words.add(self.records.sent(record, self.me, self.records.index[to]))

    patch.setattr(finish.SharedLedger, "_append", append)


@pytest.mark.parametrize("left_out", [
    adopt_none, finish_in_an_at_below_the_finish, lose_what_is_in_rings,
    pytest.param(read_sent_first, marks=pytest.mark.plain),
    pytest.param(admit_all, marks=pytest.mark.nightly),
    pytest.param(append_first, marks=pytest.mark.nightly),
])
def test_each_rule_is_needed(left_out: Callable[[pytest.MonkeyPatch], None],
                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: without it F1 or F2 fails."""
    left_out(monkeypatch)
    found = sweep(0, 2000)
    assert "F1" in found or "F2" in found
