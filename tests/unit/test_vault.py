"""Vaults and parity: at every instant of a checkpoint one version can be rebuilt completely.

The C functions work on files, as in a job; MPI is not started. A `Group` plays the members and the
checksum rank of one group and remembers what each version held.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftrma import _mpi
from ftrma.checkpoint import Server
from ftrma.errors import CatastrophicFailure, CorruptVault, FtrmaError
from ftrma.group import coefficients, forget_vault, rebuild_slot, scrub
from ftrma.recovery import settle
from ftrma.vault import BLOCK, Vault, blocks
from ftrma.world import CHECKSUM, World

CAPACITY = 4096
SEED = 271828
SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17, 20 * BLOCK, 5]


class Group:
    """Members 0..k-1 with windows of different sizes, and their m checksum ranks.

    The processes are k + m entries of a control structure that belongs to no job.
    """

    def __init__(self, directory: Path, sizes: list[int], seed: int, strength: int = 1) -> None:
        print(f"seed {seed}, sizes {sizes}, m {strength}")
        self.native = _mpi.load()
        self.lib, self.ffi = self.native.lib, self.native.ffi
        self.directory, self.count, self.strength = directory, len(sizes), strength
        self.random = np.random.default_rng(seed)
        self.windows = [np.zeros(n, "u1") for n in sizes]
        self.opened: list[Vault] = []
        self.world = self.make_world()
        self.members = [self.vault(i) for i in range(self.count)]
        self.parities = [self.vault(self.count + j) for j in range(strength)]
        self.weights = [self.ffi.new("uint8_t[]", coefficients(self.count, strength, j))
                        for j in range(strength)]  # fmt: skip
        self.version = 0
        self.history = {0: [np.zeros(n, "u1") for n in sizes]}

    def make_world(self) -> World:
        world = World.__new__(World)  # without joining a job
        world.native, world.lib, world.ffi = self.native, self.lib, self.ffi
        world.directory, world.mapped = self.directory, {}
        world.ctl = ctl = self.ffi.new("struct ftrma_ctl *")
        ctl.nslots, ctl.group_size, ctl.strength = self.count, self.count, self.strength
        ctl.capacity_blocks = CAPACITY
        for i in range(self.count):
            ctl.roles[0].slot_proc[i] = i
        for j in range(self.strength):
            ctl.roles[0].checksum_proc[j] = self.count + j
        return world

    def vault(self, proc: int) -> Vault:
        """A new, empty vault of a process, in place of any that it had."""
        path = self.world.vault_path(proc)
        path.unlink(missing_ok=True)
        made = Vault(self.native, path, CAPACITY, self.count, create=True)
        self.opened.append(made)
        self.world.ctl.proc[proc].state = self.lib.FTRMA_ALIVE
        self.world.ctl.proc[proc].ready = 1
        return made

    @property
    def parity(self) -> Vault:
        return self.parities[0]

    def element(self, i: int) -> Vault:
        return self.members[i] if i < self.count else self.parities[i - self.count]

    def close(self) -> None:
        for proc in list(self.world.mapped):
            forget_vault(self.world, proc)
        for vault in self.opened:
            vault.close()

    # -- steps of a checkpoint ----------------------------------------------------------------

    def change(self) -> None:
        """The program computes: some members change much, some a byte, some nothing."""
        for window in self.windows:
            how = self.random.integers(4)
            if how == 0:
                window[:] = np.frombuffer(self.random.bytes(window.size), "u1")
            elif how == 1:
                window[self.random.integers(window.size)] ^= 0x55
            elif how == 2:
                at = self.random.integers(window.size)
                window[at : at + BLOCK] += 1

    def stage(self, *who: int) -> None:
        """Everybody, or some, stage the version after the present one, at block 1 of the vault."""
        lib, version = self.lib, self.version + 1
        for i in who or range(self.count):
            vault, window = self.members[i], self.windows[i]
            vault.reserve(1 + blocks(window.size), staging=1 + blocks(window.size))
            lib.ftrma_stage_begin(vault.c, version)
            lib.ftrma_stage(vault.c, self.address(window), window.size, 1)
            lib.ftrma_stage_end(vault.c)
        self.history[version] = [w.copy() for w in self.windows]

    def sum(self) -> None:
        for parity, weights in zip(self.parities, self.weights, strict=True):
            assert self.lib.ftrma_parity_sum(parity.c, self.list(), weights, self.count) == 0

    def commit(self) -> None:
        self.version += 1

    def fold(self) -> None:
        for parity in self.parities:
            self.lib.ftrma_parity_fold(parity.c, self.version)

    def drop(self) -> None:
        for parity in self.parities:
            self.lib.ftrma_parity_drop(parity.c)

    def checkpoint(self) -> None:
        self.change()
        self.stage()
        self.sum()
        self.commit()
        self.fold()

    def undo(self, *who: int) -> None:
        for i in who or range(self.count):
            self.lib.ftrma_stage_undo(self.members[i].c, self.version)

    def lose(self, i: int) -> None:
        """The element's memory is gone; a replacement begins with an empty vault."""
        forget_vault(self.world, i)
        if i < self.count:
            self.members[i] = self.vault(i)
        else:
            self.parities[i - self.count] = self.vault(i)
        self.world.ctl.proc[i].ready = 0

    # -- asking -------------------------------------------------------------------------------

    def address(self, array: np.ndarray) -> Any:
        return self.ffi.cast("void *", array.ctypes.data)

    def list(self) -> Any:
        return self.ffi.new("struct ftrma_vault *[]", [m.c for m in self.members])

    def rebuild(self, i: int) -> None:
        """Compute a lost element; members first, since a parity needs all of them."""
        if i < self.count:
            self.world.ctl.commit = self.version << 1
            rebuild_slot(self.world, self.members[i], i)
        else:
            assert self.remake(self.element(i), i - self.count) == -1
        self.world.ctl.proc[i].ready = 1

    def remake(self, vault: Vault, j: int = 0) -> int:
        """Compute parity j afresh into a vault."""
        return int(self.lib.ftrma_parity_rebuild(vault.c, self.list(), self.weights[j], self.count,
                                                 self.version))  # fmt: skip

    def scrub(self, i: int) -> int:
        return scrub(self.world, 0, i)

    def scrub_all(self) -> list[int]:
        return [self.scrub(i) for i in range(self.count + self.strength)]

    def holds(self, version: int) -> None:
        """Every member's copy is that version, and so is the parity."""
        for i, vault in enumerate(self.members):
            assert content(vault, self.windows[i].size) == self.history[version][i].tobytes(), i
        for j, parity in enumerate(self.parities):
            assert content(parity, self.room) == self.parity_at(version, j), j

    @property
    def room(self) -> int:
        return max(blocks(w.size) for w in self.windows) * BLOCK

    def parity_at(self, version: int, j: int = 0) -> bytes:
        """Independent of the code under test: sum of g times the members' bytes at that version,
        by multiplication tables from the definition."""
        room = np.zeros(self.room, "u1")
        for part, g in zip(self.history[version], list(self.weights[j])[: self.count], strict=True):
            room[: part.size] ^= np.array([times(g, x) for x in range(256)], "u1")[part]
        return room.tobytes()


