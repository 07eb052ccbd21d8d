"""Applications over places in real jobs: a death at each place of the loop, place zero's too.

Law: a job ends with the result of its oracle: with its bits, except where the group has shrunk. The
tree search counts each node once.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jobs import FTRMA, Result, run_command, run_job
from tiers import tiers
from tree import ROOT

PROGRAMS = {
    "kmeans": "--points 500 --clusters 4 --dimensions 3 --steps 25 --checkpoint 4",
    "logreg": "--samples 500 --features 5 --steps 25 --checkpoint 4",
    "pagerank": "--pages 600 --steps 25 --checkpoint 4",
    "lulesh": "--edge 5 --checkpoint 10",
    "uts": "--depth 8 --commit 0.01",
}


def run(program: str, *kills: str, slots: int = 4, spares: int = 2, more: str = "") -> Result:
    """Run a packaged program; at its end it compares the result with its oracle."""
    rules = [word for kill in kills for word in ("--kill", kill)]
    return run_command([FTRMA, "apgas", program, "-n", str(slots), "--spares", str(spares),
                        "--check", *PROGRAMS[program].split(), *more.split(), *rules])


def found_of(job: Result) -> dict[str, Any]:
    """The line that the program has printed."""
    assert job.status == 0, job
    found: dict[str, Any] = json.loads(job.stdout.splitlines()[-1])
    return found


# Places of the loop, and with "+" of the recovery from a death before; spare 0 replaces slot 1.
DEATHS = tiers(
    ["1@apgas.step:11", "2@apgas.team:22", "3@apgas.checkpoint:3",
     "1@apgas.step:11+s0@apgas.remake", "1@apgas.step:11+s0@apgas.restore",
     "1@apgas.step:11+3@apgas.remake", "1@apgas.step:11+3@apgas.restore",
     "1@apgas.checkpoint:2+3@apgas.checkpoint:4", "1@apgas.step:11+3@apgas.step:11",
     "0@apgas.step:11", "0@apgas.team:22", "0@apgas.checkpoint", "0@apgas.checkpoint:3",
     "0@apgas.record", "0@apgas.record:3", "2@apgas.step:11+0@apgas.rebuild",
     "1@apgas.step:11+0@apgas.rebuild",  # neighbours: the shelf is lost, the job launched again
     "1@apgas.step:11+0@apgas.remake", "1@apgas.step:11+0@apgas.restore"],
    full=["1@apgas.step:11+s0@apgas.remake", "1@apgas.step:11+3@apgas.restore",
          "0@apgas.record:3"])


@pytest.mark.parametrize("kills", DEATHS)
def test_kmeans(kills: str) -> None:
    job = run("kmeans", *kills.split("+"))
    assert found_of(job)["equal"], job
    for slot in {kill[0] for kill in kills.split("+")} - {"s"}:
        assert re.search(rf"slot {slot}\b.* died", job.stderr), job


@pytest.mark.nightly
@pytest.mark.parametrize("program", ("logreg", "pagerank", "lulesh"))
@pytest.mark.parametrize("kills", ("2@apgas.step:11+1@apgas.restore", "0@apgas.checkpoint:4"))
def test_others(program: str, kills: str) -> None:
    assert found_of(run(program, *kills.split("+")))["equal"]


@pytest.mark.parametrize("kills", tiers(
    ["1@apgas.commit:4", "2@apgas.deal", "0@apgas.commit:6", "0@apgas.deal:2",
     "1@apgas.commit:4+s0@apgas.commit:2", "1@apgas.commit:4+0@apgas.commit:9"],
    full=["1@apgas.commit:4+0@apgas.commit:9"]))
def test_uts(kills: str) -> None:
    """Law: a place that never comes to its place of death lives on, with no harm done."""
    assert found_of(run("uts", *kills.split("+")))["equal"]


@pytest.mark.parametrize("program", tiers(["kmeans", "pagerank", "uts"], full=["uts"]))
def test_fewer_places(program: str) -> None:
    """Law: without a spare the group shrinks, and the result is close to that of all places."""
    kills = "2@apgas.commit:3" if program == "uts" else "2@apgas.step:11"
    found = found_of(run(program, kills, spares=0, more="--shrink"))
    assert found["close"] and found["places"] == 3


@pytest.mark.full
@pytest.mark.parametrize("kills", ("1@apgas.step:11", "1@apgas.step:11+2@apgas.restore"))
def test_places_that_come_later(kills: str) -> None:
    """Law: without a spare, places are started in place of dead ones."""
    found = found_of(run("kmeans", *kills.split("+"), spares=0, more="--reserves 1"))
    assert found["equal"] and found["places"] == 4


@pytest.mark.full
def test_intervals_by_the_mtbf() -> None:
    assert found_of(run("kmeans", more="--checkpoint daly --mtbf 60"))["equal"]


@pytest.mark.full
def test_words() -> None:
    """Law: a mistake in the command's words costs one line, and no job."""
    for words, told in (("--steps 0", "--steps 0"), ("--checkpoint weekly", "young or daly"),
                        ("--depth x", "--depth x")):
        job = run_command([FTRMA, "apgas", "kmeans", "-n", "2", *words.split()])
        assert job.status == 2 and told in job.stderr, job


