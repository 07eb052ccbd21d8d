"""Surroundings that lack something: told by its name and with the remedy, before a launcher fails
over it; and what ends ``ftrma`` leaves nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import FTRMA, run_command, run_job
from programs import kinds

pytestmark = pytest.mark.full
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
RIGHT = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8, 8, comm=comm)
for step in range(5):
    win.Fence()
    win.Put(np.array([step]), (comm.rank + 1) % comm.size)
    win.Fence()
print("right", *np.frombuffer(win.tomemory(), "i8"))
"""
WITHOUT_CAPABILITIES = "setpriv --inh-caps=-all --bounding-set=-all"
# Commands that make the surroundings, and the words that tell of them.
LACKING = {
    "/proc": ("mount -t tmpfs none /proc", "/proc is not mounted here"),
    "open files": ("ulimit -n 16", "'ulimit -n' allows 16 open files, and this job needs about 40"),
    "shared memory": ("mount -t tmpfs -o size=8m none /dev/shm", "/dev/shm has 8 MiB free, and"),
    "inodes": ("mount -t tmpfs -o nr_inodes=12 none /dev/shm", "/dev/shm has room for 11 more"),
    "a directory": ("mkdir closed; cd closed; chmod 0 .", "no permission to enter the current"),
    "addresses": ("ulimit -v 400000", "'ulimit -v' allows 390 MiB: set it to unlimited"),
}


@ROOT
@pytest.mark.parametrize("what", LACKING)
def test_what_is_lacking_is_named(tmp_path: Path, what: str) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    how, said = LACKING[what]
    command = f"cd {tmp_path}; {how}; {WITHOUT_CAPABILITIES} {FTRMA} run -n 2 {tmp_path}/right.py"
    result = run_command(["unshare", "--mount", "bash", "-c", command], timeout=30)
    assert result.status == 70 and said in result.stderr, result
    assert "pip install" not in result.stderr and "on the hosts" not in result.stderr, result


