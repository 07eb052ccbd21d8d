"""Programs that say what X10's model does when places die: X10's resiliency tests, told anew.

A program runs at place zero and has its checks in it: which exceptions come, in which order things
are told, which values come back. `tell()` says something to place zero by an `at`, so what `told()`
has is in the order in which it happened. Each program takes the first places that live, so several
of them can follow each other in one job. All go through `tests/apgasrecorder.py`, so that a checker
can read their histories, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from apgasrecorder import async_, async_at, at, finish, members, sleep, step, waiting, when

from ftrma import apgas
from ftrma.apgas import DeadPlaceException, MultipleExceptions

NAP_S = 0.03
LONG_S = 0.15  # long enough for an exception to arrive too early, if it did


@dataclass(frozen=True)
class Program:
    """A program and what it needs: so many living places; `deaths`: of how many places it is."""

    run: Callable[[], None]
    places: int
    deaths: int


PROGRAMS: dict[str, Program] = {}


def program(places: int, deaths: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Put a function among the programs, under its name."""
    def put(function: Callable[[], None]) -> Callable[[], None]:
        PROGRAMS[function.__name__] = Program(function, places, deaths)
        return function
    return put


def run_program(name: str) -> list[str]:
    """Run a program at place zero; what it has told, in order."""
    _words.clear()
    PROGRAMS[name].run()
    return told()


# ---- what programs use ----------------------------------------------------------------------

_words: list[str] = []  # of place zero
_gates: dict[str, int] = {}  # what tasks of one place tell each other


def told() -> list[str]:
    return list(_words)


def tell(word: str) -> None:
    at(members().root, _tell, word)


def _tell(word: str) -> None:
    _words.append(word)


def living() -> list[int]:
    """All places that live, reserves, too."""
    return [p for p in members().everyone if not apgas.is_dead(p)]


def two() -> tuple[int, int]:
    """Places one and two: the first living ones after place zero."""
    _, first, second, *_ = living()
    return first, second


@contextmanager
def raises(kind: type[Exception]) -> Iterator[list[Any]]:
    """An exception of just this kind comes out of the block, into the list."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__} has come; told: {told()}"


def assert_dead(error: Any, *places: int) -> None:
    """An exception of a finish has DPEs of these places, and nothing else."""
    assert all(isinstance(e, DeadPlaceException) for e in error.exceptions), error.exceptions
    assert {e.place for e in error.exceptions} == set(places), error.exceptions
    assert all(apgas.is_dead(place) for place in places)


def assert_told(*words: str) -> None:
    assert told() == list(words), told()


def fail(word: str) -> None:
    raise ValueError(word)


def die() -> None:
    apgas.kill_here()


def die_telling(word: str) -> None:
    tell(word)
    apgas.kill_here()
    tell("a dead place goes on")


def nap_and_die() -> None:
    sleep(NAP_S)
    die_telling("dies")


def nap_telling(before: str, after: str) -> None:
    tell(before)
    sleep(LONG_S)
    tell(after)


def open_gate(name: str) -> None:
    _gates[name] = _gates.get(name, 0) + 1


def pass_gate(name: str) -> None:
    when(lambda: _gates.get(name, 0) > 0)


# ---- exceptions -----------------------------------------------------------------------------


def fail_later(word: str) -> None:
    async_(fail, word)


@program(places=2, deaths=0)
def run_at_exception_test() -> None:
    """An at-body's exception comes to the at; that of an async in it comes to the finish."""
    first = living()[1]
    with finish():
        with raises(ValueError) as caught:
            at(first, fail, "of the body")
        assert str(caught[0]) == "of the body"
    with raises(MultipleExceptions) as caught, finish():
        at(first, fail_later, "of its async")  # no exception here
        tell("at has returned")
    [error] = caught[0].exceptions
    assert isinstance(error, ValueError) and str(error) == "of its async"
    assert_told("at has returned")


@program(places=2, deaths=1)
def at_exception() -> None:
    """An at to a place that dies in it, and to a dead place, raises a DPE of that place."""
    first = living()[1]
    for attempt in ("dies", "is dead"):
        with raises(DeadPlaceException) as caught:
            at(first, die_telling, attempt)
        assert caught[0].place == first and apgas.is_dead(first)
    assert_told("dies")


@program(places=2, deaths=1)
def remote_fail() -> None:
    """A finish has the DPE of its async's place."""
    first = living()[1]
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, nap_and_die)
        tell("goes on")
    assert_dead(caught[0], first)
    assert sorted(told()) == ["dies", "goes on"]


