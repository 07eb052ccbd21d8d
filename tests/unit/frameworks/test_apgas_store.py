"""The resilient store over real processes: its calls, deaths by SIGKILL, recoveries, bad input."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from placeprocesses import Ended, run_places

from ftrma import apgas
from ftrma.frameworks.apgas import shelf, storepart, storerecovery, storetable
from ftrma.frameworks.apgas.runtime import current, run_at
from ftrma.host.errors import FtrmaError, NoRoom

pytestmark = pytest.mark.plain  # its tests take seconds

KILLED = Ended(signal.SIGKILL)
MODULES = (shelf, storepart, storerecovery)


def run(main: Callable[[], Any], places: int = 3, spares: int = 0, **more: Any) -> list[Any]:
    return run_places(places, lambda members: run_at(members, main), spares=spares, **more)


def each(places: Any, function: Callable[..., Any], *args: Any) -> None:
    """Call a function at places, as tasks of one finish."""
    with apgas.finish():
        for place in places:
            apgas.async_at(place, function, *args)


def fill(store: Any) -> None:
    me = apgas.here()
    store.set("number", me)
    store.set_all({"text": "x" * me, "array": np.arange(me * 1000.0)})
    store.map("other").set("number", -me)
    with store.transaction() as tx:
        tx.set("twice", 2 * tx.get("number"))


def of(store: Any, ordinal: int) -> tuple[Any, ...]:
    return (store.get_remote(ordinal, "number"), store.get_remote(ordinal, "text"),
            store.get_remote(ordinal, "array").sum(), store.get_remote(ordinal, "twice"),
            store.map("other").get_remote(ordinal, "number"))


def expected(n: int) -> tuple[Any, ...]:
    return n, "x" * n, np.arange(n * 1000.0).sum(), 2 * n, -n


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill(*places: int) -> None:
    for place in places:
        apgas.uncounted_async_at(place, die)
    current().scheduler.wait(lambda: all(map(apgas.is_dead, places)))


def die_at(point: str, count: int = 1) -> None:
    """Have this process die when it has come to a place of the code so often."""
    left = [count]

    def visit(name: str) -> None:
        left[0] -= name == point
        if not left[0]:
            die()

    for module in MODULES:
        module.kill_place = visit  # type: ignore[attr-defined]


def look(store: Any) -> None:
    assert sorted(store.keys()) == ["array", "number", "text", "twice"]
    assert store.map("other").keys() == ["number"]
    assert store.shelves == (apgas.here(),)
    store.delete("text")
    store.delete("nothing")
    assert store.get("text") is None and store.get("text", 5) == 5


def test_calls() -> None:
    """Law: what a place has put, it and others read; maps are apart; deletion deletes."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        each(apgas.places(), fill, store)
        assert [of(store, n) for n in range(3)] == [expected(n) for n in range(3)]
        store.set_remote(1, "number", 99)
        assert store.get_remote(1, "number") == 99
        assert apgas.at(1, store.get, "number") == 99
        each(apgas.places(), look, store)
        assert store.get_remote(2, "text", "gone") == "gone"
        return "done"

    assert run(main)[0] == "done"


def test_nothing_is_shared() -> None:
    """Law: neither later changes of what was put, nor of what was read, change the store."""
    def main() -> None:
        store = apgas.ResilientStore(apgas.places())
        array, words = np.arange(5000), ["a"]
        store.set_all({"array": array, "words": words})
        for _ in range(2):
            array[:] = 0
            words.append("b")
            read = store.get("array")
            assert read.sum() == 5000 * 4999 // 2
            read[:] = 7
            store.get("words").append("c")
            assert store.get("words") == ["a"]
        with store.transaction() as tx:
            other = np.ones(4)
            tx.set("array", other)
            other[:] = 5
            tx.get("array")[:] = 6
        assert store.get("array").tolist() == [1] * 4

    run(main, 2)


@pytest.mark.parametrize("spares", [1, 0], ids=["replaced", "shrunk"])
def test_a_place_dies(spares: int) -> None:
    """Law: what it has put is read from its keeper, before and behind the recovery."""
    def main() -> Any:
        active = list(apgas.places())
        store = apgas.ResilientStore(active)
        each(active, fill, store)
        kill(1)
        assert of(store, 1) == expected(1), "from the copy"
        with pytest.raises(apgas.DeadPlaceException):
            store.set("number", 5)  # its keeper is dead
        assert store.get("number") == 0
        active = [0, 3, 2] if spares else [0, 2]
        store.recover(active)
        assert [of(store, n) for n in range(3)] == [expected(n) for n in range(3)]
        store.set("number", 5)
        if spares:
            assert apgas.at(3, store.get, "twice") == 2
            kill(2)
            store.recover([0, 3])
            assert [of(store, n)[4] for n in range(3)] == [0, -1, -2]
        else:
            assert apgas.at(2, held, store) == (2, 1)
        return "done"

    found = run(main, spares=spares)
    assert found[:2] == ["done", KILLED]


