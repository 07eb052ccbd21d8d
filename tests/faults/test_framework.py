"""A framework recovers: `ftrma.framework` by ring.py, which computes nothing twice in survivors.

Law: whoever dies, wherever and how often, the job ends with the memory of the run without failure,
bit for bit; survivors have computed each step once, as long as nothing is launched again.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from jobs import Result, run_job, run_plain
from nodes import remove_fake_ssh, run_on_nodes
from programs import deaths, final_memory, kinds
from tiers import tiers

RING = Path(__file__).parent / "ring.py"
SLOTS, STEPS, EVERY = 4, 40, 6
SPARES = ("--spares", "2")
STRONG = (*SPARES, "--checksums", "2", "--group-size", "4")
ON_NODES = ("--spares", "2", "--checksums", "2", "--group-size", "2")


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def ring(*options: str, forfeit: bool = False) -> Result:
    return run_job(RING, SLOTS, *options, args=["forfeit"] * forfeit)


@functools.cache
def whole() -> Result:
    """The run without failure."""
    result = ring()
    assert result.status == 0 and not result.stats["failures"], result
    return result


def assert_same(result: Result) -> None:
    assert result.status == 0, result
    expected = final_memory(whole())
    for slot, arrays in final_memory(result).items():
        for name, array in arrays.items():
            assert array.tobytes() == expected[slot][name].tobytes(), (slot, name, result)


def computed(result: Result) -> list[int]:
    """Steps that the process of each slot has computed, of those that were there in the end."""
    return [int(count[0]) for count in result.of_slots("computed", SLOTS)]


def assert_recovered(result: Result, slots: Sequence[int]) -> None:
    """These slots were replaced, each by a re-entry of all; survivors computed nothing twice."""
    assert_same(result)
    assert set(kinds(result)) == {"reentry"}, result
    replaced = [s for r in result.stats["recoveries"] for s in r["slots"]]
    assert sorted(replaced) == sorted(slots), result
    for slot, count in enumerate(computed(result)):
        expected = STEPS if slot not in slots else range(STEPS + 1)
        assert count == expected or count in np.atleast_1d(expected), (slot, computed(result))


def kill(*rules: str) -> list[str]:
    return [word for rule in rules for word in ("--kill", rule)]


def test_a_run_without_failure() -> None:
    """Law: static entries are saved once; what a framework tells is in the statistics."""
    result = whole()
    dirty = [c["dirty_bytes"] for c in result.stats["checkpoints"]]
    assert [c["version"] for c in result.stats["checkpoints"]] == [*range(1, 1 + STEPS // EVERY)]
    assert dirty[0] > SLOTS * 800_000 and max(dirty[1:]) < 200_000, dirty
    assert sorted(note["slot"] for note in result.stats["notes"]) == [*range(SLOTS)]
    assert all(note["slot_of"] == note["slot"] for note in result.stats["notes"])


PLACES = ["ring.send:1", "ring.send:20", "ring.send:41", "put:20", "fence:25", "safepoint:30",
          "checkpoint:3", "stage:3", "staged:3", "end"]


@pytest.mark.parametrize(("place", "slot"), tiers(
    itertools.product(PLACES, range(SLOTS)), plain=["ring.send:1-0"],
    full=["checkpoint:3-3"]))
def test_a_slot_dies(place: str, slot: int) -> None:
    """Law: the replacement computes what the checkpoint has not."""
    result = ring(*SPARES, *kill(f"{slot}@{place}"))
    assert_recovered(result, [slot])
    since = result.stats["recoveries"][0]["version"] * EVERY
    assert computed(result)[slot] == STEPS - since, result


@pytest.mark.parametrize("rules", [
    pytest.param(("1@ring.send:20", "3@repair"), marks=pytest.mark.full),
    *(pytest.param(("1@ring.send:20", second), marks=pytest.mark.nightly)
      for second in ("3@restore", "0@reset", "1@reentry", "3@reentry", "c0@repair", "s0@repair")),
    pytest.param(("0@staged:2", "2@ring.send:24"), marks=pytest.mark.nightly),
    pytest.param(("0@ring.send:20", "2@ring.send:21"), marks=pytest.mark.nightly),
    pytest.param(("0@ring.send:9", "1@ring.send:17", "2@ring.send:33"), marks=pytest.mark.nightly),
], ids="-".join)
def test_several_deaths(rules: tuple[str, ...]) -> None:
    """Law: also amid a recovery, by re-entry after re-entry, and with m = 2 two at once."""
    result = ring(*STRONG[2:], "--spares", "4", *kill(*rules))
    assert sorted(f"{'c' * (role == 'checksum')}{'s' * (role == 'spare')}{index}"
                  for role, index, _ in deaths(result)) == sorted(r.split("@")[0] for r in rules)
    assert_recovered(result, [int(rule[0]) for rule in rules if rule[0] in "0123"])


@pytest.mark.parametrize("place", tiers(
    ["commit:2", "sum:2", "fold:2", "folded:2"], full=["commit:2"]))
def test_a_checksum_rank_dies(place: str) -> None:
    """Law: its seat is taken while the slots go on, or all enter again and compute nothing anew."""
    result = ring(*SPARES, *kill(f"c0@{place}"))
    assert_same(result)
    assert set(kinds(result)) <= {"reentry"} and computed(result) == [STEPS] * SLOTS, result
    assert len(result.stats["reseats"]) + len(kinds(result)) == 1, result


BOTH = kill("2@ring.send:20", "1@repair")  # amid the repair: both vaults are lost


@pytest.mark.full
def test_more_deaths_than_the_code_survives() -> None:
    """Law: they end the job, unless the framework does without a checkpoint."""
    result = ring(*SPARES, *BOTH)
    assert result.status == 70 and "group 0 lost slot 1 and slot 2 at once" in result.stderr


@pytest.mark.full
@pytest.mark.parametrize("rules", [
    (), pytest.param(("3@reset",), marks=pytest.mark.nightly),
    pytest.param(("c0@restore",), marks=pytest.mark.nightly)], ids="-".join)
def test_a_forfeited_checkpoint(rules: tuple[str, ...]) -> None:
    """Law: all enter with empty vaults; survivors have what they kept; the next checkpoints hold,
    also where somebody dies amid this."""
    result = ring("--spares", "4", *BOTH, *kill(*rules, "0@ring.send:50"), forfeit=True)
    slots = [1, 2, *(int(rule[0]) for rule in rules if rule[0] == "3")]
    assert_recovered(result, [0, *slots] if rules else [0, 1, 2])
    first, *_, last = result.stats["recoveries"]
    assert first["version"] == 0 and "and with them checkpoint 3" in first["reason"], result
    assert last["version"] > 0 and last["slots"] == [0], result


@pytest.mark.full
def test_a_forfeited_checkpoint_without_spares() -> None:
    """Law: the job is launched again from the start."""
    result = ring("--spares", "0", *BOTH, forfeit=True)
    assert_same(result)
    assert [(r["kind"], r["version"]) for r in result.stats["recoveries"]] == [("relaunch", 0)]
    assert computed(result) == [STEPS] * SLOTS


@pytest.mark.full
def test_without_spares_all_begin_with_the_checkpoint() -> None:
    """Law: in a new launch nobody has kept anything; entries are there."""
    result = ring("--spares", "0", *kill("2@ring.send:20"))
    assert_same(result)
    assert kinds(result) == ["relaunch"] and computed(result) == [STEPS - 3 * EVERY] * SLOTS


@pytest.mark.parametrize("rules", [
    *(pytest.param(rules, marks=pytest.mark.full) for rules in (
        ("3@ring.send:20",), ("2@ring.send:20", "1@reentry"))),
    *(pytest.param(rules, marks=pytest.mark.nightly) for rules in (
        ("0@ring.send:20",), ("a2@ring.send:20",), ("1@staged:3",), ("3@put:20",), ("2@fence:25",),
        ("3@ring.send:20", "a3@repair"), ("1@stage:2", "c1@repair"))),
], ids="-".join)
@pytest.mark.parametrize("spares", ["2", pytest.param("1", marks=pytest.mark.nightly)])
def test_over_nodes(rules: tuple[str, ...], spares: str) -> None:
    """Law: the same over two nodes, wherever the spare is."""
    slots = [int(rule[0]) for rule in rules if rule[0] in "0123"]
    need = len([rule for rule in rules if rule[0] != "a"])
    result = run_on_nodes(RING, SLOTS, *ON_NODES, "--spares", str(max(int(spares), need)),
                          *kill(*rules), in_turn=2)
    assert_same(result)
    if slots:
        assert_recovered(result, slots)
    else:
        assert not kinds(result) and computed(result) == [STEPS] * SLOTS, result


@pytest.mark.full
def test_forfeited_over_nodes() -> None:
    """Law: more than the code survives is lost, and nothing is launched again."""
    result = run_on_nodes(RING, SLOTS, "--spares", "3", *BOTH, args=["forfeit"], in_turn=2)
    assert_recovered(result, [1, 2])
    assert result.stats["recoveries"][0]["version"] == 0, result


CLAIMS = """
import os, signal, sys, threading, time
import ftrma
from ftrma import MPI, framework
if "before" in sys.argv:
    ftrma.protect("name", x=1)
