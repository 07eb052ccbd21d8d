"""Traces of real runs: what the library did is consistent, seen from the outside.

The checker knows nothing of the library, so a run that it finds consistent has kept what the paper
demands; and it is not blind, for without one applied access the same trace is not consistent.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jobs import FTRMA, run_job
from programs import SLOTS, assert_same_bits, kinds, run
from tiers import tiers

from ftrma.trace.check import check
from ftrma.trace.records import OWN_EVENTS, REPLAY, Trace, What, read


def traced(directory: Path, program: str, *options: str, kind: str) -> Trace:
    """Run a program that loses a slot; returns its trace."""
    path = directory / "trace.json"
    result = run(program, "--trace", str(path), *options)
    assert_same_bits(program, result)
    assert kinds(result) == [kind], result.stats
    return read(path)


KILLS = [("stencil", "1@put:30"), ("lock", "2@lock-held:20"), ("lockall", "0@flush:20"),
         ("pscw", "3@put:30"), ("ft", "2@put:15"), ("dht", "1@atomic:150")]


@pytest.mark.parametrize(("program", "kill", "interval"), tiers(
    [(*case, interval) for case in KILLS for interval in ("0", "never")],
    plain=["stencil-1@put:30-0"],
    full=["lock-2@lock-held:20-never", "pscw-3@put:30-never"]))
def test_a_causal_recovery_is_exact_by_its_trace(
    tmp_path: Path, program: str, kill: str, interval: str
) -> None:
    """Law: whatever a replay starts from, each access was applied once and in cohb order."""
    options = ["--policy", "causal", "--interval", interval, "--kill", kill]
    trace = traced(tmp_path, program, *options, kind="causal")
    report = check(trace)
    assert report.violation is None, report.lines(trace.began_ns)
    assert not report.warnings, report.lines(trace.began_ns)
    assert (report.recoveries, report.rollbacks) == (1, 0) and report.accesses > 0
    assert report.checkpoints > 1 or interval == "never"
    records = trace.records
    applied = records["what"] == What.Apply
    assert applied.sum() == report.applied > 0
    accesses = np.unique(records[applied][["window", "seq"]])  # a long one came in pieces
    for window, seq in accesses[:: max(len(accesses) // 5, 1)].tolist():
        gone = applied & (records["window"] == window) & (records["seq"] == seq)
        violation = check(replace(trace, records=records[~gone])).violation
        assert violation and "was not applied" in violation.text


@pytest.mark.full
def test_an_attempt_cut_short_is_judged_too(tmp_path: Path) -> None:
    """Law: a process that dies while it replays has said what from, and so has the next."""
    rules = [w for rule in ("1@put:30", "1@replay:9") for w in ("--kill", rule)]
    trace = traced(tmp_path, "stencil", "--spares", "2", "--interval", "0", *rules, kind="causal")
    report = check(trace)
    assert report.violation is None, report.lines(trace.began_ns)
    assert report.recoveries == 1
    begins = trace.rows(trace.records["what"] == What.Replay)
    first, second = [(r.slot, r.event, r.at, r.value0, r.value1) for r in begins]
    assert first == second and begins[0].proc != begins[1].proc
    own = (trace.records["mode"] == REPLAY) & np.isin(trace.records["what"], OWN_EVENTS)
    changed = trace.records.copy()
    changed["event"][np.flatnonzero(own & (changed["proc"] == begins[0].proc))[-1]] = (
        begins[0].value1 + 1
    )
    violation = check(replace(trace, records=changed)).violation
    assert violation and "lies above the horizon" in violation.text


RACES = """
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
me = world.rank
win = MPI.Win.Allocate(64, 8, comm=world)
one, got = np.ones(1), np.zeros(1)
world.Barrier()
group = world.Get_group().Incl([1])
for step in range(4):
    win.Fence()
    if me in (0, 2 * (step == 1)):  # once two put at once
        win.Put(one, 1, me if step == 2 else 0)
    win.Fence()
win.Lock_all()
if me == 0:
    win.Put(one, 1, 4)
    win.Flush(1)
    world.send(None, 2)
if me == 2:
    world.recv(source=0)
    win.Rget(got, 1, 4).Wait()
