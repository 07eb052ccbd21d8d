"""Causal recovery: the lost slot is replayed, and the survivors lose nothing.

Law: whatever the program and wherever a slot dies, the job ends with status 0 and with the bits of
the run without failure. Where a replay is promised there is one, from the newest version, and
no survivor enters the program again; where the logs cannot serve, all go back, for a reason in
words.
"""

from __future__ import annotations

import functools
import os
import random
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Result, run_job
from programs import (
    PROGRAMS,
    ROOT,
    SLOTS,
    assert_causal,
    assert_rollback,
    assert_same_bits,
    deaths,
    kinds,
)
from programs import run as run_app
from tiers import tiers

STEPS = 16
TOP = ("--interval", "0")
EACH_SLOT = range(SLOTS)
COMPILER = shlex.split(os.environ.get("CC") or "cc")


def run(program: str, mode: str, *options: str, steps: int = STEPS) -> Result:
    """Run one of the programs in `replay`; see steps.py there for the modes."""
    script = ROOT / "tests/faults/replay" / f"{program}.py"
    return run_job(script, SLOTS, *options, args=[mode, str(steps)], timeout=40)


@functools.cache
def expected(program: str, steps: int = STEPS) -> list[dict[str, Any]]:
    """Results of the slots without a failure; each mode has them."""
    result = run(program, "plain", steps=steps)
    assert result.status == 0 and not result.stats["failures"], result
    return result.of_slots("slot", SLOTS)


def assert_same(program: str, result: Result, steps: int = STEPS) -> None:
    assert result.status == 0, result
    found = result.of_slots("slot", SLOTS)
    for slot, arrays in enumerate(expected(program, steps)):
        for name, array in arrays.items():
            same = np.asarray(array).tobytes() == np.asarray(found[slot][name]).tobytes()
            assert same, f"{program}: slot {slot}'s {name} differs from the run without failure"


def kills(*rules: str) -> list[str]:
    return [part for rule in rules for part in ("--kill", rule)]


def places(program: str, *visits: str) -> list[tuple[str, str, int]]:
    return [(program, place, slot) for place in visits for slot in range(SLOTS)]


# ---- one death ------------------------------------------------------------------------------

FROM_THE_START = [
    *places("fenced", "put:20", "get:7", "atomic:30", "fence:50", "call:33", "end", "start",
            "fence:1", "put:1"),
    *places("locked", "put:17", "get:12", "flush:15", "lock-held:23", "lock-held:1", "end"),
    *places("atomics", "put:9", "atomic:60", "atomic:1", "flush:31", "call:5", "lock-held:1"),
    *places("windows", "put:11", "get:6", "atomic:8", "fence:37", "call:1"),
    *places("sizes", "put:61", "get:17", "atomic:13", "fence:40"),
]


@pytest.mark.parametrize(("program", "place", "slot"), tiers(
    FROM_THE_START, plain=["fenced-put:20-0"],
    full=["locked-lock-held:1-2"]))
def test_an_unmodified_program(program: str, place: str, slot: int) -> None:
    """It has one version, its start, and is replayed from there."""
    result = run(program, "plain", "--kill", f"{slot}@{place}")
    assert_same(program, result)
    name = place.split(":")[0]
    assert deaths(result) == [("slot", slot, name)]
    assert_causal(result, [slot], SLOTS + (name != "start"))
    assert result.stats["recoveries"][0]["version"] == 0


FROM_A_CHECKPOINT = [
    *places("fenced", "put:20", "get:7", "atomic:30", "fence:50", "call:33", "safepoint:9",
            "checkpoint:9", "stage:9", "staged:9", "end"),
    *places("locked", "put:17", "lock-held:23", "checkpoint:9"),
    *places("atomics", "atomic:60", "flush:31", "staged:9"),
    *places("windows", "put:11", "fence:37", "stage:9"),
    *places("sizes", "get:50", "put:63", "atomic:20"),
]


@pytest.mark.parametrize(("program", "place", "slot"), tiers(
    FROM_A_CHECKPOINT, full=["fenced-put:20-0", "fenced-checkpoint:9-3"]))
