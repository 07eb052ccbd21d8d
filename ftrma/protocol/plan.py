"""The plan after a failure: from what is known to who takes which seat and how the job goes on.

Pure: it sees who is alive, whose vault is sound, which version is committed, and what stands
against the cheaper ways. `rounds` observes and does what is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..errors import CatastrophicFailure
from ..machine.placement import choose_spare
from ..machine.topology import NO_LEVEL, Domains, domains_of_nodes
from ..native.constants import PlanKind
from ..native.shared import Proc, Version
from ..vault.salvage import catastrophe
from . import ends

GO_BACK = (PlanKind.ROLLBACK, PlanKind.REENTRY)  # all do, to the top of the program
IN_PLACE = (PlanKind.CAUSAL, *GO_BACK)


@dataclass(frozen=True)
class Situation:
    """What a plan depends on.

    Attributes:
        slot_proc, checksum_proc: holders of the roles in force.
        slot_group: group of each slot.
        strength: m, checksum ranks of each group; c serves group c // m.
        alive: living processes.
        ready: living processes whose vault holds what their role must hold.
        spares: living processes without a role.
        committed: newest committed version; 0 is the start of the program.
        obstacle: why a lost slot cannot be replayed (see `causal`); empty if it can.
        hindrance: why nothing can be repaired in place; empty if it can.
        policy: "auto", "causal" or "rollback".
        claimant: the framework that recovers; empty if there is none.
        forfeit: it does so without a checkpoint, too.
        fresh: who goes back does so in fresh processes.
        starved: in words, that shared memory was full and somebody died of it; empty if nobody did.
        offered: not all have taken over their vaults from the launch before, where they stay whole.
        doomed: the slot that is killed again and again (see `ends`); None if there is none.
        domains: elements of each process; None: all run on one node.
        aware: the level up to which no element may hold too much of a group.
    """

    slot_proc: Sequence[Proc]
    checksum_proc: Sequence[Proc]
    slot_group: Sequence[int]
    strength: int
    alive: frozenset[Proc]
    ready: frozenset[Proc]
    spares: Sequence[Proc]
    committed: Version
    obstacle: str = "no logs"
    hindrance: str = ""
    policy: str = "auto"
    claimant: str = ""
    forfeit: bool = False
    fresh: bool = False
    starved: str = ""
    offered: bool = False
    doomed: int | None = None
    domains: Domains | None = None
    aware: str = NO_LEVEL

    def others(self, group: int) -> list[Proc]:
        """Living holders of a group's roles."""
        slots = [p for p, g in zip(self.slot_proc, self.slot_group, strict=True) if g == group]
        m = self.strength
        holders = [*slots, *self.checksum_proc[group * m : (group + 1) * m]]
        return [p for p in holders if p in self.alive]

    def apart(self, one: Proc, other: Proc) -> bool:
        """Two processes are on different nodes."""
        if self.domains is None:
            return False
        return self.domains.paths[one][:1] != self.domains.paths[other][:1]

    def spare_for(
        self, lost: Proc, group: int, spares: Sequence[Proc], *, home: bool = False
    ) -> Proc:
        """The spare that takes a dead holder's seat in a group; home: see `choose_spare`."""
        processes = 1 + max([*self.slot_proc, *self.checksum_proc, *spares])
        domains = self.domains or domains_of_nodes(["the node"] * processes)
        return Proc(choose_spare(
            lost, self.others(group), spares, self.strength, domains, self.aware, home=home
        ))


@dataclass(frozen=True)
class Plan:
    """What a repair round does.

    Attributes:
        kind: the way back, or why there is none.
        slot_proc, checksum_proc: the holders from now on.
        lost_slots, lost_checksums: roles whose vault must be rebuilt.
        reason: in words, where it is not CAUSAL.
        forfeited: the committed version is given up: all begin with empty vaults.
    """

    kind: PlanKind
    slot_proc: tuple[Proc, ...]
    checksum_proc: tuple[Proc, ...]
    lost_slots: tuple[int, ...] = ()
    lost_checksums: tuple[int, ...] = ()
    reason: str = ""
    failure: CatastrophicFailure | None = field(default=None, compare=False)
    forfeited: bool = False


