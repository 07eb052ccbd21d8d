"""A framework that is told of deaths: a program that uses the interface and nothing else.

Each member but the root answers the root's question; the root gathers the answers and the deaths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jobs import Result, run_job
from nodes import remove_fake_ssh, run_on_nodes
from tiers import tiers


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


PROGRAM = '''
import json, os, signal, sys
from ftrma import framework

directory, doomed = sys.argv[1], int(sys.argv[2])
members = framework.claim("survey", "told", forfeit=True)
assert framework.claim("survey", "told", forfeit=True) is members
mail, got, died = members.mail, [], []
members.on_failure(died.append)


def wait(until):
    while True:
        seen = mail.bell
        members.check()
        members.poll()
        while message := mail.take():
            source, kind, data = message
            got.append((source, kind, bytes(data)))
            mail.release()
        if until():
            return
        mail.wait(seen, 1.0)


def answered():
    return {source for source, kind, _ in got if kind == 3} | set(members.deaths()) | {members.me}


if members.me == members.root:
    for place in members.everyone[1:]:
        mail.append(place, 1, b"?")
    if members.attempt <= doomed:
        wait(lambda: len(answered()) > 2)
        os.kill(os.getpid(), signal.SIGKILL)
    wait(lambda: answered() >= set(members.everyone))
    with open(f"{directory}/root.json", "w") as file:
        json.dump({"answers": sorted(data.decode() for _, kind, data in got if kind == 3),
                   "died": sorted(set(died)), "deaths": members.deaths(), "me": members.me,
                   "everyone": members.everyone, "attempt": members.attempt}, file)
    for place in members.everyone[1:]:
        mail.append(place, 2, b"end")
else:
    wait(lambda: any(kind == 1 for _, kind, _ in got))
    framework.kill_place("survey.answer")
    mail.append(members.root, 3, b"%d" % members.me)
    wait(lambda: any(kind == 2 for _, kind, _ in got))
'''


def survey(*options: str, doomed: int = 0, spares: int = 2) -> tuple[Result, Any]:
    """Run the program with 3 slots (processes 0 to 2), a checksum rank (3) and spares.

    Args:
        doomed: number of attempts in which the root dies amid the answers.
    """
    job = run_job(PROGRAM, 3, "--spares", str(spares), *options, args=[str(doomed)])
    assert job.status == 0, job
    return job, job.results["root"]


def told(job: Result) -> list[str]:
    """Lines for the user, without numbers of processes."""
    return re.sub(r"process \d+", "process N", job.stderr).splitlines()


def test_nobody_dies() -> None:
    """Law: slots and spares run the program; checksum ranks do not."""
    job, result = survey()
    assert not told(job)
    assert result["everyone"] == [0, 1, 2, 4, 5]
    assert result["answers"] == ["1", "2", "4", "5"]
    assert result["deaths"] == []


@pytest.mark.parametrize(("rule", "dead", "line"), [
    ("2@survey.answer", [2], ["ftrma: slot 2 died (process N); survey goes on without it"]),
    pytest.param("s1@survey.answer", [5], ["ftrma: spare 1 died (process N); survey goes on "
                                           "without it"], marks=pytest.mark.full),
])
def test_one_dies(rule: str, dead: list[int], line: list[str]) -> None:
    """Law: a death is told to the members, and to the user in a line; nobody goes back."""
    job, result = survey("--kill", rule)
    assert told(job) == line
    assert result["attempt"] == 1
    assert result["deaths"] == result["died"] == dead
    assert result["answers"] == [str(p) for p in (1, 2, 4, 5) if p not in dead]


@pytest.mark.parametrize(("spares", "me", "everyone", "dead"), [
    (2, 4, [4, 1, 2, 0, 5], [0]),
    # Nobody can take its place, so the job is launched again.
    pytest.param(0, 0, [0, 1, 2], [], marks=pytest.mark.full),
])
def test_the_root_dies(spares: int, me: int, everyone: list[int], dead: list[int]) -> None:
    """Law: all run the program again, with a spare in slot 0, and know who is dead."""
    job, result = survey(doomed=1, spares=spares)
    assert len(told(job)) == 1, job
    assert "survey recovers" in job.stderr or "launching the job again" in job.stderr
    assert result["me"] == me and result["everyone"] == everyone and result["attempt"] == 2
    assert result["deaths"] == result["died"] == dead
    assert result["answers"] == sorted(str(p) for p in everyone if p not in (me, *dead))


@pytest.mark.parametrize(("first", "root"), tiers(
    [(2, 1), (1, 2), (4, 1)], full=["1-2"]))
def test_root_and_another(first: int, root: int) -> None:
    """Law: a slot that has died before the root gets a spare, too, when all enter again."""
    role = {1: "1", 2: "2", 4: "s0"}[first]
    _, result = survey("--kill", f"{role}@survey.answer", doomed=root, spares=4)
    assert result["attempt"] == root + 1
    assert first in result["deaths"] and 0 in result["deaths"]
    living = [p for p in result["everyone"] if p not in result["deaths"]]
    assert result["answers"] == sorted(str(p) for p in living if p != result["me"])


def survey_on_nodes(*options: str, nodes: int, doomed: int = 0, spares: int = 2
                    ) -> tuple[Result, Any]:
    """Run the program with all members in turn on so many nodes; see `survey`."""
    job = run_on_nodes(PROGRAM, 3, "--spares", str(spares), *options, args=[str(doomed)],
                       in_turn=nodes, timeout=60)
    assert job.status == 0, job
    return job, job.results["root"]


@pytest.mark.parametrize(("rule", "nodes"), tiers(
    [(rule, nodes) for rule in ("1", "2", "s0", "s1") for nodes in (2, 3)],
    full=["1-2", "s1-3"]))
def test_one_of_several_nodes_dies(rule: str, nodes: int) -> None:
    """Law: it is told once, in one order on all nodes, and nobody goes back."""
    job, result = survey_on_nodes("--kill", f"{rule}@survey.answer", nodes=nodes)
    dead = {"1": 1, "2": 2, "s0": 4, "s1": 5}[rule]
    assert len(told(job)) == 1 and "survey goes on without it" in told(job)[0], job
    assert result["attempt"] == 1 and result["deaths"] == result["died"] == [dead]
    assert result["answers"] == [str(p) for p in (1, 2, 4, 5) if p != dead]


@pytest.mark.parametrize(("rule", "doomed", "nodes"), tiers(
    [("", 1, 2), ("", 1, 3), ("1@survey.answer", 2, 2), ("2@survey.answer", 1, 3)],
    full=["1@survey.answer-2-2"]))
def test_the_root_of_several_nodes_dies(rule: str, doomed: int, nodes: int) -> None:
    """Law: all run the program again, with a spare in slot 0, and know who is dead."""
    kill = ["--kill", rule] if rule else []
    _, result = survey_on_nodes(*kill, nodes=nodes, doomed=doomed, spares=4)
    assert result["attempt"] == doomed + 1 and 0 in result["deaths"]
    living = [p for p in result["everyone"] if p not in result["deaths"]]
    assert result["answers"] == sorted(str(p) for p in living if p != result["me"])


ENDS = """
import os, sys, time
import ftrma
from ftrma import MPI, framework
members = framework.claim("survey", "told")
who, line = int(sys.argv[2]), sys.argv[3]
if members.me == who:
    exec(line)
