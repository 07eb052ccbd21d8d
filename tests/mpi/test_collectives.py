"""Collective calls of all slots: right results, right errors.

Law: on any number of slots every blocking collective call gives what NumPy computes from the same
data, in all its forms; a mistake raises MPI's error class for it on the slot that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobs import Result, run_job
from nodes import remove_fake_ssh, run_on_nodes
from tiers import tiers

PROGRAMS = Path(__file__).parent / "programs"
CALLS = {"Bcast", "Gather", "Scatter", "Allgather", "Alltoall", "Gatherv", "Scatterv", "Allgatherv",
         "Alltoallv", "Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter",
         "Reduce_scatter_block", "objects"}


EACH_RUN = pytest.mark.parametrize(
    "run", tiers([run_job, run_on_nodes], plain=["run_job"], others="full"))


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


@pytest.mark.parametrize(("run", "slots"), tiers(
    [*((run_job, slots) for slots in (1, 3, 4)), *((run_on_nodes, slots) for slots in (3, 4, 5))],
    plain=["run_job-3"], full=["run_job-1", "run_job-4"]))
def test_collective_calls_give_what_numpy_computes(run: Callable[..., Result], slots: int) -> None:
    """Law of this file: sizes from none to several areas, in place, derived types, user's
    operations, objects; over nodes, too."""
    script = PROGRAMS / "collectives.py"
    spares = str(max(0, 5 - slots))  # a process on each node
    result = run(script, slots, "--interval", "never", "--spares", spares, timeout=100)
    assert result.status == 0, str(result)
    for checks in result.of_slots("checks", slots):
        assert set(checks) >= CALLS and min(checks.values()) > 0
        assert not [c for c in CALLS - {"objects"} if checks[c] < 7]


@EACH_RUN
def test_barrier_waits_for_all_and_brings_on_messages(run: Callable[..., Result]) -> None:
    """Law: nobody leaves a barrier before the last has come; and what a slot has begun to send
    arrives although it waits in a barrier meanwhile (MPI's rule of progress)."""
    text = """
import sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, n, results = comm.rank, comm.size, Path(sys.argv[1])
for turn in range(30):
    (results / f"came-{turn}-{me}.json").write_text("true")
    comm.Barrier()
    assert all((results / f"came-{turn}-{other}.json").exists() for other in range(n))
data, got = np.full(1 << 20, 7.0), np.zeros(1 << 20)
if me == 0:
    request = comm.Isend(data, n - 1)
if me == n - 1:
    comm.Recv(got, 0)
comm.Barrier()
if me == 0:
    request.Wait()
assert me < n - 1 or (got == 7).all()
(results / f"through-{me}.json").write_text("true")
"""
    # Without the shortcut by which a receiver reads the sender's memory, messages take both.
    how = {"env": {"OMPI_MCA_smsc": "^cma"}} if run is run_job else {}
    result = run(text, 3, "--interval", "never", timeout=40, **how)
    assert result.status == 0, str(result)
    assert result.of_slots("through", 3) == [True] * 3


ERRORS = """
import json, sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
noted = {}
def note(label, call, *args):
    try:
        call(*args)
        noted[label] = "none"
    except MPI.Exception as error:
        noted[label] = MPI.Get_error_class(error.Get_error_code())
        noted[label] = [c for c in dir(MPI) if c.startswith("ERR_")
                        and getattr(MPI, c) == noted[label]][0]
x, y, many = np.ones(4), np.zeros(4), np.zeros(4 * n)
note("root", comm.Bcast, x, n)
note("root gather", comm.Gather, x, many, -1)
note("root reduce", comm.Reduce, x, y, MPI.SUM, n + 3)
note("op", comm.Allreduce, x, y, MPI.BAND)
note("op null", comm.Allreduce, x, y, MPI.OP_NULL)
note("type", comm.Bcast, [x, 1, MPI.DATATYPE_NULL], 0)
# A receiver with too little room is told so; the others are served, and all go on.
for size in (4, 100_000):
    long = np.full(size, 7.0)
    note(f"bcast {size}", comm.Bcast, long if me == 0 else long[: size - me], 0)
    parts = np.arange(float(size * n)) if me == 0 else None
    note(f"scatter {size}", comm.Scatter, parts, long[: size - (me == 1)], 0)
    got = np.zeros(2 * n) if me == 0 else None
    note(f"gather {size}", comm.Gather, np.ones(2 + (me == n - 1)), got, 0)
total = np.zeros(4)
comm.Allreduce(x, total)
noted["after"] = total.tolist()
json.dump(noted, open(f"{sys.argv[1]}/noted-{me}.json", "w"))
"""


@EACH_RUN
def test_mistakes_raise_the_library_classes(run: Callable[..., Result]) -> None:
    """Law: bad roots, operations and types are refused by the slot itself; data that does not fit
    is ERR_TRUNCATE on the slot that receives it, and the next calls work as before."""
    result = run(ERRORS, 3, "--interval", "never")
    assert result.status == 0, str(result)
    for slot, noted in enumerate(result.of_slots("noted", 3)):
        truncated = {"bcast": slot > 0, "scatter": slot == 1, "gather": slot == 0}
        expected = {"root": "ERR_ROOT", "root gather": "ERR_ROOT", "root reduce": "ERR_ROOT",
                    "op": "ERR_OP", "op null": "ERR_OP", "type": "ERR_TYPE",
                    "after": [3.0] * 4}
        for call, told in truncated.items():
            for size in (4, 100_000):
                expected[f"{call} {size}"] = "ERR_TRUNCATE" if told else "none"
        assert noted == expected, f"slot {slot}"


@EACH_RUN
def test_different_calls_on_two_slots_are_told(run: Callable[..., Result]) -> None:
    """Law: a slot that reads what another put there for another call says so; status 1."""
    text = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
x = np.zeros(3)
comm.Allgather(x, np.zeros(3 * comm.size)) if not comm.rank else comm.Allreduce(x, np.zeros(3))
"""
    result = run(text, 3)
    assert result.status == 1, str(result)
    assert "is in Allgather where slot " in result.stderr or (
        "is in Allreduce where slot 0 is in Allgather" in result.stderr
    ), str(result)


@pytest.mark.full
def test_different_members_on_two_nodes_are_told() -> None:
    """Law: they end in words, and nobody waits for ever."""
    text = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Create_cart([comm.size], periods=[comm.rank == 2])
"""
    result = run_on_nodes(text, 3)
    assert result.status == 1, str(result)
    assert "slots make different communicators in the same place" in result.stderr, str(result)


ONE_NUMBER = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
GOLDEN = np.uint64(0x9E3779B97F4A7C15)

def derive(of, by):  # as csrc/interpose/derived.c
    h = np.uint64(of) * GOLDEN + np.asarray(by, "u8") + np.uint64(1)
    for _ in range(2):
        h = h + GOLDEN
        h = (h ^ h >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ h >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return h

colors = np.arange(1 << 18)
with np.errstate(over="ignore"):
    one, two = (derive(derive(1, k), colors) * GOLDEN >> np.uint64(34) for k in (1, 2))
number = np.intersect1d(one, two)[0]
first = comm.Split(colors[one == number][0], comm.rank)
try:
    comm.Split(colors[two == number][0] if comm.rank else MPI.UNDEFINED, comm.rank)
except MPI.Exception as error:
    print(error)
assert first.allreduce(1) == comm.size
third = comm.Dup()
assert third.allreduce(1) == comm.size
"""


@pytest.mark.full
def test_boards_of_one_number_are_told() -> None:
    """Law: of two communicators whose numbers between nodes are the same the second one is refused
    at all ranks of its parent; what is there goes on."""
    result = run_on_nodes(ONE_NUMBER, 4)
    assert result.status == 0, str(result)
    told = "this communicator and another one have, by chance, the same number between nodes"
    assert result.stdout.count(told) == 4, str(result)
