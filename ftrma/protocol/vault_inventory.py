"""The vaults that a launch over several nodes finds from the launch before, and their versions.

Each process comes to know all of them. `salvage` decides which version the launch takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..fabric.node_table import NodeTable
from ..host.errors import FtrmaError
from ..machine.placement import Placement
from ..machine.topology import Layout
from ..native.shared import Version
from ..vault.vault import Vault
from . import salvage
from .salvage import Role

NONE = Version(0)  # nothing is committed: the program begins


class VaultInventory:
    """The vaults that were found.

    Args:
        directory: the job's directory on this node.
        host: this node's name.
        layout: the job's layout.
        capacity_blocks: capacity of new vaults.
        committed: the newest version that the supervisor was told of.

    Attributes:
        found: for each role that has a vault somewhere, the vault's host and the versions that it
            can be brought to.
        opened: vaults of this node that this process looks after.
    """

    def __init__(
        self, directory: Path, host: str, layout: Layout, capacity_blocks: int,
        committed: Version = NONE,
    ) -> None:
        self.directory, self.host, self.layout = directory, host, layout
        self.capacity_blocks, self.committed = capacity_blocks, committed
        self.found: dict[Role, tuple[str, frozenset[Version]]] = {}
        self.opened: dict[Role, Vault] = {}

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Return the layouts whose vaults may be found: that of this launch, and former ones."""
        return self.layout, *self.layout.former()

    def path(self, role: Role) -> Path:
        for layout in self.layouts:
            if role[0] == layout.checksum_kind:
                return self.directory / layout.parity_file(role[1])
        return self.directory / f"{role[0]}-{role[1]}"

    def open(self, role: Role, *, create: bool) -> Vault:
        size = self.layout.group_size
        return Vault(self.path(role), self.capacity_blocks, size, create=create)

    def exchange(self, comm: Any, homes: Sequence[tuple[str, int, str]], *, looking: bool) -> None:
        """Tell all processes which vaults there are.

        Args:
            comm: communicator of all processes. The call is collective over it.
            homes: where the roles were last: kind, number and host. A role that was moving has two
                entries.
            looking: there was a launch before, and this process is the one that looks on its node.
        """
        mine: dict[Role, frozenset[Version]] = {}
        known = {(kind, index) for kind, index, _ in homes}
        here = {(kind, index) for kind, index, host in homes if host == self.host}
        former = {role for layout in self.layout.former() for role in salvage.roles_of(layout)}
        former -= {*salvage.roles_of(self.layout)}
        # On a node other than where the role was last, a vault may be left of an attempt that has
        # ended.
        wanted = [*(r for r in salvage.roles_of(self.layout) if r in here or r not in known),
                  *sorted(former & here)]
        for role in wanted if looking else ():
            if self.path(role).exists():
                with contextlib.suppress(FtrmaError):  # killed while it was made
                    vault = self.open(role, create=False)
                    mine[role] = frozenset(vault.versions(salvage.kind_of(role)))
                    vault.close()
        for host, there in comm.allgather((self.host, mine)):
            for role, versions in there.items():
                # If a vault was moving to another node when the launch ended, there are two of it.
                if role not in self.found or max(versions) > max(self.found[role][1]):
                    self.found[role] = host, versions

    def open_mine(self, table: NodeTable, placement: Placement) -> None:
        """Open those vaults of this node that this process looks after.

        The holder of a role looks after the role's vault. The first process of a node also looks
        after vaults of roles that are now on other nodes, and of former layouts.
        """
        holder = {("slot", s): p for s, p in enumerate(placement.slot_proc)}
        holder |= {("checksum", c): p for c, p in enumerate(placement.checksum_proc)}
        for role, (host, _) in self.found.items():
            elsewhere = role not in holder or table.hosts[holder[role]] != host
            mine = holder.get(role) == table.proc or (table.first_on_node and elsewhere)
            if host == self.host and mine:
                self.opened[role] = self.open(role, create=False)
