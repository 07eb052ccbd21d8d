"""A process that ends itself is no failure: the program's own status and words, at once.

Law, where nothing else is said: the status is what the program gave, a line tells whose it was,
nobody is replaced, nothing is launched again, and it takes no longer than the program itself.
"""

from __future__ import annotations

import gzip
import json
import shlex
import signal
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_command, run_job
from nodes import run_on_nodes
from programs import kinds
from tiers import tiers

pytestmark = pytest.mark.full

PROGRAM = """
import ctypes, fcntl, os, signal, sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
how = sys.argv[2]
if how in ("all well", "well beside a death"):
    alive = open(f"{sys.argv[1]}/alive-{comm.rank}.txt", "w")
    fcntl.flock(alive, fcntl.LOCK_EX)  # as long as the process lives, which is entered once
win = MPI.Win.Allocate(64, 8, comm=comm)
for _ in range(3):
    win.Fence()
    win.Put(np.ones(1), (comm.rank + 1) % comm.size)
    win.Fence()
def wait_for_the_end_of(slot):
    with open(f"{sys.argv[1]}/alive-{slot}.txt") as file:
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.001)
if how == "all well":
    if comm.rank:
        wait_for_the_end_of(comm.rank - 1)
    open(f"{sys.argv[1]}/slot-{comm.rank}.json", "w").write("1")
    os._exit(0)
if comm.rank == 1:
    libc = ctypes.CDLL(None)
    if how == "os._exit":
        os._exit(7)
    elif how == "exit in C":
        libc.exit(7)
    elif how == "exit in a thread":
        import threading
        threading.Thread(target=lambda: os._exit(7)).start()
        time.sleep(60)
    elif how in ("well", "well beside a death"):
        os._exit(0)
    elif how == "segfault":
        ctypes.string_at(8)
    elif how == "faulthandler":
        import faulthandler
        faulthandler.enable()
        ctypes.string_at(8)
    elif how == "abort":
        os.abort()
    elif how == "SIGFPE":
        signal.raise_signal(signal.SIGFPE)
    elif how == "stack overflow":
        import resource, threading
        code = ctypes.CFUNCTYPE(None)
        recursion = code(lambda: recursion())
        sys.setrecursionlimit(10**9)
        recursion()
    elif how == "comm":
        comm.Set_errhandler(MPI.ERRORS_ARE_FATAL)
        assert comm.Get_errhandler() == MPI.ERRORS_ARE_FATAL
        comm.Send(np.zeros(1), 99)
    elif how == "dup":
        dup = MPI.COMM_SELF.Dup()
        dup.Set_errhandler(MPI.ERRORS_ARE_FATAL)
        dup.Send(np.zeros(1), 99)
    elif how == "win":
        win.Set_errhandler(MPI.ERRORS_ARE_FATAL)
        assert win.Get_errhandler() == MPI.ERRORS_ARE_FATAL
        win.Lock(0)
        win.Put(np.zeros(100), 0)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "signal from outside" and not os.path.exists(f"{sys.argv[1]}/once.json"):
        open(f"{sys.argv[1]}/once.json", "w").write("1")
        os.system(f"kill -SEGV {os.getpid()}")
        time.sleep(60)
    elif how == "file":
        file = MPI.File.Open(MPI.COMM_SELF, sys.argv[1] + "/x", MPI.MODE_CREATE | MPI.MODE_RDWR)
        file.Set_errhandler(MPI.ERRORS_ARE_FATAL)
        file.Seek(-1)
    elif how == "child":
        for handle in (comm, win):
            for fatal in (MPI.ERRORS_ARE_FATAL, MPI.ERRORS_ABORT):
                handle.Set_errhandler(fatal)
                for _ in range(20):
                    got = handle.Get_errhandler()
                    assert got == fatal
                    got.Free()
        handle.Set_errhandler(MPI.ERRORS_RETURN)
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        if os.fork() == 0:
            held = [open(os.devnull) for _ in range(30)]
            if os.fork() == 0:
                for file in held:
                    os.fstat(file.fileno())
                os._exit(0)
            os._exit(3 if os.wait()[1] == 0 else 4)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
        if os.fork() == 0:
            os._exit(3)
        os.wait()
        if os.fork() == 0:
            ctypes.string_at(8)
        os.wait()
if how == "well beside a death" and comm.rank == 2:
    wait_for_the_end_of(1)
    os.kill(os.getpid(), signal.SIGKILL)
win.Fence()
open(f"{sys.argv[1]}/slot-{comm.rank}.json", "w").write("1")
"""
RAW_ERR_RANK = 6  # the status of the program under plain mpirun


