"""Slots stage versions alone: `ftrma.framework.staging` by stagers.py, whose slots wait for nobody.

Law: whoever dies, wherever and how often, each slot reads its part of one version, both parts of a
part are of one moment, and the job ends with the memory of the run without failure, bit for bit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_command, run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes
from programs import deaths, final_memory, kinds
from test_full_memory import why_not
from tiers import tiers

from ftrma.trace.check import check
from ftrma.trace.records import read

STAGERS = Path(__file__).parent / "stagers.py"
SLOTS, LAST = 4, 5
SPARES = ("--spares", "2")


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def stagers(*options: str) -> Result:
    return run_job(STAGERS, SLOTS, *options)


@functools.cache
def whole() -> Result:
    """The run without failure."""
    result = stagers()
    assert result.status == 0 and not result.stats["failures"], result
    return result


def assert_same(result: Result) -> None:
    assert result.status == 0, result
    expected = final_memory(whole())
    for slot, arrays in final_memory(result).items():
        for name, array in arrays.items():
            assert array.tobytes() == expected[slot][name].tobytes(), (slot, name, result)


def kill(*rules: str) -> list[str]:
    return [word for rule in rules for word in ("--kill", rule)]


def test_a_run_without_failure() -> None:
    """Law: each version is committed once, by the slots' parts, and told; static entries are saved
    once."""
    taken = whole().stats["checkpoints"]
    assert [c["version"] for c in taken] == [*range(1, LAST + 2)], taken
    assert taken[0]["dirty_bytes"] > SLOTS * 400_000, taken
    assert max(c["dirty_bytes"] for c in taken[1:]) < 400_000, taken


PLACES = ["checkpoint:3", "stage:3", "stagers.half:2", "staged:3"]


@pytest.mark.parametrize(("place", "slot"), tiers(
    itertools.product(PLACES, (0, 3)), plain=["stagers.half:2-3"],
    full=["staged:3-0"]))
def test_a_slot_dies(place: str, slot: int) -> None:
    """Law: what is not committed is undone, and all read the version before."""
    result = stagers(*SPARES, *kill(f"{slot}@{place}"))
    assert_same(result)
    assert kinds(result) == ["reentry"], result
    assert result.stats["recoveries"][0]["version"] == int(place[-1]) - 1, result


@pytest.mark.parametrize("place", tiers(
    ["sum:2", "commit:2", "fold:2", "folded:2"], full=["commit:2"]))
def test_a_checksum_rank_dies(place: str) -> None:
    """Law: its seat is taken while the slots go on."""
    result = stagers(*SPARES, *kill(f"c0@{place}"))
    assert_same(result)
    assert len(result.stats["reseats"]) + len(kinds(result)) == 1, result


@pytest.mark.parametrize("rules", tiers([
    "1@stagers.half:3+3@repair", "1@stagers.half:3+3@restore", "0@staged:3+2@reset",
    "1@staged:2+3@reentry", "1@stagers.half:3+1@stagers.half:5", "2@stage:2+c0@repair",
    "0@stagers.half:2+c1@commit:3", "c0@sum:2+c1@fold:2", "c0@commit:2+1@staged:3",
    "c0@fold:3+0@stagers.half:4", "0@staged:4+s0@repair",
], full=["c0@commit:2+1@staged:3"]))
def test_several_deaths(rules: str) -> None:
    """Law: also amid a recovery, and with m = 2 two at once. Either of two parities commits, so
    that one of them may never come to do so."""
    rule = rules.split("+")
    result = stagers("--spares", "4", "--checksums", "2", "--group-size", "4", *kill(*rule))
    assert_same(result)
    sure = sum("@commit" not in one for one in rule)
    assert set(kinds(result)) <= {"reentry"} and len(rule) >= len(deaths(result)) >= sure, result


@pytest.mark.parametrize("rules", tiers([
    "3@stagers.half:3", "0@stagers.half:3", "1@staged:3", "2@stage:2", "c0@sum:2", "c1@sum:2",
    "c0@commit:2", "c1@folded:2", "a2@stagers.half:3", "1@stagers.half:3+2@reentry",
    "0@staged:3+c1@repair", "3@stagers.half:3+a3@repair",
], full=["3@stagers.half:3"]))
def test_over_nodes(rules: str) -> None:
    """Law: the same over two nodes and with two groups, wherever the spare is."""
    need = len([rule for rule in rules.split("+") if rule[0] != "a"])
    result = run_on_nodes(STAGERS, SLOTS, "--checksums", "2", "--group-size", "2", "--spares",
                          str(max(2, need)), *kill(*rules.split("+")), in_turn=2)
    assert_same(result)
    assert set(kinds(result)) <= {"reentry"}, result


@pytest.mark.parametrize("rules", tiers([
    "3@stagers.half:3", "c1@commit:2", "c0@sum:3", "0@staged:2+2@stage:5",
], full=["c0@sum:3"]))
@pytest.mark.parametrize("spares", tiers(["2", "0"], full=["2"]))
def test_two_groups(rules: str, spares: str) -> None:
    """Law: a group whose members have all staged is summed, and undone if another one's have not;
    without a spare the job is launched again."""
    groups = ("--checksums", "2", "--group-size", "2")
    result = stagers(*groups, "--spares", spares, *kill(*rules.split("+")))
    assert_same(result)
    assert set(kinds(result)) <= {"reentry" if spares == "2" else "relaunch"}, result
    if spares == "0":
        assert kinds(result), result


@pytest.mark.full
def test_unprotected() -> None:
    """Law: under plain mpirun nothing is saved, and a version is begun and ended for nothing."""
    assert_same(run_plain(STAGERS, SLOTS))


UNDONE = """
import sys, time
import numpy as np
from ftrma import MPI, framework as fw
from ftrma.native import job
from ftrma.program import session
comm = MPI.COMM_WORLD
me, how, view = comm.rank, sys.argv[2:], session.current.view
fw.claim("undone")
staging = fw.staging
found = []

