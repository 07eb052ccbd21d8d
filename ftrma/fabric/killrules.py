"""Where ``--kill`` strikes: the rules as words, and in the control file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..machine.topology import Layout
from ..native.constants import CHECKSUM, MAX_RULES, PLACES, SLOT, SPARE
from ..native.shared import Control

MOST_VISITS = 10**15  # of a place before a kill; as milliseconds, 30 000 years
ROLE_LETTERS = {"": SLOT, "c": CHECKSUM, "s": SPARE}


@dataclass(frozen=True)
class KillRule:
    """``SLOT@PLACE[:COUNT]``: who kills itself where, at which visit (or after how many ms)."""

    role: int
    index: int
    place: str
    at: int
    text: str

    @classmethod
    def parse(cls, text: str, name: str = "--kill") -> KillRule:
        match = re.fullmatch(r"([cs]?)([0-9]{1,9})@([a-z-]+)(?::([0-9.]{1,18}))?", text)
        if not match or match[3] not in PLACES:
            raise ValueError(
                f"{name} {text}: expected SLOT@PLACE[:COUNT] such as 3@fence:5, c0@fold or "
                f"1@time:2.5; places are {', '.join(PLACES)}"
            )
        try:
            at = float(match[4] or 1)
        except ValueError:
            raise ValueError(f"{name} {text}: {match[4]} is not a number") from None
        if match[3] == "time":
            at *= 1000
        elif at != int(at) or at < 1:
            raise ValueError(f"{name} {text}: the count must be a whole number, 1 or more")
        if at > MOST_VISITS:
            raise ValueError(f"{name} {text}: it would never strike; use at most {MOST_VISITS:g}")
        return cls(ROLE_LETTERS[match[1]], int(match[2]), match[3], int(at), text)

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


def check_number(rules: Sequence[KillRule]) -> None:
    """Refuse more rules than the control file has room for."""
    if len(rules) > MAX_RULES:
        raise ValueError(f"--kill: {len(rules)} rules; at most {MAX_RULES}")


def write(ctl: Control, rules: Sequence[KillRule]) -> None:
    """Put the rules in the control file, before any process visits a place."""
    check_number(rules)
    for i, rule in enumerate(rules):
        ctl.rules[i].role, ctl.rules[i].index = rule.role, rule.index
        ctl.rules[i].place, ctl.rules[i].at = PLACES[rule.place], rule.at
    ctl.nrules = len(rules)
