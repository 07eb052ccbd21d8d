"""Jobs over several nodes: any death ends the launch, and the job is launched again.

Law, where nothing else is said: the values that the program computes and its output are those of a
run without failure; no process and no file is left on any node (`jobs` looks after that).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from jobs import FILES, FTRMA, MARK, SHARED, Result, kill_marked, marked, run_job
from nodes import (
    NODES,
    before_daemons,
    launcher_options,
    remove_fake_ssh,
    run_on_nodes,
    shared_of,
    struck,
    why_not,
)
from programs import deaths, kinds

SLOTS = 4  # and a checksum rank and a spare: two processes on each of three nodes
STEPS = 12

RING = """
import os, socket, sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
window = MPI.Win.Allocate(8 * n, 8, comm=comm)
cells = np.frombuffer(window.tomemory(), "i8")
own = np.zeros(2, "i8")
counter = MPI.Win.Create(own, 8, comm=comm)
cells[:] = 0
state = ftrma.protect("ring", step=0)
while state.step < STEPS:
    window.Fence()
    window.Put(np.array([100 * me + state.step]), (me + 1) % n, (me, 1, MPI.INT64_T))
    window.Fence()
    counter.Lock(0)
    counter.Accumulate(np.array([cells.sum()]), 0)
    counter.Unlock(0)
    state.step += 1
    ftrma.safepoint()
comm.Barrier()
print(f"slot {me} on {socket.gethostname()} is done")
np.savez(f"{sys.argv[1]}/cells-{me}.npz", cells=cells, own=own)
""".replace("STEPS", str(STEPS))


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def assert_ring(result: Result, moved: Mapping[int, str] = MappingProxyType({})) -> None:
    """The result is what arithmetic says; `moved`: where slots are at the end, if not at home."""
    assert result.status == 0, result
    found = result.of_slots("cells", SLOTS)
    for slot, arrays in enumerate(found):
        left = (slot - 1) % SLOTS
        expected = np.zeros(SLOTS, "i8")
        expected[left] = 100 * left + STEPS - 1
        assert arrays["cells"].tolist() == expected.tolist()
    total = sum(100 * left + step for left in range(SLOTS) for step in range(STEPS))
    assert found[0]["own"].tolist() == [total, 0]
    for slot in range(SLOTS):
        host = moved.get(slot, NODES[slot // 2])
        assert result.stdout.count(f"slot {slot} on {host} is done\n") == 1, result


def test_windows_over_nodes() -> None:
    """Puts, accumulates, fences and locks reach other nodes; every node's output comes whole."""
    result = run_on_nodes(RING, SLOTS)
    assert_ring(result)
    assert not result.stats["failures"] and not result.stats["recoveries"]
    assert result.stderr == "", result
    assert all(log["peak_bytes"] > 0 for log in result.stats["log"]), result


COUNTERS = """
import json, sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
window = MPI.Win.Allocate(8 * n, 8, comm=comm)
one = np.ones(1, "i8")
for step in range(3):
    window.Fence()
    window.Put(one, (me + 1) % n)
    window.Fence()
window.Fence(MPI.MODE_NOSUCCEED)
for turn in range(n):
    for target in range(n) if turn == me else ():
        window.Lock(target, MPI.LOCK_EXCLUSIVE if target % 2 else MPI.LOCK_SHARED)
        window.Accumulate(one, target)
        window.Flush(target)
        window.Unlock(target)
    if turn == me:
        window.Lock_all()
        window.Unlock_all()
    comm.Barrier()
print(me, json.dumps(ftrma.stats()["windows"]))
window.Free()
"""


@pytest.mark.nightly
def test_counters_are_those_of_one_node() -> None:
    """Law: EC, GC, SC and GNC do not depend on where the ranks are."""
    over = run_on_nodes(COUNTERS, SLOTS, "--interval", "never")
    on_one = run_job(COUNTERS, SLOTS, "--interval", "never")
    assert over.status == on_one.status == 0, (over, on_one)
    assert sorted(over.stdout.splitlines()) == sorted(on_one.stdout.splitlines())
    assert '"sc": [8, 8, 8, 8]' in on_one.stdout, on_one


