"""Groups of vaults over several nodes: all that is computed is what one node computes, bit for bit.

Agents are real processes, nodes are directories; the group's processes are in the test. That a
group on one node is right is the business of ``unit/test_vault.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from farvaults import Spread, image_bytes, replace, states, summed
from filenodes import Nodes, several
from vaultgroup import Group, content, flip

from ftrma.fabric.remote import Files
from ftrma.fabric.round_changed import RoundChanged
from ftrma.host.errors import CatastrophicFailure, CorruptVault, FtrmaError
from ftrma.native import job, vaults
from ftrma.protocol.server import Server
from ftrma.vault import group as groups
from ftrma.vault import image as images
from ftrma.vault.group import rebuild_parity, rebuild_slot
from ftrma.vault.vault import BLOCK, Vault

pytestmark = pytest.mark.plain  # its tests take seconds

UNEVEN = [1, 3 * BLOCK + 17, BLOCK, 20 * BLOCK, 2 * BLOCK - 1]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with several(3) as made:
        yield made


@pytest.fixture
def spread(nodes: Nodes) -> Iterator[Callable[..., Spread]]:
    """Makes a group over nodes, process p on node p modulo their number, in place of the last."""
    made = []

    def maker(sizes: list[int], strength: int = 1, versions: int = 0, over: int = 3,
              seed: int = 5) -> Spread:
        if made:
            made.pop().close()
        where = [p % over for p in range(len(sizes) + strength)]
        made.append(Spread(nodes, where, sizes, seed, strength))
        for _ in range(versions):
            made[-1].checkpoint()
        return made[-1]

    yield maker
    for group in made:
        group.close()


@pytest.fixture
def twins(
    make: Callable[..., Group], spread: Callable[..., Spread]
) -> Callable[..., tuple[Group, Spread]]:
    """Makes a group on one node and one over three, to which the same is to be done."""

    def maker(sizes: list[int], strength: int = 1, versions: int = 0) -> tuple[Group, Spread]:
        return make(sizes, 5, versions, strength), spread(sizes, strength, versions)

    return maker


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of 3 blocks, so that small vaults have several."""
    monkeypatch.setattr(images.Image, "STRETCH", 3)


def test_three_versions_are_those_of_one_node(
    twins: Callable[..., tuple[Group, Spread]], short: None
) -> None:
    """Law: staged, summed, committed and folded over nodes, all vaults are bit for bit what one
    node makes of the same, for one and two checksum ranks and members of all sizes, empty ones
    too; a sum can be dropped and made again."""
    for strength, sizes in ((1, UNEVEN), (2, UNEVEN), (1, [7 * BLOCK]), (2, [5, 9 * BLOCK + 1])):
        here, there = twins(sizes, strength)
        for _ in range(4):
            for group in (here, there):
                group.change()
                group.stage()
                group.sum()
            assert list(map(summed, there.parities)) == list(map(summed, here.parities))
            there.drop()
            there.sum()
            assert list(map(summed, there.parities)) == list(map(summed, here.parities))
            for group in (here, there):
                group.commit()
                group.fold()
            assert states(there) == states(here)
        there.holds(4)
        assert not any(there.scrub_all())
        assert not image_bytes()


@pytest.mark.parametrize("strength", [1, 2])
def test_every_pattern_of_losses_is_rebuilt(
    twins: Callable[..., tuple[Group, Spread]], short: None, strength: int
) -> None:
    """Law: any m or fewer lost elements come back bit for bit, whichever node the others are on;
    one more is refused."""
    here, group = twins([1, 3 * BLOCK + 17, 11 * BLOCK, 2 * BLOCK - 1], strength, 2)
    for e in range(1, strength + 1):
        for lost in itertools.combinations(range(group.count + strength), e):
            for each in (here, group):
                replace(each, lost)
            assert states(group) == states(here)
            group.holds(2)
            assert not any(group.scrub_all())
    for i in range(strength + 1):
        group.view.words.process(i).ready = 0
    with pytest.raises(CatastrophicFailure):
        rebuild_slot(group.view_of(0), group.members[0], 0)
    assert not image_bytes()


