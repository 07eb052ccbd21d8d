"""Calls into ``csrc/vault/``: one vault's memory, staging, parities, checksums.

What each does is said in ``csrc/ftrma.h``. `loading.load` comes first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NewType

import numpy as np
import numpy.typing as npt

from ..errors import NO_ROOM, NoRoom
from . import extension as c
from .shared import VaultWords, Version

BLOCK = 4096
ALL = 2**62  # more blocks than any vault has

Handle = NewType("Handle", object)  # of a mapped vault
Blocks = npt.NDArray[Any]
Buffer = Any  # a view of memory as bytes


def _list(pointer: Any, count: int) -> Blocks:
    return np.frombuffer(c.ffi.buffer(pointer, 4 * count), "u4")


def _several(vaults: Sequence[Handle]) -> Any:
    return c.ffi.new("struct ftrma_vault *[]", list(vaults))


def _place(address: int) -> Any:
    return c.ffi.cast("void *", address)


def address_of(data: bytes) -> int:
    """Where bytes lie, as long as they live."""
    return int(c.ffi.cast("uintptr_t", c.ffi.from_buffer(data)))


# ---- one vault ------------------------------------------------------------------------------


def open_vault(path: Path, capacity_blocks: int, group_size: int, *, create: bool) -> Handle:
    pointer = c.ffi.new("struct ftrma_vault **")
    result = c.lib.ftrma_vault_open(
        os.fsencode(path), create, capacity_blocks, group_size, pointer
    )
    c.check(result, f"opening {path}")
    return Handle(pointer[0])


def close(vault: Handle) -> None:
    c.lib.ftrma_vault_close(vault)


def reserve(vault: Handle, blocks: int, staging: int) -> None:
    """Take memory for so many blocks of the copy, and of deltas."""
    result = c.lib.ftrma_vault_reserve(vault, blocks, staging)
    c.check(result, f"taking {(blocks + staging) * BLOCK} bytes")


def stand_by(vault: Handle, blocks: int) -> None:
    """Take memory ahead of use, if there is some."""
    c.lib.ftrma_vault_stand_by(vault, blocks)


def map_in_use(vault: Handle) -> None:
    c.lib.ftrma_vault_map(vault)


def used(vault: Handle) -> int:
    """Blocks of the copy that are in use."""
    return int(c.lib.ftrma_vault_used(vault))


def words(vault: Handle) -> VaultWords:
    found: VaultWords = c.lib.ftrma_vault_words(vault)
    return found


def copy_view(vault: Handle, block: int, size_bytes: int) -> Buffer:
    """View of the committed copy."""
    return c.ffi.buffer(c.lib.ftrma_vault_block(vault, block), size_bytes)


def stage_view(vault: Handle, first: int, count: int) -> Buffer:
    """View of staged blocks."""
    return c.ffi.buffer(c.lib.ftrma_vault_stage_block(vault, first), count * BLOCK)


def staged_blocks(vault: Handle) -> Blocks:
    """Numbers of the blocks that are staged, (n,) uint32, a view."""
    count = c.ffi.new("uint64_t *")
    pointer = c.lib.ftrma_vault_dirty(vault, count)
    return _list(pointer, count[0])


def crcs(vault: Handle, member: int, count: int) -> Blocks:
    """Checksums, (count,) uint32, a view: of own blocks (-1), or a member's beside a parity."""
    return _list(c.lib.ftrma_vault_crc(vault, member), count)


def add(vault: Handle, weight: int, first: int, count: int, blocks: Blocks) -> None:
    c.lib.ftrma_vault_add(vault, weight, first, count, c.ffi.from_buffer(blocks))


def seal(vault: Handle) -> None:
    """Compute the checksums of all blocks in use."""
    c.lib.ftrma_vault_seal(vault)


def check(vault: Handle, reference: Handle, member: int, first: int = 0, end: int = ALL) -> int:
    """Compare blocks with the checksums kept for a member (-1: the vault's own).

    Returns:
        -1, or the first block that differs.
    """
    return int(c.lib.ftrma_check(vault, reference, member, first, end))


def copy_out(vault: Handle, block: int, address: int, size_bytes: int) -> int:
    """Put committed bytes back; returns the bytes that differed."""
    return int(c.lib.ftrma_copy_out(vault, block, _place(address), size_bytes))


# ---- a slot's checkpoint --------------------------------------------------------------------


def stage_begin(vault: Handle, version: Version) -> None:
    c.lib.ftrma_stage_begin(vault, version)


def stage(vault: Handle, address: int, size_bytes: int, block: int) -> int:
    """Stage memory; returns the changed blocks whose old copy was damaged."""
    return int(c.lib.ftrma_stage(vault, _place(address), size_bytes, block))


def stage_end(vault: Handle) -> int:
    """Number of dirty blocks."""
    return int(c.lib.ftrma_stage_end(vault))


def stage_undo(vault: Handle, version: Version) -> None:
    """Take back whatever is staged above a version."""
    c.lib.ftrma_stage_undo(vault, version)


def write(vault: Handle, address: int, size_bytes: int, block: int) -> int:
    """Put memory in the copy's place, with no way back; returns the changed blocks."""
    return int(c.lib.ftrma_write(vault, _place(address), size_bytes, block))


# ---- parities -------------------------------------------------------------------------------


def parity_sum(parity: Handle, members: Sequence[Handle], weights: bytes) -> None:
    """Sum the staged deltas of all members, each times its weight."""
    n = len(members)
    if c.lib.ftrma_parity_sum(parity, _several(members), weights, n):
        raise NoRoom(f"summing a checkpoint: {NO_ROOM}")


def parity_expect(parity: Handle, member: int, in_use: int, count: int) -> tuple[Blocks, Blocks]:
    """Announce a member's staged blocks.

    Returns:
        Lists to write their numbers and checksums to, (count,) uint32 each, views.
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
    """Take a committed sum into the parity."""
    c.lib.ftrma_parity_fold(parity, version)


def parity_drop(parity: Handle) -> None:
    """Forget a sum that was not committed."""
    c.lib.ftrma_parity_drop(parity)


def parity_version(parity: Handle) -> Version:
    return Version(int(c.lib.ftrma_parity_version(parity)))


def parity_unstage(parity: Handle, member: Handle, number: int, weight: int) -> None:
    """Take a member's staged deltas out of a parity that was computed from copies holding them."""
    c.lib.ftrma_parity_unstage(parity, member, number, weight)


def parity_rebuild(
    parity: Handle, members: Sequence[Handle], weights: bytes, version: Version
) -> int:
    """Compute a parity afresh.

    Returns:
        -1, or the first block of which a member's copy is damaged.

    Raises:
        NoRoom: memory is missing.
    """
    n = len(members)
    bad = c.lib.ftrma_parity_rebuild(
        parity, _several(members), weights, n, version
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