def test_a_program_with_safepoints(program: str, place: str, slot: int) -> None:
    """It is replayed from its newest checkpoint: few events, however long it has run."""
    result = run(program, "top", *TOP, "--kill", f"{slot}@{place}")
    assert_same(program, result)
    assert deaths(result) == [("slot", slot, place.split(":")[0])]
    assert_causal(result, [slot], SLOTS + 1)
    assert result.stats["recoveries"][0]["version"] > 0


@pytest.mark.parametrize("slot", tiers(range(SLOTS), full=["1"]))
def test_a_safepoint_at_the_end_of_the_loop(slot: int) -> None:
    """A replay finds the checkpoint's place by the access that follows at once."""
    result = run("atomics", "bottom", *TOP, "--kill", f"{slot}@put:9")
    assert_same("atomics", result)
    assert_causal(result, [slot], SLOTS + 1)
    assert result.stats["recoveries"][0]["version"] > 0


@pytest.mark.parametrize("program", tiers(["fenced", "locked"], full=["fenced"]))
def test_a_safepoint_that_a_replay_cannot_find(program: str) -> None:
    """If synchronization follows the safepoint, all go back and are told the remedy."""
    result = run(program, "bottom", *TOP, "--kill", "2@put:9")
    assert_same(program, result)
    assert_rollback(result, "call safepoint() at the top of the loop")


# ---- failures in a recovery -----------------------------------------------------------------

AT_ONCE = "slots 1 and 2 were lost at once"
SECOND = [
    ("2@restore:1", AT_ONCE),
    ("1@restore:1", ""),
    ("1@replay:5", ""),
    ("2@repair:1", AT_ONCE),
    ("1@reentry:1", ""),
    ("1@replay:1", ""),
    ("s1@repair:1", ""),
    ("s2@restore:1", ""),
]


@pytest.mark.parametrize(("second", "reason", "mode"), tiers(
    [pytest.param(*case, mode, id=f"{case[0]}-{mode}")
     for case in SECOND for mode in ("plain", "top")],
    plain=["2@restore:1-plain"],
    full=["1@replay:5-plain", "1@restore:1-plain"]))
def test_a_death_in_a_recovery(second: str, reason: str, mode: str) -> None:
    """The replacement is replaced in its turn; another lost slot is one too many."""
    options = ("--spares", "3", *TOP, "--checksums", "2", "--group-size", "4")
    result = run("fenced", mode, *options, *kills("1@put:20", second))
    assert_same("fenced", result)
    assert len(deaths(result)) == 2, result.stats["failures"]
    if reason:
        assert_rollback(result, reason)
    else:
        again = second in ("1@reentry:1", "1@replay:1", "1@replay:5")
        ran = again and second != "1@reentry:1"
        assert_causal(result, [1], SLOTS + 1 + ran)


@pytest.mark.parametrize("mode", tiers(["plain", "top"], full=["top"]))
def test_the_replacement_dies_as_it_goes_live(mode: str) -> None:
    """The next one replays all again; the logs of all others are still whole."""
    result = run("fenced", mode, "--spares", "2", *TOP, *kills("1@put:20", "1@live"))
    assert_same("fenced", result)
    assert [d[:2] for d in deaths(result)] == [("slot", 1), ("slot", 1)]
    assert_causal(result, [1, 1], SLOTS + 2)


@pytest.mark.full
def test_another_slot_dies_in_the_replay() -> None:
    """The survivors are repaired once more: two slots are lost then."""
    rules = kills("1@put:25", "1@replay:9", "3@repair:2")
    result = run("fenced", "plain", "--spares", "3", *rules)
    assert_same("fenced", result)
    assert kinds(result) == ["rollback"]
    assert "slots 1 and 3 were lost at once" in result.stats["recoveries"][0]["reason"]