def test_empty_members_count_as_zeros(
    twins: Callable[..., tuple[Group, Spread]], short: None
) -> None:
    """Law: a member whose vault has nothing in it, lost or not, is no obstacle."""
    here, group = twins([4 * BLOCK] * 3, 2)
    for each in (here, group):
        each.windows[0][:] = 7
        each.windows[2][:] = np.frombuffer(each.random.bytes(4 * BLOCK), "u1")
        each.stage(0, 2)
        each.sum()
        each.commit()
        each.fold()
    assert group.members[1].used == 0
    for lost in ((0,), (1,), (1, 2), (0, 3)):
        for each in (here, group):
            replace(each, lost)
        assert states(group) == states(here)
        group.holds(1)


def prepared(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have its views do what a process of a job does beside its vaults."""
    monkeypatch.setattr(job, "ring", lambda: None)  # the bell belongs to a job
    group.view.ctl.commit = group.version << 1
    for i in range(group.count + group.strength):
        view: Any = group.view_of(i)
        view.visit, view.alarmed = (lambda place: None), (lambda: True)
        view.emit = lambda event: None
        words = view.words.process(i)
        words.staged = words.summed = words.folded = group.version


def test_damaged_blocks_are_mended(
    twins: Callable[..., tuple[Group, Spread]], short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: damage on other nodes is seen by the checksums and computed around, as far as m allows:
    in a lost one's sources, in the own vault, and in members of which a lost parity is computed,
    where it is mended in the members themselves."""
    here, group = twins([9 * BLOCK, 12 * BLOCK + 1, 8 * BLOCK], 2, 2)
    prepared(group, monkeypatch)
    prepared(here, monkeypatch)
    before = states(group)
    for each in (here, group):
        flip(each.members[1], 4)
        flip(each.members[2], 7)
        flip(each.parities[0], 9)
        replace(each, [0])
        assert each.scrub_all() == [0, 1, 1, 1, 0]
    assert states(group) == states(here) and states(group)[1:] == before[1:]

    for each in (here, group):
        flip(each.members[1], 4)  # mended by the checksum rank, on the member's node
        vaults.crcs(each.members[1].c, -1, 5)[4] ^= 1
        flip(each.members[1], 12)
        flip(each.members[0], 1)
        each.lose(3)
        rebuild_parity(each.view_of(3), each.parities[0], 0)
        each.view.words.process(3).ready = 1  # on one node all have the view of process 0
        assert not any(each.scrub_all())
    assert states(group) == states(here) and states(group)[1:] == before[1:]

    flip(group.members[1], 4)
    flip(group.members[2], 4, at=78)  # at the same place they would make up for each other
    group.lose(0)
    with pytest.raises(CorruptVault, match="4 of slot 0 cannot be rebuilt: slot 1 and slot 2"):
        group.rebuild(0)
    assert not image_bytes()


@pytest.mark.parametrize("staged", [(0,), (0, 1, 2)])
def test_a_parity_is_rebuilt_while_members_have_staged(
    twins: Callable[..., tuple[Group, Spread]], short: None, monkeypatch: pytest.MonkeyPatch,
    staged: tuple[int, ...],
) -> None:
    """Law: a parity that is computed while members of other nodes have staged the next version is
    the old one's; the commit that follows is as ever."""
    here, group = twins([9 * BLOCK, 5 * BLOCK + 17, 1], 2, 2)
    for each in (here, group):
        prepared(each, monkeypatch)
        for window in each.windows:
            window += 1
        each.stage(*staged)
        for i in staged:
            each.view.words.process(i).staged = 3
        each.lose(3)
        rebuild_parity(each.view_of(3), each.parities[0], 0)
        assert content(each.parities[0], each.room) == each.parity_at(2)
    assert states(group) == states(here)
    rest = {0, 1, 2} - {*staged}
    if rest:
        group.stage(*rest)
    group.sum()
    group.commit()
    group.fold()
    group.holds(3)
    assert not any(group.scrub_all())


# ---- what fails meanwhile -------------------------------------------------------------------


def at_read(monkeypatch: pytest.MonkeyPatch, number: int, what: Callable[[], object]) -> None:
    """Do something before the n-th read of another node's file from now on."""
    before, reads = Files.read, itertools.count(1)

    def read(files: Files, *rest: Any) -> None:
        if next(reads) == number:
            what()
        before(files, *rest)

    monkeypatch.setattr(Files, "read", read)


LONG = [2500 * BLOCK + 5, 1, 1700 * BLOCK]  # several stretches of full length


@pytest.mark.plain
def test_agents_die_amid_a_rebuild_and_little_memory_is_taken(
    nodes: Nodes, twins: Callable[..., tuple[Group, Spread]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a member and a parity of several stretches are rebuilt while the agents of the others
    are killed and replaced; at no moment more than a stretch of another node's vault is here."""
    here, group = twins(LONG, 1, 1)
    read, most = Files.read, [0]

    def watched(files: Files, *rest: Any) -> None:
        read(files, *rest)
        most[0] = max([*most, *image_bytes()])

    monkeypatch.setattr(Files, "read", watched)
    for number in (2, 5, 9):
        for i in (0, 3):
            replace(here, [i])
            group.lose(i)
            others = [n for n in range(3) if n != group.where[i]]
            with monkeypatch.context() as patch:
                at_read(patch, number, lambda others=others: [nodes.replace_agent(n)
                                                              for n in others])
                group.rebuild(i)
            assert states(group) == states(here)
    stretch = images.Image.STRETCH * BLOCK
    assert stretch < most[0] <= stretch + 4 * BLOCK
    with monkeypatch.context() as patch:
        group.change()
        group.windows[0] += 1
        group.stage()
        at_read(patch, 4, lambda: nodes.replace_agent(0))
        group.sum()
    group.commit()
    group.fold()
    group.holds(2)
    assert most[0] <= stretch + 4 * BLOCK and not image_bytes()


def test_the_alarm_ends_a_rebuild(
    twins: Callable[..., tuple[Group, Spread]], short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: another failure ends a rebuild wherever it reads, and the next round does it anew; a
    parity that was not finished is of no version."""
    here, group = twins([9 * BLOCK, 12 * BLOCK + 1, 8 * BLOCK], 1, 1)
    replace(here, [0])
    replace(here, [3])
    for number, i in itertools.product((1, 2, 3, 6, 8), (0, 3)):
        files = group.view_of(i).remote_files
        assert files
        group.lose(i)
        with monkeypatch.context() as patch:
            at_read(patch, number, files.ring)
            with pytest.raises(RoundChanged):
                group.rebuild(i)
        assert vaults.words(group.element(i).c).version == 0 and not image_bytes()
        files.clear_alarm()
        group.rebuild(i)
        if i == 3:
            assert states(group) == states(here)


def test_the_alarm_ends_a_sum(
    spread: Callable[..., Spread], short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a checksum rank that another failure finds amid a sum has summed nothing; it sums anew
    when nothing was undone, and the other version when it was."""
    group = spread([9 * BLOCK, 12 * BLOCK + 1, 8 * BLOCK], 1, versions=1)
    prepared(group, monkeypatch)
    view: Any = group.view_of(3)
    assert view.remote_files
    server = Server(view, group.parity, None)
    for number, undone in ((3, False), (5, True), (8, False), (11, True)):
        for window in group.windows:
            window += 1
        group.stage()
        for i in range(3):
            view.words.process(i).staged = group.version + 1
        with monkeypatch.context() as patch:
            at_read(patch, number, view.remote_files.ring)
            assert not server.step(0)
        assert view.words.me.summed == group.version and not summed(group.parity)
        view.remote_files.clear_alarm()
        if undone:
            group.undo()
            for window in group.windows:
                window[::5] += 3
            group.stage()
        assert server.step(0) and view.words.committed == group.version + 1
        group.commit()
        assert server.step(0) and view.words.me.folded == group.version
        group.holds(group.version)
        assert not any(group.scrub_all())


def test_what_is_no_vault_is_an_error(spread: Callable[..., Spread], nodes: Nodes) -> None:
    """Law: neither a vault that is not there nor something else in its place is waited for for
    ever, or computed from."""
    group = spread([3 * BLOCK, 3 * BLOCK, 3 * BLOCK], 1, versions=1)
    group.lose(0)
    files, others = group.view_of(0).remote_files, group.view_of(1).remote_files
    assert files and others
    files.patience_s = 0.1
    others.withdraw(images.File.VAULT, 1)
    with pytest.raises(FtrmaError, match="reading vault 1 on node 1: no answer"):
        group.rebuild(0)
    other = nodes[1].directory / "vault-other"
    other.write_bytes(b"no vault" * BLOCK)
    others.share(images.File.VAULT, 1, other)
    with pytest.raises(FtrmaError, match="vault 1 of node 1 is none of this job"):
        group.rebuild(0)
    assert not image_bytes()


# ---- one node, and what a process says of its own vault ---------------------------------------


def test_on_one_node_all_is_one_call(
    make: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a group on one node is computed in one pass over all blocks, without an image."""
    group = make(LONG, versions=1)
    passes = []

    def counted(name: str) -> None:
        function = getattr(vaults, name)

        def call(*given: Any) -> int:
            passes.append((name, *given[-2:]))
            return int(function(*given))

        monkeypatch.setattr(vaults, name, call)

    for name in ("rebuild", "check", "parity_rebuild"):
        counted(name)
    monkeypatch.setattr(images, "Image", None)
    for i in (0, 3):
        group.lose(i)
        group.rebuild(i)
        assert group.scrub(i) == 0
    everything = (0, vaults.ALL)
    assert passes == [("rebuild", *everything), ("check", *everything),
                      ("parity_rebuild", *everything), ("check", *everything)]


def test_a_process_says_where_its_vault_is(
    spread: Callable[..., Spread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a vault that a process makes, or finds again, is found by the other nodes."""
    group = spread([3 * BLOCK, 3 * BLOCK], 1, versions=1)
    for create in (True, False):
        view = group.view_of(1)
        assert view.remote_files
        view.remote_files.withdraw(images.File.VAULT, 1)
        if create:
            view.vault_path(1).unlink()
        vault = groups.own_vault(view, create=create)
        vault.words.version = 5
        with groups.Group(group.view_of(0), 0) as seen:
            assert vaults.words(seen[1]).version == 5
        vault.close()


def test_a_spare_maps_what_is_on_its_node(
    spread: Callable[..., Spread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: a spare stands by with the vaults of its own node; the others are not read for it."""
    group = spread([3 * BLOCK, 3 * BLOCK, 3 * BLOCK], 1, versions=1)
    view: Any = group.view_of(2)
    view.ctl.nprocs, view.words.process(0).blocks, view.ctl.commit = 4, 4, 1 << 1
    monkeypatch.setattr(images, "Image", None)
    server = Server(view, group.members[2], None)
    server.stand_by()
    assert set(view.mapped_vaults) == {2} and server.room == 4


def test_areas_of_a_vault(make: Callable[..., Group], tmp_path: Path) -> None:
    """Law: what is said of the places of a vault's areas is where they are; there are no others,
    and no header of another job's vault is taken."""
    group = make([3 * BLOCK, 1], versions=1)
    parity, member = group.parity, group.members[0]
    file = group.view.vault_path(2).read_bytes()
    for i in (-1, 0, 1):
        at, view = vaults.stretch(parity.c, vaults.Area.CRC, i, 1, 2)
        assert bytes(view) == vaults.crcs(parity.c, i, 3)[1:].tobytes() == file[at : at + 8]
    at, view = vaults.stretch(parity.c, vaults.Area.COPY, -1, 2, 1)
    assert bytes(view) == bytes(parity.bytes_at(2, BLOCK)) == file[at : at + BLOCK]
    at, view = vaults.stretch(member.c, vaults.Area.DIRTY, -1, 0, len(member.staged_blocks()))
    assert bytes(view) == member.staged_blocks().tobytes() and at == BLOCK
    at, view = vaults.stretch(member.c, vaults.Area.STAGE, -1, 1, 1)
    assert bytes(view) == bytes(member.stage_bytes(1, 1))
    for area, i in ((vaults.Area.CRC, 2), (vaults.Area.CRC, -2), (vaults.Area.COPY, 0)):
        with pytest.raises(ValueError, match="a vault has no"):
            vaults.stretch(parity.c, area, i, 0, 1)
    strange = Vault(tmp_path / "strange", 64, 2, create=True)
    head = bytes(vaults.stretch(strange.c, vaults.Area.HEAD, -1, 0, 1)[1])
    own = bytes(vaults.stretch(parity.c, vaults.Area.HEAD, -1, 0, 1)[1])
    for wrong in (head, bytes(BLOCK), b"?" + own[1:]):
        assert not vaults.adopt(parity.c, wrong)
    assert vaults.adopt(parity.c, own)
    assert content(parity, group.room) == group.parity_at(1)
    strange.close()