def test_nobody_needs_a_home(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    mark = "FTRMA_TEST_MARK"
    command = f'exec env -i {mark}="${mark}" {FTRMA} run -n 2 {tmp_path}/right.py'
    result = run_command(["bash", "-c", command], timeout=30)
    assert result.status == 0 and result.stdout == "right 4\n" * 2, result


TOOL = """
#include <mpi.h>
#include <stdio.h>
static int calls;
int MPI_{name}({parameters})
{{
    fprintf(stderr, "counted %d\\n", ++calls);
    return PMPI_{name}({arguments});
}}
"""
PUT = {"name": "Put", "arguments": "a, b, c, d, e, f, g, h",
       "parameters": "const void *a, int b, MPI_Datatype c, int d, MPI_Aint e, int f, "
                     "MPI_Datatype g, MPI_Win h"}
COMMIT = {"name": "Type_commit", "arguments": "a", "parameters": "MPI_Datatype *a"}


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("call", [PUT, COMMIT], ids=["taken", "left"])
def test_another_tool_is_beside_or_refused(tmp_path: Path, call: dict, linked: bool) -> None:
    """Law: a tool that is preloaded counts calls that ftrma leaves to the library; one that would
    have ftrma bypassed is refused by its name, before the job begins."""
    (tmp_path / "right.py").write_text(RIGHT + "MPI.INT.Create_contiguous(2).Commit()\n")
    (tmp_path / "tool.c").write_text(TOOL.format(**call))
    tool, mpicc = tmp_path / "tool.so", str(Path(sys.executable).parent / "mpicc")
    words = subprocess.check_output([mpicc, "-show"], text=True).split()
    source = ["-shared", "-fPIC", "-o", tool, tmp_path / "tool.c"]
    words = [words[0], *source, *(w for w in words[1:] if linked or not w.startswith("-l"))]
    subprocess.run(words, check=True)
    result = run_command([FTRMA, "run", "-n", "2", str(tmp_path / "right.py")], timeout=30,
                         env={"LD_PRELOAD": str(tool)})
    if call is COMMIT and not linked:
        assert result.status == 0 and result.stdout == "right 4\n" * 2, result
        assert "counted" in result.stderr, result
    else:
        assert result.status == 70 and result.stdout == "" and "counted" not in result.stderr
        named = "tool.so" if call is PUT else "libmpi.so"
        assert re.search(rf"error: calls of MPI would go to .*{named}.*; "
                         rf"unset LD_PRELOAD \(it is '{tool}'\)", result.stderr), result
        assert result.stderr.count("\n") == 1, result



FLAGS = """
import json, sys
from mpi4py import MPI
print(json.dumps([sys.flags.optimize, sys.flags.dev_mode, "error" in sys.warnoptions]))
"""


def test_pythons_own_options_are_the_programs(tmp_path: Path) -> None:
    (tmp_path / "flags.py").write_text(FLAGS)
    words = ["-O", "-X", "dev", "-W", "error", FTRMA, "run", "-n", "2", str(tmp_path / "flags.py")]
    result = run_command([sys.executable, *words], timeout=40)
    assert result.status == 0, result
    assert [json.loads(line) for line in result.stdout.splitlines()] == [[1, True, True]] * 2


GONE = """
import os, sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8, 8, comm=comm)
comm.Barrier()
if comm.rank == 0 and os.path.isdir(sys.argv[2]):
    os.rmdir(sys.argv[2])
for step in range(10):
    win.Fence()
    win.Put(np.array([step]), (comm.rank + 1) % comm.size)
    win.Fence()
print("right", *np.frombuffer(win.tomemory(), "i8"))
"""


@pytest.mark.parametrize(("options", "kind"), [
    ((), "causal"), (("--policy", "rollback"), "rollback"), (("--spares", "0"), "")])
def test_a_directory_that_is_removed_meanwhile(
    tmp_path: Path, options: tuple[str, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: it keeps nothing from being repaired; a launch needs one, and says so once."""
    (home := tmp_path / "home").mkdir()
    monkeypatch.chdir(home)
    result = run_job(GONE, 2, "--kill", "1@fence:9", *options, args=[str(home)], timeout=40)
    assert "Traceback" not in result.stderr, result
    if kind:
        assert result.status == 0 and kinds(result) == [kind], result
        assert result.stdout.count("right 9\n") >= 2, result
    else:
        assert result.status == 70 and result.stderr.count("is gone, and without one") == 1, result


WAITS = """
import time
from mpi4py import MPI
print("up", flush=True)
time.sleep(60)
"""
ASKS = """
import os, signal, subprocess, sys, time
number, *command = sys.argv[1:]
job = subprocess.Popen(command, stdout=subprocess.PIPE)
job.stdout.readline()
job.send_signal(int(number))
status = job.wait()
sys.exit(status if status >= 0 else 200)
"""


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGXCPU])
def test_a_signal_to_end_leaves_no_directory(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    result = run_command([sys.executable, "-c", ASKS, str(number.value), FTRMA, "run", "-n", "2",
                          str(tmp_path / "waits.py")], timeout=30)
    assert result.status == 128 + number, result


def test_the_demo_that_is_asked_to_end_leaves_nothing(tmp_path: Path) -> None:
    result = run_command([sys.executable, "-c", ASKS, "15", FTRMA, "demo"], timeout=30,
                         env={"TMPDIR": str(tmp_path)})
    assert result.status == 143 and not list(tmp_path.iterdir()), result


@pytest.mark.parametrize("command", ["demo", "doctor"])
def test_a_full_output_is_told(command: str) -> None:
    result = run_command(["bash", "-c", f"exec {FTRMA} {command} > /dev/full"], timeout=60)
    assert result.status == 1, result
    assert result.stderr == "ftrma: error: cannot write the output: No space left on device\n"
