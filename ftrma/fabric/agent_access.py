"""Reaches the agents of all nodes, for one process of a job over several nodes.

A process has up to three origins of the wire. The first belongs to its slot: the data plane uses it
to reach windows on other nodes. The second belongs to the process itself: repairs use it to read
vaults and logs, and to ask agents to hold accesses back. The third is for the mail of a framework
(`post_office`). The slots are targets 0, 1, ...; behind them each node is a target, too, for
everything that a node has beside windows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..host.key import Key
from ..native import job, wire
from ..native.shared import Proc, Slot
from ..native.wire import Origin
from .agents import Asking
from .link import Address
from .node_table import NodeTable
from .remote import Files
from .round_changed import RoundChanged


def origins_of(slots: int, processes: int) -> int:
    """Return the number of origins that a job has."""
    return slots + 2 * processes


class AgentAccess:
    """The origins of a process, and the descriptors by which agents wake it.

    Args:
        key: the job's key.
        table: which process is on which node.
        addresses: addresses of the agents, by node.
        slots: number of slots of the job.
        requested_round: returns the newest round of repair that was asked for.

    Attributes:
        files: the way to files on other nodes.
    """

    NEWEST = 2**32 - 1  # the greatest incarnation: none comes after it

    def __init__(
        self, key: Key, table: NodeTable, addresses: Sequence[Address], slots: int,
        requested_round: Callable[[], int],
    ) -> None:
        self.key, self.table, self.addresses, self.slots = key, table, addresses, slots
        self.requested_round = requested_round
        self.begun_round = 0  # the newest round of repair that this process has begun
        self.attempt_round = 0  # newest round in which all slots went back, or 0
        self.of_slot: Asking | None = None
        self.own = self._origin(slots + table.proc, 0)
        directory = table.directory
        self.ledger = wire.ledger_open(directory / "ledger")
        self.files = Files(self.own.origin, self.ledger, table.nodes, table.node, slots)
        self.files.alarmed = self._is_newly_alarmed
        wakeup = directory / f"poke-{table.proc}"
        wakeup.unlink(missing_ok=True)
        os.mkfifo(wakeup, 0o600)
        self.wakeup, self.bell = _open_both(wakeup), _open_both(directory / "ledger.bell")
        job.set_nodes(0, wire.ledger_address(self.ledger))
        job.set_scans(*wire.mirror_scans(directory / "mirror"))

    def _origin(self, number: int, incarnation: int) -> Asking:
        nodes = len(self.table.names)
        made = Asking(self.key, number, incarnation, self.slots + nodes, nodes,
                      lambda node: self.addresses[node])
        for node in range(nodes):
            made.origin.locate(self.slots + node, node, 1)
        if self.attempt_round:  # else agents take the origin for one of an earlier attempt
            made.origin.take_roles(self.attempt_round, forget=True)
        return made

    def mail_origin(self, proc: Proc, incarnation: int) -> Asking:
        """Make anew the origin by which a process reaches the mail on other nodes.

        Args:
            incarnation: agents serve only the greatest one that has come.
        """
        return self._origin(self.slots + len(self.table.nodes) + proc, incarnation)

    def _origins(self) -> list[Origin]:
        return [asking.origin for asking in (self.of_slot, self.own) if asking]

    def reach_holders(self, slot: Slot | None, holders: Sequence[Proc], living: set[Proc]) -> None:
        """Learn where the slots are.

        Args:
            slot: the slot of this process; None if it holds none.
            holders: the process that holds each slot.
            living: the living processes.
        """
        if slot is not None and self.of_slot is None:
            self.of_slot = self._origin(slot, self.requested_round())
            job.set_nodes(self.of_slot.origin.address, wire.ledger_address(self.ledger))
            # The agent of a node whose processes have all died may be gone; it needs no requests.
            nodes = {self.table.node_of(p) for p in living}
            for node in nodes if self.requested_round() else ():
                # Numbers of requests continue behind those of the slot's dead process. So what the
                # slot shows once more in an exchange is taken as a new request.
                self._ask(self.of_slot, partial(Origin.number, target=self.slots + node))
        with job.reserve_origin():
            for target, proc in enumerate(holders):
                for origin in self._origins():
                    origin.locate(target, self.table.node_of(proc), 1)
        of_slot = self.of_slot.origin.alarm if self.of_slot else -1
        job.set_agent(self.bell, self.wakeup, of_slot, self.own.origin.alarm)

    # -- a repair -----------------------------------------------------------------------------

    def begin_round(self) -> int:
        """Begin the newest round of repair; the alarm that rang for it is silent from now on."""
        self.files.clear_alarm()
        self.begun_round = self.requested_round()
        return self.begun_round

    def _is_newly_alarmed(self) -> bool:
        return self.requested_round() not in (self.begun_round, job.ENDED)

    def hold(self, slot: Slot) -> None:
        """Have this node's agent hold accesses to a slot back."""
        self._ask(self.own, partial(Origin.hold, target=slot, hold=True))

    def release(self, slot: Slot, *, insist: bool = False) -> None:
        """Have this node's agent let accesses to a slot go on.

        Args:
            insist: also while another failure is pending.
        """
        self._ask(self.own, partial(Origin.hold, target=slot, hold=False), insist=insist)

    def end_attempt(self, number: int) -> None:
        """Have this process's origins forget the attempt that ends in this round of repair."""
        if self.attempt_round < number:
            self.attempt_round = number
            with job.reserve_origin():
                for origin in self._origins():
                    origin.take_roles(number, forget=True)

    def tell_attempt_ended(self, number: int) -> None:
        """Have the agent of this node forget the attempt that ends in this round of repair."""
        self._ask(self.own, lambda o: o.tell_roles(self.table.node, number, forget=True))

    def _ask(
        self, asking: Asking, call: Callable[[Origin], object], *, insist: bool = False
    ) -> None:
        """Ask an agent for something. The agent answers at once, or its successor does.

        Args:
            insist: also while another failure is pending.

        Raises:
            RoundChanged: another failure came meanwhile.
        """
        origin = asking.origin
        origin.set_timeout(wire.FOREVER)  # whatever was asked before
        while True:
            try:
                call(origin)
                return
            except wire.Unfinished as error:
                if error.result is not wire.WireResult.ALARM:
                    raise
                origin.clear_alarm()
                if self._is_newly_alarmed() and not insist:
                    raise RoundChanged from None


def _open_both(path: Path) -> int:
    """Open a FIFO at both ends, so that neither end is ever missing."""
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
