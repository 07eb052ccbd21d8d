"""The vaults that a launch over several nodes finds of the one before it, and what they can be.

Each process comes to know of all; who takes which is decided by `salvage`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import FtrmaError
from ..machine.topology import Layout
from ..native.shared import Proc, Version
from ..vault.vault import Vault
from . import salvage
from .salvage import Role


class Stock:
    """What is there.

    Args:
        directory: of the job on this node.
        host: this node's name.
        layout: of the job.
        capacity_blocks: of new vaults.

    Attributes:
        found: of each role that has a vault somewhere, its host, and the versions that it can be
            brought to.
        held: vaults of this node that this process looks after, open.
    """

    def __init__(
        self, directory: Path, host: str, layout: Layout, capacity_blocks: int
    ) -> None:
        self.directory, self.host, self.layout = directory, host, layout
        self.capacity_blocks = capacity_blocks
        self.found: dict[Role, tuple[str, frozenset[Version]]] = {}
        self.held: dict[Role, Vault] = {}

    def path(self, role: Role) -> Path:
        return self.directory / f"{role[0]}-{role[1]}"

    def open(self, role: Role, *, create: bool) -> Vault:
        size = self.layout.group_size
        return Vault(self.path(role), self.capacity_blocks, size, create=create)

    def take(self, comm: Any, homes: Sequence[tuple[str, int, str]], *, looking: bool) -> None:
        """Tell each other what is there.

        Args:
            comm: of all processes. Collective.
            homes: where the roles were last: kind, number and host; of one that was moving, both.
            looking: this process is the one that looks on its node, and there was a launch before.
        """
        mine: dict[Role, frozenset[Version]] = {}
        known = {(kind, index) for kind, index, _ in homes}
        here = {(kind, index) for kind, index, host in homes if host == self.host}
        for role in salvage.roles_of(self.layout) if looking else ():
            # Elsewhere than where the role was last there may be one of a timeline that has ended.
            if (role in here or role not in known) and self.path(role).exists():
                with contextlib.suppress(FtrmaError):  # killed while it was made
                    vault = self.open(role, create=False)
                    mine[role] = frozenset(vault.versions(role[0]))
                    vault.close()
        for host, stock in comm.allgather((self.host, mine)):
            for role, versions in stock.items():
                # One that was moving to another node when the launch ended is there twice.
                if role not in self.found or max(versions) > max(self.found[role][1]):
                    self.found[role] = host, versions

    def hold(self, proc: Proc, hosts: Sequence[str], slot_proc: Sequence[Proc],
             checksum_proc: Sequence[Proc], *, strays: bool) -> None:
        """Open this node's vaults that this process looks after.

        Args:
            proc: this process.
            hosts: of all processes.
            slot_proc, checksum_proc: the holders of this launch.
            strays: also those of roles that are on other nodes now.
        """
        for role, (host, _) in self.found.items():
            holder = (slot_proc if role[0] == "slot" else checksum_proc)[role[1]]
            if host == self.host and (holder == proc or (strays and hosts[holder] != host)):
                self.held[role] = self.open(role, create=False)