def held(store: Any) -> Any:
    return store.shelves


def test_neighbours_die_at_once() -> None:
    """Law: the failure names the shelf, is raised by all accesses, and can be caught: a store of
    another name works. A shelf that was never written is no loss."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places(), "first")
        empty = apgas.ResilientStore(apgas.places(), "empty")
        each(apgas.places(), fill, store)
        kill(1, 2)
        active = [0, 3]
        with pytest.raises(apgas.CatastrophicFailure, match="shelf 1") as caught:
            store.recover(active)
        assert caught.value.lost == (1,) and caught.value.members == ("shelf 1",)
        with pytest.raises(apgas.CatastrophicFailure):
            store.get("number")
        with pytest.raises(apgas.CatastrophicFailure):
            apgas.at(3, store.set, "number", 1)
        empty.recover(active)
        empty.set_remote(1, "k", 1)
        assert empty.get_remote(1, "k") == 1
        third = apgas.ResilientStore(active, "third")
        third.set("k", 2)
        return third.get("k")

    assert run(main, 4)[0] == 2


def move(store: Any, to: int, n: int, wait: bool = True) -> None:
    for i in range(n):
        store.set2("sent", i + 1, to, f"{apgas.here()} {i}", np.full(300, i), wait=wait)


def got(store: Any, shelf: int, source: int) -> list[int]:
    return [i for i in range(40) if store.get_remote(shelf, f"{source} {i}") is not None]


def refuse_set(store: Any) -> None:
    with pytest.raises(apgas.DeadPlaceException):
        store.set("k", 1)


def test_what_was_refused_is_no_loss() -> None:
    """Law: a shelf is empty as long as all that was to be put there was refused."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        kill(2)
        apgas.at(1, refuse_set, store)
        kill(1)
        store.recover([0, 3])
        return store.get_remote(1, "k", "empty")

    assert run(main, 4)[0] == "empty"


def test_a_shelf_moves_behind_its_new_copy() -> None:
    """Law: a shelf that an adopter holds, whose keeper has died, goes to its new place within one
    recovery; the files are those that the table names."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        each(apgas.places(), fill, store)
        kill(1)
        store.recover([0, 2, 3])
        kill(3)
        store.recover([0, 2, 4, 5])
        rows = store._part.table.rows()
        assert {path.name[:-1] for path in current().members.directory.glob("own-shelf-*")} == {
            store._part.path(shelf, row).name for shelf, row in enumerate(rows)}
        assert [of(store, n) for n in range(4)] == [expected(n) for n in range(4)]
        return {place: apgas.at(place, held, store) for place in (2, 4, 5)}

    assert run(main, 4, spares=2)[0] == {2: (2,), 4: (3,), 5: (1,)}


def hold(store: Any) -> None:
    with store.transaction() as tx:
        tx.set("t", 1)
        apgas.sleep(0.05)


def test_reads_come_behind_messages_that_wait() -> None:
    """Law: a message that is sent behind a set2 finds its value, though a transaction is under way
    where the value goes."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        with apgas.finish():
            apgas.async_at(1, hold, store)
            apgas.at(1, apgas.here)  # it has begun
            store.set2("a", 1, 1, "b", 2, wait=False)
            return apgas.at(1, store.get, "b")

    assert run(main, 2)[0] == 2