def test_the_program_of_the_page() -> None:
    """Law: the page's loop runs as it is written there, over a death."""
    page = (ROOT / "ftrma/docs/places.md").read_text()
    (program,) = (text for text in re.findall(r"(?s)```python\n(.*?)```", page)
                  if "SPMDIterativeApp" in text)
    jobs = [run_job(program.replace("10_000", "300"), 3, "--spares", "1", *kill)
            for kill in ((), ("--kill", "2@apgas.step:25"))]
    assert [job.status for job in jobs] == [0, 0], jobs
    centres, again = (job.stdout.partition("steps")[0].rpartition("]")[0] for job in jobs)
    assert centres == again and "1 failures" in jobs[1].stdout, jobs


CATASTROPHE = '''
import sys
from ftrma import apgas

class Slow(apgas.SPMDIterativeApp):
    def __init__(self): self.i = 0
    def is_finished_local(self): return self.i == 20
    def step_local(self, team): team.barrier(); self.i += 1
    def checkpoint_local(self, first): return {"i": self.i}
    def restore_local(self, saved): self.i = saved["i"]

def main():
    try:
        apgas.SPMDIterativeExecutor(apgas.PlaceManager(), 4).run(Slow)
    except apgas.CatastrophicFailure as error:
        print("lost:", *error.members)
    with apgas.finish():
        for place in apgas.places():
            apgas.async_at(place, print, "goes on", flush=True)

apgas.run(main)
'''


@pytest.mark.full
def test_neighbours_die_at_once() -> None:
    """Law: what both places of a shelf had is lost, which is told by name and can be caught."""
    job = run_job(CATASTROPHE, 4, "--spares", "2", "--kill", "1@apgas.step:6", "--kill",
                  "2@apgas.step:6")
    assert job.status == 0, job
    assert "lost: shelf 1" in job.stdout and job.stdout.count("goes on") == 2, job


@pytest.mark.parametrize("program", tiers(["kmeans", "pagerank", "lulesh"], full=["pagerank"]))
@pytest.mark.parametrize("kills", tiers(["2@apgas.result", "2@apgas.result+1@apgas.result:2",
                                         "0@apgas.result", "2@apgas.result+0@apgas.restore"],
                                        full=["2@apgas.result"]))
def test_a_part_of_the_result_is_lost(program: str, kills: str) -> None:
    """Law: a place that dies after the last step costs the steps since the newest checkpoint."""
    found = found_of(run(program, *kills.split("+")))
    assert found["equal"], found
    if "0@" not in kills:
        again = found["steps"] - (72 if program == "lulesh" else 25)
        assert found["failures"] <= again <= 2 * found["failures"], found
