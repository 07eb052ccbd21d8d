"""Computes the vault of this process's role from those of its group, in a launch or a repair."""

from __future__ import annotations

from ..errors import Rollback
from ..fabric.base import RoundChanged
from ..fabric.story import Scrub
from ..fabric.world import World
from ..native.constants import ROLE_NAMES, SLOT
from ..native.shared import Slot
from ..vault.group import rebuild_parity, rebuild_slot, scrub
from ..vault.vault import Vault


def rebuild_lost(world: World, vault: Vault) -> None:
    """Compute a vault that was lost, as of the committed version, and say that it is ready."""
    role, index = world.role()
    version = world.committed
    if role == SLOT:
        if version:
            rebuild_slot(world, vault, Slot(index))
        vault.words.version = version
        world.put("staged", version)
    else:
        if version:
            rebuild_parity(world, vault, index)
        world.put("summed", version)
        world.put("folded", version)
    world.put("ready", 1)


def restore_parity(world: World, vault: Vault, *, lost: bool) -> None:
    """Have this checksum rank's parity at the committed version, and sound."""
    if lost:
        rebuild_lost(world, vault)
    elif world.committed:
        number, at = divmod(world.role()[1], world.ctl.strength)
        tell_scrubbed(world, scrub(world, number, len(world.members(number)) + at))


def check_own_vault(world: World, slot: Slot) -> None:
    """Compare the vault of this process's slot with the checksums that lie with the parity.

    Raises:
        Rollback: a process failed meanwhile.
    """
    group = world.roles.slot_group[slot]
    element = world.members(group).index(slot)
    try:
        tell_scrubbed(world, scrub(world, group, element))
    except RoundChanged:
        raise Rollback("a process failed") from None


def tell_scrubbed(world: World, fixed: int) -> None:
    """Say how many damaged blocks of this process's vault were computed anew, if any."""
    role, index = world.role()
    if fixed:
        name = f"{ROLE_NAMES[role]} {index}"
        world.tell(f"{name}: {fixed} corrupt blocks found and rebuilt from the others")
        world.emit(Scrub(role=ROLE_NAMES[role], index=index, blocks=fixed))
