"""Jobs of `ftrma.apgas` with hosts in the launcher's words: on a node that is not the launcher's.

Law: places are on one node, whichever it is, and all holds there as on that of ``ftrma run``, also
long after a death. Over several nodes the program is refused before it begins. If the node of all
places is lost, the job is launched again on another one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import test_apgas_conformance as conformance
import test_apgas_store as store
from apgasprograms import PROGRAMS
from apgassteps import oracle
from apgasstorm import draw, forecast
from jobs import Result, run_job
from nodes import NODES, fake_ssh, refusing, remove_fake_ssh, run_on_nodes
from programs import kinds
from tiers import tiers

PLACES = conformance.PLACES


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def kill(*rules: str) -> list[str]:
    return [word for rule in rules for word in ("--kill", rule)]


def job(*names: str, way: str = "place0", spares: int = 0, kills: tuple[str, ...] = ()) -> Result:
    """Run the programs of `apgasjob.py` with all places on one node, which is another one."""
    return run_on_nodes(conformance.JOB, PLACES, "--spares", str(spares), *kill(*kills),
                        args=[way, *names], in_turn=1, timeout=60)


# A death, and then more time than a repair may take: by `how`.
LONG = """
import json, os, sys
from ftrma import apgas
directory, how = sys.argv[1:]
END = {"killed": apgas.kill_here, "leaves": lambda: os._exit(0), "leaves with 4":
       lambda: os._exit(4), "raises": apgas.kill_here}


def die():
    END[how]()


def main():
    died = []
    try:
        with apgas.finish():
            apgas.async_at(1, die)
    except apgas.MultipleExceptions as errors:
        died = [e.place for e in errors.of_type(apgas.DeadPlaceException)]
    if how == "raises":
        raise ValueError("mine")
    if how != "leaves with 4":
        apgas.sleep(1.3 if how == "killed" else 3.0)
    with open(f"{directory}/root.json", "w") as file:
        json.dump([died, list(apgas.places()), list(apgas.reserves())], file)


apgas.run(main)
"""


@pytest.mark.parametrize(("how", "status", "words"), tiers([
    ("killed", 0, "apgas goes on without it"), ("leaves", 0, "apgas goes on without it"),
    ("leaves with 4", 4, "slot 1 ended itself with status 4"), ("raises", 1, "ValueError: mine"),
], full=["killed-0-apgas goes on without it"]))
def test_a_death_is_no_failure_for_long(how: str, status: int, words: str) -> None:
    """Law: nobody waits for a repair of a death that is told, nor for a place that has left."""
    result = run_on_nodes(LONG, 3, "--spares", "1", "--timeout", "repair=1", args=[how], in_turn=1)
    assert result.status == status and words in result.stderr and not kinds(result), result
    if not status:
        assert result.results["root"] == [[1], [0, 2], [4]], result


REFUSED = """
import sys
from ftrma import apgas
apgas.run(lambda: print("begins", flush=True), finish=sys.argv[2])
"""


@pytest.mark.parametrize(("way", "nodes"), [
    pytest.param("place0", 2, marks=pytest.mark.full),
    pytest.param("none", 3, marks=pytest.mark.nightly)])
def test_several_nodes_are_refused(way: str, nodes: int) -> None:
    """Law: at once, with what to do, and nothing is launched again."""
    result = run_on_nodes(REFUSED, 3, "--spares", "1", args=[way], in_turn=nodes)
    assert result.status == 1 and not result.stdout and not kinds(result), result
    assert (f"claim('apgas'): deaths are told on one node only, and the job's processes are on "
            f"{nodes}. Have all 5 on one, checksum ranks and spares among them, as by --mpirun "
            f'"--host {NODES[0]}:5"') in result.stderr, result
    assert result.stderr.count("deaths are told") == 1, result


@pytest.mark.nightly
@pytest.mark.parametrize("share", range(4))
def test_programs_that_lose_places(share: int) -> None:
    names = conformance.DEADLY[share::4]
    told = conformance.assert_sound(job(*names, spares=conformance.deaths_of(names)))
    assert len(told["dead"]) == conformance.deaths_of(names) and told["attempt"] == 1


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["place0", "none"])
def test_programs_without_deaths(way: str) -> None:
    told = conformance.assert_sound(job(*conformance.QUIET, way=way))
    assert {*told["told"]} == {name for name in PROGRAMS if not PROGRAMS[name].deaths}


@pytest.mark.nightly
@pytest.mark.parametrize("spares", [0, 2])
@pytest.mark.parametrize("point", ["count", "end", "reply"])
def test_place_zero_dies(point: str, spares: int) -> None:
    """Law: all run the program again; without a spare in a new launch, which is on a node of its
    own, too."""
    result = job("storm:12", spares=spares, kills=(f"0@apgas.{point}:3",))
    told = conformance.assert_sound(result)
    assert told["attempt"] == 2 and told["told"]["storm:12"] == forecast(draw(12, PLACES)), told
    assert kinds(result) == ["reentry" if spares else "relaunch"], result


@pytest.mark.nightly
@pytest.mark.parametrize("rules", [
    "1@apgas.step:3 3@apgas.checkpoint:4", "2@apgas.step:5 0@apgas.restore",
    "c0@time:1 2@apgas.team:8"])
def test_an_executor_goes_on(rules: str) -> None:
    """Law: in the attempt of the deaths, or, if place zero is among them, in the next one."""
    result = job("steps:3", spares=3, kills=tuple(rules.split()))
    assert result.status == 0, result
    told = result.results["told"]
    assert told["attempt"] == 1 + ("0@" in rules.replace("c0@", "")), told
    assert told["told"]["steps:3"] == oracle(PLACES), told
    assert "relaunch" not in kinds(result), result


@pytest.mark.nightly
@pytest.mark.parametrize("rules", [
    "1@apgas.published:9 s0@apgas.load", "0@apgas.half:9 0@apgas.open:2"])
def test_a_store(rules: str) -> None:
    result = run_on_nodes(store.PROGRAM, store.SHELVES, "--spares", "3", *kill(*rules.split()),
                          args=[str(store.STEPS), str(store.SHELVES)], in_turn=1, timeout=60)
    assert result.status == 0, result
    assert result.results["root"]["contents"] == store.expected(), result


MESSAGES = """
from ftrma import apgas