def quiet(result: Result) -> None:
    assert not result.stats["recoveries"] and "launching" not in result.stderr, result
    assert "Traceback" not in result.stderr, result


@pytest.mark.parametrize(
    "how", ["os._exit", "exit in C", pytest.param("exit in a thread", marks=pytest.mark.nightly)],
)
def test_a_status_is_the_jobs(how: str) -> None:
    result = run_job(PROGRAM, 3, args=[how], timeout=20)
    quiet(result)
    assert result.status == 7, result
    assert "ftrma: slot 1 ended itself with status 7\n" in result.stderr, result


@pytest.mark.parametrize(
    ("how", "number"),
    [("segfault", signal.SIGSEGV), ("faulthandler", signal.SIGSEGV), ("abort", signal.SIGABRT),
     pytest.param("SIGFPE", signal.SIGFPE, marks=pytest.mark.nightly),
     pytest.param("stack overflow", signal.SIGSEGV, marks=pytest.mark.nightly)],
)
def test_a_crash_is_the_programs(how: str, number: signal.Signals) -> None:
    result = run_job(PROGRAM, 3, args=[how], timeout=20)
    quiet_but_python = result.stderr.replace("Fatal Python error", "")
    assert not result.stats["recoveries"] and "launching" not in quiet_but_python, result
    assert result.status == 128 + number, result
    assert f"ftrma: slot 1 crashed: {number.name} (" in result.stderr, result
    if how == "faulthandler":
        assert "Fatal Python error" in result.stderr, result


@pytest.mark.parametrize(
    ("how", "object_", "words"),
    [("comm", "communicator", "MPI_Send on a communicator"),
     pytest.param("dup", "communicator", "invalid rank", marks=pytest.mark.nightly),
     ("file", "file", "MPI_File_seek on a file"),
     ("win", "window", "leaves its window of 64 bytes")],
)
def test_a_fatal_mpi_error_is_shown(how: str, object_: str, words: str) -> None:
    """Law: with MPI_ERRORS_ARE_FATAL the error's class is the status, as under plain mpirun, and
    its text is shown."""
    result = run_job(PROGRAM, 3, args=[how], timeout=20)
    quiet(result)
    assert "MPI_ERRORS_ARE_FATAL" in result.stderr and words in result.stderr, result
    assert f"on a {object_} with" in result.stderr, result
    assert result.status == RAW_ERR_RANK or how in ("win", "file"), result
    assert 0 < result.status < 100, result


def test_all_may_leave_well_each_at_its_time() -> None:
    result = run_job(PROGRAM, 3, args=["all well"], timeout=20)
    quiet(result)
    assert result.status == 0 and not result.stderr, result
    assert result.of_slots("slot", 3) == [1, 1, 1]


def test_one_who_leaves_well_is_told_when_others_wait() -> None:
    result = run_job(PROGRAM, 3, args=["well"], timeout=30)
    quiet(result)
    assert result.status == 70, result
    assert "slot 1 ended by os._exit(0) or exit(0) and the other slots wait" in result.stderr


def test_a_signal_from_outside_is_a_failure() -> None:
    """Law: the same signal, sent by somebody else, is repaired."""
    result = run_job(PROGRAM, 3, args=["signal from outside"], timeout=30)
    assert result.status == 0 and len(result.stats["recoveries"]) == 1, result


SITE = """
import os, sys, threading, time

def crash():
    while not getattr(sys.modules.get("ftrma.program.session"), "current", None):
        time.sleep(0.01)  # it has not joined the job
    events = os.path.join(os.environ["FTRMA_JOB"], "events")
    while not os.path.exists(events) or '"version": 3' not in open(events).read():
        time.sleep(0.01)
    os.abort()

if os.environ.get("OMPI_COMM_WORLD_RANK") == "3":
    threading.Thread(target=crash, daemon=True).start()
"""
BUSY = """
import os, time
import numpy as np
import ftrma
from ftrma import MPI
win = MPI.Win.Allocate(8, 8, comm=MPI.COMM_WORLD)
state = ftrma.protect("s", step=0)
while state.step < 60:
    ftrma.safepoint()
    win.Fence()
    state.step += 1
    time.sleep(0.05)
if MPI.COMM_WORLD.rank == 0:
    files = sorted(os.listdir(os.environ["FTRMA_JOB"]))
    print(*(file for file in files if file.startswith(("vault", "lost"))))
"""


