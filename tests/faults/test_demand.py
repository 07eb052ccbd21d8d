"""Demand checkpoints: one slot checkpoints alone when logs run short, and is replayed from there.

Law: whatever the program and wherever a slot dies, before, in and behind its demand checkpoint, the
job ends with the bits of the run without failure, and no other slot has done anything twice. Logs
stay within their budget, although nothing but demand checkpoints frees them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Result, run_job
from nodes import remove_fake_ssh, run_on_nodes
from programs import (
    PROGRAMS,
    SLOTS,
    assert_causal,
    assert_rollback,
    assert_same_bits,
    kinds,
    words_of,
)
from programs import run as run_app
from test_causal import assert_same, kills, run
from test_not_replayable import assert_within
from tiers import tiers

from ftrma.trace.check import check
from ftrma.trace.records import What, read

STEPS = 150
SEED = 20150616
BUDGET = 65536
SMALL = ("--interval", "never", "--log-budget", "64K")


MORE = {"locked": 250}  # a program that logs little


def run_small(program: str, *options: str, mode: str = "bulk") -> Result:
    """With logs so small that every slot takes several demand checkpoints.

    Slots that lock do not go in step: one that gets no core for long answers nobody, and logs of
    others run over, or it dies before its first. The bits are right; the run is done once more.
    """
    steps = MORE.get(program, STEPS)
    for _ in range(5):
        result = run(program, "top", *SMALL, "--demand", mode, *options, steps=steps)
        assert_same(program, result, steps=steps)
        if program != "locked" or all(r["demand"] for r in result.stats["recoveries"]):
            break
    return result


def demands(result: Result) -> list[int]:
    """Slots that have taken demand checkpoints, in their order; there are no others."""
    checkpoints = result.stats["checkpoints"]
    recovered = bool(result.stats["recoveries"])
    assert recovered or {c["kind"] for c in checkpoints} == {"demand"}, checkpoints
    return [c["slot"] for c in checkpoints if c["kind"] == "demand"]


@pytest.mark.parametrize("mode", tiers(["bulk", "stream"], full=["bulk", "stream"]))
def test_each_slot_checkpoints_alone(mode: str) -> None:
    """Nobody is held up with it, no version is committed, and no log runs over."""
    result = run_small("fenced", mode=mode)
    found = demands(result)
    assert {found.count(s) > 1 for s in range(SLOTS)} == {True}, found
    assert {c["version"] for c in result.stats["checkpoints"]} == {0}
    assert_within(result, BUDGET)
    assert not result.stderr


@pytest.mark.full
def test_accesses_to_windows_that_are_gone() -> None:
    """No demand checkpoint can free them: all take one."""
    result = run("windows", "top", *SMALL, steps=2 * STEPS)
    assert_same("windows", result, steps=2 * STEPS)
    assert {c["kind"] for c in result.stats["checkpoints"]} == {"demand", "coordinated"}
    assert not result.stderr


# The program, a place where slot 1 dies late in the run, and in its middle.
LATE = {
    "fenced": ("put:230", "atomic:150"),
    "locked": ("put:470", "lock-held:700"),
    "atomics": ("atomic:900", "flush:600"),
    "windows": ("put:110", "fence:400"),
}


@pytest.mark.parametrize(("program", "place", "slot", "mode"), tiers(
    [(program, place, slot, mode) for program in LATE for place in LATE[program]
     for slot in range(SLOTS) for mode in ("bulk", "stream")],
    plain=["fenced-put:230-1-bulk"],
    full=["locked-lock-held:700-1-stream", "atomics-atomic:900-1-bulk"]))
def test_a_replay_from_a_demand_checkpoint(program: str, place: str, slot: int, mode: str) -> None:
    result = run_small(program, "--kill", f"{slot}@{place}", mode=mode)
    assert_causal(result, [slot], SLOTS + 1)
    recovery = result.stats["recoveries"][0]
    # A checkpoint of all may be the newer one in a program that frees windows.
    assert recovery["demand"] > 0 or (program == "windows" and recovery["version"] > 0)


@pytest.mark.parametrize("count", tiers([1, 2, 3], full=["1", "2"]))
def test_a_death_in_a_demand_checkpoint(count: int) -> None:
    """The one before is still there."""
    result = run_small("fenced", "--kill", f"1@demand:{count}")
    assert_causal(result, [1], SLOTS + 1)
    assert result.stats["recoveries"][0]["demand"] == count - 1


@pytest.mark.full
def test_a_second_death_where_the_first_was(tmp_path: Path) -> None:
    """The replacement takes the same demand checkpoint again, with the same number (the next would
    be written where the one in force is); that one serves once more."""
    path = tmp_path / "trace.json"
    rules = kills("1@demand:2", "1@demand:2")
    result = run_small("fenced", "--spares", "2", "--trace", str(path), *rules)
    assert_causal(result, [1, 1], SLOTS + 2)
    assert [r["demand"] for r in result.stats["recoveries"]] == [1, 1]
    trace = read(path)
    mine = (trace.records["what"] == What.Demand) & (trace.records["slot"] == 1)
    numbers = dict.fromkeys(trace.records[mine]["value0"].tolist())
    assert list(numbers)[:3] == [1, 2, 3]
    assert check(trace).violation is None


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 2])
def test_a_death_in_a_streamed_one(count: int) -> None:
    """The one before is written over; the version before the first is not."""
    result = run_small("fenced", "--kill", f"1@demand:{count}", mode="stream")
    if count == 1:
        assert_causal(result, [1], SLOTS + 1)
        assert result.stats["recoveries"][0]["demand"] == 0
    else:
        assert_rollback(result, "slot 1's demand checkpoint is lost")


@pytest.mark.full
def test_a_version_behind_a_demand_checkpoint_is_the_newer_one() -> None:
    """A causal recovery is followed by a checkpoint of all; then a second slot is lost."""
    rules = kills("1@put:100", "2@put:125")
    result = run_small("fenced", "--spares", "2", *rules)
    assert_causal(result, [1, 2], SLOTS + 2)
    first, second = result.stats["recoveries"]
    assert (first["version"], second["version"]) == (0, 1)
    assert first["demand"] > 0
    # Unless slot 2 has come to a demand checkpoint of its own behind the version.
    assert second["demand"] == 0 or (1, 2) in [
        (c["version"], c.get("slot")) for c in result.stats["checkpoints"]
    ]


# Slot 1 meets trouble with its demand checkpoints: what is inserted runs there at one step, once.
TROUBLE = """
import glob, os, resource, sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(8 * 512, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 7_000_001 + me
state = ftrma.protect("s", step=0, troubled=False)
while state.step < 120:
    ftrma.safepoint()
    if me == 1 and state.step == {at} and not os.path.exists(f"{{sys.argv[1]}}/once.txt"):
        open(f"{{sys.argv[1]}}/once.txt", "w").close()
        paths = glob.glob(os.environ["FTRMA_JOB"] + "/demand-1-*")
        {trouble}
    win.Fence()
    for k in range(40):
        win.Put(np.array([state.step + k]), (me + 1 + k % (n - 1)) % n, 64 + 40 * me + k)
    win.Fence()
    cells[500] += cells[64:300].sum()
    state.step += 1
np.savez(f"{{sys.argv[1]}}/slot-{{me}}.npz", cells=cells)
"""
# Data of the files that have the window's first bytes in them get another byte there.
DAMAGE = """
        for path in paths:
          with open(path, "r+b") as f:
            at = 0
            while True:
                try:
                    at = os.lseek(f.fileno(), at, os.SEEK_DATA)
                    end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
                except OSError:
                    break
                found = os.pread(f.fileno(), end - at, at).find(cells[:8].tobytes())
                if found >= 0:
                    os.pwrite(f.fileno(), b"!", at + found)
                at = end
"""
NO_ROOM = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"


def run_in_trouble(trouble: str, at: int, *options: str) -> Result:
    quiet = run_job(TROUBLE.format(trouble="pass", at=0), SLOTS, *SMALL)
    expected = quiet.of_slots("slot", SLOTS)
    result = run_job(TROUBLE.format(trouble=trouble, at=at), SLOTS, *SMALL, *options)
    assert result.status == 0, result
    for before, after in zip(expected, result.of_slots("slot", SLOTS), strict=True):
        assert before["cells"].tobytes() == after["cells"].tobytes()
    return result


@pytest.mark.full
def test_a_damaged_one_is_no_answer() -> None:
    """All go back, and are told why."""
    result = run_in_trouble(DAMAGE, 40, "--kill", "1@fence:83")
    assert_rollback(result, "slot 1's demand checkpoint is damaged")


@pytest.mark.full
def test_without_memory_all_checkpoint_instead() -> None:
    """It is told once, and the logs do not run over."""
    result = run_in_trouble(NO_ROOM, 0, "--kill", "2@fence:200")
    assert kinds(result) == ["causal"], result
    assert "slot 1: no demand checkpoint (" in result.stderr
    assert result.stderr.count("all take one instead") == 1
    assert {c["kind"] for c in result.stats["checkpoints"]} == {"demand", "coordinated"}
    assert "have used their budget" not in result.stderr


@pytest.mark.full
def test_a_replacement_without_memory_for_one() -> None:
    """It was replayed from a version that is newer than the demand checkpoint in force."""
    rules = kills("2@fence:70", "1@fence:86")
    result = run_in_trouble(NO_ROOM, 47, "--spares", "2", *rules)
    assert kinds(result) == ["causal", "causal"], result
    last = result.stats["recoveries"][1]
    assert last["slots"] == [1] and last["version"] > 0 and last["demand"] == 0
    assert "slot 1: no demand checkpoint (" in result.stderr


# Everything changes between two demand checkpoints, and little is done.
COSTLY = """
import sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
state = ftrma.protect("s", step=0, large=np.zeros(1 << 20))
win = MPI.Win.Allocate(4096, 8, comm=comm)
began = time.monotonic()
while comm.bcast(time.monotonic() - began < 8):
    ftrma.safepoint()
    win.Fence()
    win.Put(np.full(512, state.step), (comm.rank + 1) % comm.size)
    win.Fence()
    state.large += 1
    time.sleep({pause_s})
    state.step += 1
"""


@pytest.mark.parametrize(("pause_s", "told"), tiers([(0, 1), (0.05, 0)], full=["0-1"]))
def test_the_user_is_told_of_what_costs_much(pause_s: float, told: int) -> None:
    """Once in a job, with the remedy; and not where it costs little."""
    result = run_job(COSTLY.format(pause_s=pause_s), 2, *SMALL, timeout=30)
    assert result.status == 0, result
    assert (
        result.stderr.count("of its time in demand checkpoints; with --log-budget 131072") == told
    )
    assert told or not result.stderr


# ---- over several nodes ---------------------------------------------------------------------

HALO = ("stencil.py", "--n", "128", "--steps", "300")
PROGRAMS.update({f"demand-{mode}": (*HALO, "--mode", mode) for mode in ("lock", "lockall", "pscw")})
PROGRAMS["demand-fence"] = HALO
# On two nodes slots take turns, with a spare on each.
LATE_OVER_NODES = [("fence", "1@put:400"), ("lock", "2@lock-held:300"), ("lockall", "0@flush:250"),
                   ("pscw", "3@put:220"), ("fence", "0@demand:9"), ("lock", "3@demand:12")]


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def run_over_nodes(program: str, *options: str, nodes: int = 2) -> Result:
    """With logs too small for it; the bits are those of one node with large ones."""
    script, args = words_of(f"demand-{program}")
    result = run_on_nodes(script, SLOTS, *SMALL, "--spares", "2", *options, args=args,
                          in_turn=nodes, timeout=60)
    assert_same_bits(f"demand-{program}", result)
    return result


@pytest.mark.full
@pytest.mark.parametrize("program", [
    "lockall", *(pytest.param(p, marks=pytest.mark.nightly) for p in ("fence", "lock", "pscw"))])
def test_over_nodes_each_slot_checkpoints_alone(program: str) -> None:
    result = run_over_nodes(program)
    found = demands(result)
    assert {found.count(s) > 1 for s in range(SLOTS)} == {True}, found
    assert not result.stderr


@pytest.mark.parametrize(("program", "kill", "mode", "nodes"), tiers(
    [(*case, mode, nodes) for case in LATE_OVER_NODES for mode in ("bulk", "stream")
     for nodes in (2, 3)],
    full=["fence-1@put:400-bulk-2"]))
def test_over_nodes_a_replay_from_a_demand_checkpoint(
    program: str, kill: str, mode: str, nodes: int
) -> None:
    result = run_over_nodes(program, "--kill", kill, "--demand", mode, nodes=nodes)
    (recovery,) = result.stats["recoveries"]
    if mode == "stream" and "demand" in kill:
        assert "demand checkpoint is lost" in recovery["reason"], result
    elif nodes == 3 and recovery["kind"] == "rollback":
        assert "comes back on another node" in recovery["reason"], result
    else:
        assert recovery["kind"] == "causal" and recovery["demand"] > 0, result


@pytest.mark.parametrize("agent", tiers([0, 1], full=["0"]))
def test_over_nodes_an_agent_dies_and_then_a_slot(agent: int) -> None:
    rules = kills(f"a{agent}@put:300", f"{agent}@fence:420")
    result = run_over_nodes("fence", *rules)
    (recovery,) = result.stats["recoveries"]
    assert recovery["kind"] == "causal" and recovery["demand"] > 0, result


@pytest.mark.nightly
def test_over_nodes_at_random_moments() -> None:
    """Slots, agents, one after the other; whatever way back, the bits are the same."""
    choose = random.Random(SEED)
    found = []
    for _ in range(40):
        program = choose.choice(("fence", "lock", "lockall", "pscw"))
        rules = [f"{choose.randrange(SLOTS)}@put:{choose.randrange(80, 600)}"
                 for _ in range(choose.choice((1, 1, 2)))]
        if choose.random() < 0.3:
            rules.append(f"a{choose.randrange(SLOTS)}@put:{choose.randrange(50, 500)}")
        rules = [*kills(*rules), "--demand", choose.choice(("bulk", "stream"))]
        result = run_over_nodes(program, *rules, nodes=choose.choice((2, 3)))
        found += [(r["kind"], r["demand"] > 0) for r in result.stats["recoveries"]]
    print(f"seed {SEED}: {found.count(('causal', True))} of {len(found)} from a demand checkpoint")
    assert found.count(("causal", True)) > 20


# ---- by the trace ---------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "rule"),
    [("atomics", "2@atomic:900"), *(pytest.param(p, r, marks=pytest.mark.nightly) for p, r in
     [("fenced", "3@put:230"), ("locked", "0@lock-held:500"), ("windows", "1@put:42")])],
)
def test_a_replay_from_there_is_exact_by_its_trace(tmp_path: Path, program: str, rule: str) -> None:
    """A replay applies what the checkpoint does not hold, once and in cohb order."""
    path = tmp_path / "trace.json"
    result = run_small(program, "--trace", str(path), "--kill", rule)
    assert result.stats["recoveries"][0]["demand"] > 0
    trace = read(path)
    report = check(trace)
    assert report.violation is None, report.lines(trace.began_ns)
    assert (report.recoveries, report.rollbacks) == (1, 0)
    assert (trace.records["what"] == What.Demand).any()
    # Slots that lock do not go in step: nobody may have come since the checkpoint.
    assert report.applied > 0 or program == "locked"


# ---- the hashtable, at random moments -------------------------------------------------------

# Warming up comes before the first safepoint: 100,000 atomics a slot, which the logs cannot hold;
# the inserts do as many and fill their budget almost three times.
SMALL_LOGS = ("--interval", "never", "--log-budget", "6M")
INSERTING = range(120_000, 205_000)
LONG_DHT = ("dht.py", "--inserts", "50000", "--lookups", "2000", "--buckets", "40000", "--heap",
            "80000", "--batch", "100", "--duty", "1")
@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["bulk", "stream"])
def test_the_hashtable_with_small_logs(mode: str) -> None:
    """Atomics of all on all, with no order between slots but that of the atomics themselves."""
    PROGRAMS["demand-dht"] = LONG_DHT
    choose = random.Random(SEED)
    found, demands = [], 0
    for _ in range(40):
        rule = f"{choose.randrange(SLOTS)}@atomic:{choose.choice(INSERTING)}"
        result = run_app("demand-dht", *SMALL_LOGS, "--demand", mode, "--kill", rule)
        assert_same_bits("demand-dht", result)
        found += kinds(result)
        demands += any(r["demand"] for r in result.stats["recoveries"])
    print(f"seed {SEED}: {found.count('causal')} of {len(found)} are causal, {demands} from a "
          "demand checkpoint")
    assert len(found) == 40 and found.count("causal") >= 36 and demands > 5