@pytest.mark.parametrize("mode", tiers(["plain", "top"], full=["top"]))
def test_two_slots_at_once(mode: str) -> None:
    options = ("--spares", "2", "--group-size", "2", *TOP)
    result = run("fenced", mode, *options, *kills("0@fence:20", "3@repair"))
    assert_same("fenced", result)
    assert_rollback(result, "slots 0 and 3 were lost at once")


# ---- one death after another ----------------------------------------------------------------


@pytest.mark.parametrize("second", tiers([1, 3], full=["1", "3"]))
def test_a_second_failure_after_a_checkpoint(second: int) -> None:
    """The checkpoint that follows a recovery makes up for the lost put log."""
    rules = kills("1@put:9", f"{second}@fence:60")
    result = run("fenced", "top", "--spares", "2", *TOP, *rules)
    assert_same("fenced", result)
    assert_causal(result, [1, second], SLOTS + 2)


@pytest.mark.full
def test_a_checkpoint_follows_a_recovery() -> None:
    """Although none is due by the interval."""
    result = run("fenced", "top", "--interval", "never", "--kill", "1@put:9")
    assert_same("fenced", result)
    assert_causal(result, [1], SLOTS + 1)
    assert [c["version"] for c in result.stats["checkpoints"]] == [1]


@pytest.mark.full
def test_a_second_failure_before_a_checkpoint() -> None:
    """If the same slot dies, no other log is missing; if another dies, the first put log is."""
    result = run("fenced", "plain", "--spares", "2", *kills("1@put:9", "1@put:30"))
    assert_same("fenced", result)
    assert_causal(result, [1, 1], SLOTS + 2)
    result = run("fenced", "plain", "--spares", "2", *kills("1@put:9", "3@put:30"))
    assert_same("fenced", result)
    assert kinds(result) == ["causal", "rollback"]
    assert "slot 1's put log died with its process" in result.stats["recoveries"][1]["reason"]


@pytest.mark.full
@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.nightly)])
def test_a_repair_undoes_a_checkpoint_that_the_next_one_waits_for(version: int) -> None:
    """The second checksum rank dies before it has summed it, a slot as the next one begins; where a
    spare was quicker to sum it in its place, once more."""
    rules = kills(f"c1@sum:{version}", f"1@checkpoint:{version + 1}")
    strong = ("--checksums", "2", "--group-size", str(SLOTS), "--spares", "3")
    versions: list[int] = []
    while version - 1 not in versions:
        assert len(versions) < 5, versions
        result = run("checkpoints", "top", *TOP, *strong, *rules)
        assert_same("checkpoints", result)
        assert_causal(result, [1], SLOTS + 1)
        versions.append(result.stats["recoveries"][0]["version"])


# Slot 0 ends the checksum rank in the middle of the run, and all wait until a spare has its seat.
END_OF_A_CHECKSUM_RANK = """
import os, sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(800, 8, comm=comm)
flag = f"{sys.argv[1]}/flag-{comm.rank}.txt"
win.Fence()
for step in range(20):
    win.Put(np.array([step]), (comm.rank + 1) % comm.size, (step, 1, MPI.INT64_T))
    win.Fence()
    if step == 6 and not os.path.exists(flag):
        open(flag, "w").close()
        for pid in [p for p in os.listdir("/proc") if p.isdigit() and comm.rank == 0]:
            try:
                mine = open(f"/proc/{pid}/environ").read().split("\\0")
            except OSError:
                continue
            if {"FTRMA_JOB=" + os.environ["FTRMA_JOB"], "OMPI_COMM_WORLD_RANK=4"} <= set(mine):
                os.kill(int(pid), 9)
        story = Path(os.environ["FTRMA_JOB"]) / "events"
        while not story.exists() or '"reseat"' not in story.read_text():
            pass
"""


@pytest.mark.full
def test_the_result_log_dies_with_its_checksum_rank() -> None:
    """The slots of its group cannot be replayed until the next checkpoint."""
    result = run_job(END_OF_A_CHECKSUM_RANK, SLOTS, "--spares", "2", "--kill", "1@put:9")
    assert result.status == 0, result
    assert [d[:2] for d in deaths(result)] == [("checksum", 0), ("slot", 1)]
    assert_rollback(result, "slot 1's get log died with the checksum rank that held it")


