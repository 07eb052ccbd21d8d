"""Begins a launch of a job over several nodes, with new vaults or those of the launch before.

All processes find out which vaults are left on which node (`vault_inventory`), the roles are seated
accordingly (`seating`), and each role gets the newest version that can be had (`retrieval`). From
then on the job runs as on one node.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..fabric import spillfiles
from ..fabric.control_file import capacity_blocks
from ..fabric.link import Link
from ..fabric.node_table import NodeTable
from ..fabric.round_changed import RoundChanged
from ..fabric.several_nodes import SeveralNodesView
from ..fabric.spillfiles import Part, Point
from ..fabric.story import Seats, plain
from ..host.errors import FtrmaError
from ..host.key import Key
from ..host.record import Seal
from ..machine.placement import Placement
from ..machine.topology import NO_LEVEL, NODES, domains_of_nodes
from ..machine.topologyfile import read_topology
from ..native import job, loading
from ..native.constants import CHECKSUM, SLOT
from ..native.shared import Proc, Version
from ..settings import killrules
from ..settings import options as settings
from ..vault.vault import Vault
from . import seating
from .filling import make_filled
from .retrieval import Retrieval
from .salvage import Role
from .vault_inventory import VaultInventory


def join(
    options: settings.Options, proc: Proc, link: Link
) -> tuple[SeveralNodesView, VaultInventory]:
    """Seat all roles and join the job.

    Returns:
        This process's view of the job, and the vaults that were left.

    MPI: collective over all processes.
    """
    comm = loading.import_mpi().COMM_WORLD
    table = NodeTable(comm, proc, link, Path(options.job))
    layout, groups = options.layout(), link.greeting["slot_group"]
    layout = replace(layout, weakened=int(link.greeting["weakened"]))
    if groups:  # the groups of the first launch
        layout = replace(layout, slot_group=tuple(groups))
    capacity = capacity_blocks(table.processes_here, layout)
    committed = Version(int(link.greeting["committed"]))
    inventory = VaultInventory(table.directory, table.host, layout, capacity, committed)
    again = bool(table.first_on_node and link.greeting["resume"])
    inventory.exchange(comm, link.greeting["homes"], looking=again)
    domains, topology = domains_of_nodes(table.hosts), link.greeting["topology"]
    if topology:
        domains = read_topology(options.topology, topology).domains(table.hosts)
    aware = options.aware or (NODES if len(table.names) > 1 else NO_LEVEL)
    files = link.greeting["files"]
    if link.greeting["files_key"]:
        spillfiles.use_key(Key(bytes.fromhex(link.greeting["files_key"])))
    if files and committed == files["version"]:
        inventory.found.clear()  # no launch has come further, so all begin from files
    where = {role: host for role, (host, _) in inventory.found.items()}
    placement = seating.seat_launch(layout, table.hosts, where, domains, aware)
    view = SeveralNodesView(
        link, table, placement, domains, aware, bind=options.bind, log_budget=options.log_budget,
        write_rules=lambda ctl: killrules.write(ctl, options.kill))
    if proc == 0:
        link.send(**plain(Seats(placement.layout.slot_group)))
        if placement.shortfall:
            view.tell(placement.shortfall)
    if files and committed == files["version"]:
        fill_from_files(inventory, files, table, placement, link.key)
    inventory.open_mine(table, placement)
    return view, inventory


def fill_from_files(inventory: VaultInventory, files: Mapping[str, Any], table: NodeTable,
                    placement: Placement, key: Key) -> None:
    """Fill the vault of each slot from files, on the slot's node, as if a launch had left it there.

    Args:
        files: where the checkpoint is: directory, entry and version.
        key: of the job.

    Raises:
        Damaged: the file is not what was written.
    """
    directory, version = Path(files["directory"]), Version(files["version"])
    point = Point(files["entry"], version)
    for slot, holder in enumerate(placement.slot_proc):
        role = ("slot", slot)
        inventory.found[role] = table.hosts[holder], frozenset((version,))
        if holder == table.proc:
            part = Part(directory, point, slot, spillfiles.read_manifest(directory, point))
            sizes = inventory.capacity_blocks, inventory.layout.group_size
            make_filled(inventory.path(role), sizes, part, version,
                        Seal(key, f"slot {slot}", str(version)))


def start_over_nodes(view: SeveralNodesView, inventory: VaultInventory) -> Vault | None:
    """Restore the vault of this process's role, and give the slots their communicator.

    A failure before all vaults are restored ends this launch. After a later failure, a repair does
    what is left to do.

    Returns:
        The vault of this process's role; None for a spare.

    MPI: collective over all processes.
    """
    began = time.monotonic()
    vault, version = restore(view, inventory)
    took_s = time.monotonic() - began
    if vault:
        me = view.words.me
        me.staged = me.summed = me.folded = version
        me.ready = 1
    job.watch()
    try:
        view.meet(0, 4, planned=False)  # follows the phases of `retrieval`
        if job.comm_build(0) not in (job.Wait.OK, job.Wait.ALARM):
            raise FtrmaError("the MPI library cannot build the communicator of the slots")
        if view.role()[0] == SLOT:
            job.world_open()
        view.meet(0, 5, planned=False)
    except RoundChanged:
        pass
    view.report_start(version, took_s)
    return vault


def restore(
    view: SeveralNodesView, inventory: VaultInventory
) -> tuple[Vault | None, Version]:
    """Bring this process's role to the newest version that can be had (see `retrieval`).

    Raises:
        CatastrophicFailure, CorruptVault: the committed version cannot be had.
    """
    holder: dict[Role, int] = {}
    for s, proc in enumerate(view.slot_holders()):
        holder["slot", s] = proc
    for c, proc in enumerate(view.checksum_holders()):
        holder["checksum", c] = proc
    retrieval = Retrieval(view, inventory, view.everyone, holder)
    retrieval.run()
    role, _ = view.role()
    return retrieval.vault if role in (SLOT, CHECKSUM) else None, retrieval.version