SUMS = """
import sys, time
from pathlib import Path
import numpy as np
import ftrma
from ftrma import MPI
comm, results = MPI.COMM_WORLD, Path(sys.argv[1])
me, n = comm.rank, comm.size
state = ftrma.protect("sums", step=0, wrong=0)
(results / f"in-{state.step}-{me}").touch()
if me == 0:  # the others are in the first call by then
    while not all((results / f"in-{state.step}-{other}").exists() for other in range(n)):
        time.sleep(0.001)
half = comm.Split(me // 2)
win = MPI.Win.Allocate(8, 8, comm=comm)
cell = np.frombuffer(win.tomemory(), "i8")
across = comm.group.Incl([(me + n // 2) % n])
while state.step < STEPS:
    for turn in range(20):
        value = 1000 * state.step + turn
        if me < n // 2:
            win.Start(across)
            win.Put(np.array([value]), (me + n // 2) % n)
            win.Complete()
        else:
            win.Post(across)
            win.Wait()
            state.wrong += cell[0] != value
        state.wrong += comm.allreduce(value + me) != n * value + n * (n - 1) // 2
        state.wrong += half.allreduce(value) != half.size * value
    state.step += 1
    ftrma.safepoint()
np.savez(f"{sys.argv[1]}/sums-{me}.npz", wrong=state.wrong, restored=state.restored)
""".replace("STEPS", str(STEPS))


@pytest.mark.full
def test_a_relaunch_finds_nothing_of_the_launch_before() -> None:
    """Law: where a launch goes on on the same nodes, collective calls and Wait wait for the ranks
    of this one."""
    options = ("--spares", "0", "--interval", "0", "--kill", "1@safepoint:7")
    result = run_on_nodes(SUMS, SLOTS, *options, timeout=60)
    assert result.status == 0 and kinds(result) == ["relaunch"], result
    for arrays in result.of_slots("sums", SLOTS):
        assert arrays["wrong"] == 0 and arrays["restored"]


@pytest.mark.full
def test_much_output_comes_whole() -> None:
    """Output of one rank arrives unharmed and in order, however much it is."""
    text = """
import sys
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 3:
    assert not sys.stdin.read()
    for i in range(40000):
        print(i, "x" * (i % 97))
"""
    result = run_on_nodes(text, SLOTS)
    assert result.status == 0, result
    assert result.stdout == "".join(f"{i} {'x' * (i % 97)}\n" for i in range(40000))


@pytest.mark.full
def test_error_of_all_slots_is_reported_once() -> None:
    """One traceback, from whoever is first, and status 1."""
    text = "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nraise KeyError('lost thing')\n"
    result = run_on_nodes(text, SLOTS)
    assert (result.status, result.stderr.count("Traceback")) == (1, 1), result


@pytest.mark.full
def test_abort_has_its_status() -> None:
    """Abort of one slot ends the others, who wait for it."""
    text = "from mpi4py import MPI\nc = MPI.COMM_WORLD\nc.rank == 2 and c.Abort(9)\nc.Barrier()\n"
    result = run_on_nodes(text, SLOTS)
    assert result.status == 9 and "Traceback" not in result.stderr, result


