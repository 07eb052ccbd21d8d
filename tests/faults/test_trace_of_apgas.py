"""The trace of a whole job of `ftrma.apgas`: places, reserves and later places are in one file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from jobs import FTRMA, run_job

from ftrma.trace.records import read

PROGRAM = '''
from ftrma import apgas


def work(n):
    return n


def main():
    try:
        with apgas.finish():
            for place in apgas.places():
                apgas.async_at(place, work, 1)
    except apgas.MultipleExceptions:
        pass
    [late] = apgas.add_places_and_wait(1)
    for place in (*apgas.reserves(),):
        apgas.at(place, work, 2)


if __name__ == "__main__":
    apgas.run(main)
'''


@pytest.mark.full
def test_all_places_are_in_the_trace(tmp_path: Path) -> None:
    """Law: a slot's tasks are in the slot's row; a spare and a place that came later have rows of
    their own. What a killed place did is there, before its death."""
    path = tmp_path / "trace.json"
    job = run_job(PROGRAM, 2, "--spares", "1", "--trace", str(path),
                  "--kill", "1@apgas.end:1")
    assert job.status == 0, job
    content = json.loads(path.read_text())
    rows = {e["pid"]: e["args"]["name"] for e in content["traceEvents"]
            if e["name"] == "process_name"}
    tasks = [(rows[e["pid"]], e["args"]["kind"], e["args"].get("unfinished", False))
             for e in content["traceEvents"] if e["name"] == "work"]
    assert sorted(tasks) == [
        ("process 3, without a slot", "at", False), ("process 4, without a slot", "at", False),
        ("slot 0", "task", False), ("slot 1", "task", False)]
    told = {rows[e["pid"]] for e in content["traceEvents"] if e["name"].startswith("told of the")}
    assert {"slot 0", "process 3, without a slot"} <= told and "slot 1" not in told
    [lost] = [e for e in content["traceEvents"] if e["name"] == "work"
              and rows[e["pid"]] == "slot 1"]
    [death] = [e for e in content["traceEvents"] if e["name"] == "failure slot 1"]
    assert lost["ts"] + lost["dur"] <= death["ts"] + 1e5
    assert not any(r.name in ("Span", "Spanned", "Mark") for r in read(path).rows())
    checked = subprocess.run([FTRMA, "check", str(path)], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout.split()[-1]) == (0, "consistent"), checked
