"""The vaults of a group: computing lost ones, and mending damaged blocks.

A group's elements are numbered as in `erasure`: its slots' vaults 0..k-1, then the parities of its
checksum ranks k..k+m-1. Whatever is lost is a sum over k elements that are left; C computes it
block by block and compares each with the checksum that lies with a parity. A block that does not
match has a damaged source: in this column that source is one erasure more, and others are read
instead, as long as no more than m are missing.
"""

from __future__ import annotations

import functools

from ..errors import CatastrophicFailure, CorruptVault
from ..fabric.base import RoundChanged
from ..fabric.world import World
from ..native import job, vaults
from ..native.shared import Proc, Slot
from ..native.vaults import Handle
from . import erasure
from .vault import Vault


def mapped_vault(world: World, proc: Proc) -> Vault:
    """Another process's vault. It stays mapped, since mapping costs more than reading."""
    path = world.vault_path(proc)
    inode = path.stat().st_ino
    known: tuple[int, Vault] | None = world.mapped.get(proc)
    if known and known[0] == inode:
        return known[1]
    forget_vault(world, proc)
    vault = Vault(path, world.ctl.capacity_blocks, world.ctl.group_size, create=False)
    world.mapped[proc] = inode, vault
    return vault


def forget_vault(world: World, proc: Proc) -> None:
    known = world.mapped.pop(proc, None)
    if known:
        known[1].close()


def new_vault(world: World) -> Vault:
    """An empty vault for this process, in place of any that it had."""
    return Vault(
        world.vault_path(world.proc), world.ctl.capacity_blocks,
        world.ctl.group_size, create=True,
    )


@functools.lru_cache
def coefficients(k: int, m: int, parity: int) -> bytes:
    row: bytes = erasure.coefficients(k, m)[parity].tobytes()
    return row


