"""Tasks, finishes and `at` over real processes: values, exceptions, deaths, and what is refused."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from placeprocesses import Ended, run_places

from ftrma import apgas
from ftrma.frameworks.apgas.runtime import current, run_at

pytestmark = pytest.mark.plain  # its tests take seconds

FINISHES = ("place0", "none")
TOLD: list[Any] = []  # at the place that has appended it


def run(main: Callable[[], Any], places: int = 3, finish: str = "place0", **more: Any) -> list[Any]:
    everywhere = more.pop("everywhere", False)
    return run_places(places, lambda members: run_at(members, main, finish=finish,
                                                     everywhere=everywhere), **more)


def tell(*what: Any) -> None:
    TOLD.append(what)


def told() -> list[Any]:
    return TOLD


def tell_home(*what: Any) -> None:
    apgas.async_at(0, tell, apgas.here(), *what)


def fail(text: str) -> None:
    raise ValueError(text)


def die() -> None:
    apgas.kill_here()


def die_later(seconds: float) -> None:
    apgas.sleep(seconds)
    apgas.kill_here()


def value(x: Any) -> Any:
    return apgas.here(), x


class Unpicklable(Exception):
    """An exception that can be pickled, and not be made again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def fail_oddly() -> None:
    raise Unpicklable("odd", "ly")


def here_and_lock() -> Any:
    return threading.Lock()


def spread(depth: int) -> None:
    tell_home(depth)
    if depth:
        with apgas.finish():
            for place in apgas.places():
                apgas.async_at(place, spread, depth - 1)


@pytest.mark.parametrize("finish", FINISHES)
def test_values_come_back(finish: str) -> None:
    """Law: `at` returns what the function returns, arrays and long messages whole."""

    def main() -> Any:
        long = np.arange(1_000_000)
        assert apgas.at(1, value, 3) == (1, 3)
        assert apgas.at(0, value, 4) == (0, 4)
        place, same = apgas.at(2, value, long)
        assert place == 2 and np.array_equal(same, long) and same.flags.writeable
        assert apgas.at(1, np.arange, 5).sum() == 10
        return "well"

    assert run(main, finish=finish) == ["well", None, None]


@pytest.mark.parametrize("finish", FINISHES)
def test_a_finish_waits_for_all(finish: str) -> None:
    """Law: tasks of tasks of tasks, at any place, have ended when their finish ends."""

    def main() -> Any:
        with apgas.finish():
            spread(2)
        return sorted(TOLD)

    found = run(main, finish=finish)[0]
    assert len(found) == 1 + 3 + 9
    assert sorted(depth for _, depth in found) == [0] * 9 + [1] * 3 + [2]


@pytest.mark.parametrize("finish", FINISHES)
def test_exceptions_are_gathered(finish: str) -> None:
    """Law: a finish raises those of its block and of its tasks; `at` raises its function's."""

    def main() -> Any:
        with pytest.raises(apgas.MultipleExceptions) as caught, apgas.finish():
            apgas.async_(fail, "local")
            apgas.async_at(1, fail, "remote")
            fail("own")
        texts = sorted(map(str, caught.value.of_type(ValueError)))
        with pytest.raises(ValueError, match="called"):
            apgas.at(2, fail, "called")
        with pytest.raises(apgas.RemoteError, match="oddly"):
            apgas.at(2, fail_oddly)
        return texts

    assert run(main, finish=finish)[0] == ["local", "own", "remote"]