def times(a: int, b: int) -> int:
    """Product in GF(2^8) modulo 0x11D, a bit at a time."""
    found = 0
    while b:
        found ^= a * (b & 1)
        a, b = a << 1 ^ (0x11D if a & 0x80 else 0), b >> 1
    return found


def content(vault: Vault, size: int) -> bytes:
    return bytes(vault.bytes_at(1, size)[:])


def flip(vault: Vault, block: int, at: int = 77) -> None:
    """A stray store into a vault."""
    view = vault.bytes_at(block, BLOCK)
    view[at] = bytes([view[at][0] ^ 0x10])


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    made = []

    def maker(
        sizes: list[int] = SIZES, seed: int = SEED, versions: int = 0, strength: int = 1
    ) -> Group:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Group(directory, sizes, seed, strength))
        for _ in range(versions):
            made[-1].checkpoint()
        return made[-1]

    yield maker
    for group in made:
        group.close()


@pytest.mark.parametrize("seed", range(6))
def test_every_member_is_rebuilt_bit_exactly(make: Callable[..., Group], seed: int) -> None:
    """Law: after any number of checkpoints, each member's last version comes from the others and
    the parity, for any number of members of any sizes."""
    random = np.random.default_rng(seed)
    sizes = [int(random.integers(1, 30 * BLOCK)) for _ in range(random.integers(1, 6))]
    group = make(sizes, seed)
    for _ in range(4):
        group.checkpoint()
        group.holds(group.version)
        for i in range(group.count):
            group.lose(i)
            group.rebuild(i)
            group.holds(group.version)
            assert group.scrub(i) == 0


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_every_pattern_of_losses_is_rebuilt(make: Callable[..., Group], strength: int) -> None:
    """Law: any m or fewer lost elements, members and parities, come back bit-exactly, at odd and
    uneven sizes; one more is refused."""
    group = make([1, 3 * BLOCK + 17, BLOCK, 2 * BLOCK - 1], versions=2, strength=strength)
    elements = range(group.count + strength)
    for e in range(1, strength + 1):
        for lost in itertools.combinations(elements, e):
            for i in lost:
                group.lose(i)
            for i in lost:
                group.rebuild(i)
            group.holds(2)
            assert not any(group.scrub_all())
    for lost in itertools.combinations(elements, strength + 1):
        if lost[0] < group.count:
            for i in lost:
                group.world.ctl.proc[i].ready = 0
            with pytest.raises(CatastrophicFailure) as failure:
                group.rebuild(lost[0])
            assert len(failure.value.members) == strength + 1
            assert failure.value.members[0] == f"slot {lost[0]}"
            for i in lost:
                group.world.ctl.proc[i].ready = 1


