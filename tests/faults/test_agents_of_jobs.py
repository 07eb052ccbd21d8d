"""The agent of a node dies amid a job, and no rank but those of its node notices.

Law, where nothing else is said: after any number of such deaths the final memories are bit for bit
those of the unprotected run, no rank is lost and nothing is launched again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jobs import Result, run_plain
from nodes import NODES, remove_fake_ssh, run_on_nodes
from tiers import tiers

SLOTS = 4
KILLS = 4  # of the agent of each node
# A thread of a rank kills the agent of its node, whenever it is let.
KILLER = """
def agent():
    for name in os.listdir("/proc"):
        try:
            words = open(f"/proc/{name}/cmdline", "rb").read().split(bytes(1))
        except OSError:
            continue
        if b"ftrma.launch.agent" in words and b"/bin/sh" not in words:
            return int(name)

def strike():
    for _ in due:
        turns.acquire()
        time.sleep(dice.uniform(0, 0.005))
        while (pid := agent()) is None or pid in struck:
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
        struck.append(pid)

def await_successor():  # until an agent serves the node again, and its keeper has seen that
    while (pid := agent()) is None or pid in struck:
        time.sleep(0.01)
    words = open(f"/proc/{pid}/cmdline", "rb").read().split(bytes(1))
    with open(words[words.index(b"ftrma.launch.agent") + 1], "rb") as ledger:
        while True:
            try:
                fcntl.flock(ledger, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(ledger, fcntl.LOCK_UN)
                time.sleep(0.01)
            except BlockingIOError:
                break
    time.sleep(0.1)
"""
# Each way of access has cells of its own, and what ranks read does not depend on who came first.
# Under ftrma a thread of rank 0 and one of rank 2 kill the agents of their nodes.
PROGRAM = """
import fcntl, os, random, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
right = (me + 1) % n
KINDS, ROUNDS, KILLS, SEED = 6, {rounds}, {kills}, {seed}
win = MPI.Win.Allocate(8 * n * KINDS, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
own = np.zeros(4096, "i8")
lent = MPI.Win.Create(own, 8, comm=comm)
cells[:] = 0
comm.Barrier()
dice = random.Random(SEED + me)
due = dice.sample(range(1, ROUNDS), KILLS) if "ftrma" in sys.modules and me % 2 == 0 else []
turns, struck = threading.Semaphore(0), []

KILLER
killer = threading.Thread(target=strike)
killer.start()
block, old = np.arange(4096, dtype="i8"), np.zeros(1, "i8")
for round in range(1, ROUNDS + 1):
    if round in due:
        turns.release()
    for target in range(n):
        win.Lock(target, MPI.LOCK_SHARED)
        win.Fetch_and_op(np.array([me + 1]), old, target, 0)
        win.Accumulate(np.array([2, round % 7]), target, (n, 2, MPI.LONG))
        win.Put(np.array([round]), target, (2 * n + me, 1, MPI.INT64_T))
        win.Unlock(target)
    win.Lock(right)  # what only one at a time may do
    win.Get(old, right, (3 * n, 1, MPI.INT64_T))
    win.Flush(right)
    win.Put(old + 3, right, (3 * n, 1, MPI.INT64_T))
    win.Unlock(right)
    lent.Fence()
    lent.Put(block * round + me, right)
    lent.Fence()
    assert own[1] - own[0] == round and own[4095] == 4095 * round + (me - 1) % n, own
killer.join()
if struck:
    await_successor()
comm.Barrier()
total = sum(range(1, n + 1))
assert cells[0] == round * total, (cells[0], round * total)
assert cells[3 * n] == 3 * round
np.savez(f"{{sys.argv[1]}}/cells-{{me}}.npz", cells=cells, own=own)
np.save(f"{{sys.argv[1]}}/struck-{{me}}.npy", len(struck))
lent.Free()
win.Free()
""".replace("KILLER", KILLER.replace("{", "{{").replace("}", "}}"))


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def assert_exact(result: Result, raw: Result) -> None:
    assert result.status == raw.status == 0, result.stderr
    for found, expected in zip(result.of_slots("cells", SLOTS), raw.of_slots("cells", SLOTS),
                               strict=True):
        for name in ("cells", "own"):
            assert found[name].tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("seed", tiers(range(4), full=["0"]))
def test_agents_die_amid_accesses_of_all_kinds(seed: int) -> None:
    """Law of this file."""
    rounds = 200
    raw = run_plain(PROGRAM.format(rounds=rounds, kills=0, seed=0), SLOTS, timeout=60)
    result = run_on_nodes(PROGRAM.format(rounds=rounds, kills=KILLS, seed=seed), SLOTS,
                          "--interval", "never", timeout=90)
    assert_exact(result, raw)
    struck = [int(n) for n in result.of_slots("struck", SLOTS)]
    assert struck == [KILLS, 0, KILLS, 0] and not result.stats["failures"], (struck, result)
    assert {agent["host"] for agent in result.stats["agents"]} == set(NODES[:2]), result.stats
    for node in NODES[:2]:
        assert f"the agent of {node} died; another one goes on for it\n" in result.stderr, result


# Collective calls of one and of several areas, on the world and on communicators that come and go.
COLLECTIVES = """
import os, random, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
ROUNDS, KILLS = 120, 4
dice = random.Random(SEED + me)
due = dice.sample(range(1, ROUNDS), KILLS) if me % 2 == 0 else []
turns, struck = threading.Semaphore(0), []
KILLER
killer = threading.Thread(target=strike)
killer.start()
LARGE = 200_003
steps = np.arange(LARGE, dtype="i8")
for round in range(1, ROUNDS + 1):
    if round in due:
        turns.release()
    assert comm.allreduce(round * me) == round * n * (n - 1) // 2
    root = round % n
    data = steps * round + root if me == root else np.zeros(LARGE, "i8")
    comm.Bcast(data, root)
    assert data[0] == root and (np.diff(data) == round).all()
    each = LARGE // n
    got = np.empty(each * n, "i8")
    comm.Alltoall(np.repeat([round * n * me + other for other in range(n)], each), got)
    assert (got == np.repeat([round * n * other + me for other in range(n)], each)).all()
    some = comm.Split((me + round) % 2, -me)
    pair = [r for r in reversed(range(n)) if (r + me) % 2 == 0]
    assert some.allgather((me, round)) == [(r, round) for r in pair]
    twin = some.Dup()
    assert twin.scan(round) == round * (twin.rank + 1)
    some.Free()
    twin.Free()
    comm.Barrier()
killer.join()
np.save(f"{sys.argv[1]}/struck-{me}.npy", len(struck))
maps, deadline = 2 * "comm-", time.monotonic() + 10
while maps.count("comm-") > 1 and time.monotonic() < deadline:  # the world's is there
    with open(f"/proc/{agent()}/maps") as file:
        maps = file.read()
assert maps.count("comm-") <= 1, maps
shared = os.listdir(os.path.join(os.environ["FTRMA_JOB"], os.uname().nodename))
comm.Barrier()
assert [name for name in shared if name.startswith("comm-")] == ["comm-0000000000000001"], shared
""".replace("KILLER", KILLER)


@pytest.mark.parametrize("seed", tiers(range(4), full=["0"]))
def test_agents_die_amid_collective_calls(seed: int) -> None:
    """Law: what each call gives is what arithmetic says, no rank is lost, and of communicators that
    are gone nothing is left, neither in files nor in the agents."""
    result = run_on_nodes(COLLECTIVES.replace("SEED", str(seed)), SLOTS, "--interval", "never",
                          timeout=90)
    assert result.status == 0 and not result.stats["failures"], result
    assert [int(n) for n in result.of_slots("struck", SLOTS)] == [KILLS, 0, KILLS, 0], result


STOPPED = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
comm, results = MPI.COMM_WORLD, Path(sys.argv[1])
me, dice, due, turns, struck = comm.rank, None, [], None, []
KILLER
def is_there(name, seconds):
    deadline = time.monotonic() + seconds
    while not (results / name).exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    return (results / name).exists()

def look():  # rank 0 is in it, and finds all others arrived
    found.append(is_there("entered", 10) and not is_there("left", 0.3))
    os.kill(stopped, signal.SIGCONT)

comm.Barrier()
(results / f"out-{me}").touch()
found = []
if me == 3:
    for rank in range(4):  # who is still in the barrier waits for this agent there
        assert is_there(f"out-{rank}", 10), rank
    stopped = agent()
    os.kill(stopped, signal.SIGSTOP)
    looking = threading.Thread(target=look)
    looking.start()
    (results / "stopped").touch()
if me == 0:
    assert is_there("stopped", 10)
    (results / "entered").touch()
comm.CALL
if me == 0:
    (results / "left").touch()
if me == 3:
    looking.join()
    assert found == [True], found
comm.Barrier()
""".replace("KILLER", KILLER)


@pytest.mark.full
@pytest.mark.parametrize("call", ["Barrier()", "Bcast(np.zeros(1), 3)"])
def test_nobody_goes_on_before_the_arrival_is_on_all_nodes(call: str) -> None:
    """Law: until an agent has said that a rank's arrival is there, the rank is in the call, though
    all others have arrived: its death must not take the arrival along."""
    result = run_on_nodes(STOPPED.replace("CALL", call), SLOTS, "--interval", "never")
    assert result.status == 0, result


@pytest.mark.nightly
def test_a_node_whose_agents_do_not_come_up_is_given_up() -> None:
    """Law: it is told, the node's first process ends, and the job goes on from its checkpoint."""
    text = """
import os, signal, sys
import numpy as np
import ftrma
from ftrma import MPI
from pathlib import Path
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(64, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
state = ftrma.protect("s", step=0)
first = state.step
while state.step < 8:
    win.Fence()
    win.Put(np.array([state.step + 1]), (comm.rank + 1) % comm.size)
    win.Fence()
    state.step += 1
    ftrma.safepoint()
    if state.step == 4 and not comm.rank and not state.restored:
        Path(os.environ["FTRMA_JOB"], os.uname().nodename, "ledger").unlink()
        for name in os.listdir("/proc"):
            said = name.isdigit() and Path("/proc", name, "cmdline").read_bytes()
            if said and b"ftrma.launch.agent" in said:
                os.kill(int(name), signal.SIGKILL)
np.savez(f"{sys.argv[1]}/cells-{comm.rank}.npz", cells=cells, first=first)
"""
    result = run_on_nodes(text, SLOTS, "--interval", "0", timeout=60)
    assert result.status == 0, result
    assert "agents of 127.0.1.1 end as soon as they are started" in result.stderr, result
    (recovery,) = result.stats["recoveries"]
    assert recovery["kind"] == "relaunch", result
    for arrays in result.of_slots("cells", SLOTS):
        assert arrays["cells"].tolist() == [8, *[0] * 7] and 0 < arrays["first"] <= 4


FOREIGN = """
import os, signal, sys, time
from pathlib import Path
from ftrma import MPI
comm, results = MPI.COMM_WORLD, Path(sys.argv[1])
(me, dice), due, turns, struck = (comm.rank, None), [], None, []
KILLER
comm.Barrier()
if me == 2:
    (results / "queue.py").write_text("raise SystemExit('not the one of Python')")
    os.chdir(results)
    os.environ["PYTHONHOME"] = "/nowhere"
    first = agent()
    os.kill(first, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while agent() in (None, first) and time.monotonic() < deadline:
        time.sleep(0.01)
    pid = os.fork()
    if not pid:
        os._exit(3)
    assert os.wait() == (pid, 3 << 8)
    try:
        raise AssertionError(os.wait())
    except ChildProcessError:
        pass
print(comm.allreduce(1), flush=True)
comm.Barrier()
if me == 2:
    (results / "queue.py").unlink()
""".replace("KILLER", KILLER)


@pytest.mark.full
def test_an_agent_is_not_the_programs_business() -> None:
    """Law: neither the program's directory and environment reach the agent, nor is it a child that
    the program's wait() finds."""
    result = run_on_nodes(FOREIGN, SLOTS, "--interval", "never")
    assert result.status == 0 and result.stdout.split() == [str(SLOTS)] * SLOTS, result


THREADS = """
import threading, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me = comm.rank
win, other = (MPI.Win.Allocate(8, 8, comm=comm) for _ in range(2))
locked, told = (np.frombuffer(w.tomemory(), "i8") for w in (win, other))
locked[:] = told[:] = 0
one, seen = np.ones(1, "i8"), np.zeros(1, "i8")
comm.Barrier()

def wait():
    win.Lock(2)
    win.Accumulate(one, 2)
    win.Unlock(2)

for round in range(1, 21):
    if me == 3:
        win.Lock(2)
    comm.Barrier()
    if me == 0:
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.01)
        other.Lock(3)
        other.Accumulate(one, 3)
        other.Unlock(3)
        waiting.join()
    if me == 3:  # until rank 0 has said so, whose other thread waits for this lock
        while seen[0] != round:
            other.Lock(3)
            other.Get(seen, 3)
            other.Unlock(3)
        win.Unlock(2)
    comm.Barrier()
assert (locked[0], told[0]) == (20 * (me == 2), 20 * (me == 3))
other.Free()
win.Free()
"""


@pytest.mark.full
def test_a_thread_that_waits_for_a_lock_holds_no_other_up() -> None:
    """Law: the holder of the lock waits for another thread of the one that wants it."""
    result = run_on_nodes(THREADS, SLOTS, "--interval", "never", timeout=30)
    assert result.status == 0, result


CHANGES = """
import threading
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(16, 1, comm=comm)
words = np.frombuffer(win.tomemory(), "i8")
words[:] = 0
comm.Barrier()
win.Lock_all()

def add():
    short = np.ones(1, "i2")
    for _ in range(300):
        win.Accumulate(short, 3, (0, 1, MPI.SHORT))
        win.Flush(3)

threads = [threading.Thread(target=add) for _ in range(2 * (me == 0))]
for thread in threads:
    thread.start()
one, old = np.ones(1, "i8"), np.zeros(1, "i8")
for _ in range(300):
    win.Fetch_and_op(one, old, 3, 8)
    win.Flush(3)
for thread in threads:
    thread.join()
win.Unlock_all()
comm.Barrier()
if me == 3:
    print(*words)
win.Free()
"""


@pytest.mark.full
def test_threads_change_one_after_another() -> None:
    """Law: a change that the agent cannot compute is one thread's at a time, too, and an atomic
    of another one waits for its end."""
    result = run_on_nodes(CHANGES, SLOTS, "--interval", "never", timeout=60)
    assert result.status == 0 and result.stdout.split() == ["600", str(300 * SLOTS)], result
