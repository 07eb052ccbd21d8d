"""Exceptions of `ftrma.apgas`.

`MultipleExceptions` is an ExceptionGroup from Python 3.11 on. Python 3.10 has no such class, so one
with the methods that programs use stands in for it there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ...host.errors import FtrmaError

E = TypeVar("E", bound=BaseException)


class DeadPlaceException(FtrmaError):
    """A place has died, and the work that it was given is lost.

    Attributes:
        place: id of the dead place.
        lost: number of tasks that are known to be lost with it, at least 1.

    MPI: raised where a task, a finish or an `at` needed the place.
    Fault: tells of a death; the work of other places is kept.
    """

    def __init__(self, place: int, lost: int = 1) -> None:
        self.place = place
        self.lost = lost
        super().__init__(place, lost)

    def __str__(self) -> str:
        return f"place {self.place} has died" + (f"; {self.lost} tasks are lost with it"
                                                 if self.lost > 1 else "")


class RemoteError(FtrmaError):
    """An exception of another place that cannot be pickled; the text has its class and message.

    MPI: raised in place of that exception, by a finish or an `at`.
    Fault: no death causes it.
    """


class Ended(BaseException):
    """Ends the tasks that nobody waits for, when the program has ended at place zero.

    It does not derive from Exception, so that no ``except Exception`` of a task swallows it.
    """


if sys.version_info >= (3, 11):
    from builtins import ExceptionGroup as Group
else:
    class Group(Exception):
        """Stand-in for ExceptionGroup.

        Attributes:
            message: what the exceptions have in common.
            exceptions: the exceptions, a tuple.
        """

        def __init__(self, message: str, exceptions: Sequence[Exception]) -> None:
            self.message = message
            self.exceptions = tuple(exceptions)
            super().__init__(message, self.exceptions)

        def __str__(self) -> str:
            return f"{self.message} ({len(self.exceptions)} sub-exceptions)"

        def derive(self, exceptions: Sequence[Exception]) -> Group:
            return Group(self.message, exceptions)

        def split(self, condition: Any) -> tuple[Any, Any]:
            """Return the part that meets a condition (a class or a function), and the rest."""
            meets: Callable[[Any], bool] = condition
            if isinstance(condition, type | tuple):
                def meets(e: Any) -> bool:
                    return isinstance(e, condition)
            if meets(self):
                return self, None
            parts: tuple[list[Any], list[Any]] = ([], [])
            for e in self.exceptions:
                both = e.split(condition) if isinstance(e, Group) else (
                    (e, None) if meets(e) else (None, e))
                for part, found in zip(parts, both, strict=True):
                    if found is not None:
                        part.append(found)
            return tuple(self.derive(part) if part else None for part in parts)  # type: ignore

        def subgroup(self, condition: Any) -> Any:
            """Return the part that meets a condition, or None if there is no such part."""
            return self.split(condition)[0]


class MultipleExceptions(Group):
    """All exceptions of a finish: those of its body, of its tasks, and one for each dead place.

    Attributes:
        exceptions: the exceptions, a tuple. Those of an inner finish are in a group of their own.

    MPI: raised at the place that waits for the finish.
    Fault: contains a `DeadPlaceException` for each place with which tasks of the finish were lost.
    """

    def derive(self, exceptions: Sequence[Any]) -> MultipleExceptions:  # type: ignore[override]
        return MultipleExceptions(self.message, exceptions)

    def of_type(self, cls: type[E]) -> list[E]:
        """Return the exceptions of a class, also those in inner groups."""
        return [e for e in self.leaves() if isinstance(e, cls)]

    def leaves(self) -> Iterator[BaseException]:
        """Yield all exceptions that are not groups, also those in inner groups."""
        for e in self.exceptions:
            if isinstance(e, MultipleExceptions):
                yield from e.leaves()
            elif isinstance(e, Group):
                yield from MultipleExceptions(e.message, e.exceptions).leaves()
            else:
                yield e

    def only(self, cls: type[BaseException]) -> bool:
        """Say whether all exceptions are of a class."""
        return all(isinstance(e, cls) for e in self.leaves())


def group(exceptions: Sequence[Exception]) -> MultipleExceptions:
    """Return the group that a finish raises for these exceptions."""
    first = exceptions[0]
    more = f" and {len(exceptions) - 1} more" if len(exceptions) > 1 else ""
    words = str(first).partition("\n")[0]
    return MultipleExceptions(f"{type(first).__name__}: {words}{more}", list(exceptions))
