"""A node is lost, with its processes, agent and memory, and the others go on in place.

Law: as long as the node is not that of rank 0, no group has lost more than it stands, and spares
are left, nothing is launched again; all go back to the checkpoint, and end with the same bits.
Beyond that the job is launched again, and ends with the same bits. ``n2@put:5`` kills all of a
node, the launcher's daemon too, when slot 2 comes to its fifth put.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from instructions import programs
from jobs import Result
from nodes import NODES, fake_ssh, remove_fake_ssh, run_on_nodes
from programs import kinds
from test_node_loss import PROGRAM
from tiers import tiers

SLOTS = 4
# Two of each group, on different nodes, and a spare of each node: any node can be lost.
OPTIONS = ("--spares", "3", "--group-size", "2", "--interval", "0")
LOST = "died; it counts as lost"


@pytest.fixture(scope="module", autouse=True)
def nodes() -> Iterator[None]:
    yield
    remove_fake_ssh()


def run(*options: str, text: str = PROGRAM, relays: bool = True) -> Result:
    program = text.format(fells={}, daemon=False, refused="") if text is PROGRAM else text
    return run_on_nodes(program, SLOTS, *OPTIONS, *options, timeout=90, by_rank=False, tidy=False,
                        in_turn=len(NODES), files=Path(fake_ssh()).parent, relays=relays)


@pytest.fixture(scope="module")
def reference() -> Result:
    result = run()
    assert result.status == 0 and not result.stats["recoveries"], result
    return result


def assert_same_bits(result: Result, reference: Result) -> None:
    assert result.status == 0, result
    for found, expected in zip(result.of_slots("out", SLOTS), reference.of_slots("out", SLOTS),
                               strict=True):
        for name in ("cells", "field"):
            assert found[name].tobytes() == expected[name].tobytes(), (name, result)


# The seating: the first node has slots 0 and 2, the second one slot 1 and checksum rank 1, the last
# one slot 3 and checksum rank 0, and each a spare. Slots 0 and 1 and checksum rank 0 are a group.
@pytest.mark.parametrize("kills", tiers([
    "n3@put:5", "n3@fence:9", "nc0@commit:3", "nc0@fold:4", "nc0@sum:5", "n3@stage:4",
    "n3@staged:5", "n3@safepoint:6", "n1@checkpoint:4", "nc1@folded:5", "n1@put:1",
    "3@put:5 n3@restore", "3@put:5 ns2@repair", "1@put:5 n1@restore", "a1@put:4 n1@put:5",
    "a0@put:4 n3@put:5",
], full=["n3@put:5", "3@put:5 n3@restore"]))
def test_a_node_is_lost_at_a_place(kills: str, reference: Result) -> None:
    result = run(*[word for rule in kills.split() for word in ("--kill", rule)])
    assert_same_bits(result, reference)
    assert result.stderr.count(LOST) == 1 and "relaunch" not in kinds(result), result
    assert "rollback" in kinds(result), result
    died = [failure["host"] for failure in result.stats["failures"]]
    assert max(map(died.count, died)) == 3, result.stats["failures"]


@pytest.mark.nightly
def test_the_reason_is_told(reference: Result) -> None:
    result = run("--kill", "n3@put:5")
    (recovery,) = result.stats["recoveries"]
    assert recovery["reason"] == "the logs of slot 3 were lost with its node", recovery
    assert recovery["slots"] == [3] and recovery["version"] >= 3
    assert result.stderr.startswith(f"ftrma: all processes on {NODES[2]} {LOST}\n"), result
    assert f"back at checkpoint {recovery['version']} in" in result.stderr, result


@pytest.mark.nightly
def test_a_second_node_and_a_launch_without_both(reference: Result) -> None:
    """Law: where no spares are left the next launch goes without the lost nodes; a rule that has
    struck on a lost node does not strike again."""
    result = run("--kill", "n3@put:5", "--kill", "n1@put:8")
    assert_same_bits(result, reference)
    assert kinds(result) == ["rollback", "relaunch"] and result.stderr.count(LOST) == 2, result


@pytest.mark.parametrize("kills", ["0@put:7 n3@repair", "c0@sum:4 n1@repair"])
@pytest.mark.nightly
def test_more_is_lost_than_a_group_stands(kills: str, reference: Result) -> None:
    """Law: then the job is launched again, since a dead process's vault is still on its node."""
    result = run(*[word for rule in kills.split() for word in ("--kill", rule)])
    assert_same_bits(result, reference)
    assert kinds(result)[-1] == "relaunch" and result.stderr.count(LOST) == 1, result


@pytest.mark.parametrize("relays", tiers([True, False], full=["True"]))
def test_the_first_node_is_lost(relays: bool, reference: Result) -> None:
    """Law: without the node of rank 0, by which the others speak, the job is launched again; so it
    is, without relays, after the loss of any node."""
    result = run("--kill", f"n{0 if relays else 3}@put:5", relays=relays)
    assert_same_bits(result, reference)
    assert kinds(result) == ["relaunch"] and LOST not in result.stderr, result


# Slots 0 and 3 are on the supervisor's node.
@pytest.mark.parametrize("kill", tiers(
    [f"n{slot}@{place}" for slot in (1, 2) for place in (
        "start", "put:3", "fence:9", "staged:4", "safepoint:7")]
    + [f"nc0@{place}" for place in ("sum:4", "commit:3", "fold:3", "folded:4", "time:0.2")],
    full=["n2@put:3"]))
