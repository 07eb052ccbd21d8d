"""A launch over several nodes brings back the vaults of the one before.

Its processes are threads here, agents are real processes, nodes are directories.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from farvaults import Spread, state
from filenodes import Nodes, several
from vaultgroup import Apart, content, flip

from ftrma.host.errors import CatastrophicFailure
from ftrma.machine.placement import Placement
from ftrma.machine.topology import NO_LEVEL, Layout, make_layout
from ftrma.native import job, loading, vaults
from ftrma.native.constants import CHECKSUM, SLOT
from ftrma.native.shared import Version
from ftrma.protocol import salvage
from ftrma.protocol.retrieval import Retrieval
from ftrma.protocol.vault_inventory import VaultInventory
from ftrma.vault.group import coefficients
from ftrma.vault.vault import BLOCK, Vault

HOME = [0, 1, 2, 0, 1]  # node of each role: three slots, then two checksum ranks
LAYOUT = make_layout(3, checksums=2, group_size=3, spares=0)
ROLES = salvage.roles_of(LAYOUT)
SIZES = [3 * BLOCK + 17, 20 * BLOCK, 1]


class Comm:
    """Among threads, each of which has one of its own."""

    def __init__(self, barrier: threading.Barrier, told: list[Any], proc: int) -> None:
        self.barrier, self.told, self.proc = barrier, told, proc

    def allgather(self, value: Any) -> list[Any]:
        self.told[self.proc] = value
        self.barrier.wait()
        found = list(self.told)
        self.barrier.wait()
        return found

    def Barrier(self) -> None:
        self.barrier.wait()


class Launch:
    """The next one: role i is that of process i.

    Args:
        where: node of each process.
        layout: of this launch.
        homes: of vaults, as the supervisor knows them; of none.

    Attributes:
        restored: roles that were filled, in any order; told: what was said to the user.
    """

    def __init__(self, nodes: Nodes, where: Sequence[int], layout: Layout = LAYOUT,
                 homes: Sequence[tuple[str, int, str]] = ()) -> None:
        self.where, self.layout, self.homes = where, layout, homes
        self.roles, self.procs = salvage.roles_of(layout), layout.processes
        self.restored: list[str] = []
        self.told: list[str] = []
        self.barrier = threading.Barrier(self.procs, timeout=30)
        self.ctls = [self._control() for _ in nodes.nodes]
        self.views = [self._view(nodes, proc) for proc in range(self.procs)]

    def _control(self) -> Any:
        """The control file of one node, which sees at a meeting what others have stored."""
        ctl = loading.load().ffi.new("struct ftrma_ctl *")
        ctl.nslots, ctl.ngroups, ctl.group_size, ctl.strength = 3, 1, 3, self.layout.strength
        ctl.nchecksums, ctl.nprocs, ctl.capacity_blocks = self.layout.checksums, self.procs, 300
        for proc in range(self.procs):
            ctl.proc[proc].state = job.ProcessState.ALIVE
        for slot in range(3):
            ctl.roles[0].slot_proc[slot] = slot
        for checksum in range(self.layout.checksums):
            ctl.roles[0].checksum_proc[checksum] = 3 + checksum
        return ctl

    def _meet(self, number: int, phase: int, *, planned: bool) -> None:
        if self.barrier.wait() == 0:
            for proc, node in enumerate(self.where):
                for ctl in self.ctls:
                    ctl.proc[proc].ready = self.ctls[node].proc[proc].ready
        self.barrier.wait()

    def _view(self, nodes: Nodes, proc: int) -> Any:
        node = self.where[proc]
        view: Any = Apart(nodes[node].directory, self.ctls[node], proc)
        view.meet = self._meet
        view.remote_files = nodes.files(proc, self.where)
        view.table = SimpleNamespace(
            proc=proc, hosts=[f"node-{n}" for n in self.where], host=f"node-{node}",
            node=node, first_on_node=self.where.index(node) == proc,
            node_of=lambda other: self.where[other])
        view.inventory = VaultInventory(view.directory, f"node-{node}", self.layout, 300)
        view.role = lambda: (SLOT, proc) if proc < 3 else (CHECKSUM, proc - 3)
        view.vault_path = lambda other: view.inventory.path(self.roles[other])
        view.critical = threading.Lock()
        view.visit, view.tell = (lambda place: None), self.told.append
        view.emit = lambda event: self.restored.append(f"{event.role}-{event.index}")
        return view

    def run(self) -> list[Retrieval]:
        barrier, told = self.barrier, [None] * self.procs

        def live(view: Any) -> Retrieval:
            comm = Comm(barrier, told, view.proc)
            try:
                inventory, table = view.inventory, view.table
                inventory.exchange(comm, self.homes, looking=table.first_on_node)
                inventory.open_mine(table, Placement(
                    self.layout, tuple(view.slot_holders()), tuple(view.checksum_holders()), (),
                    NO_LEVEL))
                made = Retrieval(view, inventory, comm,
                                 {role: i for i, role in enumerate(self.roles)})
                made.run()
            except BaseException:
                barrier.abort()
                raise
            return made

        with ThreadPoolExecutor(self.procs) as threads:
            lives = [threads.submit(live, view) for view in self.views]
        errors = [life.exception() for life in lives]
        for error in errors:
            if error and not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [life.result() for life in lives]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with several(3) as made:
        yield made


@pytest.fixture
def left(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Vaults of a job that has ended, and what each holds."""
    monkeypatch.setattr(job, "ring", lambda: None)  # no control file is joined
    group = Spread(nodes, HOME, SIZES, 7, 2)
    for _ in range(3):
        group.checkpoint()
    held = []
    for i, role in enumerate(ROLES):
        vault = group.element(i)
        vault.words.version = Version(3)
        held.append(state(vault, 3 if role[0] == "checksum" else 0))
        path = group.view_of(i).vault_path(i)
        path.rename(path.with_name(f"{role[0]}-{role[1]}"))
    group.close()
    yield held
    for node in nodes.nodes:
        for path in (*node.directory.glob("slot-*"), *node.directory.glob("checksum-*")):
            path.unlink()
    nodes.close_files()


