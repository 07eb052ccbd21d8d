"""The job as one process sees it, when the job runs over several nodes.

There is no memory that all processes share. Each node has a directory as a job on one node has it,
with a control file that the processes of the node map, and the nodes' agents keep these files equal
(``csrc/wire/mirror.c``). So what `world.World` does by the control file holds here, too, with three
differences:

* What one process has stored others see a little later, but in the order in which it was stored.
  Where a process must know that it has been seen, it waits for that (`synchronize`).
* Of those who may write a word at the same time one is chosen: the first checksum rank commits.
* The supervisor learns of the end of each process by its link, and tells the others. It is asked
  for the end of the job, and for its next launch, by the link.

Each node's first process makes what the node's processes share, and has an agent run there, by
which others reach the node's windows, vaults and logs (`agents`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import settings
from ..errors import CATASTROPHE, FtrmaError, no_room
from ..fabric import clock, killrules
from ..fabric import link as links
from ..fabric.absence import stopped
from ..fabric.agents import Asking, NodeAgent
from ..fabric.base import RoundChanged
from ..fabric.link import Link
from ..fabric.listening import own_addresses
from ..fabric.remote import File, Files
from ..fabric.story import Agentdeath, Event, Seats, parse, plain
from ..fabric.world import World, capacity_blocks, log_bytes, make_control
from ..host import private
from ..host.helper import Helper
from ..host.sharedmemory import is_full
from ..machine.placement import Placement
from ..machine.topology import NO_LEVEL, NODES, Domains, Layout, domains_of_nodes
from ..machine.topologyfile import read_topology
from ..native import job, loading, logs, mirrored, wire
from ..native.constants import CHECKSUM, ROLE_NAMES, SLOT
from ..native.shared import Control, Proc, Slot, Version
from ..native.wire import Origin
from . import farlogs, job_end, salvage, seating
from .stock import Stock

THERE_S = 1.0  # an agent answers within milliseconds
WORKING_S = 2.0  # how often the supervisor is told that a repair is bringing bytes
LEAVE_S = 90.0  # the last process may write files for a minute before (program/finalization.py)
ALONE = -1  # in place of a keeper's pid, who is on another node


class SpreadWorld(World):
    """One process's place in a job over several nodes.

    Args:
        options: of the job.
        proc: position of this process in the MPI world.
        link: to the supervisor.

    Attributes:
        hosts: name of each process's node; host: of this one's; names: of the nodes, in order.
        layout: of the job, with the groups in force; domains: elements of each process.
        found: node and possible versions of each vault that a launch before has left; held: those
            that this process has open, until `distributed` has restored.
        everyone: mpi4py communicator of all processes, in the order of the MPI world.
        asking: by which this process's slot reaches windows on other nodes; None on who holds none.
        service: by which it reaches all else there.

    MPI: collective over all processes.
    """

    def __init__(self, options: settings.Options, proc: Proc, link: Link) -> None:
        self.link, self.options = link, options
        self.critical = link.critical
        mpi = loading.import_mpi()
        comm = mpi.COMM_WORLD
        self.host, self.proc = socket.gethostname(), proc
        self.hosts: list[str] = comm.allgather(self.host)
        self.names = list(dict.fromkeys(self.hosts))
        ahead_ns = clock.ahead_ns(self._supervisors_clock) if self.first_on_node else 0
        job.set_clock(comm.allgather(ahead_ns)[self.hosts.index(self.host)])
        private.make_directory(Path(options.job))
        self.directory = Path(options.job) / self.host
        private.make_directory(self.directory)
        link.directory = self.directory
        if self.first_on_node:  # words of a launch before would be taken for those of this one
            for pattern in ("comm-*", "window-*", "demand-*"):
                for left in self.directory.glob(pattern):
                    left.unlink()
        self.layout = self._layout(options)
        self.aware = options.aware or (NODES if len(self.names) > 1 else NO_LEVEL)
        capacity = capacity_blocks(self.hosts.count(self.host), self.layout)
        self.stock = Stock(self.directory, self.host, self.layout, capacity)
        again = self.first_on_node and link.greeting["resume"]
        self.stock.take(comm, link.greeting["homes"], looking=again)
        placement = self._place(comm, options)
        self.layout = placement.layout
        job.set_link(link.socket.fileno())
        self._make_node(comm, placement)
        super().__init__(self.directory, link.key, proc)
        link.gone, link.over = self._gone, self._over
        link.stopped = lambda: stopped(self.ctl, self.node)
        link.waits = lambda: job.waits(self.ctl, self.me)
        self.stock.hold(proc, self.hosts, self.holders(), self.servers(), strays=self.first_on_node)
        job.comm_prepare()
        self.everyone: Any = mpi.Comm.fromhandle(job.comm_parent())
        self.asking: Asking | None = None
        self._reach_nodes(comm)
        self.take_seat()

    def _supervisors_clock(self) -> int:
        return int(self.link.request("clock")["ns"])

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

    def _place(self, comm: Any, options: settings.Options) -> Placement:
        """Seat all roles. The first process tells where awareness falls short."""
        text = self.link.greeting["topology"]
        self.domains: Domains = domains_of_nodes(self.hosts)
        if text:
            self.domains = read_topology(options.topology, text).domains(self.hosts)
        where = {role: host for role, (host, _) in self.stock.found.items()}
        placement = seating.seat_launch(self.layout, self.hosts, where, self.domains, self.aware)
        if self.proc == 0:
            self.link.send(**plain(Seats(placement.layout.slot_group)))
            if placement.shortfall:
                self.tell(placement.shortfall)
        return placement

    # -- what the processes of a node share -----------------------------------------------------

    @property
    def first_on_node(self) -> bool:
        """This process is the lowest of its node."""
        return self.hosts.index(self.hosts[self.proc]) == self.proc

    @property
    def node(self) -> int:
        return self.names.index(self.host)

    def host_of(self, proc: Proc) -> str:
        return self.hosts[proc]

    def node_of(self, proc: Proc) -> int:
        return self.names.index(self.hosts[proc])

    def _make_node(self, comm: Any, placement: Placement) -> None:
        """Make this node's control file, ledger and agent, and have the agents find each other."""
        options, nodes = self.options, len(self.names)
        least = logs.log_least()
        room = min(comm.allgather(log_bytes(self.directory, self.layout.slots, least)))
        near, mine, slots = self.link.socket.getsockname()[0], "", self.layout.slots
        bind = replace(options.bind, where=options.bind.here(own_addresses(), near))
        agent = NodeAgent(self.directory, self.link.key, bind, self.node, self._without_agent,
                          self._agent_followed)
        if self.first_on_node:
            path = self.directory / "control"
            path.unlink(missing_ok=True)  # of a launch before
            here = self.hosts.count(self.host)
            ctl = make_control(path, self.layout, options.log_budget or room, here)
            self._fill_control(ctl, placement)
            if nodes > 1:
                agent.make(slots + len(self.hosts), slots + nodes, mirrored.regions(ctl))
                ledger = wire.ledger_open(self.directory / "ledger")
                wire.ledger_clocks(ledger, "control", slots, *mirrored.clocks())
                wire.ledger_close(ledger)
                mine = agent.start().text()
        found = {host: text for host, text in comm.allgather((self.host, mine)) if text}
        self.addresses = [links.Address.parse(found[name]) for name in self.names if name in found]
        if nodes > 1:
            agent.join(self.addresses[self.node], self.addresses[0])

    def _fill_control(self, ctl: Control, placement: Placement) -> None:
        seat(ctl, placement)
        killrules.write(ctl, self.options.kill)
        ctl.resume = int(self.link.greeting["resume"])
        ctl.supervisor = ALONE
        ctl.attempt = int(self.link.greeting["entry"])
        ctl.nodes = len(self.names)
        for proc, host in enumerate(self.hosts):
            ctl.proc[proc].node = self.names.index(host)
            ctl.proc[proc].state = job.State.ALIVE  # all have come, or this would not be reached

    def _reach_nodes(self, comm: Any) -> None:
        """Have the descriptors by which this process and the agents reach each other."""
        self.service: Asking | None = None
        self.in_hand = 0  # the newest round of repair that this process has begun
        self.timeline = 0  # the newest one in which all went back, or 0
        if len(self.names) == 1:
            return
        self.ledger = wire.ledger_open(self.directory / "ledger")
        self.service = self._ask_as(self.layout.slots + self.proc, 0)
        nodes = [self.names.index(host) for host in self.hosts]
        self.files = Files(self.service.origin, self.ledger, nodes, self.node, self.layout.slots)
        self.files.alarmed = self._alarmed_anew
        poke = self.directory / f"poke-{self.proc}"
        poke.unlink(missing_ok=True)
        os.mkfifo(poke, 0o600)
        self.poke = os.open(poke, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        bell = self.directory / "ledger.bell"
        self.bell = os.open(bell, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        job.set_nodes(0, wire.ledger_address(self.ledger))
        job.set_looks(*wire.mirror_scans(self.directory / "mirror"))
        comm.Barrier()  # whoever is poked by now has a way to be

    def _ask_as(self, origin: int, incarnation: int) -> Asking:
        """An origin of the wire. Behind the slots each node is a target, for what it has beside
        windows."""
        slots, nodes = self.layout.slots, len(self.names)
        made = Asking(self.link.key, origin, incarnation, slots + nodes, nodes,
                      lambda node: self.addresses[node])
        for node in range(nodes):
            made.origin.locate(slots + node, node, 1)
        if self.timeline:  # or agents would take it for one of the time before
            made.origin.take_roles(self.timeline, forget=True)
        return made

    def take_seat(self) -> None:
        """Roles are new: know where the slots are, and reach them as the slot of this process."""
        self.tell_role()
        if self.service is None:
            return
        role, slot = self.role()
        if role == SLOT and self.asking is None:
            self.asking = self._ask_as(slot, self.round_asked())
            job.set_nodes(self.asking.origin.address, wire.ledger_address(self.ledger))
            # Of a node where nobody lives the agent may be gone, and nothing is shown there.
            living = {self.node_of(p) for p in self.procs_of_job() if self.alive(p)}
            for node in living if self.round_asked() else ():
                # What it shows other nodes is shown again, if need be: as something new.
                self._persist(self.asking.origin, partial(
                    Origin.number, target=self.layout.slots + node))
        with job.reserve_origin():
            for target, proc in enumerate(self.holders()):
                for asking in filter(None, (self.asking, self.service)):
                    asking.origin.locate(target, self.node_of(proc), 1)
        program = self.asking.origin.alarm if self.asking else -1
        job.set_agent(self.bell, self.poke, program, self.service.origin.alarm)

    def _agent_followed(self) -> None:
        if not self.ctl.request:
            self.emit(Agentdeath(self.host))
            self.tell(f"the agent of {self.host} died; another one goes on for it")

    def _without_agent(self, why: str) -> None:
        """Nobody reaches this node's parts any more: as good as a death, and so it is made one."""
        if is_full(self.directory):  # and would be in the next launch
            self.abort(CATASTROPHE, f"error: an agent ended: {no_room(self.host)}")
            return
        self.tell(f"error: agents of {self.host} end as soon as they are started: {why}")
        os.kill(os.getpid(), signal.SIGKILL)

    # -- a vault has the name of its role, by which the next launch knows it ---------------------

    def vault_path(self, proc: Proc) -> Path:
        role, index = job.role_of(self.ctl, proc)
        if role in (SLOT, CHECKSUM):
            return self.stock.path((ROLE_NAMES[role], index))
        return self.directory / f"vault-{proc}"

    def name_vault(self) -> None:
        """This process has come to a role: its vault takes the name of it, and the place of the
        one before."""
        before = self.directory / f"vault-{self.proc}"
        with contextlib.suppress(FileNotFoundError):
            before.rename(self.vault_path(self.proc))
            self.place_vault()

    def lose_vault(self, proc: Proc) -> None:
        """What took its role takes its place, or, on another node, `tidy` removes it."""

    def let_on(self, *, causally: bool) -> None:
        for slot in self.slots_here() if self.service and self.leads_node else ():
            # Where all go back the leader clears the word, maybe on another node.
            if not causally or not self.ctl.slots[slot].replaying:
                self._ask(partial(Origin.hold, target=slot, hold=False))

    def tidy(self) -> None:
        """As the first living of the node: remove vaults and demand checkpoints of roles that are
        on other nodes now."""
        for role in salvage.roles_of(self.layout) if self.leads_node else ():
            table = self.roles.slot_proc if role[0] == "slot" else self.roles.checksum_proc
            if self.hosts[table[role[1]]] != self.host:
                self.stock.path(role).unlink(missing_ok=True)
                if role[0] == "slot":
                    for left in self.directory.glob(f"demand-{role[1]}-*"):
                        left.unlink()

    @property
    def leads_node(self) -> bool:
        """This process is the lowest living one of its node."""
        here = [p for p in self.procs_of_job() if self.hosts[p] == self.host and self.alive(p)]
        return min(here) == self.proc

    # -- what differs from one node -------------------------------------------------------------

    def commits(self, checksum: int) -> bool:
        """The first one alone."""
        return checksum == 0

    def synchronize(self) -> None:
        if not job.synchronize():
            self.unwind_if_alarmed()

    def freeze(self) -> None:
        """Who commits is in the repair itself, or dead."""

    def new_timeline(self, number: int) -> None:
        """All go back: have the agents forget what belongs to the timeline that ends here."""
        if self.service is None:
            return
        if self.timeline < number:
            self.timeline = number
            with job.reserve_origin():
                for asking in filter(None, (self.asking, self.service)):
                    asking.origin.take_roles(number, forget=True)
        if self.leads_node:
            self._ask(lambda o: o.tell_roles(self.node, number, forget=True))
            for slot in set(self.slots_of_job()) - set(self.slots_here()):
                farlogs.path_of(self.directory, slot).unlink(missing_ok=True)

    def begin_entry(self, number: int) -> None:
        self.link.send("entry", number=number)  # first: it is never given again
        super().begin_entry(number)

    def open_trace(self) -> None:
        address = links.find()
        assert address
        logs.trace_to(links.trace_stream(address, self.link.key, self.proc))
        os.register_at_fork(after_in_child=partial(logs.trace_to, -1))

    def _ask(self, call: Callable[[Origin], object], *, insist: bool = False) -> None:
        assert self.service
        self._persist(self.service.origin, call, insist=insist)

    def _persist(
        self, origin: Origin, call: Callable[[Origin], object], *, insist: bool = False
    ) -> None:
        """Ask an agent of something; it answers at once, or its successor does.

        Args:
            insist: also while another failure is pending.

        Raises:
            RoundChanged: another failure came meanwhile.
        """
        origin.set_timeout(wire.FOREVER)  # whatever was asked before it
        while True:
            try:
                call(origin)
                return
            except wire.Unfinished as error:
                if error.result is not wire.WireResult.ALARM:
                    raise
                origin.clear_alarm()
                if self._alarmed_anew() and not insist:
                    raise RoundChanged from None

    def slots_here(self) -> list[Slot]:
        """Slots whose holder is on this node."""
        return [s for s, p in zip(self.slots_of_job(), self.holders(), strict=True)
                if self.hosts[p] == self.host]

    def begin_round(self) -> int:
        if self.files:
            self.files.hush()
        self.in_hand = self.round_asked()
        return self.in_hand

    def _alarmed_anew(self) -> bool:
        return self.round_asked() not in (self.in_hand, job.ENDED)

    def hold(self) -> None:
        for slot in self.slots_here() if self.service and self.leads_node else ():
            if not self.alive(self.roles.slot_proc[slot]):
                self._ask(partial(Origin.hold, target=slot, hold=True))

    def live(self, slot: Slot) -> None:
        if self.service:
            self._ask(partial(Origin.hold, target=slot, hold=False), insist=True)
        for other in set(self.slots_of_job()) - set(self.slots_here()):
            farlogs.path_of(self.directory, other).unlink(missing_ok=True)

    def place_log(self, slot: Slot) -> None:
        if self.files:
            self.files.place(File.LOG, slot, farlogs.path_of(self.directory, slot))

    def fetch_log(self, slot: Slot) -> None:
        node = self.node_of(self.roles.slot_proc[slot])
        if self.files and node != self.node:
            farlogs.fetch(self.files, node, slot, self.directory)

    def enter(self, version: int, restore_s: float) -> None:
        """The program begins, at this checkpoint, which it took so long to restore."""
        if self.first_on_node:
            self.store("start_ns", job.now_ns())
        if self.proc == 0:
            self.link.send("entered", version=version, restore_s=restore_s)

    def tell_role(self) -> None:
        """Tell the supervisor which role this process has."""
        role, index = self.role()
        self.link.send("role", role=ROLE_NAMES[role], index=index)

    def repairing(self, number: int) -> None:
        self.link.send("repairing", round=number)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        done, files = threading.Event(), self.files

        def tell() -> None:
            had = 0
            while not done.wait(WORKING_S):
                if not files or not files.reading or files.pieces > had:
                    self.link.send("working")
                had = files.pieces if files else 0

        with contextlib.suppress(RuntimeError):  # no thread can be started: it is not told
            Helper(tell).start()
        try:
            yield
        finally:
            done.set()

    def repaired(self, number: int) -> None:
        dead = [p for p in self.procs_of_job() if not self.alive(p)]
        self.link.send("repaired", round=number, dead=dead)

    def _gone(self, rank: int, leaving: int) -> None:
        """A process has died alone on its node. By a thread."""
        if leaving:
            self.ctl.proc[rank].leaving = leaving
        job.note_death(rank)
        Helper(self._look_for_agent, Proc(rank)).start()

    def _look_for_agent(self, proc: Proc) -> None:
        """Tell the supervisor if the agent of that node answers the alarm."""
        deadline, alarm = time.monotonic() + THERE_S, self.round_asked()
        while self.ctl.looked[self.node_of(proc)] < alarm and time.monotonic() < deadline:
            time.sleep(0.005)
        if self.ctl.looked[self.node_of(proc)] >= alarm:
            self.link.send("there", rank=proc)

    def lost_spare(self, proc: Proc) -> None:
        self.link.send("spared", rank=proc)

    def claim_error(self, *, meanwhile: Callable[[], object] | None = None) -> bool:
        # It is granted when no death is open, of which this process may not know yet.
        answer = self.link.request("claim", entry=self.ctl.attempt, meanwhile=meanwhile)
        return bool(answer["granted"])

    def release_error(self) -> None:
        self.link.send("release")

    def abort(self, status: int, why: str = "") -> None:
        self.link.send("abort", status=status, why=why)
        self._over()

    def _over(self) -> None:
        """The launch ends: whose death is noticed from here on has not failed."""
        self.exchange("request", job.Request.NOTHING, job.Request.ABORT)

    def ask_for_relaunch(self, reason: str) -> None:
        self.link.send("relaunch", reason=reason)
        self.store("request", job.Request.RELAUNCH)

    def ask_for_end(self, request: job.Request, status: int) -> None:
        kind, reason = self.plan.kind, self.plan.reason
        if request == job.Request.RELAUNCH:
            self.link.send("relaunch", reason=reason)
        else:
            self.link.send("abort", status=status, why=job_end.why_given_up(kind, reason))
        self.store("request", request)

    def emit(self, event: Event) -> None:
        self.link.send(**plain(event))

    def events(self) -> list[Event]:
        found = map(parse, self.link.request("events")["events"])
        return [event for event in found if event]

    def leave(self) -> None:
        """Say goodbye; when all have, the supervisor ends this process."""
        role, slot = self.role()
        peak_bytes = int(self.ctl.slots[slot].peak_bytes) if role == SLOT else 0
        self.link.goodbye(peak_bytes=peak_bytes)
        time.sleep(LEAVE_S)
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
