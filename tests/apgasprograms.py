"""Programs that say what X10's model does when places die: X10's resiliency tests, told anew.

They have their checks in them: which exceptions come, in which order things are told, which values
come back. All go through ``apgasrecorder.py``, so that a checker can read their histories, too.
"""

from __future__ import annotations

import apgascrowds
from apgasrecorder import async_, async_at, at, finish, sleep, step, when
from apgastelling import (
    LONG_S,
    NAP_S,
    PROGRAMS,
    Program,
    assert_dead,
    assert_told,
    die,
    die_telling,
    fail,
    living,
    nap_and_die,
    nap_telling,
    orphan,
    pass_gate,
    program,
    raises,
    run_program,
    tell,
    told,
    two,
    wait_and_die,
)

from ftrma import apgas
from ftrma.apgas import DeadPlaceException, MultipleExceptions

__all__ = ["PROGRAMS", "Program", "apgascrowds", "living", "run_program"]


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