def test_a_checksum_rank_that_crashes_is_replaced(tmp_path: Path) -> None:
    """Law: who is no slot runs nothing of the program's; its crash is a failure like any other, and
    its memory is freed."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    result = run_job(BUSY, 3, "--interval", "0", env={"PYTHONPATH": str(tmp_path)})
    assert result.status == 0 and len(result.stats["reseats"]) == 1, result
    assert "checksum 0 died; a spare rebuilt its parity" in result.stderr
    assert result.stdout == "vault-0 vault-1 vault-2 vault-4\n", result


def test_a_rank_that_dies_at_once_ends_the_job_soon(tmp_path: Path) -> None:
    """Law: a process that never comes up is told in words, long before the limit for coming up."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nif os.environ.get('OMPI_COMM_WORLD_RANK') == '3':\n    os.abort()\n")
    result = run_job(BUSY, 3, "--max-relaunch", "1", env={"PYTHONPATH": str(tmp_path)}, timeout=40)
    assert result.status == 70
    died = "a process died before it had come up"
    assert f"{died}; launching the job again from the start" in result.stderr, result
    assert f"{died}, and the job was launched again 1 times already" in result.stderr, result


def test_a_death_beside_a_good_end_over_several_nodes() -> None:
    """Law: the supervisor does not wait for who is gone."""
    result = run_on_nodes(PROGRAM, 4, "--max-relaunch", "0", args=["well beside a death"],
                          timeout=30)
    assert result.status == 70, result


def test_a_childs_end_is_its_own() -> None:
    """Law: a child that a slot has forked exits and crashes without the job noticing, and its own
    children find their files open; a fatal handler is got as what was set, and freed as often."""
    result = run_job(PROGRAM, 3, args=["child"], timeout=20)
    assert result.status == 0 and not result.stats["failures"], result


@pytest.mark.parametrize(
    "options",
    [["--policy", "rollback"], ["--spares", "5"], pytest.param([], marks=pytest.mark.nightly),
     pytest.param(["--policy", "causal"], marks=pytest.mark.nightly)], ids=str,
)
def test_killed_at_the_same_place_again_and_again(options: list[str]) -> None:
    """Law: three times, then the job ends with 137 and says so, whatever is left."""
    result = run_job(PROGRAM, 3, *options, args=["killed"], timeout=30)
    assert result.status == 137 and len(result.stats["failures"]) == 3, result
    assert "slot 1 was killed 3 times running at the same place" in result.stderr, result


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [("os._exit", 7, "slot 1 ended itself with status 7"),
     pytest.param("segfault", 139, "slot 1 crashed: SIGSEGV", marks=pytest.mark.nightly),
     pytest.param("comm", 6, "invalid rank", marks=pytest.mark.nightly)],
)
def test_over_several_nodes(how: str, status: int, words: str) -> None:
    result = run_on_nodes(PROGRAM, 4, args=[how], timeout=30)
    quiet(result)
    assert result.status == status and words in result.stderr, result


def test_all_may_leave_well_over_several_nodes() -> None:
    result = run_on_nodes(PROGRAM, 4, args=["all well"], timeout=30)
    assert result.status == 0, result
    assert result.of_slots("slot", 4) == [1, 1, 1, 1]


BESIDE_A_DEATH = """
import os, signal, sys
import numpy as np
import ftrma
from mpi4py import MPI
comm, directory = MPI.COMM_WORLD, sys.argv[1]
pids = comm.allgather(os.getpid())
ftrma.protect("it", step=0)
ftrma.safepoint()
if comm.rank == 0 and not os.path.exists(f"{directory}/struck"):
    open(f"{directory}/struck", "w").close()
    os.kill(pids[2], signal.SIGKILL)
    raise ValueError("what a library makes of a death")
comm.Barrier()
np.savez(f"{directory}/slot-{comm.rank}.npz", done=1)
"""


@pytest.mark.parametrize("run", [
    pytest.param(run_job, id="one node"),
    pytest.param(partial(run_on_nodes, in_turn=2), id="over several nodes")])
def test_an_error_that_a_death_brings(run: Callable[..., Result]) -> None:
    """Law: who asks whether its error is the job's takes part in the repair meanwhile; if all go
    back the error was none."""
    result = run(BESIDE_A_DEATH, 4, timeout=40)
    assert result.status == 0 and kinds(result) == ["rollback"], result
    assert [int(found["done"]) for found in result.of_slots("slot", 4)] == [1] * 4
    assert "slot 0's program raised ValueError beside it" in result.stderr, result
    assert "Traceback" not in result.stderr, result