@pytest.mark.full
def test_without_spares_deaths_of_slots_relaunch() -> None:
    """The story names who died where, each once: a rule that struck does not strike again."""
    rules = ("3@fence:9", "0@lock-held:8")  # in the order in which they strike
    kills = [word for rule in rules for word in ("--kill", rule)]
    result = run_on_nodes(RING, SLOTS, "--spares", "0", *kills)
    assert_ring(result)
    failures, recoveries = struck(result), result.stats["recoveries"]
    assert len(failures) == len(recoveries) == len(rules), result.stats["failures"]
    found = {f"{f['slot']}@{f['place']}": (f, r) for f, r in zip(failures, recoveries, strict=True)}
    for rule in rules:
        slot = int(rule[0])
        failure, recovery = found[rule.split(":")[0]]
        assert failure["host"] == NODES[slot // 2]
        assert recovery["kind"] == "relaunch" and slot in recovery["slots"]
        assert recovery["reason"] == "no spare is left to take a dead rank's place"
        assert f"ftrma: {recovery['reason']}; launching" in result.stderr
        assert 0 < recovery["seconds"] < 30
        assert sum(recovery["phases"].values()) == pytest.approx(recovery["seconds"])
    told = sum(len(r["slots"]) for r in recoveries)
    assert told == len(result.stats["failures"])


SEEDS = """
import json, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
found = comm.gather([hash("some words"), list({f"word {n}" for n in range(20)})])
if comm.rank == 0:
    with open(f"{sys.argv[1]}/found.json", "w") as file:
        json.dump(found, file)
"""


@pytest.mark.nightly
def test_sets_have_one_order_on_all_nodes() -> None:
    """Law: what a replay executes again does not depend on the seed of Python's hashes, on any
    node. The launcher comes up in whatever time it takes."""
    before_daemons("sleep 6")
    try:
        result = run_on_nodes(SEEDS, SLOTS)
    finally:
        before_daemons("")
    assert result.status == 0, result
    found = result.results["found"]
    assert len(found) == SLOTS and all(other == found[0] for other in found[1:]), found


OF_SOME_MEMORY = """
import os, socket
real, host = os.sysconf, socket.gethostname()
def sysconf(name):
    return real(name) + (int(host[-1]) if name == "SC_PHYS_PAGES" and host in NODES else 0)
os.sysconf = sysconf
""".replace("NODES", str(NODES))


@pytest.mark.full
def test_nodes_of_different_memory(tmp_path: Path) -> None:
    """Law: nodes need not have the same memory, to the page, which those of one kind seldom have:
    checkpoints and what is computed from them are the same, in place and where the job is launched
    again."""
    (tmp_path / "sitecustomize.py").write_text(OF_SOME_MEMORY)
    before_daemons(f"export PYTHONPATH={tmp_path}")
    try:
        result = run_on_nodes(RING, SLOTS, "--interval", "0", "--kill", "1@fence:6", "--kill",
                              "2@fence:16", timeout=60, files=tmp_path)
    finally:
        before_daemons("")
    assert_ring(result, {1: NODES[2]})
    assert kinds(result) == ["rollback", "relaunch"], result


@pytest.mark.full
def test_death_of_a_node_relaunches() -> None:
    """All processes of a node at once are one failure, told as one. A program that sees errors of
    the library because of it is launched again silently."""
    text = """
import os, signal, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
pids = comm.allgather(os.getpid())
flag = f"{sys.argv[1]}/struck.json"
for step in range(30):
    if step == 9 and comm.rank == 3 and not os.path.exists(flag):
        open(flag, "w").write("1")
        os.kill(pids[2], signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    comm.Allreduce(bytearray(8), bytearray(8), op=MPI.BOR)
if comm.rank == 0:
    print("done")
"""
    result = run_on_nodes(text, SLOTS)
    assert result.status == 0 and result.stdout == "done\n", result
    assert deaths(result) == [("slot", 2, "unknown"), ("slot", 3, "unknown")]
    assert kinds(result) == ["relaunch"] and result.stats["recoveries"][0]["slots"] == [2, 3]
    assert f"all processes on {NODES[1]} died" in result.stderr
    assert "Traceback" not in result.stderr, result


@pytest.mark.full
def test_relaunch_is_bounded() -> None:
    result = run_on_nodes(RING, SLOTS, "--spares", "0", "--kill", "1@fence:3",
                          "--max-relaunch", "0")
    assert result.status == 70, result
    assert "--max-relaunch" in result.stderr


@pytest.mark.parametrize(("number", "status"), [
    pytest.param(signal.SIGINT, 130, marks=pytest.mark.full),
    pytest.param(signal.SIGTERM, 143, marks=pytest.mark.nightly)])
def test_signals_leave_nothing(tmp_path: Path, number: int, status: int) -> None:
    """Ctrl-C and SIGTERM end everything on all nodes, given once or twice."""
    if why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    program, started = tmp_path / "program.py", tmp_path / "started"
    program.write_text(
        "import time, sys\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
        f"MPI.COMM_WORLD.rank or open({str(started)!r}, 'w').close()\n"
        "while True:\n    MPI.COMM_WORLD.Barrier()\n    time.sleep(0.01)\n"
    )
    mark = f"nodes-{number}-{os.getpid()}"
    job = subprocess.Popen(
        [FTRMA, "run", "-n", str(SLOTS), "--mpirun", launcher_options(), str(program)],
        env={**os.environ, MARK: mark, FILES: str(tmp_path)}, stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 20
        while not started.exists():
            assert time.monotonic() < deadline and job.poll() is None, "the job did not come up"
        places = [SHARED, *(shared_of(node) for node in NODES)]
        named = re.compile(rb"FTRMA_JOB=/dev/shm/([^\0]+)")
        (job_name,) = {
            m[1].decode()
            for pid in marked(mark)
            for m in named.finditer(Path(f"/proc/{pid}/environ").read_bytes())
        }
        assert all((place / job_name).exists() for place in places)
        job.send_signal(number)
        time.sleep(0.2)
        job.send_signal(number)  # impatience does not keep anything from being cleaned up
        assert job.wait(10) in (status, -number)  # the second may come when all is done
        assert not marked(mark)
        assert not any((place / job_name).exists() for place in places)
    finally:
        kill_marked(mark)


WARNED = """
import signal, sys
import numpy as np
from mpi4py import MPI
comm, got = MPI.COMM_WORLD, []
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, frame: got.append(number))
total = np.zeros(1, "i8")
comm.Barrier()
if comm.rank == 0:
    open(sys.argv[1], "w").close()
while total[0] < 2 * comm.size:
    comm.Allreduce(np.array([len(got)]), total)
print(comm.rank, *sorted(got))
"""


@pytest.mark.full
@pytest.mark.parametrize("several", [False, True], ids=["one node", "several"])
def test_signals_that_are_the_programs(tmp_path: Path, several: bool) -> None:
    """Signals by which batch systems warn come to the slots, and to nobody else."""
    if several and why_not():
        pytest.skip(f"nodes cannot be emulated here: {why_not()}")
    (tmp_path / "program.py").write_text(WARNED)
    mark, where = f"warned-{several}-{os.getpid()}", ["--mpirun", launcher_options()] * several
    job = subprocess.Popen(
        [FTRMA, "run", "-n", str(SLOTS), *where, str(tmp_path / "program.py"),
         str(tmp_path / "ready")],
        env={**os.environ, MARK: mark, FILES: str(tmp_path)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < deadline and job.poll() is None, "the job did not come up"
            time.sleep(0.01)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            job.send_signal(number)
        out, err = job.communicate(timeout=20)
    finally:
        kill_marked(mark)
    assert job.returncode == 0, err
    both = f"{signal.SIGUSR1:d} {signal.SIGUSR2:d}"
    assert sorted(out.splitlines()) == [f"{slot} {both}" for slot in range(SLOTS)], out


@pytest.mark.full
def test_a_host_without_a_rank_keeps_nothing() -> None:
    """Law: a daemon of the launcher's is there, too, and when it ends so does what it needed."""
    words = launcher_options(NODES, 3).replace("ppr:3:node", "slot")
    result = run_on_nodes(RING, SLOTS, "--spares", "0", "--mpirun", words)
    assert result.status == 0 and NODES[2] not in result.stdout, result


def test_nodes_without_a_place_for_each_process() -> None:
    """Law: what may ail a launcher that does not say why is told, and no node keeps a file."""
    result = run_on_nodes(RING, SLOTS, nodes=NODES[:2])
    assert result.status == 70, result
    assert result.stderr.endswith(
        "the launcher died without saying why (exit status 213): is there a place for each of its "
        "6 processes on the hosts, and by the mapping, in --mpirun?\n"
    ), result