me = MPI.COMM_WORLD.rank

def note(name):
    open(f"{sys.argv[1]}/{name}.json", "w").write("1")

def noted(name):
    return os.path.exists(f"{sys.argv[1]}/{name}.json")

def wait_for(name):
    while not noted(name):
        time.sleep(0.001)

def watch(then):
    main, seen = threading.main_thread().ident, 0
    while seen < 200:  # it waits there
        frame = sys._current_frames()[main]
        while frame and frame.f_code.co_name != "claim":
            frame = frame.f_back
        seen = seen + 1 if frame else 0
        time.sleep(0.001)
    note(then)
    if then == "first":
        os.kill(os.getpid(), signal.SIGKILL)

if me == 1 and noted("first"):
    note("second")
    wait_for("came-0"), wait_for("came-2")  # others come to the claim before the replacement
else:
    if me == 2:
        wait_for("second")  # which comes behind the death
    then = "first" if me == 1 else f"came-{me}"
    threading.Thread(target=watch, args=(then,), daemon=True).start()
framework.claim("ring")
MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize("before", tiers([False, True], full=["False"]))
def test_a_death_in_a_claim(before: bool) -> None:
    """Law: who has died after it has said what it claims, and waits for others, has said it."""
    result = run_job(CLAIMS, 3, args=["before"] * before)
    assert result.status == 0, result
    assert [r["slots"] for r in result.stats["recoveries"]] == [[1]], result


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
    except (ftrma.FtrmaError, ValueError, TypeError, KeyError) as error:
        found.append(f"{type(error).__name__}: {error}")
