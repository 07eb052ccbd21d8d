"""Computes the vault of this process's role from the other vaults of its group."""

from __future__ import annotations

from ..fabric.round_changed import RoundChanged
from ..fabric.story import Scrub
from ..fabric.view import JobView
from ..host.errors import Rollback
from ..native.constants import ROLE_NAMES, SLOT
from ..native.shared import Slot
from ..vault.group import rebuild_parity, rebuild_slot, scrub
from ..vault.vault import Vault


def rebuild_lost(view: JobView, vault: Vault) -> None:
    """Compute a lost vault at the committed version, and mark it as ready."""
    role, index = view.role()
    version = view.words.committed
    if role == SLOT:
        if version:
            rebuild_slot(view, vault, Slot(index))
        vault.words.version = version
        view.words.me.staged = version
    else:
        if version:
            rebuild_parity(view, vault, index)
        elif vault.used:  # perhaps a spare was computing it when this repair began
            vault.renew(view.vault_path(view.proc))
            view.share_vault()
            vault.release()
        view.words.me.summed = version
        view.words.me.folded = version
    view.words.me.ready = 1


def restore_parity(view: JobView, vault: Vault, *, lost: bool) -> None:
    """Bring this checksum rank's parity to the committed version, and make it sound."""
    if lost:
        rebuild_lost(view, vault)
    elif view.words.committed:
        number, at = divmod(view.role()[1], view.layout.strength)
        tell_scrubbed(view, scrub(view, number, len(view.layout.members(number)) + at))


def check_own_vault(view: JobView, slot: Slot) -> None:
    """Compare the vault of this process's slot with the checksums kept beside the parity.

    Raises:
        Rollback: a process failed meanwhile.
    """
    group = view.layout.group_of(slot)
    element = view.layout.members(group).index(slot)
    try:
        tell_scrubbed(view, scrub(view, group, element))
    except RoundChanged:
        raise Rollback("a process failed") from None


def tell_scrubbed(view: JobView, fixed: int) -> None:
    """Report how many damaged blocks of this process's vault were computed anew, if any."""
    role, index = view.role()
    if fixed:
        name = f"{ROLE_NAMES[role]} {index}"
        view.tell(f"{name}: {fixed} corrupt blocks found and rebuilt from the others")
        view.emit(Scrub(role=ROLE_NAMES[role], index=index, blocks=fixed))