@pytest.mark.parametrize("finish", FINISHES)
def test_what_is_refused(finish: str) -> None:
    """Law: bad calls are refused by one message, at once."""

    def main() -> Any:
        if importlib.util.find_spec("cloudpickle") is None:
            with pytest.raises(TypeError, match=r"at\(1, ...\): .*lambda.*cloudpickle"):
                apgas.at(1, lambda: 1)
        with pytest.raises(ValueError, match="no such place; places are 0, 1, 2"):
            apgas.async_at(7, value, 1)
        with pytest.raises(TypeError, match="tuple is no function"):
            apgas.async_(value(1))
        with pytest.raises(TypeError, match=r"value of here_and_lock at place 1.*lock"):
            apgas.at(1, here_and_lock)
        with pytest.raises(RuntimeError, match="inside of atomic"), apgas.atomic():
            apgas.at(1, value, 1)
        with pytest.raises(RuntimeError, match="inside of atomic"), apgas.atomic(), apgas.finish():
            pass
        with pytest.raises(RuntimeError, match="one runs at a time"):
            run_at(current().members, main)
        with pytest.raises(RuntimeError, match="thread that the program has started"):
            in_a_thread(apgas.sleep, 0)
        with pytest.raises(apgas.MultipleExceptions, match="inside of a finish") as caught, \
                apgas.finish():
            apgas.async_(leave_open)
        assert "tell" not in str(caught.value) and TOLD == [("after all",)]
        return "well"

    assert run(main, finish=finish)[0] == "well"


def leave_open() -> None:
    apgas.finish().__enter__()
    apgas.async_at(1, apgas.sleep, 0.001)
    apgas.async_(tell, "after all")


def in_a_thread(function: Callable[..., Any], *args: Any) -> None:
    caught: list[Exception] = []

    def call() -> None:
        try:
            function(*args)
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    raise caught[0]


@pytest.mark.parametrize("finish", FINISHES)
def test_the_program_waits_for_its_tasks(finish: str) -> None:
    """Law: `main` may return while tasks run; the program ends with them, and raises for them."""

    def main() -> Any:
        apgas.async_at(1, tell_home, "late")
        apgas.async_at(2, apgas.sleep, 0.01)
        return TOLD

    assert run(main, finish=finish)[0] == [(1, "late")]


def test_main_runs_everywhere() -> None:
    """Law: with `everywhere` each slot runs the program, and its exception is its own."""

    def main() -> Any:
        with apgas.finish():
            apgas.async_at((apgas.here() + 1) % 3, tell, apgas.here())
        return apgas.here()

    for finish in FINISHES:
        assert run(main, spares=1, finish=finish, everywhere=True) == [0, 1, 2, None]


def test_a_death_is_told() -> None:
    """Law: finish and `at` raise for a place that is dying or dead; the others go on."""

    def main() -> Any:
        removed: list[int] = []
        apgas.on_place_removed(removed.append)
        with pytest.raises(apgas.DeadPlaceException) as lost:
            apgas.at(1, die)
        assert lost.value.place == 1 and apgas.is_dead(1)
        for _ in range(2):
            with pytest.raises(apgas.MultipleExceptions) as caught, apgas.finish():
                apgas.async_at(3, die)
                for place in range(3):
                    apgas.async_at(place, value, place)
            assert caught.value.only(apgas.DeadPlaceException)
            assert {e.place for e in caught.value.of_type(apgas.DeadPlaceException)} == {1, 3}
        apgas.when(lambda: removed == [1, 3])
        assert list(apgas.places()) == [0, 2] and list(apgas.reserves()) == [4]
        assert apgas.at(4, value, 5) == (4, 5)
        return "well"

    assert run(main, 4, spares=1)[0] == "well"


def orphan(seconds: float) -> None:
    apgas.sleep(seconds)
    apgas.async_at(0, tell, "orphan")


def parent(child: int) -> None:
    with apgas.finish():
        apgas.async_at(child, orphan, 0.1)
        die_later(0.02)


@pytest.mark.parametrize("call", [apgas.at, apgas.async_at])
def test_orphans_are_waited_for(call: Any) -> None:
    """Law: a finish or `at` whose place for the work has died waits for its grandchildren."""

    def main() -> Any:
        try:
            with apgas.finish():
                call(1, parent, 2)
        except apgas.MultipleExceptions as caught:
            assert caught.only(apgas.DeadPlaceException)
            assert {e.place for e in caught.of_type(apgas.DeadPlaceException)} == {1}
            return TOLD

    assert run(main) == [[("orphan",)], Ended(signal=9), None]


def send_and_die() -> None:
    apgas.async_at(2, tell_home, "never")
    apgas.async_at(0, die_now)


def die_now() -> None:
    with pytest.raises(apgas.DeadPlaceException):
        apgas.at(1, die)


