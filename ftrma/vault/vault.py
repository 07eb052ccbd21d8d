"""The vault of one process: where its regions lie, and what a checkpoint writes about them.

Bytes, blocks and parity are the business of ``csrc/vault/vault.c``; this module keeps the map. A
region is anything that is protected: a window's part, an array of declared state, or the record
that describes the others. It has an extent of whole blocks; block 0 tells where the record is. The
record is part of the checkpoint, so a vault that was rebuilt from parity explains itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CorruptVault
from ..host import record as records
from ..host.record import Seal
from ..native import vaults
from ..native.shared import VaultWords, Version
from ..native.vaults import BLOCK, Blocks, Buffer, Handle

HEAD = struct.Struct("<8sQQ")  # magic, block of the record, its size in bytes
MAGIC = b"ftrma\0\0\1"

Extent = tuple[int, int]  # first block, number of blocks


class Region(NamedTuple):
    """Something protected, as a checkpoint takes it.

    Attributes:
        key: by which it is found again.
        address, size_bytes: of its bytes in this process.
        clean_bytes: so many of the first ones are as in the committed copy, and are not looked at;
            where all are, the address is not either.
    """

    key: Any
    address: int
    size_bytes: int
    clean_bytes: int = 0


Regions = Sequence[Region]


def blocks(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK)


class Layout(NamedTuple):
    """Where a checkpoint's bytes are, and where they go."""

    places: list[tuple[int, int, int]]  # first block, address, size in bytes: what is not clean
    size_bytes: int  # protected
    kept: tuple[bytes, bytes]  # memory that lives as long as this


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

    def place(self, key: Any, size_bytes: int) -> int:
        """First block of the region, moved if it has outgrown its extent."""
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
        path: of the file.
        capacity_blocks: of the copy, where it is made anew.
        group_size: members of a group.
        create: make it anew and empty.
    """

    def __init__(
        self, path: Path, capacity_blocks: int, group_size: int, *, create: bool
    ) -> None:
        self.sizes = capacity_blocks, group_size
        self.left: list[Handle] = []
        self.c = vaults.open_vault(path, capacity_blocks, group_size, create=create)
        self.extents = Extents()
        # What they were before this version was begun, which may be undone and begun again.
        self.before: tuple[Version, Extents] | None = None

    def undone(self, version: Version) -> None:
        """The vault is at this version: what was staged since is as if it had not been."""
        if self.before and self.before[0] > version:
            self.extents, self.before = self.before[1], None

    def renew(self, path: Path) -> None:
        """Be an empty one, in place of the file that is there; who has mapped that keeps it, and
        views of it are good until `release`."""
        self.reserve(0)  # and no memory is taken ahead any more
        self.left.append(self.c)
        path.unlink()
        self.c = vaults.open_vault(path, *self.sizes, create=True)
        self.extents, self.before = Extents(), None

    def close(self) -> None:
        self.release()
        vaults.close(self.c)
        del self.c

    def release(self) -> None:
        """Nobody has views any more of what this has been."""
        while self.left:
            vaults.close(self.left.pop())

    def reserve(self, count: int, *, staging: int = 0) -> None:
        """Take memory for so many blocks of the copy, and of deltas."""
        vaults.reserve(self.c, count, staging)

    def ahead(self, count: int, *, staging: int = 0) -> None:
        """Have that done while the program computes, as far as there is memory."""
        vaults.ahead(self.c, count, staging)

    def bytes_at(self, block: int, size_bytes: int) -> Buffer:
        """View of the committed copy."""
        return vaults.copy_view(self.c, block, size_bytes)

    # -- what travels between nodes -----------------------------------------------------------

    @property
    def words(self) -> VaultWords:
        """What the vault tells about itself."""
        return vaults.words(self.c)

    @property
    def used(self) -> int:
        """Blocks of the copy that are in use."""
        return vaults.used(self.c)

    def versions(self, kind: str) -> set[Version]:
        """Versions that a vault left by an ended launch can be brought to.

        Args:
            kind: "slot" or "checksum".
        """
        words = self.words
        if kind == "checksum" and words.folding > words.version:
            return {words.folding}
        return {words.version, max(words.version, words.complete)}

    def staged_blocks(self) -> Blocks:
        """Numbers of the blocks that are staged, (n,) uint32, a view."""
        return vaults.staged_blocks(self.c)

    def stage_bytes(self, first: int, count: int) -> Buffer:
        """View of staged blocks first .. first + count - 1."""
        return vaults.stage_view(self.c, first, count)

    def expect(self, member: int, used: int, count: int) -> tuple[Blocks, Blocks]:
        """Announce a member's staged blocks to a parity.

        Returns:
            Lists to write their numbers and checksums to, (count,) uint32 each, views.
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
            version: that it will become.
            regions: everything protected.
            record: what describes them, as `record.encode` takes it.
            seal: what the record is bound to.
            middle: called when about half is staged (a place for tests to strike).

        Returns:
            Bytes protected, bytes in blocks that had changed.

        Raises:
            CorruptVault: a block of the copy was damaged; what is staged now is worthless.
        """
        if not self.before or self.before[0] != version:
            self.before = version, self.extents
        self.extents = Extents(self.before[1].regions, self.before[1].end)
        layout = self._lay_out(regions, record, seal)
        staging = sum(blocks(size_bytes) for _, _, size_bytes in layout.places)
        self.reserve(self.extents.end, staging=staging)
        vaults.stage_begin(self.c, version)
        corrupt = self._each(layout, vaults.stage, middle)
        if corrupt:
            raise CorruptVault(f"{corrupt} blocks of the vault do not match their checksums")
        return layout.size_bytes, vaults.stage_end(self.c) * BLOCK

    def write(self, regions: Regions, record: dict[str, Any], seal: Seal,
              middle: Callable[[], None] = lambda: None) -> tuple[int, int]:
        """Put a checkpoint in the place of the one that is there, which cannot come back.

        Args, Returns:
            As `stage`, but that nothing is clean.
        """
        layout = self._lay_out(regions, record, seal)
        self.reserve(self.extents.end)
        changed = self._each(layout, vaults.write, middle)
        return layout.size_bytes, changed * BLOCK

    def _lay_out(self, regions: Regions, record: dict[str, Any], seal: Seal) -> Layout:
        """Place all regions, the record, and block 0, which tells where that is."""
        places = []
        for region in regions:
            before = self.extents.regions.get(region.key)
            first, clean = self.extents.place(region.key, region.size_bytes), region.clean_bytes
            if not before or before[0] != first:
                clean = 0
            if clean < region.size_bytes:
                assert region.address, region
                skip = clean // BLOCK
                places.append((first + skip, region.address + skip * BLOCK,
                               region.size_bytes - skip * BLOCK))
        self.extents.keep({region.key for region in regions} | {"record"})
        text = self._record(record, seal)
        at = self.extents.regions["record"][0]
        head = HEAD.pack(MAGIC, at, len(text)).ljust(BLOCK, b"\0")
        places += [(at, vaults.address_of(text), len(text)), (0, vaults.address_of(head), BLOCK)]
        size_bytes = sum(region.size_bytes for region in regions)
        return Layout(places, size_bytes + len(text), (text, head))

    def _each(self, layout: Layout, function: Callable[[Handle, int, int, int], int],
              middle: Callable[[], None]) -> int:
        """Sum of what `vaults.stage` or `vaults.write` says of each place."""
        total = 0
        for i, (block, address, size_bytes) in enumerate(layout.places):
            if i == (len(layout.places) - 2) // 2:
                middle()
            total += function(self.c, address, size_bytes, block)
        return total

    def _record(self, record: dict[str, Any], seal: Seal) -> bytes:
        # The record contains the map that placing the record may change: place it, then write it.
        extents = self.extents
        now = records.encode({**record, "extents": extents.regions, "end": extents.end}, seal)
        extents.place("record", len(now) + 256)
        return records.encode({**record, "extents": extents.regions, "end": extents.end}, seal)

    def read_record(self, seal: Seal) -> dict[str, Any]:
        """The record of the committed copy; also takes over its map.

        Raises:
            CorruptVault: there is none, or this job has not written it as what `seal` says.
        """
        magic, at, size_bytes = HEAD.unpack(self.bytes_at(0, HEAD.size)[:])
        if magic != MAGIC or size_bytes > self.used * BLOCK or at + blocks(size_bytes) > self.used:
            raise CorruptVault("the vault's first block is damaged; no checkpoint can be read")
        record = records.decode(self.bytes_at(at, size_bytes)[:], seal)
        self.extents, self.before = Extents(record["extents"], record["end"]), None
        return record

    def bytes_of(self, key: Any, size_bytes: int) -> Buffer:
        """View of a region's committed bytes."""
        return self.bytes_at(self.extents.regions[key][0], size_bytes)

    def copy_out(self, key: Any, address: int, size_bytes: int) -> int:
        """Put a region's committed bytes back; returns the bytes that differed."""
        first, _ = self.extents.regions[key]
        return vaults.copy_out(self.c, first, address, size_bytes)
