"""A group of vaults without a job: its members and checksum ranks, and what each version held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ftrma.fabric.control_words import ControlWords
from ftrma.fabric.one_node import OneNodeView
from ftrma.host.key import Key
from ftrma.host.record import Seal
from ftrma.native import job, loading, vaults
from ftrma.vault import group as groups
from ftrma.vault.group import coefficients, forget_vault, rebuild_slot, scrub
from ftrma.vault.vault import BLOCK, Vault, blocks

CAPACITY = 256  # blocks of a vault, unless its window needs more
SEAL = Seal(Key(bytes(range(32))), "slot 0", "1")
SEED = 271828
SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17, 20 * BLOCK, 5]


class Apart(OneNodeView):
    """The view of a process that has joined no job. Words and layout follow the control file."""

    def __init__(self, directory: Path, ctl: Any = None, proc: int = 0) -> None:
        self.directory, self.mapped_vaults, self.proc = directory, {}, proc
        self.ctl = ctl or loading.load().ffi.new("struct ftrma_ctl *")

    @property
    def words(self) -> Any:
        return ControlWords(self.ctl, self.proc)

    @property
    def layout(self) -> Any:
        return OneNodeView.layout.func(self)


class Group:
    """Members 0..k-1 with windows of different sizes, and their m checksum ranks.

    The processes are k + m entries of a control structure that belongs to no job.
    """

    def __init__(self, directory: Path, sizes: list[int], seed: int, strength: int = 1) -> None:
        print(f"seed {seed}, sizes {sizes}, m {strength}")
        self.ffi = loading.load().ffi
        self.directory, self.count, self.strength = directory, len(sizes), strength
        self.capacity = max(CAPACITY, *(2 * blocks(n) for n in sizes))
        self.random = np.random.default_rng(seed)
        self.windows = [np.zeros(n, "u1") for n in sizes]
        self.opened: list[Vault] = []
        self.view = self.make_view()
        self.members = [self.vault(i) for i in range(self.count)]
        self.parities = [self.vault(self.count + j) for j in range(strength)]
        self.weights = [coefficients(self.count, strength, j) for j in range(strength)]
        self.version = 0
        self.history = {0: [np.zeros(n, "u1") for n in sizes]}

    def make_view(self) -> OneNodeView:
        view = Apart(self.directory)
        ctl = view.ctl
        ctl.nslots, ctl.group_size, ctl.strength = self.count, self.count, self.strength
        ctl.capacity_blocks, ctl.ngroups, ctl.nchecksums = self.capacity, 1, self.strength
        for i in range(self.count):
            ctl.roles[0].slot_proc[i] = i
        for j in range(self.strength):
            ctl.roles[0].checksum_proc[j] = self.count + j
        return view

    def view_of(self, proc: int) -> OneNodeView:
        """The vault as a process sees it."""
        return self.view

    def vault(self, proc: int) -> Vault:
        """A new, empty vault of a process, in place of any that it had."""
        path = self.view_of(proc).vault_path(proc)
        path.unlink(missing_ok=True)
        made = Vault(path, self.capacity_of(proc), self.count, create=True)
        self.opened.append(made)
        self.view.ctl.proc[proc].state = job.ProcessState.ALIVE
        self.view.words.process(proc).ready = 1
        return made

    def capacity_of(self, proc: int) -> int:
        """Sums of its vault, in blocks."""
        return self.capacity

    @property
    def parity(self) -> Vault:
        return self.parities[0]

    def element(self, i: int) -> Vault:
        return self.members[i] if i < self.count else self.parities[i - self.count]

    def close(self) -> None:
        for proc in list(self.view.mapped_vaults):
            forget_vault(self.view, proc)
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
        version = self.version + 1
        for i in who or range(self.count):
            vault, window = self.members[i], self.windows[i]
            vault.reserve(1 + blocks(window.size), staging=1 + blocks(window.size))
            vaults.stage_begin(vault.c, version)
            vaults.stage(vault.c, window.ctypes.data, window.size, 1)
            vaults.stage_end(vault.c)
        self.history[version] = [w.copy() for w in self.windows]

    def sum(self) -> None:
        for j, parity in enumerate(self.parities):
            with groups.Group(self.view_of(self.count + j), 0) as group:
                group.sum_staged(parity, j)

    def commit(self) -> None:
        self.version += 1

    def fold(self) -> None:
        for parity in self.parities:
            vaults.parity_fold(parity.c, self.version)

    def drop(self) -> None:
        for parity in self.parities:
            vaults.parity_drop(parity.c)

    def checkpoint(self) -> None:
        self.change()
        self.stage()
        self.sum()
        self.commit()
        self.fold()

    def undo(self, *who: int) -> None:
        for i in who or range(self.count):
            vaults.stage_undo(self.members[i].c, self.version)

    def lose(self, i: int) -> None:
        """The element's memory is gone; a replacement begins with an empty vault."""
        forget_vault(self.view, i)
        if i < self.count:
            self.members[i] = self.vault(i)
        else:
            self.parities[i - self.count] = self.vault(i)
        self.view.words.process(i).ready = 0

    # -- asking -------------------------------------------------------------------------------

    def rebuild(self, i: int) -> None:
        """Compute a lost element; members first, since a parity needs all of them."""
        if i < self.count:
            self.view.ctl.commit = self.version << 1
            rebuild_slot(self.view_of(i), self.members[i], i)
        else:
            assert self.remake(self.element(i), i - self.count) == -1
        self.view.words.process(i).ready = 1

    def remake(self, vault: Vault, j: int = 0) -> int:
        """Compute parity j afresh into a vault."""
        with groups.Group(self.view_of(self.count + j), 0) as group:
            return group.compute_parity(vault, self.weights[j], self.version)

    def unstage(self, i: int, j: int = 0) -> None:
        """Take what member i has staged out of parity j."""
        with groups.Group(self.view_of(self.count + j), 0) as group:
            group.unstage(self.parities[j], i, self.weights[j][i])

    def scrub(self, i: int) -> int:
        return scrub(self.view_of(i), 0, i)

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
