"""Plans the answer to a failure: who takes which role, and how the job goes on.

Pure: its input says who is alive, whose vault is sound, which version is committed, and what
prevents the cheaper kinds of recovery. `failure_state` observes this, and `leading` puts the plan
in force.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..host.errors import CatastrophicFailure
from ..native.constants import PlanKind
from ..native.shared import Proc, Version
from . import job_end
from .salvage import catastrophe
from .seating import Seating, seat_spares

GO_BACK = (PlanKind.ROLLBACK, PlanKind.REENTRY)  # all slots go back to the top of the program
IN_PLACE = (PlanKind.CAUSAL, *GO_BACK)


@dataclass(frozen=True)
class FailureState(Seating):
    """Everything that a plan depends on.

    Attributes:
        committed: newest committed version; 0 is the start of the program.
        obstacle: why a lost slot cannot be replayed (see `causal`); empty if it can.
        hindrance: why nothing can be repaired in place; empty if a repair in place is possible.
        policy: "auto", "causal" or "rollback".
        claimant: the framework that recovers; empty if there is none.
        forfeit: the framework can recover without a checkpoint, too.
        fresh: a rollback takes fresh processes.
        full_memory: words that say that somebody died because shared memory was full; empty if
            nobody did.
        offered: not all processes have taken over their vaults from the launch before, so the
            vaults are still whole there.
        lost_with_node: processes that died together with their whole node.
        hopeless: the slot that is killed again and again (see `job_end`); None if there is none.
    """

    committed: Version
    obstacle: str = "no logs"
    hindrance: str = ""
    policy: str = "auto"
    claimant: str = ""
    forfeit: bool = False
    fresh: bool = False
    full_memory: str = ""
    offered: bool = False
    lost_with_node: frozenset[Proc] = frozenset()
    hopeless: int | None = None


@dataclass(frozen=True)
class Plan:
    """The decision of a repair round.

    Attributes:
        kind: how the job recovers, or why it does not.
        slot_proc, checksum_proc: the holders of the roles from now on.
        lost_slots, lost_checksums: roles whose vault must be rebuilt.
        reason: why the kind is not CAUSAL, in words.
        forfeited: the committed version is given up, and all begin with empty vaults.
    """

    kind: PlanKind
    slot_proc: tuple[Proc, ...]
    checksum_proc: tuple[Proc, ...]
    lost_slots: tuple[int, ...] = ()
    lost_checksums: tuple[int, ...] = ()
    reason: str = ""
    failure: CatastrophicFailure | None = field(default=None, compare=False)
    forfeited: bool = False


def make_plan(now: FailureState) -> Plan:
    """Say how the job goes on after a failure: in the cheapest way that nothing prevents."""
    chosen = plan_seating(now)
    if now.full_memory:
        return replace(chosen, kind=PlanKind.FULL, reason=now.full_memory)
    if now.hopeless is not None:
        return replace(chosen, kind=PlanKind.REPEATED, reason=killed_too_often(now.hopeless))
    if chosen.failure and (now.domains is not None or now.offered):
        # The vaults of the dead are still on their nodes; the next launch looks for them.
        members = " and ".join(chosen.failure.members)
        lost = f"group {chosen.failure.group} lost {members} at once, too many to go on in place"
        # Something that cannot outlive one death may have caused the others.
        return replace(chosen, kind=PlanKind.RELAUNCH, reason=now.hindrance or lost)
    if chosen.kind in IN_PLACE and now.hindrance:
        return replace(chosen, kind=PlanKind.RELAUNCH, reason=now.hindrance)
    if chosen.kind == PlanKind.ROLLBACK:
        return replace(chosen, kind=way_back(now))
    return chosen


def way_back(now: FailureState) -> PlanKind:
    """Say in which way all slots go back."""
    if now.policy == "causal":
        lost = {now.slot_proc[slot] for slot in now.lost_slots} & now.lost_with_node
        return PlanKind.RELAUNCH if lost else PlanKind.REFUSED
    if now.fresh:
        return PlanKind.RELAUNCH
    return PlanKind.REENTRY if now.claimant else PlanKind.ROLLBACK


def killed_too_often(slot: int) -> str:
    """Say why a slot that is killed again and again is not replaced once more."""
    return (
        f"slot {slot} was killed {job_end.STRIKES} times running at the same place of its program, "
        "while it computed: most likely it needs more memory than there is, and the kernel killed "
        "it. Give it more, or use more slots"
    )


def plan_seating(now: FailureState) -> Plan:
    """Seat spares in vacant roles, and plan a causal recovery or a rollback."""
    as_it_is = Plan(PlanKind.CAUSAL, tuple(now.slot_proc), tuple(now.checksum_proc),
                    now.lost_slots, now.lost_checksums)
    failure = None
    if now.committed:
        failure = catastrophe(now.lost_members(), now.strength, now.committed)
    if failure and (now.offered or not now.forfeit):
        return replace(as_it_is, kind=PlanKind.CATASTROPHIC, reason=str(failure), failure=failure)
    seated = seat_spares(now)
    if seated is None:
        reason = "no spare is left to take a dead rank's place"
        return replace(as_it_is, kind=PlanKind.RELAUNCH, reason=reason)
    chosen = replace(as_it_is, slot_proc=seated[0], checksum_proc=seated[1])
    if failure:
        lost_now = f"group {failure.group} lost {' and '.join(failure.members)} at once"
        reason = f"{lost_now}, and with them checkpoint {now.committed}"
        return replace(chosen, kind=PlanKind.ROLLBACK, reason=reason, forfeited=True)
    if now.obstacle:
        return replace(chosen, kind=PlanKind.ROLLBACK, reason=now.obstacle)
    for slot in now.lost_slots:
        if now.on_different_nodes(now.slot_proc[slot], chosen.slot_proc[slot]):
            reason = f"the logs of slot {slot} were lost with its node" if (
                now.slot_proc[slot] in now.lost_with_node) else (
                f"slot {slot} comes back on another node than that of its logs; with a spare left "
                "on its own it would be replayed")
            return replace(chosen, kind=PlanKind.ROLLBACK, reason=reason)
    return chosen