@pytest.mark.parametrize("strength", [1, 2])
def test_folded_parity_equals_recomputed_parity(make: Callable[..., Group], strength: int) -> None:
    """Law: parity folded over many versions is the parity of the copies, blocks and checksums."""
    group = make(versions=5, strength=strength)
    group.holds(group.version)
    assert not any(group.scrub_all())
    for j in range(strength):
        group.lose(group.count + j)
        group.rebuild(group.count + j)
        assert group.lib.ftrma_parity_version(group.parities[j].c) == group.version
    group.holds(group.version)
    assert not any(group.scrub_all())


def test_only_what_changed_is_staged(make: Callable[..., Group]) -> None:
    """Law: the stage holds one block per changed block, none for an unchanged member."""
    group = make([10 * BLOCK, 4 * BLOCK], versions=1)
    group.windows[0][[0, BLOCK, 7 * BLOCK + 5]] ^= 1
    group.stage()
    assert [group.lib.ftrma_stage_end(m.c) for m in group.members] == [3, 0]


def test_undo_restores_the_version_before(make: Callable[..., Group]) -> None:
    """Law: after staging, undo gives back every bit; the program can stage again afterwards."""
    group = make(versions=2)
    for _ in range(3):
        group.change()
        group.stage()
        group.undo()
        group.drop()
        group.holds(2)
    group.checkpoint()
    group.holds(3)


def test_undo_leaves_a_committed_version_alone(make: Callable[..., Group]) -> None:
    """Law: undo to the version that was staged changes nothing, however often."""
    group = make(versions=3)
    group.undo()
    group.undo()
    group.holds(3)


@pytest.mark.parametrize("lost", range(len(SIZES)))
@pytest.mark.parametrize("summed", [False, True])
def test_loss_before_the_commit_goes_back(
    make: Callable[..., Group], lost: int, summed: bool
) -> None:
    """Law: a member lost while others have staged, summed or not, is rebuilt at the old version;
    the next checkpoint then works as ever."""
    group = make(versions=2)
    group.change()
    group.stage()
    if summed:
        group.sum()
        group.drop()
    group.undo(*(i for i in range(group.count) if i != lost))
    group.lose(lost)
    group.rebuild(lost)
    group.holds(2)
    group.checkpoint()
    group.holds(3)


@pytest.mark.parametrize("lost", range(len(SIZES)))
def test_loss_after_the_commit_goes_on(make: Callable[..., Group], lost: int) -> None:
    """Law: a member lost between commit and fold is rebuilt at the new version after folding."""
    group = make(versions=2)
    group.change()
    group.stage()
    group.sum()
    group.commit()
    group.undo(*(i for i in range(group.count) if i != lost))
    group.lose(lost)
    group.fold()
    group.rebuild(lost)
    group.holds(3)


