"""A framework's own events on the timeline of ``--trace``: spans and moments, with names.

A span is two records, so that the trace also has spans that a killed process had begun.
`ftrma.trace.spans` makes events of them. Each record costs some microseconds: tracing is meant for
looking at a run, not for speed.

Law: a record that is too long is shortened, never split: its text is always complete JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..native import logs
from ..native.constants import WHAT

SPAN, SPANNED, MARK = WHAT["SPAN"], WHAT["SPANNED"], WHAT["MARK"]
MOST_NAME = 200  # characters of a name
MOST_VALUE = 80  # of a fact's text
MOST_BYTES = logs.TRACE_TEXT_BYTES


class Timeline:
    """The timeline of a process in an attempt of the program.

    Lines are drawn one below the other. Spans of one line must be nested, as calls are; so each
    thread that runs beside others needs a line of its own.

    Args:
        name: the framework's name.
        slot, process, attempt: where the events belong; slot -1: the process has no slot.
    """

    def __init__(self, name: str, slot: int, process: int, attempt: int) -> None:
        self.name = name
        self._whose = slot, process, attempt
        self._spans = 0

    def begin(self, what: str, line: int = 0, **facts: Any) -> int:
        """Begin a span, and return its number, which `end` needs.

        Args:
            what: name of the span, as users read it.
            line: the line on which it is drawn, from 0.
            facts: numbers and texts about it.

        MPI: local.
        Fault: if the process dies before the span's end, the span appears as one that has not
            ended.
        """
        self._spans += 1
        self._write(SPAN, self._spans, line, {"name": what, "of": self.name, **facts})
        return self._spans

    def end(self, span: int, **facts: Any) -> None:
        """End a span; facts are added to those given at its beginning.

        MPI: local.
        Fault: nothing happens in it.
        """
        self._write(SPANNED, span, 0, facts)

    @contextmanager
    def span(self, what: str, line: int = 0, **facts: Any) -> Iterator[dict[str, Any]]:
        """Make a ``with`` block a span; the block may add facts to the dictionary that it gets.

        MPI: local.
        Fault: see `begin`.
        """
        number, more = self.begin(what, line, **facts), dict[str, Any]()
        try:
            yield more
        except BaseException as error:
            more["raised"] = type(error).__name__
            raise
        finally:
            self.end(number, **more)

    def mark(self, what: str, line: int = 0, **facts: Any) -> None:
        """Mark this moment.

        Args: see `begin`.

        MPI: local.
        Fault: nothing happens in it.
        """
        self._write(MARK, 0, line, {"name": what, "of": self.name, **facts})

    def _write(self, kind: int, number: int, line: int, told: dict[str, Any]) -> None:
        logs.trace_text(kind, number, line, *self._whose, text_of(told) if told else b"")


def text_of(told: dict[str, Any]) -> bytes:
    """Return facts as JSON that fits into a record; those that do not fit are left out."""
    fit: dict[str, Any] = {}
    for key, value in told.items():
        fit[key] = value if isinstance(value, int | float) else str(value)[
            :MOST_NAME if key == "name" else MOST_VALUE]
    while len(text := json.dumps(fit, separators=(",", ":")).encode()) > MOST_BYTES:
        fit.popitem()
    return text