def test_set2_both_ways() -> None:
    """Law: set2 of all places toward each other do not hang, and both values are there."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        with apgas.finish():
            for place in apgas.places():
                for wait in (False, True):
                    apgas.async_at(place, move, store, (place + 1) % 3, 20, wait)
        for place in range(3):
            assert got(store, (place + 1) % 3, place) == list(range(20))
            assert store.get_remote(place, "sent") == 20
        store.set2("a", 1, 0, "b", 2)
        assert (store.get("a"), store.get("b")) == (1, 2)
        return "done"

    assert run(main)[0] == "done"


def work(store: Any, me: int, steps: int) -> None:
    for i in range(steps):
        with store.transaction() as tx:
            tx.set("x", tx.get("x", 0) + 1)
            tx.set("y", tx.get("y", 0) + 1)
        store.set2("sent", i + 1, (me + 1) % 3, f"{me} {i}", i, wait=i % 2 == 0)
        if i % 5 == 4:  # so that its file changes halves
            store.set("bulk", np.full(20_000, i))


def work_and_die(store: Any, point: str) -> None:
    die_at(point, 2 if point == "apgas.flip" else 9)
    work(store, 1, 30)


def recover(store: Any, active: list[int], reserves: list[int]) -> int:
    """Recover as often as it takes; so often."""
    for rounds in range(1, 5):
        reserves[:] = [p for p in reserves if not apgas.is_dead(p)]
        active[:] = [p if not apgas.is_dead(p) else reserves.pop(0) for p in active]
        try:
            store.recover(active)
            return rounds
        except apgas.DeadPlaceException:
            pass
    raise AssertionError("does not recover")


def check_pairs(store: Any) -> None:
    for ordinal in range(3):
        assert store.get_remote(ordinal, "x") == store.get_remote(ordinal, "y")
        sent = store.get_remote(ordinal, "sent", 0)
        assert got(store, (ordinal + 1) % 3, ordinal) == list(range(sent)), ordinal
        store.set_remote(ordinal, "x", -1)
        assert store.get_remote(ordinal, "twice") == 2 * ordinal


@pytest.mark.parametrize("point", ["apgas.half", "apgas.flip", "apgas.published",
                                   "apgas.applied"])
def test_a_place_dies_in_a_call(point: str) -> None:
    """Law: both values of a transaction and of a set2 are there behind a death, or neither."""
    def main() -> Any:
        active, reserves = [0, 1, 2], list(apgas.reserves())
        store = apgas.ResilientStore(active)
        each(active, fill, store)
        with pytest.raises(apgas.MultipleExceptions), apgas.finish():
            for ordinal in (0, 2):
                apgas.async_at(ordinal, work, store, ordinal, 12)
            apgas.async_at(1, work_and_die, store, point)
        assert recover(store, active, reserves) == 1
        check_pairs(store)
        return "done"

    assert run(main, spares=3)[:2] == ["done", KILLED]


def leave_an_intent(store: Any) -> None:
    kill(1)
    store.set2("k", "left", 1, "k2", "right", wait=False)


@pytest.mark.parametrize("point, victim", [("load", 3), ("mirror", 3), ("intent", 2)])
def test_a_place_dies_in_a_recovery(point: str, victim: int) -> None:
    """Law: a second death in any round of a recovery is recovered, too."""
    def main() -> Any:
        active, reserves = [0, 1, 2], list(apgas.reserves())
        store = apgas.ResilientStore(active)
        each(active, fill, store)
        apgas.at(2, leave_an_intent, store)
        apgas.at(victim, die_at, f"apgas.{point}")
        assert recover(store, active, reserves) == 2
        assert store.get_remote(2, "k") == "left" and store.get_remote(1, "k2") == "right"
        assert [of(store, n) for n in range(3)] == [expected(n) for n in range(3)]
        return "done"

    found = run(main, spares=3)
    assert found[0] == "done" and found[1] == found[victim] == KILLED


def test_large_values() -> None:
    """Law: values that are larger than a ring go to other places as any."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        large = np.arange(1 << 19, dtype=float)  # 4 MiB
        store.set_remote(1, "k", large)
        assert (store.get_remote(1, "k") == large).all()
        store.set2("k", large, 1, "k2", large[::-1])
        assert (store.get_remote(1, "k2") == large[::-1]).all()
        return "done"

    assert run(main, 2)[0] == "done"


def test_one_place() -> None:
    """Law: a store of the only place works, and keeps no copy."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        fill(store)
        assert of(store, 0) == expected(0)
        store.recover(apgas.places())
        return store.get("number")

    assert run(main, 1) == [0]


def test_a_finish_that_is_not_resilient() -> None:
    """Law: a store needs no resilient finish to be recovered."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        each(apgas.places(), fill, store)
        kill(1)
        store.recover([0, 3, 2])
        return [of(store, n) for n in range(3)]

    found = run_places(3, lambda members: run_at(members, main, finish="none"), spares=1)
    assert found[0] == [expected(n) for n in range(3)]


def fill_memory() -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    shelf.os.posix_fallocate = full  # type: ignore[assignment]