deadline = time.monotonic() + 3.0
while not members.generation and time.monotonic() < deadline:
    members.check()
    members.mail.wait(members.mail.bell, 0.1)
members.poll()
"""


@pytest.mark.parametrize(("line", "who", "status", "words"), tiers([
    pytest.param("raise RuntimeError('mine')", 4, 1, "RuntimeError: mine", id="spare raises"),
    pytest.param("sys.exit(3)", 5, 3, "", id="spare exits"),
    pytest.param("sys.exit(3)", 1, 3, "", id="slot exits"),
    pytest.param("MPI.COMM_WORLD.Barrier()", 4, 1, "MPI.COMM_WORLD.Barrier: this process runs "
                 "the program as a spare, and is no rank of MPI; have a slot make this call",
                 id="MPI"),
    pytest.param("ftrma.protect('x', a=1)", 4, 1, "protect('x'): this process is a spare, which "
                 "has no slot", id="protect"),
    pytest.param("framework.claim('Other', 'told')", 4, 1, "claim('Other'): a name has 1 to 31 "
                 "small letters", id="name"),
    pytest.param("os._exit(0)", 1, 0, "slot 1 died", id="leaves"),
    pytest.param("os._exit(4)", 2, 4, "slot 2 ended itself with status 4", id="leaves with 4"),
], plain=["MPI"], full=["spare raises", "leaves with 4"]))
def test_ends(line: str, who: int, status: int, words: str) -> None:
    """Law: an error or a status of a member is the job's; leaving with status 0 is a death."""
    job = run_job(ENDS, 3, "--spares", "2", args=[str(who), line])
    assert job.status == status, job
    assert words in job.stderr, job