# Files that nobody closes, in the main module, in another one and in C; what the main module holds
# is let go of at the end.
LEFT_OPEN = """
import atexit, ctypes, gzip, sys, threading, time, zipfile
from mpi4py import MPI
me = MPI.COMM_WORLD.rank
how, directory = sys.argv[2:]
where = f"{directory}/{me}"
sys.path.insert(0, directory)
import other
other.file.write("whole")
text, lines = open(f"{where}.text.txt", "w"), gzip.open(f"{where}.gz", "wt")
text.write("whole")
lines.write("whole")
archive = zipfile.ZipFile(f"{where}.zip", "w")
archive.writestr("name", "whole")
libc = ctypes.CDLL(None)
libc.fputs.argtypes, libc.fopen.restype = [ctypes.c_char_p, ctypes.c_void_p], ctypes.c_void_p
libc.fputs(b"whole", libc.fopen(f"{where}.c.txt".encode(), b"w"))

class Held:
    def __del__(self, print=print, me=me):
        print("gone", me)

def goes_on():
    while True:
        text.tell()
        time.sleep(0.001)

held = Held()
threading.Thread(target=goes_on, daemon=True).start()
atexit.register(print, "bye", me)
MPI.COMM_WORLD.Barrier()
if how == "raises" and me == 1:
    sys.excepthook = lambda kind, error, tb: print("hook:", error, file=sys.stderr)
    raise ValueError("mine")
if how == "status" and me == 1:
    sys.exit(3)
if how != "well":
    time.sleep(60)
"""


@pytest.mark.parametrize(("how", "status"), [("well", 0), ("status", 3), ("raises", 1)])
def test_what_is_left_open_is_whole(tmp_path: Path, how: str, status: int) -> None:
    """Law: a process that comes to its program's end does what Python does at its own: functions of
    atexit run, nothing in buffers is lost, and what the program holds is finalized."""
    (tmp_path / "other.py").write_text(
        "import __main__\nfile = open(__main__.where + '.other.txt', 'w')\n")
    result = run_job(LEFT_OPEN, 2, args=[how, str(tmp_path)])
    assert result.status == status, result
    ended = (0, 1) if how == "well" else (1,)
    for me in ended:
        assert f"bye {me}\n" in result.stdout and f"gone {me}\n" in result.stdout, result
        for name in ("text", "other", "c"):
            assert (tmp_path / f"{me}.{name}.txt").read_text() == "whole", name
        assert gzip.decompress((tmp_path / f"{me}.gz").read_bytes()) == b"whole"
        assert zipfile.ZipFile(tmp_path / f"{me}.zip").read("name") == b"whole"
    assert result.stderr == ("hook: mine\n" if how == "raises" else ""), result


