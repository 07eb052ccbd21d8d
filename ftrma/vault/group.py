"""Computes lost vaults of a group, and damaged blocks.

A group's elements are numbered as in `erasure`: its slots' vaults 0..k-1, then the parities of its
checksum ranks k..k+m-1. A lost element is a sum over k elements that are left; C computes it block
by block and compares each block with the checksum that lies with a parity. If a block does not
match, one of its sources is damaged: for this block the source counts as lost, too, and another one
is read instead, as long as no more than m are missing.

An element on another node is read through an `image`, a stretch of blocks at a time. A group whose
elements are all on this node is one stretch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..fabric.round_changed import RoundChanged
from ..fabric.view import JobView
from ..host.errors import CatastrophicFailure, CorruptVault
from ..native import vaults
from ..native.shared import Proc, Slot, Version
from ..native.vaults import Handle
from . import erasure
from .vault import Extent, Vault

if TYPE_CHECKING:
    from .image import Image


def mapped_vault(view: JobView, proc: Proc) -> Vault:
    """Map another process's vault on this node. It stays mapped, since mapping costs much."""
    path = view.vault_path(proc)
    inode = path.stat().st_ino
    known: tuple[int, Vault] | None = view.mapped_vaults.get(proc)
    if known and known[0] == inode:
        return known[1]
    forget_vault(view, proc)
    vault = Vault(path, view.words.capacity_blocks, view.layout.group_size, create=False)
    view.mapped_vaults[proc] = inode, vault
    return vault


def forget_vault(view: JobView, proc: Proc) -> None:
    """Unmap another process's vault."""
    known = view.mapped_vaults.pop(proc, None)
    if known:
        known[1].close()


def own_vault(view: JobView, *, create: bool) -> Vault:
    """Open this process's vault: the one that is there, or with `create` an empty one instead."""
    path = view.vault_path(view.proc)
    if create:
        path.unlink(missing_ok=True)  # a process or thread that has the old one mapped keeps it
    vault = Vault(path, view.words.capacity_blocks, view.layout.group_size, create=create)
    view.share_vault()
    return vault


@functools.lru_cache
def coefficients(k: int, m: int, parity: int) -> bytes:
    """Coefficients of the members in a parity, as C takes them."""
    row: bytes = erasure.coefficients(k, m)[parity].tobytes()
    return row