LATE = """
import json, os, signal, sys, time
from ftrma import MPI, framework
directory, what = sys.argv[1:3]
members = framework.claim("survey", "told", forfeit=True, most=6)
mail, got = members.mail, []


def wait(until):
    while True:
        seen = mail.bell
        members.check()
        members.poll()
        while message := mail.take():
            got.append((message[0], message[1], bytes(message[2])))
            mail.release()
        if until():
            return
        mail.wait(seen, 1.0)


if members.me == members.root:
    before = members.everyone
    new = members.start(2)
    for place in new:
        mail.append(place, 1, b"?")
    if what == "root" and members.attempt == 1:
        wait(lambda: all(map(mail.joined, new)))
        os.kill(os.getpid(), signal.SIGKILL)
    wait(lambda: {source for source, kind, _ in got if kind == 3} | set(members.deaths())
         >= {*new})
    try:
        members.start(2)
    except ValueError as error:
        refused = str(error)
    with open(f"{directory}/root.json", "w") as file:
        json.dump({"new": new, "before": before, "after": members.everyone, "refused": refused,
                   "possible": members.possible, "deaths": members.deaths(),
                   "answers": sorted(source for source, kind, _ in got if kind == 3)}, file)
    for place in members.everyone[1:]:
        mail.append(place, 2, b"end")
elif members.me in members.possible[-3:]:
    wait(lambda: any(kind == 1 for _, kind, _ in got))
    if members.me == members.possible[-3]:
        exec({"kill": "os.kill(os.getpid(), signal.SIGKILL)", "mpi": "MPI.COMM_WORLD.rank",
              "raise": "raise RuntimeError('mine')"}.get(what, ""))
    mail.append(members.root, 3, b"")
    wait(lambda: any(kind == 2 for _, kind, _ in got))
else:
    wait(lambda: any(kind == 2 for _, kind, _ in got))
"""


@pytest.mark.parametrize(("what", "dead", "words"), [
    pytest.param("", [], "", marks=pytest.mark.full),
    ("kill", [4], "place 4 died of SIGKILL (process N); survey goes on without it"),
    pytest.param("mpi", [4], "is no rank of MPI", marks=pytest.mark.full),
    pytest.param("raise", [4], "RuntimeError: mine", marks=pytest.mark.nightly),
    pytest.param("root", [0], "survey recovers", marks=pytest.mark.full),
])
def test_members_that_come_later(what: str, dead: list[int], words: str) -> None:
    """Law: a process that the root starts is a member without MPI; it ends with the root."""
    job = run_job(LATE, 2, "--spares", "1", args=[what])
    assert job.status == 0, job
    assert words in "\n".join(told(job)), job
    result = job.results["root"]
    assert result["new"] == [4, 5]
    assert result["after"] == [*result["before"], 4, 5]
    assert result["possible"] == [*result["after"], 6]
    assert result["refused"] == "2 more processes: there is room for 1"
    assert result["deaths"] == dead
    assert result["answers"] == [p for p in (4, 5) if p not in dead]
