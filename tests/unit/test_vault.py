"""Vaults and parity: at every instant of a checkpoint one version can be rebuilt completely.

The C functions work on files, as in a job; MPI is not started. A `Group` plays the members and the
checksum rank of one group and remembers what each version held.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftrma import _mpi
from ftrma.errors import CorruptVault, FtrmaError
from ftrma.vault import BLOCK, Vault, blocks

CAPACITY = 4096
SEED = 271828
SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17, 20 * BLOCK, 5]


class Group:
    """Members 0..k-1 with windows of different sizes, and their checksum rank."""

    def __init__(self, directory: Path, sizes: list[int], seed: int) -> None:
        print(f"seed {seed}, sizes {sizes}")
        self.native = _mpi.load()
        self.lib, self.ffi = self.native.lib, self.native.ffi
        self.directory, self.count, self.opened = directory, len(sizes), []
        self.random = np.random.default_rng(seed)
        self.windows = [np.zeros(n, "u1") for n in sizes]
        self.members = [self.vault(f"member-{i}") for i in range(len(sizes))]
        self.parity = self.vault("parity")
        self.version = 0
        self.history = {0: [np.zeros(n, "u1") for n in sizes]}

    def vault(self, name: str) -> Vault:
        made = Vault(self.native, self.directory / name, CAPACITY, self.count, create=True)
        self.opened.append(made)
        return made

    def close(self) -> None:
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
            vault.reserve(1 + blocks(window.size))
            lib.ftrma_stage_begin(vault.c, version)
            lib.ftrma_stage(vault.c, self.address(window), window.size, 1)
            lib.ftrma_stage_end(vault.c)
        self.history[version] = [w.copy() for w in self.windows]

    def sum(self) -> None:
        assert self.lib.ftrma_parity_sum(self.parity.c, self.list(), self.count) == 0

    def commit(self) -> None:
        self.version += 1

    def fold(self) -> None:
        self.lib.ftrma_parity_fold(self.parity.c, self.version)

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
        """The member's memory is gone; a replacement begins with an empty vault."""
        self.members[i] = self.vault(f"member-{i}-again-{len(self.opened)}")

    # -- asking -------------------------------------------------------------------------------

    def address(self, array: np.ndarray) -> Any:
        return self.ffi.cast("void *", array.ctypes.data)

    def list(self) -> Any:
        return self.ffi.new("struct ftrma_vault *[]", [m.c for m in self.members])

    def rebuild(self, i: int) -> int:
        return int(self.lib.ftrma_rebuild(self.members[i].c, i, self.parity.c, self.list(),
                                          self.count))  # fmt: skip

    def scrub(self, i: int, first: int = 0, count: int = CAPACITY) -> int:
        return int(self.lib.ftrma_scrub(self.parity.c, self.list(), self.count, i, first, count))

    def holds(self, version: int) -> None:
        """Every member's copy is that version, and so is the parity."""
        for i, vault in enumerate(self.members):
            assert content(vault, self.windows[i].size) == self.history[version][i].tobytes(), i
        assert parity_of(self) == self.parity_at(version)

    def parity_at(self, version: int) -> bytes:
        """Independent of the code under test: XOR of the members' bytes at that version."""
        room = np.zeros(max(blocks(w.size) for w in self.windows) * BLOCK, "u1")
        for part in self.history[version]:
            room[: part.size] ^= part
        return room.tobytes()


def content(vault: Vault, size: int) -> bytes:
    return bytes(vault.bytes_at(1, size)[:])


def parity_of(group: Group) -> bytes:
    return content(group.parity, max(blocks(w.size) for w in group.windows) * BLOCK)


def flip(vault: Vault, block: int, at: int = 77) -> None:
    """A stray store into a vault."""
    view = vault.bytes_at(block, BLOCK)
    view[at] = bytes([view[at][0] ^ 0x10])


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    made = []

    def maker(sizes: list[int] = SIZES, seed: int = SEED, versions: int = 0) -> Group:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Group(directory, sizes, seed))
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
            assert group.rebuild(i) == -1
            group.holds(group.version)
            assert group.scrub(i) == 0


def test_folded_parity_equals_recomputed_parity(make: Callable[..., Group]) -> None:
    """Law: parity folded over many versions is the parity of the copies, blocks and checksums."""
    group = make(versions=5)
    fresh = group.vault("fresh")
    assert group.lib.ftrma_parity_rebuild(fresh.c, group.list(), group.count, group.version) == -1
    folded, group.parity = group.parity, fresh
    group.holds(group.version)
    assert group.lib.ftrma_parity_version(fresh.c) == group.version
    for i in (-1, *range(group.count)):
        assert group.scrub(i) == 0
    group.parity = folded
    for i in (-1, *range(group.count)):
        assert group.scrub(i) == 0


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
        group.lib.ftrma_parity_drop(group.parity.c)
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
        group.lib.ftrma_parity_drop(group.parity.c)
    group.undo(*(i for i in range(group.count) if i != lost))
    group.lose(lost)
    assert group.rebuild(lost) == -1
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
    assert group.rebuild(lost) == -1
    group.holds(3)


def test_dropped_sum_leaves_nothing(make: Callable[..., Group]) -> None:
    """Law: a sum that was not committed has no part in the next one, other blocks or the same."""
    group = make([8 * BLOCK, 8 * BLOCK], versions=1)
    for at in (0, 3 * BLOCK, 0):
        group.windows[0][at] ^= 3
        group.stage()
        group.sum()
        group.lib.ftrma_parity_drop(group.parity.c)
        group.undo()
    group.checkpoint()
    group.holds(2)
    assert [group.scrub(i) for i in (-1, 0, 1)] == [0, 0, 0]