def test_full_memory() -> None:
    """Law: a value that finds no room is refused in words, here and from elsewhere; the store has
    what it had, and goes on."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        each(apgas.places(), fill, store)
        each(apgas.places(), fill_memory)
        large = np.zeros(1 << 20)
        for put in (lambda: store.set("number", large),
                    lambda: store.set_remote(1, "number", large),
                    lambda: store.set2("small", 1, 1, "number", large)):
            with pytest.raises(NoRoom, match="shared memory is full"):
                put()
        store.set("small", 2)
        store.set_remote(1, "small", 3)
        assert store.get("small") == 2 and store.get_remote(1, "small") == 3
        return [of(store, n) for n in range(2)]

    assert run(main, 2)[0] == [expected(0), expected(1)]


def test_a_program_that_runs_everywhere() -> None:
    """Law: each place makes the store, and all have one; a second store likewise."""
    def main() -> Any:
        me = apgas.here()
        store = apgas.ResilientStore(apgas.places(), "first")
        other = apgas.ResilientStore(apgas.places(), "second")
        store.set("k", me)
        other.set_remote((me + 1) % 3, "k", me)
        while (value := other.get("k")) is None:
            apgas.sleep(0.001)
        return store.get("k"), value, store.get_remote(value, "k")

    def be(members: Any) -> Any:
        return run_at(members, main, everywhere=True)

    assert run_places(3, be) == [(0, 2, 2), (1, 0, 0), (2, 1, 1)]


def refuse(store: Any) -> None:
    with pytest.raises(FtrmaError, match="has no shelf of it"):
        store.set("k", 1)
    with pytest.raises(ValueError, match="root place"):
        apgas.ResilientStore([1])
    with pytest.raises(ValueError, match="root place"):
        store.recover([0])
    assert store.get_remote(0, "k") == 1


def test_bad_input() -> None:
    """Law: each mistake has one message, with a remedy, and nothing hangs."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        store.set("k", 1)
        with pytest.raises(TypeError, match="keys are strings"):
            store.set(("loot", 1), 1)
        with pytest.raises(TypeError, match="cannot be pickled"):
            store.set("k", lambda: 0)
        with pytest.raises(ValueError, match="there are 0 to 1"):
            store.get_remote(2, "k")
        with pytest.raises(ValueError, match="another name"):
            apgas.ResilientStore(apgas.places())
        with pytest.raises(FtrmaError, match="transaction's own"), store.transaction() as tx:
            tx.set("k", 2)
            store.set("k", 3)
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:
            tx.set("k", 1 // 0)
        assert store.get("k") == 1
        apgas.at(2, refuse, store)
        return "done"

    assert run(main, 2, spares=1)[0] == "done"


def test_a_transaction_over_a_recovery() -> None:
    """Law: a transaction that a recovery has overtaken commits nothing, since what it has read may
    have changed."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        store.set("k", 1)
        kill(2)
        with pytest.raises(apgas.DeadPlaceException), store.transaction() as tx:
            tx.set("k", 2)
            store.recover([0, 1])
        assert store.get("k") == 1
        with store.transaction() as tx:
            tx.set("k", 3)
        return store.get("k")

    assert run(main)[0] == 3


def test_places_keep_their_shelves() -> None:
    """Law: a group that shrinks, grows and is ordered anew leaves each place its shelf; that of a
    dead place, which another one has held meanwhile, goes to the one that has come."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        each(apgas.places(), fill, store)
        kill(1)
        for active, shelves in (([2, 0], {0: (0,), 2: (2, 1)}),
                                ([2, 3, 0], {0: (0,), 2: (2,), 3: (1,)}),
                                ([0, 2, 3], {0: (0,), 2: (2,), 3: (1,)})):
            store.recover(active)
            assert [of(store, n) for n in range(3)] == [expected(n) for n in range(3)]
            assert {place: apgas.at(place, held, store) for place in active} == shelves
        assert apgas.at(3, store.get, "number") == 1
        return "done"

    assert run(main, spares=1)[0] == "done"


def test_new_places_get_the_shelves_of_the_dead_first() -> None:
    """Law: a shelf that belonged to nobody has a new place only if no other one lacks its place."""
    assert storerecovery.seats_of([0, -1, 2, 3], [0, 4, 2]) == [0, -1, 2, 4]
    assert storerecovery.seats_of([-1, 1, 2, -1], [4, 5, 2]) == [5, 4, 2, -1]
    assert storerecovery.seats_of([0, -1, 2], [2, 3, 0]) == [0, 3, 2]
    assert storerecovery.seats_of([0, 1, 2], [2, 0]) == [0, -1, 2]


def test_a_recovery_that_was_given_up() -> None:
    """Law: until a recovery has ended well, accesses raise and do not hang."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        each(apgas.places(), fill, store)
        kill(1)
        with pytest.raises(apgas.DeadPlaceException):
            store.recover([0, 1, 2])
        for place in (0, 2):
            with pytest.raises(apgas.DeadPlaceException):
                apgas.at(place, store.set, "k", 1)
        with pytest.raises(apgas.DeadPlaceException):
            store.get_remote(1, "number")
        store.recover([0, 2])
        assert not store._part.table.get(storetable.HALTED)  # the next one is waited for again
        return of(store, 1)

    assert run(main)[0] == expected(1)


def test_a_recovery_that_fails() -> None:
    """Law: after another error than a death accesses raise, too, and do not hang."""
    def main() -> Any:
        store = apgas.ResilientStore(apgas.places())
        each(apgas.places(), fill, store)
        kill(2)
        each((0, 1), fill_memory)
        with pytest.raises(NoRoom):
            store.recover([0, 1])
        with pytest.raises(FtrmaError, match="its recovery has failed"):
            store.get("number")
        return "done"

    assert run(main)[0] == "done"
