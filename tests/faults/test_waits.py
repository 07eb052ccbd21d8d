"""A main thread that waits, in Python, while a failure is to be repaired.

Law: whatever it waits in, it comes to the repair within a second, and an attempt that is over ends;
or fresh processes take over, and that is told. Nobody waits for ever, and results are those of the
run without failure.
"""

from __future__ import annotations

import functools

import pytest
from jobs import Result, run_job
from nodes import run_on_nodes
from programs import kinds
from tiers import tiers

SOON_S = 3.0  # on a crowded machine; what is waited for would take longer, or for ever

# Slot 0's main thread waits for one of its own that receives from slot 1, which is killed.
LISTENS = """
import os, queue, select, signal, subprocess, sys, threading, time
from concurrent.futures import Future, ThreadPoolExecutor
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, way, first = comm.rank, sys.argv[2], not os.path.exists(sys.argv[1] + "/first")
got, done, items, future, lock = [], threading.Event(), queue.Queue(), Future(), threading.Lock()
simple, (reads, writes) = queue.SimpleQueue(), os.pipe()
lock.acquire()

def listen():
    while (number := comm.recv()) is not None:
        got.append(number)
    done.set(), items.put(1), simple.put(1), future.set_result(1), lock.release()
    os.write(writes, b"xx")

def spin():
    while not done.is_set():
        pass

def nap(seconds):
    while not done.is_set():
        time.sleep(seconds)

def ask_child():
    subprocess.run(["sleep", "60" if first else "0"])
    done.wait()

def closed():  # nothing wakes it
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    items.get()

def taken():  # the program wants all signals for itself
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
        signal.signal(number, lambda *_: os._exit(9))
    items.get()

def in_vain():  # on its way out, too
    try:
        items.get()
    finally:
        done.wait()

def pool():
    with ThreadPoolExecutor(1) as workers:
        workers.submit(done.wait).result()

WAYS = {
    "queue": items.get, "simple queue": simple.get, "event": done.wait, "future": future.result,
    "lock": lock.acquire, "naps": lambda: nap(0.01), "sleep": lambda: nap(0.5), "busy": spin,
    "select": lambda: select.select([reads], [], []), "read": lambda: os.read(reads, 1),
    "child": ask_child, "in vain": in_vain, "closed": closed, "taken": taken, "pool": pool,
}
if me == 0:
    open(sys.argv[1] + "/first", "w").close()
    thread = threading.Thread(target=listen)
    thread.start()
    WAYS.get(way, thread.join)()
    thread.join()
    if len(got) == 40:
        np.save(f"{sys.argv[1]}/got-0.npy", got)
elif me == 1:
    for number in range(40):
        comm.send(number * number, 0)
        time.sleep(0.005)
    comm.send(None, 0)
"""
KILL = ("--kill", "1@call:20")


def assert_all_came(result: Result) -> None:
    assert result.status == 0, result
    assert result.results["got-0"].tolist() == [number * number for number in range(40)]
    assert len(result.stats["recoveries"]) == 1, result


def assert_went_back_soon(result: Result) -> None:
    assert_all_came(result)
    recovery, = result.stats["recoveries"]
    assert recovery["kind"] == "rollback" and recovery["seconds"] < SOON_S, result
    assert recovery["reason"] == "another thread of slot 0 was in a call of MPI"


@pytest.mark.parametrize("way", [
    "queue", *(pytest.param(way, marks=pytest.mark.full) for way in (
        "event", "join", "sleep", "select", "in vain")),
    *(pytest.param(way, marks=pytest.mark.nightly) for way in (
        "simple queue", "future", "lock", "naps", "busy", "read", "child"))])
def test_a_thread_that_is_waited_for_is_gone(way: str) -> None:
    assert_went_back_soon(run_job(LISTENS, 2, *KILL, args=[way]))


@pytest.mark.full
@pytest.mark.parametrize("way", ["queue", "busy"])
def test_on_several_nodes(way: str) -> None:
    assert_went_back_soon(run_on_nodes(LISTENS, 4, "--spares", "1", *KILL, args=[way], timeout=60))


UNTIDY = functools.partial(run_on_nodes, tidy=False)


