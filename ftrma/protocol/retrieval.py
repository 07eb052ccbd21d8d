"""Brings every role to the newest version that can be had, after a relaunch over several nodes.

All processes know where vaults were found and to which versions each can be brought, so all choose
the same version (`salvage`). Whoever has a vault open brings it to that version and says whether it
is sound. Then each vault whose role is now on another node is copied there, and lost vaults are
computed as in a repair, slots before parities.

If the job has given up checksum ranks since then, a lost slot is computed from the parities of the
former layout, and all parities of the new layout are computed from the slots.

Invariant: a role's new vault counts as version 0 until it is filled, and the vaults from which it
is computed stay as they are. So a launch that ends in the middle leaves to the next one everything
that it had found.
"""

from __future__ import annotations

import time
from typing import Any

from ..fabric.remote import File
from ..fabric.round_changed import RoundChanged
from ..fabric.several_nodes import SeveralNodesView
from ..fabric.story import Restored
from ..host.errors import CorruptVault, FtrmaError
from ..machine.topology import Layout
from ..native import vaults
from ..native.constants import CHECKSUM, ROLE_NAMES, SLOT
from ..native.shared import Proc, Slot, Version
from ..vault.group import rebuild_parity, rebuild_slot
from ..vault.image import Image
from ..vault.vault import Vault
from . import salvage
from .formergroup import FormerGroup, LeftParity
from .salvage import Role
from .vault_inventory import VaultInventory


