"""Groups with two checksum ranks: any two losses at once come back, a third is told.

Law, where nothing else is said: the final memory is that of the run without failure, bit for bit.
"""

from __future__ import annotations

import pytest
from jobs import run_job
from programs import SLOTS, assert_causal, assert_rollback, assert_same_bits, deaths, kinds, run
from tiers import tiers

pytestmark = pytest.mark.full
STRONG = ("--interval", "0", "--checksums", "2", "--group-size", "4")


# With the reason for which a lost slot is not replayed, empty if it is. The second one dies in the
# repair of the first: at a place of the program it might come to it only after that.
PAIRS = [
    (("0@fence:9", "3@repair:1"), "slots 0 and 3 were lost at once"),
    (("1@staged:4", "2@repair:1"), "slots 1 and 2 were lost at once"),
    (("1@stage:4", "c0@repair:1"), "slot 1's get log died with the checksum rank that held it"),
    (("2@fence:9", "c1@restore:1"), ""),
    (("2@fence:9", "0@restore:1"), "slots 0 and 2 were lost at once"),
    (("3@put:30", "s1@restore:1"), ""),
]


@pytest.mark.parametrize(("program", "kills", "reason", "policy"), tiers(
    [pytest.param(program, kills, reason, policy, id=f"{program}-{'-'.join(kills)}-{policy}")
     for kills, reason in PAIRS for program in ("stencil", "ft")
     for policy in ("rollback", "auto")],
    full=["stencil-0@fence:9-3@repair:1-auto", "stencil-1@stage:4-c0@repair:1-auto"]))
def test_two_at_once(program: str, kills: tuple[str, str], reason: str, policy: str) -> None:
    options = [part for kill in kills for part in ("--kill", kill)]
    result = run(program, *STRONG, "--spares", "3", "--policy", policy, *options)
    assert_same_bits(program, result)
    assert len(deaths(result)) == 2, deaths(result)
    if policy == "rollback":
        assert_rollback(result, "the policy is rollback")
    elif reason:
        assert_rollback(result, reason)
    else:
        assert_causal(result, [int(kills[0][0])], SLOTS + 1)
    assert result.stats["recoveries"][-1]["version"] > 0


PAIR = """
import os, signal, sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
me, n = comm.rank, comm.size
win = MPI.Win.Allocate(8 * n, 8, comm=comm)
cells = np.frombuffer(win.tomemory(), "i8")
cells[:] = 0
flag = f"{sys.argv[1]}/struck.json"
state = ftrma.protect("main", step=0)
while state.step < 30:
    pids = comm.allgather(os.getpid())
    ftrma.safepoint()
    win.Fence()
    win.Put(np.array([100 * me + state.step]), (me + 1) % n, (me, 1, MPI.INT64_T))
    if me == 1 and state.step == 17 and not os.path.exists(flag):
        open(flag, "w").write("1")
        for victim in (2, 1):
            os.kill(pids[victim], signal.SIGKILL)
    win.Fence()
    state.step += 1
np.save(f"{sys.argv[1]}/cells-{me}.npy", cells)
"""


@pytest.mark.parametrize("policy", ["auto", "rollback"])
def test_two_in_the_same_moment(policy: str) -> None:
    """Nobody has noticed the first when the second dies."""
    result = run_job(PAIR, SLOTS, *STRONG, "--spares", "2", "--policy", policy, timeout=30)
    assert result.status == 0, result
    for slot, cells in enumerate(result.of_slots("cells", SLOTS)):
        left = (slot - 1) % SLOTS
        assert cells.tolist() == [100 * left + 29 if s == left else 0 for s in range(SLOTS)]
    assert deaths(result) == [("slot", 1, "unknown"), ("slot", 2, "unknown")]
    assert_rollback(result, "slots 1 and 2 were lost at once" if policy == "auto" else "policy")
    assert result.stats["recoveries"][0]["version"] > 0


@pytest.mark.parametrize("kills", [("c0@sum:4", "c1@sum:4"), ("c0@fold:4", "c1@commit:4")])
def test_both_checksum_ranks(kills: tuple[str, str]) -> None:
    """The slots go on; both parities are computed anew."""
    result = run("stencil", *STRONG, "--spares", "2", "--kill", kills[0], "--kill", kills[1])
    assert_same_bits("stencil", result)
    assert [d[:2] for d in deaths(result)] == [("checksum", 0), ("checksum", 1)]
    assert kinds(result) == []
    assert sorted(r["checksum"] for r in result.stats["reseats"]) == [0, 1]


def test_more_checksum_ranks_than_spares() -> None:
    """One spare takes one seat; nobody waits for somebody to take the other one."""
    result = run("stencil", *STRONG, "--spares", "1", "--kill", "c0@sum:4", "--kill", "c1@sum:4")
    assert_same_bits("stencil", result)
    assert kinds(result) == ["relaunch"], result


def test_two_in_one_group_without_a_spare() -> None:
    result = run("stencil", *STRONG, "--spares", "0", "--kill", "1@fence:9", "--kill", "2@repair:1")
    assert_same_bits("stencil", result)
    assert kinds(result) == ["relaunch"]
    assert result.stats["recoveries"][0]["version"] > 0


def test_a_third_is_catastrophic() -> None:
    """The job ends with a status of its own and names the group and its lost members."""
    # Two die in the repair of the first: whatever the timing, three are lost at once.
    kills = ("--kill", "0@staged:9", "--kill", "1@repair:1", "--kill", "3@repair:1")
    result = run("stencil", *STRONG, "--spares", "4", *kills)
    assert result.status == 70
    assert "CatastrophicFailure: group 0 lost slot 0 and slot 1 and slot 3" in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