def test_dropped_sum_leaves_nothing(make: Callable[..., Group]) -> None:
    """Law: a sum that was not committed has no part in the next one, other blocks or the same."""
    group = make([8 * BLOCK, 8 * BLOCK], versions=1)
    for at in (0, 3 * BLOCK, 0):
        group.windows[0][at] ^= 3
        group.stage()
        group.sum()
        group.drop()
        group.undo()
    group.checkpoint()
    group.holds(2)
    assert not any(group.scrub_all())


@pytest.mark.parametrize("who", [7, 0, 2, 5])
def test_corrupt_byte_is_found_and_repaired(make: Callable[..., Group], who: int) -> None:
    """Law: scrub finds a changed byte in a member's copy or in the parity, rebuilds this block
    and says how many."""
    group = make(versions=3)
    vault = group.element(who)
    for block in (1, 2):
        if block < group.lib.ftrma_vault_used(vault.c):
            flip(vault, block)
    assert group.scrub(who) == (2 if who in (7, 5) else min(2, blocks(SIZES[who])))
    group.holds(3)
    assert group.scrub(who) == 0


def test_two_corrupt_blocks_of_one_column_are_reported(make: Callable[..., Group]) -> None:
    """Law: where more elements are damaged in a block than there are parities, scrub names the
    block and the elements."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    flip(group.members[0], 3)
    flip(group.members[1], 3, at=9)
    with pytest.raises(CorruptVault, match="slot 1 of group 0 is damaged"):
        group.scrub(0)


@pytest.mark.parametrize("where", [5, 7])
@pytest.mark.parametrize("block", [1, 4, 20])
def test_corrupt_byte_and_lost_member_are_reported(
    make: Callable[..., Group], where: int, block: int
) -> None:
    """Law: rebuilding from corrupt input is an error with the block's number, never wrong data."""
    group = make(versions=2)
    flip(group.element(where), block)
    group.lose(4)
    with pytest.raises(CorruptVault, match=f"block {block} of slot 4 cannot be rebuilt"):
        group.rebuild(4)


@pytest.mark.parametrize("where", [5, 7, 8])
def test_corrupt_byte_is_an_erasure_where_the_code_is_strong_enough(
    make: Callable[..., Group], where: int
) -> None:
    """Law: with m = 2 a lost member is rebuilt although another element is damaged; scrubbing
    mends that one too."""
    group = make(versions=2, strength=2)
    for block in (1, 3):
        flip(group.element(where), block)
    group.lose(4)
    group.rebuild(4)
    assert content(group.members[4], SIZES[4]) == group.history[2][4].tobytes()
    assert group.scrub_all() == [2 * (i == where) for i in range(9)]
    group.holds(2)


@pytest.mark.parametrize("staged", [(0,), (1, 3), (5, 6, 2), tuple(range(len(SIZES)))])
def test_parity_of_the_old_version_from_new_copies(
    make: Callable[..., Group], staged: tuple[int, ...]
) -> None:
    """Law: a parity that is rebuilt while some members have staged holds, after unstaging these,
    the old version; a member lost next is rebuilt, and so is the commit that follows."""
    group = make(versions=2, strength=2)
    group.change()
    group.stage(*staged)
    for j in range(2):
        group.lose(group.count + j)
        group.rebuild(group.count + j)
        for i in staged:
            group.lib.ftrma_parity_unstage(group.parities[j].c, group.members[i].c, i,
                                           group.weights[j][i])  # fmt: skip
        assert content(group.parities[j], group.room) == group.parity_at(2, j)
    rest = [i for i in range(group.count) if i not in staged]
    if rest:
        group.stage(*rest)
    group.sum()
    group.commit()
    group.fold()
    group.holds(3)
    assert not any(group.scrub_all())
    group.lose(2)
    group.rebuild(2)
    group.holds(3)


