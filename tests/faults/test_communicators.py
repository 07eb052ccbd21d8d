"""Communicators derived from the world through failures.

Law: Dup, Split, Split_type, Create, Cart_create and Cart_sub, their frees, and the blocking
collectives and windows on what they make are replayed, wherever a slot dies; what a communicator
has (attributes, name, error handler) survives a repair, and messages go through it afterwards. What
no log covers leads to a rollback, for a reason that is true.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from jobs import Result, run_job
from programs import assert_rollback, kinds
from test_causal import SLOTS, assert_same, run
from tiers import tiers

from ftrma.trace.check import check
from ftrma.trace.records import read

pytestmark = pytest.mark.full
SET_UP = range(1, 10)  # calls of a slot that make the communicators
IN_STEPS = (12, 17, 23, 31, 40, 55)


@pytest.mark.parametrize("place", tiers(
    [*(f"call:{i}" for i in (*SET_UP, *IN_STEPS)), "put:5", "fence:8", "lock-held:5"],
    full=["call:1", "call:12"]))
def test_any_call(place: str) -> None:
    slot = sum(map(ord, place)) % SLOTS
    result = run("groups", "plain", "--policy", "causal", "--kill", f"{slot}@{place}", steps=6)
    assert_same("groups", result, steps=6)
    assert kinds(result) == ["causal"], result


@pytest.mark.parametrize(("place", "mode"), tiers(
    itertools.product(("call:14", "call:45", "put:5", "fence:11", "safepoint:5"), ("top", "late")),
    full=["call:14-top", "safepoint:5-late"]))
def test_from_a_checkpoint(place: str, mode: str) -> None:
    """Also where the communicators are made between protect() and the checkpoint's place."""
    result = run("groups", mode, "--interval", "0", "--policy", "causal", "--kill", f"1@{place}",
                 "--kill", f"3@{place}0", "--spares", "2", steps=16)
    assert_same("groups", result, steps=16)
    assert set(kinds(result)) == {"causal"}, result


@pytest.mark.parametrize("places", [("call:20", "call:90"), ("put:3", "put:9")])
def test_rolled_back(places: tuple[str, str]) -> None:
    """All make their communicators again, and nothing is left of those before."""
    result = run("groups", "top", "--interval", "0.01", "--policy", "rollback", "--kill",
                 f"2@{places[0]}", "--kill", f"0@{places[1]}", "--spares", "2",
                 steps=16)
    assert_same("groups", result, steps=16)
    assert kinds(result) == ["rollback"] * 2, result


@pytest.mark.parametrize("mode", ["top", "plain"])
def test_windows_of_some(tmp_path: Path, mode: str) -> None:
    """A window that has another number at each slot is the same one in logs and trace."""
    path = tmp_path / "trace.json"
    result = run("uneven", mode, "--interval", "0", "--policy", "causal", "--trace", str(path),
                 "--kill", "1@put:15", steps=14)
    assert_same("uneven", result, steps=14)
    assert kinds(result) == ["causal"], result
    assert check(read(path)).violation is None


AFTERWARDS = """
import sys
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
me, n = world.rank, world.size
half = world.Split(me % 2)
key = MPI.Comm.Create_keyval()
for comm, what in ((world, "all"), (half, "half")):
    comm.Set_attr(key, (what, me))
    comm.Set_name(what)
twin = half.Dup()
half.Set_errhandler(MPI.ERRORS_RETURN)
win = MPI.Win.Allocate(8, 8, comm=half)
win.Fence()
for step in range(6):
    half.allreduce(step)
    win.Fence()
world.Barrier()  # whoever sends before the death cannot be gone on with
ring = half.sendrecv(me, (half.rank + 1) % half.size, source=(half.rank - 1) % half.size)
sums = np.zeros(1, "i8")
half.Iallreduce(np.array([me]), sums).Wait()
names = [world.Get_name(), half.Get_name(), world.Get_attr(key), half.Get_attr(key)]
handler = half.Get_errhandler() == MPI.ERRORS_RETURN
same = MPI.Comm.Compare(half, twin) == MPI.CONGRUENT and half.group.size == half.size
np.savez(f"{sys.argv[1]}/slot-{me}.npz", ring=ring, sums=sums, ok=np.array([handler, same]),
         names=np.array(list(map(str, names))))
"""


def test_what_a_communicator_has_survives() -> None:
    result = run_job(AFTERWARDS, 4, "--policy", "causal", "--kill", "2@fence:4")
    assert result.status == 0 and kinds(result) == ["causal"], result
    for me, found in enumerate(result.of_slots("slot", 4)):
        assert found["ring"] == (me + 2) % 4 and found["sums"] == 2 * (me % 2) + 2
        assert found["ok"].all(), (me, found)
        assert found["names"].tolist() == ["all", "half", f"('all', {me})", f"('half', {me})"]