class Group:
    """The vaults of a group as this process reads them. It is closed before they may change.

    Attributes:
        number: of the group.
        slots: its members.
        k, m: how many members and parities it has.
        procs: holders of its elements, members first.
    """

    def __init__(self, view: JobView, number: int) -> None:
        self.view, self.number, self.layout = view, number, view.layout
        slots, checksums = view.slot_holders(), view.checksum_holders()
        self.slots = self.layout.members(number)
        self.k, self.m = len(self.slots), self.layout.strength
        self.procs = [slots[s] for s in self.slots]
        self.procs += [checksums[c] for c in self.layout.checksums_of(number)]
        self._images: dict[int, Image] = {}

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        while self._images:
            self._images.popitem()[1].close()

    def is_local(self, element: int) -> bool:
        """Say whether an element is on this node."""
        return self.view.remote_files is None or self.view.remote_files.here(self.procs[element])

    def image(self, element: int) -> Image:
        """The image of an element on another node. It is kept until the group is closed."""
        from .image import Image  # over several nodes only: importing it takes milliseconds

        if element not in self._images:
            view, (node, number) = self.view, self.place(element)
            assert view.remote_files is not None
            path = view.directory / f"image-{view.proc}-{number}"
            size = view.layout.group_size
            self._images[element] = Image(view.remote_files, node, number, path, size)
        return self._images[element]

    def place(self, element: int) -> tuple[int, int]:
        """Node of an element, and its number there, as `Files.share_vault` has it."""
        assert self.view.remote_files is not None
        return self.view.remote_files.nodes[self.procs[element]], self.procs[element]

    def present(self, element: int) -> bool:
        """Say whether an element's vault holds what it must, and can be read."""
        return self.view.ready(self.procs[element])

    def __getitem__(self, element: int) -> Handle:
        if self.is_local(element):
            return mapped_vault(self.view, self.procs[element]).c
        return self.image(element).c

    def stretches(self, copies: Sequence[int], lists: Sequence[tuple[int, int]], first: int,
                  end: int) -> Iterator[Extent]:
        """Yield blocks first .. end - 1 in stretches (first, end), once each is here to be read.

        Args:
            copies: elements whose copies are read.
            lists: elements whose checksums are read, and the member that they are of; -1: the
                element's own.
        """
        copies = [e for e in copies if not self.is_local(e)]
        lists = [(e, member) for e, member in lists if not self.is_local(e)]
        images = [self.image(e) for e in {*copies, *(e for e, _ in lists)}]
        if not images:
            yield first, end
            return
        at, far_end = first, min(end, max(image.used for image in images))
        while at < end:
            # Behind the end of all images only elements on this node may have blocks.
            stop = min(at + images[0].STRETCH, far_end) if at < far_end else end
            try:
                for e in copies:
                    self.image(e).fetch(at, stop)
                for e, member in lists:
                    self.image(e).fetch_crcs(member, at, stop)
                yield at, stop
            finally:
                for image in images:
                    image.drop()
            at = stop

    def weights(self, parity: int) -> bytes:
        """Coefficients of the members in a parity."""
        return coefficients(self.k, self.m, parity)

    def missing(self) -> list[int]:
        """Elements whose vault does not hold what it must, or whose process is dead."""
        return [e for e in range(self.k + self.m) if not self.present(e)]

    def reference(self, element: int) -> int | None:
        """A parity that has checksums of this element; None if none is left.

        A parity that is there has its own.
        """
        present = [e for e in range(self.k, self.k + self.m) if self.present(e)]
        return element if element in present else next(iter(present), None)

    def reference_or_raise(self, element: int) -> int:
        """A parity that has checksums of this element, if one was left a moment ago.

        Raises:
            RoundChanged: it is gone now.
        """
        reference = self.reference(element)
        if reference is None:
            self.raise_if_died()
        assert reference is not None
        return reference

    def raise_if_died(self) -> None:
        """Begin another round if a holder has died since the plan was made.

        Raises:
            RoundChanged: one has.
        """
        if not all(map(self.view.alive, self.procs)):
            self.view.raise_alarm(self.view.words.plan_round)
            raise RoundChanged

    def check(self, element: int, first: int = 0, end: int = vaults.ALL) -> int:
        """Compare blocks of an element with their checksums.

        Returns:
            -1, or the first block that differs.
        """
        reference, member = self.reference_or_raise(element), element if element < self.k else -1
        for at, stop in self.stretches([element], [(reference, member)], first, end):
            bad = vaults.check(self[element], self[reference], member, at, stop)
            if bad >= 0:
                return bad
        return -1

    def damaged(self, block: int, missing: list[int]) -> list[int]:
        """Elements that are not missing but do not match their checksum in this block."""
        present = set(range(self.k + self.m)) - set(missing)
        return [e for e in present if self.check(e, block, block + 1) >= 0]

    def name(self, element: int) -> str:
        """The role of an element, for people."""
        if element < self.k:
            return f"slot {self.slots[element]}"
        return f"checksum {self.layout.checksums_of(self.number)[element - self.k]}"

    def compute(self, vault: Handle, element: int, missing: list[int], first: int = 0,
                end: int = vaults.ALL) -> int:
        """Compute blocks of an element from the elements that are not missing.

        Returns:
            -1, or the first block whose checksum shows that a source is damaged.
        """
        reference = self.reference_or_raise(element)
        plan = erasure.decoding(self.k, self.m, missing)
        row = plan.coefficients[plan.lost.index(element)]
        member = element if element < self.k else -1
        for at, stop in self.stretches(plan.sources, [(reference, member)], first, end):
            sources = [self[e] for e in plan.sources]
            bad = vaults.rebuild(
                vault, self[reference], member, sources, row.tobytes(), at, stop
            )
            if bad >= 0:
                return bad
        return -1

    def mend(self, vault: Handle, element: int, block: int, missing: list[int]) -> None:
        """Compute one block anew, from elements that are sound in this block.

        A parity that was spoilt before its sum was taken matches its checksum, so each may be it.
        """
        gone = sorted({element, *missing, *self.damaged(block, [*missing, element])})
        parities = range(self.k, self.k + self.m)
        trials = [gone, *(sorted({*gone, e}) for e in parities if e not in gone)]
        if all(len(left_out) > self.m
               or self.compute(vault, element, left_out, block, block + 1) >= 0
               for left_out in trials):
            others = [self.name(e) for e in gone if e != element]
            raise CorruptVault(
                f"block {block} of {self.name(element)} cannot be rebuilt: "
                f"{' and '.join(others) or 'its checksum'} of group {self.number} "
                f"{'are' if len(others) > 1 else 'is'} damaged or lost as well; checkpoint version "
                f"{self.view.words.committed} is gone, start the program again"
            )
        if not self.is_local(element):
            assert element < self.k  # the checksums of a parity would have been read by its image
            self.image(element).write_back(block)

    # -- parities -----------------------------------------------------------------------------

    def sum_staged(self, vault: Vault, parity: int) -> None:
        """Sum what the members have staged into a parity."""
        weights, far = self.weights(parity), [e for e in range(self.k) if not self.is_local(e)]
        members = [None if e in far else self[e] for e in range(self.k)]
        vaults.parity_sum(vault.c, members, weights)
        for e in far:
            image = self.image(e)
            block, crc = vault.expect(e, image.used, image.staged_count)
            for part in image.staged():
                end = part.first + len(part.blocks)
                block[part.first:end], crc[part.first:end] = part.blocks, part.crcs
                vault.add_delta(e, weights[e], part.first, len(part.blocks), part.deltas)

    def compute_parity(self, vault: Vault, weights: bytes, version: Version) -> int:
        """Compute a parity at a version from all members' copies.

        Returns:
            -1, or the first block of which a member's copy is damaged.
        """
        elements = range(self.k)
        for at, stop in self.stretches(elements, [(e, -1) for e in elements], 0, vaults.ALL):
            members = [self[e] for e in elements]
            bad = vaults.parity_rebuild(vault.c, members, weights, version, at, stop)
            if bad >= 0:
                return bad
        return -1

    def unstage(self, vault: Vault, element: int, weight: int) -> None:
        """Take what a member has staged out of a parity that was computed from its copy."""
        if not self.is_local(element):
            for part in self.image(element).staged():
                vaults.parity_unstage(vault.c, element, weight, part.blocks, part.deltas)
            return
        blocks = vaults.staged_blocks(self[element])
        deltas = vaults.stage_view(self[element], 0, len(blocks))
        vaults.parity_unstage(vault.c, element, weight, blocks, deltas)


