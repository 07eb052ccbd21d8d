"""Jobs of `ftrma.apgas` with hosts in the launcher's words: over several nodes, and on another one.

Law: all holds there as in a job on the launcher's own node, also long after a death. A lost node is
the death of all its places, and nobody else begins again; if the node of place zero is lost, or the
only one, the job is launched again on others.
"""

from __future__ import annotations

import functools
import itertools
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


def job(*names: str, way: str = "place0", spares: int = 0, kills: tuple[str, ...] = (),
        nodes: int = 1) -> Result:
    """Run the programs of `apgasjob.py`, with places in turn on so many nodes.

    On one it is another node than the launcher's.
    """
    return run_on_nodes(conformance.JOB, PLACES, "--spares", str(spares), *kill(*kills),
                        args=[way, *names], in_turn=nodes, timeout=60)


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


@pytest.mark.parametrize(("share", "nodes"), tiers(
    itertools.product(range(4), (1, 2, 3)), full=["0-2", "2-2"]))
def test_programs_that_lose_places(share: int, nodes: int) -> None:
    names = conformance.DEADLY[share::4]
    result = job(*names, spares=conformance.deaths_of(names), nodes=nodes)
    told = conformance.assert_sound(result)
    assert len(told["dead"]) == conformance.deaths_of(names) and told["attempt"] == 1
    assert result.stderr.count("apgas goes on without it") == len(told["dead"]), result


def test_a_place_of_another_node_dies() -> None:
    """Law: its orphan is waited for, and the finish tells of the death."""
    names = ("nested_finish_middle_fail",)
    told = conformance.assert_sound(job(*names, spares=1, nodes=2))
    assert len(told["dead"]) == conformance.deaths_of(list(names)) and told["attempt"] == 1


@pytest.mark.parametrize(("way", "nodes"), tiers(
    itertools.product(("place0", "none"), (1, 2, 3)), full=["place0-3", "none-2"]))
def test_programs_without_deaths(way: str, nodes: int) -> None:
    told = conformance.assert_sound(job(*conformance.QUIET, way=way, nodes=nodes))
    assert {*told["told"]} == {name for name in PROGRAMS if not PROGRAMS[name].deaths}


@pytest.mark.parametrize(("point", "spares", "nodes"), tiers(
    itertools.product(("count", "append", "admit", "end", "reply"), (0, 2), (1, 2)),
    full=["append-2-2", "end-0-2"]))
def test_place_zero_dies(point: str, spares: int, nodes: int) -> None:
    """Law: all run the program again; without a spare in a new launch."""
    result = job("storm:12", spares=spares, kills=(f"0@apgas.{point}:3",), nodes=nodes)
    told = conformance.assert_sound(result)
    assert told["attempt"] == 2 and told["told"]["storm:12"] == forecast(draw(12, PLACES)), told
    assert kinds(result) == ["reentry" if spares else "relaunch"], result


@pytest.mark.parametrize(("rules", "nodes"), tiers(
    itertools.product(("1@apgas.step:3 3@apgas.checkpoint:4", "2@apgas.step:5 0@apgas.restore",
                       "0@apgas.half:4", "0@apgas.published:5", "2@apgas.step:5 0@apgas.rebuild",
                       "2@apgas.step:5 0@apgas.open:2", "c0@time:1 2@apgas.team:8"), (1, 2, 3)),
    full=["1@apgas.step:3 3@apgas.checkpoint:4-2", "2@apgas.step:5 0@apgas.restore-2"]))
def test_an_executor_goes_on(rules: str, nodes: int) -> None:
    """Law: in the attempt of the deaths, or, if place zero is among them, in the next one."""
    result = job("steps:3", spares=3, kills=tuple(rules.split()), nodes=nodes)
    assert result.status == 0, result
    told = result.results["told"]
    assert told["attempt"] == 1 + ("0@" in rules.replace("c0@", "")), told
    assert told["told"]["steps:3"] == oracle(PLACES), told
    assert "relaunch" not in kinds(result), result


@pytest.mark.parametrize(("rules", "nodes"), tiers(
    itertools.product(("1@apgas.published:9 s0@apgas.load", "0@apgas.half:9 0@apgas.open:2",
                       "1@apgas.mirror 2@apgas.intent"), (1, 2)),
    full=["1@apgas.published:9 s0@apgas.load-2"]))
def test_a_store(rules: str, nodes: int) -> None:
    result = run_on_nodes(store.PROGRAM, store.SHELVES, "--spares", "3", *kill(*rules.split()),
                          args=[str(store.STEPS), str(store.SHELVES)], in_turn=nodes, timeout=60)
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


# A place takes down its node in a step: all ranks, the agent, the launcher's daemon.
FALLS = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from apgassteps import Steps, run_steps
from ftrma import apgas
directory, step, ordinal, often = sys.argv[1], *map(int, sys.argv[2:])
step_local = Steps.step_local


def fall():
    for pid in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
        if pid not in (1, os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    os.kill(os.getpid(), signal.SIGKILL)


def step_or_fall(self, team):
    here = apgas.group().index_of(apgas.here())
    fallen = Path(directory) / f"fell-{{len(self.log)}}.txt"
    if len(self.log) in range(step, step + often) and here == ordinal and not fallen.exists():
        fallen.touch()
        fall()
    step_local(self, team)


def main():
    log = run_steps(3)
    with open(f"{{directory}}/root.json", "w") as file:
        json.dump([log, len(apgas.places())], file)


Steps.step_local = step_or_fall
apgas.run(main)
"""


@pytest.mark.parametrize(("ordinal", "step", "often"), tiers(
    [*itertools.product((1, 2), (0, 2, 5, 8), (1,)), (1, 4, 2)], full=["1-5-1", "1-4-2"]))
def test_a_node_is_lost(ordinal: int, step: int, often: int) -> None:
    """Law: its places are dead, reserves of other nodes replace them, and the rest go on; with
    `often` 2 the node of the replacement falls, too."""
    program = FALLS.format(tests=str(Path(__file__).parents[1]))
    result = run_on_nodes(program, PLACES, "--spares", "7", args=[str(step), str(ordinal),
                          str(often)], in_turn=3, timeout=60, tidy=False)
    assert result.status == 0 and not kinds(result), result
    assert result.stderr.count("counts as lost") == often, result
    log, _ = result.results["root"]
    assert log == oracle(PLACES), result


@pytest.mark.full
def test_no_place_comes_later() -> None:
    """Law: over several nodes that is refused in words, and the program goes on."""
    program = """
import json, sys
from ftrma import apgas


def main():
    try:
        apgas.add_places(1)
    except ValueError as error:
        with open(f"{sys.argv[1]}/root.json", "w") as file:
            json.dump(str(error), file)


apgas.run(main)
"""
    result = run_on_nodes(program, 2, "--spares", "1", in_turn=2)
    assert result.status == 0, result
    assert result.results["root"] == (
        "add_places(1): there is room for 0 more places; start the job with more of them "
        "(-n, --spares)"), result


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
