"""Calls into ``csrc/vault/``: one vault's memory, staging, parities, checksums.

``csrc/ftrma.h`` describes the functions of C. Call `loading.load` first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NewType, TypeAlias

from ..host.errors import NO_ROOM, NoRoom
from . import extension as c
from .constants import number as _number
from .shared import VaultWords, Version

if TYPE_CHECKING:  # NumPy takes 0.06 s of CPU to load, and `ftrma run` does not need it
    import numpy.typing as npt

BLOCK = 4096
ALL = 2**62  # more blocks than any vault has

Handle = NewType("Handle", object)  # handle of a mapped vault
Blocks: TypeAlias = "npt.NDArray[Any]"
Buffer = Any  # a view of memory as bytes


class Area(IntEnum):
    """Areas of a vault's file (``enum ftrma_vault_area``)."""

    HEAD, DIRTY, CRC = _number("VAULT_HEAD"), _number("VAULT_DIRTY"), _number("VAULT_CRC")
    COPY, STAGE = _number("VAULT_COPY"), _number("VAULT_STAGE")

    @property
    def item_bytes(self) -> int:
        """Return the size of a block, or of an entry of a list."""
        return 4 if self in (Area.DIRTY, Area.CRC) else BLOCK


def _list(pointer: Any, count: int) -> Blocks:
    import numpy as np

    return np.frombuffer(c.ffi.buffer(pointer, 4 * count), "u4")


def _several(vaults: Sequence[Handle | None]) -> Any:
    return c.ffi.new("struct ftrma_vault *[]", [v or c.ffi.NULL for v in vaults])


def _place(address: int) -> Any:
    return c.ffi.cast("void *", address)


def address_of(data: Buffer) -> int:
    """Return the address of bytes or of a mapped file, valid as long as they exist."""
    return int(c.ffi.cast("uintptr_t", c.ffi.from_buffer(data)))


# ---- one vault ------------------------------------------------------------------------------


def open_vault(path: Path, capacity_blocks: int, group_size: int, *, create: bool) -> Handle:
    """Map a vault's file.

    Args:
        capacity_blocks: capacity of a new vault; an existing vault has its own.
        create: make a new, empty vault.
    """
    pointer = c.ffi.new("struct ftrma_vault **")
    result = c.lib.ftrma_vault_open(
        os.fsencode(path), create, capacity_blocks, group_size, pointer
    )
    c.check(result, f"opening {path}")
    return Handle(pointer[0])


def close(vault: Handle) -> None:
    c.lib.ftrma_vault_close(vault)


def reserve(vault: Handle, blocks: int, staging: int) -> None:
    """Allocate memory for so many blocks of the copy, and for so many deltas (`staging`)."""
    result = c.lib.ftrma_vault_reserve(vault, blocks, staging)
    c.check(result, f"taking {(blocks + staging) * BLOCK} bytes")


def ahead(vault: Handle, blocks: int, staging: int) -> None:
    """Have memory allocated while the program computes, if there is some.

    Args:
        blocks: number of blocks of the copy; staging: number of deltas.
    """
    c.lib.ftrma_vault_ahead(vault, blocks, staging)


def map_in_use(vault: Handle) -> None:
    c.lib.ftrma_vault_map(vault)


def used(vault: Handle) -> int:
    """Return the number of blocks of the copy that are in use."""
    return int(c.lib.ftrma_vault_used(vault))


def words(vault: Handle) -> VaultWords:
    found: VaultWords = c.lib.ftrma_vault_words(vault)
    return found


def copy_view(vault: Handle, block: int, size_bytes: int) -> Buffer:
    """Return a view of the committed copy."""
    return c.ffi.buffer(c.lib.ftrma_vault_block(vault, block), size_bytes)


def stage_view(vault: Handle, first: int, count: int) -> Buffer:
    """Return a view of staged blocks."""
    return c.ffi.buffer(c.lib.ftrma_vault_stage_block(vault, first), count * BLOCK)


def staged_blocks(vault: Handle) -> Blocks:
    """Return the numbers of the staged blocks, (n,) uint32, a view."""
    count = c.ffi.new("uint64_t *")
    pointer = c.lib.ftrma_vault_dirty(vault, count)
    return _list(pointer, count[0])


def crcs(vault: Handle, member: int, count: int) -> Blocks:
    """Return a view of checksums, (count,) uint32: the vault's own (-1), or a member's beside a
    parity."""
    return _list(c.lib.ftrma_vault_crc(vault, member), count)


def stretch(vault: Handle, area: Area, member: int, first: int, count: int) -> tuple[int, Buffer]:
    """Find blocks of an area, or entries of a list; return their offset in the file, and a view."""
    offset, skipped = c.ffi.new("uint64_t *"), first * area.item_bytes
    begin = c.lib.ftrma_vault_area(vault, area, member, offset)
    if not begin:
        raise ValueError(f"a vault has no {area.name.lower()} of member {member}")
    view = c.ffi.buffer(c.ffi.cast("char *", begin) + skipped, count * area.item_bytes)
    return int(offset[0]) + skipped, view


def block_bytes(group_size: int) -> int:
    """Return how many bytes of the (sparse) file and of address space each block of capacity
    takes."""
    return int(c.lib.ftrma_vault_block_bytes(group_size))


def capacity_of(header: bytes | bytearray) -> int:
    """Return the capacity of a vault in blocks, from its header; 0 if that is no header."""
    assert len(header) == BLOCK
    return int(c.lib.ftrma_vault_capacity(c.ffi.from_buffer(header)))


def adopt(vault: Handle, header: bytes | bytearray) -> bool:
    """Copy the header of another vault of this capacity, parts of which are to be brought here.

    Returns:
        False if it is no header of a vault.
    """
    assert len(header) == BLOCK
    return bool(c.lib.ftrma_vault_adopt(vault, c.ffi.from_buffer(header)) == 0)


