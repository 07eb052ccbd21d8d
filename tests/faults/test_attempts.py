"""Threads of an attempt that was rolled back, and going back by fresh processes.

An attempt is one entry of the program in a process, between rollbacks. Law: what a thread of an
earlier attempt does reaches no later one, and the end of a program is that of plain Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from jobs import Result, run_command, run_job, run_plain
from nodes import run_on_nodes
from programs import assert_same_bits, kinds, run

from ftrma.launch.mpirun import launcher_environment, mpirun_command, session_directory

pytestmark = pytest.mark.full

HEAD = """
import os, sys, threading, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(8 * n, 8, comm=comm)
memory = np.frombuffer(win.tomemory(), "i8")
memory[:] = 0
one = np.ones(1, "i8")
state = ftrma.protect("main", step=0)

def add(target):
    win.Lock(target, MPI.LOCK_EXCLUSIVE)
    win.Accumulate(one, target)
    win.Unlock(target)

def save(name, array):
    np.save(f"{sys.argv[1]}/{name}-{me}.npy", array)
"""
POOL = HEAD + """
from concurrent.futures import ThreadPoolExecutor
guard = threading.Lock()

def work(number):
    time.sleep(0.02)  # the queue outlasts a repair
    for target in range(n):
        with guard:  # a window has one lock to a target at a time, whichever thread has it
            add(target)

while state.step < 5:
    ftrma.safepoint()
    pool = ThreadPoolExecutor(4)
    for job in [pool.submit(work, i) for i in range(40)]:
        job.result()
    comm.Barrier()
    state.step += 1
save("memory", memory)
"""


def memory_of(result: Result, n: int) -> list[list[int]]:
    assert result.status == 0, result
    return [m.tolist() for m in result.of_slots("memory", n)]


@pytest.mark.parametrize(("interval", "kills"), [
    pytest.param("0", ["1@atomic:150"], id="0-once", marks=pytest.mark.nightly),
    pytest.param("0", ["1@atomic:150", "2@atomic:300", "0@lock-held:500"], id="0-thrice"),
    pytest.param("never", ["1@atomic:150"], id="never-once"),
    pytest.param("never", ["1@atomic:150", "2@atomic:300", "0@lock-held:500"], id="never-thrice",
                 marks=pytest.mark.nightly)])
def test_workers_of_an_executor(interval: str, kills: list[str]) -> None:
    """Law: what a pool had queued when all were rolled back is counted once, by the next attempt,
    and idle workers do not keep the process from it."""
    rules = [word for rule in kills for word in ("--kill", rule)]
    result = run_job(POOL, 3, "--spares", "3", "--interval", interval, *rules)
    assert memory_of(result, 3) == [[600, 0, 0]] * 3
    assert kinds(result) == ["rollback"] * len(kills)


# A thread that calls all that could reach others, again and again, and notes what comes of it.
STUBBORN = HEAD + """
attempt = state.restored + 1
data = np.zeros(1, "i8")
right = (me + 1) % n
mine = comm.Dup()
small = MPI.Win.Create(np.zeros(1, "i8"), 8, comm=MPI.COMM_SELF)
dynamic = MPI.Win.Create_dynamic(comm=comm)
request = mine.Irecv(data, me, 77)
small.Post(small.Get_group())
CALLS = {
    "Put": lambda: win.Put(one, right), "Get": lambda: win.Get(data, right),
    "Rput": lambda: win.Rput(one, right), "Accumulate": lambda: win.Accumulate(one, right),
    "Fetch_and_op": lambda: win.Fetch_and_op(one, data, right),
    "Compare_and_swap": lambda: win.Compare_and_swap(one, one, data, right),
    "Lock": lambda: win.Lock(right), "Unlock": lambda: win.Unlock(right),
    "Lock_all": win.Lock_all, "Unlock_all": win.Unlock_all, "Flush": lambda: win.Flush(right),
    "Flush_all": win.Flush_all, "Fence": win.Fence, "Sync": win.Sync, "Test": small.Test,
    "Wait": small.Wait, "Free": win.Free, "dynamic": lambda: dynamic.Put(one, right),
    "dynamic Test": dynamic.Test, "Barrier": comm.Barrier, "bcast": lambda: comm.bcast(1),
    "Allreduce": lambda: comm.Allreduce(one, data), "Isend": lambda: mine.Isend(one, right, 5),
    "Send": lambda: comm.Send(one, right, 5), "Recv": lambda: comm.Recv(data, right, 5),
    "Iprobe": mine.Iprobe, "request": request.Test, "Dup": comm.Dup,
    "Allocate": lambda: MPI.Win.Allocate(8, 8, comm=comm), "Ibarrier": comm.Ibarrier,
    "Create": lambda: MPI.Win.Create(data, 8, comm=comm), "Abort": lambda: comm.Abort(3),
    "safepoint": ftrma.safepoint, "protect": lambda: ftrma.protect("other", x=1),
    "stats": ftrma.stats,
}