@pytest.mark.parametrize("time_s", tiers([0.001, 0.03], full=["0.001"]))
def test_a_death_before_the_logs_are_made(time_s: float) -> None:
    """A slot that dies while the job comes up is replaced like any other."""
    result = run("fenced", "plain", "--kill", f"1@time:{time_s}")
    assert_same("fenced", result)
    assert len(kinds(result)) == 1


# Slot 1 stands still at the last meeting before the program, and slot 0 comes to it meanwhile: when
# slot 1 moves again, slot 0 is dead, and slot 1 repairs before it has begun.
SLOW_TO_BEGIN = """
import os, subprocess, time
from ftrma.native import job
meet = job.meet

def late(repair, phase, **how):
    last = (repair, phase) == (0, int(os.environ["LAST_PHASE"]))
    if last and rank == "1":
        subprocess.Popen(["sh", "-c", "sleep .2; kill -STOP $PPID; sleep .8; kill -CONT $PPID"])
    if last and rank == "0":
        time.sleep(.5)
    return meet(repair, phase, **how)

rank = os.environ.get("OMPI_COMM_WORLD_RANK")
if rank:
    job.meet = late
"""
DEAD_AT_ONCE = """
import os, signal, sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
with open(f"{sys.argv[1]}/lives-{comm.rank}", "a") as f:
    f.write("x")
    if comm.rank == 0 and f.tell() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
win = MPI.Win.Allocate(8, 8, comm=comm)
win.Fence()
win.Put(np.array([comm.rank]), (comm.rank + 1) % comm.size)
win.Fence()
np.save(f"{sys.argv[1]}/cells-{comm.rank}.npy", np.frombuffer(win.tomemory(), "i8"))
"""


def assert_replaced_early(result: Result) -> None:
    assert result.status == 0 and kinds(result) == ["causal"], result
    assert [int(cells[0]) for cells in result.of_slots("cells", 3)] == [2, 0, 1], result


@pytest.mark.full
def test_a_death_before_another_slot_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_TO_BEGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LAST_PHASE", "4")
    assert_replaced_early(run_job(DEAD_AT_ONCE, 3, timeout=30))


# The target kills the origin as soon as the first cell has changed; the others take longer. So many
# slots stay outside of the window's communicator.
HALF_DONE = """
import os, signal, sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
world, outside = MPI.COMM_WORLD, int(sys.argv[2])
inside = world.rank >= outside
comm = world.Split(inside)
n = 1 << 20
win = MPI.Win.Allocate(8 * n * (comm.rank == 0), 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
pid, flag = (Path(sys.argv[1]) / name for name in ("pid.txt", "flag.txt"))
if inside and comm.rank == 1:
    pid.write_text(str(os.getpid()))
win.Lock_all()
comm.Barrier()
if inside and comm.rank == 0 and not flag.exists():
    flag.write_text("killed")
    while not cells[0]:
        pass
    os.kill(int(pid.read_text()), signal.SIGKILL)
if inside and comm.rank == 1:
    win.Accumulate(np.full(n, 3), 0)
    win.Flush(0)
comm.Barrier()
np.save(f"{sys.argv[1]}/cells-{world.rank}.npy", np.unique(cells))
win.Unlock_all()
"""


@pytest.mark.parametrize("outside", tiers([0, 1], full=["0", "1"]))
def test_a_death_in_the_middle_of_an_accumulate(outside: int) -> None:
    """Changed cells are put back, and all is done again: each cell has it once. A slot that
    does not know the window settles nothing of it."""
    result = run_job(HALF_DONE, 3 + outside, args=[str(outside)], timeout=30)
    assert result.status == 0, result
    assert deaths(result) == [("slot", 1 + outside, "unknown")]
    assert kinds(result) == ["causal"], result
    assert result.results[f"cells-{outside}"].tolist() == [3]


