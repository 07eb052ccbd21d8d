"""Whether a lost slot can be replayed: the decision between causal recovery and rollback. Pure.

A slot's replacement needs its own result log and every other slot's put log, all since the version
that it starts from, and nothing may have passed between the slots that no log knows of. Whatever is
missing is an *obstacle*, said in words: everybody goes back to the checkpoint then, or, if the user
demands causal recovery, the job ends. See section 4.3 of Besta & Hoefler, where the N and M flags
play this part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..native.constants import number

NAMES = ("FOREIGN", "FULL", "RECOVERED", "CHECKSUM", "GETS", "DEMAND", "SETUP", "HELD")
FOREIGN, FULL, RECOVERED, CHECKSUM, GETS, DEMAND, SETUP, HELD = (
    number(f"BROKEN_{name}") for name in NAMES
)


@dataclass(frozen=True)
class Logs:
    """What a slot's logs are good for.

    Attributes:
        broken: why a replay from the version cannot use them, bits FOREIGN .. HELD; -1: they do
            not reach back to it.
        call: the MPI call to blame for FOREIGN or HELD.
    """

    broken: int = 0
    call: str = ""


def obstacle(
    policy: str,
    lost: Sequence[int],
    logs: Mapping[int, Logs],
    version: int,
    budget_bytes: int,
    refusal: str = "",
) -> str:
    """Say why the lost slots cannot be replayed; empty if they can.

    Args:
        policy: "auto", "causal" or "rollback".
        lost: slots that must be replayed; where there are none no log is read, but messages can be
            lost that no log covers.
        logs: of every slot, since `version`.
        version: of the checkpoint that a replay starts from; 0 is the start of the program.
        budget_bytes: of each slot's logs.
        refusal: why a replay that was begun could not go on.
    """
    since = f"checkpoint {version}" if version else "the start"
    if policy == "rollback":
        return "the policy is rollback"
    if refusal:
        return refusal
    if len(lost) > 1:
        return f"slots {' and '.join(map(str, lost))} were lost at once"
    for slot, log in sorted(logs.items()):
        mine = slot in lost
        if log.broken < 0 and lost:
            return f"slot {slot} has no log since {since}"
        if log.broken < 0:
            continue
        if log.broken & SETUP:
            return (
                f"slot {slot} calls {log.call} before its last protect(), which every replay comes "
                "by and none can repeat"
            )
        if log.broken & HELD:
            return f"slot {slot} has what {log.call} has made, which no log covers"
        if log.broken & FOREIGN:
            return f"slot {slot} has called {log.call} since {since}, which no replay can repeat"
        if log.broken & FULL and lost:
            return (
                f"the logs of slot {slot} ran over their budget of {budget_bytes} bytes since "
                f"{since}"
            )
        if log.broken & RECOVERED and lost and not mine:
            return f"slot {slot}'s put log died with its process, and no checkpoint has come since"
        if log.broken & CHECKSUM and mine:
            return f"slot {slot}'s get log died with the checksum rank that held it"
        if log.broken & DEMAND and mine:
            return f"slot {slot}'s demand checkpoint is lost, and its logs before that were freed"
        if log.broken & GETS and mine:
            return f"slot {slot} has used gets, and --log puts does not log them"
    return ""
