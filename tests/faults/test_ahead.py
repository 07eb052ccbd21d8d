"""Law: from `protect` on the memory of checkpoints is taken while the program computes, in all
vaults, as much as the first checkpoint would have taken; a death amid that costs nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from jobs import run_job
from programs import kinds
from tiers import tiers

MIB = 12
WAITS = f"""
import json, os, sys, time
import numpy as np
import ftrma
from ftrma import MPI
comm, home, wait_s = MPI.COMM_WORLD, sys.argv[1], float(sys.argv[2])
window = MPI.Win.Allocate({MIB} << 20, 8, comm=comm)
field = np.frombuffer(window.tomemory())
field[:] = 1 + comm.rank
state = ftrma.protect("main", step=0)
files = [f"{{os.environ['FTRMA_JOB']}}/vault-{{p}}" for p in range(4)]
def taken():
    return [os.stat(f).st_blocks / 2048 if os.path.exists(f) else 0 for f in files]
most = [2 * {MIB}, 2 * {MIB}, 2 * {MIB}, {MIB}]
began = time.monotonic()
while time.monotonic() - began < wait_s and any(t < m for t, m in zip(taken(), most)):
    time.sleep(0.01)
found = taken()
comm.Barrier()
while state.step < 6:
    ftrma.safepoint()
    window.Fence()
    window.Put(np.full(1000, 10.0 * state.step + comm.rank), (comm.rank + 1) % comm.size)
    window.Fence()
    state.step += 1
with open(f"{{home}}/taken-{{comm.rank}}.json", "w") as file:
    json.dump(found, file)
np.save(f"{{home}}/field-{{comm.rank}}.npy", field)
"""


def run(*options: str, wait_s: float) -> Any:
    result = run_job(WAITS, 2, *options, args=[str(wait_s)])
    assert result.status == 0, result
    return result


@cache
def unharmed() -> Any:
    return run("--interval", "0", wait_s=0)


@pytest.mark.full
def test_all_vaults_have_their_memory_before_the_first_checkpoint() -> None:
    """Law: both parts of the slots' and of the checksum rank's, one of the spare's; a file has some
    blocks of lists besides."""
    result = run("--interval", "0", wait_s=40)
    for found in result.of_slots("taken", 2):
        assert all(m <= t < m + 0.5 for t, m in
                   zip(found, [2 * MIB, 2 * MIB, 2 * MIB, MIB], strict=True)), found


@pytest.mark.full
def test_nothing_is_taken_where_no_checkpoint_will_be() -> None:
    for found in run("--interval", "never", wait_s=0.5).of_slots("taken", 2):
        assert max(found) < 0.5, found


@pytest.mark.full
@pytest.mark.parametrize("kill", tiers(
    ["1@safepoint:1", "1@fence:1", "c0@sum:1", "s0@time:0.2", "0@stage:1"],
    full=["1@safepoint:1", "c0@sum:1"]))
def test_a_death_amid_the_taking_changes_nothing(kill: str) -> None:
    """Law: whoever dies while memory is being taken, the result is as without a failure."""
    plain, killed = unharmed(), run("--interval", "0", "--kill", kill, wait_s=0)
    for name in ("field-0", "field-1"):
        assert plain.results[name].tobytes() == killed.results[name].tobytes()
    assert kinds(killed) == ([] if kill[0] in "cs" else ["causal"]), killed
