"""Finishes as tasks see them: at home, at another place, in the body of an `at`, or none at all.

Each scope counts the tasks that start and end at its place; the ledger of the place (`finish`) lets
other places know.
"""

from __future__ import annotations

from typing import Protocol

from . import tasks
from .records import NOBODY
from .scheduler import Scheduler


class Scope(tasks.Scope, Protocol):
    """A finish as a task at some place sees it."""

    def reference(self) -> tuple[int, int]:
        """Return record and serial for other places; the finish has a record from now on."""

    def nearest(self) -> int:
        """Return the record that is the parent of inner finishes and `at`s."""


class Ledger(Protocol):
    """Interface of the ledger that counts for the scopes of a place (`finish`)."""

    scheduler: Scheduler

    def await_record(self) -> None: ...
    def register(self, finish: Finish) -> tuple[int, int]: ...
    def quiet(self, record: int) -> bool: ...
    def retire(self, record: int) -> list[Exception]: ...
    def end_branch(self, branch: Branch) -> None: ...
    def own_task(self, finish: tuple[int, int]) -> Scope: ...
    def send_errors(self, record: int, serial: int, errors: list[Exception]) -> None: ...


class Finish:
    """A finish at its home, or an `at` at the place that waits for it.

    Attributes:
        count: number of its tasks at this place.
        errors: exceptions of its tasks.
        record, serial: its record and the serial of that; None and 0 until other places take part.
    """

    def __init__(self, ledger: Ledger, above: Scope | None) -> None:
        self.ledger, self.above = ledger, above
        self.count = 0
        self.errors: list[Exception] = []
        self.record: int | None = None
        self.serial = 0

    def begin(self) -> Finish:
        self.count += 1
        return self

    def end(self) -> None:
        self.count -= 1

    def push(self, error: Exception) -> None:
        self.errors.append(error)

    def reference(self) -> tuple[int, int]:
        if self.record is None:
            self.ledger.await_record()
        if self.record is None:  # another task of this finish may have got a record meanwhile
            self.record, self.serial = self.ledger.register(self)
        return self.record, self.serial

    def nearest(self) -> int:
        if self.record is not None:
            return self.record
        return self.above.nearest() if self.above else NOBODY

    def done(self) -> bool:
        return self.count == 0 and (self.record is None or self.ledger.quiet(self.record))

    def close(self) -> None:
        """Wait for all tasks; then `errors` has their exceptions, and one for each dead place.

        Fault: does not wait for dead places. Waits for tasks of inner finishes whose home has died.
        """
        self.ledger.scheduler.wait(self.done)
        if self.record is not None:
            self.errors += self.ledger.retire(self.record)


class Branch:
    """A task of a finish that has come from another place, with the tasks it has started here."""

    def __init__(self, ledger: Ledger, record: int, serial: int, source: int) -> None:
        self.ledger, self.record, self.serial, self.source = ledger, record, serial, source
        self.count = 1
        self.errors: list[Exception] = []

    def begin(self) -> Branch:
        self.count += 1
        return self

    def end(self) -> None:
        self.count -= 1
        if not self.count:
            self.ledger.end_branch(self)

    def push(self, error: Exception) -> None:
        self.errors.append(error)

    def reference(self) -> tuple[int, int]:
        return self.record, self.serial

    def nearest(self) -> int:
        return self.record


class AtBody:
    """The finish around an `at`, as the function of the `at` sees it at the other place."""

    def __init__(self, ledger: Ledger, finish: tuple[int, int], at: int) -> None:
        self.ledger, self.finish, self.at = ledger, finish, at

    def begin(self) -> Scope:
        return self.ledger.own_task(self.finish)

    def end(self) -> None:
        raise AssertionError("the body of an at is no task of a finish")

    def push(self, error: Exception) -> None:
        self.ledger.send_errors(*self.finish, [error])

    def reference(self) -> tuple[int, int]:
        return self.finish

    def nearest(self) -> int:
        return self.at


class Uncounted:
    """The scope of tasks that no finish waits for, and of the tasks that they start."""

    def __init__(self, place: int) -> None:
        self.place = place

    def begin(self) -> Uncounted:
        return self

    def end(self) -> None:
        pass

    def push(self, error: Exception) -> None:
        tasks.tell(error, self.place)

    def reference(self) -> tuple[int, int]:
        return NOBODY, 0

    def nearest(self) -> int:
        return NOBODY
