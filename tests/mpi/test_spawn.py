"""Processes that are not of the job: spawned, or met at a port or a socket.

Law: spawning is refused by name where the MPI library cannot reach who is spawned, and is as raw
where it can; parts of the job meet as raw; a slot that has done so is not replayable since.
"""

from __future__ import annotations

import pytest
from jobs import Result, run_job
from programs import kinds

pytestmark = pytest.mark.full
TCP = ("--mpirun", "--mca btl ^ofi")
SPAWNS = """
import os, sys, time
import numpy as np
from mpi4py import MPI
comm, how = MPI.COMM_WORLD, sys.argv[2]
assert MPI.Comm.Get_parent() == MPI.COMM_NULL
CHILD = '''
from mpi4py import MPI
parent, comm = MPI.Comm.Get_parent(), MPI.COMM_WORLD
told = parent.bcast(None, root=0)
parent.gather((comm.rank, comm.size, parent.remote_size, told), root=0)
parent.Disconnect()
'''
words = ["-c", CHILD]
try:
    if how == "multiple":
        inter = comm.Spawn_multiple([sys.executable] * 2, [words] * 2, [1, 1])
    else:
        inter = comm.Spawn(sys.executable, words, 2)
except MPI.Exception as error:
    assert error.error_class == MPI.ERR_SPAWN
    print(error)
    sys.exit()
root = MPI.PROC_NULL if comm.rank else MPI.ROOT
inter.bcast("hello", root=root)
answers = inter.gather(None, root=root)
inter.Disconnect()
assert comm.rank or answers == [(0, 2, comm.size, "hello"), (1, 2, comm.size, "hello")], answers
win = MPI.Win.Allocate(8, 8, comm=comm)
for step in range(10):
    win.Fence()
    win.Put(np.array([step]), (comm.rank + 1) % comm.size)
    win.Fence()
print("right", *np.frombuffer(win.tomemory(), "i8"))
"""


@pytest.mark.parametrize(("how", "call"), [
    ("one", "MPI_Comm_spawn"), ("multiple", "MPI_Comm_spawn_multiple")])
def test_spawning_is_refused_by_name(how: str, call: str) -> None:
    """Law: at once, by an error that the program can catch, with what helps."""
    result = run_job(SPAWNS, 2, args=[how], timeout=20)
    assert result.status == 0, result
    said = (f"{call}: the MPI library reaches spawned processes by TCP, which a job on one node "
            "leaves out; start it by ftrma run --mpirun '--mca btl ^ofi'")
    assert result.stdout.splitlines() == [said] * 2, result


@pytest.mark.parametrize("how", ["one", "multiple"])
def test_with_tcp_spawning_is_as_raw(how: str) -> None:
    result = run_job(SPAWNS, 2, *TCP, args=[how], timeout=30)
    assert result.status == 0 and result.stdout == "right 9\n" * 2, result


def test_who_has_spawned_is_not_replayed() -> None:
    result = run_job(SPAWNS, 2, *TCP, "--kill", "1@fence:12", args=["one"], timeout=60)
    assert result.status == 0 and result.stdout.count("right 9\n") >= 2, result
    assert kinds(result) and "causal" not in kinds(result), result
    assert "MPI_Comm_spawn" in result.stats["recoveries"][0]["reason"], result


MEETS = """
import socket, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
half = comm.Split(comm.rank % 2, comm.rank)
port = comm.bcast(MPI.Open_port() if comm.rank == 0 else None)
inter = half.Connect(port) if comm.rank % 2 else half.Accept(port)
print(inter.remote_size, inter.allgather(comm.rank))
inter.Disconnect()
if comm.rank == 0:
    MPI.Close_port(port)
if comm.rank == 0:
    server = socket.create_server(("127.0.0.1", 0))
    comm.bcast(server.getsockname())
    there = server.accept()[0]
else:
    name = comm.bcast(None)
    there = socket.create_connection(name) if comm.rank == 1 else None
if there:
    inter = MPI.Comm.Join(there.fileno())
    print("joined", inter.sendrecv(comm.rank, 0, source=0))
    inter.Disconnect()
"""


def test_parts_of_the_job_meet_as_raw() -> None:
    result: Result = run_job(MEETS, 4, timeout=30)
    assert result.status == 0, result
    assert sorted(result.stdout.splitlines()) == [
        *["2 [0, 2]"] * 2, *["2 [1, 3]"] * 2, "joined 0", "joined 1"], result
