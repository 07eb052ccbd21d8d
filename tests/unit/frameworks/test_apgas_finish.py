"""The resilient finish, one step of a place at a time: cut, adoption, quarantine, what is lost.

All places are in this process, each with its own end of one mail; a test says who takes mail when,
and who dies. Nobody waits: a finish is asked whether it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ftrma.framework import Members
from ftrma.frameworks.apgas import records, tasks
from ftrma.frameworks.apgas.errors import DeadPlaceException, MultipleExceptions, group
from ftrma.frameworks.apgas.finish import Call, SharedLedger
from ftrma.frameworks.apgas.mailroom import Mailroom
from ftrma.frameworks.apgas.records import Records
from ftrma.frameworks.apgas.scheduler import Scheduler, Worker
from ftrma.frameworks.apgas.scopes import AtBody
from ftrma.native import loading, mail
from ftrma.program.deathmail import MemberFacts


class Place:
    """A place that does one step when it is told to."""

    def __init__(self, path: Path, me: int, count: int) -> None:
        facts = MemberFacts(me, range(count), (), count, 1, path.parent)
        self.members = Members(mail.Mail(path, me), facts)
        self.records = Records(self.members)
        self.mailroom = Mailroom(self.members)
        self.scheduler = Scheduler(self.mailroom, lambda: True)
        self.ledger = SharedLedger(self.records, self.mailroom, self.scheduler)

    def take(self) -> None:
        """Take all mail."""
        self.look()
        self.mailroom.pump()
        self.look()

    def look(self) -> None:
        self.records.refresh(self.members.generation)

    def start(self) -> Any:
        """Begin the oldest task; the scope that it runs in."""
        self.scheduler.queue.popleft()()  # type: ignore[operator]
        return SCOPES.pop()

    def done(self, finish: Any) -> bool:
        self.look()
        return bool(finish.done())

    def close(self, finish: Any) -> list[int]:
        """Places of the exceptions of a finish that is done."""
        finish.close()
        assert all(isinstance(e, DeadPlaceException) for e in finish.errors)
        return sorted(e.place for e in finish.errors)


SCOPES: list[Any] = []  # of tasks that have begun and go on
BODY: tasks.Body = (print, (), {})


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Place]]:
    loading.load()
    mail.create(tmp_path / "mail", 4)
    # A task does not end by itself: the test ends its scope.
    monkeypatch.setattr(tasks, "run", lambda scheduler, scope, *task: SCOPES.append(scope))
    yield [Place(tmp_path / "mail", me, 4) for me in range(4)]
    SCOPES.clear()


def die(places: list[Place], place: int) -> None:
    places[0].members.mail.note_death(place)


def test_a_finish_asks_nobody(places: list[Place]) -> None:
    """Law: it is done when all that was sent has ended, though nobody has answered."""
    root = places[0].ledger.root()
    places[0].ledger.send_task(root, 1, BODY)
    assert not places[0].done(root)
    places[1].take()
    scope = places[1].start()
    places[1].ledger.send_task(scope, 2, BODY)
    scope.end()
    assert not places[0].done(root)
    places[2].take()
    inner = places[2].start()
    assert inner.begin() is inner  # a task of its own place
    inner.end()
    assert not places[0].done(root)
    inner.end()
    assert places[0].done(root)
    assert places[0].close(root) == []


def test_a_task_at_a_dead_place_is_lost(places: list[Place]) -> None:
    """Law: it is told with the number of tasks, in the ring or begun; those that had ended are not
    counted."""
    root = places[0].ledger.root()
    for _ in range(3):
        places[0].ledger.send_task(root, 1, BODY)
    places[1].take()
    places[1].start().end()
    places[1].start()
    assert not places[0].done(root)
    die(places, 1)
    assert places[0].done(root)
    root.close()
    assert [(e.place, e.lost) for e in root.errors] == [(1, 2)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("taken", ["after", "before", "cut"])
def test_a_task_in_a_dead_ring(places: list[Place], taken: str) -> None:
    """Law: it is waited for if it was taken, and dropped and told if not, also if its place takes
    it between the finish's look and its end."""
    root = places[0].ledger.root()
    finish = places[0].ledger.finish(root)
    places[0].ledger.send_task(finish, 1, BODY)
    places[1].take()
    scope = places[1].start()
    places[1].ledger.send_task(scope, 2, BODY)
    scope.end()
    if taken == "before":
        places[2].take()
    die(places, 1)
    if taken == "before":
        assert not places[0].done(finish)
        places[2].start().end()
    elif taken == "cut":
        places[0].look()
        assert places[0].records.quiet(finish.record or 0)
        places[2].take()
        assert not places[2].scheduler.queue
    assert places[0].done(finish)
    told = places[0].close(finish)
    assert told == ([] if taken == "before" else [1] * len(told))
    assert bool(told) == (taken != "before")
    arrived = places[2].records.arrived(finish.record or 0, 1, 2)
    before = places[2].records.words.load(arrived)
    places[2].take()
    assert not places[2].scheduler.queue  # it never begins
    # It does not count in a record that is in use no longer, nor does its home hear of it.
    assert places[2].records.words.load(arrived) == before
    assert not places[0].members.mail.holds(2)


