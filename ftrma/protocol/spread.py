"""The job as one process sees it, when the job runs over several nodes.

There is no memory that all processes share, and the logs do not reach over nodes yet. So nothing is
repaired in place here: any death ends the launch, and the supervisor starts the job again. What
`world.World` does by the shared control file goes other ways:

* Each process has a control file of its own. C reads roles, kill rules and counters there as on one
  node; its alarm never rings.
* Each node's first process has an agent run there, by which slots of other nodes reach the windows
  of this one (`agents`).
* Slots synchronize by MPI, on communicators that the user's program never sees.
* Deaths, errors and the end are the supervisor's business, told over the `link`.

Invariant: whoever waits in MPI for a process that has died is ended by the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import settings
from ..errors import FtrmaError
from ..fabric import killrules
from ..fabric import link as links
from ..fabric.agents import Asking, NodeAgent
from ..fabric.link import Link, leave_node
from ..fabric.listening import own_addresses
from ..fabric.story import Event, Seats, parse, plain
from ..fabric.world import World, capacity_blocks, make_control
from ..host import private
from ..machine.placement import Placement
from ..machine.topology import Layout, domains_of_nodes
from ..machine.topologyfile import read_topology
from ..native import job, loading, wire
from ..native.constants import PLACES, ROLE_NAMES, SLOT
from ..native.shared import Control, Proc, Version
from ..vault import salvage
from ..vault.salvage import Role
from ..vault.vault import Vault

LEAVE_S = 30.0  # the supervisor answers the last goodbye within milliseconds


class SpreadWorld(World):
    """One process's place in a job over several nodes.

    Args:
        options: of the job.
        proc: position of this process in the MPI world.
        link: to the supervisor.

    Attributes:
        hosts: name of each process's node; host: of this one's.
        layout: of the job, with the groups in force.
        found: node and possible versions of each vault that a launch before has left; held: those
            that this process has open, until `distributed` has restored.
        new_status, bytes_type: MPI.Status and MPI.BYTE of mpi4py.
        everyone: mpi4py communicator of all processes, in the order of the MPI world.
        slots: of all slots, in their order; None on checksum ranks and spares.
        agent: of this node, where this process has it run.

    MPI: collective over all processes.
    """

    def __init__(self, options: settings.Options, proc: Proc, link: Link) -> None:
        self.link = link
        mpi = loading.import_mpi()
        host = socket.gethostname()
        self.hosts: list[str] = mpi.COMM_WORLD.allgather(host)
        self.host, self.proc = host, proc
        self.new_status, self.bytes_type = mpi.Status, mpi.BYTE
        private.make_directory(Path(options.job))
        self.directory = Path(options.job) / host
        private.make_directory(self.directory)
        link.directory = self.directory
        self.agent: NodeAgent | None = None
        nodes = len(set(self.hosts))
        if self.first_on_node and nodes > 1:
            bind, near = options.bind, link.socket.getsockname()[0]
            slots = options.layout().slots
            self.agent = NodeAgent(
                self.directory, link.key, slots + len(self.hosts), slots + nodes,
                self._without_agent, replace(bind, where=bind.here(own_addresses(), near)),
            )
        self.layout = self._layout(options)
        self.found = self._take_stock(mpi.COMM_WORLD)
        placement = self._place(mpi.COMM_WORLD, options)
        self.layout = placement.layout
        job.set_link(link.socket.fileno())
        ctl = self._own_control(self.directory / f"control-{proc}", options, placement)
        super().__init__(self.directory, link.key, proc, ctl)
        self.held = self._open_held()
        job.comm_prepare()
        self.everyone: Any = mpi.Comm.fromhandle(job.comm_parent())
        self.slots: Any = None
        role, index = self.role()
        link.send("role", role=ROLE_NAMES[role], index=index)
        for other, pid in enumerate(mpi.COMM_WORLD.allgather(os.getpid())):
            if self.hosts[other] == host:
                self.ctl.proc[other].pid = pid  # whose windows from Create a neighbour reaches
        if nodes > 1:
            self._reach_nodes(mpi.COMM_WORLD)
        if role == SLOT:
            self.slots = self.everyone.Create_group(self.everyone.Get_group().Incl(self.holders()))

    @staticmethod
    def of_job(directory: Path) -> Path:
        return directory.parent

    # -- what a launch before has left ----------------------------------------------------------

    @property
    def known_committed(self) -> Version:
        """The newest version that the supervisor was told of."""
        return Version(int(self.link.greeting["committed"]))

    def _layout(self, options: settings.Options) -> Layout:
        """The job's, with the groups of the first launch."""
        table = self.link.greeting["slot_group"]
        layout = options.layout()
        return replace(layout, slot_group=tuple(table)) if table else layout

    def vault_path_of(self, role: Role) -> Path:
        return self.directory / f"{role[0]}-{role[1]}"

    def open_vault(self, role: Role, *, create: bool) -> Vault:
        return Vault(self.vault_path_of(role), capacity_blocks(), self.layout.group_size,
                     create=create)

    def _take_stock(self, comm: Any) -> dict[Role, tuple[str, frozenset[Version]]]:
        """Vaults on all nodes: where each is and which versions it can be brought to."""
        mine: dict[Role, frozenset[Version]] = {}
        again = self.first_on_node and self.link.greeting["resume"]
        for role in salvage.roles_of(self.layout) if again else []:
            if self.vault_path_of(role).exists():
                with contextlib.suppress(FtrmaError):  # killed while it was made
                    vault = self.open_vault(role, create=False)
                    mine[role] = frozenset(vault.versions(role[0]))
                    vault.close()
        found: dict[Role, tuple[str, frozenset[Version]]] = {}
        for host, stock in comm.allgather((self.host, mine)):
            for role, versions in stock.items():
                # One that was moving to another node when the launch ended is there twice.
                if role not in found or max(versions) > max(found[role][1]):
                    found[role] = host, versions
        return found

    def _place(self, comm: Any, options: settings.Options) -> Placement:
        """Seat all roles. The first process tells where awareness falls short."""
        text = self.link.greeting["topology"]
        domains = domains_of_nodes(self.hosts)
        if text:
            domains = read_topology(options.topology, text).domains(self.hosts)
        where = {role: host for role, (host, _) in self.found.items()}
        placement = salvage.seats(self.layout, self.hosts, where, domains, options.aware)
        if self.proc == 0:
            self.link.send(**plain(Seats(placement.layout.slot_group)))
            if placement.shortfall:
                self.tell(placement.shortfall)
        return placement

    def _open_held(self) -> dict[Role, Vault]:
        """Vaults of this node that this process looks after: its own, the first one strays too."""
        held = {}
        for role, (host, _) in self.found.items():
            table = self.roles.slot_proc if role[0] == "slot" else self.roles.checksum_proc
            proc = table[role[1]]
            if host == self.host and (proc == self.proc or (
                    self.first_on_node and self.hosts[proc] != host)):
                held[role] = self.open_vault(role, create=False)
        return held

    def _own_control(
        self, path: Path, options: settings.Options, placement: Placement
    ) -> Control:
        """A control file that nobody else sees: gone from the directory once it is mapped."""
        path.unlink(missing_ok=True)  # of a process that was killed between the next two lines
        ctl = make_control(path, self.layout)
        path.unlink()
        seat(ctl, placement)
        killrules.write(ctl, options.kill)
        ctl.resume = int(self.link.greeting["resume"])
        return ctl

    def _reach_nodes(self, comm: Any) -> None:
        """Learn where all nodes' agents are. Collective."""
        mine = self.agent.address().text() if self.agent else ""
        found = {host: links.Address.parse(text)
                 for host, text in comm.allgather((self.host, mine)) if text}
        role, slot = self.role()
        if role != SLOT:
            return
        names = list(found)
        nodes = [names.index(self.hosts[proc]) for proc in self.holders()]
        self.ledger = wire.ledger_open(self.directory / "ledger")
        # Behind the slots each node is a target, for what it has beside windows.
        targets = [*nodes, *range(len(names))]
        self.asking = Asking(self.link.key, slot, 0, len(targets), len(names),
                             lambda node: found[names[node]])
        for target, node in enumerate(targets):
            self.asking.origin.seat(target, node, 1)
        job.set_nodes(self.asking.origin.address, wire.ledger_address(self.ledger),
                      names.index(self.host), nodes)

    def _without_agent(self) -> None:
        """Nobody reaches this node's parts any more: as good as a death, and so it is made one."""
        self.tell(f"error: agents of {self.host} end as soon as they are started")
        os.kill(os.getpid(), signal.SIGKILL)

    @property
    def first_on_node(self) -> bool:
        """This process is the lowest of its node."""
        return self.hosts.index(self.hosts[self.proc]) == self.proc

    def enter(self, version: int, restore_s: float) -> None:
        """The program begins, at this checkpoint, which it took so long to restore."""
        self.store("start_ns", job.now_ns())
        if self.proc == 0:
            self.link.send("entered", version=version, restore_s=restore_s)
        timed = PLACES["time"]
        if any(self.ctl.rules[i].place == timed for i in range(self.ctl.nrules)):
            job.watch()

    # -- what is not had over several nodes -----------------------------------------------------

    def choose(self, policy: str, *, fresh: bool) -> None:
        """All go back, in fresh processes: nothing is logged."""

    def logs(self, *, trace: bool) -> bool:
        return False

    def alive(self, proc: int) -> bool:
        return proc >= 0  # a death ends the launch, so whoever asks sees none

    # -- what goes by the control file on one node ---------------------------------------------

    def barrier(self) -> None:
        self.slots.Barrier()

    def same_everywhere(self, value: int) -> int | None:
        theirs = self.slots.allgather(value)
        return next((s for s, v in enumerate(theirs) if v != value), None)

    def meet(self, round_number: int, phase: int, *, planned: bool = True) -> None:
        self.everyone.Barrier()  # there is no other round than the one that all begin with

    def end_program(self) -> None:
        self.barrier()

    def claim_error(self) -> bool:
        return bool(self.link.request("claim")["granted"])

    def abort(self, status: int) -> None:
        self.link.send("abort", status=status)

    def emit(self, event: Event) -> None:
        self.link.send(**plain(event))

    def events(self) -> list[Event]:
        found = map(parse, self.link.request("events")["events"])
        return [event for event in found if event]

    def leave(self) -> None:
        """Say goodbye, and go on serving the others' last messages until all have."""
        self.everyone.Barrier()
        if self.agent:
            self.agent.close()
        if self.first_on_node:
            leave_node(self.directory)
        self.link.goodbye()
        deadline = time.monotonic() + LEAVE_S
        while time.monotonic() < deadline:
            self.everyone.Iprobe()
            time.sleep(0.001)
        raise FtrmaError(f"the supervisor did not answer a goodbye within {LEAVE_S:.0f} s")


def seat(ctl: Control, placement: Placement) -> None:
    """Write the roles of a launch into a control file."""
    table = ctl.roles[ctl.roles_seq & 1]
    for s, p in enumerate(placement.slot_proc):
        table.slot_proc[s] = Proc(p)
    for c, p in enumerate(placement.checksum_proc):
        table.checksum_proc[c] = Proc(p)
    for number, p in enumerate(placement.spares):
        ctl.proc[p].spare = number
