"""Traces of runs over several nodes: one timeline, by which the library's doings are judged as on
one node. The clocks of the nodes began hours apart (`nodes`)."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jobs import Result
from nodes import run_on_nodes
from programs import SLOTS, assert_same_bits, kinds, words_of

from ftrma.trace.check import check
from ftrma.trace.records import Trace, What, read

pytestmark = pytest.mark.full

# Seats as in test_in_place: each node has a slot's own spare.
HERE = ("--spares", "2", "--interval", "0")
ELSEWHERE = ("--spares", "1", "--interval", "0")


def traced(directory: Path, program: str, *options: str) -> tuple[Result, Trace]:
    """Run a program on two nodes, on a trace that proves it consistent and has all of it."""
    path = directory / "trace.json"
    script, args = words_of(program)
    before_ns = time.monotonic_ns()
    result = run_on_nodes(script, SLOTS, "--trace", str(path), *options, args=args, timeout=60,
                          in_turn=2)
    after_ns = time.monotonic_ns()
    assert_same_bits(program, result)
    trace = read(path)
    report = check(trace)
    assert report.violation is None, (report.lines(trace.began_ns), result)
    assert before_ns < trace.began_ns, "not on the clock of who has started the job"
    assert trace.records["end_ns"].max() < after_ns
    assert set(trace.records["slot"].tolist()) >= set(range(SLOTS))
    return result, trace


@pytest.mark.parametrize(("program", "kill"), [
    ("stencil", "1@put:30"), *(
        pytest.param(*case, marks=pytest.mark.nightly) for case in (
            ("dht", "1@atomic:150"), ("lock", "2@lock-held:20"), ("lockall", "0@flush:20"),
            ("pscw", "3@put:30"), ("ft", "2@put:15"), ("stencil", "c0@sum:4")))])
def test_a_causal_recovery_is_exact_by_its_trace(tmp_path: Path, program: str, kill: str) -> None:
    """Law: as on one node; and without one applied access the same trace is not consistent."""
    result, trace = traced(tmp_path, program, *HERE, "--kill", kill)
    report = check(trace)
    assert kinds(result) == ["causal"], result
    assert report.accesses > 0 and report.checkpoints > 1 and report.rollbacks == 0
    assert report.recoveries == (kill[0] != "c")
    records = trace.records
    applied = records["what"] == What.Apply
    assert applied.sum() == report.applied
    for at in np.flatnonzero(applied)[:: max(int(applied.sum()) // 3, 1)].tolist():
        one = applied & (records["seq"] == records["seq"][at])
        gone = one & (records["window"] == records["window"][at])
        violation = check(replace(trace, records=records[~gone])).violation
        assert violation and "was not applied" in violation.text


def test_puts_have_their_places(tmp_path: Path) -> None:
    """Law: each put has the number that the target's node gave it, and the numbers of a part are
    those from 1, but for what changes nothing."""
    result, trace = traced(tmp_path, "stencil", "--interval", "never")
    assert kinds(result) == []
    puts = trace.records[trace.records["what"] == What.Put]
    assert len(puts) > 100 and (puts["seq"] > 0).all()
    for part in {(r.target, r.window) for r in trace.rows(trace.records["what"] == What.Put)}:
        mine = puts[(puts["target"] == part[0]) & (puts["window"] == part[1])]
        assert sorted(mine["seq"].tolist()) == list(range(1, len(mine) + 1))


@pytest.mark.full
def test_a_rollback_and_a_relaunch_are_entries_of_one_run(tmp_path: Path) -> None:
    """Law: each goes back to one committed version, and nothing of the time before comes later."""
    rules = [w for rule in ("0@put:15", "1@put:60") for w in ("--kill", rule)]
    result, trace = traced(tmp_path, "stencil", *ELSEWHERE, *rules)
    assert kinds(result) == ["rollback", "relaunch"], result
    back = trace.rows(trace.records["what"] == What.Rollback)
    assert len({r.entry for r in back}) == 2 and len(back) == 2 * SLOTS


TOLD = """
import sys
from ftrma import MPI, framework
framework.claim("glue")
timeline, world = framework.timeline("glue"), MPI.COMM_WORLD
for i in range(4):
    with timeline.span(f"round {i}", text="x" * 70, more="y" * 70):
        world.Barrier()
        framework.kill_place("glue.round")
        world.Barrier()
"""


def test_a_framework_tells_its_own(tmp_path: Path) -> None:
    """Law: spans of a framework come from all nodes, on one clock: those of a round overlap, since
    slots meet in it; the span in which a process died has no end."""
    path = tmp_path / "trace.json"
    result = run_on_nodes(TOLD, 2, "--spares", "2", "--trace", str(path), "--kill",
                          "1@glue.round:3", timeout=60, in_turn=1)
    assert result.status == 0, result
    events = [e for e in json.loads(path.read_text())["traceEvents"]
              if e.get("cat") == "framework,glue"]
    first = [e for e in events if e["args"]["attempt"] == 1 and e["pid"] == 1]
    assert [(e["name"], "unfinished" in e["args"]) for e in first] == [
        ("round 0", False), ("round 1", False), ("round 2", True)]
    last = max(e["args"]["attempt"] for e in events)
    for attempt, name in [*((1, f"round {i}") for i in range(2)),
                          *((last, f"round {i}") for i in range(4))]:
        pair = [e for e in events if (e["args"]["attempt"], e["name"]) == (attempt, name)]
        assert sorted(e["pid"] for e in pair) == [0, 1], (attempt, name, events)
        assert max(e["ts"] for e in pair) <= min(e["ts"] + e["dur"] for e in pair) + 500
        assert all(e["args"]["more"] == "y" * 70 for e in pair)