class Retrieval:
    """The part of one process in a retrieval.

    Args:
        view: this process's view of the job.
        comm: communicator of all processes; it carries nothing else meanwhile.
        holder: the process that holds each role.

    Attributes:
        version: the version to which all roles are brought; 0 is the start of the program.
        source: layout of the parities from which lost slots are computed.
        vault: the vault of this process's role; None on a spare.
    """

    def __init__(self, view: SeveralNodesView, inventory: VaultInventory, comm: Any,
                 holder: dict[Role, int]) -> None:
        self.view, self.inventory, self.comm, self.holder = view, inventory, comm, holder
        role, index = view.role()
        self.mine = (ROLE_NAMES[role], index) if role in (SLOT, CHECKSUM) else None
        self.version, self.source = Version(0), inventory.layout
        self.vault: Vault | None = None
        # A vault that moved is numbered by its role's place in this list, counted behind all
        # processes.
        self.roles = [*holder, *sorted(role for role in inventory.found if role not in holder)]

    def run(self) -> None:
        """Do the whole retrieval. Collective over all processes.

        Raises:
            CatastrophicFailure, CorruptVault: the committed version cannot be had.
        """
        view = self.view
        versions = {role: can for role, (_, can) in self.inventory.found.items()}
        self.version, self.source = salvage.newest_of(
            self.inventory.layouts, versions, self.inventory.committed)
        view.words.set_committed(self.version)
        sound: dict[Role, int] = {}
        if self.version:
            sound = self._bring_to_version()
            salvage.raise_if_lost(self.source, sound, self.version)
        if self.mine:
            self._open_vault(self.mine, sound=sound.get(self.mine) == view.proc)
        try:
            if self.version:
                self._fill_vaults(sound)
        except RoundChanged:  # the supervisor ends this launch
            raise FtrmaError("vaults could not be brought back: a process died") from None
        self.comm.Barrier()
        self._give_up_strays()

    def _open_vault(self, role: Role, *, sound: bool) -> None:
        """Open a vault for this process's role: the one that was found, if sound, or an empty one.
        """
        view = self.view
        if sound:
            self.vault = self.inventory.opened.pop(role)
        else:
            if role in self.inventory.opened:
                self.inventory.opened.pop(role).close()
            self.inventory.path(role).unlink(missing_ok=True)
            self.vault = self.inventory.open(role, create=True)
        view.share_vault()

    def _give_up_strays(self) -> None:
        """Close and remove vaults of roles that are now on other nodes; nobody needs them any
        more."""
        view = self.view
        for role, vault in self.inventory.opened.items():
            vault.close()
            if view.remote_files and self.version:
                view.remote_files.withdraw(File.VAULT, self._stray(role))
        self.inventory.opened.clear()
        if view.table.first_on_node:
            for layout in self.inventory.layout.former():
                for checksum in range(layout.checksums):
                    (self.inventory.directory / layout.parity_file(checksum)).unlink(
                        missing_ok=True)
            for role, proc in self.holder.items():
                if view.table.hosts[proc] != view.table.host:
                    # This vault has moved, or is a second copy. It must never be taken for a newer
                    # one.
                    self.inventory.path(role).unlink(missing_ok=True)

    def _bring_to_version(self) -> dict[Role, int]:
        """Bring the vaults that this process has open to the version, and check them.

        Returns:
            For each sound vault, the process that has it open.
        """
        view, version = self.view, self.version
        sound = []
        for role, vault in self.inventory.opened.items():
            words = vault.words
            if version not in vault.versions(salvage.kind_of(role)):
                continue
            with view.critical:  # another death must not end the launch in the middle
                if role[0] == "slot":
                    vaults.stage_undo(vault.c, version)
                elif words.version < version:
                    vaults.parity_fold(vault.c, version)
                else:
                    vaults.parity_drop(vault.c)
                words.version, words.complete, words.folding = version, Version(0), Version(0)
            if vaults.check(vault.c, vault.c, -1) < 0:
                sound.append(role)
            else:
                view.tell(f"{salvage.name_of(role)}: its vault on {view.table.host} is damaged")
        everybody = self.comm.allgather(sound)
        return {role: proc for proc, roles in enumerate(everybody) for role in roles}

    def _fill_vaults(self, sound: dict[Role, int]) -> None:
        """Fill empty vaults: from the role's old vault on another node, or from their group."""
        view = self.view
        for role in self.inventory.opened if view.remote_files else ():
            assert view.remote_files is not None
            view.remote_files.share_vault(self._stray(role), self.inventory.path(role))
        if self.mine:
            view.words.me.ready = int(sound.get(self.mine) == view.proc)
        moved = [role for role, proc in self.holder.items() if sound.get(role, proc) != proc]
        lost = [role for role in self.holder if role not in sound]
        # A slot is computed from vaults that are ready; a parity is computed from its members,
        # which are ready by then.
        for phase, roles, fill in (
            (1, moved, self._fetch),
            (2, [role for role in lost if role[0] == "slot"], self._rebuild_slot),
            (3, [role for role in lost if role[0] == "checksum"], self._rebuild_parity),
        ):
            if not roles:
                continue
            # A barrier of MPI would not ensure that this node sees the words that others have
            # stored.
            view.meet(0, phase, planned=False)
            if self.mine in roles:
                began = time.monotonic()
                view.visit("restore")
                fill(sound)
                assert self.vault is not None
                self.vault.words.version = self.version
                view.words.me.ready = 1
                view.emit(Restored(
                    role=self.mine[0], index=self.mine[1], seconds=time.monotonic() - began
                ))

    def _stray(self, role: Role) -> Proc:
        """Return the number by which other nodes read a stray vault, in place of a process's
        number."""
        return Proc(len(self.view.table.hosts) + self.roles.index(role))

    def _fetch(self, sound: dict[Role, int]) -> None:
        """Copy the vault of this process's role from the node where it was left."""
        view, vault, role = self.view, self.vault, self.mine
        assert vault is not None and role is not None and view.remote_files is not None
        path = view.directory / f"image-{view.proc}"
        layout, node = view.layout, view.table.node_of(sound[role])
        members = layout.members(layout.group_of_checksum(role[1])) if role[0] == "checksum" else ()
        image = Image(view.remote_files, node, self._stray(role), path, layout.group_size)
        try:
            image.copy_to(vault.c, range(len(members)))
        finally:
            image.close()
        block = vaults.check(vault.c, vault.c, -1)
        if block >= 0:
            raise CorruptVault(
                f"block {block} of {role[0]} {role[1]} was damaged on its way here; start the "
                "program again"
            )

    def _rebuild_slot(self, sound: dict[Role, int]) -> None:
        assert self.vault is not None and self.mine is not None
        slot, layout = Slot(self.mine[1]), self.source
        group = None if layout is self.inventory.layout else self._former_group(
            layout, layout.group_of(slot), sound)
        rebuild_slot(self.view, self.vault, slot, group)

    def _former_group(self, layout: Layout, number: int, sound: dict[Role, int]) -> FormerGroup:
        """Return a group with those parities of a former layout that are sound."""
        view, left = self.view, dict[int, LeftParity]()
        for c in layout.checksums_of(number):
            role = layout.checksum_kind, c
            if role in sound:
                node = view.table.node_of(sound[role])
                left[c] = LeftParity(node, self._stray(role), self.inventory.path(role))
        return FormerGroup(view, number, layout, view.table.node, left)

    def _rebuild_parity(self, _: dict[Role, int]) -> None:
        assert self.vault is not None and self.mine is not None
        rebuild_parity(self.view, self.vault, self.mine[1])
