"""Jobs over several nodes: who dies, where it dies, where its spare is, and how strong the code is.

Law: for each valid cell of {slot, checksum rank, spare, agent} x {places of OF_ROLE} x {spare here,
elsewhere} x {m = 1, 2} x {program}, the job ends with the memory of the run without failure on one
node, bit for bit; those die who are killed, nobody else; nothing is launched again. A slot whose
spare is on its node is replayed, if it dies alone; one whose spare is elsewhere has all go back; an
agent is missed by nobody.

The cases are cells in which each two values of two columns meet, on two and on three nodes, and
every cell with one program.

Void, and so in no cell:

* a slot at the places of a checksum rank (sum, commit, fold), and the other way round;
* a checksum rank while slots replay, and a spare anywhere but in a repair: they are at no place
  then (deaths at moments that nobody chose are in test_in_place);
* a spare elsewhere for an agent, which needs none, unless a slot is replaced in the same repair;
  who comes back elsewhere is not replayed;
* a program at places to which it does not come (PLACES says where each comes; over nodes mixed is
  not replayed);
* a checksum rank but the first at the commit, which is that one's: on two nodes with m = 2 its
  spare is never elsewhere alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pytest
from jobs import Result
from nodes import NODES, remove_fake_ssh, run_on_nodes
from programs import ROOT, SLOTS, assert_same_bits, deaths, kinds, words_of
from tiers import tiers

MIXED = ROOT / "tests/faults/mixed.py"

# The visit at which each program comes to a place of slots in the middle of its run.
PLACES = {
    "put": {"stencil": 30, "lock": 30, "lockall": 30, "pscw": 30, "ft": 50, "dht": 60, "mixed": 10},
    "flush": {"lockall": 30, "mixed": 10},
    "get": {"dht": 40, "mixed": 10},
    "atomic": {"dht": 300, "mixed": 10},
    "lock-held": {"lock": 30, "lockall": 1, "mixed": 11},
    "fence": {"stencil": 25, "ft": 13, "mixed": 17},
    "call": {"pscw": 7, "mixed": 40},  # post, start, complete and wait; collective calls
}
PROGRAMS = tuple(PLACES["put"])
ANYWHERE = {program: 4 for program in PROGRAMS}  # all of them checkpoint after each step
CHECKPOINT = {"stage": ANYWHERE, "sum": ANYWHERE, "commit": ANYWHERE, "fold": ANYWHERE}
REPAIR = {"repair": dict.fromkeys(PROGRAMS, 1)}
REPLAY = {"replay": {program: 2 for program in PROGRAMS if program != "mixed"}}
OF_ROLE = {
    "slot": {**PLACES, "stage": ANYWHERE, **REPAIR, **REPLAY},
    "checksum": {**{place: ANYWHERE for place in ("sum", "commit", "fold")}, **REPAIR},
    "spare": REPAIR,
    "agent": {**PLACES, **CHECKPOINT, **REPAIR, **REPLAY},
}
SERVERS = ("sum", "commit", "fold")
# The place at which the first of two dies.
FIRST = {program: "flush:30" if program == "lockall" else f"put:{visit}"
         for program, visit in PLACES["put"].items()}

# The program, and how many agents each node has had in the end.
WATCHED = """
import os, runpy, sys, time
from pathlib import Path
directory, agents, app, *rest = sys.argv[1:]
sys.path.insert(0, os.path.dirname(app))
sys.argv = [app, *rest, "--dump", directory] if rest else [app, directory]
try:
    runpy.run_path(app, run_name="__main__")
except SystemExit as end:
    assert not end.code, end
from ftrma import MPI
from ftrma.native import wire
node = Path(os.environ["FTRMA_JOB"], os.uname().nodename)
ledger, deadline = wire.ledger_open(node / "ledger"), time.monotonic() + 10
expected = dict(word.split("=") for word in agents.split(","))[os.uname().nodename]
while wire.agents_of(ledger) < int(expected) and time.monotonic() < deadline:
    time.sleep(0.01)