@program(places=2, deaths=1)
def remote_fail_sync() -> None:
    """A DPE of an at leaves the body of a finish, and comes out of the finish."""
    first = living()[1]
    with raises(MultipleExceptions) as caught, finish():
        at(first, nap_and_die)
        tell("goes on")
    assert_dead(caught[0], first)
    assert_told("dies")


@program(places=2, deaths=1)
def remote_fail_sync2() -> None:
    """A bare at raises the DPE itself, not in a group."""
    first = living()[1]
    with raises(DeadPlaceException) as caught:
        at(first, nap_and_die)
    assert caught[0].place == first
    assert_told("dies")


@program(places=2, deaths=1)
def fail_go_back() -> None:
    """A second use of the dead place in a finish is told as the first one."""
    first = living()[1]
    for _ in range(2):
        with raises(MultipleExceptions) as caught, finish():
            at(first, nap_and_die)
        assert_dead(caught[0], first)
    assert_told("dies")


def block_and_die(second: int) -> None:
    with raises(MultipleExceptions) as caught, finish():
        async_at(second, fail, "blocked")
    assert [str(e) for e in caught[0].exceptions] == ["blocked"]
    async_(die_telling, "dies")


@program(places=3, deaths=1)
def dead_place_block_child_exception() -> None:
    """An exception that an inner finish has caught stays there: DPEs alone leave the outer one."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, block_and_die, second)
    assert_dead(caught[0], first)
    assert_told("dies")


# ---- grandchildren --------------------------------------------------------------------------


def send_to_death(second: int) -> None:
    async_at(second, die_telling, "grandchild")
    tell("child")


@program(places=3, deaths=1)
def distant_fail() -> None:
    """The DPE names the place of the grandchild that died, not that of its parent."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, send_to_death, second)
    assert_dead(caught[0], second)
    assert sorted(told()) == ["child", "grandchild"]


def orphan(parent: int, gate: str) -> None:
    tell("orphan begins")
    async_at(parent, open_gate, gate)
    sleep(LONG_S)
    step()
    tell("orphan ends")


def send_and_die(second: int) -> None:
    async_at(second, orphan, apgas.here(), "middle")
    pass_gate("middle")
    apgas.kill_here()


@program(places=3, deaths=1)
def middle_fail() -> None:
    """The finish waits for a task whose parent's place has died."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, send_and_die, second)
    assert_dead(caught[0], first)
    assert_told("orphan begins", "orphan ends")


def double_middle(second: int) -> None:
    async_at(second, sleep_signalling, "at two")
    sleep_signalling("at one")


def sleep_signalling(word: str) -> None:
    tell(word)
    sleep(30)
    tell("a dead place goes on")


@program(places=3, deaths=2)
def nested_at_async_double_fails() -> None:
    """Two places die at once: DPEs of both, and the finish ends."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, double_middle, second)
        when(lambda: len(told()) == 2)
        for place in (first, second):
            apgas.uncounted_async_at(place, die)
    assert_dead(caught[0], first, second)
    assert sorted(told()) == ["at one", "at two"]


# ---- finishes in each other -----------------------------------------------------------------


def finish_at(second: int) -> None:
    with finish():
        at(second, die_telling, "inner")
        tell("after a DPE")
    tell("after a finish with a DPE")


@program(places=3, deaths=1)
def nested_finish() -> None:
    """A DPE goes outward: out of the inner finish, the at, the outer finish."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        at(first, finish_at, second)
    [inner] = caught[0].exceptions
    assert isinstance(inner, MultipleExceptions)
    assert_dead(inner, second)
    assert [e.place for e in caught[0].of_type(DeadPlaceException)] == [second]
    assert_told("inner")


def finish_async_at(second: int) -> None:
    with finish():
        async_at(second, die_telling, "inner")
    tell("after a finish with a DPE")


@program(places=3, deaths=1)
def nested_finish_async() -> None:
    """An inner finish's exception is that of the task that it is in."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, finish_async_at, second)
    [inner] = caught[0].exceptions
    assert isinstance(inner, MultipleExceptions)
    assert_dead(inner, second)
    assert_told("inner")


def wait_and_die(second: int) -> None:
    with finish():
        async_at(second, orphan, apgas.here(), "nested")
        pass_gate("nested")
        apgas.kill_here()


@program(places=3, deaths=1)
def nested_finish_middle_fail() -> None:
    """An outer finish waits for the tasks of an inner one whose home has died."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, wait_and_die, second)
    assert_dead(caught[0], first)
    assert_told("orphan begins", "orphan ends")


def at_and_die(second: int) -> None:
    with finish():
        at(second, nap_telling, "body begins", "body ends")
        apgas.kill_here()


@program(places=3, deaths=1)
def nested_finish_middle_fail_sync() -> None:
    """The inner body is an at's, and has ended before its caller dies."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        at(first, at_and_die, second)
    assert_dead(caught[0], first)
    assert_told("body begins", "body ends")