told(lambda: fw.kept.update(x=1))
told(lambda: fw.entries.put("x", 1))
told(lambda: fw.confirm(0))
told(lambda: fw.claim("Ring 1"))
told(lambda: fw.claim("ring", "asks"))
fw.claim("ring")
told(lambda: fw.claim("other"))
told(lambda: fw.kept.update(comm=MPI.COMM_WORLD))
told(lambda: fw.kept.update(names=np.array([None])))
told(lambda: fw.entries.put("x", 1, "often"))
told(lambda: fw.entries.read("x"))
fw.kept.update(n=3, f=2.5, a=np.ones(2), s=np.float32(1))
assert fw.committed() == 0 and not fw.due() and "x" not in fw.entries
json.dump([found, dict.fromkeys(fw.kept)], open(f"{sys.argv[1]}/found-{me}.json", "w"))
"""


UNLIKE = """
from ftrma import MPI, framework
framework.claim("ring", forfeit=MPI.COMM_WORLD.rank == 1)
"""


@pytest.mark.full
def test_mistakes_are_told() -> None:
    """Law: each says what is wrong, and changes nothing."""
    result = run_job(MISTAKES, 2, "--interval", "never")
    assert result.status == 0, result
    for found, names in result.of_slots("found", 2):
        assert found == [
            "FtrmaError: kept: a framework has to claim() the job's failures first",
            "FtrmaError: entries.put: a framework has to claim() the job's failures first",
            "FtrmaError: confirm: a framework has to claim() the job's failures first",
            "ValueError: claim('Ring 1'): a name has 1 to 31 small letters and underscores",
            "ValueError: claim('ring', 'asks'): the way is \"reentry\" or \"told\"",
            "FtrmaError: claim('other'): ring has claimed the job's failures already; use one of "
            "the two",
            "TypeError: kept['comm']: Intracomm; only numbers and arrays stay for the next "
            "attempt: what belongs to MPI is made again in each",
            "TypeError: kept['names']: an array of objects; give one of numbers",
            "ValueError: entry 'x': kind 'often' is none of value, static, append",
            "KeyError: 'x'",
        ]
        assert list(names) == ["n", "f", "a", "s"]
    refused = ring("--policy", "causal")
    assert refused.status == 1, refused
    told = (r"ftrma: error: claim\('ring'\): ring recovers the job itself, and --policy causal "
            r"wants replay alone: leave it out \(.*, line \d+\)\n")
    assert re.fullmatch(told, refused.stderr), refused
    refused = run_job(UNLIKE, 2)
    assert refused.status == 1, refused
    told = r"claim\('ring'\): slot [01] claims otherwise than slot [01]. Claim alike, and in the "
    assert re.search(told + "same order, on every slot", refused.stderr), refused


LOGS = """
import sys
import numpy as np
from ftrma import MPI, framework
comm = MPI.COMM_WORLD
if sys.argv[2] == "claim":
    framework.claim("ring")