def rebuild_slot(view: JobView, vault: Vault, slot: Slot, of: Group | None = None) -> None:
    """Compute this slot's committed copy from its group's other members and parities.

    Args:
        of: the group, where its parities are not those of the checksum ranks; closed here.

    Raises:
        CatastrophicFailure: the group lacks more elements than it has parities.
        RoundChanged: it does because somebody has just died.
        CorruptVault: damaged blocks leave too few to compute one from.
    """
    with of or Group(view, view.layout.group_of(slot)) as group:
        element = group.slots.index(slot)
        missing = sorted({element, *group.missing()})
        if len(missing) > group.m:
            group.raise_if_died()
            names = tuple(map(group.name, missing))
            raise CatastrophicFailure(group.number, names, view.words.committed)
        bad = group.compute(vault.c, element, missing)
        while bad >= 0:
            group.mend(vault.c, element, bad, missing)
            bad = group.compute(vault.c, element, missing, bad + 1)


def scrub(view: JobView, number: int, element: int) -> int:
    """Compare an element of a group with its checksums; damaged blocks are computed anew.

    Returns:
        Blocks that were damaged.

    Raises:
        CorruptVault: one cannot be mended.
    """
    with Group(view, number) as group:
        if group.reference(element) is None:
            return 0  # no checksums: the parities are being computed, which checks the members
        missing, mended = group.missing(), 0
        bad = group.check(element)
        while bad >= 0:
            group.mend(group[element], element, bad, missing)
            mended += 1
            bad = group.check(element, bad + 1)
        return mended


def rebuild_parity(view: JobView, vault: Vault, checksum: int, *, others_run: bool = False) -> None:
    """Compute a parity from its group's members' committed copies.

    The members may run meanwhile: what they have staged of a version that is not committed yet is
    taken out again, and none can begin to stage before `ready` is set.

    Args:
        others_run: no repair has stopped the members, even if one is asked for by now.

    Raises:
        CorruptVault: a member's block is damaged and there is no other parity to mend it from.
        RoundChanged: there is one, and a repair is asked for, in which the block can be mended.
    """
    version = view.words.committed
    with Group(view, view.layout.group_of_checksum(checksum)) as group:
        weights = group.weights(view.layout.checksums_of(group.number).index(checksum))
        status = group.compute_parity(vault, weights, version)
        if status >= 0 and group.reference(-1) is not None:
            # Another parity can mend the damaged member, but only while nobody runs.
            asked = view.alarmed()
            if not asked:
                view.raise_alarm(view.requested_round())
            if others_run or not asked:
                raise RoundChanged
            for element in range(group.k):
                scrub(view, group.number, element)
            status = group.compute_parity(vault, weights, version)
        for i, proc in enumerate(group.procs[: group.k]):
            if view.words.process(proc).staged > version:
                group.unstage(vault, i, weights[i])
    if status >= 0:
        raise CorruptVault(
            f"block {status} of a slot in group {group.number} is damaged, and there is no parity "
            f"to rebuild it from; checkpoint version {version} is gone, start the program again"
        )
    view.words.me.summed = version
    view.words.me.folded = version
    view.words.me.ready = 1
    view.ring()
