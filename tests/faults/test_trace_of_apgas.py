"""The trace of a whole job of `ftrma.apgas`: places, reserves and later places are in one file."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_job
from nodes import remove_fake_ssh, run_on_nodes

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


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


@pytest.mark.full
@pytest.mark.parametrize("run", [
    pytest.param(run_job, id="here"),
    pytest.param(functools.partial(run_on_nodes, in_turn=1), id="on another node")])
def test_all_places_are_in_the_trace(tmp_path: Path, run: Callable[..., Result]) -> None:
    """Law: a slot's tasks are in the slot's row; a spare and a place that came later have rows of
    their own. What a killed place did is there, before its death. The row of a later place is at
    its time, also where the node's clock is another one than that of ``ftrma run``."""
    path = tmp_path / "trace.json"
    job = run(PROGRAM, 2, "--spares", "1", "--trace", str(path), "--kill", "1@apgas.end:1")
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
    times = [e["ts"] for e in content["traceEvents"] if "ts" in e]
    assert max(times) - min(times) < 30e6, (min(times), max(times))
    assert not any(r.name in ("Span", "Spanned", "Mark") for r in read(path).rows())
    checked = subprocess.run([FTRMA, "check", str(path)], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout.split()[-1]) == (0, "consistent"), checked