def test_any_node_but_the_supervisors(kill: str, reference: Result) -> None:
    """Law: with --aware nodes and one checksum rank per group each node of four is lost without
    another launch, but that of the supervisor, which is the first one here."""
    text = PROGRAM.format(fells={}, daemon=False, refused="")
    hosts = (socket.gethostname(), *NODES)
    options = (*OPTIONS, "--spares", "4", "--aware", "nodes", "--kill", kill)
    result = run_on_nodes(text, SLOTS, *options, timeout=90, by_rank=False, tidy=False, nodes=hosts,
                          in_turn=len(hosts), files=Path(fake_ssh()).parent)
    assert_same_bits(result, reference)
    back = ["causal"] if kill.startswith("nc") else ["rollback"]
    assert kinds(result) == back and result.stderr.count(LOST) == 1, result


# Each slot's sums go around by messages and collectives of the library's, which needs a
# communicator of the living for them.
MESSAGES = """
import sys
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate(8 * comm.size, 8, comm=comm)
cells = np.frombuffer(win.tomemory())
cells[:] = 0
state = ftrma.protect("s", step=0, field=np.zeros(comm.size))
while state.step < 12:
    ftrma.safepoint()
    win.Fence()
    win.Put(np.array([state.step + comm.rank + 1.0]), (comm.rank + 1) % comm.size, comm.rank)
    win.Fence()
    got = np.empty(comm.size)
    comm.Sendrecv(state.field, (comm.rank + 1) % comm.size, 0, got, (comm.rank - 1) % comm.size, 0)
    request = comm.Iallreduce(cells.copy(), total := np.empty(comm.size))
    request.Wait()
    state.field[:] = 0.5 * got + total / (1 + comm.rank)
    state.step += 1
np.savez(f"{sys.argv[1]}/out-{comm.rank}.npz", cells=cells, field=state.field)
"""


@pytest.mark.nightly
def test_messages_of_the_library_behind_a_lost_node() -> None:
    reference = run(text=MESSAGES)
    result = run("--kill", "n3@put:5", text=MESSAGES)
    assert_same_bits(result, reference)
    assert kinds(result) == ["rollback"], result


STRONG = ("--group-size", "3", "--checksums", "2", "--spares", "4")  # over three nodes


@pytest.mark.nightly
def test_a_framework_recovers_behind_a_lost_node() -> None:
    """Law: a framework that has claimed failures recovers by itself, as after a death."""
    it = programs.PROGRAMS["graph"]
    result = run_on_nodes(it.script, programs.SLOTS, *STRONG, "--kill", "n2@graph.compute:6",
                          args=it.args, timeout=90, by_rank=False, tidy=False, in_turn=len(NODES),
                          files=Path(fake_ssh()).parent)
    assert result.status == 0 and not programs.difference("graph", 0, result), result
    assert kinds(result) == ["reentry"] and result.stderr.count(LOST) == 1, result


# ---- drawn programs, which lose nodes and processes at drawn places ------------------------------

FIRST = int(os.environ.get("FTRMA_LOST_FIRST", "0"))
COUNT = int(os.environ.get("FTRMA_LOST_COUNT", "200"))
AT = {"n": ("put", "get", "flush", "fence", "lock-held", "atomic", "safepoint", "checkpoint",
            "stage", "staged", "time", "start"),
      "nc": ("sum", "commit", "fold", "folded")}
IN_REPAIRS = ("n{}@repair", "n{}@restore", "n{}@replay", "nc0@repair", "nc1@restore", "ns0@restore",
              "ns3@repair")


def draw_rule(dice: random.Random) -> str:
    whose = dice.choice(("n", "n", "n", "n", "nc"))
    place, index = dice.choice(AT[whose]), dice.randrange(3 if whose == "n" else 2)
    count = int(2 ** dice.uniform(0, 4 if whose == "n" else 2))
    at = {"time": f"{dice.uniform(0, 0.4):.3f}", "start": "1"}.get(place, str(count))
    return f"{whose}{index}@{place}:{at}"


@pytest.mark.parametrize("seed", [
    pytest.param(seed, marks=pytest.mark.nightly) for seed in range(FIRST, FIRST + COUNT)])
def test_drawn_programs_lose_nodes(seed: int) -> None:
    """Law: whatever nodes and processes are lost, the bits are those of the run without failure."""
    dice = random.Random(f"lost nodes {seed}")
    program = dice.choice(("mixed", "drawn", "drawn", "dht"))
    number, rules = programs.draw_number(program, dice), [draw_rule(dice)]
    if dice.random() < 0.4:
        rules.append(draw_rule(dice)[1:])
    if dice.random() < 0.25:
        rules.append(dice.choice(IN_REPAIRS).format(dice.randrange(3)))
    if dice.random() < 0.15:
        rules.append("a" + draw_rule(dice)[1:])
    options = dice.choice((("--interval", "0"), ("--interval", "0.02"), ("--interval", "never"),
                           ("--interval", "0", "--policy", "rollback")))
    it = programs.PROGRAMS[program]
    options = (*options, *[word for rule in rules for word in ("--kill", rule)])
    result = run_on_nodes(
        it.script, programs.SLOTS, *STRONG, "--max-relaunch", "6", *options,
        args=programs.args_of(program, number), timeout=150, by_rank=False, tidy=False,
        in_turn=len(NODES), files=Path(fake_ssh()).parent)
    assert result.status == 0, result
    assert not programs.difference(program, number, result), result