def assert_as_left(retrieval: Retrieval, members: int, left: list[bytes]) -> None:
    """Each role has what it had; a computed vault may have more blocks, which are zero."""
    assert retrieval.version == 3 and retrieval.vault is not None
    vault = retrieval.vault
    found = state(vault, members)
    assert all(now.startswith(then) for now, then in zip(found, left, strict=True))
    assert not found[0][len(left[0]) :].strip(b"\0") and vaults.check(vault.c, vault.c, -1) < 0
    vault.close()


def lose(nodes: Nodes, *roles: str) -> None:
    for name in roles:
        for node in nodes.nodes:
            (node.directory / name).unlink(missing_ok=True)


def damage(nodes: Nodes, name: str) -> None:
    path = nodes[HOME[[f"{k}-{i}" for k, i in ROLES].index(name)]].directory / name
    vault = Vault(path, 0, 3, create=False)
    flip(vault, 1)
    vault.close()


LOST = [
    (), ("slot-1",), ("checksum-0",), ("slot-0", "slot-2"), ("slot-1", "checksum-0"),
    ("checksum-0", "checksum-1"),
]
CASES = [
    *itertools.product((HOME, [2, 0, 1, 2, 2], [1, 1, 2, 0, 2]), LOST),
    *(([0, 1, 0, 0, 1], lost) for lost in LOST if len({*lost, "slot-2"}) <= 2),  # node 2 is gone
]


@pytest.mark.parametrize(("where", "lost"), CASES, ids=str)
def test_all_is_brought_back(
    nodes: Nodes, left: list[Any], where: list[int], lost: tuple[str, ...]
) -> None:
    """Law: whatever up to m vaults are lost, and wherever the others' roles are now, each role has
    what it had, on its own node and nowhere else."""
    lose(nodes, *lost)
    launch = Launch(nodes, where)
    made = launch.run()
    names = [f"{kind}-{number}" for kind, number in ROLES]
    moved = {name for i, name in enumerate(names) if where[i] != HOME[i]}
    assert set(launch.restored) == moved | set(lost) and not launch.told
    for i, retrieval in enumerate(made):
        assert_as_left(retrieval, 3 if i > 2 else 0, left[i])
    for node in {*where}:
        there = {path.name for path in nodes[node].directory.iterdir()}
        here = {name for i, name in enumerate(names) if where[i] == node}
        assert {name for name in there if name.startswith(("slot", "checksum"))} == here
        assert not [name for name in there if name.startswith("image")]


def test_a_damaged_vault_counts_as_lost(nodes: Nodes, left: list[Any]) -> None:
    """Law: what does not match its checksums is told, and computed from the others."""
    damage(nodes, "slot-1")
    launch = Launch(nodes, HOME)
    made = launch.run()
    assert launch.restored == ["slot-1"]
    assert launch.told == ["slot 1: its vault on node-1 is damaged"]
    for i, retrieval in enumerate(made):
        assert_as_left(retrieval, 3 if i > 2 else 0, left[i])


def test_too_many_lost_is_a_catastrophe(nodes: Nodes, left: list[Any]) -> None:
    lose(nodes, "slot-0", "slot-1")
    damage(nodes, "checksum-1")
    with pytest.raises(CatastrophicFailure, match="slot 0 and slot 1 and checksum 1"):
        Launch(nodes, HOME).run()


# ---- checksum ranks are given up ------------------------------------------------------------


