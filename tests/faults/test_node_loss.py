"""Jobs over several nodes come back from the vaults on the nodes, a whole node's loss included.

Law, where nothing else is said: after any loss within the groups' strength the job ends with the
same bits as without it, from its newest checkpoint and not from its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Result
from nodes import NODES, PER_NODE, fake_ssh, refusing, remove_fake_ssh, run_on_nodes, struck
from programs import kinds
from tiers import tiers

SLOTS = 4
# Each slot adds what its left neighbour put to a field that only declared state remembers. FELLS
# names a slot for a step, which takes its node down once when it has come there: all ranks, with
# DAEMON the launcher's daemon too, and their shared memory.
PROGRAM = """
import os, shutil, signal, sys
from pathlib import Path
import numpy as np
import ftrma
from ftrma import MPI
comm = MPI.COMM_WORLD
n = 3000
win = MPI.Win.Allocate(8 * n, 8, comm=comm)
cells = np.frombuffer(win.tomemory())
cells[:] = comm.rank
state = ftrma.protect("s", step=0, field=np.arange(n, dtype=float) * comm.rank, begun=0)
FELLS, DAEMON, REFUSED = {fells}, {daemon}, {refused!r}

def fell_node():
    with open(REFUSED or os.devnull, "a") as file:
        file.write(os.uname().nodename + chr(10))
    uts = os.stat("/proc/self/ns/uts").st_ino
    node = Path(os.environ["FTRMA_JOB"]) / os.uname().nodename
    while node.exists():  # others on it are still making and removing files
        shutil.rmtree(node, ignore_errors=True)
    others = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    for pid in others:
        try:
            rank = b"OMPI_COMM_WORLD_RANK" in Path(f"/proc/{{pid}}/environ").read_bytes()
            here = os.stat(f"/proc/{{pid}}/ns/uts").st_ino == uts
            if here and (rank or DAEMON) and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    os.kill(os.getpid(), signal.SIGKILL)

first = state.step
while state.step < 12:
    win.Fence()
    win.Put(state.field, (comm.rank + 1) % comm.size)
    win.Fence()
    state.field[:] = 0.5 * state.field + cells * 0.25 + state.step
    state.step += 1
    ftrma.safepoint()
    fallen = Path(f"{{sys.argv[1]}}/fell-{{state.step}}.txt")
    if FELLS.get(state.step) == comm.rank and not fallen.exists():
        fallen.touch()
        fell_node()
if REFUSED:  # the node is up again
    Path(REFUSED).unlink(missing_ok=True)
