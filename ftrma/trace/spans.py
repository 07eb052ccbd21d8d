"""Spans and moments that a framework has reported, as events of the timeline.

`ftrma/program/timeline.py` writes them among the records of a process: the begin of a span, its
end, or a moment. Each is one record, or several consecutive ones if its text is long
(``ftrma_trace_text`` in ``csrc/ftrma.h``). In such a record ``event`` is the number of the span,
``window`` its line, ``at`` the number of the piece and ``bytes`` the length of the whole text; the
text replaces all fields from ``seq`` on. It is JSON with "name", "of" (the framework), and facts.

A process that holds a slot has its lines in the slot's row, below the process's own line; any other
process has a row of its own. A span without an end is drawn up to the last record of its process in
that attempt: the process died in it, or all went back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .records import FRAMEWORK, MAX_SLOTS, RECORD, Records, What

TEXT_AT = RECORD.fields["seq"][1] if RECORD.fields else 0
LINES = 2 * MAX_SLOTS  # number of thread of line n of process p: (n + 1) * LINES + p
UNFINISHED = "unfinished"  # name of a fact of spans without an end

Process = tuple[int, int]  # number, and attempt
Lasts = dict[Process, int]


@dataclass
class Told:
    """A span that a framework has reported, or a moment, which ends when it begins.

    Attributes:
        end_ns: when it ended; None: it has no end.
        facts: "name" and "of", and whatever else the framework has told.
    """

    what: int
    number: int
    slot: int
    proc: int
    attempt: int
    line: int
    begin_ns: int
    facts: dict[str, Any]
    end_ns: int | None = field(default=None)


def lasts(records: Records) -> Lasts:
    """Return the time of the last record of each process in each attempt."""
    found: Lasts = {}
    for proc, entry, end_ns in records[["proc", "entry", "end_ns"]].tolist():
        found[proc, entry] = max(end_ns, found.get((proc, entry), 0))
    return found


def texts(records: Records) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the first record of each text, and what it says.

    Args:
        records: those of frameworks, in the order of each process.

    If pieces of a text are missing, its process was killed while it was writing the text.
    """
    pieces: dict[int, tuple[Any, bytes]] = {}  # by process
    for record in records:
        proc, number = int(record["proc"]), int(record["at"])
        first, before = pieces.pop(proc, (record, b"")) if number else (record, b"")
        if number and not before:
            continue  # the beginning is missing
        text = (before + record.tobytes()[TEXT_AT:])[: int(first["bytes"])]
        if len(text) < int(first["bytes"]):
            pieces[proc] = first, text
        else:
            yield first, json.loads(text) if text else {}


def gather(records: Records) -> list[Told]:
    """Return spans and moments, ordered by their begin."""
    found: list[Told] = []
    begun: dict[tuple[int, int, int], Told] = {}  # by process, attempt and number
    for record, facts in texts(records):
        what, number, slot, proc, attempt, line, begin_ns = (
            int(record[name]) for name in
            ("what", "event", "slot", "proc", "entry", "window", "begin_ns"))
        if what == What.Spanned:
            span = begun.pop((proc, attempt, number), None)
            if span:
                span.end_ns = begin_ns
                span.facts.update(facts)
            continue
        told = Told(what, number, slot, proc, attempt, line, begin_ns, facts)
        found.append(told)
        if what == What.Span:
            begun[proc, attempt, number] = told
    return found


def timeline(records: Records, ends: Lasts, began_ns: int, slots: int) -> Iterator[dict[str, Any]]:
    """Yield events of the timeline, and the names of their rows and lines.

    Args:
        records: those of frameworks, ordered by begin.
        ends: last time of each process in each attempt, see `lasts`.
        began_ns: begin of the timeline.
        slots: of the program.
    """
    found = gather(records)
    yield from names(found, slots)
    for told in found:
        name, framework = told.facts.pop("name"), told.facts.pop("of")
        event = {"name": name, "cat": f"{FRAMEWORK},{framework}",
                 "ts": (told.begin_ns - began_ns) / 1e3, "pid": row_of(told, slots),
                 "tid": thread_of(told), "args": {"attempt": told.attempt, **told.facts}}
        if told.what == What.Mark:
            yield {**event, "ph": "i", "s": "t"}
            continue
        if told.end_ns is None:
            told.end_ns = max(told.begin_ns, ends[told.proc, told.attempt])
            event["args"][UNFINISHED] = True
        yield {**event, "ph": "X", "dur": (told.end_ns - told.begin_ns) / 1e3}


def row_of(told: Told, slots: int) -> int:
    return told.slot if told.slot >= 0 else slots + 1 + told.proc


def thread_of(told: Told) -> int:
    return (told.line + 1) * LINES + told.proc


def names(found: list[Told], slots: int) -> Iterator[dict[str, Any]]:
    """Yield the names of lines, and of the rows of processes without a slot."""
    rows, lines = dict[int, str](), dict[tuple[int, int], tuple[str, int]]()
    for told in found:
        row = row_of(told, slots)
        if told.slot < 0:
            rows[row] = f"process {told.proc}, without a slot"
        lines[row, thread_of(told)] = (
            f"{told.facts['of']} {told.line} of process {told.proc}", told.line)
    for row, name in rows.items():
        yield {"name": "process_name", "ph": "M", "pid": row, "tid": 0, "args": {"name": name}}
        yield {"name": "process_sort_index", "ph": "M", "pid": row, "tid": 0,
               "args": {"sort_index": row}}
    for (row, thread), (name, line) in lines.items():
        yield {"name": "thread_name", "ph": "M", "pid": row, "tid": thread, "args": {"name": name}}
        yield {"name": "thread_sort_index", "ph": "M", "pid": row, "tid": thread,
               "args": {"sort_index": 1 + line}}