# Three accumulates that wait for each other, and the target dies in the first: the second and the
# third began before the failure and come to their turn behind its repair.
IN_TURN = """
import os, signal, sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
comm, n = MPI.COMM_WORLD, 1_000_000
win = MPI.Win.Allocate(16 * n * (comm.rank == 1), 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
every_second = MPI.INT64_T.Create_vector(n, 1, 2).Commit()  # a record each: that takes its time
flag = Path(sys.argv[1]) / "flag.txt"
win.Lock_all()
comm.Barrier()
if comm.rank != 1:
    win.Accumulate(np.ones(n, "i8"), 1, [0, 1, every_second])
elif not flag.exists():
    flag.write_text("killed")
    while not cells[0]:
        pass
    os.kill(os.getpid(), signal.SIGKILL)
comm.Barrier()
np.save(f"{sys.argv[1]}/cells-{comm.rank}.npy", np.unique(cells[::2]))
win.Unlock_all()
every_second.Free()
"""


@pytest.mark.full
def test_accumulates_that_wait_while_their_target_dies() -> None:
    """They wait on until it is live again, and none is lost."""
    result = run_job(IN_TURN, 4, "--log-budget", "256M")
    assert result.status == 0, result
    assert kinds(result) == ["causal"], result
    assert result.results["cells-1"].tolist() == [3]


# Slot 1 is the first to be ready for others, since the library takes long to make their windows. It
# is stopped before it has seen them come, and dies when they are past that and use its part.
KILLER = """
import os, signal, sys, time
from pathlib import Path
pid, folder = int(sys.argv[1]), Path(sys.argv[2])
while "/window-" not in Path(f"/proc/{pid}/maps").read_text():
    time.sleep(0.001)
time.sleep(0.2)
os.kill(pid, signal.SIGSTOP)
while not (folder / "begun.txt").exists():
    time.sleep(0.01)
(folder / "killed.txt").write_text("late" if (folder / "made.txt").exists() else "in time")
os.kill(pid, signal.SIGKILL)
"""
IN_THE_MAKING = """
import os, subprocess, sys, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
comm, folder = MPI.COMM_WORLD, Path(sys.argv[1])
begun, killed, me = folder / "begun.txt", folder / "killed.txt", comm.rank
if me == 1 and not killed.exists():
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(os.getpid()), sys.argv[1]])
win = MPI.Win.Allocate(64, 8, comm=comm)
if me == 1 and not killed.exists():
    (folder / "made.txt").write_text("")
cells = np.frombuffer(win.tomemory(), "i8")
got, count, last = np.zeros(1, "i8"), 0, 0
while me != 1 and not 0 < last == count:
    win.Lock(1, MPI.LOCK_EXCLUSIVE)
    win.Get(got, 1)
    win.Flush(1)
    time.sleep(0.001)
    got += 1
    win.Put(got, 1)
    win.Unlock(1)
    count += 1
    if count == 20:
        begun.write_text("")
    if not last and killed.exists():
        last = count + 100
comm.Barrier()
np.save(f"{folder}/cells-{me}.npy", cells[:1])
np.save(f"{folder}/count-{me}.npy", count)
"""
SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int PMPI_Win_create(void *base, long bytes, int unit, void *info, void *comm, void *win)
{
    int (*make)(void *, long, int, void *, void *, void *) = dlsym(RTLD_NEXT, "PMPI_Win_create");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank && strcmp(rank, "1"))
        sleep(1);
    return make(base, bytes, unit, info, comm, win);
}
"""


@pytest.mark.full
def test_a_death_in_the_making_of_a_window(tmp_path: Path) -> None:
    """Law: who makes a window in the place of one that was ready for others leaves its words as
    they are: a lock that is held there stays so."""
    (tmp_path / "slow.c").write_text(SLOW)
    slow = tmp_path / "slow.so"
    subprocess.run([*COMPILER, "-shared", "-fPIC", "-o", slow, tmp_path / "slow.c"], check=True)
    result = run_job(IN_THE_MAKING, 4, "--mpirun", f"-x LD_PRELOAD={slow}", args=[KILLER],
                     timeout=40)
    assert result.status == 0 and kinds(result) == ["causal"], result
    assert deaths(result) == [("slot", 1, "unknown")]
    assert result.results["killed"] == "in time", result
    counts = [int(result.results[f"count-{slot}"]) for slot in range(4)]
    assert result.results["cells-1"].tolist() == [sum(counts)] and min(counts[2:]) > 100


# A program repeats in its second life what it did by `restored` after its checkpoint.
RESTORED = """
import sys
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
with open(f"{sys.argv[1]}/entered-{comm.rank}.txt", "a") as f:
    f.write("x")
