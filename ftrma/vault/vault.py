"""The vault of one process: where its regions lie, and the record that describes them.

``csrc/vault/vault.c`` moves bytes, blocks and parity; this module keeps the map of regions. A
region is anything that is protected: a window's part, an array of declared state, or the record
that describes the others. It has an extent of whole blocks; block 0 tells where the record is. The
record is part of the checkpoint, so a vault that was rebuilt from parity describes itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..host import record as records
from ..host.errors import CorruptVault
from ..host.record import Seal
from ..native import vaults
from ..native.shared import VaultWords, Version
from ..native.vaults import BLOCK, Blocks, Buffer, Handle

HEAD = struct.Struct("<8sQQ")  # magic, block of the record, its size in bytes
MAGIC = b"ftrma\0\0\1"

Extent = tuple[int, int]  # first block, number of blocks


class Region(NamedTuple):
    """Memory that a checkpoint protects.

    Attributes:
        key: the key by which the region is found again.
        address, size_bytes: where its bytes are in this process.
        clean_bytes: how many of its first bytes equal the committed copy; they are not read. If
            these are all bytes, the address is not used.
    """

    key: Any
    address: int
    size_bytes: int
    clean_bytes: int = 0


Regions = Sequence[Region]


def blocks(size_bytes: int) -> int:
    """Return how many blocks so many bytes take."""
    return -(-size_bytes // BLOCK)


Place = tuple[int, int, int]  # first block, address and size in bytes of a copy into the vault


class Extents:
    """First-fit allocation of blocks to regions by key. Pure."""

    def __init__(self, regions: dict[Any, Extent] | None = None, end: int = 1) -> None:
        self.regions: dict[Any, Extent] = dict(regions or {})
        self.end = end

    def _gaps(self) -> Iterable[Extent]:
        at = 1
        for first, count in sorted(self.regions.values()):
            if first > at:
                yield at, first - at
            at = max(at, first + count)

    def allocate(self, key: Any, size_bytes: int) -> int:
        """Give a region blocks, new ones if it has outgrown its extent; return the first block."""
        need = max(1, blocks(size_bytes))
        extent = self.regions.get(key)
        if extent and extent[1] >= need:
            return extent[0]
        self.regions.pop(key, None)
        first = next((at for at, room in self._gaps() if room >= need), None)
        if first is None:
            first = max((a + n for a, n in self.regions.values()), default=1)
        self.regions[key] = (first, need)
        self.end = max(self.end, first + need)
        return first

    def keep(self, keys: set[Any]) -> None:
        """Forget the regions of all other keys; their blocks are free from now on."""
        self.regions = {k: v for k, v in self.regions.items() if k in keys}


class Vault:
    """One process's vault file, mapped.

    Args:
        path: path of the file.
        capacity_blocks: capacity of the copy, if the vault is made.
        group_size: members of a group.
        create: make an empty vault.
    """

    def __init__(
        self, path: Path, capacity_blocks: int, group_size: int, *, create: bool
    ) -> None:
        self.sizes = capacity_blocks, group_size
        self.left: list[Handle] = []
        self.c = vaults.open_vault(path, capacity_blocks, group_size, create=create)
        self.extents = Extents()
        # The extents from before this version was begun, since it may be undone and begun again.
        self.before: tuple[Version, Extents] | None = None
        # For the version that is being staged: sizes in bytes of its regions so far, and how many
        # blocks its stage may take.
        self.open_sizes: dict[Any, int] = {}
        self.open_blocks = 0
        # For each region, the version in which its bytes last changed or were undone.
        self.changed: dict[Any, Version] = {}

    def undone(self, version: Version) -> None:
        """Go back to the map of this version, since everything staged after it is undone."""
        if self.before and self.before[0] > version:
            self.extents, self.before = self.before[1], None

    def renew(self, path: Path) -> None:
        """Become an empty vault, with a new file in place of the one at `path`.

        Processes that have mapped the old file keep it, and views of it are valid until `release`.
        """
        self.reserve(0)  # waits until no memory is being allocated ahead
        self.left.append(self.c)
        path.unlink()
        self.c = vaults.open_vault(path, *self.sizes, create=True)
        self.extents, self.before = Extents(), None

    def close(self) -> None:
        self.release()
        vaults.close(self.c)
        del self.c

    def release(self) -> None:
        """Unmap the files that `renew` has replaced; nobody has views of them any more."""
        while self.left:
            vaults.close(self.left.pop())

    def reserve(self, count: int, *, staging: int = 0) -> None:
        """Allocate memory for so many blocks of the copy and, for `staging`, of deltas."""
        vaults.reserve(self.c, count, staging)

    def reserve_ahead(self, count: int, *, staging: int = 0) -> None:
        """Allocate this memory in threads while the program computes, as far as there is some."""
        vaults.ahead(self.c, count, staging)

    def bytes_at(self, block: int, size_bytes: int) -> Buffer:
        """Return a view of bytes of the committed copy, from a block on."""
        return vaults.copy_view(self.c, block, size_bytes)

    # -- what travels between nodes -----------------------------------------------------------

    @property
    def words(self) -> VaultWords:
        """Return the vault's versions and steps, as others read them."""
        return vaults.words(self.c)

    @property
    def used(self) -> int:
        """Return the number of blocks of the copy that are in use."""
        return vaults.used(self.c)

    def versions(self, kind: str) -> set[Version]:
        """Return the versions to which the vault can be brought if an ended launch has left it.

        Args:
            kind: "slot" or "checksum".
        """
        words = self.words
        if kind == "checksum" and words.folding > words.version:
            return {words.folding}
        return {words.version, max(words.version, words.complete)}

    def staged_blocks(self) -> Blocks:
        """Return the numbers of the staged blocks, (n,) uint32, a view."""
        return vaults.staged_blocks(self.c)

    def stage_bytes(self, first: int, count: int) -> Buffer:
        """Return a view of staged blocks first .. first + count - 1."""
        return vaults.stage_view(self.c, first, count)

    def expect(self, member: int, used: int, count: int) -> tuple[Blocks, Blocks]:
        """Announce a member's staged blocks to a parity.

        Returns:
            Lists into which their numbers and checksums are to be written, (count,) uint32 each,
            views.
        """
        return vaults.parity_expect(self.c, member, used, count)

    def add_delta(self, member: int, weight: int, first: int, count: int, deltas: Blocks) -> None:
        """Add announced blocks first .. first + count - 1, times a weight, to the sum."""
        vaults.parity_add(self.c, member, weight, first, count, deltas)

    # -- a checkpoint -------------------------------------------------------------------------

    def stage(self, version: Version, regions: Regions, record: dict[str, Any], seal: Seal,
              middle: Callable[[], None] = lambda: None) -> tuple[int, int]:
        """Stage a checkpoint: copy what changed and leave the deltas for the checksum rank.

        Args:
            version: the version that the checkpoint will be.
            regions: everything protected.
            record: describes the regions, in the form that `record.encode` takes.
            seal: what the record is bound to.
            middle: called when about half is staged, for tests that kill the process there.

        Returns:
            The number of protected bytes, and of bytes in blocks that had changed.

        Raises:
            CorruptVault: a block of the copy was damaged, so the stage cannot be used.
        """
        self.begin_stage(version, regions, middle)
        return self.end_stage(record, seal)

    def begin_stage(self, version: Version, regions: Regions,
                    middle: Callable[[], None] = lambda: None) -> None:
        """Begin to stage a checkpoint with these regions; others and the record follow later.

        Args, Raises:
            See `stage`.
        """
        if not self.before or self.before[0] != version:
            self.before = version, self.extents
        self.extents = Extents(self.before[1].regions, self.before[1].end)
        self.open_sizes, self.open_blocks = {}, 0
        places = self._plan_regions(regions)
        self.extents.keep({region.key for region in regions} | {"record"})
        self._reserve_stage(places)
        vaults.stage_begin(self.c, version)
        self._stage_copies(places, middle)

    def add_to_stage(self, regions: Regions) -> None:
        """Stage further regions of the checkpoint that was begun, or some of its regions anew.

        Raises:
            CorruptVault: see `stage`.
        """
        places = self._plan_regions(regions)
        self._reserve_stage(places)
        self._stage_copies(places)

    def end_stage(self, record: dict[str, Any], seal: Seal) -> tuple[int, int]:
        """Stage the record and block 0, which completes the checkpoint that was begun.

        Args, Returns, Raises:
            See `stage`.
        """
        text, head = self._plan_record(record, seal)
        places = self._places_of(text, head)
        self._reserve_stage(places)
        self._stage_copies(places)
        self._note_changes()
        size_bytes = sum(self.open_sizes.values()) + len(text)
        return size_bytes, vaults.stage_end(self.c) * BLOCK

    def _note_changes(self) -> None:
        """Note in `changed` which regions have other bytes than in the version before."""
        assert self.before
        version, before = self.before
        staged = np.sort(self.staged_blocks())
        for key, (first, count) in self.extents.regions.items():
            at = np.searchsorted(staged, first)
            if before.regions.get(key, (0,))[0] != first or (
                    at < len(staged) and staged[at] < first + count):
                self.changed[key] = version
        self.changed = {key: self.changed.get(key, version) for key in self.extents.regions}

    def _reserve_stage(self, places: Sequence[Place]) -> None:
        """Allocate memory for copies of the version that is being staged, after the earlier
        ones."""
        for _, _, size_bytes in places:
            self.open_blocks += blocks(size_bytes)
        self.reserve(self.extents.end, staging=self.open_blocks)

    def _stage_copies(
        self, places: Sequence[Place], middle: Callable[[], None] = lambda: None
    ) -> None:
        corrupt = self._each(places, vaults.stage, middle)
        if corrupt:
            raise CorruptVault(f"{corrupt} blocks of the vault do not match their checksums")

    def write(self, regions: Regions, record: dict[str, Any], seal: Seal,
              middle: Callable[[], None] = lambda: None) -> tuple[int, int]:
        """Write a checkpoint over the existing one, which is lost.

        Args, Returns:
            See `stage`; here no region has clean bytes.
        """
        places = self._plan_regions(regions)
        self.extents.keep({region.key for region in regions} | {"record"})
        text, head = self._plan_record(record, seal)
        self.reserve(self.extents.end)
        changed = self._each(places, vaults.write, middle)
        changed += self._each(self._places_of(text, head), vaults.write)
        size_bytes = sum(region.size_bytes for region in regions) + len(text)
        return size_bytes, changed * BLOCK

    def _plan_regions(self, regions: Regions) -> list[Place]:
        """Give blocks to regions; return the copies that are to be made."""
        places = []
        for region in regions:
            self.open_sizes[region.key] = region.size_bytes
            before = self.extents.regions.get(region.key)
            first, clean = self.extents.allocate(region.key, region.size_bytes), region.clean_bytes
            if not before or before[0] != first:
                clean = 0
            if clean < region.size_bytes:
                assert region.address, region
                skip = clean // BLOCK
                places.append((first + skip, region.address + skip * BLOCK,
                               region.size_bytes - skip * BLOCK))
        return places

    def _plan_record(self, record: dict[str, Any], seal: Seal) -> tuple[bytes, bytes]:
        """Give blocks to the record; return the record, and block 0, which tells where it is."""
        text = self._record(record, seal)
        at = self.extents.regions["record"][0]
        return text, HEAD.pack(MAGIC, at, len(text)).ljust(BLOCK, b"\0")

    def _places_of(self, text: bytes, head: bytes) -> list[Place]:
        """List the copies of the record and of block 0, whose memory the caller keeps."""
        at = self.extents.regions["record"][0]
        return [(at, vaults.address_of(text), len(text)), (0, vaults.address_of(head), BLOCK)]

    def _each(self, places: Sequence[Place], function: Callable[[Handle, int, int, int], int],
              middle: Callable[[], None] = lambda: None) -> int:
        """Call `vaults.stage` or `vaults.write` for each copy; return the sum of the results."""
        total, vault = 0, self.c
        if not places:
            middle()
        for i, (block, address, size_bytes) in enumerate(places):
            if i == len(places) // 2:
                middle()
            total += function(vault, address, size_bytes, block)
        return total

    def _record(self, record: dict[str, Any], seal: Seal) -> bytes:
        # The record contains the map, which changes when the record gets blocks. So it first gets
        # its blocks, and is then encoded again.
        extents = self.extents
        now = records.encode({**record, "extents": extents.regions, "end": extents.end}, seal)
        extents.allocate("record", len(now) + 256)
        return records.encode({**record, "extents": extents.regions, "end": extents.end}, seal)

    def read_record(self, seal: Seal) -> dict[str, Any]:
        """Return the record of the committed copy, and take over its map.

        Raises:
            CorruptVault: there is no record, or it is not what `seal` says.
        """
        record = self.record_of(seal)
        self.extents, self.before = Extents(record["extents"], record["end"]), None
        return record

    def record_of(self, seal: Seal) -> dict[str, Any]:
        """Return the record of the committed copy, with its map.

        Raises:
            CorruptVault: see `read_record`.
        """
        magic, at, size_bytes = HEAD.unpack(self.bytes_at(0, HEAD.size)[:])
        if magic != MAGIC or size_bytes > self.used * BLOCK or at + blocks(size_bytes) > self.used:
            raise CorruptVault("the vault's first block is damaged; no checkpoint can be read")
        return records.decode(self.bytes_at(at, size_bytes)[:], seal)

    def bytes_of(self, key: Any, size_bytes: int) -> Buffer:
        """Return a view of a region's committed bytes."""
        return self.bytes_at(self.extents.regions[key][0], size_bytes)

    def copy_out(self, key: Any, address: int, size_bytes: int) -> int:
        """Copy a region's committed bytes to an address; return how many bytes differed there."""
        first, _ = self.extents.regions[key]
        return vaults.copy_out(self.c, first, address, size_bytes)