def kill_parent(parent: int) -> None:
    tell("orphan begins")
    with raises(MultipleExceptions) as caught, finish():
        async_at(parent, die)
    assert_dead(caught[0], parent)
    sleep(LONG_S)
    step()
    tell("orphan ends")


def finish_with_killer(second: int) -> None:
    with finish():
        async_at(second, kill_parent, apgas.here())
    tell("a dead place goes on")


@program(places=3, deaths=1)
def nested_middle_fail2() -> None:
    """A task kills the place that waits for it; place zero waits for that task all the same."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, finish_with_killer, second)
    assert_dead(caught[0], first)
    assert_told("orphan begins", "orphan ends")


def nested_at(second: int) -> None:
    at(second, at_back, apgas.here())
    tell("a dead place goes on")


def at_back(first: int) -> None:
    sleep(NAP_S)
    at(first, die_telling, "dies")
    tell("an at has returned from a dead place")


@program(places=3, deaths=1)
def nested_middle_fail_sync() -> None:
    """A place dies under an at that comes back to it: the DPE names it at both callers."""
    first, second = two()
    with raises(DeadPlaceException) as caught:
        at(first, nested_at, second)
    assert caught[0].place == first
    assert_told("dies")


def at_with_killer(second: int) -> None:
    at(second, kill_parent, apgas.here())
    tell("a dead place goes on")


@program(places=3, deaths=1)
def nested_middle_fail_sync2() -> None:
    """An at whose body's place has died waits for the at-body that was called from there."""
    first, second = two()
    with raises(DeadPlaceException) as caught:
        at(first, at_with_killer, second)
    assert caught[0].place == first
    assert_told("orphan begins", "orphan ends")


def finish_in_body(second: int) -> None:
    with finish():
        async_at(second, orphan, apgas.here(), "in at")
        pass_gate("in at")
        apgas.kill_here()


@program(places=3, deaths=1)
def finish_in_an_at() -> None:
    """An at waits for the asyncs of a finish in its body, whose place has died.

    X10 counts that finish as a child of the finish around the at, which then returns too early.
    """
    first, second = two()
    with finish():
        with raises(DeadPlaceException) as caught:
            at(first, finish_in_body, second)
        tell("at has returned")
    assert caught[0].place == first
    assert_told("orphan begins", "orphan ends", "at has returned")


# ---- many at once ---------------------------------------------------------------------------


def all_to_all(places: list[int], victim: int) -> None:
    async_(open_later, victim)
    for place in places:
        if place != apgas.here():
            try:
                with finish():
                    async_at(place, pass_gate, "all")
            except MultipleExceptions as error:
                assert_dead(error, victim)
    tell(f"done {places.index(apgas.here())}")


def open_later(victim: int) -> None:
    sleep(NAP_S)
    if apgas.here() == victim:
        apgas.kill_here()
    open_gate("all")


@program(places=3, deaths=1)
def finish_at_async() -> None:
    """Each place has finishes with a task at each other one, and one dies: all others end."""
    places = living()
    _gates.clear()
    with raises(MultipleExceptions) as caught, finish():
        for place in places:
            async_at(place, all_to_all, places, places[-1])
    assert_dead(caught[0], places[-1])
    victims_own = {f"done {len(places) - 1}"}  # if the others were faster
    assert set(told()) - victims_own == {f"done {i}" for i in range(len(places) - 1)}


def note_sleep(number: int) -> None:
    tell(f"begins {number}")
    sleep(LONG_S)
    tell(f"ends {number}")


@program(places=2, deaths=0)
def xtenlang_3303() -> None:
    """Tasks of one place sleep at the same time."""
    first = living()[1]
    with finish():
        for number in range(4):
            async_at(first, note_sleep, number)
    assert [word.split()[0] for word in told()] == ["begins"] * 4 + ["ends"] * 4, told()


def wake_after(word: str) -> None:
    when(lambda: word in told())
    tell("async ends")


@program(places=2, deaths=0)
def xtenlang_3304() -> None:
    """An at does not wait for an async that was spawned before it."""
    first = living()[1]
    with finish():
        async_(wake_after, "main ends")
        tell("main begins")
        at(first, tell, "at")
        tell("main ends")
    assert_told("main begins", "at", "main ends", "async ends")


def there_and_back(home: int) -> int:
    tell("there")
    return 2 * int(at(home, value_of, 617))


def value_of(number: int) -> int:
    tell("back")
    return number