def plan(now: Situation) -> Plan:
    """Say how the job goes on after a failure: the cheapest way that nothing stands against."""
    chosen = seat(now)
    if now.starved:
        return replace(chosen, kind=PlanKind.FULL, reason=now.starved)
    if now.doomed is not None:
        reason = (
            f"slot {now.doomed} was killed {ends.STRIKES} times running at the same place of its "
            "program, while it computed: most likely it needs more memory than there is, and the "
            "kernel killed it. Give it more, or use more slots"
        )
        return replace(chosen, kind=PlanKind.REPEATED, reason=reason)
    if chosen.failure and (now.domains is not None or now.offered):
        # What the dead have staged and stored is still on their nodes; the next launch looks.
        members = " and ".join(chosen.failure.members)
        lost = f"group {chosen.failure.group} lost {members} at once, too many to go on in place"
        # What cannot outlive one death may have brought the others about.
        return replace(chosen, kind=PlanKind.RELAUNCH, reason=now.hindrance or lost)
    if chosen.kind in IN_PLACE and now.hindrance:
        return replace(chosen, kind=PlanKind.RELAUNCH, reason=now.hindrance)
    if chosen.kind == PlanKind.ROLLBACK and now.policy == "causal":
        return replace(chosen, kind=PlanKind.REFUSED)
    if chosen.kind == PlanKind.ROLLBACK and now.fresh:
        return replace(chosen, kind=PlanKind.RELAUNCH)
    if chosen.kind == PlanKind.ROLLBACK and now.claimant:
        return replace(chosen, kind=PlanKind.REENTRY)
    return chosen


def seat(now: Situation) -> Plan:
    """Seat spares in vacant roles, slots first, and say what must be rebuilt."""
    lost_slots = tuple(s for s, p in enumerate(now.slot_proc) if p not in now.ready)
    lost_checksums = tuple(c for c, p in enumerate(now.checksum_proc) if p not in now.ready)
    same = (tuple(now.slot_proc), tuple(now.checksum_proc), lost_slots, lost_checksums)
    lost: dict[int, list[str]] = {g: [] for g in range(len(now.checksum_proc) // now.strength)}
    for s in lost_slots:
        lost[now.slot_group[s]].append(f"slot {s}")
    for c in lost_checksums:
        lost[c // now.strength].append(f"checksum {c}")
    failure = catastrophe(lost, now.strength, now.committed) if now.committed else None
    if failure and (now.offered or not now.forfeit):
        return Plan(PlanKind.CATASTROPHIC, *same, reason=str(failure), failure=failure)
    spares = list(now.spares)
    slot_proc, checksum_proc = list(now.slot_proc), list(now.checksum_proc)
    vacant = [(slot_proc, s, now.slot_group[s]) for s in range(len(slot_proc))]
    vacant += [(checksum_proc, c, c // now.strength) for c in range(len(checksum_proc))]
    for seats, i, group in vacant:
        if seats[i] in now.alive:
            continue
        if not spares:
            reason = "no spare is left to take a dead rank's place"
            return Plan(PlanKind.RELAUNCH, *same, reason=reason)
        # A slot is replayed where its logs are.
        seats[i] = now.spare_for(seats[i], group, spares, home=seats is slot_proc)
        spares.remove(seats[i])
    seats_now = tuple(slot_proc), tuple(checksum_proc), lost_slots, lost_checksums
    moved = [s for s in lost_slots if now.apart(now.slot_proc[s], slot_proc[s])]
    if failure:
        lost_now = f"group {failure.group} lost {' and '.join(failure.members)} at once"
        reason = f"{lost_now}, and with them checkpoint {now.committed}"
        return Plan(PlanKind.ROLLBACK, *seats_now, reason=reason, forfeited=True)
    if now.obstacle:
        return Plan(PlanKind.ROLLBACK, *seats_now, reason=now.obstacle)
    if moved:
        reason = (f"slot {moved[0]} comes back on another node than that of its logs; with a spare "
                  "left on its own it would be replayed")
        return Plan(PlanKind.ROLLBACK, *seats_now, reason=reason)
    return Plan(PlanKind.CAUSAL, *seats_now)


def reseat(now: Situation) -> tuple[int, Proc] | None:
    """Say which vacant checksum seat is taken next, and by which spare, while the slots go on.

    Returns:
        The checksum rank and the process; None if no seat is vacant, or no spare is left.
    """
    for c, holder in enumerate(now.checksum_proc):
        if holder not in now.alive and now.spares:
            return c, now.spare_for(holder, c // now.strength, now.spares)
    return None
