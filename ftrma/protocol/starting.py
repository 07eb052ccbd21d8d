"""Begins a launch on one node, with empty vaults or with those of the launch before."""

from __future__ import annotations

import contextlib

from ..fabric.round_changed import RoundChanged
from ..fabric.story import Entered, Phases, Recovery, Relaunch
from ..fabric.view import JobView
from ..host.errors import FtrmaError
from ..native import job, vaults
from ..native.constants import CHECKSUM, SLOT
from ..vault.group import own_vault
from ..vault.vault import Vault
from .restoring import rebuild_lost, restore_parity


def start_on_node(view: JobView) -> Vault | None:
    """Prepare communicators, restore vaults and meet: everything between joining and running.

    A failure meanwhile raises the alarm, and a repair does the rest.

    Returns:
        The vault of this process's role; None for a spare.
    """
    vault = first_vault(view)
    job.comm_prepare()  # collective: all have joined
    job.watch()
    with contextlib.suppress(RoundChanged):
        view.meet(0, 1, planned=False)
        job.arm()  # by now somebody has written the rules: the first process, if no supervisor has
        met_ns = job.now_ns()
        lost = not view.words.me.ready and vault is not None
        if view.words.resumed:
            view.visit("restore")
        if lost and vault and view.role()[0] == SLOT:
            rebuild_lost(view, vault)
        view.meet(0, 2, planned=False)
        if vault and view.role()[0] == CHECKSUM:
            restore_parity(view, vault, lost=lost)
        view.meet(0, 3, planned=False)
        view.finish_takeover()  # all do so: each role's vault is now with its process
        restored_ns = job.now_ns()
        if job.comm_build(0) not in (job.Wait.OK, job.Wait.ALARM):
            raise FtrmaError("the MPI library cannot build the communicator of the slots")
        view.meet(0, 4, planned=False)
        if view.proc == 0:
            view.words.start_ns = job.now_ns()
            if view.words.resumed:
                tell_relaunched(view, met_ns, restored_ns)
            view.emit(Entered(view.words.committed))
    return vault


def first_vault(view: JobView) -> Vault | None:
    """Open the vault of this process's role: an empty vault, or that of the launch before."""
    role, index = view.role()
    if role not in (SLOT, CHECKSUM):
        return None
    at = index if role == SLOT else view.layout.slots + index
    version = view.words.committed
    if view.words.resumed and version and not view.is_vault_lost(at):
        vault = own_vault(view, create=False)
        if bring_to_committed(view, vault):
            me = view.words.me
            me.staged = me.summed = me.folded = version
            me.ready = 1
            return vault
        vault.close()
        view.mark_vault_lost(at)
    vault = own_vault(view, create=True)
    view.words.me.ready = 0 if version else 1
    return vault


def bring_to_committed(view: JobView, vault: Vault) -> bool:
    """Bring a vault of an ended launch to the committed version; return False if it must be
    computed.

    Its process may have been killed in the middle of a step. Blocks that a slot has staged are
    undone; a block that was being written does not match its checksum, which is found later. A
    parity that has not folded the committed version completely is computed anew, unless a lost slot
    of its group must be computed from it: then it is folded.
    """
    role, index = view.role()
    version = view.words.committed
    if role == SLOT:
        vaults.stage_undo(vault.c, version)
    elif vaults.parity_version(vault.c) == version:
        vaults.parity_drop(vault.c)
    elif any(map(view.is_vault_lost, view.layout.members(view.layout.group_of_checksum(index)))):
        vaults.parity_fold(vault.c, version)
    else:
        return False
    return True


def tell_relaunched(view: JobView, met_ns: int, restored_ns: int) -> None:
    """Complete the story of a relaunch with its times; the supervisor has already noted the
    reason."""
    causes = [e for e in view.events() if isinstance(e, Relaunch)]
    if not causes:
        return  # the supervisor could not note it
    cause = causes[-1]
    now_ns, death_ns = job.now_ns(), int(view.words.death_ns)
    detect = cause.noticed_ns - death_ns
    restore = restored_ns - met_ns
    phases = Phases(
        detect=detect / 1e9, repair=(now_ns - death_ns - detect - restore) / 1e9,
        restore=restore / 1e9,
    )
    view.emit(Recovery(
        kind="relaunch", slots=cause.slots, version=cause.version,
        seconds=(now_ns - death_ns) / 1e9, phases=phases, reason=cause.reason,
        began_s=death_ns / 1e9,
    ))