def test_orphans_are_adopted(places: list[Place]) -> None:
    """Law: the first living ancestor waits for the tasks of finishes whose homes are dead, and
    takes none of their losses."""
    root = places[0].ledger.root()
    places[0].ledger.send_task(root, 1, BODY)
    places[1].take()
    outer = places[1].ledger.finish(places[1].start())
    places[1].ledger.send_task(outer, 2, BODY)
    places[2].take()
    inner = places[2].ledger.finish(places[2].start())
    for to in (1, 3):
        places[2].ledger.send_task(inner, to, BODY)
    places[3].take()
    last = places[3].start()
    die(places, 2)
    places[1].look()
    assert places[1].records.orphans(outer.record or 0) == [inner.record]
    assert not places[0].records.orphans(0)
    die(places, 1)
    assert not places[0].done(root)
    assert set(places[0].records.orphans(0)) == {outer.record, inner.record}
    last.end()
    assert places[0].done(root)
    assert places[0].close(root) == [1]
    assert not places[0].records.orphans(0)


def test_an_at_waits_for_orphans(places: list[Place]) -> None:
    """Law: finishes in the body of an `at` belong to it, not to the finish around it."""
    root = places[0].ledger.root()
    around = root.reference()
    ledger = places[0].ledger
    record, serial = places[0].records.take(root.nearest())
    call = ledger.calls[record] = Call(record, serial, 1, Worker())
    ledger.words.add(places[0].records.sent(record, 0, 1))
    places[1].ledger.words.add(places[1].records.arrived(record, 0, 1))
    body = AtBody(places[1].ledger, around, record)
    finish = places[1].ledger.finish(body)
    places[1].ledger.send_task(finish, 2, BODY)
    places[1].ledger.send_task(body, 3, BODY)  # of the finish around
    places[2].take()
    places[3].take()
    orphan, other = places[2].start(), places[3].start()
    assert not ledger._called(call)
    die(places, 1)
    places[0].look()
    assert not ledger._called(call)
    orphan.end()
    assert ledger._called(call) and call.reply is None
    ledger.retire(record)
    assert not places[0].done(root)
    other.end()
    assert places[0].done(root)


def test_quarantine(places: list[Place]) -> None:
    """Law: a record that has seen a death is used again when all living places have taken the
    mail of the dead; its old losses are not told twice."""
    first = places[0].ledger
    root = first.root()
    finish = first.finish(root)
    first.send_task(finish, 1, BODY)
    places[1].take()
    scope = places[1].start()
    for to in (2, 3):
        places[1].ledger.send_task(scope, to, BODY)
    die(places, 1)
    assert places[0].done(finish)
    places[0].close(finish)
    record = finish.record
    assert record not in places[0].records.free
    places[0].records.free.clear()
    assert not places[0].records.available()
    places[2].take()
    places[0].take()
    assert not places[0].records.available()
    places[3].take()
    assert places[0].records.available() and list(places[0].records.free) == [record]
    again = first.finish(root)
    first.send_task(again, 2, BODY)
    assert again.record == record
    places[2].take()
    places[2].start().end()
    assert places[0].done(again)
    assert places[0].close(again) == []


def test_late_exceptions_find_nobody(places: list[Place]) -> None:
    """Law: exceptions come before the end that they belong to; those of an earlier use of a record
    are dropped."""
    first = places[0].ledger
    root = first.root()
    first.send_task(root, 1, BODY)
    places[1].take()
    scope = places[1].start()
    scope.push(ValueError("mine"))
    scope.end()
    places[1].ledger.send_errors(0, 3, [ValueError("of another use")])
    assert places[0].done(root)
    root.close()
    assert [str(e) for e in root.errors] == ["mine"]


def test_words_are_enough_for_many_places() -> None:
    """Law: each place has some records, whatever their number, and too many are refused."""
    class Crowd:
        generation = 0
        me = 0

        def __init__(self, count: int) -> None:
            self.possible = tuple(range(count))
            self.mail: Any = self
            self.words: Any = type("Words", (), {"count": 1 << 20})

    for count, least in ((1, 4000), (4, 1000), (8, 500), (16, 60), (32, 8)):
        found = Records(Crowd(count))  # type: ignore[arg-type]
        assert found.each >= least
        assert found.rows + found.each * count * 3 * count**2 <= 1 << 20
    with pytest.raises(ValueError, match="can be 64"):
        Records(Crowd(65))  # type: ignore[arg-type]


def test_groups() -> None:
    """Law: exceptions of a class are found in groups inside of groups."""
    dead = DeadPlaceException(3, 2)
    inner = group([ValueError("x"), dead])
    outer = group([inner, KeyError("y")])
    assert outer.of_type(DeadPlaceException) == [dead] and not outer.only(DeadPlaceException)
    assert isinstance(inner.subgroup(ValueError), MultipleExceptions)
    assert group([dead]).only(DeadPlaceException)
    assert str(dead) == "place 3 has died; 2 tasks are lost with it"
    assert records.FIRST == 65536
