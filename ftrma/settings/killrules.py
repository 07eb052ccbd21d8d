"""The rules of ``--kill``: their words, and their entries in the control file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..machine.topology import Layout
from ..native import job
from ..native.constants import (
    CHECKSUM,
    FAILPOINTS,
    MAX_RULES,
    NAME_BYTES,
    NAMED,
    SLOT,
    SPARE,
    number,
)
from ..native.shared import Control

MOST_VISITS = 10**15  # most visits before a kill; in milliseconds this is 30 000 years
ROLE_LETTERS = {"": SLOT, "c": CHECKSUM, "s": SPARE}
VICTIMS = {"": number("VICTIM_PROCESS"), "a": number("VICTIM_AGENT"), "n": number("VICTIM_NODE")}


@dataclass(frozen=True)
class KillRule:
    """``SLOT@PLACE[:COUNT]``: a process kills itself at a place, at the given visit (or after some
    ms).

    With ``a`` before it, such as ``a2@put:5`` or ``ac0@sum``, the agent of its node dies instead;
    with ``n``, as in ``n2@put:5``, its whole node dies: processes, agent and the launcher's daemon.
    """

    role: int
    index: int
    place: str
    at: int
    text: str
    victim: int = VICTIMS[""]

    @classmethod
    def parse(cls, text: str, name: str = "--kill") -> KillRule:
        match = re.fullmatch(r"([an]?)([cs]?)([0-9]{1,9})@([a-z._-]+)(?::([0-9.]{1,18}))?", text)
        if not match or (match[4] not in FAILPOINTS and not is_named(match[4])):
            raise ValueError(
                f"{name} {text}: expected SLOT@PLACE[:COUNT] such as 3@fence:5, c0@fold, a2@put:9, "
                f"n2@put:9 or 1@time:2.5; places are {', '.join(FAILPOINTS)}, and those of a "
                "framework, such as 2@graph.emit"
            )
        try:
            at = float(match[5] or 1)
        except ValueError:
            raise ValueError(f"{name} {text}: {match[5]} is not a number") from None
        if match[4] == "time":
            at *= 1000
        elif at != int(at) or at < 1:
            raise ValueError(f"{name} {text}: the count must be a whole number, 1 or more")
        if at > MOST_VISITS:
            raise ValueError(f"{name} {text}: it would never strike; use at most {MOST_VISITS:g}")
        role, index, victim = ROLE_LETTERS[match[2]], int(match[3]), VICTIMS[match[1]]
        return cls(role, index, match[4], int(at), text, victim)

    def check(self, layout: Layout) -> None:
        kinds = {
            SLOT: ("slot", layout.slots),
            CHECKSUM: ("checksum rank", layout.checksums),
            SPARE: ("spare", layout.spares),
        }
        kind, count = kinds[self.role]
        if self.index >= count:
            have = f"0 to {count - 1}" if count else "none"
            raise ValueError(f"--kill {self.text}: there is no {kind} {self.index}; have {have}")


def is_named(place: str) -> bool:
    """Say whether it is a framework's own place: name of the framework, a dot, the place."""
    return len(place) < NAME_BYTES and bool(re.fullmatch(r"[a-z_]+\.[a-z_-]+", place))


def check_number(rules: Sequence[KillRule]) -> None:
    """Refuse more rules than the control file has room for."""
    if len(rules) > MAX_RULES:
        raise ValueError(f"--kill: {len(rules)} rules; at most {MAX_RULES}")


def for_several_nodes(rules: Sequence[KillRule]) -> bool:
    """Say whether a rule kills something that only jobs over several nodes have."""
    return any(rule.victim != VICTIMS[""] for rule in rules)


def refuse_nodes(rules: Sequence[KillRule]) -> None:
    """Refuse rules for agents and nodes in a job on one node, which has no agent."""
    for rule in rules:
        if rule.victim != VICTIMS[""]:
            what = "has no agents" if rule.victim == VICTIMS["a"] else "cannot lose it and go on"
            raise ValueError(f"--kill {rule.text}: a job on one node {what}; name the hosts of "
                             "several in --mpirun")


def write(ctl: Control, rules: Sequence[KillRule]) -> None:
    """Put the rules in the control file, before any process visits a place."""
    check_number(rules)
    for i, rule in enumerate(rules):
        ctl.rules[i].role, ctl.rules[i].index = rule.role, rule.index
        ctl.rules[i].victim = rule.victim
        ctl.rules[i].failpoint, ctl.rules[i].at = FAILPOINTS.get(rule.place, NAMED), rule.at
        job.write_bytes(ctl.rules[i].name, rule.place.encode())
    ctl.nrules = len(rules)