np.savez(f"{{sys.argv[1]}}/out-{{comm.rank}}.npz", cells=cells, field=state.field, first=first)
"""


@pytest.fixture(scope="module", autouse=True)
def nodes() -> Iterator[None]:
    yield
    remove_fake_ssh()


def run(*options: str, fell: int = -1, step: int = -1, daemon: bool = False,
        refused: str = "", relays: bool = True) -> Result:
    program = PROGRAM.format(fells={step: fell}, daemon=daemon, refused=refused)
    always = ("--spares", "0", "--group-size", "2", "--interval", "0")
    return run_on_nodes(program, SLOTS, *always, *options, timeout=60, by_rank=False,
                        files=Path(fake_ssh()).parent, relays=relays)


@pytest.fixture(scope="module")
def reference() -> Result:
    result = run()
    assert result.status == 0, result
    assert not result.stats["recoveries"], result.stats
    # Each safepoint's, in order; the job may end before the last one is committed.
    versions = [c["version"] for c in result.stats["checkpoints"]]
    assert versions in ([*range(1, 12)], [*range(1, 13)]), result.stats
    return result


def assert_same_bits(result: Result, reference: Result, least: int) -> None:
    """The memory is equal, and programs went on from checkpoint `least` at the earliest."""
    assert result.status == 0, result
    pairs = zip(result.of_slots("out", SLOTS), reference.of_slots("out", SLOTS), strict=True)
    for found, expected in pairs:
        for name in ("cells", "field"):
            assert found[name].tobytes() == expected[name].tobytes(), name
        assert found["first"] >= least
    assert result.stderr.count("launching the job again") == len(kinds(result)), result


# A slot stages a version when the one before has its parity. Until then that one may be lost.
@pytest.mark.parametrize(("kill", "least"), tiers(
    [("3@stage:6", 5), ("c1@fold:5", 5), ("2@safepoint:6", 4), ("1@checkpoint:6", 4),
     ("0@staged:6", 5), ("c0@sum:9", 4), ("c1@sum:9", 4), ("c0@commit:5", 4), ("c0@folded:5", 5)],
    full=["3@stage:6-5"]))
def test_one_death(kill: str, least: int, reference: Result) -> None:
    result = run("--kill", kill)
    assert_same_bits(result, reference, least)
    assert kinds(result) == ["relaunch"]
    assert len(struck(result)) == 1
    assert result.stats["recoveries"][0]["version"] >= least


@pytest.mark.full
def test_death_while_restoring(reference: Result) -> None:
    """A vault that was being computed is no vault; the others are still there."""
    result = run("--kill", "2@safepoint:6", "--kill", "2@restore:1")
    assert_same_bits(result, reference, 4)


@pytest.mark.parametrize("fell", tiers(range(4), full=["1"]))
def test_node_loss_with_awareness(fell: int, reference: Result) -> None:
    """By default no node holds two of a group: what its vaults held is computed from the others."""
    result = run(fell=fell, step=7)
    assert_same_bits(result, reference, 6)
    assert kinds(result) == ["relaunch"]
    assert result.stats["recoveries"][0]["version"] >= 6
    failures = result.stats["failures"]  # survivors may be among them, see `nodes.struck`
    (lost,) = [f["host"] for f in failures if f.get("slot") == fell]
    assert [f["host"] for f in failures].count(lost) == PER_NODE, failures


@pytest.mark.full
def test_node_loss_with_its_daemon(reference: Result) -> None:
    """Law: a launcher without relays then ends all other ranks by itself, wherever they are; the
    node whose loss it was is named, and its processes alone are the failures."""
    result = run(fell=3, step=7, daemon=True, relays=False)
    assert_same_bits(result, reference, 6)
    assert kinds(result) == ["relaunch"]
    failures = result.stats["failures"]
    (lost,) = {failure["host"] for failure in failures}
    assert len(failures) == PER_NODE and 3 in [f.get("slot") for f in failures], failures
    words = f"all processes on {lost} died, and the launcher with it"
    assert f"ftrma: {words}; launching the job again" in result.stderr, result
    assert result.stats["recoveries"][0]["reason"] == words


@pytest.fixture
def refused() -> Iterator[Path]:
    """The file of nodes that refuse ssh; none does afterwards."""
    yield refusing()
    refusing().unlink(missing_ok=True)


@pytest.mark.parametrize("daemon", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.nightly
def test_a_lost_node_that_refuses_ssh(daemon: bool, reference: Result, refused: Path) -> None:
    """Law: a node that answers, but on which nothing can be started, costs one launch, which names
    it; the next one goes without it."""
    result = run(fell=1, step=7, daemon=daemon, refused=str(refused))
    assert result.status == 0, result
    for found, expected in zip(result.of_slots("out", SLOTS), reference.of_slots("out", SLOTS),
                               strict=True):
        assert found["field"].tobytes() == expected["field"].tobytes() and found["first"] >= 6
    (lost,) = set(re.findall("nothing can be started on ([0-9.]+)", result.stderr))
    assert result.stderr.count("launching the job again") == 2, result
    assert (f"nothing can be started on {lost} (ssh: connect to host {lost} port 22: Connection "
            "refused)") in result.stderr, result
    assert f"no answer from {lost}; going on with" in result.stderr, result


def run_pair(refused: Path, fells: dict[int, int], *options: str, in_turn: int = 0) -> Result:
    """Run the program on two slots, which lose nodes that are down until its end; a lost node ends
    the launch."""
    program = PROGRAM.format(fells=fells, daemon=False, refused=str(refused))
    return run_on_nodes(program, 2, "--group-size", "2", "--interval", "0", *options, timeout=60,
                        by_rank=False, files=Path(fake_ssh()).parent, in_turn=in_turn,
                        relays=False)


@pytest.fixture(scope="module")
def pair() -> Result:
    """A run on two slots in which no node is lost."""
    result = run_pair(refusing(), {})
    assert result.status == 0 and not result.stats["failures"], result
    return result


def assert_pair(result: Result, pair: Result) -> None:
    assert result.status == 0, result
    for found, right in zip(result.of_slots("out", 2), pair.of_slots("out", 2), strict=True):
        for name in ("cells", "field"):
            assert found[name].tobytes() == right[name].tobytes(), name


@pytest.mark.full
def test_a_second_node_is_lost(refused: Path, pair: Result) -> None:
    """Law: no launch begins on the node that was lost first, when another one is lost."""
    result = run_pair(refused, {4: 0, 8: 1}, "--checksums", "2", "--spares", "0",
                      "--max-relaunch", "6", in_turn=3)
    assert_pair(result, pair)
    assert all(found["first"] >= 7 for found in result.of_slots("out", 2))
    assert re.findall("nothing can be started on ([0-9.]+)", result.stderr) == [*NODES[:2]], result
    assert result.stderr.count("launching the job again") == 4, result
    assert f"no answer from {NODES[1]}; going on with {NODES[2]}\n" in result.stderr, result


@pytest.mark.nightly
def test_a_spare_takes_a_slot_in_the_next_launch(refused: Path, pair: Result) -> None:
    """Law: the vault that a spare has kept under its number is not taken for its slot's, when it
    holds one in the next launch and takes part in a repair there.

    Process 1 is that spare, beside slot 0. It holds slot 1 then. When slot 0 dies, it is computed
    from slot 1's vault.
    """
    result = run_pair(refused, {4: 1}, "--spares", "3", "--kill", "0@safepoint:6")
    assert_pair(result, pair)
    assert result.stderr.count("launching the job again") == 2, result
    assert kinds(result)[0] == "relaunch" and len(kinds(result)) == 2, result.stats


@pytest.mark.full
@pytest.mark.parametrize("spares", [4, pytest.param(0, marks=pytest.mark.nightly)])
def test_a_first_launch_without_a_node(spares: int, refused: Path) -> None:
    """Law: it is tried without the node where that would have had no more than the spares; else the
    node is named."""
    refused.write_text(f"{NODES[2]}\n")
    result = run("--spares", str(spares))
    assert f"nothing can be started on {NODES[2]} (ssh: connect" in result.stderr, result
    assert (result.status, result.stderr.count("error:")) == ((0, 0) if spares else (70, 1)), result


@pytest.mark.full
def test_node_loss_without_awareness() -> None:
    """Slots 0 and 1 are on one node and in one group: their memory is gone, and that is said."""
    result = run("--aware", "none", fell=0, step=7)
    assert result.status == 70
    assert "CatastrophicFailure: group 0 lost slot 0 and slot 1" in result.stderr, result
    assert result.stderr.count("error:") == 1, result


@pytest.mark.full
def test_stronger_groups_stand_a_node_loss(reference: Result) -> None:
    """All six roles on three nodes in one group with m = 2: any node is two of it."""
    result = run("--group-size", "4", "--checksums", "2", fell=2, step=7)
    assert_same_bits(result, reference, 6)


@pytest.mark.full
@pytest.mark.parametrize("asked", [
    pytest.param((), id="default", marks=pytest.mark.nightly),
    pytest.param(("--aware", "nodes"), id="asked")])
def test_awareness_that_cannot_hold_is_told(asked: tuple[str, ...]) -> None:
    result = run("--group-size", "4", *asked)
    assert result.status == 0
    assert "--aware nodes holds at no level" in result.stderr, result


def test_unknown_level_is_refused() -> None:
    result = run("--aware", "racks")
    assert result.status == 2
    assert "--aware racks: levels here are none, nodes" in result.stderr, result
