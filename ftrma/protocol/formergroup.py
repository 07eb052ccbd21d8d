"""The vaults of a group together with parities from before the job gave up checksum ranks.

No process holds these parities any more. They lie in files, which the first process of each node
makes readable for the others until everything is computed that needs them (`retrieval`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..fabric.view import JobView
from ..machine.topology import Layout
from ..native.shared import Proc
from ..native.vaults import Handle
from ..vault.group import Group
from ..vault.vault import Vault

NOBODY = Proc(-1)


@dataclass(frozen=True)
class LeftParity:
    """A parity that is left of a former layout.

    Attributes:
        node: the node where it lies; number: the number by which other nodes read it there.
        path: its file on that node.
    """

    node: int
    number: int
    path: Path


class FormerGroup(Group):
    """A group's slots, as they are held now, with the parities of a former layout.

    Args:
        layout: the former one.
        node: of this process.
        left: the parities that are left, by the number of the checksum rank.
    """

    def __init__(self, view: JobView, number: int, layout: Layout, node: int,
                 left: Mapping[int, LeftParity]) -> None:
        super().__init__(view, number)
        self.layout, self.node, self.m = layout, node, layout.strength
        self.procs = [*self.procs[: self.k], *[NOBODY] * self.m]
        self.left = {self.k + at: left[c] for at, c in enumerate(layout.checksums_of(number))
                     if c in left}
        self._opened: dict[int, Vault] = {}

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        while self._opened:
            self._opened.popitem()[1].close()

    def is_local(self, element: int) -> bool:
        if element < self.k:
            return super().is_local(element)
        return self.left[element].node == self.node

    def place(self, element: int) -> tuple[int, int]:
        if element < self.k:
            return super().place(element)
        return self.left[element].node, self.left[element].number

    def present(self, element: int) -> bool:
        return super().present(element) if element < self.k else element in self.left

    def __getitem__(self, element: int) -> Handle:
        if element < self.k or not self.is_local(element):
            return super().__getitem__(element)
        if element not in self._opened:
            self._opened[element] = Vault(self.left[element].path, self.view.words.capacity_blocks,
                                          self.layout.group_size, create=False)
        return self._opened[element].c

    def raise_if_died(self) -> None:
        """Do nothing: nobody holds these parities, and a death while they are read ends the
        launch."""