def go_on(calls=3000, until=0.0):
    told = set()
    while True:
        try:
            mine.Iprobe()
            time.sleep(0.001)
        except ftrma.Rollback:
            break
    time.sleep(0.3)  # the repair is over, and no failure pending
    for name, call in list(CALLS.items()) * calls:
        try:
            call()
            told.add(name + " went through")
        except ftrma.Rollback:
            pass
        except BaseException as error:
            told.add(name + " raised " + repr(error))
        if time.monotonic() > until > 0:
            break
    with open(f"{sys.argv[1]}/told-{me}.txt", "w") as f:
        f.write("\\n".join(sorted(told)) + "all tried")
"""


def test_an_old_thread_is_told_every_time() -> None:
    """Law: whatever a thread calls that was begun in an earlier attempt, by the program or by such
    a thread, raises Rollback and has no effect."""
    text = STUBBORN + """
if not state.restored and me != 1:
    def born_late():  # its own first call of MPI comes after the rollback
        parent.join()
        go_on(5)
    def bear():
        go_on(3)
        threading.Thread(target=go_on, args=(5,)).start()
    parent = threading.Thread(target=bear)
    parent.start()
    threading.Thread(target=born_late).start()
while state.step < 30:
    ftrma.safepoint()
    add(right)
    comm.Barrier()
    time.sleep(0.01)
    state.step += 1
save("memory", memory)
"""
    result = run_job(text, 3, "--interval", "0", "--kill", "1@atomic:10")
    assert memory_of(result, 3) == [[30, 0, 0]] * 3
    assert kinds(result) == ["rollback"]
    for slot in (0, 2):
        assert result.results[f"told-{slot}"] == "all tried", result.results[f"told-{slot}"]


def test_an_old_thread_beside_the_next_attempt(tmp_path: Path) -> None:
    """Nobody can launch fresh processes here: the thread outlives the wait for it, and
    the end of the job does not wait for it."""
    script = tmp_path / "program.py"
    script.write_text(STUBBORN + """
if not state.restored and me == 0:
    threading.Thread(target=go_on, args=(10**6, time.monotonic() + 7)).start()
    threading.Thread(target=time.sleep, args=(90,)).start()
begun = time.monotonic()
while True:
    add(right)
    comm.Barrier()
    state.step += 1
    if state.step == 3:
        ftrma.safepoint()
    enough = not state.restored or time.monotonic() > begun + 4
    if comm.bcast(state.step >= 8 and enough):
        break
save("memory", memory)
save("steps", np.array([state.step]))
""")
    with session_directory() as session:
        environment = {"FTRMA_SLOTS": "3", "FTRMA_INTERVAL": "0", "FTRMA_KILL": "1@atomic:5",
                       **launcher_environment()}
        ranks = [sys.executable, "-m", "ftrma", str(script), str(tmp_path)]
        result = run_command([*mpirun_command(5, session), *ranks], 60, environment)
    assert result.status == 0, result
    for slot in range(3):
        steps = int(np.load(tmp_path / f"steps-{slot}.npy")[0])
        assert np.load(tmp_path / f"memory-{slot}.npy").tolist() == [steps, 0, 0], result
    assert (tmp_path / "told-0.txt").read_text() == "all tried"


@pytest.mark.parametrize("how", [
    "alone", pytest.param("in a pool that is awaited", marks=pytest.mark.nightly)])
def test_a_thread_that_goes_on_leads_to_fresh_processes(how: str) -> None:
    """Law: it gets 5 s; then the job is launched again from the checkpoint, and it is told why."""
    text = HEAD + """
