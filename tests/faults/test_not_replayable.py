"""Programs that no replay can repeat: all go back, or the job ends, and the reason is said.

Law: with the policy auto such a program goes on by rollback, with the bits of the run without
failure where it has any; the reason in the stats names what was in the way. With the policy causal
the job ends with status 70 and the same reason in one line on stderr. A replay never goes live with
something else than the lost slot had done.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from jobs import Result, run_job
from programs import ROOT, assert_rollback, kinds
from test_causal import assert_same, run
from tiers import tiers

from ftrma.trace.check import check
from ftrma.trace.records import read

pytestmark = pytest.mark.full

# The inserted text runs in each step. `again` is true in slot 1's second life alone.
PROGRAM = """
import os, sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, n, right = comm.rank, comm.size, (comm.rank + 1) % comm.size
win = MPI.Win.Allocate(800, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
with open(f"{{sys.argv[1]}}/lives-{{me}}.txt", "a") as f:
    f.write("x")
    again = me == 1 and f.tell() == 2
win.Fence()
for step in range(20):
    value = np.array([me + step])
    if step == 5:
        {call}
    win.Put(value, right, (step, 1, MPI.INT64_T))
    win.Fence()
np.save(f"{{sys.argv[1]}}/cells-{{me}}.npy", cells)
"""


def run_with(call: str, *options: str) -> Result:
    return run_job(PROGRAM.format(call=call), 3, *options, timeout=20)


def assert_ended(result: Result, reason: str) -> None:
    """The job ended for this reason, said in one line; warnings may stand before it."""
    assert result.status == 70, result
    *warnings, last = result.stderr.splitlines()
    assert last.startswith("ftrma: error: NotRecoverable: ") and reason in last, result
    assert all(line.startswith("ftrma: warning: ") for line in warnings), result


def assert_cells(result: Result) -> None:
    assert result.status == 0, result
    for slot, cells in enumerate(result.of_slots("cells", 3)):
        assert cells[:20].tolist() == [(slot - 1) % 3 + step for step in range(20)]


# ---- calls that no log covers ---------------------------------------------------------------

GRAPH = "comm.Create_graph([1, 2, 3], [1, 2, 0])"
FOREIGN = [
    ("comm.Sendrecv(value, right, recvbuf=cells[50:51])", "MPI_Sendrecv"),
    (GRAPH, "MPI_Graph_create"),
    ("comm.send(1, right); comm.recv()", "slot 0 has called MPI_Send"),
    ("comm.Idup()[1].Wait()", "MPI_Comm_idup"),
    ("comm.Iallreduce(value, np.zeros(1, 'i8')).Wait()", "MPI_Iallreduce"),
    ("comm.Isend(value, right); comm.Recv(cells[50:51])", "MPI_Isend"),
]


@pytest.mark.parametrize(("call", "name"), tiers(
    [pytest.param(*case, id=case[1].split()[-1]) for case in FOREIGN],
    full=["MPI_Sendrecv", "MPI_Graph_create"]))
@pytest.mark.parametrize("policy", ["auto", pytest.param("causal", marks=pytest.mark.nightly)])
def test_a_foreign_call(call: str, name: str, policy: str) -> None:
    result = run_with(call, "--policy", policy, "--kill", "1@fence:10")
    reason = f"{name} since the start, which no replay can repeat"
    if policy == "causal":
        assert_ended(result, reason)
    else:
        assert_cells(result)
        assert_rollback(result, reason)


def test_a_foreign_call_under_causal() -> None:
    result = run_with(GRAPH, "--policy", "causal", "--kill", "1@fence:10")
    assert_ended(result, "has called MPI_Graph_create since the start, which no replay can repeat")


def test_calls_within_the_slot_are_repeated() -> None:
    """Communication of a slot with itself is no obstacle."""
    call = "value = np.array([MPI.COMM_SELF.sendrecv(int(value[0]), 0)])"
    result = run_with(call, "--policy", "causal", "--kill", "1@fence:10")
    assert_cells(result)
    assert kinds(result) == ["causal"]


# ---- programs that are not deterministic ----------------------------------------------------

DIFFERENT = "its program is not deterministic: when it was executed again"
SECOND_LIFE = [
    ("if again: value[0] += 1", DIFFERENT),
    ("if again: win.Fence()", DIFFERENT),
    ("if again: continue", DIFFERENT),
    ("if again: win.Get(value.copy(), right, (0, 1, MPI.INT64_T))", DIFFERENT),
    ("if again: right = (me + 2) % n", DIFFERENT),
    ("comm.bcast(again, root=1)", DIFFERENT),
    ("comm.allreduce(1) if again else comm.Barrier()", DIFFERENT),
    ("if again: raise ValueError", "its program raised ValueError when it was executed again"),
    ("if again: sys.exit(3)", "its program ended with status 3 when it was executed again"),
    ("if again: sys.exit()", "when it was executed again"),
]


@pytest.mark.parametrize(("call", "reason"), tiers(
    [pytest.param(*case, id=case[0]) for case in SECOND_LIFE],
    full=["if again: value[0] += 1", "if again: raise ValueError"]))
def test_another_second_life(tmp_path: Path, call: str, reason: str) -> None:
    """It is found out before anything of it leaves the replacement, as the trace proves."""
    path = tmp_path / "trace.json"
    result = run_with(call, "--kill", "1@put:9", "--trace", str(path))
    assert_cells(result)
    assert_rollback(result, reason)
    assert check(read(path)).violation is None


@pytest.mark.parametrize(
    ("source", "policy"),
    [
        ("np.frombuffer(os.urandom(8), 'i8')", "causal"),
        pytest.param("np.frombuffer(os.urandom(8), 'i8')", "auto", marks=pytest.mark.nightly),
        pytest.param("time.time_ns()", "causal", marks=pytest.mark.nightly),
        ("time.time_ns()", "auto"),
    ],
)
def test_a_random_program(source: str, policy: str) -> None:
    call = f"import time; value = np.zeros(1, 'i8') + {source}"
    result = run_with(call, "--policy", policy, "--kill", "1@put:9")
    if policy == "causal":
        assert_ended(result, DIFFERENT)
    else:
        assert result.status == 0, result
        assert_rollback(result, DIFFERENT)


# ---- what is logged, and how much -----------------------------------------------------------


def test_gets_that_are_not_logged() -> None:
    result = run("fenced", "plain", "--log", "puts", "--kill", "1@put:20")
    assert_same("fenced", result)
    assert_rollback(result, "slot 1 has used gets, and --log puts does not log them")


def test_puts_alone_are_enough_without_gets() -> None:
    result = run_with("pass", "--log", "puts", "--kill", "1@put:9")
    assert_cells(result)
    assert kinds(result) == ["causal"]


def test_a_budget_below_the_least() -> None:
    result = run_with("pass", "--log-budget", "1000")
    assert result.status == 2
    assert result.stderr == (
        "ftrma: error: --log-budget 1000: too small for a slot's access logs; give 36864 bytes or "
        "more\n"
    )


LEAST = 36864


def assert_within(result: Result, budget: int) -> None:
    """No log has ever used more than its budget, and its file is no larger."""
    assert [log["budget_bytes"] for log in result.stats["log"]] == [budget] * 4
    assert all(0 < log["peak_bytes"] <= budget for log in result.stats["log"]), result.stats
    assert all(size <= budget for size in result.results["log-bytes"]), result.results


@pytest.mark.parametrize("mode", ["plain", "top"])
def test_the_budget_holds(mode: str) -> None:
    """Without safepoints the logs run over, which is told; with them a checkpoint comes before."""
    options = ("--interval", "never", "--log-budget", str(LEAST))
    result = run("fenced", mode, *options, "--kill", "1@put:300", steps=200)
    assert_same("fenced", result, steps=200)
    assert_within(result, LEAST)
    if mode == "plain":
        reason = f"ran over their budget of {LEAST} bytes since the start"
        assert_rollback(result, reason)
    else:
        assert kinds(result) == ["causal"], result
        assert result.stats["recoveries"][0]["demand"] > 0
        assert len(result.stats["checkpoints"]) > 3


def test_one_epoch_larger_than_the_budget() -> None:
    """Logging ends there, and the program goes on."""
    call = "[win.Put(np.ones(50, 'i8'), right, (50, 50, MPI.INT64_T)) for _ in range(200)]"
    result = run_with(call, "--log-budget", str(LEAST), "--kill", "1@fence:10")
    assert_cells(result)
    assert_rollback(result, f"ran over their budget of {LEAST} bytes since the start")
    assert all(np.all(cells[50:] == 1) for cells in result.of_slots("cells", 3))


def test_one_put_larger_than_the_budget() -> None:
    """All of it arrives, also what comes behind the end of the logs."""
    call = (
        "large = MPI.Win.Allocate(400_000, comm=comm); large.Fence(); "
        "large.Put(bytes(range(250)) * 1500, right, 7); large.Fence(); "
        "np.save(f'{sys.argv[1]}/large-{me}.npy', np.frombuffer(large.tomemory(), 'u1'))"
    )
    result = run_with(call, "--interval", "never", "--log-budget", str(LEAST))
    assert_cells(result)
    assert "have used their budget" in result.stderr
    for memory in result.of_slots("large", 3):
        assert memory[7:375_007].tobytes() == bytes(range(250)) * 1500


@pytest.mark.parametrize("put", [1590, pytest.param(1620, marks=pytest.mark.nightly)])
def test_logs_that_ran_over_serve_again_behind_the_next_checkpoint(put: int) -> None:
    """Freed parts of logs are used again, and no mark leads there any more."""
    script = ROOT / "tests/faults/replay/overrun.py"
    options = ("--interval", "0", "--log-budget", "48K")
    expected = run_job(script, 3, *options, timeout=40).of_slots("slot", 3)
    result = run_job(script, 3, *options, "--kill", f"1@put:{put}", timeout=40)
    assert result.status == 0, result
    assert "have used their budget" in result.stderr
    assert kinds(result) == ["causal"], result
    for before, after in zip(expected, result.of_slots("slot", 3), strict=True):
        assert before["memory"].tobytes() == after["memory"].tobytes()


@pytest.mark.parametrize("flush", [300, 600])
def test_accesses_from_several_threads(flush: int) -> None:
    """They have no order to be replayed in; nothing is lost or done twice all the same, and the
    threads that end in the rollback are no errors."""
    script = ROOT / "tests/faults/replay/threads.py"
    result = run_job(script, 3, "--kill", f"1@flush:{flush}", timeout=40)
    assert result.status == 0 and "Traceback" not in result.stderr, result
    # A thread that has called MPI before, or one that was in a call just then: both are true.
    assert_rollback(result, "")
    reason = result.stats["recoveries"][0]["reason"]
    assert ("has called MPI from a second thread" in reason
            or re.fullmatch(r"another thread of slot \d was in a call of MPI", reason)), reason
    for found in result.of_slots("slot", 3):
        assert found["memory"].tolist() == [500] * 4