@pytest.mark.parametrize(("run", "way"), [
    pytest.param(run_job, "taken", marks=pytest.mark.nightly),
    pytest.param(UNTIDY, "closed", marks=pytest.mark.full),
    pytest.param(run_job, "closed", marks=pytest.mark.nightly),
    pytest.param(UNTIDY, "taken", marks=pytest.mark.nightly)])
def test_nothing_wakes_it(way: str, run: functools.partial[Result]) -> None:
    """Law: the job is launched again, and whom it waited for is told. A signal for which the
    program has a handler of its own is not sent."""
    result = run(LISTENS, 2, *KILL, args=[way], timeout=60)
    assert_all_came(result)
    assert kinds(result) == ["relaunch"], result
    assert "slot 0 does not come to the repair: it waits for something" in result.stderr, result


@pytest.mark.nightly
def test_another_thread_is_not_woken() -> None:
    """Law: the main thread goes back, and what waits in another thread ends by fresh processes."""
    result = run_job(LISTENS, 2, *KILL, args=["pool"])
    assert result.status == 0 and kinds(result) == ["rollback", "relaunch"], result
    assert result.results["got-0"].tolist() == [number * number for number in range(40)]


# Slot 0 waits, or computes, for a time in each step; nothing of it is in MPI then.
PAUSES = """
import os, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, n, way, pause_s = comm.rank, comm.size, sys.argv[2], float(sys.argv[3])
win = MPI.Win.Allocate(8 * n, 8, comm=comm)
memory = np.frombuffer(win.tomemory(), "i8")
memory[:] = 0

def compute():
    end = time.monotonic() + pause_s
    while time.monotonic() < end:
        pass

def in_thread():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, pause_s).result()

WAYS = {"sleep": lambda: time.sleep(pause_s), "thread": in_thread, "computes": compute,
        "child": lambda: subprocess.run(["sleep", sys.argv[3]])}
pauses = f"{sys.argv[1]}/pauses.txt"
for step in range(3):
    while me == 1 and step == 2 and not os.path.exists(pauses):  # slot 0 has left the fence by then
        time.sleep(0.005)
    win.Fence()
    win.Put(np.full(1, 10 * step + me), (me + 1) % n, me)
    win.Fence()
    if me == 0 and step == 1:
        open(pauses, "w").close()
        before = time.monotonic()
        WAYS[way]()
        assert time.monotonic() - before >= pause_s - 0.01, "it was cut short"
np.save(f"{sys.argv[1]}/memory-{me}.npy", memory)
"""


RUNS = [run_job, functools.partial(run_on_nodes, in_turn=2)]  # a spare on the node of slot 1


def assert_replayed(result: Result) -> None:
    assert result.status == 0 and kinds(result) == ["causal"], result
    for slot, memory in enumerate(result.of_slots("memory", 3)):
        before = (slot - 1) % 3
        assert memory.tolist() == [20 + before if at == before else 0 for at in range(3)], result


@pytest.mark.parametrize("way", tiers(["sleep", "child", "thread"], full=["sleep"]))
@pytest.mark.parametrize("run", RUNS)
def test_it_waits_on_after_a_repair_in_place(way: str, run: functools.partial[Result]) -> None:
    """Law: others do not wait for what it waits for, and it waits on as if nothing had been."""
    result = run(PAUSES, 3, "--spares", "2", "--policy", "causal", "--kill", "1@fence:5",
                 args=[way, "4"], timeout=60)
    assert_replayed(result)
    assert result.stats["recoveries"][0]["seconds"] < SOON_S, result


@pytest.mark.parametrize("run", [pytest.param(RUNS[0], marks=pytest.mark.nightly),
                                 pytest.param(RUNS[1], marks=pytest.mark.full)])
def test_one_that_computes_is_waited_for(run: functools.partial[Result]) -> None:
    """Law: it comes with its next call, and it is told who keeps the others waiting."""
    result = run(PAUSES, 3, "--spares", "2", "--policy", "causal", "--kill", "1@fence:5",
                 args=["computes", "12"], timeout=60)
    assert_replayed(result)
    assert result.stderr.count("slot 0 computes, and comes to the repair") == 1, result
