"""Calls that are the library's own affair: partitioned communication, sessions, borders of halos.

Both see to it by themselves which processes there are, among them a job's servers. Law: they work
as without ftrma, and after a death of anybody the program ends with the same bits.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
from jobs import Result, run_job
from programs import kinds

pytestmark = pytest.mark.full

SLOTS = 3
PARTITIONED = """
import json, sys, time
import numpy as np
import ftrma
from ftrma import MPI
time.sleep(float(sys.argv[2]))
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
sent, received = np.zeros(6), np.zeros(6)
state = ftrma.protect("state", step=0, x=np.arange(6) + me)
send = comm.Psend_init(sent, 3, (me + 1) % n, 5)
receive = comm.Precv_init(received, 3, (me - 1) % n, 5)
while state.step < 40:
    ftrma.safepoint()
    receive.Start()
    sent[:] = state.x + state.step / 10
    send.Start()
    for part in (2, 0, 1):
        send.Pready(part)
    while not all(receive.Parrived(part) for part in range(3)):
        pass
    MPI.Request.Waitall([send, receive])
    state.x[:] = np.sqrt(1 + received)
    state.step += 1
send.Free()
receive.Free()
with open(f"{sys.argv[1]}/end-{me}.json", "w") as f:
    json.dump(state.x.tolist(), f)
"""
SESSIONS = """
import json, sys
import ftrma
from ftrma import MPI
world = MPI.COMM_WORLD
session = MPI.Session.Init()
group = session.Create_group("mpi://WORLD")
size = session.Get_pset_info("mpi://WORLD").Get("mpi_size")
order = MPI.Group.Compare(group, world.Get_group()) == MPI.IDENT
comm = MPI.Intracomm.Create_from_group(group, "tests")
state = ftrma.protect("state", step=0, x=float(comm.rank))
while state.step < 40:
    ftrma.safepoint()
    state.x = (1 + comm.allreduce(state.x) + comm.rank) ** 0.5
    world.Barrier()
    state.step += 1
with open(f"{sys.argv[1]}/end-{world.rank}.json", "w") as f:
    json.dump([size, order, comm.rank, comm.size, state.x], f)
"""
PROGRAMS = {"partitioned": PARTITIONED, "sessions": SESSIONS}


@functools.cache
def expected(name: str) -> list[Any]:
    result = run_job(PROGRAMS[name], SLOTS, args=["0"])
    assert result.status == 0 and not result.stats["failures"], result
    return result.of_slots("end", SLOTS)


def killed(name: str, *rules: str, begin_s: str = "0") -> Result:
    options = [word for rule in rules for word in ("--kill", rule)]
    result = run_job(PROGRAMS[name], SLOTS, "--interval", "0", *options, args=[begin_s])
    assert result.status == 0, result
    assert result.of_slots("end", SLOTS) == expected(name)
    return result


def test_a_session_is_one_of_the_slots() -> None:
    """Its process set "mpi://WORLD" has them in their order, and no server."""
    for slot, (size, order, rank, n, _) in enumerate(expected("sessions")):
        assert (size, order, rank, n) == (str(SLOTS), True, slot, SLOTS)


@pytest.mark.parametrize("rules", [("1@safepoint:20",), ("0@call:9", "2@safepoint:30")])
def test_a_death_with_partitioned_communication(rules: tuple[str, ...]) -> None:
    """The library's duplicates of its world do not survive it: the job is launched again."""
    assert kinds(killed("partitioned", *rules))[0] == "relaunch"


def test_a_server_dies_with_partitioned_communication() -> None:
    """Servers are in these duplicates, too."""
    assert kinds(killed("partitioned", "c0@sum:12")) == ["relaunch"]


def test_a_server_dies_before_partitioned_communication() -> None:
    """The library's world is not whole any more: so that it is, the job is launched again."""
    assert kinds(killed("partitioned", "s0@time:0.1", begin_s="1")) == ["relaunch"]


def test_a_death_with_a_session() -> None:
    """Its communicator is made again by the replacement and the survivors."""
    assert kinds(killed("sessions", "1@safepoint:20")) == ["rollback"]


# Messages too long to be sent before somebody takes them, and borders where there is nobody.
HALO = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
up, down = (me - 1 if me else MPI.PROC_NULL), (me + 1 if me < n - 1 else MPI.PROC_NULL)
field, above, below = np.arange(2000.0) + me, np.zeros(2000), np.zeros(2000)
status = MPI.Status()
state = ftrma.protect("state", step=0, field=field)
while state.step < 30:
    ftrma.safepoint()
    for _ in range(10):
        comm.Sendrecv(field, dest=down, recvbuf=above, source=up, status=status)
        assert status.source == up and status.Get_count(MPI.DOUBLE) == (0 if me == 0 else 2000)
        comm.Sendrecv(field, dest=up, recvbuf=below, source=down)
        moved = field.copy()
        comm.Sendrecv_replace(moved, dest=down, source=up)
    field[:] = 0.5 * field + 0.25 * (above + below) + moved / 8
    state.step += 1
np.save(f"{sys.argv[1]}/out-{me}.npy", field)
"""


@functools.cache
def halo(*options: str) -> Result:
    return run_job(HALO, 4, "--interval", "0", "--spares", "2", *options, timeout=40)


@pytest.mark.parametrize("count", [
    pytest.param(count, marks=pytest.mark.full if count < 330 else pytest.mark.nightly)
    for count in range(300, 890, 37)])
def test_a_border_outlives_its_neighbour(count: int) -> None:
    """Law: who sends to the dead, and receives from nobody, is no second loss."""
    result = halo("--kill", f"1@call:{count}")
    assert result.status == 0, result
    assert [failure.get("slot") for failure in result.stats["failures"]] == [1], result
    for mine, undisturbed in zip(result.of_slots("out", 4), halo().of_slots("out", 4), strict=True):
        assert (mine == undisturbed).all()
