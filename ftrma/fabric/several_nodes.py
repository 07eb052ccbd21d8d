"""Implements the view of a job whose processes are on several nodes.

No memory is shared by all processes. Each node has a directory like that of a job on one node, with
a control file that the node's processes map, and the nodes' agents keep these files equal
(``csrc/wire/mirror.c``). So `SeveralNodesView` does most things by the control file, as
`one_node.OneNodeView` does. There are three differences:

* Other nodes see a store a little later, but they see the stores of one process in their order. A
  process that must know that its stores are seen waits for that (`synchronize`).
* If several processes could write a word at the same time, one of them is chosen to write it. For
  example, only the first checksum rank commits.
* The supervisor learns of the end of each process through the process's link, and tells the others.
  Processes ask through the link for the end of the job, and for its next launch.

The first process of each node makes the files that the node's processes share, and starts the
node's agent, by which other nodes reach the node's windows, vaults and logs (`agents`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..host import timeouts
from ..host.errors import CATASTROPHE, FtrmaError, no_room
from ..host.helper import Helper
from ..host.listening import Bind, own_addresses
from ..host.sharedmemory import is_full
from ..machine.placement import Placement
from ..machine.topology import Domains
from ..native import job, loading, logs, mirrored, wire
from ..native.constants import CHECKSUM, ROLE_NAMES, SLOT
from ..native.shared import Control, Proc, Slot
from . import link as links
from . import remote_logs, saved
from .absence import stopped
from .agent_access import AgentAccess, origins_of
from .agents import NodeAgent
from .control_file import log_bytes, make_control, write_roles
from .control_words import ControlWords
from .link import Link
from .node_table import NodeTable
from .one_node import OneNodeView
from .post_office import PostOffice
from .remote import File
from .story import Agentdeath, Event, parse, plain

WORKING_S = 2.0  # how often the supervisor is told that a repair is bringing bytes
ON_OTHER_NODE = -1  # in place of the supervisor's pid


class MirroredWords(ControlWords):
    """Words of a job in the control files of all its nodes."""

    def forbid_commits(self) -> None:
        """Do nothing: the process that commits takes part in the repair, or is dead."""


class SeveralNodesView(OneNodeView):
    """One process's view of a job over several nodes, see `view.JobView`.

    Args:
        link: this process's link to the supervisor.
        table: which process is on which node.
        placement: the roles that this launch begins with.
        domains: failure domains of each process.
        aware: level up to which no domain may hold more than m members of a group.
        bind: the address at which this node's agent listens.
        log_budget: budget of each slot's logs in bytes; None: the default.
        write_rules: writes the rules of ``--kill`` into a new control file.

    Attributes:
        layout: the job's layout, with the groups in force.
        everyone: mpi4py communicator of all processes, in the order of the MPI world.
        agents: reaches the agents; None in a job whose processes are all on one node. (There may be
            an agent even then, if the user wants one to watch them.)

    MPI: collective over all processes.
    """

    def __init__(
        self, link: Link, table: NodeTable, placement: Placement, domains: Domains, aware: str, *,
        bind: Bind, log_budget: int | None, write_rules: Callable[[Control], object],
    ) -> None:
        self.link, self.table = link, table
        self.critical = link.critical
        self.layout = placement.layout
        self.domains, self.aware = domains, aware
        mpi = loading.import_mpi()
        job.set_link(link.socket.fileno())
        self._make_node(mpi.COMM_WORLD, placement, bind, log_budget, write_rules)
        super().__init__(table.directory, link.key, table.proc)
        self.words = MirroredWords(self.ctl, table.proc)
        link.gone, link.lost, link.over = self._gone, self._lost, self._over
        link.stopped = lambda: stopped(self.ctl, table.node)
        link.waits = lambda: job.waits(self.ctl, self.ctl.proc[self.proc])
        link.saved = self._saved
        job.comm_prepare()
        self.everyone: Any = mpi.Comm.fromhandle(job.comm_parent())
        self.agents: AgentAccess | None = None
        if self.several_nodes:
            self.agents = AgentAccess(link.key, table, self.addresses, self.layout.slots,
                                      self.requested_round)
            self.remote_files = self.agents.files
            self.post_office = PostOffice(
                self.agents, self.alive, self.alarmed, lambda: int(self.words.attempt),
                lambda: self.bell, self.wait_for_bell)
            mpi.COMM_WORLD.Barrier()  # from here on agents can wake every process
        self.reach_holders()

    @staticmethod
    def of_job(directory: Path) -> Path:
        return directory.parent

    # -- the node -----------------------------------------------------------------------------

    def host_of(self, proc: Proc) -> str:
        return self.table.hosts[proc]

    def lost_with_node(self, proc: Proc) -> bool:
        return self.ctl.scanned[self.table.node_of(proc)] == mirrored.LOST

    @property
    def several_nodes(self) -> bool:
        return len(self.table.names) > 1

    def _make_node(self, comm: Any, placement: Placement, bind: Bind, log_budget: int | None,
                   write_rules: Callable[[Control], object]) -> None:
        """Make this node's control file, ledger and agent, and have the agents find each other."""
        table, slots = self.table, self.layout.slots
        least, has_agent = logs.log_least(), self.several_nodes or self.link.greeting["watched"]
        room = min(comm.allgather(log_bytes(table.directory, slots, least)))
        near, mine = self.link.socket.getsockname()[0], ""
        bind = replace(bind, where=bind.here(own_addresses(), near))
        agent = NodeAgent(table.directory, self.link.key, bind, table.node, self._without_agent,
                          self._agent_followed)
        if table.first_on_node:
            path = table.directory / "control"
            path.unlink(missing_ok=True)  # of a launch before
            ctl = make_control(path, self.layout, log_budget or room, table.processes_here)
            self._fill_control(ctl, placement)
            write_rules(ctl)
            if has_agent:
                agent.make(origins_of(slots, len(table.hosts)), slots + len(table.names),
                           mirrored.regions(ctl))
                ledger = wire.ledger_open(table.directory / "ledger")
                wire.ledger_clocks(ledger, "control", slots, *mirrored.clocks())
                wire.ledger_close(ledger)
                mine = agent.start().text()
        found = {host: text for host, text in comm.allgather((table.host, mine)) if text}
        self.addresses = [links.Address.parse(found[name]) for name in table.names if name in found]
        if has_agent:
            agent.join(self.addresses[table.node], self.addresses[0])

    def _fill_control(self, ctl: Control, placement: Placement) -> None:
        write_roles(ctl, placement)
        ctl.resume = int(self.link.greeting["resume"])
        ctl.supervisor = ON_OTHER_NODE
        ctl.attempt = int(self.link.greeting["entry"])
        ctl.nodes = len(self.table.names)
        for proc, node in enumerate(self.table.nodes):
            ctl.proc[proc].node = node
            ctl.proc[proc].state = job.ProcessState.ALIVE  # all have called MPI together

    def reach_holders(self) -> None:
        role, index = self.role()
        self.link.send("role", role=ROLE_NAMES[role], index=index)
        if self.agents:
            living = {p for p in self.all_procs() if self.alive(p)}
            slot = Slot(index) if role == SLOT else None
            self.agents.reach_holders(slot, self.slot_holders(), living)

    def _agent_followed(self) -> None:
        if not self.ctl.request:
            self.emit(Agentdeath(self.table.host))
            self.tell(f"the agent of {self.table.host} died; another one goes on for it")

    def _without_agent(self, why: str) -> None:
        """End this process: no other node reaches a node without an agent, as if it were dead."""
        if is_full(self.directory):  # memory would be full in the next launch, too
            self.abort(CATASTROPHE, f"error: an agent ended: {no_room(self.table.host)}")
            return
        self.tell(f"error: agents of {self.table.host} end as soon as they are started: {why}")
        os.kill(os.getpid(), signal.SIGKILL)

    # -- vaults: each has the name of its role, by which the next launch knows it --------------

    def vault_path(self, proc: Proc) -> Path:
        role, index = job.role_of(self.ctl, proc)
        if role == SLOT:
            return self.directory / f"{ROLE_NAMES[role]}-{index}"
        if role == CHECKSUM:
            return self.directory / self.layout.parity_file(index)
        return self.directory / f"vault-{proc}"

    def rename_vault(self) -> None:
        before = self.directory / f"vault-{self.proc}"
        with contextlib.suppress(FileNotFoundError):
            before.rename(self.vault_path(self.proc))
            self.share_vault()

    def put_vault_aside(self, proc: Proc) -> None:
        """Do nothing: the vault stays until another replaces it, or `remove_moved_vaults` removes
        it."""

    def hold_accesses(self) -> None:
        if self.agents and self.leads_node:
            for slot in self.slots_here():
                if not self.alive(self.slot_holders()[slot]):
                    self.agents.hold(slot)

    def release_accesses(self, *, causally: bool) -> None:
        if self.agents and self.leads_node:
            for slot in self.slots_here():
                # If all slots go back, the leader clears this word; that may be on another node.
                if not causally or not self.ctl.slots[slot].replaying:
                    self.agents.release(slot)

    def release_accesses_to(self, slot: Slot) -> None:
        if self.agents:
            self.agents.release(slot, insist=True)
        self._remove_logs_of_others()

    def remove_moved_vaults(self) -> None:
        if not self.leads_node:
            return
        for slot, proc in enumerate(self.slot_holders()):
            if not self._is_here(proc):
                (self.directory / f"slot-{slot}").unlink(missing_ok=True)
                for left in self.directory.glob(f"demand-{slot}-*"):
                    left.unlink()
        for checksum, proc in enumerate(self.checksum_holders()):
            if not self._is_here(proc):
                (self.directory / self.layout.parity_file(checksum)).unlink(missing_ok=True)

    def _is_here(self, proc: Proc) -> bool:
        return self.table.hosts[proc] == self.table.host

    @property
    def leads_node(self) -> bool:
        here = [p for p in self.all_procs() if self._is_here(p) and self.alive(p)]
        return min(here) == self.proc

    # -- what differs from a job on one node ----------------------------------------------------

    def may_commit(self, checksum: int) -> bool:
        return checksum == 0

    def synchronize(self) -> None:
        if not job.synchronize():
            self.unwind_if_alarmed()

    def end_attempt(self, number: int) -> None:
        if self.agents:
            self.agents.end_attempt(number)
            if self.leads_node:
                self.agents.tell_attempt_ended(number)
                self._remove_logs_of_others()

    def _remove_logs_of_others(self) -> None:
        """Remove the logs of slots on other nodes that a replay had brought here."""
        for slot in set(self.all_slots()) - set(self.slots_here()):
            remote_logs.path_of(self.directory, slot).unlink(missing_ok=True)

    def begin_attempt(self, number: int) -> None:
        self.link.send("entry", number=number)  # first of all, so that no number is used twice
        super().begin_attempt(number)

    def open_trace(self) -> None:
        address = links.find()
        assert address
        stream = links.trace_stream(address, self.link.key, self.proc)
        logs.trace_to(stream)
        os.register_at_fork(after_in_child=partial(logs.trace_to, -1))
        os.register_at_fork(after_in_child=partial(os.close, stream))

    def trace_of_late(self, number: int) -> int:
        address = links.find()
        assert address
        return links.trace_stream(address, self.link.key, number, int(self.words.attempt))

    def slots_here(self) -> list[Slot]:
        return [s for s, p in zip(self.all_slots(), self.slot_holders(), strict=True)
                if self._is_here(p)]

    def begin_round(self) -> int:
        return self.agents.begin_round() if self.agents else self.requested_round()

    def share_log(self, slot: Slot) -> None:
        if self.remote_files:
            self.remote_files.share(File.LOG, slot, remote_logs.path_of(self.directory, slot))

    def fetch_log(self, slot: Slot) -> None:
        node = self.table.node_of(self.slot_holders()[slot])
        if self.remote_files and node != self.table.node:
            remote_logs.fetch(self.remote_files, node, slot, self.directory)

    def report_start(self, version: int, restore_s: float) -> None:
        """Tell the supervisor that the program begins.

        Args:
            version: the checkpoint that it goes on from.
            restore_s: time that restoring the checkpoint took.
        """
        if self.table.first_on_node:
            self.words.start_ns = job.now_ns()
        if self.proc == 0:
            self.link.send("entered", version=version, restore_s=restore_s)

    def report_plan(self, number: int) -> None:
        self.link.send("repairing", round=number)

    @contextlib.contextmanager
    def report_work(self) -> Iterator[None]:
        done, files = threading.Event(), self.remote_files

        def tell() -> None:
            had = 0
            while not done.wait(WORKING_S):
                if not files or not files.reading or files.pieces > had:
                    self.link.send("working")
                had = files.pieces if files else 0

        with contextlib.suppress(RuntimeError):  # nothing is reported if no thread can be started
            Helper(tell).start()
        try:
            yield
        finally:
            done.set()

    def report_repaired(self, number: int) -> None:
        dead = [p for p in self.all_procs() if not self.alive(p)]
        self.link.send("repaired", round=number, dead=dead)

    def _saved(self, halt: bool) -> dict[str, Any]:
        """Set whether the job is to end behind its next checkpoint; return how much is saved."""
        if bool(self.ctl.halt) != halt:
            job.store(self.ctl, "halt", int(halt))
            job.ring()
        return asdict(saved.read(self.ctl))

    def _gone(self, rank: int, leaving: int) -> None:
        """Take note of a process that has died alone on its node; called by a thread."""
        if leaving:
            self.ctl.proc[rank].leaving = leaving
        job.note_death(rank)
        Helper(self._look_for_agent, Proc(rank)).start()

    def _lost(self, host: str, struck: list[int]) -> None:
        """Take note of a node that is lost; called by a thread.

        Args:
            struck: rules of ``--kill`` that have struck there; the node could not tell that itself.
        """
        for rule in struck:
            self.ctl.rules[rule].fired = 1
        job.note_lost(self.table.names.index(host))

    def _look_for_agent(self, proc: Proc) -> None:
        """Tell the supervisor if the agent of that process's node has answered the alarm."""
        deadline, alarm = time.monotonic() + timeouts.AGENT_THERE.s, self.requested_round()
        while self.ctl.scanned[self.table.node_of(proc)] < alarm and time.monotonic() < deadline:
            time.sleep(0.005)
        if self.ctl.scanned[self.table.node_of(proc)] >= alarm:
            self.link.send("there", rank=proc)

    def tell_deaths(self, tells: bool) -> None:
        super().tell_deaths(tells)
        self.link.send("tells", tells=tells)

    def report_lost_spare(self, proc: Proc) -> None:
        self.link.send("spared", rank=proc)

    def claim_error(self, *, meanwhile: Callable[[], object] | None = None) -> bool:
        # The supervisor grants the claim when no death is unrepaired. This process may not know yet
        # of such a death.
        answer = self.link.request("claim", entry=self.ctl.attempt, meanwhile=meanwhile)
        return bool(answer["granted"])

    def release_error(self) -> None:
        self.link.send("release")

    def abort(self, status: int, why: str = "") -> None:
        self.link.send("abort", status=status, why=why)
        self._over()

    def _over(self) -> None:
        """Note that the launch ends: deaths that are noticed from here on are no failures."""
        job.exchange(self.ctl, "request", job.Request.NOTHING, job.Request.ABORT)

    def ask_for_relaunch(self, reason: str) -> None:
        self.link.send("relaunch", reason=reason)
        self.words.request = job.Request.RELAUNCH

    def ask_for_end(self, request: job.Request, status: int, why: str) -> None:
        if request == job.Request.RELAUNCH:
            self.link.send("relaunch", reason=why)
        else:
            self.link.send("abort", status=status, why=why)
        self.words.request = request

    def emit(self, event: Event) -> None:
        self.link.send(**plain(event))

    def events(self) -> list[Event]:
        found = map(parse, self.link.request("events")["events"])
        return [event for event in found if event]

    def leave(self) -> None:
        """Say goodbye; the supervisor ends this process when all have said so."""
        role, slot = self.role()
        peak_bytes = int(self.ctl.slots[slot].peak_bytes) if role == SLOT else 0
        self.link.goodbye(peak_bytes=peak_bytes)
        time.sleep(timeouts.GOODBYE.s)
        raise FtrmaError("the supervisor did not answer a goodbye within "
                         f"{timeouts.GOODBYE.s:.0f} s")