CACHED = """
import sys
import numpy as np
from mpi4py import MPI
import library
world = MPI.COMM_WORLD
twin, win = library.get(world)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
win.Fence()
for step in range(30):
    total = twin.allreduce(world.rank + step)
    win.Put(np.array([total]), (world.rank + 1) % world.size, step)
    win.Fence()
np.save(f"{sys.argv[1]}/slot-{world.rank}.npy", cells)
"""
LIBRARY = """
from mpi4py import MPI
made = None
def get(world):
    global made
    if made is None:
        made = world.Dup(), MPI.Win.Allocate(8 * 30, 8, comm=world)
    return made
"""


def test_handles_of_an_earlier_attempt_are_none(tmp_path: Path) -> None:
    """A library that keeps them finds out, and fresh processes do what those before could not."""
    home = tmp_path / "site-packages"
    home.mkdir()
    (home / "library.py").write_text(LIBRARY)
    result = run_job(CACHED, 3, "--policy", "rollback", "--kill", "1@fence:12",
                     env={"PYTHONPATH": str(home)})
    assert result.status == 0, result
    assert kinds(result) == ["rollback", "relaunch"], result
    for found in result.of_slots("slot", 3):
        assert found.tolist() == [3 + 3 * step for step in range(30)]


THREADS = """
import sys, threading
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
comms = [world.Dup() for _ in range(3)]
sums = np.zeros((3, 200), "i8")
def work(i):
    for step in range(200):
        data = np.full(2000, world.rank + i * step)
        total = np.zeros_like(data)
        comms[i].Allreduce(data, total)
        assert (total == total[0]).all()
        sums[i, step] = total[0] + sum(comms[i].alltoall([i] * comms[i].size))
threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
for t in threads: t.start()
for t in threads: t.join()
n = world.size
expected = [[n * (n - 1) // 2 + n * i * s + n * i for s in range(200)] for i in range(3)]
assert sums.tolist() == expected
np.save(f"{sys.argv[1]}/slot-{world.rank}.npy", sums)
"""


@pytest.mark.parametrize("kill", ["", "1@call:200"])
def test_threads_with_communicators_of_their_own(kill: str) -> None:
    result = run_job(THREADS, 3, *(["--kill", kill] if kill else []))
    assert result.status == 0, result
    assert len({found.tobytes() for found in result.of_slots("slot", 3)}) == 1


FREED = """
import sys
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
twin = world.Dup()
win = MPI.Win.Allocate(8 * 20, 8, comm=twin)
twin.Free()
cells = np.frombuffer(win.tomemory(), "i8")
win.Fence()
for step in range(20):
    win.Put(np.array([world.rank + step]), (world.rank + 1) % world.size, step)
    win.Fence()
np.save(f"{sys.argv[1]}/slot-{world.rank}.npy", cells)
"""


def test_a_window_outlives_its_communicator() -> None:
    result = run_job(FREED, 3, "--policy", "causal", "--kill", "1@fence:12")
    assert result.status == 0 and kinds(result) == ["causal"], result
    for me, cells in enumerate(result.of_slots("slot", 3)):
        assert cells.tolist() == [(me - 1) % 3 + step for step in range(20)]


@pytest.mark.parametrize("place", tiers(
    [f"call:{i}" for i in range(1, 9)], full=["call:1", "call:4"]))
def test_rolled_back_while_communicators_are_made(place: str) -> None:
    result = run("groups", "plain", "--policy", "rollback", "--kill", f"1@{place}", "--kill",
                 f"2@{place}", "--spares", "2", steps=6)
    assert_same("groups", result, steps=6)
    assert set(kinds(result)) == {"rollback"}, result


MADE_WITHOUT_END = """
import os, sys, time
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
me = world.rank
pair = world.Split(me // 2)
if me < 2:  # the other one of the two is late
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.nice(19 * me)
total, steps, until = 0, 0, time.monotonic() + 2.5  # all kills are sooner, however fast it is
while me < 2:
    twin = pair.Dup()
    total += twin.allreduce(steps)
    steps += 1
    over = twin.bcast(time.monotonic() > until)
    twin.Free()
    if over:
        break
world.Barrier()
np.save(f"{sys.argv[1]}/slot-{me}.npy", [steps, total])
"""


def test_a_death_beside_the_making_of_communicators() -> None:
    """Law: the members go into the library's part of it all or none, whoever hears of a failure
    when. One alone would wait there until the job is launched again."""
    kills = [f"{slot}@time:{1 + 0.15 * i:.2f}" for i, slot in enumerate((3, 2, 3, 2, 3, 2))]
    options = [word for kill in kills for word in ("--kill", kill)]
    result = run_job(MADE_WITHOUT_END, 4, "--spares", "6", *options)
    assert result.status == 0 and set(kinds(result)) <= {"causal", "rollback"}, result
    assert len(kinds(result)) >= 4, result
    steps, totals = zip(*(saved.tolist() for saved in result.of_slots("slot", 4)), strict=True)
    assert steps[0] == steps[1] > 100 and steps[2:] == (0, 0), steps
    assert totals == (steps[0] * (steps[0] - 1),) * 2 + (0, 0), (steps, totals)


