"""Traces as files: what goes in comes out, viewers open it, and a bad file is one clear line."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracesim import BEGAN_NS, Job, random_job, trace_of, write_files

from ftrma.command import cli
from ftrma.trace.collect import acknowledged, aligned, convert
from ftrma.trace.cuts import committed
from ftrma.trace.records import RECORD, REPLAY, Record, Trace, What, read

STORY = [
    {"event": "failure", "time": 0.0, "role": "slot", "index": 1, "pid": 7, "place": "put"},
    {"event": "recovery", "time": 0.0, "kind": "causal", "slots": [1], "version": 1},
]


def written(directory: Path, job: Job, story: list[dict[str, Any]] | None = None) -> Path:
    """The timeline of a job."""
    write_files(job.records, directory)
    convert(directory, directory / "trace.json", job.slots, STORY if story is None else story)
    return directory / "trace.json"


def edited(path: Path, change: Callable[[Any], Any]) -> Path:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def put_of(content: Any) -> Any:
    return next(e for e in content["traceEvents"] if e["name"] == "Put")


def call(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    """Status, output and errors of one command."""
    with pytest.raises(SystemExit) as end:
        cli.main(shlex.split(line))
    said = capsys.readouterr()
    return int(str(end.value.code)), said.out, said.err


# ---- what goes in comes out -------------------------------------------------------------------


def test_the_record_is_that_of_the_data_plane() -> None:
    """Law: 17 words of 8 bytes, the last a spare; two of them hold pairs of 4 bytes, and so on."""
    assert RECORD.itemsize == 144
    assert [RECORD.fields[n][1] for n in ("what", "entry", "window", "at", "seq", "ec", "value0")] \
        == [16, 32, 48, 56, 72, 88, 120]


def test_acks_tell_what_their_puts_could_not() -> None:
    """Law: the clock and seq of a put to another node, and when it was done, come from its Ack, by
    process, entry and event; a put without an Ack, or replayed, keeps what it has."""
    def record(what: What, **fields: int) -> Record:
        return Record(**{**dict.fromkeys(Record._fields, 0), "what": what, **fields})

    puts = [record(What.Put, begin_ns=10 + i, proc=i % 2, entry=1 + i // 4, event=5 + i // 2 % 2,
                   target=2) for i in range(8)]
    acks = [record(What.Ack, begin_ns=90 + i, proc=puts[i].proc, entry=puts[i].entry,
                   event=puts[i].event, clock=30 + i, seq=60 + i) for i in (6, 0, 3)]
    others = [record(What.Flush, begin_ns=40, event=5, entry=1),
              record(What.Put, begin_ns=41, event=5, entry=1, mode=REPLAY),
              record(What.Ack, begin_ns=99, proc=7, event=1, seq=1)]  # of a put that was cut off
    found = acknowledged(np.array([*puts, *others, *acks], RECORD))
    expected = {i: puts[i]._replace(clock=30 + i, seq=60 + i, value0=90 + i) for i in (0, 3, 6)}
    assert found.tolist() == [*(expected.get(i, put) for i, put in enumerate(puts)), *others[:2]]
    assert acknowledged(np.empty(0, RECORD)).tolist() == []


@pytest.mark.parametrize("skews", [(0, 0, 0), (0, 4000, -4000), (-900, 700, 0), (0, -5000, 10)])
def test_clocks_that_are_behind_are_set_forward(skews: tuple[int, ...]) -> None:
    """Law: whatever the clocks show, safepoints begin before the checkpoints in them are taken,
    these before the commit, and an entry after all of the one before; a clock is right up to the
    shortest time between such a pair, and records by one clock keep their distances."""
    rows = []
    for version in (1, 2):
        at = 10_000 * version
        for slot in range(3):
            rows.append((What.Safepoint, slot, at + 10 * slot, at + 500, version))
            rows.append((What.Checkpoint, slot, at + 100 + slot, at + 100 + slot, version))
        rows.append((What.Commit, 1, at + 200, at + 200, version))
    rows += [(What.Rollback, slot, 40_000 + slot, 40_000 + slot, 2) for slot in range(3)]
    clocks = np.array([slot for _, slot, *_ in rows])
    records = np.zeros(len(rows), RECORD)
    for i, (what, slot, begin, end, number) in enumerate(rows):
        skew = skews[slot] + 10**6
        records[i] = Record(begin + skew, end + skew, what, 0, slot, slot,
                            2 if what == What.Rollback else 1, 100 * number, -1, -1, 0, 0, 0, 0, 0,
                            0, 0, 0, number, 0)
    found = aligned(records, clocks)
    assert found is not None
    order = np.argsort(found["begin_ns"], kind="stable")
    cuts, wrong = committed(Trace(3, 0, found[order]))
    assert sorted(cuts) == [1, 2] and not wrong
    moved = (found["begin_ns"] - records["begin_ns"]).astype(int)
    assert (moved >= 0).all() and len({*zip(clocks.tolist(), moved.tolist(), strict=True)}) == 3
    begin, what = found["begin_ns"].astype(int), found["what"]
    for version in (1, 2):
        these = found["value0"] == version
        arrived, taken, done = (begin[these & (what == w)]
                                for w in (What.Safepoint, What.Checkpoint, What.Commit))
        assert arrived.max() <= taken.min() and taken.max() < done.min()
    back = begin[what == What.Rollback]
    assert found["end_ns"][what != What.Rollback].max() <= back.min()
    after = {clock: skews[clock] + by for clock, by in zip(clocks.tolist(), moved.tolist(),
                                                           strict=True)}
    assert max(after.values()) - min(after.values()) <= 100
    assert (skews != (0, 0, 0)) or not moved.any()


def test_what_no_clock_explains_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: a checkpoint that was really taken too early stays so, for the checker to see."""
    rows = [Record(begin, begin, what, 0, slot, slot, 1, event, -1, -1, *[0] * 8, version, 0)
            for what, slot, begin, event, version in (
                (What.Safepoint, 0, 1000, 5, 0), (What.Safepoint, 1, 1010, 5, 0),
                (What.Checkpoint, 0, 1020, 5, 1), (What.Checkpoint, 1, 1030, 5, 1),
                (What.Safepoint, 0, 2000, 9, 0), (What.Safepoint, 1, 5000, 9, 0),
                (What.Checkpoint, 0, 2020, 9, 2), (What.Checkpoint, 1, 5020, 9, 2))]
    records = np.array(rows, RECORD)
    assert aligned(records, records["slot"].astype(int)) is None
    assert aligned(records[records["event"] == 5], records["slot"][:4].astype(int)) is not None
    for slot in range(2):
        records[records["slot"] == slot].tofile(tmp_path / f"trace-{slot}@node{slot}")
    convert(tmp_path, tmp_path / "trace.json", 2, [])
    assert "clocks of the job's nodes ran apart" in capsys.readouterr().err
    assert sorted(read(tmp_path / "trace.json").records.tolist()) == sorted(records.tolist())


