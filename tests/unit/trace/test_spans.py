"""Spans and moments that frameworks tell: what goes in comes out, also of who was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftrma.native import loading, logs
from ftrma.program.timeline import MOST_BYTES, MOST_NAME, MOST_VALUE, Timeline, text_of
from ftrma.trace.collect import convert
from ftrma.trace.records import LIVE, RECORD, Record, What, read
from ftrma.trace.spans import LINES

SLOTS = 2


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """Have this process write a trace, as process 1."""
    loading.load()
    logs.trace_open(tmp_path / "trace-1")
    return tmp_path / "trace-1"


@pytest.fixture(autouse=True)
def no_trace_afterwards() -> Any:
    yield
    logs.trace_to(-1)


def events(directory: Path) -> list[dict[str, Any]]:
    """Events of frameworks in the timeline, in the file's order."""
    convert(directory, directory / "trace.json", SLOTS, [])
    all_events = json.loads((directory / "trace.json").read_text())["traceEvents"]
    return [e for e in all_events if e.get("cat", "").startswith("framework")]


def test_spans_and_moments_come_back(traced: Path) -> None:
    """Law: names, facts, lines, rows and order survive; a span ends behind what it has around it.
    The run's own records come back as if nothing had been told."""
    timeline = Timeline("glue", 1, 1, 3)
    outer = timeline.begin("outer", 2, place=7, who="me")
    with timeline.span("inner", 2) as facts:
        facts["n"] = 5
        timeline.mark("now", 2)
    timeline.end(outer, more=1.5)
    record = Record(*[0] * 21)._replace(begin_ns=2**40, end_ns=2**40 + 5, what=What.Flush,
                                        mode=LIVE, window=0, target=1, entry=1, event=1)
    np.array([record], RECORD).tofile(traced.with_name("trace-0"))
    found = events(traced.parent)
    assert [(e["name"], e["ph"], e["pid"], e["tid"], e["cat"]) for e in found] == [
        (name, ph, 1, 3 * LINES + 1, "framework,glue")
        for name, ph in (("outer", "X"), ("inner", "X"), ("now", "i"))]
    assert [e["args"] for e in found] == [
        {"attempt": 3, "place": 7, "who": "me", "more": 1.5}, {"attempt": 3, "n": 5},
        {"attempt": 3}]
    (a, x), (b, y), (c, _) = [(e["ts"], e["ts"] + e.get("dur", 0)) for e in found]
    assert a <= b <= c <= y <= x < a + 1e6
    assert read(traced.with_name("trace.json")).rows() == [record]


def test_a_process_without_a_slot_has_a_row_with_a_name(traced: Path) -> None:
    """Law: rows of slots, the job's row and those of other processes do not meet."""
    Timeline("glue", -1, 1, 1).mark("now")
    assert [e["pid"] for e in events(traced.parent)] == [SLOTS + 1 + 1]
    names = {(e["pid"], e["name"]): e["args"].get("name") for e in json.loads(
        traced.with_name("trace.json").read_text())["traceEvents"] if e["ph"] == "M"}
    assert names[SLOTS + 2, "process_name"] == "process 1, without a slot"
    assert names[SLOTS + 2, "thread_name"] == "glue 0 of process 1"
    assert names[SLOTS, "process_name"] == "job"


def test_what_a_killed_process_had_begun_is_there(traced: Path) -> None:
    """Law: a span without an end goes on to the process's last record of that attempt; another
    attempt's span of that number does not end it."""
    first = Timeline("glue", 1, 1, 1)
    first.begin("lost")
    first.mark("last")
    second = Timeline("glue", 1, 1, 2)
    second.end(1)
    second.end(second.begin("whole"))
    lost, last, whole = events(traced.parent)
    assert lost["args"] == {"attempt": 1, "unfinished": True} and "unfinished" not in whole["args"]
    assert lost["ts"] + lost["dur"] == pytest.approx(last["ts"], abs=0.002)
    assert whole["ts"] > last["ts"]


@pytest.mark.parametrize("cut", [0, 1, 2, "first"])
def test_a_text_that_was_cut_off_is_left_out(traced: Path, cut: Any) -> None:
    """Law: a long text lies in several records, and comes back; without its last one, with a
    part of it, or without its first one, the others are no event, and nobody else's are lost."""
    timeline = Timeline("glue", 1, 1, 1)
    timeline.mark("before")
    size = traced.stat().st_size
    timeline.mark("long" * 30, fact="f" * 70)
    whole = traced.read_bytes()
    assert len(whole) - size >= 3 * RECORD.itemsize
    kept = (whole[:size] + whole[size + RECORD.itemsize:] if cut == "first"
            else whole[: len(whole) - cut * 100])
    traced.write_bytes(kept)
    found = [e["name"] for e in events(traced.parent)]
    assert found == ["before", *(["long" * 30] if not cut else [])]


def test_long_texts_are_cut_and_stay_json() -> None:
    """Law: names and facts are cut, further facts left out; what is written is JSON that fits."""
    told = {"name": "n" * 999, **{f"fact {i}": "\u20ac" * 99 for i in range(40)}, "number": 7}
    text = text_of(told)
    assert len(text) <= MOST_BYTES
    found = json.loads(text)
    assert found["name"] == "n" * MOST_NAME and found["fact 0"] == "\u20ac" * MOST_VALUE
    assert 1 < len(found) < 40
    assert text_of({"name": "a", "x": 1.5, "yes": True}) == b'{"name":"a","x":1.5,"yes":true}'


def test_nobody_writes_without_a_file() -> None:
    """Law: telling costs nothing but time where no trace is open."""
    loading.load()
    logs.trace_to(-1)
    with Timeline("glue", 0, 0, 1).span("x"):
        pass
