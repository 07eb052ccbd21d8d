"""A node is lost: in which way, at which place, with which program, and on how many nodes.

Law: for each valid cell of {killed, daemon, cut, frozen} x places x programs x {2, 3, 4 nodes} the
job ends with the memory of the run without failure on one node, bit for bit; one node is lost, and
nothing is launched again. When a node's network is back, its processes end by themselves, and
nothing is left on any node.

    killed  all of the node at once, the launcher's daemon too
    daemon  the launcher's daemon alone; its ranks die with it, the agent and the memory do not
    cut     no packet leaves the node or comes in any more, for some seconds
    frozen  the same, and nothing runs there meanwhile

The cases are cells in which each two values of two columns meet, and pairs of failures. Each node
has a network of its own (`nodenets`), and `tests/c/nodeloss.c` is loaded into the ranks.

Void, and so in no cell: the commit, which is the first checksum rank's, on two nodes, where that
one is on the node of slot 0, which cannot be lost in place; programs at places to which they do not
come.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from jobs import Result
from nodenets import HOSTS, networks, why_not
from nodes import fake_ssh, remove_fake_ssh, run_on_nodes
from programs import ROOT, SLOTS, assert_same_bits, kinds, words_of
from test_matrix import ANYWHERE, CHECKPOINT, FIRST, PLACES, REPAIR, REPLAY, SERVERS, pairwise
from tiers import tiers

WAYS = ("killed", "daemon", "cut", "frozen")
# At the last two one of its slots has died before: it is lost amid the repair, and the replay.
PLACE_OF = {**PLACES, **CHECKPOINT, "safepoint": ANYWHERE, **REPAIR, **REPLAY}
LOST = "died; it counts as lost"
SILENT_S, BACK_S = 2, 4  # a cut node is lost after SILENT_S, and back after BACK_S
ALWAYS = ("--group-size", "2", "--interval", "0", "--timeout", f"node-silent={SILENT_S}")


@dataclass(frozen=True)
class Nodes:
    """The seating of jobs on so many nodes.

    Attributes:
        options: of ``ftrma run``; each node has a spare, and the others have one for each of the
            lost node's roles.
        slots: of the nodes, for the launcher; (): ranks go to them in turn.
        slot, checksum: who is on nodes that are lost. Slot 0 is on the first node.
        beside: another one beside the slot, as a rule names it.
    """

    options: tuple[str, ...]
    slots: tuple[int, ...]
    slot: int
    checksum: int
    beside: str


ON = {
    2: Nodes(("--checksums", "4", "--spares", "5"), (8, 5), 3, 1, "2"),
    3: Nodes(("--spares", "3"), (), 3, 0, "c0"),
    4: Nodes(("--spares", "4"), (), 1, 0, "c1"),
}


@dataclass(frozen=True)
class Cell:
    """One row of the matrix."""

    way: str
    place: str
    program: str
    nodes: int

    def __str__(self) -> str:
        return f"{self.way}-{self.place}-{self.program}-{self.nodes}"

    def pairs(self) -> set[tuple[str, str]]:
        """The pairs of values that meet in it."""
        return set(itertools.combinations(
            (self.way, self.place, self.program, str(self.nodes)), 2))

    def kills(self) -> list[str]:
        """The rules, in the order in which they strike."""
        on, visit = ON[self.nodes], PLACE_OF[self.place][self.program]
        victim = {**dict.fromkeys(SERVERS, f"c{on.checksum}"), "repair": on.beside}.get(
            self.place, str(on.slot))
        first = [f"{on.slot}@{FIRST[self.program]}"] if self.place in ("repair", "replay") else []
        return [*first, f"n{victim}@{self.place}:{visit}"]


def cells() -> Iterator[Cell]:
    for way, (place, programs) in itertools.product(WAYS, PLACE_OF.items()):
        for program, nodes in itertools.product(programs, ON):
            if place != "commit" or nodes > 2:
                yield Cell(way, place, program, nodes)


@pytest.fixture(scope="module")
def library() -> Iterator[Path]:
    """The directory with the library that has nodes lost in these ways, which all nodes see."""
    if why := why_not():
        pytest.skip(f"nodes can have no networks here: {why}")
    directory = Path(fake_ssh()).parent
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
                    directory / "nodeloss.so", ROOT / "tests/c/nodeloss.c", "-ldl"], check=True)
    yield directory
    remove_fake_ssh()


def run(library: Path, way: str, program: str, nodes: int, *options: str) -> Result:
    on, (script, args) = ON[nodes], words_of(program)
    env = {"LD_PRELOAD": str(library / "nodeloss.so"), "NODE_LOSS": way, "NODE_BACK_S": str(BACK_S)}
    with networks(HOSTS[:nodes]) as inside:
        return run_on_nodes(script, SLOTS, *ALWAYS, *on.options, *options, args=args, timeout=90,
                            by_rank=False, late=True, nodes=HOSTS[:nodes], slots=on.slots,
                            in_turn=0 if on.slots else nodes, files=library, inside=inside,
                            env={} if way == "killed" else env)


def words(kills: list[str]) -> list[str]:
    return [word for kill in kills for word in ("--kill", kill)]


@pytest.mark.parametrize("cell", tiers(
    [pytest.param(row, id=str(row)) for row in pairwise(list(cells()))],
    full=["cut-fence-stencil-2", "frozen-fence-stencil-3"]))
def test_cell(cell: Cell, library: Path) -> None:
    result = run(library, cell.way, cell.program, cell.nodes, *words(cell.kills()))
    assert_lost(cell.program, result, 1)


def assert_lost(program: str, result: Result, nodes: int) -> None:
    assert_same_bits(program, result)
    assert result.stderr.count(LOST) == nodes and "relaunch" not in kinds(result), result


# On four nodes: slot 1 is on the second, slot 2 on the last one. Behind the rules, how many nodes
# are lost.
PAIRS = (
    ("a1@put:20 n1@put:30", 1), ("a0@put:20 n1@put:30", 1), ("2@put:20 n1@repair", 1),
    ("n1@put:20 n2@put:40", 2), ("n1@put:20 n2@repair", 2),
)


@pytest.mark.parametrize(("kills", "lost", "way"), tiers(
    [("a1@put:20 2@put:30", 0, WAYS[0]), *((*pair, way) for pair in PAIRS for way in WAYS)]))
def test_pairs(kills: str, lost: int, way: str, library: Path) -> None:
    """An agent and a slot, an agent and a node, a slot and amid its repair a node, two nodes one
    after the other, and the second amid the repair of the first."""
    result = run(library, way, "stencil", 4, "--spares", "8", "--group-size", "1", "--checksums",
                 "4", *words(kills.split()))
    assert_lost("stencil", result, lost)
