"""A slot dies, and another one does not come to the repair because it is stopped.

Law: it is told at once, on one node and over several, and after the time that was told the job is
launched again, from all vaults, also that of the stopped process. The final memory is that of the
run without failure.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jobs import Result, run_job
from nodes import remove_fake_ssh, run_on_nodes
from programs import deaths
from tiers import tiers

SLOTS, STEPS = 4, 10
PROGRAM = f"""
import os, signal, sys, time
import numpy as np
import ftrma
from mpi4py import MPI
comm, home = MPI.COMM_WORLD, sys.argv[1]
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(64, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
state = ftrma.protect("s", step=0)

def once(name):
    try:
        return os.close(os.open(f"{{home}}/{{name}}", os.O_CREAT | os.O_EXCL)) is None
    except FileExistsError:
        return False

while state.step < {STEPS}:
    ftrma.safepoint()
    win.Fence()
    win.Put(np.array([state.step + 1]), (me + 1) % n)
    win.Fence()
    if state.step == 5 and me == 1 and once("stopped.txt"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if state.step == 5 and me == 2 and once("killed.txt"):
        while not os.path.exists(f"{{home}}/stopped.txt"):
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    state.step += 1
np.savez(f"{{home}}/cells-{{me}}.npz", cells=cells)
"""


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


def run(nodes: int) -> Result:
    options = ("--spares", "3", "--interval", "0")
    if nodes == 1:
        return run_job(PROGRAM, SLOTS, *options, timeout=60)
    return run_on_nodes(PROGRAM, SLOTS, *options, timeout=60, in_turn=nodes)


@pytest.mark.parametrize("nodes", tiers([1, 2], full=["1"]))
def test_who_is_stopped_is_told(nodes: int) -> None:
    """Law of this file."""
    result = run(nodes)
    assert result.status == 0, result
    for slot, arrays in enumerate(result.of_slots("cells", SLOTS)):
        assert arrays["cells"].tolist() == [STEPS, *[0] * 7], slot
    assert deaths(result) == [("slot", 2, "unknown")], result.stats
    died, slow = ("slot 2 on 127.0.1.1", "slot 1 on 127.0.1.2") if nodes > 1 else (
        "slot 2", "slot 1")
    told = f"{died} died; {slow} does not answer; if that lasts for 5 s, the job is launched again"
    assert result.stderr.count(told) == 1, result
    (recovery,) = result.stats["recoveries"]
    assert recovery["kind"] == "relaunch" and recovery["version"] >= 5, recovery
    assert recovery["reason"] == f"{died} died, and {slow} does not answer"
    assert 5 < recovery["phases"]["detect"] < 30, recovery