@pytest.mark.parametrize("failed", [False, True])
def test_parity_that_missed_a_commit(make: Callable[..., Group], failed: bool) -> None:
    """Law: a spare that took a seat while others committed without it is a version behind. It takes
    in what the members have staged; if a slot dies first, its parity counts as lost and is not
    brought to the new version by folding nothing."""
    group = make(versions=2)
    group.change()
    group.stage()
    group.lose(group.count)
    group.rebuild(group.count)
    for i, vault in enumerate(group.members):
        group.lib.ftrma_parity_unstage(group.parity.c, vault.c, i, group.weights[0][i])
    group.commit()
    world: Any = group.world
    world.proc, world.ctl.commit, world.ctl.nchecksums = group.count, group.version << 1, 1
    world.me.summed = world.me.folded = group.version - 1
    for i in range(group.count):
        world.ctl.proc[i].staged = group.version
    world.lib = Quiet(group.lib)
    world.visit, world.role = (lambda place: None), (lambda: (CHECKSUM, 0))
    if failed:
        settle(world, group.parity)
        assert not world.me.ready
        return
    server = Server(world, group.parity, None)
    assert [server.step(0), server.step(0)] == [False, True]
    assert world.me.summed == world.me.folded == group.version
    group.holds(3)
    assert not any(group.scrub_all())


class Quiet:
    """The C functions without the bell, which belongs to a job."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == "ftrma_ring" else getattr(self.lib, name)


def test_corrupt_copy_is_noticed_before_it_spoils_the_parity(make: Callable[..., Group]) -> None:
    """Law: staging over corrupt blocks of the copy says how many, so that no delta from them is
    folded; rebuilding a parity from a corrupt copy says at which block."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    flip(group.members[0], 3)
    for _ in range(2):
        assert group.remake(group.parity) == 3
    flip(group.members[0], 5)
    group.windows[0][2 * BLOCK] ^= 1  # block 3 of the vault
    group.windows[0][0] ^= 1
    vault, window = group.members[0], group.windows[0]
    group.lib.ftrma_stage_begin(vault.c, 2)
    assert group.lib.ftrma_stage(vault.c, group.address(window), window.size, 1) >= 1


def test_undo_hides_no_damage(make: Callable[..., Group]) -> None:
    """Law: a damaged block that was staged over does not match its checksum, before and after the
    stage is undone, by the vault's own list alone."""
    group = make([6 * BLOCK + 9], versions=1)
    vault = group.members[0]
    for block in (3, 7):
        flip(vault, block, at=5)
    group.windows[0][:] += 1
    group.stage()
    check = group.lib.ftrma_check
    assert [check(vault.c, vault.c, -1, b, b + 1) for b in (2, 3, 7)] == [-1, 3, 7]
    group.undo()
    assert [check(vault.c, vault.c, -1, b, b + 1) for b in (2, 3, 7)] == [-1, 3, 7]


def test_vault_that_grows_takes_the_parity_along(make: Callable[..., Group]) -> None:
    """Law: a member may protect more in a later version than in an earlier one."""
    group = make([3 * BLOCK, 100], versions=2)
    group.windows[1] = np.frombuffer(group.random.bytes(9 * BLOCK + 3), "u1").copy()
    group.checkpoint()
    group.holds(3)
    for i in (0, 1):
        group.lose(i)
        group.rebuild(i)
        group.holds(3)


# ---- a process that is killed on the way ----------------------------------------------------


def killed_at(address: Any, work: Callable[[], object]) -> None:
    """Do `work` in a process that dies when it touches the page at `address`."""
    pid = os.fork()
    if pid == 0:
        for number in (signal.SIGSEGV, signal.SIGBUS):
            signal.signal(number, signal.SIG_DFL)
        ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(BLOCK))
        work()
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]), "the process lived"


def stage_page(group: Group, vault: Vault, index: int) -> int:
    pointer = group.lib.ftrma_vault_stage_block(vault.c, index)
    return int(group.ffi.cast("uintptr_t", pointer))


def test_undo_after_death_in_the_middle_of_staging(make: Callable[..., Group]) -> None:
    """Law: a vault whose process was killed while staging (all were, with the launcher) goes back
    to the version before: what was staged so far can be told and undone."""
    group = make([8 * BLOCK, 2 * BLOCK], versions=1)
    memory = np.frombuffer(mmap.mmap(-1, 8 * BLOCK), "u1")
    memory[:] = np.frombuffer(group.random.bytes(memory.size), "u1")
    group.windows[0] = memory
    killed_at(memory.ctypes.data + 4 * BLOCK, lambda: group.stage(0))
    assert content(group.members[0], BLOCK) != group.history[1][0][:BLOCK].tobytes()
    group.undo()
    group.holds(1)


