"""Decides whether a lost slot can be replayed: causal recovery or rollback. Pure.

A slot's replacement needs the slot's own result log and every other slot's put log, all since the
version that it starts from. Nothing may have passed between the slots that is in no log. If
anything is missing, that is an *obstacle*, and it is described in words: all slots then go back to
the checkpoint, or, if the user demands causal recovery, the job ends. The N and M flags in section
4.3 of Besta & Hoefler have the same purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ..native.constants import number

NAMES = ("FOREIGN", "FULL", "RECOVERED", "CHECKSUM", "GETS", "DEMAND", "SETUP", "HELD")
FOREIGN, FULL, RECOVERED, CHECKSUM, GETS, DEMAND, SETUP, HELD = (
    number(f"BROKEN_{name}") for name in NAMES
)


@dataclass(frozen=True)
class Logs:
    """State of a slot's logs: whether a replay can use them.

    Attributes:
        broken: why a replay from the version cannot use them, as bits FOREIGN .. HELD; -1 if they
            do not reach back to that version.
        call: the MPI call that caused FOREIGN or HELD.
    """

    broken: int = 0
    call: str = ""


class Matters(Enum):
    """When a flag of a slot's logs is an obstacle."""

    ALWAYS = auto()  # this slot's messages can be lost even if no slot is replayed
    IF_LOST = auto()  # some slot must be replayed
    IF_MINE = auto()  # this slot must be replayed
    IF_OTHERS = auto()  # another slot must be replayed, and this one must not


# The words of the first flag that is set and matters are reported.
FLAGS = (
    (SETUP, Matters.ALWAYS, "slot {slot} calls {call} before its last protect(), which every "
     "replay comes by and none can repeat"),
    (HELD, Matters.ALWAYS, "slot {slot} has what {call} has made, which no log covers"),
    (FOREIGN, Matters.ALWAYS,
     "slot {slot} has called {call} since {since}, which no replay can repeat"),
    (FULL, Matters.IF_LOST,
     "the logs of slot {slot} ran over their budget of {budget_bytes} bytes since {since}"),
    (RECOVERED, Matters.IF_OTHERS,
     "slot {slot}'s put log died with its process, and no checkpoint has come since"),
    (CHECKSUM, Matters.IF_MINE,
     "slot {slot}'s get log died with the checksum rank that held it"),
    (DEMAND, Matters.IF_MINE,
     "slot {slot}'s demand checkpoint is lost, and its logs before that were freed"),
    (GETS, Matters.IF_MINE, "slot {slot} has used gets, and --log puts does not log them"),
)


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
        lost: slots that must be replayed. If there are none, no log is read, but messages that no
            log covers can be lost.
        logs: state of every slot's logs since `version`.
        version: the checkpoint that a replay starts from; 0 is the start of the program.
        budget_bytes: memory budget of each slot's logs.
        refusal: why a replay that had begun could not go on; empty if there was none.
    """
    if policy == "rollback":
        return "the policy is rollback"
    if refusal:
        return refusal
    if len(lost) > 1:
        return f"slots {' and '.join(map(str, lost))} were lost at once"
    since = f"checkpoint {version}" if version else "the start"
    for slot, log in sorted(logs.items()):
        if log.broken < 0 and lost:
            return f"slot {slot} has no log since {since}"
        if log.broken > 0 and (words := first_flag(log.broken, slot, lost)):
            return words.format(slot=slot, call=log.call, since=since, budget_bytes=budget_bytes)
    return ""


def first_flag(broken: int, slot: int, lost: Sequence[int]) -> str:
    """Return the words for the first flag of a slot's logs that is an obstacle; empty if none
    is."""
    mine = slot in lost
    matters = {
        Matters.ALWAYS: True,
        Matters.IF_LOST: bool(lost),
        Matters.IF_MINE: mine,
        Matters.IF_OTHERS: bool(lost) and not mine,
    }
    return next((words for flag, when, words in FLAGS if broken & flag and matters[when]), "")