def busy(seconds: float) -> None:
    apgas.uncounted_async_at(0, tell, "busy")
    time.sleep(seconds)


def test_a_task_in_a_dead_ring_is_told() -> None:
    """Law: a task whose sender dies before a busy place has taken it gives a DeadPlaceException,
    and the busy place delays nobody."""

    def main() -> Any:
        apgas.uncounted_async_at(2, busy, 0.5)
        apgas.when(lambda: bool(TOLD))
        began = time.monotonic()
        with pytest.raises(apgas.MultipleExceptions) as caught, apgas.finish():
            apgas.async_at(1, send_and_die)
        assert time.monotonic() - began < 0.4
        assert caught.value.only(apgas.DeadPlaceException)
        apgas.at(2, value, 1)  # it has taken the message meanwhile, and dropped it
        return TOLD

    assert run(main)[0] == [("busy",)]


def wander(home: int) -> None:
    with apgas.finish():
        apgas.async_at(home, tell, "in a finish")
    assert apgas.at(home, value, 1) == (home, 1)
    apgas.at(home, apgas.async_, tell, "by at")
    apgas.async_at(home, tell, "by async")


@pytest.mark.parametrize("finish", FINISHES)
def test_uncounted_tasks_may_do_all(finish: str) -> None:
    """Law: a task that no finish waits for has finishes and ats of its own."""

    def main() -> Any:
        apgas.uncounted_async_at(1, wander, 0)
        apgas.when(lambda: len(TOLD) == 3)
        apgas.uncounted_async_at(0, wander, 2)
        apgas.uncounted_async_at(1, fail, "told on stderr")
        apgas.sleep(0.02)
        return sorted(TOLD)

    assert run(main, finish=finish)[0] == [("by async",), ("by at",), ("in a finish",)]


@pytest.mark.parametrize("finish", FINISHES)
def test_a_death_ends_all_waits(finish: str) -> None:
    """Law: nothing hangs, whatever the finish."""

    def main() -> Any:
        with pytest.raises((apgas.MultipleExceptions, apgas.DeadPlaceException)), apgas.finish():
            apgas.async_at(1, die_later, 0.02)
            apgas.at(1, apgas.sleep, 5.0)
        return "well"

    assert run(main, finish=finish)[0] == "well"


def test_references() -> None:
    """Law: a GlobalRef leads back to its object; a PlaceLocal has one at each place."""

    def main() -> Any:
        ref = apgas.GlobalRef([1])
        with apgas.finish():
            apgas.async_at(1, push_back, ref)
        assert ref() == [1, 1]
        with pytest.raises(RuntimeError, match="followed at place 1"):
            apgas.at(1, ref)
        local = apgas.PlaceLocal(apgas.places(), value, "x")
        assert apgas.at(2, local) == (2, "x")
        apgas.at(2, local.free)
        with pytest.raises(LookupError, match="no object of this PlaceLocal"):
            apgas.at(2, local)
        ref.free()
        with pytest.raises(LookupError):
            ref()
        return "well"

    assert run(main)[0] == "well"


def push_back(ref: Any) -> None:
    apgas.at(ref.home, push, ref, apgas.here())


def push(ref: Any, what: int) -> None:
    ref().append(what)


def test_one_place_without_a_job() -> None:
    """Law: a program runs outside of ``ftrma run``, with one place."""
    told: list[str] = []

    def main() -> str:
        with apgas.finish():
            apgas.async_(told.append, "x")
        assert list(apgas.places()) == [0]
        return "well"

    assert apgas.run(main) == "well" and told == ["x"]
    with pytest.raises(RuntimeError, match="no apgas program"):
        apgas.here()
    with pytest.raises(ValueError, match="finish"):
        apgas.run(main, finish="mirrored")


def test_a_program_runs_once() -> None:
    """Law: a job runs one program; a process alone may run several, one after the other."""
    def twice(members: Any) -> str:
        run_at(members, int)
        with pytest.raises(RuntimeError, match="for the second time in a job"):
            run_at(members, int)
        return "refused"

    assert run_places(2, twice) == ["refused", "refused"]
    assert [apgas.run(int), apgas.run(int)] == [0, 0]
