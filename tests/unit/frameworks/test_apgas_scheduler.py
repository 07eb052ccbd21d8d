"""The baton and the mailroom: who runs when, what ends a wait, long and early messages."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from placeprocesses import run_places

from ftrma import apgas
from ftrma.framework import Members
from ftrma.frameworks.apgas.errors import Ended
from ftrma.frameworks.apgas.mailroom import Mailroom, pack, unpack
from ftrma.frameworks.apgas.runtime import current, run_at
from ftrma.frameworks.apgas.scheduler import Scheduler
from ftrma.host.errors import Rollback


def scheduling(members: Members) -> Scheduler:
    return Scheduler(Mailroom(members), lambda: True)


def alone(test: Callable[[Scheduler], Any]) -> Any:
    """Run a test in a process of its own, as its only place."""

    def play(members: Members) -> Any:
        scheduler = scheduling(members)
        try:
            return test(scheduler)
        finally:
            scheduler.close(Ended())
            scheduler.join()
            assert not any(thread.is_alive() for thread in scheduler.threads)

    return run_places(1, play)[0]


def test_tasks_run_in_turn_when_one_waits() -> None:
    """Law: new tasks begin in their order; one that waits goes on when its condition holds."""

    def test(scheduler: Scheduler) -> list[str]:
        order: list[str] = []

        def task(name: str) -> None:
            order.append(name)
            scheduler.yield_()
            order.append(name + " again")

        for name in "abc":
            scheduler.spawn(lambda name=name: task(name))  # type: ignore[misc]
        assert not order
        scheduler.wait(lambda: len(order) == 6)
        return order

    assert alone(test) == ["a", "b", "c", "a again", "b again", "c again"]


def test_a_task_does_not_run_on_a_waiting_stack() -> None:
    """Law: a wait ends when its condition holds, though a later task goes on waiting."""

    def test(scheduler: Scheduler) -> list[str]:
        order: list[str] = []
        go = False

        def later() -> None:
            order.append("later begins")
            scheduler.wait(lambda: go)
            order.append("later ends")

        scheduler.spawn(later)
        scheduler.wait(lambda: bool(order))
        order.append("first goes on")
        go = True
        scheduler.wait(lambda: len(order) == 3)
        return order

    assert alone(test) == ["later begins", "first goes on", "later ends"]


def test_those_who_wake_one_another_let_others_run() -> None:
    """Law: a new task runs though others are always ready."""

    def test(scheduler: Scheduler) -> bool:
        turn, ran, rounds = 0, False, 0

        def player(me: int) -> None:
            nonlocal turn, rounds
            while not ran and rounds < 1000:
                scheduler.wait(lambda: turn == me)  # noqa: B023
                turn, rounds = 1 - me, rounds + 1

        def late() -> None:
            nonlocal ran
            ran = True

        for me in range(2):
            scheduler.spawn(lambda me=me: player(me))  # type: ignore[misc]
        scheduler.wait(lambda: rounds > 10)
        scheduler.spawn(late)
        scheduler.wait(lambda: ran or rounds >= 1000)
        return ran

    assert alone(test)


def test_tasks_that_wait_to_be_told_are_not_looked_at() -> None:
    """Law: tasks that wait inside of one another, two hundred deep, cost a few looks each."""
    n = 200

    def test(scheduler: Scheduler) -> tuple[list[int], int]:
        workers: list[Any] = []
        answers: set[int] = set()
        ended: list[int] = []
        looks = 0

        def answered(me: int) -> bool:
            nonlocal looks
            looks += 1
            return me in answers

        def task(me: int) -> None:
            workers.append(scheduler.current())
            scheduler.spawn((lambda: task(me + 1)) if me < n - 1 else (lambda: answer(n - 1)))
            scheduler.wait(lambda: answered(me), told=True)
            ended.append(me)
            answer(me - 1)

        def answer(whom: int) -> None:
            answers.add(whom)
            if whom >= 0:
                scheduler.awake(workers[whom])

        scheduler.spawn(lambda: task(0))
        scheduler.wait(lambda: len(ended) == n)
        return ended, looks

    ended, looks = alone(test)
    assert ended == [*reversed(range(n))] and looks <= 6 * n


@pytest.mark.parametrize("how", ["awake", "watch", "before"])
def test_nobody_waits_in_vain_to_be_told(how: str) -> None:
    """Law: an answer counts that comes before the task is parked, as does a death."""

    def test(scheduler: Scheduler) -> list[str]:
        ended: list[str] = []
        answered = False

        def asks() -> None:
            nonlocal me
            me = scheduler.current()
            scheduler.wait(lambda: answered, told=True)
            ended.append("asks")

        def answer() -> bool:
            nonlocal answered
            answered = True
            scheduler.awake(me)
            return True

        me = scheduler.current()
        # The first task's condition is looked at between the look at the second's and its parking.
        scheduler.spawn(lambda: scheduler.wait(lambda: how == "before" and me is not main
                                               and answer()))
        main = me
        scheduler.spawn(asks)
        if how != "before":
            scheduler.wait(lambda: me is not main and not scheduler.queue)
        if how == "awake":
            answer()
        elif how == "watch":
            answered = True
            scheduler.watch()
        assert scheduler.wait(lambda: bool(ended), time.monotonic() + 5)
        return ended

    assert alone(test) == ["asks"]


def test_threads_are_pooled() -> None:
    """Law: tasks that end give their threads back."""

    def test(scheduler: Scheduler) -> int:
        count = 0

        def task() -> None:
            nonlocal count
            count += 1

        for _ in range(100):
            scheduler.spawn(task)
            before = count
            scheduler.wait(lambda before=before: count > before)  # type: ignore[misc]
        return len(scheduler.threads)

    assert alone(test) == 1


@pytest.mark.parametrize("late_s", [0.0, 0.1])
def test_sleepers_wake_in_time_order(late_s: float) -> None:
    """Law: a sleep ends in its time, not before, and lets others run; where the place comes late to
    several of them, in the order of their times."""

    def test(scheduler: Scheduler) -> list[int]:
        begun: list[int] = []
        woken: list[int] = []

        def task(n: int) -> None:
            begun.append(n)
            began = time.monotonic()
            scheduler.sleep(n * 0.02)
            assert time.monotonic() - began >= n * 0.02
            woken.append(n)

        def late() -> bool:
            if len(begun) == 3 and not woken:
                time.sleep(late_s)
            return look()

        look, scheduler.look = scheduler.look, late
        for n in (3, 1, 2):
            scheduler.spawn(lambda n=n: task(n))  # type: ignore[misc]
        scheduler.wait(lambda: len(woken) == 3)
        return woken

    assert alone(test) == [1, 2, 3]


def test_a_condition_raises_to_its_owner() -> None:
    """Law: an error of a condition is raised in the task that waits for it, whoever has asked."""

    def test(scheduler: Scheduler) -> str:
        caught: list[str] = []
        broken = False

        def condition() -> bool:
            if broken:
                raise ValueError("asked")
            return False

        def task() -> None:
            try:
                scheduler.wait(condition)
            except ValueError as error:
                caught.append(str(error))

        scheduler.spawn(task)
        scheduler.yield_()
        broken = True
        scheduler.wait(lambda: bool(caught))
        assert not scheduler.wait(lambda: False, time.monotonic() + 0.01)  # a deadline ends a wait
        return caught[0]

    assert alone(test) == "asked"


def test_a_condition_raises_to_who_has_waited_before() -> None:
    """Law: a wait that another thread ends by an exception does not return, as an earlier one did.
    """

    def test(scheduler: Scheduler) -> list[str]:
        stage, told = 0, []

        def broken() -> bool:
            if stage == 2:
                raise KeyError(stage)
            return False

        def task() -> None:
            scheduler.wait(lambda: stage == 1)
            told.append("goes on")
            try:
                scheduler.wait(broken)
                told.append("returned")
            except KeyError:
                told.append("raised")

        scheduler.spawn(task)
        for stage in range(3):  # noqa: B007
            scheduler.yield_()
        scheduler.wait(lambda: len(told) == 2)
        return told

    assert alone(test) == ["goes on", "raised"]


@pytest.mark.parametrize("where", ["main", "task"])
def test_a_rollback_gets_all_out(where: str) -> None:
    """Law: parked and idle threads raise it, whoever has noticed it."""

    def test(scheduler: Scheduler) -> list[str]:
        out: list[str] = []
        due = False

        def look() -> bool:
            if due:
                raise Rollback("a process failed")
            return True

        scheduler.look = look

        def task(name: str) -> None:
            nonlocal due
            try:
                if name == "second" and where == "task":
                    due = True
                    scheduler.mail.ring(0)
                scheduler.wait(lambda: False, time.monotonic() + 5)
            except Rollback:
                out.append(name)
                raise

        scheduler.spawn(lambda: None)  # its thread is idle afterwards
        scheduler.yield_()
        for name in ("first", "second"):
            scheduler.spawn(lambda name=name: task(name))  # type: ignore[misc]
        try:
            if where == "main":
                scheduler.yield_()
                due = True
                scheduler.mail.ring(0)
            scheduler.wait(lambda: False, time.monotonic() + 5)
        except Rollback as rollback:
            scheduler.close(rollback)
            out.append("main")
        scheduler.join()
        assert not any(thread.is_alive() for thread in scheduler.threads)
        with pytest.raises(Rollback):
            scheduler.wait(lambda: True)
        return sorted(out)

    assert alone(test) == ["first", "main", "second"]


def test_others_run_while_one_blocks() -> None:
    """Law: inside of `blocking` tasks of the place run, and its end waits for the baton."""

    def main() -> Any:
        told: list[str] = []
        apgas.async_(told.append, "x")
        with apgas.blocking():
            deadline = time.monotonic() + 5
            while not told and time.monotonic() < deadline:
                time.sleep(0.001)
            with pytest.raises(RuntimeError, match="used by tasks alone"):
                apgas.sleep(0)
        with pytest.raises(ValueError), apgas.blocking():
            raise ValueError
        apgas.sleep(0)
        return told

    assert run_places(1, lambda members: run_at(members, main))[0] == ["x"]


def test_values_are_packed_whole() -> None:
    """Law: what is packed comes out equal; arrays are aligned and can be written."""
    for value in (None, "x", [1, {"a": (2,)}], np.arange(7), [np.zeros((3, 4)), np.ones(5, "i1")],
                  np.asfortranarray(np.arange(12).reshape(3, 4)), np.arange(10)[::2]):
        for prefix in (b"", bytes(16), bytes(32)):
            data = pack(value, "it", prefix)
            for owned in (False, True):
                found = unpack(memoryview(bytearray(data))[len(prefix):], owned)
                assert repr(found) == repr(value)
                if isinstance(found, np.ndarray):
                    assert found.flags.writeable and found.ctypes.data % 8 == 0


def test_cloudpickle_is_asked_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: what pickle refuses goes to cloudpickle, and is refused in words if that refuses it."""

    def dumps(value: Any, protocol: int, buffer_callback: Any) -> bytes:
        if value != "refused" and value[0](1) == 2:
            return pickle.dumps((abs, value[1:]), protocol, buffer_callback=buffer_callback)
        raise TypeError("cannot pickle it")

    value = (lambda x: x + 1, np.arange(3))
    with pytest.raises(TypeError, match=r"at\(2\): .*lambda.*pip install 'ftrma\[apgas\]'"):
        monkeypatch.setitem(sys.modules, "cloudpickle", None)
        pack(value, "at({})", about=2)
    monkeypatch.setitem(sys.modules, "cloudpickle", SimpleNamespace(dumps=dumps))
    function, (array,) = unpack(pack(value, "at({})", about=2))
    assert function is abs and array.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match=r"at\(2\): cannot pickle it. Give .* no files"):
        pack((lambda x: x,), "at({})", about=2)


