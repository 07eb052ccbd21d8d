"""Decides with what a job goes on when hosts are lost: how many processes on which other hosts.

A job keeps its strength as long as it may: the remaining hosts take all processes, and those with
free slots are filled first. With ``--oversubscribe no`` a host gets no more processes than it has
slots. Then the job gives up spares first, and after them checksum ranks, equally many of each
group, down to one. The job itself is given up only if there is no room for the slots and one
checksum rank of each group.
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
        slots: slots of each host, by the launcher's name for the host; None: they are not known,
            and all hosts take equally many processes.
        oversubscribe: whether hosts may have more processes than slots.
    """

    slots: Mapping[str, int] | None = None
    oversubscribe: bool = True

    def of(self, hosts: Sequence[str]) -> int | None:
        """Return the total slots of some hosts; None if they are not known."""
        if self.slots is None or not {*hosts} <= {*self.slots}:
            return None
        return sum(self.slots[host] for host in hosts)

    def taken(self, hosts: Sequence[str], together: bool = False) -> list[str]:
        """Return the hosts that a launch takes: all, or the largest one if its processes stay
        together."""
        if not together or not hosts:
            return [*hosts]
        slots = self.slots or {}
        return [max(hosts, key=lambda host: slots.get(host, 0))]

    def fitted(
        self, layout: Layout, hosts: Sequence[str], together: bool = False
    ) -> Layout | None:
        """Return the layout with which a job continues on some hosts; None if there is no room for
        one.

        Args:
            together: all processes go to one host.
        """
        room = self.of(self.taken(hosts, together))
        return layout if self.oversubscribe or room is None else fit(layout, room)

    def layout_on(self, layout: Layout, hosts: Sequence[str], together: bool = False) -> Layout:
        """Return the layout with which a job continues on some hosts; arguments: see `fitted`.

        Raises:
            NotRecoverable: there is no room for the job; the error names the remedy.
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
        """Return the launcher's options for so many processes on some hosts."""
        if together:  # the first host takes all of them
            first = self.taken(hosts, together)
            return on_hosts(words, list(dict.fromkeys((*first, *hosts))), processes, together=True)
        if self.slots is None or self.of(hosts) is None:
            return on_hosts(words, hosts, processes)
        return on_hosts_with(words, shares({host: self.slots[host] for host in hosts}, processes))

    def told(
        self, before: Layout, now: Layout, hosts: Sequence[str], together: bool = False
    ) -> str:
        """Say with which layout a job continues on these hosts; empty if it is unchanged."""
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
    """Shrink a layout until it has no more processes than there is room for; None if that is not
    possible.

    Spares are given up before checksum ranks, and no more of either than necessary.
    """
    for strength in range(layout.strength, 0, -1):
        spares = room - layout.slots - layout.groups * strength
        if spares >= 0:
            weaker = layout.with_strength(strength)
            return replace(weaker, spares=min(layout.spares, spares))
    return None


def shares(slots: Mapping[str, int], processes: int) -> dict[str, int]:
    """Distribute processes over hosts: evenly over free slots, then by the number of slots."""
    taken = dict.fromkeys(slots, 0)
    for _ in range(processes):
        free = [host for host in slots if taken[host] < slots[host]]
        if free:
            taken[min(free, key=taken.__getitem__)] += 1
        else:
            taken[min(slots, key=lambda host: (taken[host] + 1) / slots[host])] += 1
    return taken


def left_of(before: Layout, now: Layout) -> str:
    """Say how many checksum ranks and spares a layout has, if the one before had more."""
    parts = []
    if now.spares < before.spares:
        parts.append(f"{now.spares} of {before.spares} spares")
    if now.strength < before.strength:
        parts.append(f"{now.strength} of {before.strength} checksum ranks for each group")
    return " and ".join(parts)


def has(hosts: Sequence[str]) -> str:
    """Return the verb that follows the names of some hosts."""
    return "has" if len(hosts) == 1 else "have"