@pytest.mark.parametrize("who", [-1, 0, 2, 5])
def test_corrupt_byte_is_found_and_repaired(make: Callable[..., Group], who: int) -> None:
    """Law: scrub finds a changed byte in a member's copy or in the parity, rebuilds this block
    and says how many."""
    group = make(versions=3)
    vault = group.parity if who < 0 else group.members[who]
    for block in (1, 2):
        if block < group.lib.ftrma_vault_used(vault.c):
            flip(vault, block)
    assert group.scrub(who) == (2 if who in (-1, 5) else min(2, blocks(SIZES[who])))
    group.holds(3)
    assert group.scrub(who) == 0


def test_scrub_keeps_to_its_range(make: Callable[..., Group]) -> None:
    """Law: only blocks first .. first + count - 1 are looked at."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    flip(group.members[0], 5)
    assert [group.scrub(0, 0, 5), group.scrub(0, 6, 100), group.scrub(0, 5, 1)] == [0, 0, 1]


def test_two_corrupt_blocks_of_one_column_are_reported(make: Callable[..., Group]) -> None:
    """Law: where a second error makes rebuilding impossible, scrub says at which block, and
    changes nothing."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    flip(group.members[0], 3)
    flip(group.members[1], 3, at=9)
    before = content(group.members[0], 6 * BLOCK)
    assert group.scrub(0) == -1 - 3
    assert content(group.members[0], 6 * BLOCK) == before


@pytest.mark.parametrize("where", ["member", "parity"])
@pytest.mark.parametrize("block", [1, 4, 20])
def test_corrupt_byte_and_lost_member_are_reported(
    make: Callable[..., Group], where: str, block: int
) -> None:
    """Law: rebuilding from corrupt input returns the block's number, never wrong data as right."""
    group = make(versions=2)
    lost = 4
    flip(group.parity if where == "parity" else group.members[5], block)
    group.lose(lost)
    assert group.rebuild(lost) == block


@pytest.mark.parametrize("staged", [(0,), (1, 3), (5, 6, 2), tuple(range(len(SIZES)))])
def test_parity_of_the_old_version_from_new_copies(
    make: Callable[..., Group], staged: tuple[int, ...]
) -> None:
    """Law: a parity that is rebuilt while some members have staged holds, after unstaging these,
    the old version; a member lost next is rebuilt, and so is the commit that follows."""
    group = make(versions=2)
    group.change()
    group.stage(*staged)
    group.parity = group.vault("parity-again")
    lib = group.lib
    assert lib.ftrma_parity_rebuild(group.parity.c, group.list(), group.count, 2) == -1
    for i in staged:
        lib.ftrma_parity_unstage(group.parity.c, group.members[i].c, i)
    assert parity_of(group) == group.parity_at(2)
    rest = [i for i in range(group.count) if i not in staged]
    if rest:
        group.stage(*rest)
    group.sum()
    group.commit()
    group.fold()
    group.holds(3)
    for i in (-1, *range(group.count)):
        assert group.scrub(i) == 0
    group.lose(2)
    assert group.rebuild(2) == -1
    group.holds(3)


def test_corrupt_copy_is_noticed_before_it_spoils_the_parity(make: Callable[..., Group]) -> None:
    """Law: staging over corrupt blocks of the copy says how many, so that no delta from them is
    folded; rebuilding a parity from a corrupt copy says at which block."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    flip(group.members[0], 3)
    fresh = group.vault("fresh")
    for _ in range(2):
        assert group.lib.ftrma_parity_rebuild(fresh.c, group.list(), group.count, 1) == 3
    flip(group.members[0], 5)
    group.windows[0][2 * BLOCK] ^= 1  # block 3 of the vault
    group.windows[0][0] ^= 1
    vault, window = group.members[0], group.windows[0]
    group.lib.ftrma_stage_begin(vault.c, 2)
    assert group.lib.ftrma_stage(vault.c, group.address(window), window.size, 1) >= 1


def test_vault_that_grows_takes_the_parity_along(make: Callable[..., Group]) -> None:
    """Law: a member may protect more in a later version than in an earlier one."""
    group = make([3 * BLOCK, 100], versions=2)
    group.windows[1] = np.frombuffer(group.random.bytes(9 * BLOCK + 3), "u1").copy()
    group.checkpoint()
    group.holds(3)
    for i in (0, 1):
        group.lose(i)
        assert group.rebuild(i) == -1
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


def test_drop_after_death_in_the_middle_of_summing(make: Callable[..., Group]) -> None:
    """Law: a checksum rank killed while summing leaves nothing that the next sum takes up."""
    group = make([6 * BLOCK, 6 * BLOCK], versions=1)
    for window in group.windows:
        window += 1
    group.stage()
    killed_at(stage_page(group, group.members[1], 2), group.sum)
    group.lib.ftrma_parity_drop(group.parity.c)
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
    assert [group.scrub(i) for i in (-1, 0, 1)] == [0, 0, 0]


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
    assert group.rebuild(0) == -1
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
    """Law: a file that is no vault, of another capacity, or missing is an FtrmaError."""
    group = make([1])
    (tmp_path / "other").write_bytes(bytes(64 * BLOCK))
    os.truncate(tmp_path / "other", group.directory.joinpath("parity").stat().st_size)
    for path, capacity in (
        (tmp_path / "other", CAPACITY), (tmp_path / "missing", CAPACITY),
        (group.directory / "parity", CAPACITY // 2),
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
