"""Decides what a job goes on with where hosts are lost: on which of the others how many processes.

A job keeps its strength as long as it may: the hosts that are left take all processes, those first
that have slots to spare. With ``--oversubscribe no`` a host has no more processes than its slots.
Then the job gives up spares first, and after them checksum ranks, of each group equally many, down
to one. It is given up itself only where the slots and one checksum rank of each group have no room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..host.errors import NotRecoverable
from ..machine.topology import Layout, listed
from .mpirun import on_hosts, on_hosts_with


@dataclass(frozen=True)
class Room:
    """The room that the hosts of a job have for its processes.

    Attributes:
        slots: of each host, by its name for the launcher; None: they are not known, and all hosts
            take equally many processes.
        oversubscribe: hosts may have more processes than slots.
    """

    slots: Mapping[str, int] | None = None
    oversubscribe: bool = True

    def of(self, hosts: Sequence[str]) -> int | None:
        """Slots of some hosts together; None where they are not known."""
        if self.slots is None or not {*hosts} <= {*self.slots}:
            return None
        return sum(self.slots[host] for host in hosts)

    def taken(self, hosts: Sequence[str], together: bool = False) -> list[str]:
        """The hosts that a launch takes: all, or the largest one if its processes stay together."""
        if not together or not hosts:
            return [*hosts]
        slots = self.slots or {}
        return [max(hosts, key=lambda host: slots.get(host, 0))]

    def fitted(
        self, layout: Layout, hosts: Sequence[str], together: bool = False
    ) -> Layout | None:
        """The layout with which a job goes on on some hosts; None if there is no room for it.

        Args:
            together: all processes go to one host.
        """
        room = self.of(self.taken(hosts, together))
        return layout if self.oversubscribe or room is None else fit(layout, room)

    def layout_on(self, layout: Layout, hosts: Sequence[str], together: bool = False) -> Layout:
        """The layout with which a job goes on on some hosts; arguments: see `fitted`.

        Raises:
            NotRecoverable: there is no room for it; the remedy is named.
        """
        fitted, hosts = self.fitted(layout, hosts, together), self.taken(hosts, together)
        if fitted is None:
            raise NotRecoverable(
                f"{listed(hosts)} {has(hosts)} {self.of(hosts)} slots, and the job needs "
                f"{layout.slots + layout.groups} processes without its spares: --oversubscribe yes "
                "lets hosts have more processes than slots, and hosts with slots to spare make "
                "room")
        return fitted

    def words_on(self, words: Sequence[str], processes: int, hosts: Sequence[str],
                 together: bool = False) -> list[str]:
        """The launcher's options for so many processes on some hosts."""
        if together:  # the first host takes them
            first = self.taken(hosts, together)
            return on_hosts(words, list(dict.fromkeys((*first, *hosts))), processes, together=True)
        if self.slots is None or self.of(hosts) is None:
            return on_hosts(words, hosts, processes)
        return on_hosts_with(words, shares({host: self.slots[host] for host in hosts}, processes))

    def told(
        self, before: Layout, now: Layout, hosts: Sequence[str], together: bool = False
    ) -> str:
        """Say what a job goes on with on these hosts; empty if that is nothing new."""
        hosts = self.taken(hosts, together)
        room = self.of(hosts)
        if now != before:
            return (f"degraded: {listed(hosts)} {has(hosts)} {room} slots: the job goes on with "
                    f"{left_of(before, now)}")
        if room is not None and room < now.processes:
            return (f"{listed(hosts)} {has(hosts)} {room} slots for {now.processes} processes now "
                    "(--oversubscribe)")
        return ""


UNKNOWN = Room()


def fit(layout: Layout, room: int) -> Layout | None:
    """Make a layout smaller until it has no more processes than there is room; None if it cannot.

    Spares are given up before checksum ranks, and no more of either than need be.
    """
    for strength in range(layout.strength, 0, -1):
        spares = room - layout.slots - layout.groups * strength
        if spares >= 0:
            weaker = layout.with_strength(strength)
            return replace(weaker, spares=min(layout.spares, spares))
    return None


def shares(slots: Mapping[str, int], processes: int) -> dict[str, int]:
    """Share processes out to hosts: evenly to free slots, then by the number of slots."""
    taken = dict.fromkeys(slots, 0)
    for _ in range(processes):
        free = [host for host in slots if taken[host] < slots[host]]
        if free:
            taken[min(free, key=taken.__getitem__)] += 1
        else:
            taken[min(slots, key=lambda host: (taken[host] + 1) / slots[host])] += 1
    return taken


def left_of(before: Layout, now: Layout) -> str:
    """Say how much a layout has of what the one before had more of."""
    parts = []
    if now.spares < before.spares:
        parts.append(f"{now.spares} of {before.spares} spares")
    if now.strength < before.strength:
        parts.append(f"{now.strength} of {before.strength} checksum ranks for each group")
    return " and ".join(parts)


def has(hosts: Sequence[str]) -> str:
    """The verb behind some hosts."""
    return "has" if len(hosts) == 1 else "have"