def stage(version, how, again=0):
    fw.entries.put("x", np.arange(1000) * version + me)
    fw.entries.put("grows", np.arange(3000 * version - again), "append")
    if how == "nothing":
        return
    while not staging.begin():
        time.sleep(0.001)
    fw.entries.put("y", np.arange(7, 907 * version) * version)
    if how == "ended":
        staging.add()
        assert fw.entries.read("y")[1] == 8 * version
        assert staging.end() == version

def repaired():
    before = staging.generation
    comm.Barrier()
    if me == int(how[0]):
        job.raise_alarm(staging.generation)  # asks for a repair, though nobody has died
    comm.Barrier()
    assert staging.generation > before
    for _ in range(9):  # over nodes the call may be what a further repair makes communicators for
        numbers = set(comm.allgather(staging.generation))
        if len(numbers) == 1:
            return
    raise AssertionError(numbers)

stage(1, "ended")
assert fw.confirm(1)
stage(2, how[1 + me])
repaired()
assert fw.committed() == 1 and fw.entries.read("x")[1] == 1 + me
assert fw.entries.read("y").tolist() == list(range(7, 907))
if how[1 + me] == "half":
    staging.add()
    assert staging.end() == 0
elif how[1 + me] == "ended":
    assert not fw.confirm(2)
stage(2, "ended", again=1)  # what grows has not become as large as it was
assert fw.confirm(2) and fw.entries.read("x")[1] == 2 + me
assert fw.entries.read("grows").tolist() == list(range(5999))
repaired()  # which undoes nothing
assert fw.committed() == 2 and fw.entries.read("y")[1] == 16
while not staging.ready():
    time.sleep(0.001)
comm.Barrier()
stage(3, "ended")
assert fw.safepoint(take=True) == 4 and fw.confirm(4)
np.save(f"{sys.argv[1]}/committed-{me}.npy", fw.committed())
"""


@pytest.mark.parametrize("how", tiers([
    "0-ended-half-nothing", "2-half-half-half", "1-half-ended-ended", "1-ended-nothing-ended",
], full=["0-ended-half-nothing"]))
@pytest.mark.parametrize("nodes", tiers([False, True], full=["False"]))
def test_a_repair_in_which_nobody_goes_back(how: str, nodes: bool) -> None:
    """Law: it undoes what is not committed on all slots, which tell by their number of repairs; the
    next version has that number again."""
    groups = ("--checksums", "2", "--group-size", "2")
    if nodes:
        result = run_on_nodes(UNDONE, 3, *groups, args=how.split("-"), timeout=60)
    else:
        result = run_job(UNDONE, 3, *groups, args=how.split("-"), timeout=30)
    assert result.status == 0 and not result.stats["recoveries"], result
    assert [int(last) for last in result.of_slots("committed", 3)] == [4] * 3, result


AMID = """
import os, signal, sys, time
import numpy as np
from ftrma import MPI, framework as fw
from ftrma.program import session
comm = MPI.COMM_WORLD
me, view = comm.rank, session.current.view
fw.claim("amid")
deadline = time.monotonic() + 20

def until(condition):
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        fw.committed()
        time.sleep(0.001)

def is_there(name):
    return os.path.exists(f"{sys.argv[1]}/{name}.json")

def note(name):
    open(f"{sys.argv[1]}/{name}.json", "w").write("1")

for version in (1, 2)[fw.committed():]:
    fw.entries.put("x", np.arange(20000) * version + me)
    if version == 2 and me == 0:
        until(fw.staging.begin)
        seat = view.checksum_holders()[0]
        os.kill(view.words.process(seat).pid, signal.SIGKILL)
        until(lambda: view.checksum_holders()[0] != seat)  # a spare has taken the seat
        time.sleep(0.05)
        assert not view.ready(view.checksum_holders()[0])
        note("taken")
        until(lambda: all(is_there(f"begun-{s}") for s in range(1, comm.size)))
        time.sleep(0.05)
    else:
        if version == 2:
            until(lambda: is_there("taken"))
        until(fw.staging.begin)
        if version == 2:
            note(f"begun-{me}")
    fw.entries.put("late", np.arange(version * 30000) + me)
    fw.staging.add()
    assert fw.staging.end() == version and fw.confirm(version)
    assert fw.entries.read("late")[-1] == version * 30000 - 1 + me
