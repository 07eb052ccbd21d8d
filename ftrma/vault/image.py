"""An image of another node's vault: it has those blocks that are needed here, while they are
needed.

For C an image is a vault like others, sparse, with the other vault's header. Blocks and entries of
lists are fetched to their own places, and dropped afterwards. So code that computes from vaults
need not know which of them are on this node, and only a small part of the others is ever here.

Invariant: the other vault does not change while there is an image of it. This holds in a repair
round, once all vaults are at the committed version; for staged blocks of members, until all
parities have folded them; and for members' copies, while a parity of their group is being computed
(``ftrma_admit()`` in ``csrc/job/meet.c``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..fabric.remote import File, Files
from ..host.errors import FtrmaError
from ..native import vaults
from ..native.vaults import BLOCK, Area, Blocks, Buffer, Handle

PER_PAGE = BLOCK // 4  # entries of a list


class Staged(NamedTuple):
    """A stretch of the blocks that a member has staged.

    Attributes:
        first: place of the stretch among the staged blocks.
        blocks, crcs: numbers of the blocks, and their new checksums; (n,) uint32 each.
        deltas: new XOR old of each block, as bytes.
    """

    first: int
    blocks: Blocks
    crcs: Blocks
    deltas: Buffer


class Image:
    """An image of one vault.

    Args:
        files: reads and writes files of other nodes.
        node, number: where the vault is, and its number there, as `Files.share_vault` uses it.
        path: path for the image's file, which nothing else uses; the file is removed at once.
        group_size: group size of all vaults of the job.

    Raises:
        FtrmaError: there is no vault, or it does not belong to this job.
        RoundChanged: another failure came. All methods that fetch raise this, too.
    """

    STRETCH = 1024  # blocks that are here at once: 4 MiB

    def __init__(
        self, files: Files, node: int, number: int, path: Path, group_size: int
    ) -> None:
        self.files, self.node, self.number = files, node, number
        header = bytearray(BLOCK)
        self._read(0, header)
        # The capacity of a vault depends on the memory of its node, so it may differ from this
        # node's.
        self.c = vaults.open_vault(path, vaults.capacity_of(header), group_size, create=True)
        path.unlink()  # its memory is freed at the end of this process
        if not vaults.adopt(self.c, header):
            self.close()
            raise FtrmaError(f"vault {number} of node {node} is none of this job")

    def close(self) -> None:
        vaults.close(self.c)

    @property
    def used(self) -> int:
        """Return the number of blocks of the copy that are in use."""
        return vaults.used(self.c)

    # -- the copy -------------------------------------------------------------------------------

    def fetch(self, first: int, end: int) -> None:
        """Fetch blocks first .. end - 1 of the copy, as far as they are in use."""
        self._bring(Area.COPY, -1, first, min(end, self.used))

    def fetch_crcs(self, member: int, first: int, end: int) -> None:
        """Fetch checksums of these blocks: the vault's own (-1), or a member's beside a parity."""
        self._bring(Area.CRC, member, first, min(end, self.used))

    def write_back(self, block: int) -> None:
        """Write a block that was computed here, and its checksum, to the vault itself."""
        for area in (Area.COPY, Area.CRC):
            offset, data = vaults.stretch(self.c, area, -1, block, 1)
            self.files.write(self.node, File.VAULT, self.number, offset, data)

    def drop(self) -> None:
        """Free the memory of all but the header."""
        vaults.drop(self.c)

    def _bring(self, area: Area, member: int, first: int, end: int) -> None:
        if first < end:
            self._read(*vaults.stretch(self.c, area, member, first, end - first))

    def _read(self, offset: int, room: Buffer) -> None:
        self.files.read(self.node, File.VAULT, self.number, offset, room)

    def copy_to(self, vault: Handle, members: Iterable[int]) -> None:
        """Copy blocks and checksums, also those of members beside a parity, into another vault."""
        vaults.reserve(vault, self.used, 0)
        for area, member in ((Area.COPY, -1), *((Area.CRC, m) for m in (-1, *members))):
            offset, _ = vaults.stretch(self.c, area, member, 0, self.used)
            _, room = vaults.stretch(vault, area, member, 0, self.used)
            self._read(offset, room)

    # -- the stage ------------------------------------------------------------------------------

    @property
    def staged_count(self) -> int:
        """Return the number of blocks that are staged."""
        return len(vaults.staged_blocks(self.c))

    def staged(self) -> Iterator[Staged]:
        """Yield the staged blocks in stretches; each is here until the next one is asked for."""
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
