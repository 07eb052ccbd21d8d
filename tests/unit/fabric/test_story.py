"""The job's story: events come back as they were told, and what is damaged costs one line."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from ftrma.fabric import story
from ftrma.fabric.story import (
    KINDS,
    Agentdeath,
    Began,
    Checkpoint,
    Degraded,
    Entered,
    Event,
    Failure,
    Halt,
    Line,
    Note,
    Phases,
    Recovery,
    Refusal,
    Relaunch,
    Reseat,
    Restored,
    Scrub,
    Seats,
    Stall,
)
from ftrma.launch.stats import summary
from ftrma.machine.topology import make_layout

PHASES = Phases(detect=0.001, repair=0.25, restore=0.5, replay=0.125)
EVENTS: list[Event] = [
    Failure("slot", 2, 4711, "fence", at=(3, -1), waited=True),
    Failure("checksum", 0, 4712, "unknown", host="node2"),
    Failure("slot", 1, 4713, "unknown", at=(0, 5)),
    Checkpoint(4, "coordinated", 0.5, 1 << 40, 0),
    Checkpoint(4, "demand", 0.25, 4096, 4096, slot=0),
    Recovery("causal", (2,), 3, 0.876, PHASES, "", 12345.5, demand=7),
    Recovery("rollback", (), 3, 0.75, Phases(0.0, 0.25, 0.5), "no logs", 12345.5),
    Reseat(1, 0.125, 0),
    Relaunch("slot 1 on node2 died", (1,)),
    Relaunch("no spare is left", (0, 3), version=5, noticed_ns=2**62),
    Seats((0, 1, 0, 1)),
    Scrub("checksum", 1, 3),
    Restored("slot", 0, 1.5),
    Agentdeath("node2"),
    Stall("stall", (1, 2), 10.25, ("slot 1: f (a.py:3)",), "replace", (4711, 4712)),
    Refusal(17, (0, 2)),
    Note(3, {"step": 7, "what": "emitted"}),
    Line("warning: a line", "ftrma", "slot 3"),
    Halt("SIGTERM has come", 7, True, 0.5),
    Began(),
    Entered(7),
    Checkpoint(5, "coordinated", 0.5, 80, 8, step=17),
    Degraded(4, 0, 8, 1, 1),
]


def test_every_kind_is_here() -> None:
    """Law: no event escapes these tests, and the names of the lines are those of the classes."""
    assert {type(event) for event in EVENTS} == set(KINDS.values()) == set(Event.__subclasses__())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_come_back(tmp_path: Path, event: Event) -> None:
    """Law: what is read is what was told, field by field and type by type, with its time."""
    story.emit(tmp_path, event)
    (read,) = story.read(tmp_path)
    assert read == event and type(read) is type(event) and read.time == event.time
    for field in dataclasses.fields(event):
        assert type(getattr(read, field.name)) is type(getattr(event, field.name))


def test_events_know_when_they_were_made() -> None:
    before = time.time()
    assert before <= Scrub("slot", 0, 1).time <= time.time()


def test_order_and_defaults(tmp_path: Path) -> None:
    """Law: events keep their order; a line has what is not at its default."""
    assert story.read(tmp_path) == []
    for event in EVENTS:
        story.emit(tmp_path, event)
    assert story.read(tmp_path) == EVENTS
    assert set(story.plain(EVENTS[1])) == {"event", "time", "role", "index", "pid", "place", "host"}


LINE = json.dumps(story.plain(EVENTS[0]))


@pytest.mark.parametrize(
    "damaged",
    [LINE[:30], LINE[: LINE.index("index") - 3] + "}", '{"event": "plan", "kind": "causal"}', "17",
     "[]", '{"role": "slot"}', '{"event": ["failure"]}',
     '{"event": "recovery", "phases": {"sum": 1}}'],
    ids=["cut off", "without a field", "unknown", "a number", "a list", "no event", "no name",
         "other phases"],
)
def test_what_cannot_be_read_is_passed_over(tmp_path: Path, damaged: str) -> None:
    """Law: a line that was cut off where memory was full, or of a kind that is not known, costs
    itself and no other, though the next is written right behind it."""
    story.emit(tmp_path, EVENTS[3])
    with (tmp_path / "events").open("a") as file:
        file.write(damaged)
    story.emit(tmp_path, EVENTS[7])
    assert story.read(tmp_path) == [EVENTS[3], EVENTS[7]]


def test_fields_of_later_versions_are_passed_over() -> None:
    line: dict[str, Any] = {**story.plain(EVENTS[11]), "colour": "red"}
    assert story.parse(line) == EVENTS[11]


def test_statistics() -> None:
    """Law: `--stats` has these fields, with these names, in this order; events have their time
    since the job began."""
    events = [dataclasses.replace(event, time=1000.5) for event in EVENTS]
    found = summary([Began(time=1000.0), *events], make_layout(4), 3, ended=1002.0)
    assert list(found) == ["slots", "checksums", "spares", "group_size", "exit", "began",
                           "began_monotonic_s", "effective", "entered", "checkpoints",
                           "failures", "agents", "recoveries", "reseats", "degraded",
                           "degraded_seconds", "halt", "notes", "stalls", "refusals"]
    assert found["began"] == 1000.0 and found["effective"]["total_s"] == 2.0
    assert found["entered"] == [{"version": 7, "at_s": 0.5}]
    timed = ("entered", "checkpoints", "failures", "agents", "recoveries", "reseats", "stalls",
             "refusals")
    assert [entry.pop("at_s") for kind in timed for entry in found[kind]] == [0.5] * 13
    assert json.dumps(found["checkpoints"]) == json.dumps([
        {"version": 4, "kind": "coordinated", "seconds": 0.5, "bytes": 1 << 40, "dirty_bytes": 0,
         "step": 0},
        {"version": 4, "kind": "demand", "slot": 0, "seconds": 0.25, "bytes": 4096,
         "dirty_bytes": 4096, "step": 0},
        {"version": 5, "kind": "coordinated", "seconds": 0.5, "bytes": 80, "dirty_bytes": 8,
         "step": 17},
    ])
    assert json.dumps(found["failures"]) == json.dumps([
        {"slot": 2, "place": "fence", "pid": 4711},
        {"checksum": 0, "place": "unknown", "pid": 4712, "host": "node2"},
        {"slot": 1, "place": "unknown", "pid": 4713},
    ])
    assert found["agents"] == [{"host": "node2"}]
    assert json.dumps(found["recoveries"]) == json.dumps([
        {"kind": "causal", "slots": [2], "version": 3, "seconds": 0.876,
         "phases": {"detect": 0.001, "repair": 0.25, "restore": 0.5, "replay": 0.125},
         "reason": "", "began_s": 12345.5, "demand": 7},
        {"kind": "rollback", "slots": [], "version": 3, "seconds": 0.75,
         "phases": {"detect": 0.0, "repair": 0.25, "restore": 0.5, "replay": 0.0},
         "reason": "no logs", "began_s": 12345.5, "demand": 0},
    ])
    assert found["reseats"] == [{"checksum": 1, "seconds": 0.125}]
    assert found["degraded_seconds"] == pytest.approx(0.876 + 0.75 + 0.125)
    assert [{**fewer, "at_s": 0} for fewer in found["degraded"]] == [
        {"checksums": 4, "spares": 0, "checksums_before": 8, "spares_before": 1, "at_s": 0}]
    assert found["exit"] == 3
    assert found["notes"] == [{"slot": 3, "step": 7, "what": "emitted"}]
