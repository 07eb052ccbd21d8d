"""Computes lost vaults of a group, and damaged blocks.

A group's elements are numbered as in `erasure`: its slots' vaults 0..k-1, then the parities of its
checksum ranks k..k+m-1. A lost element is a sum over k remaining elements. The extension computes
it block by block and compares each block with the checksum that lies with a parity. If a block does
not match, one of its sources is damaged: for this block the source counts as lost, too, and another
one is read instead, as long as no more than m are missing.

An element on another node is read through an `image`, one stretch of blocks at a time. A group
whose elements are all on this node is read as one stretch.
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
    """Map another process's vault on this node. It stays mapped, since mapping is expensive."""
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
    """Open this process's vault: the existing one, or with `create` an empty one in its place."""
    path = view.vault_path(view.proc)
    if create:
        path.unlink(missing_ok=True)  # a process or thread that has mapped the old one keeps it
    vault = Vault(path, view.words.capacity_blocks, view.layout.group_size, create=create)
    view.share_vault()
    return vault


@functools.lru_cache
def coefficients(k: int, m: int, parity: int) -> bytes:
    """Return the coefficients of the members in a parity, in the form that C takes."""
    row: bytes = erasure.coefficients(k, m)[parity].tobytes()
    return row


class Group:
    """The vaults of a group as this process reads them. It must be closed before they may change.

    Attributes:
        number: the group's number.
        slots: its members.
        k, m: how many members and parities it has.
        procs: the holders of its elements, members first.
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
        """Return the image of an element on another node. It is kept until the group is closed."""
        from .image import Image  # needed over several nodes only; importing takes milliseconds

        if element not in self._images:
            view, (node, number) = self.view, self.place(element)
            assert view.remote_files is not None
            path = view.directory / f"image-{view.proc}-{number}"
            size = view.layout.group_size
            self._images[element] = Image(view.remote_files, node, number, path, size)
        return self._images[element]

    def place(self, element: int) -> tuple[int, int]:
        """Return the node of an element, and its number there, as `Files.share_vault` uses it."""
        assert self.view.remote_files is not None
        return self.view.remote_files.nodes[self.procs[element]], self.procs[element]

    def present(self, element: int) -> bool:
        """Say whether an element's vault holds what it must and can be read."""
        return self.view.ready(self.procs[element])

    def __getitem__(self, element: int) -> Handle:
        if self.is_local(element):
            return mapped_vault(self.view, self.procs[element]).c
        return self.image(element).c

    def stretches(self, copies: Sequence[int], lists: Sequence[tuple[int, int]], first: int,
                  end: int) -> Iterator[Extent]:
        """Yield blocks first .. end - 1 in stretches (first, end), each when it can be read here.

        Args:
            copies: elements whose copies are read.
            lists: elements whose checksums are read, each with the member that the checksums belong
                to; -1: the element's own.
        """
        copies = [e for e in copies if not self.is_local(e)]
        lists = [(e, member) for e, member in lists if not self.is_local(e)]
        images = [self.image(e) for e in {*copies, *(e for e, _ in lists)}]
        if not images:
            yield first, end
            return
        at, far_end = first, min(end, max(image.used for image in images))
        while at < end:
            # After the end of all images only elements on this node may have blocks.
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
        """Return the coefficients of the members in a parity."""
        return coefficients(self.k, self.m, parity)

    def missing(self) -> list[int]:
        """Return the elements whose vault does not hold what it must, or whose process is dead."""
        return [e for e in range(self.k + self.m) if not self.present(e)]

    def reference(self, element: int) -> int | None:
        """Return a parity that has checksums of this element; None if none is left.

        A parity that is present has its own checksums.
        """
        present = [e for e in range(self.k, self.k + self.m) if self.present(e)]
        return element if element in present else next(iter(present), None)

    def reference_or_raise(self, element: int) -> int:
        """Return a parity that has checksums of this element; there was one a moment ago.

        Raises:
            RoundChanged: there is none any more.
        """
        reference = self.reference(element)
        if reference is None:
            self.raise_if_died()
        assert reference is not None
        return reference

    def raise_if_died(self) -> None:
        """Begin another round if a holder has died since the plan was made.

        Raises:
            RoundChanged: a holder has died.
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
        """Return the elements that are not missing but do not match their checksum in this
        block."""
        present = set(range(self.k + self.m)) - set(missing)
        return [e for e in present if self.check(e, block, block + 1) >= 0]

    def name(self, element: int) -> str:
        """Return the role of an element, as users read it."""
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
        """Compute one block anew from elements that are sound in this block.

        A parity that was spoilt before its checksum was computed matches its checksum, so any
        parity may be the wrong one.
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
            assert element < self.k  # the checksums of a parity would have been read from its image
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
        """Compute a parity at a version from the copies of all members.

        Returns:
            -1, or the first block whose copy is damaged at some member.
        """
        elements = range(self.k)
        for at, stop in self.stretches(elements, [(e, -1) for e in elements], 0, vaults.ALL):
            members = [self[e] for e in elements]
            bad = vaults.parity_rebuild(vault.c, members, weights, version, at, stop)
            if bad >= 0:
                return bad
        return -1

    def unstage(self, vault: Vault, element: int, weight: int) -> None:
        """Remove a member's staged changes from a parity that was computed from the member's
        copy."""
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
        of: the group, if its parities are not those of the checksum ranks; it is closed here.

    Raises:
        CatastrophicFailure: the group lacks more elements than it has parities.
        RoundChanged: it lacks them because a process has just died.
        CorruptVault: because of damaged blocks, too few are left to compute a block from.
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
    """Compare an element of a group with its checksums, and compute damaged blocks anew.

    Returns:
        The number of damaged blocks.

    Raises:
        CorruptVault: a damaged block cannot be computed anew.
    """
    with Group(view, number) as group:
        if group.reference(element) is None:
            return 0  # there are no checksums: computing the parities will check the members
        missing, mended = group.missing(), 0
        bad = group.check(element)
        while bad >= 0:
            group.mend(group[element], element, bad, missing)
            mended += 1
            bad = group.check(element, bad + 1)
        return mended


def rebuild_parity(view: JobView, vault: Vault, checksum: int, *, others_run: bool = False) -> None:
    """Compute a parity from the committed copies of its group's members.

    The members may run meanwhile: changes that they have staged for a version that is not committed
    yet are removed again, and none can begin to stage before `ready` is set.

    Args:
        others_run: no repair has stopped the members, even if one is asked for by now.

    Raises:
        CorruptVault: a member's block is damaged, and no other parity is left to compute it from.
        RoundChanged: a member's block is damaged, and a repair was asked for, in which the block
            can be computed from another parity.
    """
    version = view.words.committed
    with Group(view, view.layout.group_of_checksum(checksum)) as group:
        weights = group.weights(view.layout.checksums_of(group.number).index(checksum))
        status = group.compute_parity(vault, weights, version)
        if status >= 0 and group.reference(-1) is not None:
            # The damaged block can be computed from another parity, but only while no slot runs.
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