@pytest.fixture
def strong(nodes: Nodes, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
           ) -> Iterator[tuple[Layout, Spread, list[list[bytes]]]]:
    """Vaults of a job with so many checksum ranks, on nodes 0, 1, ...; what its slots hold."""
    monkeypatch.setattr(job, "ring", lambda: None)
    layout = make_layout(3, checksums=request.param, group_size=3, spares=0)
    group = Spread(nodes, [0, 1, 2, *range(request.param)], SIZES, 7, request.param)
    for _ in range(3):
        group.checkpoint()
    for i, (kind, index) in enumerate(salvage.roles_of(layout)):
        group.element(i).words.version = Version(3)
        path = group.view_of(i).vault_path(i)
        path.rename(path.with_name(f"{kind}-{index}"))
    held = [state(member, 0) for member in group.members]
    group.close()
    yield layout, group, held
    for node in nodes.nodes:
        for path in (*node.directory.glob("slot-*"), *node.directory.glob("checksum-*")):
            path.unlink()
    nodes.close_files()


def weaker(layout: Layout, strength: int) -> tuple[Layout, list[tuple[str, int, str]]]:
    """A layout with fewer checksum ranks, and where the supervisor knows the vaults to be."""
    homes = [("slot", s, f"node-{s}") for s in range(3)]
    former = f"checksum/{layout.strength}"
    homes += [(former, c, f"node-{c}") for c in range(layout.checksums)]
    return layout.with_strength(strength), homes


def assert_weaker(nodes: Nodes, made: list[Retrieval], group: Spread, layout: Layout,
                  held: list[list[bytes]]) -> None:
    """Slots have what they had, parities are those of the new code, and no others are left."""
    group.weights = [coefficients(3, layout.strength, j) for j in range(layout.strength)]
    for i, retrieval in enumerate(made):
        if i < 3:
            assert_as_left(retrieval, 0, held[i])
            continue
        assert retrieval.version == 3 and retrieval.vault is not None
        assert content(retrieval.vault, group.room) == group.parity_at(3, i - 3)
        assert vaults.check(retrieval.vault.c, retrieval.vault.c, -1) < 0
        retrieval.vault.close()
    there = {p.name for node in nodes.nodes for p in node.directory.iterdir()}
    parities = {layout.parity_file(c) for c in range(layout.checksums)}
    assert {name for name in there if name.startswith(("checksum", "image"))} == parities


WEAKER = [
    (2, 1, [0, 1, 2, 2], ()), (2, 1, [0, 1, 0, 1], ("slot-2",)), (2, 1, [0, 1, 2, 0], ("slot-0",)),
    (2, 1, [2, 1, 2, 2], ("slot-0", "checksum-0")), (2, 1, [0, 1, 0, 1], ("slot-0", "slot-2")),
    (2, 1, [1, 0, 2, 0], ("slot-1", "slot-2")), (2, 1, [0, 1, 2, 0], ("checksum-1", "checksum-0")),
    (3, 2, [0, 1, 1, 0, 1], ("slot-2", "checksum-2")), (3, 1, [0, 1, 2, 1], ("slot-2", "slot-1")),
    (3, 1, [2, 1, 1, 1], ("slot-0", "slot-1", "checksum-0")),
]


@pytest.mark.parametrize(("strong", "strength", "where", "lost"), WEAKER, ids=str,
                         indirect=["strong"])
def test_fewer_checksum_ranks(
    nodes: Nodes, strong: tuple[Layout, Spread, list[list[bytes]]], strength: int,
    where: list[int], lost: tuple[str, ...],
) -> None:
    """Law: a launch with fewer checksum ranks finds the version that was committed with more, after
    any loss that those stand, be it more than the new ones stand."""
    layout, group, held = strong
    lose(nodes, *lost)
    new, homes = weaker(layout, strength)
    assert_weaker(nodes, Launch(nodes, where, new, homes).run(), group, new, held)


@pytest.mark.parametrize("strong", [2], indirect=True)
@pytest.mark.parametrize("ends_at", ["_rebuild_slot", "_rebuild_parity", "_give_up_strays"])
def test_a_launch_with_fewer_ends_amid_it(
    nodes: Nodes, strong: tuple[Layout, Spread, list[list[bytes]]], ends_at: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Law: the next launch finds what this one had found, though it knows no new checksum rank."""
    layout, group, held = strong
    lose(nodes, "slot-0", "slot-1")
    new, homes = weaker(layout, 1)
    with monkeypatch.context() as patched:
        def end(*_: object) -> None:
            raise RuntimeError("the launch ends")

        patched.setattr(Retrieval, ends_at, end)
        with pytest.raises(RuntimeError):
            Launch(nodes, [2, 1, 0, 2], new, homes).run()
    nodes.close_files()
    assert_weaker(nodes, Launch(nodes, [2, 1, 0, 2], new, homes).run(), group, new, held)


@pytest.mark.parametrize("strong", [2], indirect=True)
def test_more_was_lost_than_the_former_checksum_ranks_stand(
    nodes: Nodes, strong: tuple[Layout, Spread, list[list[bytes]]],
) -> None:
    lose(nodes, "slot-0", "slot-1")
    damage(nodes, "checksum-1")
    with pytest.raises(CatastrophicFailure, match="slot 0 and slot 1 and checksum 1"):
        Launch(nodes, [2, 1, 0, 2], *weaker(strong[0], 1)).run()
