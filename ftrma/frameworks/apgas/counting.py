"""Finish "none": counts by messages to the home, without resilience, as a comparison.

A place counts its tasks of a finish. When none is left, it reports to the home how many tasks have
come since the last report, how many it has sent to each place, and their exceptions. The home is
done when as many tasks have come to each place as were sent there. The report of an idle place is
consistent in itself, so the sums of reports of different moments agree only at the end.

Asyncs in the body of an `at` are counted as sent by the caller; the reply tells it their number.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

from ... import framework
from . import kinds, tasks
from .errors import DeadPlaceException, group
from .mailroom import Mailroom, pack, unpack
from .records import NOBODY, Records
from .scheduler import Scheduler
from .scopes import Uncounted

TASK_HEAD = struct.Struct("<QQ")  # home, number of the finish
AT_HEAD = struct.Struct("<QQQQ")  # number of the `at`, 0, and home and number of the finish
Key = tuple[int, int]  # home and number


class Counted:
    """A finish at its home.

    Attributes:
        balance: for each place, the tasks that were sent there minus those that have come.
    """

    def __init__(self, ledger: CountingLedger, key: Key) -> None:
        self.ledger, self.key = ledger, key
        self.above: Any = None
        self.count = 0
        self.errors: list[Exception] = []
        self.balance: Counter[int] = Counter()
        self.generation = ledger.records.members.generation

    def begin(self) -> Counted:
        self.count += 1
        return self

    def end(self) -> None:
        self.count -= 1

    def push(self, error: Exception) -> None:
        self.errors.append(error)

    def reference(self) -> Key:
        return self.key

    def sent(self, to: int, n: int = 1) -> None:
        self.balance[to] += n
        if not self.balance[to]:
            del self.balance[to]

    def done(self) -> bool:
        return self.count == 0 and (
            not self.balance or self.ledger.records.members.generation > self.generation)

    def close(self) -> None:
        self.ledger.scheduler.wait(self.done)
        del self.ledger.finishes[self.key[1]]
        if self.balance:
            deaths = self.ledger.records.members.deaths(self.generation)
            self.errors += [DeadPlaceException(place) for place in deaths]


class Branch:
    """All tasks of a finish at a place that is not its home."""

    def __init__(self, ledger: CountingLedger, key: Key) -> None:
        self.ledger, self.key = ledger, key
        self.count = self.come = 0
        self.errors: list[Exception] = []
        self.sends: Counter[int] = Counter()

    def begin(self) -> Branch:
        self.count += 1
        return self

    def end(self) -> None:
        self.count -= 1
        if not self.count:
            self.ledger.report(self)

    def push(self, error: Exception) -> None:
        self.errors.append(error)

    def reference(self) -> Key:
        return self.key

    def sent(self, to: int, n: int = 1) -> None:
        self.sends[to] += n


class AtBody:
    """The finish around an `at`, as the function of the `at` sees it."""

    def __init__(self, ledger: CountingLedger, key: Key) -> None:
        self.ledger, self.key = ledger, key
        self.errors: list[Exception] = []
        self.sends: Counter[int] = Counter()

    def begin(self) -> Any:
        if self.key[0] == NOBODY:
            return self.ledger.nobody
        self.sends[self.ledger.place] += 1
        return self.ledger.arrive(self.key)

    def end(self) -> None:
        raise AssertionError("the body of an at is no task of a finish")

    def push(self, error: Exception) -> None:
        self.errors.append(error)

    def reference(self) -> Key:
        return self.key

    def sent(self, to: int, n: int = 1) -> None:
        self.sends[to] += n


class CountingLedger:
    """The finishes of this place, and its tasks of others' finishes, for finish "none"."""

    def __init__(self, records: Records, mailroom: Mailroom, scheduler: Scheduler) -> None:
        self.records, self.mailroom, self.scheduler = records, mailroom, scheduler
        self.place = records.members.me
        self.number = 0  # number of the newest finish or `at` of this place
        self.finishes: dict[int, Counted] = {}
        self.branches: dict[Key, Branch] = {}
        self.calls: dict[int, Any] = {}  # replies by number; None: the reply has not come
        self.nobody = Uncounted(self.place)
        mailroom.handle_raw(kinds.TASK, self._on_task)
        mailroom.handle_raw(kinds.AT, self._on_at)
        mailroom.handle(kinds.REPLY, self._on_reply)
        mailroom.handle(kinds.REPORT, self._on_report)

    def root(self) -> Counted:
        """Open the finish around the whole program, at place zero; its number is 1."""
        return self.finish(None)

    def finish(self, above: Any) -> Counted:
        self.number += 1
        finish = self.finishes[self.number] = Counted(self, (self.place, self.number))
        finish.above = above
        return finish

    def main_elsewhere(self) -> Branch:
        """Begin the program at a slot other than place zero (see `expect_mains`)."""
        return self.arrive((self.records.members.root, 1))  # type: ignore[no-any-return]

    def expect_mains(self) -> None:
        """Count, at place zero, the programs of all slots as tasks of the root."""
        members = self.records.members
        for place in members.everyone[1:members.slots]:
            if members.alive(place):
                self.finishes[1].sent(place)

    def arrive(self, key: Key) -> Any:
        """Count a task that has come to this place; return the scope in which it runs."""
        if key[0] == self.place:
            finish = self.finishes[key[1]]
            finish.sent(self.place, -1)
            return finish.begin()
        branch = self.branches.get(key)
        if branch is None:
            branch = self.branches[key] = Branch(self, key)
        branch.come += 1
        return branch.begin()

    def report(self, branch: Branch) -> None:
        """Tell the home how many tasks have come and were sent, and their exceptions."""
        del self.branches[branch.key]
        errors = [tasks.portable(error, self.place) for error in branch.errors]
        framework.kill_place("apgas.end")
        self.mailroom.post(branch.key[0], kinds.REPORT,
                           (branch.key[1], branch.come, dict(branch.sends), errors))

    def _on_report(self, source: int, report: Any) -> None:
        number, come, sends, errors = report
        finish = self.finishes.get(number)
        if finish:
            finish.errors += errors
            finish.sent(source, -come)
            for place, n in sends.items():
                finish.sent(place, n)

    # -- tasks --------------------------------------------------------------------------------

    def send_task(self, scope: Any, to: int, body: tasks.Body) -> None:
        """Start a task at another place."""
        key = scope.reference()
        if key[0] == NOBODY:
            self.send_uncounted(to, body)
            return
        data = pack(body, "async_at({}, ...)", TASK_HEAD.pack(*key), to)
        if not self.records.members.alive(to):
            scope.push(DeadPlaceException(to))
            return
        scope.sent(to)
        self.mailroom.send(to, kinds.TASK, data)

    def send_uncounted(self, to: int, body: tasks.Body) -> None:
        self.mailroom.send(to, kinds.UNCOUNTED, pack(body, "uncounted_async_at({}, ...)", about=to))

    def _on_task(self, source: int, view: Any) -> None:
        home, number = TASK_HEAD.unpack_from(view)
        if home == self.place and number not in self.finishes:
            return  # a death has ended the finish
        scope = self.arrive((home, number))
        try:
            body = unpack(view[TASK_HEAD.size:], type(view.obj) is bytearray)
        except Exception as error:
            scope.push(error)
            scope.end()
        else:
            self.scheduler.spawn(
                lambda: tasks.run(self.scheduler, scope, body, "task", source))

    # -- at -----------------------------------------------------------------------------------

    def call(self, scope: Any, to: int, body: tasks.Body) -> Any:
        """Run a function at another place and wait for its value.

        Raises:
            DeadPlaceException: the place has died.
        """
        members, key = self.records.members, scope.reference()
        data = pack(body, "at({}, ...)", about=to)
        if not members.alive(to):
            raise DeadPlaceException(to)
        self.number += 1
        number = self.number
        self.calls[number] = None
        self.mailroom.send(to, kinds.AT, AT_HEAD.pack(number, 0, *key) + data)
        self.scheduler.wait(lambda: self.calls[number] is not None or not members.alive(to))
        reply = self.calls.pop(number)
        if reply is None:
            raise DeadPlaceException(to)
        well, value, sends, errors = reply
        if key[0] != NOBODY:
            for place, n in sends.items():
                scope.sent(place, n)
        for error in errors:
            scope.push(error)
        if well:
            return value
        raise value

    def _on_at(self, source: int, view: Any) -> None:
        number, _, home, finish = AT_HEAD.unpack_from(view)
        try:
            body = unpack(view[AT_HEAD.size:], type(view.obj) is bytearray)
        except Exception as error:
            body = _raise, (error,), {}
        self.scheduler.spawn(lambda: self._run_at(source, number, (home, finish), body))

    def _run_at(self, source: int, number: int, key: Key, body: tasks.Body) -> None:
        scope = AtBody(self, key)
        value, errors = tasks.execute(self.scheduler, scope, body, "at", source)
        pushed = [tasks.portable(error, self.place) for error in scope.errors]
        if not errors:
            what = f"the value of {{}} at place {self.place}"
            name = getattr(body[0], "__qualname__", body[0])
            try:
                data = pack((number, (True, value, dict(scope.sends), pushed)), what, about=name)
            except TypeError as refused:
                errors = [refused]
        if errors:
            error = errors[0] if len(errors) == 1 else group(errors)
            reply = False, tasks.portable(error, self.place), dict(scope.sends), pushed
            data = pack((number, reply), "an exception")
        framework.kill_place("apgas.reply")
        self.mailroom.send(source, kinds.REPLY, data)

    def _on_reply(self, source: int, answer: Any) -> None:
        number, reply = answer
        if number in self.calls:
            self.calls[number] = reply


def _raise(error: Exception) -> None:
    raise error