@pytest.mark.parametrize("written", [0, 8, 1000, 2048, BLOCK - 8, BLOCK])
def test_undo_of_a_block_that_was_being_staged(make: Callable[..., Group], written: int) -> None:
    """Law: a block whose front is new already, when the process is killed, is taken back too."""
    group = make([8 * BLOCK], versions=2)
    vault = group.members[0]
    group.windows[0][: 2 * BLOCK] += 1
    group.stage()
    assert vault.staged_blocks().tolist() == [1, 2]
    old, new = vault.bytes_at(5, BLOCK)[:], group.random.bytes(BLOCK)
    delta = bytes(a ^ b for a, b in zip(old, new, strict=True))
    count = group.ffi.new("uint64_t *")
    numbers = group.lib.ftrma_vault_dirty(vault.c, count)
    group.ffi.cast("uint32_t *", numbers)[count[0]] = 5
    vault.stage_bytes(2, 1)[:] = delta[: written + 8].ljust(BLOCK, b"?")[:BLOCK]
    vault.bytes_at(5, BLOCK)[:written] = new[:written]
    group.undo()
    group.holds(2)
    assert not any(group.scrub_all())


def test_undo_of_a_block_that_lacks_its_checksum(make: Callable[..., Group]) -> None:
    """Law: a block that is staged and counted, its checksum not yet written, is taken back."""
    group = make([8 * BLOCK], versions=2)
    vault = group.members[0]
    before = vault.crcs()[:9].copy()
    group.windows[0][[0, 5 * BLOCK]] += 1
    group.stage()
    assert vault.staged_blocks().tolist() == [1, 6]
    vault.crcs()[6] = before[6]
    group.undo()
    group.holds(2)
    assert (vault.crcs()[:9] == before).all()
    assert not any(group.scrub_all())


def test_drop_after_death_in_the_middle_of_summing(make: Callable[..., Group]) -> None:
    """Law: a checksum rank killed while summing leaves nothing that the next sum takes up."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    for window in group.windows:
        window += 1
    group.stage()
    killed_at(stage_page(group, group.members[1], 2), group.sum)
    group.drop()
    group.undo()
    group.holds(1)
    group.windows[0][5 * BLOCK] ^= 1
    group.stage()
    group.sum()
    group.commit()
    group.fold()
    group.holds(2)


def test_fold_after_death_in_the_middle_of_folding(make: Callable[..., Group]) -> None:
    """Law: folding that was cut short is finished by folding again; no block counts twice."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    for window in group.windows:
        window += 1
    group.stage()
    group.sum()
    group.commit()
    killed_at(stage_page(group, group.parity, 4), group.fold)
    assert group.lib.ftrma_parity_version(group.parity.c) == 1
    group.fold()
    group.holds(2)
    assert not any(group.scrub_all())


# ---- files and records ----------------------------------------------------------------------