# Its object's last words need other names of the module.
LAST_WORDS = """
import json, os, sys, threading, time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank

class Held:
    def __del__(self):
        sys.stdout.write(json.dumps({"gone": rank}) + chr(10))

hook = threading.Event()

def ends_well(kind, error, tb):
    hook.set()
    sys.exit(0)

def tell():
    hook.wait()
    seen = 0
    while seen < 200:  # behind the hook the error is the job's no more
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame and frame.f_code is not ends_well.__code__:
            frame = frame.f_back
        seen = 0 if frame else seen + 1
        time.sleep(0.001)
    open(ended, "w").write("1")

ended = f"{sys.argv[1]}/ended.json"
first = held = Held()
if rank == 0 and sys.argv[2] == "one well":
    sys.excepthook = ends_well
    threading.Thread(target=tell, daemon=True).start()
    raise ValueError("mine")
if rank == 1 and sys.argv[2] == "hook that aborts":
    sys.excepthook = lambda kind, error, tb: MPI.COMM_WORLD.Abort(7)
    raise ValueError("mine")
if sys.argv[2] == "one well":
    while not os.path.exists(ended):
        time.sleep(0.001)
    raise ValueError("mine")
if rank == 1 and sys.argv[2] == "hook that exits":
    sys.excepthook = lambda kind, error, tb: sys.exit(5)
    raise ValueError("mine")
if rank == 1 and sys.argv[2] == "hook that fails":
    sys.excepthook = lambda kind, error, tb: 1 / 0
    raise ValueError("mine")
if rank == 1 and sys.argv[2] == "interrupted":
    sys.excepthook = lambda kind, error, tb: print(kind.__name__, file=sys.stderr)
    raise KeyboardInterrupt
if rank == 0 and sys.argv[2] != "well":
    MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize(("how", "status"), [
    ("well", 0), ("hook that exits", 5), ("hook that fails", 1), ("hook that aborts", 7),
    ("one well", 1), ("interrupted", 130)])
def test_last_words(how: str, status: int) -> None:
    """Law: what is finalized at the end finds the module whole; a hook for errors may end the
    process, or fail itself, as in Python."""
    result = run_job(LAST_WORDS, 2, args=[how], timeout=30)
    assert result.status == status, result
    # A slot that has ended well waits for the others.
    gone = {"well": [0, 1], "hook that aborts": []}.get(how, [1])
    assert sorted(result.stdout.splitlines()) == [f'{{"gone": {me}}}' for me in gone], result
    said = [line for line in result.stderr.splitlines() if not line.startswith(" ")]
    mine = ["Traceback (most recent call last):", "ValueError: mine"]
    aborted = ["ftrma: slot 1 called MPI_Abort with status 7"]
    assert said == {"one well": mine, "hook that aborts": aborted, "hook that fails": [
        "Error in sys.excepthook:", "Traceback (most recent call last):",
        "ZeroDivisionError: division by zero", "", "Original exception was:", *mine,
    ], "interrupted": ["KeyboardInterrupt"]}.get(how, []), result


NO_ERROR_STREAM = {
    "an error": ("raise ValueError('mine')", (), 1),
    "a rollback": ("", ("--policy", "rollback", "--kill", "1@fence:3"), 0),
    "a replay": ("", ("--kill", "1@fence:3"), 0),
    "closed by the program": ("sys.stderr.close(); sys.stdout.close(); sys.exit(3)", (), 3),
    "none in the program": ("sys.stderr = sys.stdout = None; sys.exit(3)", (), 3),
}


@pytest.mark.parametrize("what", tiers(NO_ERROR_STREAM, full=["an error", "a replay"]))
def test_nobody_needs_stderr(tmp_path: Path, what: str) -> None:
    """Law: what cannot be said changes nothing, neither the status nor a recovery."""
    end, options, status = NO_ERROR_STREAM[what]
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, numpy as np\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
        "win = MPI.Win.Allocate(8, 8, comm=comm)\nfor i in range(6):\n    win.Fence()\n"
        "    win.Put(np.array([i]), (comm.rank + 1) % comm.size)\nwin.Fence()\n"
        f"assert np.frombuffer(win.tomemory(), 'i8') == 5\n{end}\n")
    stats = tmp_path / "stats.json"
    words = [FTRMA, "run", "-n", "2", "--stats", str(stats), *options, str(program)]
    result = run_command(["bash", "-c", f"exec {shlex.join(words)} 2>/dev/full"], timeout=30)
    assert result.status == status, result
    kinds = [r["kind"] for r in json.loads(stats.read_text())["recoveries"]]
    assert kinds == {"a rollback": ["rollback"], "a replay": ["causal"]}.get(what, []), result


FORKS = """
import os, sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8, 8, comm=comm)
ends = ("returns", "exits", "says", "raises", "is interrupted")
for how in ends:
    child = os.fork()
    if not child:
        if how == "exits":
            sys.exit(7)
        if how == "says":
            sys.exit(f"child of {comm.rank}")
        if how == "raises":
            raise ValueError(f"in the child of {comm.rank}")
        if how == "is interrupted":
            raise KeyboardInterrupt
        break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == {"returns": 0, "exits": 7, "is interrupted": -2}.get(how, 1), (how, status)
else:
    for step in range(20):
        win.Fence()
    print("right")
"""


def test_a_forked_child_ends_as_in_python() -> None:
    """Law: a process that the program has forked and that comes to the program's end has its status
    and its words, and is not the slot, which goes on and can be replaced."""
    result = run_job(FORKS, 3, "--kill", "1@fence:12", timeout=40)
    assert result.status == 0 and result.stdout.split() == ["right"] * 3, result
    for slot in (0, 2):
        assert f"child of {slot}\n" in result.stderr
        assert f"ValueError: in the child of {slot}" in result.stderr


BEGINS = """
import sys
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
assert MPI.Init_thread(MPI.THREAD_MULTIPLE) == MPI.THREAD_MULTIPLE
MPI.Init()
print(MPI.COMM_WORLD.allreduce(1))
MPI.Finalize()
"""


@pytest.mark.parametrize("env", [{}, {"MPI4PY_RC_INITIALIZE": "0", "MPI4PY_RC_THREADS": "0"}])
def test_a_program_that_begins_mpi_itself(env: dict[str, str]) -> None:
    """Law: MPI has begun, and whoever begins it finds what it asks for."""
    result = run_job(BEGINS, 2, env=env, timeout=40)
    assert result.status == 0 and result.stdout == "2\n2\n", result
