"""Every end of every kind has its words, on one node and over several.

`ENDS` has a program for each kind of end; `test_the_table_is_whole` holds that no kind is missing
there: neither a plan by which a repair gives the job up, nor a function of `launch.exitmessages`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from jobs import FTRMA, Result, run_command
from nodes import before_daemons, remove_fake_ssh, run_on_nodes

from ftrma.launch import exitmessages
from ftrma.native.constants import PlanKind
from ftrma.protocol.job_end import why_given_up
from ftrma.protocol.plan import IN_PLACE

SLOTS = 4
ROOM = "90m"  # of shared memory, on one node or on each
PROGRAM = """
import ctypes, mmap, os, signal, sys, time
import numpy as np
import ftrma
from mpi4py import MPI
comm, how, home = MPI.COMM_WORLD, sys.argv[2], sys.argv[1]
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(64, 8, comm=comm)
state = ftrma.protect("s", step=0, blob=b"")
pids = comm.allgather(os.getpid())

def once():
    try:
        return os.close(os.open(f"{home}/once", os.O_CREAT | os.O_EXCL)) is None
    except FileExistsError:
        return False

def fill():
    with open("/dev/shm/fill", "wb", buffering=0) as fill:
        try:
            while True:
                fill.write(bytes(4096))
        except OSError:
            pass

while state.step < 6:
    ftrma.safepoint()
    win.Fence()
    win.Put(np.ones(1), (me + 1) % n)
    win.Fence()
    if how == "grows" and me == 1 and state.step == 3:
        fill()
    comm.Barrier()
    if how == "grows":
        state.blob = os.urandom(200_000 * (state.step + 1))
    if how == "two at once" and state.step == 3 and me in (1, 3) and once():
        for victim in (pids[4 - me], os.getpid()):
            os.kill(victim, signal.SIGKILL)
    if me == 1 and state.step == 3:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raises":
            raise ValueError("mine")
        if how == "MPI_Abort":
            comm.Abort(9)
        if how == "os._exit":
            os._exit(7)
        if how == "crashes":
            ctypes.string_at(8)
        if how == "leaves well":
            os._exit(0)
        if how == "has received" and once():
            comm.sendrecv(1, dest=1, source=1)
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "touches":
            fill()
            with open("/dev/shm/sparse", "wb+") as file:
                file.truncate(1 << 26)
                mmap.mmap(file.fileno(), 1 << 26)[:] = bytes(1 << 26)
    state.step += 1
"""
# Rank 3 dies when it is about to begin MPI, or says before why it cannot take part.
AT_BIRTH = """
import os, sys

class Finder:
    def find_spec(self, name, *more):
        if name == "mpi4py.MPI" and os.environ.get("OMPI_COMM_WORLD_RANK") == "3":
            os.kill(os.getpid(), 9)

sys.meta_path.insert(0, Finder())
"""
REFUSES = """
import os, sys
if os.environ.get("OMPI_COMM_WORLD_RANK") == "3":
    print("ftrma: error: not on this machine", file=sys.stderr, flush=True)
    os._exit(1)