@pytest.mark.plain
@given(st.integers(0, 10**6))
def test_records_come_back(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Law: all fields survive, times to the nanosecond; instants have no length."""
    directory = tmp_path_factory.mktemp("job")
    job = random_job(seed, 30)
    found = read(written(directory, job))
    instants = [What.Commit, What.Replay, What.Recovery, What.Rollback, What.End]
    expected = trace_of([r._replace(end_ns=r.begin_ns) if r.what in instants else r
                         for r in job.records], job.slots)
    assert found.slots == job.slots and found.began_ns == expected.began_ns
    assert found.rows() == expected.rows()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=8, max_size=8), st.integers(0, 2**52))
def test_largest_numbers_come_back(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], after_ns: int
) -> None:
    """Law: 64 bits of a value and days of nanoseconds are not rounded."""
    directory = tmp_path_factory.mktemp("job")
    job = Job(1)
    names = ("event", "at", "bytes", "seq", "clock", "entry", "value0", "value1")
    first = job.add(What.Window, 0)
    begin_ns = first.end_ns + after_ns
    job.add(What.Put, 0, begin_ns=begin_ns, **dict(zip(names, numbers, strict=True)))
    job.records[-1] = job.records[-1]._replace(end_ns=begin_ns + 1)
    assert read(written(directory, job)).rows() == job.records


def test_what_killed_processes_leave_is_read(tmp_path: Path) -> None:
    """Law: half a record, and room that was not filled, are no records; the others count."""
    job = random_job(3, 30)
    write_files(job.records, tmp_path)
    with (tmp_path / "trace-0").open("ab") as file:
        file.write(bytes(2 * RECORD.itemsize) + b"\1" * 17)
    convert(tmp_path, tmp_path / "trace.json", job.slots, [])
    assert len(read(tmp_path / "trace.json").records) == len(job.records)


def test_a_job_without_records_has_a_trace(tmp_path: Path) -> None:
    """Law: what died before its first event leaves a timeline with the story alone."""
    convert(tmp_path, tmp_path / "trace.json", 2, STORY)
    assert len(read(tmp_path / "trace.json").records) == 0


@pytest.mark.parametrize(
    "field, value", [("what", len(What)), ("mode", 3), ("slot", 3), ("slot", -2), ("proc", -1)]
)
def test_records_of_no_such_job_are_refused(tmp_path: Path, field: str, value: int) -> None:
    """Law: one line with file, record, field and value; no file is left behind."""
    job = Job(3)
    job.make_windows()
    job.records[4] = job.records[4]._replace(**{field: value})
    np.array(job.records, RECORD).tofile(tmp_path / "trace-0")
    with pytest.raises(ValueError, match=rf"trace-0: record 4 has {field} {value}, .*version"):
        convert(tmp_path, tmp_path / "trace.json", 3, [])
    assert [p.name for p in tmp_path.iterdir()] == ["trace-0"]


def test_the_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """Law: where it cannot be written, one line says so and the old file stays."""
    job = Job(3)
    path = written(tmp_path, job)
    before = path.read_text()
    with pytest.raises(ValueError, match=r"cannot write the trace .*nowhere"):
        convert(tmp_path, tmp_path / "nowhere" / "trace.json", 3, [])
    with pytest.raises((KeyError, ValueError)):
        convert(tmp_path, path, 3, [{"event": "failure"}])  # has no time
    assert path.read_text() == before
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


# ---- viewers ----------------------------------------------------------------------------------


def test_viewers_can_open_it(tmp_path: Path) -> None:
    """Law: the trace event format: phases, times in microseconds from the first event, names of
    all rows and lines; and complete events of one line nest."""
    job = random_job(11)
    content = json.loads(written(tmp_path, job).read_text())
    events = content["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "i"}
    for e in events:
        assert isinstance(e["name"], str) and isinstance(e["args"], dict)
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int)
        if e["ph"] != "M":
            assert e["ts"] >= 0
        if e["ph"] == "X":
            assert e["dur"] >= 0
        if e["ph"] == "i":
            assert e["s"] in ("g", "p", "t")
    assert min(e["ts"] for e in events if e["ph"] == "X") == 0
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {**{s: f"slot {s}" for s in range(job.slots)}, job.slots: "job"}
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] != "M"} <= threads
    for line in threads:
        open_until = [float("inf")]
        mine = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == line]
        for e in sorted(mine, key=lambda e: (e["ts"], -e["dur"])):
            while open_until[-1] <= e["ts"]:
                open_until.pop()
            assert e["ts"] + e["dur"] <= open_until[-1] + 1e-9
            open_until.append(e["ts"] + e["dur"])


def test_the_story_stands_at_its_time(tmp_path: Path) -> None:
    """Law: deaths and recoveries are instants across all rows, where the clock of day puts them."""
    job = Job(2)
    offset_s = time.time() - time.monotonic()
    story = [{**e, "time": offset_s + BEGAN_NS / 1e9 + 0.25} for e in STORY]
    job.make_windows()
    content = json.loads(written(tmp_path, job, story).read_text())
    death, recovery = (e for e in content["traceEvents"] if e.get("cat") == "story")
    assert (death["name"], recovery["name"]) == ("failure slot 1", "recovery causal")
    assert death["args"]["place"] == "put" and death["s"] == "g"
    assert death["ts"] == pytest.approx(0.25e6, abs=0.05e6)


# ---- bad files --------------------------------------------------------------------------------


def refused(path: Path | str) -> str:
    with pytest.raises(ValueError) as error:
        read(path)
    text = str(error.value)
    assert "\n" not in text and str(path) in text
    return text


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    """Law: no part of a trace is a trace."""
    job = Job(2)
    job.make_windows()
    text = written(tmp_path, job).read_text()
    short = tmp_path / "short.json"
    for size in [*range(0, len(text) - 3, 7), len(text) - 3]:
        short.write_text(text[:size])
        assert re.search(r"truncated in line \d+; write it again", refused(short)), size


@pytest.mark.parametrize(
    "content, text",
    [
        (b"\x7fELF\xff\xfe", "byte 4 is no text"),
        (b"hello]}", r"x\.json:1:1: no JSON"),
        (b'{"traceEvents":[]}', "no trace of ftrma; write it again with ftrma run --trace"),
        (b'[{"ph":"X"}]\n', "no trace of ftrma"),
        (b'{"otherData":{"format":"ftrma trace","version":9}}', "format 9, but this ftrma reads 3"),
        (b"[" * 100_000 + b"]}", "no trace of ftrma"),
        (b'{"otherData":{"format":"ftrma trace","version":3,"slots":0,"began_ns":1}}', "slots 0;"),
        (b'{"otherData":{"format":"ftrma trace","version":3,"slots":1,"began_ns":1}}',
         "traceEvents is no list; the file is damaged"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, text: str) -> None:
    """Law: binary, text, other JSON and other versions are told apart."""
    (tmp_path / "x.json").write_bytes(content)
    assert re.search(text, refused(tmp_path / "x.json"))


def test_missing_files_are_refused(tmp_path: Path) -> None:
    assert "no trace" in refused(tmp_path / "none") and "--trace" in refused(tmp_path / "none")
    assert "Is a directory" in refused(tmp_path)


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda e: e["args"].pop("seq"), "lacks seq"),
        (lambda e: e.pop("ts"), "lacks ts"),
        (lambda e: e.update(ts="soon"), "time 'soon'"),
        (lambda e: e.update(ts=float("nan")), "time nan"),
        (lambda e: e.update(dur=-1), "time -1"),
        (lambda e: e.update(pid=9), "pid 9 in a trace of 3 slots"),
        (lambda e: e.update(name="Putt"), "no event is called 'Putt'"),
        (lambda e: e["args"].update(mode="dead"), "with mode 'dead'"),
        (lambda e: e["args"].update(target=3), "target 3 in a trace of 3 slots"),
        (lambda e: e["args"].update(event=True), "event True is no whole number"),
        (lambda e: e["args"].update(seq=2**64), "seq 18446744073709551616 is no whole number"),
        (lambda e: e["args"].update(seq=1.5), "seq 1.5 is no whole number"),
        (lambda e: e["args"].update(value=[1]), r"value \[1\] is no pair"),
        (lambda e: e.update(args=None), "event 12 of traceEvents is nothing that ftrma"),
        (lambda e: e.update(args="args"), "event 12 of traceEvents is nothing that ftrma"),
    ],
)
def test_damaged_events_are_named(tmp_path: Path, change: Callable[[Any], Any], text: str) -> None:
    """Law: the message has the event's place, the field and its value."""
    job = Job(3)
    job.write(What.Put, 0, 1, 0)
    path = edited(written(tmp_path, job), lambda content: change(put_of(content)))
    assert re.search(rf"event \d+ of traceEvents.*{text}|{text}", refused(path))
    assert "damaged" in refused(path)


@pytest.mark.parametrize("odd", [None, 1, "M", [], {}, {"ph": "X"}])
def test_odd_things_among_the_events_are_named(tmp_path: Path, odd: object) -> None:
    job = Job(3)
    job.write(What.Put, 0, 1, 0)
    path = edited(written(tmp_path, job), lambda content: content["traceEvents"].insert(2, odd))
    assert "event 2 of traceEvents" in refused(path)


# ---- ftrma check ------------------------------------------------------------------------------


def test_check_of_a_good_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: aligned lines of what was checked, and status 0."""
    path = written(tmp_path, random_job(4))
    status, out, err = call(capsys, f"check {path}")
    assert (status, err) == (0, "")
    names = [line[:13] for line in out.splitlines()]
    assert [*dict.fromkeys(n.strip() for n in names)] == [
        "accesses", "checkpoints", "recoveries", "rollbacks", "warning", "result",
    ]
    assert all(n.endswith(" ") and line[13] != " " for n, line in zip(names, out.splitlines(),
                                                                      strict=True))
    assert out.splitlines()[-1].endswith(" consistent")


def test_check_of_a_broken_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: the violation in one line with its time, and status 1."""
    job = Job(3)
    job.make_windows()
    job.checkpoint()
    job.write(What.Put, 0, 1, 0)
    job.recover(1)
    path = written(tmp_path, job)

    def without_apply(content: Any) -> None:
        content["traceEvents"] = [e for e in content["traceEvents"] if e["name"] != "Apply"]

    status, out, err = call(capsys, f"check {edited(path, without_apply)}")
    assert (status, err) == (1, "")
    recovery: Record = next(r for r in job.records if r.what == What.Recovery)
    after_ms = (recovery.begin_ns - job.records[0].begin_ns) / 1e6
    assert out.splitlines()[-1] == (
        f"violation    at {after_ms:.3f} ms: recovery of slot 1 from version 1 by process 3: slot "
        "0's Put (event 5, seq 1) to slot 1, window 0, bytes 0 to 7, was not applied"
    )


def test_check_of_a_trace_without_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: what proves nothing is not called consistent."""
    convert(tmp_path, tmp_path / "trace.json", 2, STORY)
    status, out, err = call(capsys, f"check {tmp_path / 'trace.json'}")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"ftrma: error: .*trace\.json: nothing to verify: .*\n", err)


@pytest.mark.parametrize("name", ["none.json", "empty.json"])
def test_check_of_a_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Law: one line and status 2."""
    (tmp_path / "empty.json").touch()
    status, out, err = call(capsys, f"check {tmp_path / name}")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"ftrma: error: .*--trace.*\n", err)
