"""Collective calls of all slots: right results, right errors.

Law: on any number of slots every blocking collective call gives what NumPy computes from the same
data, in all its forms; a mistake raises MPI's error class for it on the slot that made it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run_job

PROGRAMS = Path(__file__).parent / "programs"
CALLS = {"Bcast", "Gather", "Scatter", "Allgather", "Alltoall", "Gatherv", "Scatterv", "Allgatherv",
         "Alltoallv", "Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter",
         "Reduce_scatter_block", "objects"}


@pytest.mark.parametrize("slots", [1, 3, 4])
def test_collective_calls_give_what_numpy_computes(slots: int) -> None:
    """Law of this file: sizes from none to several areas, in place, derived types, user's
    operations, objects."""
    script = PROGRAMS / "collectives.py"
    result = run_job(script, slots, "--interval", "never", timeout=100)
    assert result.status == 0, str(result)
    for checks in result.of_slots("checks", slots):
        assert set(checks) >= CALLS and min(checks.values()) > 0
        assert not [c for c in CALLS - {"objects"} if checks[c] < 7]


def test_barrier_waits_for_all_and_brings_on_messages() -> None:
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
    result = run_job(text, 3, "--interval", "never", timeout=40, env={"OMPI_MCA_smsc": "^cma"})
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


def test_mistakes_raise_the_library_classes() -> None:
    """Law: bad roots, operations and types are refused by the slot itself; data that does not fit
    is ERR_TRUNCATE on the slot that receives it, and the next calls work as before."""
    result = run_job(ERRORS, 3, "--interval", "never")
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


def test_different_calls_on_two_slots_are_told() -> None:
    """Law: a slot that reads what another put there for another call says so; status 1."""
    text = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
x = np.zeros(3)
comm.Allreduce(x, np.zeros(3)) if comm.rank else comm.Allgather(x, np.zeros(3 * comm.size))
"""
    result = run_job(text, 2)
    assert result.status == 1, str(result)
    assert "is in Allgather where slot 1 is in Allreduce" in result.stderr or (
        "is in Allreduce where slot 0 is in Allgather" in result.stderr
    ), str(result)