"""


@dataclass(frozen=True)
class Case:
    """A way to end.

    Attributes:
        kind: of the end: a plan's, or a function of `exitmessages`.
        status: of the job.
        words: that are told, a regular expression; several: over several nodes, where other ones.
        options: of ``ftrma run``.
        site: of each process: its sitecustomize.
        room: shared memory on one node, or on each, where each launch finds another one; "": it is
            the same one, but what a node but the first has of vaults is lost between launches.
    """

    kind: str
    status: int
    words: str
    several: str = ""
    options: tuple[str, ...] = ()
    site: str = ""
    room: str = ROOM


FULL = "shared memory is full; free space in /dev/shm"
FULL_THERE = FULL.replace("memory", r"memory of 127\.0\.1\.2")
LOST = r"CatastrophicFailure: group 0 lost slot 1 and slot 3 at once"
ENDS = {
    "killed": Case(PlanKind.REPEATED.name, 137, "error: slot 1 was killed 3 times running",
                   options=("--spares", "6")),
    "has received": Case(
        PlanKind.REFUSED.name, 70, r"error: NotRecoverable: .*, which no replay can repeat; with "
        "--policy auto", options=("--policy", "causal")),
    "touches": Case(PlanKind.FULL.name, 70, f"error: {FULL}", several=f"error: {FULL_THERE}"),
    "grows": Case("NoRoom", 70, f"error: slot . cannot checkpoint: .*{FULL}",
                  several=f"error: slot . cannot checkpoint: .*{FULL_THERE}",
                  options=("--interval", "0")),
    "no room": Case("NoRoom", 70, "no shared memory for the job",
                    several=f"error: making .*: {FULL_THERE}", room="1m"),
    "two at once": Case(PlanKind.CATASTROPHIC.name, 70, f"error: {LOST}",
                        options=("--interval", "0", "--aware", "none", "--spares", "4"), room=""),
    "raises": Case("Traceback", 1, "Traceback .*ValueError: mine"),
    "MPI_Abort": Case("tell_own_end", 9, "slot 1 called MPI_Abort with status 9"),
    "os._exit": Case("tell_own_end", 7, "slot 1 ended itself with status 7"),
    "crashes": Case("tell_own_end", 139, "slot 1 crashed: SIGSEGV"),
    "leaves well": Case("tell_own_end", 70, "slot 1 ended by .* and the other slots wait for it"),
    "no relaunch": Case(
        "tell_exhausted", 70,
        r"error: .*launched again 0 times already \(--max-relaunch\); giving up",
        options=("--kill", "1@fence:3", "--spares", "0", "--max-relaunch", "0")),
    "at birth": Case("tell_exhausted", 70, "error: .*a process died before ", site=AT_BIRTH,
                     options=("--max-relaunch", "0")),
    "refuses": Case("tell_not_started", 70, "error: the job did not start: .*not on this machine",
                    site=REFUSES),
}
PLAIN = ("has received", "several")  # in a plain run
FULL_OVER_NODES = ("two at once", "killed", "MPI_Abort", "leaves well", "refuses")


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def test_the_table_is_whole() -> None:
    """Law: each kind of end is there; a plan is one by which the job goes on, or has words."""
    plans = {kind.name for kind in PlanKind if why_given_up(kind, "because")}
    goes_on = {kind.name for kind in (*IN_PLACE, PlanKind.RELAUNCH, PlanKind.NONE)}
    assert plans | goes_on == set(PlanKind.__members__) and not plans & goes_on
    ways = {name for name, function in inspect.getmembers(exitmessages, inspect.isfunction)
            if function.__module__ == exitmessages.__name__}
    assert plans | ways <= {case.kind for case in ENDS.values()}


def on_one(home: Path, how: str, case: Case) -> Result:
    mount = f"mount -t tmpfs -o size={case.room or ROOM} tmpfs /dev/shm"
    command = [FTRMA, "run", "-n", str(SLOTS), "--log-budget", "4M", *case.options]
    return run_command(["unshare", "--mount", "sh", "-c", f'{mount}; exec "$@"', "sh", *command,
                        str(home / "program.py"), str(home), how],
                       env={"PYTHONPATH": str(home)}, timeout=60)


def on_several(home: Path, how: str, case: Case) -> Result:
    mount = f"[ $(hostname) = 127.0.1.1 ] || mount -t tmpfs -o size={case.room} tmpfs /dev/shm"
    lose = "[ $(hostname) = 127.0.1.1 ] || rm -f /dev/shm/ftrma-*/*/slot-* /dev/shm/ftrma-*/*/c*-*"
    mount = mount if case.room else lose
    before_daemons(f"{mount}; export PYTHONPATH={home}")
    try:
        return run_on_nodes(PROGRAM, SLOTS, "--log-budget", "4M", *case.options, args=[how],
                            in_turn=2, timeout=60, files=home, tidy=not case.site)
    finally:
        before_daemons("")


@pytest.mark.parametrize(("how", "where"), [
    pytest.param(how, where, marks=() if (how, where) == PLAIN else pytest.mark.full
                 if where == "one" or how in FULL_OVER_NODES else pytest.mark.nightly)
    for how in ENDS for where in ("one", "several")])
def test_every_end_is_told(tmp_path: Path, how: str, where: str) -> None:
    """Law: its status, and a sentence, once; nothing else of ftrma's is there that is no news."""
    case = ENDS[how]
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "sitecustomize.py").write_text(case.site)
    result = (on_one if where == "one" else on_several)(tmp_path, how, case)
    words = (case.several if where == "several" else "") or case.words
    assert result.status == case.status, result
    assert len(re.findall(words, result.stderr, re.DOTALL)) == 1, result
    assert "died (process" not in result.stderr, result
    assert "Traceback" not in result.stderr or case.kind == "Traceback", result