if not is_there("died"):
    comm.Barrier()
    if me == 1:
        note("died")
        os.kill(os.getpid(), signal.SIGKILL)  # its vault is computed from the new parity
    until(lambda: False)
np.save(f"{sys.argv[1]}/x-{me}.npy", fw.entries.read("x"))
"""


@pytest.mark.full
def test_a_slot_waits_for_others_amid_a_version() -> None:
    """Law: slots may begin a version that another one is amid, also while a spare waits for that
    one to compute the parity of a vacant seat; that parity is right."""
    result = run_job(AMID, 4, "--spares", "2", timeout=40)
    assert result.status == 0, result
    assert len(result.stats["reseats"]) == 1 and kinds(result) == ["reentry"], result
    for slot, array in enumerate(result.of_slots("x", 4)):
        assert array.tolist() == [2 * i + slot for i in range(20000)], result


MISTAKES = """
import json, sys
import numpy as np
import ftrma
from ftrma import MPI, framework as fw
me = MPI.COMM_WORLD.rank
found = []

def told(call):
    try:
        call()
    except ftrma.FtrmaError as error:
        found.append(str(error))

told(fw.staging.begin)
assert fw.staging.generation == 0
fw.claim("stagers")
told(fw.staging.end)
told(fw.staging.add)
assert not fw.staging.begin(generation=fw.staging.generation - 1)
assert fw.staging.ready()
MPI.COMM_WORLD.Barrier()  # nobody has begun before
assert fw.staging.begin() and not fw.staging.ready()
told(fw.staging.begin)
told(lambda: fw.safepoint(take=True))
assert fw.staging.end() == 1 and fw.confirm(1)
fw.entries.put("x", np.ones(3))
while not fw.staging.begin():
    pass
fw.entries.drop("x")
assert fw.staging.end() == 2 and fw.confirm(2)
json.dump(found, open(f"{sys.argv[1]}/found-{me}.json", "w"))
while me == 0 and not fw.staging.begin():
    pass
assert me or fw.staging.end() == 3
fw.safepoint(take=True)
"""


@pytest.mark.full
def test_mistakes_are_told() -> None:
    """Law: each says what is wrong; slots that have ended other versions take no checkpoint
    together."""
    result = run_job(MISTAKES, 2)
    for found in result.of_slots("found", 2):
        assert found == [
            "staging.begin: a framework has to claim() the job's failures first",
            "staging.end(): no version is begun; begin() first",
            "staging.add(): no version is begun; begin() first",
            "staging.begin(): version 1 is begun; end() it",
            "safepoint(): version 1 is begun; end() it first",
        ], result
    assert result.status == 1, result
    assert ("safepoint(): slot 1 takes a checkpoint here without having staged version 3, as slot "
            "0 has: end() it on all slots before") in result.stderr, result


FILLED = """
import sys
import numpy as np
from ftrma import MPI, framework as fw
fw.claim("filled")
me, what = MPI.COMM_WORLD.rank, sys.argv[2]
fw.entries.put("x", np.ones(1000))
while not fw.staging.begin():
    pass
if what == "add":
    fw.entries.put("y", np.arange(20_000_000 if me == 1 else 10))
    fw.staging.add()
assert fw.confirm(fw.staging.end())
fw.entries.put("z", np.arange(20_000_000 if me == 1 else 10))
while not fw.staging.begin():
    pass
fw.staging.end()
MPI.COMM_WORLD.Barrier()
print("not full")
"""


@pytest.mark.full
@pytest.mark.skipif(bool(why_not()), reason="no mount namespace may be made here")
@pytest.mark.parametrize("what", ["begin", "add"])
def test_full_memory(what: str, tmp_path: Path) -> None:
    """Law: the end is that of any checkpoint: 70, and the reason with its remedy."""
    (tmp_path / "program.py").write_text(FILLED)
    mount = "mount -t tmpfs -o size=90m tmpfs /dev/shm"
    result = run_command(
        ["unshare", "--mount", "sh", "-c", f'{mount}; exec "$@"', "sh", FTRMA, "run", "-n", "2",
         "--log-budget", "4M", str(tmp_path / "program.py"), str(tmp_path), what], timeout=40)
    assert result.status == 70 and "Traceback" not in result.stderr, result
    assert "slot 1 cannot checkpoint" in result.stderr, result
    assert "shared memory is full; free space in /dev/shm" in result.stderr, result


@pytest.mark.full
@pytest.mark.parametrize("nodes", tiers([False, True], full=["False"]))
def test_its_trace(nodes: bool, tmp_path: Path) -> None:
    """Law: a trace of such versions is consistent; none is judged as a cut through accesses."""
    trace = tmp_path / "trace.json"
    options = "--spares", "2", "--trace", str(trace), *kill("1@stagers.half:3", "0@staged:4")
    result = run_on_nodes(STAGERS, SLOTS, *options, in_turn=2) if nodes else stagers(*options)
    assert_same(result)
    report = check(read(trace))
    assert report.accesses > 0, report
    assert report.violation is None and report.checkpoints >= LAST, report