world.Barrier()
if me == 1:
    win.Put(one, 1, 4)
if me == 0:
    win.Put(one, 1, 5)
    win.Flush_local(1)
world.Barrier()  # nothing has completed it
if me == 2:
    win.Get(got, 1, 5)
win.Unlock_all()
if me == 1:
    win.Post(world.Get_group().Excl([1]))
    win.Wait()
else:
    win.Start(group)
    (win.Accumulate if me else win.Put)(one, 1, 7)
    win.Complete()
win.Free()
"""


@pytest.mark.full
def test_races_of_a_program_are_told(tmp_path: Path) -> None:
    """Law: each pair of calls that races is told once, with status 0, and no other one."""
    path = tmp_path / "trace.json"
    assert run_job(RACES, 3, "--trace", str(path)).status == 0
    trace = read(path)
    report = check(trace)
    assert report.violation is None and report.assumed == 1, report.lines(trace.began_ns)
    told = [re.findall(r"slot (\d)'s (\w+).*?bytes (\d+)", w.text) for w in report.warnings]
    assert sorted(map(sorted, told)) == [
        [("0", "Put", "0"), ("2", "Put", "0")],
        [("0", "Put", "40"), ("2", "Get", "40")],
        [("0", "Put", "56"), ("2", "Accumulate", "56")],
    ], report.lines(trace.began_ns)


@pytest.mark.full
def test_a_trace_goes_on_through_a_relaunch(tmp_path: Path) -> None:
    """Law: the launches of a job are one run, each later one an entry that went back."""
    rules = [w for rule in ("1@put:30", "2@put:45", "2@put:65") for w in ("--kill", rule)]
    path = tmp_path / "trace.json"
    result = run("stencil", "--interval", "0", "--trace", str(path), *rules)
    assert_same_bits("stencil", result)
    assert kinds(result) == ["causal", "relaunch", "causal"], result.stats
    trace = read(path)
    report = check(trace)
    assert report.violation is None, report.lines(trace.began_ns)
    assert (report.recoveries, report.rollbacks) == (2, 1)
    back = trace.rows(trace.records["what"] == What.Rollback)
    version = result.stats["recoveries"][1]["version"]
    assert {(r.entry, r.value0) for r in back} == {(2, version)} and len(back) == SLOTS
    commits = trace.rows(trace.records["what"] == What.Commit)
    assert {1, 2} == {c.entry for c in commits} and commits[0].value0 == 1


@pytest.mark.parametrize("gone", tiers(["trace", "stats"], plain=["trace"], others="full"))
def test_a_file_that_cannot_be_written_costs_nothing_else(tmp_path: Path, gone: str) -> None:
    """The exit status is the program's, the other file is there, and what is missing is told."""
    paths = {name: tmp_path / name / "file.json" for name in ("trace", "stats")}
    for path in paths.values():
        path.parent.mkdir()
    script = tmp_path / "app.py"
    script.write_text(
        "import os, sys\nfrom mpi4py import MPI\n"
        f"if MPI.COMM_WORLD.rank == 0: os.rmdir({str(paths[gone].parent)!r})\n"
        "MPI.COMM_WORLD.Barrier()\nsys.exit(3)\n"
    )
    options = [f"--{name}={path}" for name, path in paths.items()]
    job = subprocess.run(
        [FTRMA, "run", "-n", "2", *options, str(script)], timeout=30, capture_output=True, text=True
    )
    assert job.returncode == 3, job
    (line,) = job.stderr.splitlines()
    assert line.startswith("ftrma: warning: cannot write ") and str(paths[gone]) in line
    assert {name for name, path in paths.items() if path.exists()} == set(paths) - {gone}


@pytest.mark.full
def test_a_rollback_is_consistent_by_its_trace(tmp_path: Path) -> None:
    """Law: every version is RMA-consistent, and nothing of the first entry comes later."""
    options = ["--policy", "rollback", "--interval", "0", "--kill", "2@fence:40"]
    trace = traced(tmp_path, "stencil", *options, kind="rollback")
    report = check(trace)
    assert report.violation is None, report.lines(trace.began_ns)
    assert (report.recoveries, report.rollbacks) == (0, 1) and report.checkpoints > 1
