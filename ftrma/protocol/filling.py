"""Fills vaults from files, for a launch that goes on from a checkpoint there."""

from __future__ import annotations

from pathlib import Path

from ..fabric.spillfiles import Part
from ..host.record import Seal
from ..native.shared import Version
from ..vault.spillparts import fill
from ..vault.vault import Vault


def make_filled(path: Path, sizes: tuple[int, int], part: Part, version: Version,
                seal: Seal) -> None:
    """Make the file of a vault that is filled with a part.

    Args:
        path: the vault's file; an existing one is replaced.
        sizes: capacity in blocks, and number of members of a group.
    """
    path.unlink(missing_ok=True)
    vault = Vault(path, *sizes, create=True)
    try:
        fill(part, vault, version, seal)
    finally:
        vault.close()