win = MPI.Win.Allocate(1 << 20, 1, comm=comm)
win.Lock_all()
for _ in range(32):
    win.Put(np.ones(1 << 20, "u1"), 1 - comm.rank)
    win.Flush_all()
win.Unlock_all()
"""


@pytest.mark.full
def test_nothing_is_logged() -> None:
    """Law: what no replay will need is not logged."""
    for word, least, most in (("claim", 0, 2 << 20), ("none", 32 << 20, 64 << 20)):
        result = run_job(LOGS, 2, args=[word])
        assert result.status == 0, result
        assert all(least <= log["peak_bytes"] <= most for log in result.stats["log"]), result.stats


@pytest.mark.full
def test_unprotected() -> None:
    """Law: under plain mpirun the same program does the same, and saves nothing."""
    result = run_plain(RING, SLOTS)
    assert_same(result)
    assert computed(result) == [STEPS] * SLOTS


UNDONE = """
import os, signal, sys, time
import numpy as np
from ftrma import MPI, framework
from ftrma.native import job
from ftrma.program import session
framework.claim("undone")
comm, view = MPI.COMM_WORLD, session.current.view
framework.entries.put("x", np.full(1000, comm.rank))
server = view.words.process(view.checksum_holders()[0]).pid
if comm.rank == 0:
    os.kill(server, signal.SIGSTOP)
comm.Barrier()
taken = [framework.safepoint(take=True)]
comm.Barrier()
if comm.rank == 0:
    slots = [view.ctl.proc[p] for p in range(3)]
    before = [slot.met for slot in slots]
    job.raise_alarm(0)  # asks for a repair, though nobody has died
    if os.fork() == 0:
        while any(slot.met == met for slot, met in zip(slots, before)):
            time.sleep(0.001)  # until all slots have come to the repair
        os.kill(server, signal.SIGCONT)
        os._exit(0)
while not framework.confirm(taken[-1]):
    taken.append(framework.safepoint(take=True))
assert not framework.confirm(0)
np.save(f"{sys.argv[1]}/taken-{comm.rank}.npy", [*taken, framework.committed()])
"""


@pytest.mark.full
def test_a_checkpoint_that_is_undone_is_taken_again() -> None:
    """Law: who waits for a version is told when it will not be committed, though nobody goes
    back."""
    result = run_job(UNDONE, 3, timeout=30)
    assert result.status == 0 and not result.stats["recoveries"], result
    assert [taken.tolist() for taken in result.of_slots("taken", 3)] == [[1, 1, 1]] * 3, result


WINDOWS = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me = comm.rank
info = MPI.Info.Create({"ftrma_protect": "false"})
own = MPI.Win.Allocate(64, 8, info=info, comm=comm)
saved = MPI.Win.Allocate(64, 8, comm=comm)
bare, kept = (np.frombuffer(w.tomemory(), "i8") for w in (own, saved))
state = ftrma.protect("main", step=0)
own.Fence(), saved.Fence()
while state.step < 20:
    ftrma.safepoint()
    for window in (own, saved):
        window.Accumulate(np.ones(1, "i8"), (me + 1) % comm.size)
        window.Fence()
    state.step += 1
np.save(f"{sys.argv[1]}/counts-{me}.npy", [bare[0], kept[0]])
"""


@pytest.mark.full
def test_a_bare_window_without_a_framework() -> None:
    """Law: no log covers it, so all go back; the survivor's is let alone, what is protected is
    not."""
    result = run_job(WINDOWS, 2, "--interval", "0", "--kill", "1@fence:25")
    assert result.status == 0, result
    assert kinds(result) == ["rollback"], result
    reason = result.stats["recoveries"][0]["reason"]
    assert "a window with ftrma_protect=false" in reason
    (survivor, kept), (replaced, kept_too) = result.of_slots("counts", 2)
    assert kept == kept_too == 20 and survivor > 20 > replaced > 0, result