# ---- what leads to a rollback ---------------------------------------------------------------

STEPPING = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(800, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
{before}
state = ftrma.protect("steps", step=0)
for step in range(state.step, 20):
    state.step = step
    ftrma.safepoint()
    {during}
    win.Fence()
    win.Put(np.array([me + step]), (me + 1) % n, (step, 1, MPI.INT64_T))
    win.Fence()
np.save(f"{{sys.argv[1]}}/slot-{{me}}.npy", cells)
"""
GRAPH = "graph = comm.Create_graph([1, 2, 3], [1, 2, 0])"
DYNAMIC = "other = MPI.Win.Create_dynamic(comm=comm)"
SENDRECV = "comm.sendrecv(0, (me + 1) % n)"


@pytest.mark.parametrize(
    ("before", "during", "reason"),
    [
        (SENDRECV, "", "calls MPI_Isend before its last protect(), which every replay comes by"),
        (GRAPH, "", "calls MPI_Graph_create before its last protect()"),
        ("", f"if step == 2: {GRAPH}", "has what MPI_Graph_create has made, which no log covers"),
        ("", f"if step > 10: {SENDRECV}", "has called MPI_Isend since checkpoint"),
        ("", "if step == 2: idup = comm.Idup(); idup[1].Wait()", "has what MPI_Comm_idup has made"),
        ("", f"if step == 2: {DYNAMIC}", "has what MPI_Win_create_dynamic has made"),
        (f"{DYNAMIC}; other.Free()", "", "calls MPI_Win_create_dynamic before its last protect()"),
    ],
)
def test_the_reason_is_true(before: str, during: str, reason: str) -> None:
    program = STEPPING.format(before=before, during=during)
    result = run_job(program, 3, "--interval", "0", "--kill", "1@fence:31")
    assert result.status == 0, result
    assert_rollback(result, reason)
    for me, cells in enumerate(result.of_slots("slot", 3)):
        assert cells[:20].tolist() == [(me - 1) % 3 + step for step in range(20)]


def test_what_is_gone_is_no_reason() -> None:
    """A communicator that no replay can make, freed before the checkpoint."""
    during = f"\n    if step == 2:\n        {GRAPH}\n        graph.Free()"
    result = run_job(STEPPING.format(before="", during=during), 3, "--interval", "0",
                     "--policy", "causal", "--kill", "1@fence:31")
    assert result.status == 0 and kinds(result) == ["causal"], result


def test_a_death_before_the_program_begins() -> None:
    """Whoever has not begun is replaced; nobody goes back for that."""
    program = STEPPING.format(before="", during="")
    for at in ("0.001", "0.004", "0.008"):
        result = run_job(program, 3, "--policy", "causal", "--kill", f"1@time:{at}")
        assert result.status == 0 and kinds(result) == ["causal"], result


SHARED = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
me, n = node.rank, node.size
info = MPI.Info.Create({{"alloc_shared_noncontig": "{apart}"}})
win = MPI.Win.Allocate_shared(8 * (10 + me), 8, info=info, comm=node)
parts = [np.frombuffer(win.Shared_query(r)[0], "i8") for r in range(n)]
assert [len(p) for p in parts] == [10 + r for r in range(n)]
assert win.Get_attr(MPI.WIN_CREATE_FLAVOR) == MPI.WIN_FLAVOR_SHARED
where = [p.ctypes.data for p in parts]
assert {apart!r} == "true" or where[1] == where[0] + 80
parts[me][:] = 0
state = ftrma.protect("shared", step=0)
win.Fence()
for step in range(state.step, 30):
    state.step = step
    ftrma.safepoint()
    parts[(me + 1) % n][step % 10] += me + step  # a store into another's part
    node.Barrier()
    parts[me][9] += parts[(me + 2) % n][step % 9]
    node.Barrier()
    win.Lock(0)
    win.Accumulate(np.array([step]), 0, (9, 1, MPI.INT64_T))
    win.Unlock(0)
    node.Barrier()
np.save(f"{{sys.argv[1]}}/slot-{{me}}.npy", np.array(parts[me]))
"""


@pytest.mark.parametrize("apart", ["false", "true"])
def test_shared_windows_go_back(apart: str) -> None:
    program = SHARED.format(apart=apart)
    options = ("--interval", "0.002", "--spares", "2")
    without = run_job(program, 3, *options)
    assert without.status == 0 and "warning" not in without.stderr, without
    result = run_job(program, 3, *options, "--kill", "1@call:30", "--kill", "2@lock-held:20")
    assert result.status == 0 and kinds(result) == ["rollback"] * 2, result
    reason = "MPI_Win_allocate_shared"
    assert all(reason in r["reason"] for r in result.stats["recoveries"]), result
    assert result.stats["recoveries"][-1]["version"] > 0, result.stats
    assert_parts(result, without)


def assert_parts(result: Result, expected: Result) -> None:
    for found, right in zip(result.of_slots("slot", 3), expected.of_slots("slot", 3), strict=True):
        assert np.array_equal(found, right), (found, right)