def main():
    for i in range(20):
        for p in apgas.places()[1:]:
            apgas.at(p, abs, i)
        apgas.sleep(0.1)
        if i == 5:
            apgas.uncounted_async_at(2, apgas.kill_here)
            apgas.when(lambda: apgas.is_dead(2))


apgas.run(main)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("run", [
    pytest.param(run_job, id="here"),
    pytest.param(functools.partial(run_on_nodes, in_turn=1), id="on another node")])
def test_places_that_take_messages_do_not_hang(run: Callable[..., Result]) -> None:
    """Law: though they make no call of MPI for longer than the limit; nor does a dead one."""
    result = run(MESSAGES, 3, "--spares", "0", "--stall", "1", "--on-stall", "halt")
    assert result.status == 0 and not result.stats["stalls"], result


# Checkpoints go to a file that all nodes have. There is no ssh to the first node any more.
LOST = """
import json, os, sys
from pathlib import Path
import numpy as np
from ftrma import apgas, framework
directory, shared, refused = sys.argv[1:]


class Sums(apgas.SPMDIterativeApp):
    def __init__(self):
        self.i, self.taken, self.x = 0, 0, np.arange(4.0) * apgas.here()

    def is_finished_local(self):
        return self.i == 30

    def step_local(self, team):
        self.x = self.x * 0.5 + team.allreduce(self.x)
        self.i, self.taken = self.i + 1, self.taken + 1

    def checkpoint_local(self, first):
        return {"i": self.i, "x": self.x}

    def restore_local(self, saved):
        self.i, self.x = saved["i"], saved["x"]


def main():
    if framework.attempt() == 1 and refused:
        Path(refused).write_text(os.uname().nodename + "\\n")
    app = apgas.SPMDIterativeExecutor(
        apgas.PlaceManager(), 3, file=f"{shared}/run.npz", file_s=0).run(Sums)
    if refused:  # the node is up again
        Path(refused).unlink()
    with open(f"{directory}/root.json", "w") as file:
        json.dump([app.x.tolist(), app.taken, os.uname().nodename, framework.attempt()], file)


apgas.run(main)
"""


@pytest.mark.nightly
def test_the_node_of_all_places_is_lost() -> None:
    """Law: no place is left that could be told. The job is launched again, which is said, with all
    places on one of the other hosts, and the executor goes on from its file, to the same bits."""
    found = []
    for name, rules in (("whole", ()), ("lost", ("n2@apgas.step:20",))):
        shared = Path(fake_ssh()).parent / name
        shared.mkdir()
        result = run_on_nodes(
            LOST, PLACES, "--spares", "1", *kill(*rules), nodes=NODES, per_node=PLACES + 2,
            args=[str(shared), str(refusing()) if rules else ""], files=Path(fake_ssh()).parent,
            tidy=False, timeout=60)
        assert result.status == 0, result
        found.append(result.results["root"])
    (whole, steps, *where), (again, left, *there) = found
    assert whole == again and where == [NODES[0], 1], found
    assert steps == 30 and left <= 30 - 18 and there[0] == NODES[1], found
    assert {*kinds(result)} == {"relaunch"} and "all processes died; launching the job again" in (
        result.stderr), result
