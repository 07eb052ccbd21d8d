"""An image of another node's vault: what of it is needed here, for as long as it is.

It is a vault like others to C, sparse, with the other's header; blocks and entries of its lists lie
at their own places once they have been fetched, and are dropped again. So what is computed from
vaults need not know which of them are on this node, and little of the others is ever here.

Invariant: the other vault does not change while there is an image of it. That holds in a repair
round, when all have settled their vaults; for what members have staged, until all parities have
folded it; and for members' copies, while a parity of their group is being computed
(``ftrma_admit()`` in ``csrc/job/meet.c``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import FtrmaError
from ..fabric.remote import File, Files
from ..native import vaults
from ..native.vaults import BLOCK, Area, Blocks, Buffer, Handle

PER_PAGE = BLOCK // 4  # entries of a list


class Staged(NamedTuple):
    """A stretch of what a member has staged.

    Attributes:
        first: its place among the staged blocks.
        blocks: their numbers; crcs: the checksums that they have now; (n,) uint32 each.
        deltas: new XOR old of each, as bytes.
    """

    first: int
    blocks: Blocks
    crcs: Blocks
    deltas: Buffer


class Image:
    """An image of one vault.

    Args:
        files: the way to it.
        node, number: where it is, and its number there, as `Files.place_vault` has it.
        path: of a file for it, which is nobody else's and is gone when this returns.
        group_size: of all vaults of the job.

    Raises:
        FtrmaError: there is no vault, or none of this job.
        RoundChanged: as `Files.read`, here and wherever something is fetched.
    """

    STRETCH = 1024  # blocks that are here at once: 4 MiB

    def __init__(
        self, files: Files, node: int, number: int, path: Path, group_size: int
    ) -> None:
        self.files, self.node, self.number = files, node, number
        header = bytearray(BLOCK)
        self._read(0, header)
        # A node's vaults are as large as its memory, which may be more or less than there is here.
        self.c = vaults.open_vault(path, vaults.capacity_of(header), group_size, create=True)
        path.unlink()  # its memory goes with this process
        if not vaults.adopt(self.c, header):
            self.close()
            raise FtrmaError(f"vault {number} of node {node} is none of this job")

    def close(self) -> None:
        vaults.close(self.c)

    @property
    def used(self) -> int:
        """Blocks of the copy that are in use."""
        return vaults.used(self.c)

    # -- the copy -------------------------------------------------------------------------------

    def fetch(self, first: int, end: int) -> None:
        """Bring blocks first .. end - 1 of the copy here, as far as they are in use."""
        self._bring(Area.COPY, -1, first, min(end, self.used))

    def fetch_crcs(self, member: int, first: int, end: int) -> None:
        """Bring their checksums: the vault's own (-1), or a member's beside a parity."""
        self._bring(Area.CRC, member, first, min(end, self.used))

    def write_back(self, block: int) -> None:
        """Put a block that was computed here, and its checksum, into the vault itself."""
        for area in (Area.COPY, Area.CRC):
            offset, data = vaults.stretch(self.c, area, -1, block, 1)
            self.files.write(self.node, File.VAULT, self.number, offset, data)

    def drop(self) -> None:
        """Let go of all but the header."""
        vaults.drop(self.c)

    def _bring(self, area: Area, member: int, first: int, end: int) -> None:
        if first < end:
            self._read(*vaults.stretch(self.c, area, member, first, end - first))

    def _read(self, offset: int, room: Buffer) -> None:
        self.files.read(self.node, File.VAULT, self.number, offset, room)

    def copy_to(self, vault: Handle, members: Iterable[int]) -> None:
        """Bring the copy, its checksums and those of members beside it into a vault."""
        vaults.reserve(vault, self.used, 0)
        for area, member in ((Area.COPY, -1), *((Area.CRC, m) for m in (-1, *members))):
            offset, _ = vaults.stretch(self.c, area, member, 0, self.used)
            _, room = vaults.stretch(vault, area, member, 0, self.used)
            self._read(offset, room)

    # -- the stage ------------------------------------------------------------------------------

    @property
    def staged_count(self) -> int:
        """Blocks that are staged."""
        return len(vaults.staged_blocks(self.c))

    def staged(self) -> Iterator[Staged]:
        """What is staged, in stretches, of which the newest alone is here."""
        count, crcs = self.staged_count, vaults.crcs(self.c, -1, self.used)
        for first in range(0, count, self.STRETCH):
            end = min(first + self.STRETCH, count)
            self._bring(Area.DIRTY, -1, first, end)
            blocks = vaults.staged_blocks(self.c)[first:end]
            for page in np.unique(blocks // PER_PAGE).tolist():
                self.fetch_crcs(-1, page * PER_PAGE, (page + 1) * PER_PAGE)
            self._bring(Area.STAGE, -1, first, end)
            deltas = vaults.stage_view(self.c, first, end - first)
            yield Staged(first, blocks, crcs[blocks], deltas)
            self.drop()