state = ftrma.protect("s", step=0, sum=0)
while state.step < 10:
    ftrma.safepoint()
    comm.Barrier()
    if not state.restored:
        state.sum += comm.allreduce(1)
    state.step += 1
with open(f"{sys.argv[1]}/sum-{comm.rank}.json", "w") as f:
    f.write(str(state.sum))
"""


@pytest.mark.full
def test_what_the_lost_slot_was_told_of_its_entry() -> None:
    """In a replay `restored` says what it said to the lost slot, from the checkpoint on."""
    result = run_job(RESTORED, SLOTS, *TOP, "--kill", "1@call:9")
    assert result.status == 0, result
    assert kinds(result) == ["causal"], result.stats["recoveries"]
    assert result.of_slots("sum", SLOTS) == [10 * SLOTS] * SLOTS


# Puts past the caches, to parts that are large enough for it; no address is a multiple of a line.
LARGE_PUTS = """
import sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(17 << 20, comm=comm)
cells = np.frombuffer(win.tomemory(), "u1")
source = np.frombuffer(np.random.default_rng(7).bytes(1 << 20), "u1")
win.Fence()
for step in range(20):
    first = 1001 * step + comm.rank
    win.Put(source[first : first + 100_003], (comm.rank + 1) % comm.size, step * 200_003 + 11)
    win.Fence()
np.save(f"{sys.argv[1]}/cells-{comm.rank}.npy", cells)
"""


@pytest.mark.full
def test_puts_past_the_caches() -> None:
    result = run_job(LARGE_PUTS, 3, "--policy", "causal", "--kill", "1@put:15")
    assert result.status == 0, result
    assert kinds(result) == ["causal"], result
    source = np.frombuffer(np.random.default_rng(7).bytes(1 << 20), "u1")
    for slot, cells in enumerate(result.of_slots("cells", 3)):
        expected = np.zeros(17 << 20, "u1")
        for step in range(20):
            first, at = 1001 * step + (slot - 1) % 3, step * 200_003 + 11
            expected[at : at + 100_003] = source[first : first + 100_003]
        assert np.array_equal(cells, expected), slot


# ---- the hashtable, at random moments -------------------------------------------------------

# Long enough that nearly every moment from FIRST_S to LAST_S lies in its inserts; time counts from
# where the slots have come up.
LONG_DHT = ("dht.py", "--inserts", "80000", "--lookups", "2000", "--buckets", "60000", "--heap",
            "120000", "--batch", "4000", "--duty", "1")
FIRST_S, LAST_S = 0.35, 0.8
SEED = 20150615


@pytest.mark.parametrize("times", [pytest.param(100, marks=pytest.mark.nightly)])
def test_the_hashtable_at_random_moments(times: int) -> None:
    """The order in its buckets depends on timing, and is replayed nonetheless."""
    PROGRAMS["long-dht"] = LONG_DHT
    choose = random.Random(SEED)
    found = []
    for _ in range(times):
        rule = f"{choose.randrange(SLOTS)}@time:{choose.uniform(FIRST_S, LAST_S):.3f}"
        result = run_app("long-dht", "--kill", rule)
        assert_same_bits("long-dht", result)
        assert len(kinds(result)) <= 1, (rule, result.stats["recoveries"])
        found += kinds(result)
    print(f"seed {SEED}: {found.count('causal')} of {len(found)} recoveries are causal")
    assert len(found) >= times / 2
    assert found.count("causal") >= 0.9 * len(found)
