"""A program judges its own state: the answers of all slots are one, and mistakes are told."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ftrma.fabric.story import Refusal
from ftrma.host.errors import FtrmaError, Rollback
from ftrma.native.shared import Slot
from ftrma.program.validation import Validation, find

SLOTS = 3
Function = Callable[[Mapping[str, Any]], object]


class View:
    """A slot's view of a job, as far as `Validation` uses it."""

    def __init__(self, slot: int, procs: list[Any], told: list[str], events: list[Any]) -> None:
        own = SimpleNamespace(clock=1, events=2)
        self.words = SimpleNamespace(me=procs[slot], process=procs.__getitem__, committed=6,
                                     slot=lambda s: own)
        self.own, self.told, self.story = own, told, events
        self.tell, self.emit = told.append, events.append
        self.alarm = False

    def ring(self) -> None:
        """Do nothing: the others look by themselves."""

    def slot_holders(self) -> list[int]:
        return list(range(SLOTS))

    def unwind_if_alarmed(self) -> None:
        if self.alarm:
            raise Rollback("a process failed")


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType("ftrma_test_checks")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def views() -> list[View]:
    procs = [SimpleNamespace(verdict=0, syncs=0, step=17) for _ in range(SLOTS)]
    told: list[str] = []
    events: list[Any] = []
    return [View(slot, procs, told, events) for slot in range(SLOTS)]


def ask_all(module: types.ModuleType, answers: list[bool], found: list[View],
            ordinal: int = 4, made: list[Validation] | None = None) -> list[bool]:
    """Ask all slots at once; slot s finds `answers[s]`."""
    made = made or [Validation(v, f"{module.__name__}:check", lambda: ["app.py"])  # type: ignore[arg-type]
                    for v in found]
    module.check = lambda states: answers[states["slot"]]  # type: ignore[attr-defined]
    said: dict[int, bool] = {}

    def ask(slot: int) -> None:
        said[slot] = made[slot].holds(Slot(slot), ordinal, {"slot": slot})  # type: ignore[dict-item]

    threads = [threading.Thread(target=ask, args=(slot,)) for slot in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return [said[slot] for slot in range(SLOTS)]


@pytest.mark.parametrize("answers", [[True] * 3, [True, False, True], [False, True, False]])
def test_all_slots_hear_the_same(module: types.ModuleType, answers: list[bool]) -> None:
    """Law: one that says False is enough, for all; it is told once, by slot 0, with the step."""
    found = views()
    assert ask_all(module, answers, found) == [all(answers)] * SLOTS
    wrong = tuple(s for s, right in enumerate(answers) if not right)
    assert found[0].story == ([Refusal(17, wrong)] if wrong else [])
    assert len(found[0].told) == bool(wrong)
    if wrong:
        assert "ftrma_test_checks:check says that the state of slot" in found[0].told[0]


def test_a_row_of_refusals_is_told_once(module: types.ModuleType) -> None:
    """Law: until a version is right again; the story has each."""
    found = views()
    made = [Validation(v, f"{module.__name__}:check", lambda: ["app.py"])  # type: ignore[arg-type]
            for v in found]
    for ordinal, right in enumerate([False, False, True, False], 1):
        for each in made:
            each.function = None  # as another attempt of the program would find it
        assert ask_all(module, [right] * 3, found, ordinal, made) == [right] * 3
    assert len(found[0].told) == 2 and len(found[0].story) == 3


def test_a_failure_ends_the_wait(module: types.ModuleType) -> None:
    """Law: who waits for a dead slot's answer unwinds, or goes on when it is replayed."""
    module.check = lambda states: True  # type: ignore[attr-defined]
    one = views()[0]
    one.alarm = True
    with pytest.raises(Rollback):
        Validation(one, f"{module.__name__}:check", lambda: ["app.py"]).holds(  # type: ignore[arg-type]
            Slot(0), 1, {})


def test_a_function_that_communicates_is_refused(module: types.ModuleType) -> None:
    """Law: its calls would be missing in a replay."""
    one, *others = views()
    for other in others:
        other.words.me.verdict = 1 << 1 | 1

    def check(states: Mapping[str, Any]) -> bool:
        one.own.clock += 1
        return True

    module.check = check  # type: ignore[attr-defined]
    with pytest.raises(FtrmaError, match="calls MPI, which it must not"):
        Validation(one, f"{module.__name__}:check", lambda: ["app.py"]).holds(  # type: ignore[arg-type]
            Slot(0), 1, {})


def test_the_function_is_found(module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: in a module that is imported, or in the program, which is not imported again."""
    module.check, module.number = len, 3  # type: ignore[attr-defined]
    assert find("ftrma_test_checks:check", ["app.py"]) is len
    monkeypatch.setitem(sys.modules, "__main__", module)
    assert find("app:check", ["/home/me/app.py"]) is len
    assert find("__main__:check", ["app.py"]) is len
    for spec, why in (("ftrma_test_checks:nothing", "nothing"), ("ftrma_no_module:f", "No module"),
                      ("ftrma_test_checks:number", "this is no function, but int")):
        with pytest.raises(FtrmaError, match=f"--validate {spec}: .*{why}"):
            find(spec, ["app.py"])