from concurrent.futures import ThreadPoolExecutor

def ignore_everything():
    threading.current_thread().name = "stubborn"
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)

def steps():
    while state.step < 20:
        ftrma.safepoint()
        add((me + 1) % n)
        comm.Barrier()
        state.step += 1

if me == 0 and not state.restored:
    if sys.argv[2] != "alone":
        with ThreadPoolExecutor(1) as pool:
            pool.submit(ignore_everything)
            steps()
    threading.Thread(target=ignore_everything, daemon=True).start()
steps()
save("memory", memory)
"""
    result = run_job(text, 2, "--interval", "0", "--policy", "rollback", "--kill", "1@atomic:9",
                     args=[how])
    assert memory_of(result, 2) == [[20, 0]] * 2
    assert kinds(result) == ["rollback", "relaunch"]
    reason = result.stats["recoveries"][1]["reason"]
    assert "a thread of its program ('stubborn') goes on 5 s after the rollback" in reason
    assert result.stderr.count("\n") == 2, result.stderr
    assert result.stats["recoveries"][1]["version"] > 0


def test_a_program_that_keeps_a_rollback_to_itself() -> None:
    """Law: its calls go on raising, and its end is not taken for the end of the program."""
    text = HEAD + """
while state.step < 20:
    try:
        ftrma.safepoint()
        add((me + 1) % n)
        comm.Barrier()
    except BaseException:
        pass
    finally:
        state.step += 1
    with np.errstate():
        pass
save("memory", memory)
"""
    result = run_job(text, 3, "--interval", "0", "--policy", "rollback", "--kill", "1@atomic:9")
    assert memory_of(result, 3) == [[20, 0, 0]] * 3
    assert kinds(result) == ["rollback"]


def test_cleaning_up_does_nothing_to_the_next_attempt() -> None:
    """Law: what a program calls on its way out raises Rollback again, and reaches nobody."""
    text = HEAD + """
def again(call):
    try:
        call()
    except ftrma.Rollback:
        raise
    else:
        print("went through", flush=True)

try:
    while state.step < 20:
        ftrma.safepoint()
        add((me + 1) % n)
        comm.Barrier()
        state.step += 1
except ftrma.Rollback:
    for call in (comm.Barrier, lambda: add(0), win.Fence, win.Free, lambda: comm.allreduce(1),
                 lambda: ftrma.protect("more", x=1), ftrma.safepoint):
        try:
            call()
        except ftrma.Rollback:
            continue
        print("went through", flush=True)
    raise
save("memory", memory)
"""
    result = run_job(text, 3, "--interval", "0", "--policy", "rollback", "--kill", "1@atomic:9")
    assert memory_of(result, 3) == [[20, 0, 0]] * 3
    assert kinds(result) == ["rollback"] and "went through" not in result.stdout


LAST = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(8, 8, comm=comm)
memory = np.frombuffer(win.tomemory(), "i8")
memory[:] = 0
comm.Barrier()
guard = threading.Lock()

def add(_):
    time.sleep(0.02)
    with guard:
        win.Lock((me + 1) % n)
        win.Accumulate(np.ones(1, "i8"), (me + 1) % n)
        win.Unlock((me + 1) % n)

def finish():
    for _ in range(20):
        add(0)
    worker.join()
    comm.Barrier()
    np.save(f"{sys.argv[1]}/memory-{me}.npy", memory)

worker = threading.Thread(target=lambda: [add(0) for _ in range(10)])
worker.start()
pool = ThreadPoolExecutor(2)
for i in range(20):
    pool.submit(add, i)
closer = threading.Thread(target=lambda: (pool.shutdown(), finish()))
closer.start()
if len(sys.argv) == 2:  # nobody waits for a daemon
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""


@pytest.mark.parametrize("kill", ["", "1@atomic:30"])
def test_threads_at_the_end_of_the_program(kill: str) -> None:
    """Law: as in plain Python, threads that are no daemons do their work, and so do executors."""
    result = run_job(LAST, 3, *(("--kill", kill) if kill else ()), args=["no daemon"] * bool(kill))
    assert memory_of(result, 3) == [[50]] * 3
    assert kinds(result) == ["rollback"] * bool(kill)


def test_threads_at_the_end_as_without_protection() -> None:
    assert memory_of(run_plain(LAST, 3), 3) == [[50]] * 3


def test_an_executor_is_not_closed() -> None:
    """Law: what was submitted is done, though the program ends without waiting for it."""
    text = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
for i in range(30):
    pool.submit(time.sleep, 0.01)
pool.submit(lambda: open(f"{sys.argv[1]}/done.txt", "w").write("done"))
"""
    for result in (run_job(text, 1), run_plain(text, 1)):
        assert result.status == 0 and result.results == {"done": "done"}, result


