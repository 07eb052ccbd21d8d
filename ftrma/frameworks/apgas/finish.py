"""The resilient finish: no place asks a home; all places count in words that they share.

A finish is an object at its *home*, the place that waits for it, until something of it leaves that
place; from then on it has a record (`records`). The sender of a task counts it in `sent`, and then
appends it to the ring. The place that takes the task counts it in `arrived`, and then looks whether
its source has been cut off. When the task ends, its exceptions are appended to the home's ring, and
then it is counted in `ended`. So no busy place is asked for anything, and the words that the dead
have written remain.

Rules of a waiting home: it cuts off the tasks of dead places that are still in rings. Then it waits
until the tasks at living places have ended: its own tasks, and those of *orphans*. An orphan is a
record of a dead home whose first living ancestor is this home's record. For each dead place the
finish gets a DeadPlaceException, with the number of tasks that were at that place, or on their way
from it. Exceptions of the tasks of orphans are lost with their homes.

The body of an `at` has a record of its own, which is the parent of finishes inside of it. Its
asyncs count in the finish around the `at`; asyncs at its own place count as sent by the place to
itself. If inner finishes were children of the finish around the `at` instead, `at` could return
before the tasks of an inner finish whose home has died.

Laws: when a finish or `at` has ended at a living place, no task that belongs to it goes on, and
none begins. A task that is lost gives a DeadPlaceException.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from ... import framework
from ...host import timeouts
from ...host.errors import FtrmaError
from . import kinds, tasks
from .errors import DeadPlaceException, group
from .mailroom import Mailroom, pack, unpack
from .records import CUT, NOBODY, SERIAL, Records
from .scheduler import Scheduler, Worker
from .scopes import AtBody, Branch, Finish, Scope, Uncounted

TASK_HEAD = struct.Struct("<QQ")  # record, serial
AT_HEAD = struct.Struct("<QQQQ")  # record and serial of the `at`, and of the finish around it


class Call:
    """An `at` that waits for its value in a task of a worker."""

    def __init__(self, record: int, serial: int, to: int, worker: Worker) -> None:
        self.record, self.serial, self.to, self.worker = record, serial, to, worker
        self.reply: tuple[bool, Any] | None = None


class SharedLedger:
    """The finishes of this place, and its tasks of others' finishes, for finish "place0"."""

    def __init__(self, records: Records, mailroom: Mailroom, scheduler: Scheduler) -> None:
        self.records, self.words = records, records.words
        self.mailroom, self.scheduler = mailroom, scheduler
        self.place, self.me = records.members.me, records.me
        self.open_finishes: dict[int, Finish] = {}  # by record
        self.calls: dict[int, Call] = {}  # by record
        self.nobody = Uncounted(self.place)
        mailroom.handle_raw(kinds.TASK, self._on_task)
        mailroom.handle_raw(kinds.AT, self._on_at)
        mailroom.handle_raw(kinds.REPLY, self._on_reply)
        mailroom.handle_raw(kinds.EXCEPTIONS, self._on_errors)

    # -- homes --------------------------------------------------------------------------------

    def root(self) -> Finish:
        """Open the finish around the whole program at place zero; its record is the first one."""
        finish = Finish(self, None)
        assert finish.reference() == (0, 1)
        return finish

    def finish(self, above: Scope) -> Finish:
        return Finish(self, above)

    def await_record(self) -> None:
        """Wait until a record is free."""
        records = self.records
        deadline = time.monotonic() + timeouts.NO_RECORD.s
        if not records.available() and not self.scheduler.wait(records.available, deadline):
            raise FtrmaError(
                f"place {self.place}: {records.each} finishes and ats in which other places take "
                "part wait at once, and none has ended for a while; nest them less deeply")

    def register(self, finish: Finish) -> tuple[int, int]:
        """Give a finish a free record."""
        taken = self.records.take(finish.above.nearest() if finish.above else NOBODY)
        self.open_finishes[taken[0]] = finish
        return taken

    def quiet(self, record: int) -> bool:
        """Say whether nothing is left to wait for; if so, all exceptions have been taken."""
        if self.records.orphans(record):
            framework.kill_place("apgas.adopt")
        if not self.records.quiet(record):
            return False
        while not self.mailroom.pump():
            pass
        return True

    def retire(self, record: int) -> list[Exception]:
        """End a record and its orphans; return an exception for each place with lost tasks."""
        self.open_finishes.pop(record, None)
        losses = self.records.losses(record)
        lost: list[Exception] = [DeadPlaceException(*one) for one in losses.items()]
        for one in [*self.records.orphans(record), record]:
            self.records.retire(one)
        return lost

    # -- tasks --------------------------------------------------------------------------------

    def send_task(self, scope: Scope, to: int, body: tasks.Body) -> None:
        """Start a task at another place."""
        record, serial = scope.reference()
        if record == NOBODY:
            self.send_uncounted(to, body)
            return
        data = pack(body, "async_at({}, ...)", TASK_HEAD.pack(record, serial), to)
        if not self.records.members.alive(to):
            scope.push(DeadPlaceException(to))
            return
        self._append(kinds.TASK, record, to, data)

    def send_uncounted(self, to: int, body: tasks.Body) -> None:
        self.mailroom.send(to, kinds.UNCOUNTED, pack(body, "uncounted_async_at({}, ...)", about=to))

    def _append(self, kind: int, record: int, to: int, data: bytes) -> None:
        framework.kill_place("apgas.count")
        self.words.add(self.records.sent(record, self.me, self.records.index[to]))
        framework.kill_place("apgas.append")
        self.mailroom.send(to, kind, data)

    def own_task(self, finish: tuple[int, int]) -> Scope:
        """Count a local task of another place's finish, as sent by this place to itself."""
        record, serial = finish
        if record == NOBODY:
            return self.nobody
        self.words.add(self.records.sent(record, self.me, self.me))
        self.words.add(self.records.arrived(record, self.me, self.me))
        return Branch(self, record, serial, self.me)

    def main_elsewhere(self) -> Branch:
        """Begin the program at a slot other than place zero (see `expect_mains`)."""
        self.words.add(self.records.arrived(0, 0, self.me))
        return Branch(self, 0, 1, 0)

    def expect_mains(self) -> None:
        """Count, at place zero, the programs of all slots as tasks of the root."""
        members = self.records.members
        for place in members.everyone[1:members.slots]:
            if members.alive(place):
                self.words.add(self.records.sent(0, 0, self.records.index[place]))

    def _admit(self, record: int, serial: int, source: int) -> bool:
        """Count a task that has come; False: its finish has ended, or its source is cut off."""
        words, records, s = self.words, self.records, self.records.index[source]
        head = records.head(record)
        if words.load(head + SERIAL) != serial:
            return False
        words.add(records.arrived(record, s, self.me))
        framework.kill_place("apgas.admit")
        if words.load(head + CUT) >> s & 1:
            branch = Branch(self, record, serial, s)
            branch.push(DeadPlaceException(source))
            branch.end()
            return False
        return True

    def _on_task(self, source: int, view: Any) -> None:
        record, serial = TASK_HEAD.unpack_from(view)
        if not self._admit(record, serial, source):
            return
        branch = Branch(self, record, serial, self.records.index[source])
        try:
            body = unpack(view[TASK_HEAD.size:], type(view.obj) is bytearray)
        except Exception as error:
            branch.push(error)
            branch.end()
        else:
            self.scheduler.spawn(
                lambda: tasks.run(self.scheduler, branch, body, "task", source))

    def end_branch(self, branch: Branch) -> None:
        """Tell the home the exceptions of a branch's tasks, and then their end."""
        if branch.errors:
            framework.kill_place("apgas.exception")
            self.send_errors(branch.record, branch.serial, branch.errors)
        framework.kill_place("apgas.end")
        word = self.records.ended(branch.record, branch.source, self.me)
        self._end(branch.record, self.records.home(branch.record), word)

    def _end(self, record: int, first: int, word: int, more: Callable[[], None] | None = None
             ) -> None:
        """Count an end as soon as all messages to `first` are in its ring."""
        def end() -> None:
            self.words.add(word)
            if more:
                more()
            home = self.records.home(record)
            if self.records.members.alive(home):
                self.mailroom.mail.ring(home)
            else:  # one of the living places has adopted the record
                for place in self.records.members.everyone:
                    self.mailroom.mail.ring(place)

        self.mailroom.then(first, end)

    # -- exceptions ---------------------------------------------------------------------------

    def send_errors(self, record: int, serial: int, errors: list[Exception]) -> None:
        """Send exceptions to a finish's home."""
        if record == NOBODY:
            for error in errors:
                tasks.tell(error, self.place)
            return
        found = [tasks.portable(error, self.place) for error in errors]
        self.mailroom.send(self.records.home(record), kinds.EXCEPTIONS,
                           pack(found, "exceptions", TASK_HEAD.pack(record, serial)))

    def _on_errors(self, source: int, view: Any) -> None:
        record, serial = TASK_HEAD.unpack_from(view)
        finish = self.open_finishes.get(record)
        if finish and finish.serial == serial:
            try:
                finish.errors += unpack(view[TASK_HEAD.size:])
            except Exception as error:
                finish.errors.append(error)

    # -- at -----------------------------------------------------------------------------------

    def call(self, scope: Scope, to: int, body: tasks.Body) -> Any:
        """Run a function at another place and wait for its value.

        Raises:
            DeadPlaceException: the place has died; the call's work at living places has ended.
        """
        around = scope.reference()
        data = pack(body, "at({}, ...)", about=to)
        if not self.records.members.alive(to):
            raise DeadPlaceException(to)
        self.await_record()
        record, serial = self.records.take(scope.nearest())
        call = self.calls[record] = Call(record, serial, to, self.scheduler.current())
        self._append(kinds.AT, record, to, AT_HEAD.pack(record, serial, *around) + data)
        self.scheduler.wait(lambda: self._called(call), told=True)
        del self.calls[record]
        self.retire(record)
        if call.reply is None:
            raise DeadPlaceException(to)
        well, value = call.reply
        if well:
            return value
        raise value

    def _called(self, call: Call) -> bool:
        if call.reply is not None:
            return True
        return self.records.index[call.to] in self.records.dead and self.quiet(call.record)

    def _on_at(self, source: int, view: Any) -> None:
        record, serial, *finish = AT_HEAD.unpack_from(view)
        if not self._admit(record, serial, source):
            return
        try:
            body = unpack(view[AT_HEAD.size:], type(view.obj) is bytearray)
        except Exception as error:
            body = _raise, (error,), {}
        around = (finish[0], finish[1])
        self.scheduler.spawn(lambda: self._run_at(source, record, serial, around, body))

    def _run_at(self, source: int, record: int, serial: int, finish: tuple[int, int],
                body: tasks.Body) -> None:
        head = TASK_HEAD.pack(record, serial)
        value, errors = tasks.execute(self.scheduler, AtBody(self, finish, record), body, "at",
                                      source)
        what = f"the value of {{}} at place {self.place}"
        name = getattr(body[0], "__qualname__", body[0])
        try:
            data = b"" if errors else pack((True, value), what, head, name)
        except TypeError as refused:
            errors = [refused]
        if errors:
            error = errors[0] if len(errors) == 1 else group(errors)
            data = pack((False, tasks.portable(error, self.place)), "an exception", head)
        framework.kill_place("apgas.end")
        around = self.records.home(finish[0]) if finish[0] != NOBODY else source
        word = self.records.ended(record, self.records.index[source], self.me)
        self._end(record, around, word, lambda: self._reply(source, data))

    def _reply(self, source: int, data: bytes) -> None:
        framework.kill_place("apgas.reply")
        self.mailroom.send(source, kinds.REPLY, data)

    def _on_reply(self, source: int, view: Any) -> None:
        record, serial = TASK_HEAD.unpack_from(view)
        call = self.calls.get(record)
        if call and call.serial == serial:
            try:
                call.reply = unpack(view[TASK_HEAD.size:], type(view.obj) is bytearray)
            except Exception as error:
                call.reply = False, error
            self.scheduler.awake(call.worker)


def _raise(error: Exception) -> None:
    raise error