class Group:
    """A group's vaults in this process.

    Attributes:
        number: of the group; slots: its members; k, m: members and parities.
        procs: holders of its elements, members first.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.slots = world.members(number)
        self.k, self.m = len(self.slots), world.ctl.strength
        roles = world.roles
        self.procs = [roles.slot_proc[s] for s in self.slots]
        self.procs += [roles.checksum_proc[c] for c in world.checksums_of(number)]

    def __getitem__(self, element: int) -> Handle:
        return mapped_vault(self.world, self.procs[element]).c

    @property
    def members(self) -> list[Handle]:
        return [self[e] for e in range(self.k)]

    def weights(self, parity: int) -> bytes:
        """Coefficients of the members in a parity."""
        return coefficients(self.k, self.m, parity)

    def missing(self) -> list[int]:
        """Elements whose vault does not hold what it must, or whose process is gone."""
        return [e for e, p in enumerate(self.procs) if not self.world.ready(p)]

    def reference(self, element: int) -> int | None:
        """A parity with checksums of this element: its own, for a parity that is there."""
        present = [e for e in range(self.k, self.k + self.m) if self.world.ready(self.procs[e])]
        return element if element in present else next(iter(present), None)

    def damaged(self, block: int, missing: list[int]) -> list[int]:
        """Elements, of those not missing, that do not match their checksum in this block."""
        found = []
        for e in set(range(self.k + self.m)) - set(missing):
            reference, member = self.reference(e), e if e < self.k else -1
            assert reference is not None
            if vaults.check(self[e], self[reference], member, block, block + 1) >= 0:
                found.append(e)
        return found

    def name(self, element: int) -> str:
        if element < self.k:
            return f"slot {self.slots[element]}"
        return f"checksum {self.world.checksums_of(self.number)[element - self.k]}"

    def compute(self, vault: Handle, element: int, missing: list[int], first: int = 0,
                end: int = vaults.ALL) -> int:
        """Compute blocks of an element from those that are not missing.

        Returns:
            -1, or the first block whose checksum shows that a source is damaged.
        """
        reference = self.reference(element)
        assert reference is not None
        plan = erasure.decoding(self.k, self.m, missing)
        row = plan.coefficients[plan.lost.index(element)]
        member, sources = element if element < self.k else -1, [self[e] for e in plan.sources]
        return vaults.rebuild(
            vault, self[reference], member, sources, row.tobytes(), first, end
        )

    def mend(self, vault: Handle, element: int, block: int, missing: list[int]) -> None:
        """Compute one block anew, from elements that are sound in this block."""
        gone = sorted({element, *missing, *self.damaged(block, [*missing, element])})
        if len(gone) > self.m or self.compute(vault, element, gone, block, block + 1) >= 0:
            others = [self.name(e) for e in gone if e != element]
            raise CorruptVault(
                f"block {block} of {self.name(element)} cannot be rebuilt: "
                f"{' and '.join(others) or 'its checksum'} of group {self.number} "
                f"{'are' if len(others) > 1 else 'is'} damaged or lost as well; checkpoint version "
                f"{self.world.committed} is gone, start the program again"
            )


def rebuild_slot(world: World, vault: Vault, slot: Slot) -> None:
    """Compute this slot's committed copy from its group's other members and parities.

    Raises:
        CatastrophicFailure: the group lacks more elements than it has parities.
        CorruptVault: damaged blocks leave too few to compute one from.
    """
    group = Group(world, world.roles.slot_group[slot])
    element = group.slots.index(slot)
    missing = sorted({element, *group.missing()})
    if len(missing) > group.m:
        names = tuple(map(group.name, missing))
        raise CatastrophicFailure(group.number, names, world.committed)
    bad = group.compute(vault.c, element, missing)
    while bad >= 0:
        group.mend(vault.c, element, bad, missing)
        bad = group.compute(vault.c, element, missing, bad + 1)


def scrub(world: World, number: int, element: int) -> int:
    """Compare an element of a group with its checksums; damaged blocks are computed anew.

    Returns:
        Blocks that were damaged.

    Raises:
        CorruptVault: one cannot be mended.
    """
    group = Group(world, number)
    reference = group.reference(element)
    if reference is None:
        return 0  # no checksums: the parities are being computed, which checks the members
    vault, missing, mended = group[element], group.missing(), 0
    member = element if element < group.k else -1
    bad = vaults.check(vault, group[reference], member)
    while bad >= 0:
        group.mend(vault, element, bad, missing)
        mended += 1
        bad = vaults.check(vault, group[reference], member, bad + 1)
    return mended


def rebuild_parity(world: World, vault: Vault, checksum: int) -> None:
    """Compute a parity from its group's members' committed copies.

    Also right while the members run: those that have staged a version that is not committed yet
    are taken as they were before, and none can begin to stage before `ready` is set.

    Raises:
        CorruptVault: a member's block is damaged and there is no other parity to mend it from.
        RoundChanged: there is one, and a repair has been asked for, in which that can be done.
    """
    version = world.committed
    group = Group(world, world.group_of_checksum(checksum))
    weights = group.weights(world.checksums_of(group.number).index(checksum))
    members = group.members
    status = vaults.parity_rebuild(vault.c, members, weights, version)
    if status >= 0 and group.reference(-1) is not None:
        # Another parity can mend the damaged member, but only while nobody runs.
        if not world.alarmed():
            job.raise_alarm(world.load("alarm"))
            raise RoundChanged
        for element in range(group.k):
            scrub(world, group.number, element)
        status = vaults.parity_rebuild(vault.c, members, weights, version)
    for i, proc in enumerate(group.procs[: group.k]):
        if world.ctl.proc[proc].staged > version:
            vaults.parity_unstage(vault.c, members[i], i, weights[i])
    if status >= 0:
        raise CorruptVault(
            f"block {status} of a slot in group {group.number} is damaged, and there is no parity "
            f"to rebuild it from; checkpoint version {version} is gone, start the program again"
        )
    world.put("summed", version)
    world.put("folded", version)
    world.put("ready", 1)
    job.ring()
