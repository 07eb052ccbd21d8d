"""Options: their names, their environment twins, and their checks.

One table serves ``ftrma run`` (command line beats environment beats default) and the processes of
a job, which read the environment that the supervisor or the user's own launcher gives them.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from . import mpirun, tomlfile
from .tomlfile import MTBF_S, number, whole
from .topology import NO_LEVEL, NODES, Domains, Layout, make_layout
from .topologyfile import read_topology
from .world import CHECKSUM, PLACES, SLOT, SPARE, World

DEMAND_MODES = ("bulk", "stream")  # see `demand`
POLICIES = ("auto", "causal", "rollback")
ROLLBACKS = ("in-place", "fresh")
MOST_COUNTED = 1_000_000  # of slots and others; how many are served, `make_layout` knows
MOST_RULES = 32  # FTRMA_MAX_RULES
MOST_VISITS = 10**15  # of a place before a kill; as milliseconds, 30 000 years
MOST_INTERVAL_S = 1e9  # who wants fewer checkpoints writes never
MOST_RELAUNCHES = 1_000_000  # chosen: a launch takes seconds, so they last for weeks
UNITS = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": 1024 ** (i + 1)
    for i, prefix in enumerate("kmg")
    for suffix in ("ib", "")
}
MOST_BUDGET = 1 << 40  # of a slot's logs; no node has so much memory for each process
# Variables that are no options: between the processes of a job, and of the tests.
INNER_NAMES = {"FTRMA_JOB", "FTRMA_LINK", "FTRMA_SPREAD", "FTRMA_KEY", "FTRMA_MODEL_SEED",
               "FTRMA_MODEL_CASES", "FTRMA_TEST_MARK"}  # fmt: skip
Parser = Callable[[str, str], Any]
ROLE_LETTERS = {"": SLOT, "c": CHECKSUM, "s": SPARE}


@dataclass
class Options:
    """What a job is run with. ``None`` means: not given, take the default."""

    slots: int | None = None
    checksums: int | None = None
    group_size: int | None = None
    spares: int = 1
    policy: str = "auto"
    rollback: str = "in-place"
    log: str = "all"
    log_budget: int | None = None
    demand: str = "bulk"
    interval: float | str = "daly"
    mtbf: float = 3600.0
    max_relaunch: int = 3
    kill: list[KillRule] = field(default_factory=list)
    mpirun: str = ""
    bind: str = ""
    topology: str = ""
    aware: str = NO_LEVEL
    trace: str = ""
    job: str = ""

    def layout(self) -> Layout:
        if self.slots is None:
            raise ValueError("-n is missing: how many slots does the program need?")
        return make_layout(self.slots, self.checksums, self.group_size, self.spares)

    def check(self) -> Layout:
        """Return the layout, or refuse what no single option is wrong in."""
        layout = self.layout()
        for rule in self.kill:
            rule.check(layout)
        if len(self.kill) > MOST_RULES:
            raise ValueError(f"--kill: {len(self.kill)} rules; at most {MOST_RULES}")
        self.check_levels()
        return layout

    def check_levels(self) -> None:
        """Refuse a topology file or a level of awareness that cannot be served."""
        levels = read_topology(self.topology).levels if self.topology else (NODES,)
        Domains(levels, ()).height(self.aware)

    def layout_for(self, processes: int) -> Layout:
        """Layout of a job that somebody else started with this many processes."""
        if self.slots is None:
            rest = processes - self.spares - (self.checksums or 1)
            self.slots = max(rest, 0)
        layout = self.layout()
        if layout.processes != processes:
            raise ValueError(
                f"{processes} processes were started and {layout.processes} are needed: "
                f"{layout.slots} slots, {layout.checksums} checksum ranks, {layout.spares} spares. "
                "Start that many, or set FTRMA_SLOTS, FTRMA_CHECKSUMS and FTRMA_SPARES"
            )
        return layout


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


def _interval(name: str, text: str) -> float | str:
    if text in ("daly", "never"):
        return text
    return number(name, text, 0, MOST_INTERVAL_S, "seconds, daly or never")


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"{name} {text}: expected {', '.join(choices[:-1])} or {choices[-1]}")
    return text


def size(text: str, name: str = "size") -> int:
    """Bytes from a text such as 65536, 512K, 64MiB or 1.5G; K and KiB are 1024 bytes.

    Raises:
        ValueError: it is none.
    """
    return int(tomlfile.size(name, text, MOST_BUDGET, UNITS))


def _count(least: int, most: int) -> Parser:
    return lambda name, text: whole(name, text, least, most)


def _one_of(*choices: str) -> Parser:
    return lambda name, text: _choice(name, text, choices)


def _address(name: str, text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(
            f"{name} {text}: expected an IPv4 address of this host, such as 10.0.0.1"
        ) from None


def _text(name: str, text: str) -> str:
    return text


# Option, environment name, attribute, parser.  A parser takes the name under which the value was
# given, and the value; its errors name both, and the remedy.
TABLE: list[tuple[str, str, str, Parser]] = [
    ("-n", "FTRMA_SLOTS", "slots", _count(1, MOST_COUNTED)),
    ("--checksums", "FTRMA_CHECKSUMS", "checksums", _count(1, MOST_COUNTED)),
    ("--group-size", "FTRMA_GROUP_SIZE", "group_size", _count(1, MOST_COUNTED)),
    ("--spares", "FTRMA_SPARES", "spares", _count(0, MOST_COUNTED)),
    ("--policy", "FTRMA_POLICY", "policy", _one_of(*POLICIES)),
    ("--log", "FTRMA_LOG", "log", _one_of("all", "puts")),
    ("--rollback", "FTRMA_ROLLBACK", "rollback", _one_of(*ROLLBACKS)),
    ("--log-budget", "FTRMA_LOG_BUDGET", "log_budget", lambda name, text: size(text, name)),
    ("--demand", "FTRMA_DEMAND", "demand", _one_of(*DEMAND_MODES)),
    ("--interval", "FTRMA_INTERVAL", "interval", _interval),
    ("--mtbf", "FTRMA_MTBF", "mtbf", lambda name, text: number(name, text, *MTBF_S, "seconds")),
    ("--max-relaunch", "FTRMA_MAX_RELAUNCH", "max_relaunch", _count(0, MOST_RELAUNCHES)),
    ("--mpirun", "FTRMA_MPIRUN", "mpirun",
     lambda name, text: text if mpirun.split(text, name) else ""),
    ("--bind", "FTRMA_BIND", "bind", _address),
    ("--topology", "FTRMA_TOPOLOGY", "topology", _text),
    ("--aware", "FTRMA_AWARE", "aware", _text),
    ("--trace", "FTRMA_TRACE", "trace", _text),
    ("--kill", "FTRMA_KILL", "kill",
     lambda name, text: [KillRule.parse(rule, name) for rule in text.split()]),
]  # fmt: skip


def from_environment(environ: Mapping[str, str] = os.environ) -> Options:
    """Options from ``FTRMA_*``.

    Raises:
        ValueError: a value is wrong; the text names the variable, the value, the remedy.
    """
    options = Options(job=environ.get("FTRMA_JOB", ""))
    for _, name, attribute, parse in TABLE:
        if environ.get(name):
            setattr(options, attribute, parse(name, environ[name]))
    return options


def strangers(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Names in the environment that look like options and are none, each with the nearest."""
    known = {name for _, name, _, _ in TABLE}
    return [
        f"{name} (the nearest is {get_close_matches(name, sorted(known), 1, 0.0)[0]})"
        for name in sorted(environ)
        if name.startswith("FTRMA_") and name not in known | INNER_NAMES
    ]


def to_environment(options: Options) -> dict[str, str]:
    """The environment that carries the options to the processes of a job."""
    found = {}
    for _, name, attribute, _parse in TABLE:
        value = getattr(options, attribute)
        if attribute == "kill":
            value = " ".join(rule.text for rule in value) or None
        if value not in (None, ""):
            found[name] = str(value)
    if options.job:
        found["FTRMA_JOB"] = options.job
    return found


def write_kill_rules(ffi: Any, ctl: Any, rules: list[KillRule]) -> None:
    """Put the rules in the control file, before any process visits a place."""
    if len(rules) > len(ctl.rules):
        raise ValueError(f"--kill: {len(rules)} rules; at most {len(ctl.rules)}")
    for i, rule in enumerate(rules):
        ctl.rules[i].role, ctl.rules[i].index = rule.role, rule.index
        ctl.rules[i].place, ctl.rules[i].at = PLACES[rule.place], rule.at
    ctl.nrules = len(rules)


def apply_kill_rules(world: World, options: Options) -> None:
    """Where no supervisor has written them, the first process does."""
    if not options.job and world.proc == 0:
        write_kill_rules(world.ffi, world.ctl, options.kill)
