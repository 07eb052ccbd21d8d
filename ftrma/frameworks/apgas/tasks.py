"""Tasks: how they run, and how their exceptions come to another place."""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from ...host.errors import Rollback
from .errors import Ended, RemoteError
from .scheduler import Scheduler

Body = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]  # function and its arguments
UNWINDS = (Rollback, Ended, KeyboardInterrupt, GeneratorExit)


class Scope(Protocol):
    """Interface of the finish that counts a task and the tasks it starts, as its place sees it."""

    def begin(self) -> Scope:
        """Count a task that the running task starts at its own place; return the new task's scope.
        """

    def end(self) -> None:
        """Count the end of a task."""

    def push(self, error: Exception) -> None:
        """Add an exception to those of the finish."""


def run(scheduler: Scheduler, scope: Scope, body: Body, kind: str, source: int) -> None:
    """Run a task to its end, on a thread of the pool; pass its exceptions to its finish.

    Args:
        kind: kind of the task, as a trace shows it.
        source: the place that has started the task.
    """
    _, errors = execute(scheduler, scope, body, kind, source)
    for error in errors:
        scope.push(error)
    scope.end()


def execute(scheduler: Scheduler, scope: Scope, body: Body, kind: str, source: int
            ) -> tuple[Any, list[Exception]]:
    """Call a function as a task of a scope; return its value and its exceptions."""
    worker = scheduler.current()
    worker.scope = scope  # a finish replaces it while the task is inside of the finish
    function, args, kwargs = body
    value, errors, timeline = None, [], scheduler.timeline
    if timeline is not None:
        span = timeline.begin(name_of(function), worker.line, kind=kind, from_place=source)
    try:
        value = function(*args, **kwargs)
    except UNWINDS:
        raise
    except BaseException as error:
        errors.append(as_exception(error))
    while worker.scope is not scope:  # the task has entered this finish and not left it
        finish: Any = worker.scope
        finish.close()
        errors += [*finish.errors, RuntimeError("a task has ended inside of a finish that it had "
                                                "begun: write `with apgas.finish():`")]
        worker.scope = finish.above
    if timeline is not None:
        raised = ", ".join(type(error).__name__ for error in errors)
        timeline.end(span, **{"raised": raised} if errors else {})
    return value, errors


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, for messages and traces."""
    function = getattr(function, "func", function)  # the function of a functools.partial
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def as_exception(error: BaseException) -> Exception:
    """Return an error as a finish can hold it; SystemExit of a task does not end the place."""
    if isinstance(error, Exception):
        return error
    return RemoteError(f"{type(error).__name__} in a task: {error}")


def portable(error: Exception, place: int) -> Exception:
    """Return an exception that can be pickled; its note is the traceback of this place."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if sys.version_info >= (3, 11) and not hasattr(error, "__notes__"):
        error.add_note(f"at place {place}:\n{text}")
    try:
        pickle.loads(pickle.dumps(error, 5))
    except Exception as reason:
        why = str(reason).partition("\n")[0]
        return RemoteError(f"an exception of place {place} cannot be pickled ({why}); its text:\n"
                           f"{text}")
    return error


def tell(error: BaseException, place: int) -> None:
    """Write an exception that no finish waits for to standard error."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    print(f"place {place}: an uncounted task has ended with an exception\n{text}", file=sys.stderr,
          end="", flush=True)