def test_posts_never_block() -> None:
    """Law: messages that a ring has no room for, and long ones in pieces, arrive in their order."""
    sizes = [10, 3_000_000, 5, 900_000, 20, 7_000_000, 1]

    def play(members: Members) -> Any:
        got: list[Any] = []
        scheduler = scheduling(members)
        room = scheduler.mailroom
        if members.me == 0:
            for number, size in enumerate(sizes):
                room.post(1, 40, (number, bytes([number]) * size))
                room.post(0, 40, number)
            room.handle(40, lambda source, payload: got.append(payload))  # they have come before
            called: list[int] = []
            room.then(1, lambda: called.append(len(room.outbox)))
            scheduler.wait(lambda: got == list(range(len(sizes))) and bool(called))
        else:
            time.sleep(0.02)
            room.handle(40, lambda source, payload: got.append(payload))
            scheduler.wait(lambda: len(got) == len(sizes))
            assert got == [(n, bytes([n]) * size) for n, size in enumerate(sizes)]
        return "well"

    assert run_places(2, play) == ["well"] * 2


def test_a_dead_place_takes_nothing() -> None:
    """Law: what is posted to a dead place is dropped, also what waits for room in its ring."""

    def play(members: Members) -> Any:
        scheduler = scheduling(members)
        if members.me == 1:
            time.sleep(0.05)
            apgas.kill_here()
        scheduler.mailroom.post(1, 40, bytes(9_000_000))
        scheduler.wait(lambda: not scheduler.mailroom.outbox)
        scheduler.mailroom.post(1, 40, "x")
        return members.alive(1)

    assert run_places(2, play)[0] is False


def test_a_wait_in_a_handler_is_refused() -> None:
    """Law: who handles a message has the place to itself and must not give it away."""

    def main() -> Any:
        caught: list[str] = []

        def handle(source: int, payload: Any) -> None:
            try:
                apgas.at(payload, apgas.here)
            except RuntimeError as error:
                caught.append(str(error))

        current().mailroom.handle(60, handle)
        current().mailroom.post(0, 60, 1)
        apgas.when(lambda: bool(caught))
        return caught[0]

    assert "in a handler of messages" in run_places(2, lambda members: run_at(members, main))[0]
