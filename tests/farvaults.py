"""A group of vaults whose members and checksum ranks are on several nodes, without a job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from filenodes import Nodes
from vaultgroup import Apart, Group

from ftrma.fabric.one_node import OneNodeView
from ftrma.fabric.remote import File
from ftrma.native import vaults
from ftrma.vault.group import forget_vault
from ftrma.vault.vault import BLOCK, Vault


class Spread(Group):
    """A `vaultgroup.Group` in which each process sees the vaults of its own node alone.

    The control structure is one for all, as if it were the same everywhere.

    Args:
        where: node of each process, members first.
    """

    def __init__(self, nodes: Nodes, where: Sequence[int], sizes: list[int], seed: int,
                 strength: int = 1) -> None:
        self.nodes, self.where = nodes, where
        self.views: list[OneNodeView] = []
        super().__init__(nodes[0].directory, sizes, seed, strength)

    def make_view(self) -> OneNodeView:
        ctl = super().make_view().ctl
        for proc, node in enumerate(self.where):
            view = Apart(self.nodes[node].directory, ctl, proc)
            view.remote_files = self.nodes.files(proc, self.where)
            self.views.append(view)
        return self.views[0]

    def view_of(self, proc: int) -> OneNodeView:
        return self.views[proc]

    def capacity_of(self, proc: int) -> int:
        return self.capacity + 1000 * self.where[proc]  # nodes have more memory and less

    def vault(self, proc: int) -> Vault:
        made = super().vault(proc)
        view = self.views[proc]
        assert view.remote_files
        view.remote_files.share(File.VAULT, proc, view.vault_path(proc))
        return made

    def lose(self, i: int) -> None:
        for view in self.views:
            forget_vault(view, i)
        super().lose(i)

    def close(self) -> None:
        for view in self.views:
            for proc in list(view.mapped_vaults):
                forget_vault(view, proc)
            assert view.remote_files
            view.remote_files.withdraw(File.VAULT, view.proc)
        super().close()
        for node in self.nodes.nodes:
            assert not list(node.directory.glob("image-*"))
            for path in node.directory.glob("vault-*"):
                path.unlink()
        self.nodes.close_files()


def image_bytes() -> list[int]:
    """Memory of each image that this process has at the moment."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            if "/image-" in os.readlink(link):
                found.append(os.stat(link).st_blocks * 512)
        except FileNotFoundError:
            continue  # the one that lists
    return found


def state(vault: Vault, members: int) -> list[bytes]:
    """All that a vault says of its committed version: blocks, checksums, the version, and of a
    parity the checksums of its members."""
    lists = [vaults.crcs(vault.c, i, vault.used).tobytes() for i in range(-1, members)]
    return [bytes(vault.bytes_at(0, vault.used * BLOCK)), *lists, str(vault.words.version).encode()]


def summed(parity: Vault) -> list[tuple[int, bytes]]:
    """Block numbers and sums that a parity would fold."""
    numbers = sorted(parity.staged_blocks().tolist())
    return [(b, bytes(parity.stage_bytes(b, 1))) for b in numbers]


def states(group: Group) -> list[list[bytes]]:
    return ([state(v, 0) for v in group.members]
            + [state(v, group.count) for v in group.parities])


def replace(group: Group, lost: Iterable[int]) -> None:
    """Lose elements and rebuild them."""
    for i in lost:
        group.lose(i)
    for i in lost:
        group.rebuild(i)