def test_record_explains_a_rebuilt_vault(make: Callable[..., Group], tmp_path: Path) -> None:
    """Law: a vault that was rebuilt from parity tells by its record where everything is; what is
    copied out is what was staged, and only what differs is written."""
    group = make([1, 1])
    arrays = [np.frombuffer(group.random.bytes(n), "u1").copy() for n in (5000, 3 * BLOCK, 1)]
    other = np.frombuffer(group.random.bytes(7 * BLOCK), "u1").copy()
    regions = [(("window", i), a.ctypes.data, a.nbytes) for i, a in enumerate(arrays)]
    for version in (1, 2, 3):
        arrays[1][::1000] += 1
        if version == 3:
            arrays[0] = np.frombuffer(group.random.bytes(9 * BLOCK), "u1").copy()
            regions[0] = (("window", 0), arrays[0].ctypes.data, arrays[0].nbytes)
        record = {"states": {"main": b"x" * 900 * version}, "ordinal": version}
        protected, dirty = group.members[0].stage(version, regions, record)
        assert protected > sum(a.nbytes for a in arrays) and 0 < dirty <= 30 * BLOCK
        group.members[1].stage(version, [("o", other.ctypes.data, other.nbytes)], {"n": version})
        group.sum()
        group.commit()
        group.fold()
    group.lose(0)
    group.rebuild(0)
    found = group.members[0].read_record()
    assert found["ordinal"] == 3 and found["states"] == {"main": b"x" * 2700}
    for key, array in zip((("window", i) for i in range(3)), arrays, strict=True):
        to = np.zeros_like(array)
        assert group.members[0].copy_out(key, to.ctypes.data, to.nbytes) == to.nbytes
        assert to.tobytes() == array.tobytes()
        assert group.members[0].copy_out(key, to.ctypes.data, to.nbytes) == 0
    # The map went along: the next checkpoint leaves everything where it is.
    before = dict(group.members[0].extents.regions)
    group.members[0].stage(4, regions, record)
    assert {k: v for k, v in group.members[0].extents.regions.items() if k != "record"} == {
        k: v for k, v in before.items() if k != "record"
    }


def test_damaged_head_is_an_error(make: Callable[..., Group]) -> None:
    """Law: an empty or overwritten first block is CorruptVault, not nonsense."""
    group = make([1])
    with pytest.raises(CorruptVault, match="first block is damaged"):
        group.members[0].read_record()


def test_full_vault_is_an_error_in_words(make: Callable[..., Group]) -> None:
    """Law: more blocks than the capacity is an FtrmaError with the remedy."""
    group = make([1])
    with pytest.raises(FtrmaError, match="shared memory is full; free space"):
        group.members[0].reserve(CAPACITY + 1)
    group.members[0].reserve(CAPACITY)


def test_foreign_file_is_refused(make: Callable[..., Group], tmp_path: Path) -> None:
    """Law: a file that is no vault or not a whole one, of another capacity, or missing is an
    FtrmaError."""
    group = make([1])
    (tmp_path / "other").write_bytes(bytes(64 * BLOCK))
    os.truncate(tmp_path / "other", group.world.vault_path(1).stat().st_size)
    (tmp_path / "begun").touch()  # its process was killed while it made it
    for path, capacity in (
        (tmp_path / "other", CAPACITY), (tmp_path / "missing", CAPACITY),
        (tmp_path / "begun", CAPACITY),
        (group.world.vault_path(1), CAPACITY // 2),
    ):  # fmt: skip
        with pytest.raises(FtrmaError, match="opening"):
            Vault(group.native, path, capacity, 1, create=False)


def test_clear_and_copy_touch_only_what_differs() -> None:
    """Law: clearing zeros writes nothing, a changed byte costs one block."""
    lib, ffi = _mpi.load().lib, _mpi.load().ffi
    memory = np.zeros(5 * BLOCK + 3, "u1")
    address = ffi.cast("void *", memory.ctypes.data)
    assert lib.ftrma_clear(address, memory.nbytes) == 0
    memory[BLOCK] = memory[-1] = 1
    assert lib.ftrma_clear(address, memory.nbytes) == BLOCK + 3 and not memory.any()


def test_a_stage_can_be_undone_while_others_write(make: Callable[..., Group]) -> None:
    """Law: undoing gives back the copy of before, also where memory changed under the staging, in
    whole blocks and in the last one that is not."""
    group = make([2])
    lib, vault, size_bytes = group.lib, group.members[0], BLOCK + 4000
    vault.reserve(2, staging=2)
    memory = np.zeros(size_bytes, np.uint8)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            memory[:] += 1

    def stage(version: int) -> None:
        lib.ftrma_stage_begin(vault.c, version)
        lib.ftrma_stage(vault.c, group.address(memory), size_bytes, 0)

    stage(1)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        before = bytes(vault.bytes_at(0, 2 * BLOCK))
        for _ in range(1500):
            stage(2)
            lib.ftrma_stage_undo(vault.c, 1)
            assert bytes(vault.bytes_at(0, 2 * BLOCK)) == before
            assert lib.ftrma_check(vault.c, vault.c, -1, 0, 2) == -1
    finally:
        stop.set()
        writer.join()
