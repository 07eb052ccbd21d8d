"""Jobs over several nodes, of which one has a single process: its death is noticed, though nobody
else on the node sees it, and nobody waits for a node that is left empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import NODES, before_daemons, remove_fake_ssh, run_on_nodes
from programs import assert_replaced, deaths, kinds
from tiers import tiers


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


HALVES = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
again = comm.Dup()
state = ftrma.protect("halves", step=0, sums=0)
while state.step < 20:
    ftrma.safepoint()
    state.sums += again.allreduce(state.step + again.rank)
    state.step += 1
np.savez(f"{sys.argv[1]}/sums-{comm.rank}.npz", sums=state.sums)
"""


@pytest.mark.full
@pytest.mark.parametrize(("kill", "kind"), [
    ("1@safepoint:7", "rollback"), ("c0@sum:7", "causal")])
def test_who_is_alone_on_a_node(kill: str, kind: str) -> None:
    """Slot 1 and the checksum rank have a node each; nobody else there sees a death."""
    result = run_on_nodes(HALVES, 2, "--interval", "0", "--kill", kill, in_turn=3)
    assert result.status == 0 and kinds(result) == [kind], result
    assert_replaced(result, kill)
    for found in result.of_slots("sums", 2):
        assert found["sums"] == sum(2 * step + 1 for step in range(20))


SLOW = """
import sys, time
import numpy as np
import ftrma
from ftrma import MPI
state = ftrma.protect("slow", step=0)
while state.step < 24:
    ftrma.safepoint()
    MPI.COMM_WORLD.Barrier()
    time.sleep(0.5)
    state.step += 1
np.savez(f"{sys.argv[1]}/steps-{MPI.COMM_WORLD.rank}.npz", steps=state.step)
"""


@pytest.mark.nightly
def test_who_is_alone_is_replaced_while_others_compute() -> None:
    """A repair begins when the others come to a call of MPI; that the node is there is known."""
    result = run_on_nodes(SLOW.replace("0.5", "2.5").replace("24", "3"), 2, "--interval", "0",
                          "--kill", "1@safepoint:2", in_turn=3, timeout=40)
    assert result.status == 0 and kinds(result) == ["rollback"], result


@pytest.mark.parametrize("slots", tiers([1, 4], full=["4"]))
@pytest.mark.nightly
def test_nobody_waits_for_a_dead_spare(slots: int) -> None:
    """With one slot it is alone on its node. The supervisor gives a repair 10 s."""
    result = run_on_nodes(SLOW, slots, "--kill", "s0@time:0.3", in_turn=3, timeout=40)
    assert result.status == 0 and kinds(result) == [], result
    assert [death[:2] for death in deaths(result)] == [("spare", 0)], result
    assert all(found["steps"] == 24 for found in result.of_slots("steps", slots))


@pytest.mark.nightly
def test_an_agent_without_processes_is_not_missed(tmp_path: Path) -> None:
    """The checksum rank dies, alone on its node; all agents are killed later, of which that one is
    not followed by another; then a slot dies. With relays the node would be given up at once."""
    kills = ("c0@time:0.3", "1@safepoint:16")
    # Once on each node: where the job's end clears away what a node has, there is an agent, too.
    before_daemons(
        f"(mkdir {tmp_path}/$(hostname) || exit; until [ -e {tmp_path}/now ]; do sleep 0.1; done; "
        f"pkill -KILL -f [f]trma.launch.agent && touch {tmp_path}/$(hostname)/killed"
        ") >/dev/null 2>&1 &")
    tell = f"state.step += 1\n    if state.step == 9: open('{tmp_path}/now', 'w')\n"
    program = SLOW.replace("0.5", "0.35").replace("state.step += 1\n", tell)
    try:
        result = run_on_nodes(program, 2, "--spares", "2", "--kill", kills[0], "--kill", kills[1],
                              in_turn=3, timeout=60, files=tmp_path, relays=False)
    finally:
        before_daemons("")
    assert sorted(path.parent.name for path in tmp_path.glob("*/killed")) == sorted(NODES), result
    assert result.status == 0, result
    assert_replaced(result, *kills)
    assert kinds(result) == ["causal", "causal"], result
    assert all(found["steps"] == 24 for found in result.of_slots("steps", 2))


@pytest.mark.full
def test_communicators_are_made_anew_where_no_slot_is_left() -> None:
    """A rollback on a node whose only slot died: a checksum rank clears away what slots shared."""
    kill = ("--kill", "0@safepoint:7", "--policy", "rollback")
    result = run_on_nodes(HALVES, 2, "--spares", "2", "--interval", "0", *kill, in_turn=2)
    assert result.status == 0 and kinds(result) == ["rollback"], result
    for found in result.of_slots("sums", 2):
        assert found["sums"] == sum(2 * step + 1 for step in range(20))