@program(places=2, deaths=0)
def xtenlang_3305() -> None:
    """A value comes back through an at within an at, while an async is still there."""
    first, home = living()[1], apgas.here()
    with finish():
        async_(wake_after, "1234")
        tell(str(at(first, there_and_back, home)))
    assert_told("there", "back", "1234", "async ends")


def bomb() -> None:
    pass_gate("armed")
    sleep(NAP_S)
    apgas.kill_here()


def finish_over_bomb(second: int) -> None:
    async_(bomb)
    with finish():
        async_at(second, orphan, apgas.here(), "armed")
    tell("a dead place goes on")


@program(places=3, deaths=1)
def xtenlang_3323() -> None:
    """A sibling of an inner finish kills its home: DPEs only, after the inner task's end."""
    first, second = two()
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, finish_over_bomb, second)
    assert_dead(caught[0], first)
    assert_told("orphan begins", "orphan ends")


def here_plus(number: int) -> int:
    return apgas.here() + number


def storm(second: int) -> None:
    for number in range(100_000):
        assert at(second, here_plus, number) == second + number
    tell("no DPE has come")


def die_in(seconds: float) -> None:
    sleep(seconds)
    apgas.kill_here()


@program(places=3, deaths=1)
def xtenlang_3324() -> None:
    """A storm of ats runs into a death: a DPE, each time again."""
    first, second = two()
    for _ in range(3):
        with raises(MultipleExceptions) as bombs, finish():
            async_at(second, die_in, NAP_S)
            with raises(DeadPlaceException) as caught:
                at(first, storm, second)
        assert_dead(bombs[0], second)
        assert caught[0].place == second
    assert_told()


def burst(to: int) -> None:
    for _ in range(40):
        async_at(to, step)


def late_messages() -> None:
    """Place one is killed while it sends to place two, which is slow; records are used again."""
    first, second, third, *_ = living()[1:]
    with raises(MultipleExceptions) as caught, finish():
        async_at(first, burst, second)
    assert_dead(caught[0], first)
    for _ in range(20):
        with finish():
            async_at(third, step)


def adopter(first: int, third: int) -> None:
    with finish():
        async_at(first, wait_and_die, third)
    tell("has adopted")


def adoption_fails() -> None:
    """A finish of place one becomes place two's, which may die of it: then it is the root's."""
    first, second, third, *_ = living()[1:]
    with raises(MultipleExceptions) as caught, finish():
        async_at(second, adopter, first, third)
    dead = (second,) if apgas.is_dead(second) else (first,)
    assert {e.place for e in caught[0].of_type(DeadPlaceException)} == set(dead)
    assert_told("orphan begins", "orphan ends")


# ---- teams ----------------------------------------------------------------------------------


def meet(team: Any) -> None:
    with waiting():
        team.barrier()


def two_barriers(team: Any, victim: int) -> None:
    meet(team)
    tell("first")
    try:
        if apgas.here() == victim:
            apgas.kill_here()
        meet(team)
        meet(team)
        tell("a barrier has passed a death")
    except DeadPlaceException as error:
        assert error.place == victim
        tell("told")


@program(places=3, deaths=1)
def barrier() -> None:
    """A member's death raises a DPE at all others within two barriers."""
    places = living()
    team = apgas.Team(apgas.PlaceGroup(places))
    with raises(MultipleExceptions) as caught, finish():
        for place in places:
            async_at(place, two_barriers, team, places[-1])
    assert_dead(caught[0], places[-1])
    assert told().count("told") == len(places) - 1
    assert "a barrier has passed a death" not in told()


def broadcast(team: Any, root: int, fail_here: bool) -> None:
    numbers = np.arange(113.0)
    for kind in (float, complex):
        mine = (numbers * (root + 1)).astype(kind) if team.ordinal == root else None
        if fail_here and team.ordinal == root:
            apgas.kill_here()
        with waiting():
            got = team.bcast(mine, root)
        assert got.dtype == kind and np.array_equal(got, numbers * (root + 1))
    tell("done")


@program(places=4, deaths=1)
def resilient_bcast() -> None:
    """A broadcast whose root dies raises; one in a new team of those that live is right."""
    places = living()
    with raises(MultipleExceptions) as caught, finish():
        team = apgas.Team(apgas.PlaceGroup(places))
        for place in places:
            async_at(place, broadcast, team, len(places) - 1, True)
    assert_dead(caught[0], places[-1])
    assert_told()  # no broadcast has ended
    team, places = apgas.Team(apgas.PlaceGroup(places[:-1])), places[:-1]
    with finish():
        for place in places:
            async_at(place, broadcast, team, len(places) - 1, False)
    assert_told(*["done"] * len(places))
