"""X10's resiliency tests told anew: many tasks or places at once, and teams."""

from __future__ import annotations

from typing import Any

import numpy as np
from apgasrecorder import async_, async_at, at, finish, sleep, step, waiting, when
from apgastelling import (
    LONG_S,
    NAP_S,
    assert_dead,
    assert_told,
    close_gates,
    living,
    open_gate,
    orphan,
    pass_gate,
    program,
    raises,
    tell,
    told,
    two,
    wait_and_die,
)

from ftrma import apgas
from ftrma.apgas import DeadPlaceException, MultipleExceptions

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
    close_gates()
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