def test_an_executor_is_left_while_it_begins_a_thread() -> None:
    """Law: a thread of which its executor does not know yet is ended, too, by a rollback in
    place."""
    text = HEAD + """
from concurrent.futures import ThreadPoolExecutor
start = threading.Thread.start

def start_and_leave(thread):
    start(thread)
    if thread.name.startswith("ThreadPool"):
        add(0)          # slot 1 dies here
        comm.Barrier()  # the rollback comes here in the others

pool = ThreadPoolExecutor(1)
threading.Thread.start = start_and_leave
try:
    done = pool.submit(int)
finally:
    threading.Thread.start = start
done.result()
comm.Barrier()
save("memory", memory)
"""
    result = run_job(text, 3, "--policy", "rollback", "--kill", "1@atomic:1")
    assert memory_of(result, 3) == [[3, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert kinds(result) == ["rollback"]


# ---- fresh processes --------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [["2@fence:12"], ["1@put:40", "3@fence:20"]])
def test_rollback_by_fresh_processes(kills: list[str]) -> None:
    """Law: with --rollback fresh every rollback is a relaunch from the checkpoint."""
    rules = [word for rule in kills for word in ("--kill", rule)]
    result = run("stencil", "--policy", "rollback", "--rollback", "fresh", "--interval", "0",
                 *rules)
    assert_same_bits("stencil", result)
    assert kinds(result) == ["relaunch"] * len(kills)
    assert all(r["version"] > 0 for r in result.stats["recoveries"])
    assert "the policy is rollback; launching the job again from checkpoint" in result.stderr


def test_fresh_is_for_rollbacks_only() -> None:
    result = run("stencil", "--rollback", "fresh", "--kill", "2@fence:12")
    assert_same_bits("stencil", result)
    assert kinds(result) == ["causal"]


def library(directory: Path) -> dict[str, str]:
    """A package outside of the program's directory, which keeps a window in a variable."""
    (directory / "shared_counter").mkdir()
    (directory / "shared_counter" / "__init__.py").write_text("""
from mpi4py import MPI
import numpy as np

_window = None

def add(target):
    global _window
    if _window is None:
        _window = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
        value()[0] = 0
        MPI.COMM_WORLD.Barrier()
    _window.Lock(target)
    _window.Accumulate(np.ones(1, "i8"), target)
    _window.Unlock(target)

def value():
    return np.frombuffer(_window.tomemory(), "i8")
""")
    return {"PYTHONPATH": str(directory)}


@pytest.mark.parametrize("again", ["once", "always"])
def test_what_a_library_keeps(tmp_path: Path, again: str) -> None:
    """Law: a program that fails when it is entered again in the same processes is given fresh ones;
    what it raises there is its own error."""
    text = """
import os, sys
import numpy as np
import shared_counter
from ftrma import MPI
import ftrma
comm = MPI.COMM_WORLD
entered = f"{sys.argv[1]}/entered-{comm.rank}.txt"
if sys.argv[2] == "always" and os.path.exists(entered):
    raise RuntimeError("the second time")
open(entered, "w").close()
for step in range(30):
    shared_counter.add((comm.rank + 1) % comm.size)
comm.Barrier()
np.save(f"{sys.argv[1]}/memory-{comm.rank}.npy", shared_counter.value())
"""
    result = run_job(text, 3, "--policy", "rollback", "--kill", "1@atomic:20", args=[again],
                     env=library(tmp_path))
    assert kinds(result) == ["rollback", "relaunch"], result
    assert "when its program was entered again in the same process" in result.stderr
    assert "launching the job again from the start" in result.stderr
    if again == "once":
        assert memory_of(result, 3) == [[30]] * 3
    else:
        assert result.status == 1 and result.stderr.count("Traceback") == 1, result
        assert result.stderr.endswith("RuntimeError: the second time\n"), result


def test_a_first_error_is_the_programs_own() -> None:
    """Law: without a rollback before, an error is reported at once."""
    result = run_job("raise RuntimeError('at once')", 2)
    assert result.status == 1 and "launching" not in result.stderr, result


def test_fresh_needs_a_supervisor(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("")
    result = run_command([sys.executable, "-m", "ftrma", str(tmp_path / "program.py")], 30,
                         {"FTRMA_ROLLBACK": "fresh"})
    assert result.status == 1 and result.stderr.count("\n") == 1, result
    assert "FTRMA_ROLLBACK=fresh: without 'ftrma run'" in result.stderr




AMID_A_CALL = """
import sys
import threading
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
twin = comm.Dup()
state = ftrma.protect("amid", step=0)
got, other = np.zeros(1, "i8"), np.zeros(1, "i8")
late = threading.Thread(target=lambda: twin.Recv(got, (me - 1) % n, 9))
late.start()
while state.step < 12:
    ftrma.safepoint()
    comm.Sendrecv(np.array([me + state.step]), (me + 1) % n, 1, other, (me - 1) % n, 1)
    assert other[0] == (me - 1) % n + state.step
    state.step += 1
twin.Send(np.array([7 * me]), (me + 1) % n, 9)
late.join()
np.savez(f"{sys.argv[1]}/slot-{me}.npz", got=got)
"""


@pytest.mark.parametrize("run", [
    pytest.param(run_job, id="one node"),
    pytest.param(partial(run_on_nodes, in_turn=2), id="several nodes")])
def test_a_thread_amid_a_call(run: Callable[..., Result]) -> None:
    """Law: no thread is lost to a repair in which nobody has died, as when communicators are made
    again: all go back then, and it makes its call anew."""
    result = run(AMID_A_CALL, 4, "--interval", "0", "--kill", "1@safepoint:6", timeout=60)
    assert result.status == 0 and set(kinds(result)) == {"rollback"}, result
    assert [int(found["got"][0]) for found in result.of_slots("slot", 4)] == [21, 0, 7, 14]
    assert result.stats["recoveries"][0]["slots"] == [1], result


OF_BEFORE = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
old = getattr(MPI, "kept", None)  # as a library's variable, by whoever has gone back
size = 8000 * (me + 1) * (int(sys.argv[2]) if old else 1)
memory = np.zeros(size // 8, "i8")
win = MPI.kept = (MPI.Win.Create(memory, 8, comm=comm) if sys.argv[3] == "create" else
                  MPI.Win.Allocate(size, 8, comm=comm))
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
state = ftrma.protect("sizes", step=0)
one, got = np.ones(1, "i8"), np.zeros(1, "i8")
comm.Barrier()
while state.step < 20:
    ftrma.safepoint()
    if old and state.step == 12:
        old.Free()
        assert old == MPI.WIN_NULL
    win.Lock_all()
    win.Fetch_and_op(one, got, (me + 1) % n, me)
    win.Unlock_all()
    win.Fence()
    state.step += 1
np.savez(f"{sys.argv[1]}/slot-{me}.npz", cells=cells[:n])
"""


@pytest.mark.parametrize("made", ["2 allocate", "1 allocate", "1 create"])
def test_a_window_of_before(made: str) -> None:
    """Law: a window that is made again, with another size or with the same, is another one; whoever
    still has the one of before can free it, and nothing more."""
    result = run_job(OF_BEFORE, 4, "--policy", "rollback", "--spares", "2", "--kill",
                     "1@fence:6", "--kill", "2@atomic:21", args=made.split(), timeout=60)
    assert result.status == 0 and kinds(result) == ["rollback"] * 2, result
    for slot, found in enumerate(result.of_slots("slot", 4)):
        assert found["cells"].tolist() == [20 * (me == (slot - 1) % 4) for me in range(4)]