found = f'["{os.uname().nodename}", {wire.agents_of(ledger)}]'
Path(directory, f"agents-{MPI.COMM_WORLD.rank}.json").write_text(found)
"""


@dataclass(frozen=True)
class Cell:
    """One row of the matrix.

    Attributes:
        role, place: who dies, where.
        where: "here": there is a spare on the node of each slot that dies; "elsewhere": not on that
            of the last one.
        m: checksum ranks of each group.
        program: one of those of `programs`.
    """

    role: str
    place: str
    where: str
    m: int
    program: str

    def __str__(self) -> str:
        return f"{self.role}-{self.place}-{self.where}-m{self.m}-{self.program}"

    def pairs(self) -> set[tuple[str, str]]:
        """The pairs of values that meet in it."""
        values = (self.role, self.place, self.where, f"m{self.m}", self.program)
        return set(itertools.combinations(values, 2))


@dataclass(frozen=True)
class Job:
    """The job of a cell on some number of nodes.

    Attributes:
        kills: rules, in the order in which they strike.
        options: of ``ftrma run``.
        agents: how many each node has had in the end.
    """

    kills: tuple[str, ...]
    options: tuple[str, ...]
    agents: tuple[int, ...]


def cells() -> Iterator[Cell]:
    for role, places in OF_ROLE.items():
        for place, programs in places.items():
            taken = role in ("slot", "checksum") or place == "repair"
            for where in ("here", "elsewhere") if taken else ("here",):
                for m, program in itertools.product((1, 2), programs):
                    yield Cell(role, place, where, m, program)


class Row(Protocol):
    """A row of some matrix."""

    def pairs(self) -> set[tuple[str, str]]:
        """The pairs of values that meet in it."""


R = TypeVar("R", bound=Row)


def pairwise(rows: Sequence[R]) -> list[R]:
    """Some rows in which all pairs of all rows are, chosen greedily and always the same."""
    left = set[tuple[str, str]]().union(*(row.pairs() for row in rows))
    chosen = []
    while left:
        best = max(rows, key=lambda row: len(row.pairs() & left))
        chosen.append(best)
        left -= best.pairs()
    return chosen


def one_program_each(rows: list[Cell]) -> list[Cell]:
    """Every row but for its program, with the programs in turn."""
    rest = [list(group) for _, group in itertools.groupby(
        rows, lambda row: (row.role, row.place, row.where, row.m))]
    return [group[i % len(group)] for i, group in enumerate(rest)]


def plan(cell: Cell, nodes: int) -> Job | None:
    """The job of a cell, with as few spares as do; None if ranks cannot lie so on these nodes."""
    twice = cell.place in ("repair", "replay")
    for groups, spares, (first, second), checksum in itertools.product(
            (1,) if cell.m == 2 else (2,) if twice else (2, 1), range(1, 3 * nodes),
            itertools.permutations(range(SLOTS), 2), range(cell.m * 2)):
        checksums = groups * cell.m
        if groups == 2 and (first // 2 == second // 2 or checksum != second // 2):
            continue  # of each group one may die
        if checksum >= (1 if cell.place == "commit" else checksums):
            continue
        # The victims are named as in a --kill rule.
        names = {"slot": second, "checksum": f"c{checksum}", "spare": f"s{spares - 1}"}
        if cell.place == "replay":
            names["slot"] = first
        before = [f"{first}@{FIRST[cell.program]}"] if twice else []
        name = names.get(cell.role) or names["checksum" if cell.place in SERVERS else "slot"]
        prefix = "a" if cell.role == "agent" else ""
        kill = f"{prefix}{name}@{cell.place}:{OF_ROLE[cell.role][cell.place][cell.program]}"
        rank = {"c": SLOTS, "s": SLOTS + checksums}
        at = sum((rank[c] if c in rank else int(c)) for c in str(name)) % nodes
        there = [(SLOTS + checksums + spare) % nodes for spare in range(spares)]
        if cell.role == "spare":
            there.pop()
        taking = [first % nodes] * twice + [at] * (cell.role in ("slot", "checksum"))
        if not seated(taking, there, cell.where == "here"):
            continue
        agents = [1 + (cell.role == "agent" and node == at) for node in range(nodes)]
        return Job((*before, kill), ("--interval", "0", "--spares", str(spares), "--checksums",
                   str(checksums), "--group-size", str(SLOTS // groups)), tuple(agents))
    return None


def seated(taking: list[int], spares: list[int], here: bool) -> bool:
    """Each of these nodes has a spare for who has died there, the last one exactly if `here`."""
    for i, node in enumerate(taking):
        if (node in spares) != (here or i < len(taking) - 1):
            return False
        if not spares:
            return False
        spares.remove(node if node in spares else spares[0])
    return True


def cases() -> Iterator[object]:
    """Pairwise on two nodes and on three; on two nodes every cell with one program, too."""
    for nodes in (2, 3):
        rows = [row for row in cells() if plan(row, nodes)]
        chosen = pairwise(rows)
        each = one_program_each(rows) if nodes == 2 else []
        for row in [*chosen, *(row for row in each if row not in chosen)]:
            yield pytest.param(row, nodes, id=f"{row}-{nodes}")


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """The stand-in for ssh is there for the tests of this file."""
    yield
    remove_fake_ssh()


@pytest.mark.parametrize(("cell", "nodes"), tiers(
    cases(), quick=["agent-fence-here-m1-stencil-2"],
    full=["slot-fence-elsewhere-m2-stencil-2"]))
def test_cell(cell: Cell, nodes: int) -> None:
    job = plan(cell, nodes)
    assert job is not None
    _, words = words_of(cell.program)
    agents = ",".join(f"{node}={n}" for node, n in zip(NODES, job.agents, strict=False))
    app, *rest = words or [str(MIXED)]
    kills = [word for kill in job.kills for word in ("--kill", kill)]
    result = run_on_nodes(WATCHED, SLOTS, *job.options, *kills, args=[agents, app, *rest],
                          timeout=60, in_turn=nodes)
    assert_same_bits(cell.program, result)
    assert deaths(result) == sorted(map(death, (k for k in job.kills if k[0] != "a"))), result
    expected = dict(zip(NODES, job.agents, strict=False))
    for node, found in result.of_slots("agents", SLOTS):  # where its slot is in the end
        assert found == expected[node], (node, result)
    assert_kinds(cell, job, result)


def death(kill: str) -> tuple[str, int, str]:
    """The deaths that `deaths` must tell."""
    name, _, place = kill.partition("@")
    role = {"c": "checksum", "s": "spare"}.get(name[0], "slot")
    return role, int(name.lstrip("cs")), place.partition(":")[0]


def assert_kinds(cell: Cell, job: Job, result: Result) -> None:
    """Nothing is launched again, and the way back is the one of the cell."""
    ways, alone = set(kinds(result)), len(job.kills) == 1
    if cell.role == "agent" and alone:
        assert not ways, result
    elif cell.program == "mixed" or (not alone and cell.role in ("slot", "checksum")):
        # Two slots that are lost at once are not replayed; a server may take a slot's spare.
        assert ways and ways <= {"causal", "rollback"}, result
    elif cell.where == "here" or cell.role == "checksum":
        assert ways == {"causal"}, result
    else:
        assert "rollback" in ways and "relaunch" not in ways, result
