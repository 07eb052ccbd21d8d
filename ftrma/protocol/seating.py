"""Decides which process takes which role: at a launch, in a repair, and while the slots go on.

Pure. `machine.placement` chooses by failure domains; this module knows which roles are vacant, and
where their vaults and logs lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..machine.placement import Placement, choose_spare, level_held, place
from ..machine.topology import NO_LEVEL, Domains, Layout, domains_of_nodes
from ..native.shared import Proc
from .salvage import Role, elements, group_of, roles_of


@dataclass(frozen=True)
class Seating:
    """The holders of all roles, and the processes that could take one.

    Attributes:
        slot_proc, checksum_proc: holders of the roles in force.
        slot_group: group of each slot.
        strength: m, checksum ranks of each group; checksum rank c serves group c // m.
        alive: living processes.
        ready: living processes whose vault holds what their role must hold.
        spares: living processes without a role.
        domains: elements of the machine that each process belongs to; None: all run on one node.
        aware: the level up to which no element may hold more than m members of a group.
    """

    slot_proc: Sequence[Proc]
    checksum_proc: Sequence[Proc]
    slot_group: Sequence[int]
    strength: int
    alive: frozenset[Proc]
    ready: frozenset[Proc]
    spares: Sequence[Proc]
    domains: Domains | None = field(default=None, kw_only=True)
    aware: str = field(default=NO_LEVEL, kw_only=True)

    @property
    def groups(self) -> int:
        return len(self.checksum_proc) // self.strength

    @property
    def lost_slots(self) -> tuple[int, ...]:
        """Return the slots whose vault must be computed."""
        return tuple(s for s, p in enumerate(self.slot_proc) if p not in self.ready)

    @property
    def lost_checksums(self) -> tuple[int, ...]:
        """Return the checksum ranks whose vault must be computed."""
        return tuple(c for c, p in enumerate(self.checksum_proc) if p not in self.ready)

    def lost_members(self) -> dict[int, list[str]]:
        """Return the names of the roles that each group has lost, slots first."""
        lost: dict[int, list[str]] = {g: [] for g in range(self.groups)}
        for s in self.lost_slots:
            lost[self.slot_group[s]].append(f"slot {s}")
        for c in self.lost_checksums:
            lost[c // self.strength].append(f"checksum {c}")
        return lost

    def living_holders(self, group: int) -> list[Proc]:
        """Return the living holders of a group's roles."""
        m = self.strength
        slots = [p for p, g in zip(self.slot_proc, self.slot_group, strict=True) if g == group]
        holders = [*slots, *self.checksum_proc[group * m : (group + 1) * m]]
        return [p for p in holders if p in self.alive]

    def on_different_nodes(self, one: Proc, other: Proc) -> bool:
        if self.domains is None:
            return False
        return self.domains.paths[one][:1] != self.domains.paths[other][:1]

    def spare_for(
        self, lost: Proc, group: int, spares: Sequence[Proc], *, home: bool = False
    ) -> Proc:
        """Return the spare that takes a dead holder's role in a group; home: see `choose_spare`."""
        processes = 1 + max([*self.slot_proc, *self.checksum_proc, *spares])
        domains = self.domains or domains_of_nodes(["the node"] * processes)
        return Proc(choose_spare(
            lost, self.living_holders(group), spares, self.strength, domains, self.aware, home=home
        ))


def seat_spares(now: Seating) -> tuple[tuple[Proc, ...], tuple[Proc, ...]] | None:
    """Give all vacant roles to spares, slots first.

    Returns:
        Holders of the slots and of the checksum ranks from now on; None if there are too few
        spares.
    """
    spares = list(now.spares)
    slot_proc, checksum_proc = list(now.slot_proc), list(now.checksum_proc)
    roles = [(slot_proc, s, group) for s, group in enumerate(now.slot_group)]
    roles += [(checksum_proc, c, c // now.strength) for c in range(len(checksum_proc))]
    for holders, i, group in roles:
        if holders[i] in now.alive:
            continue
        if not spares:
            return None
        # A slot stays on its node if possible: its logs are there, so it can be replayed only
        # there.
        holders[i] = now.spare_for(holders[i], group, spares, home=holders is slot_proc)
        spares.remove(holders[i])
    return tuple(slot_proc), tuple(checksum_proc)


def next_checksum_seat(now: Seating) -> tuple[int, Proc] | None:
    """Choose the next vacant checksum rank to be taken while the slots go on, and the spare for it.

    Returns:
        The checksum rank and the process; None if none is vacant, or no spare is left.
    """
    for c, holder in enumerate(now.checksum_proc):
        if holder not in now.alive and now.spares:
            return c, now.spare_for(holder, c // now.strength, now.spares)
    return None


def seat_launch(
    layout: Layout, hosts: Sequence[str], found: Mapping[Role, str], domains: Domains, aware: str
) -> Placement:
    """Seat all roles of a launch: on the node where their vault was found, or by awareness.

    Args:
        layout: the layout; where vaults were found, with the groups in force.
        hosts: node of each process.
        found: node of each vault that was found; empty at the first launch.
        domains: elements of each process; aware: the level wished for.
    """
    if not found:
        return place(layout, domains, aware)
    taken, spares = seat_at_vaults(layout, hosts, found)
    for role in roles_of(layout):
        if role not in taken:
            others = [taken[r] for r in elements(layout, group_of(layout, role)) if r in taken]
            chosen = choose_spare(spares[0], others, spares, layout.strength, domains, aware)
            spares.remove(chosen)
            taken[role] = chosen
    slot_proc = tuple(taken["slot", s] for s in range(layout.slots))
    checksum_proc = tuple(taken["checksum", c] for c in range(layout.checksums))
    held = level_held(layout, slot_proc, checksum_proc, domains)
    seated = Placement(layout, slot_proc, checksum_proc, tuple(spares), held)
    if domains.height(held) < domains.height(aware):
        seated = replace(
            seated, shortfall=f"--aware {aware} holds up to {held} only on the nodes that are left"
        )
    return seated


def seat_at_vaults(
    layout: Layout, hosts: Sequence[str], found: Mapping[Role, str]
) -> tuple[dict[Role, int], list[int]]:
    """Seat the roles whose vault was found at their vaults, as far as those nodes have processes.

    Returns:
        The process of each role that was seated in this way, and the other processes in rising
        order.
    """
    free = {host: [p for p, h in enumerate(hosts) if h == host] for host in dict.fromkeys(hosts)}
    taken: dict[Role, int] = {}
    for role in roles_of(layout):
        if free.get(found.get(role, "")):
            taken[role] = free[found[role]].pop(0)
    return taken, sorted(p for left in free.values() for p in left)
