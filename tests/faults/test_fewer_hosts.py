"""Hosts are lost for good, and the processes of a job have no room on the others.

Law, where nothing else is said: the job goes on from its newest checkpoint, and ends with the same
bits as without a loss. By default the hosts that are left take all processes; with
``--oversubscribe no`` none has more than its slots, and spares are given up, then checksum ranks,
and the job itself only if there is no room for its slots and one checksum rank of each group. Each
is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Result
from nodes import NODES, fake_ssh, refusing, remove_fake_ssh, run_on_nodes
from programs import kinds
from test_node_loss import PROGRAM

OPTIONS = ("--group-size", "2", "--checksums", "2", "--interval", "0", "--max-relaunch", "6")


@pytest.fixture(scope="module", autouse=True)
def nodes() -> Iterator[None]:
    yield
    remove_fake_ssh()


@pytest.fixture
def refused() -> Iterator[Path]:
    """The file of nodes that refuse ssh; none does afterwards."""
    yield refusing()
    refusing().unlink(missing_ok=True)


def run(fells: dict[int, int], slots: Sequence[int], *options: str,
        nodes: Sequence[str] = NODES, n: int = 2) -> Result:
    """Run the program on some slots, which lose nodes for good.

    Args:
        fells: a slot for a step, at which its node is lost. slots: of each node.
    """
    program = PROGRAM.format(fells=fells, daemon=False, refused=str(refusing()))
    return run_on_nodes(program, n, *OPTIONS, *options, timeout=60, by_rank=False, tidy=False,
                        files=Path(fake_ssh()).parent, slots=slots, nodes=nodes)


def fields(n: int) -> list[Any]:
    """The field of each slot after 12 steps, as the program computes it."""
    field = [np.arange(3000, dtype=float) * slot for slot in range(n)]
    for step in range(12):
        field = [0.5 * field[slot] + field[slot - 1] * 0.25 + step for slot in range(n)]
    return field


def assert_same_bits(result: Result, least: int, n: int = 2) -> None:
    """The memory is what a run without failure makes of it; programs went on from `least`."""
    assert result.status == 0, result
    for found, right in zip(result.of_slots("out", n), fields(n), strict=True):
        assert found["field"].tobytes() == right.tobytes() and found["first"] >= least


@pytest.mark.full
def test_checksum_ranks_are_given_up(refused: Path) -> None:
    """Law: the checkpoint that two checksum ranks kept is found, though the node had both slots and
    one checksum rank is left; the job goes on with it and no spare."""
    result = run({7: 1}, (2, 1, 2), "--spares", "1", "--oversubscribe", "no")
    assert_same_bits(result, 6)
    assert {*kinds(result)} == {"relaunch"}
    told = (f"ftrma: degraded: {NODES[1]} and {NODES[2]} have 3 slots: the job goes on with 0 of 1 "
            "spares and 1 of 2 checksum ranks for each group\n")
    assert result.stderr.count(told) == 1, result
    (given_up,) = result.stats["degraded"]
    assert {name: given_up[name] for name in given_up if name != "at_s"} == {
        "checksums": 1, "spares": 0, "checksums_before": 2, "spares_before": 1}
    assert (result.stats["checksums"], result.stats["spares"]) == (2, 1)


@pytest.mark.nightly
def test_spares_are_given_up_first(refused: Path) -> None:
    result = run({7: 1}, (2, 2, 2), "--spares", "2", "--oversubscribe", "no")
    assert_same_bits(result, 6)
    assert "degraded: " in result.stderr
    assert "have 4 slots: the job goes on with 0 of 2 spares\n" in result.stderr, result


@pytest.mark.full
def test_no_room_is_left(refused: Path) -> None:
    """Law: the job is given up in one line with the remedy, and leaves no file on any node."""
    result = run({4: 1}, (2, 2), "--spares", "0", "--oversubscribe", "no",
                 "--timeout", "healed=0.5", "--timeout", "return=1")
    assert result.status == 70 and result.stderr.count("error:") == 1, result
    assert ("has 2 slots, and the job needs 3 processes without its spares: --oversubscribe yes "
            "lets hosts have more") in result.stderr, result


@pytest.mark.nightly
def test_hosts_take_all_by_default(refused: Path) -> None:
    """Law: those first that have slots to spare; how many is told."""
    result = run({7: 1}, (2, 1, 2), "--spares", "1")
    assert_same_bits(result, 6)
    assert f"{NODES[1]} and {NODES[2]} have 3 slots for 5 processes now" in result.stderr, result
    assert not result.stats["degraded"]


@pytest.mark.nightly
@pytest.mark.parametrize("kill", ["1@restore:1", "0@restore:1", "c0@restore:1"])
def test_a_death_amid_the_launch_with_fewer(kill: str, refused: Path) -> None:
    """Law: the parities from which lost slots are computed are there for the next launch, too."""
    result = run({7: 1}, (2, 1, 2), "--spares", "1", "--oversubscribe", "no", "--kill", kill)
    assert_same_bits(result, 6)
    assert result.stderr.count("degraded: ") == 1, result
    assert [f["place"] for f in result.stats["failures"]].count("restore") == 1, result


@pytest.mark.nightly
def test_checksum_ranks_of_two_groups_are_given_up(refused: Path) -> None:
    """Law: each group finds its own parities, though its checksum ranks have other numbers now: the
    first node has slot 0 and checksum rank 2, of two groups."""
    result = run({7: 0}, (2, 3, 3), "--checksums", "4", "--spares", "0", "--oversubscribe", "no",
                 n=4)
    assert_same_bits(result, 6, 4)
    (given_up,) = result.stats["degraded"]
    assert (given_up["checksums_before"], given_up["checksums"]) == (4, 2)
    failures = {(name, f[name]) for f in result.stats["failures"] for name in ("slot", "checksum")
                if name in f}
    assert failures == {("slot", 0), ("checksum", 2)}, result


@pytest.mark.nightly
def test_checksum_ranks_are_given_up_twice(refused: Path) -> None:
    """Law: the parities of the launch between are sound, too: with them a slot is computed that the
    second node had."""
    result = run({4: 1, 8: 0}, (1, 2, 1, 2), "--checksums", "3", "--spares", "1",
                 "--oversubscribe", "no", nodes=(*NODES, "127.0.1.4"))
    assert_same_bits(result, 7)
    checksums = [(one["checksums_before"], one["checksums"]) for one in result.stats["degraded"]]
    assert checksums[0][0] == 3 and checksums[-1][1] < 3, result


@pytest.mark.nightly
def test_two_nodes_are_lost_in_turn(refused: Path) -> None:
    """Law: the checkpoints that the one checksum rank keeps are found, too."""
    result = run({4: 1, 8: 0}, (2, 2, 2), "--spares", "2", "--oversubscribe", "yes")
    assert_same_bits(result, 7)