def drop(vault: Handle) -> None:
    """Free the memory of all but the header."""
    c.check(c.lib.ftrma_vault_drop(vault), "letting go of a vault's blocks")


def check(vault: Handle, reference: Handle, member: int, first: int = 0, end: int = ALL) -> int:
    """Compare blocks with the checksums kept for a member (-1: the vault's own).

    Returns:
        -1, or the first block that differs.
    """
    return int(c.lib.ftrma_check(vault, reference, member, first, end))


def first_damaged(data: Buffer, sums: Blocks) -> int:
    """Compare blocks anywhere in memory with their checksums, (n,) uint32.

    Returns:
        -1, or the first block that differs.
    """
    assert len(data) == len(sums) * BLOCK and sums.dtype == "u4"
    view, crc = c.ffi.from_buffer(data), c.ffi.from_buffer("uint32_t[]", sums)
    return int(c.lib.ftrma_first_damaged(view, len(sums), crc))


def copy_out(vault: Handle, block: int, address: int, size_bytes: int) -> int:
    """Put committed bytes back; return the number of bytes that differed."""
    return int(c.lib.ftrma_copy_out(vault, block, _place(address), size_bytes))


# ---- a slot's checkpoint --------------------------------------------------------------------


def stage_begin(vault: Handle, version: Version) -> None:
    c.lib.ftrma_stage_begin(vault, version)


def stage(vault: Handle, address: int, size_bytes: int, block: int) -> int:
    """Stage memory; return the number of changed blocks whose old copy was damaged."""
    return int(c.lib.ftrma_stage(vault, _place(address), size_bytes, block))


def stage_end(vault: Handle) -> int:
    """End staging; return the number of dirty blocks."""
    return int(c.lib.ftrma_stage_end(vault))


def stage_undo(vault: Handle, version: Version) -> None:
    """Undo all staging after a version."""
    c.lib.ftrma_stage_undo(vault, version)


def write(vault: Handle, address: int, size_bytes: int, block: int) -> int:
    """Write memory over the copy, which cannot be undone; return the number of changed blocks."""
    return int(c.lib.ftrma_write(vault, _place(address), size_bytes, block))


# ---- parities -------------------------------------------------------------------------------


def parity_sum(parity: Handle, members: Sequence[Handle | None], weights: bytes) -> None:
    """Sum the staged deltas of the members that are not None, each times its weight."""
    n = len(members)
    if c.lib.ftrma_parity_sum(parity, _several(members), weights, n):
        raise NoRoom(f"summing a checkpoint: {NO_ROOM}")


def parity_expect(parity: Handle, member: int, in_use: int, count: int) -> tuple[Blocks, Blocks]:
    """Announce a member's staged blocks.

    Returns:
        Lists for the blocks' numbers and checksums, (count,) uint32 each, views.
    """
    block, crc = c.ffi.new("uint32_t **"), c.ffi.new("uint32_t **")
    result = c.lib.ftrma_parity_expect(parity, member, in_use, count, block, crc)
    c.check(result, f"taking {in_use * BLOCK * 2} bytes")
    return _list(block[0], count), _list(crc[0], count)


def parity_add(
    parity: Handle, member: int, weight: int, first: int, count: int, deltas: Blocks
) -> None:
    address = c.ffi.from_buffer(deltas)
    c.lib.ftrma_parity_add(parity, member, weight, first, count, address)


def parity_fold(parity: Handle, version: Version) -> None:
    """Fold a committed sum into the parity."""
    c.lib.ftrma_parity_fold(parity, version)


def parity_drop(parity: Handle) -> None:
    """Forget a sum that was not committed."""
    c.lib.ftrma_parity_drop(parity)


def parity_version(parity: Handle) -> Version:
    return Version(int(c.lib.ftrma_parity_version(parity)))


def parity_unstage(
    parity: Handle, number: int, weight: int, blocks: Blocks, deltas: Buffer
) -> None:
    """Remove staged deltas of a member from a parity that was computed from copies holding them.

    Args:
        number: number of the member; weight: its weight.
        blocks: numbers of the staged blocks, (n,) uint32; deltas: their deltas.
    """
    assert len(deltas) == len(blocks) * BLOCK
    c.lib.ftrma_parity_unstage(
        parity, number, weight, c.ffi.cast("uint32_t *", c.ffi.from_buffer(blocks)), len(blocks),
        c.ffi.from_buffer(deltas),
    )


def parity_rebuild(
    parity: Handle, members: Sequence[Handle], weights: bytes, version: Version,
    first: int = 0, end: int = ALL,
) -> int:
    """Compute blocks of a parity anew; with the last block the parity is at this version.

    Returns:
        -1, or the first block whose copy is damaged at some member.

    Raises:
        NoRoom: memory is missing.
    """
    n = len(members)
    bad = c.lib.ftrma_parity_rebuild(
        parity, _several(members), weights, n, version, first, end
    )
    if bad < -1:
        raise NoRoom(f"rebuilding parity: {NO_ROOM}")
    return int(bad)


def rebuild(
    vault: Handle, reference: Handle, member: int, sources: Sequence[Handle], weights: bytes,
    first: int = 0, end: int = ALL,
) -> int:
    """Compute blocks of a lost member (-1: of a parity) as a weighted sum of others.

    Returns:
        -1, or the first block whose checksum shows that a source is damaged.

    Raises:
        NoRoom: memory is missing.
    """
    n = len(sources)
    bad = c.lib.ftrma_rebuild(
        vault, reference, member, _several(sources), weights, n, first, end
    )
    if bad < -1:
        raise NoRoom(f"restoring: {NO_ROOM}")
    return int(bad)
