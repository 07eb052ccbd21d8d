"""Options: their names, their environment twins, and their checks.

One table serves ``ftrma run`` (command line beats environment beats default) and the processes of
a job, which read the environment that the supervisor or the user's own launcher gives them.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import mpirun
from .topology import NO_LEVEL, NODES, Domains, Layout, make_layout
from .topologyfile import read_topology
from .world import CHECKSUM, PLACES, SLOT, SPARE, World

DEMAND_MODES = ("bulk", "stream")  # see `demand`
POLICIES = ("auto", "causal", "rollback")
ROLE_LETTERS = {"": SLOT, "c": CHECKSUM, "s": SPARE}


@dataclass
class Options:
    """What a job is run with. ``None`` means: not given, take the default."""

    slots: int | None = None
    checksums: int | None = None
    group_size: int | None = None
    spares: int = 1
    policy: str = "auto"
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
    def parse(cls, text: str) -> KillRule:
        match = re.fullmatch(r"([cs]?)(\d+)@([a-z-]+)(?::([\d.]+))?", text)
        if not match or match[3] not in PLACES:
            raise ValueError(
                f"--kill {text}: expected SLOT@PLACE[:COUNT] such as 3@fence:5, c0@fold or "
                f"1@time:2.5; places are {', '.join(PLACES)}"
            )
        try:
            at = float(match[4] or 1)
        except ValueError:
            raise ValueError(f"--kill {text}: {match[4]} is not a number") from None
        if match[3] == "time":
            at *= 1000
        elif at != int(at) or at < 1:
            raise ValueError(f"--kill {text}: the count must be a whole number, 1 or more")
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


def _interval(text: str) -> float | str:
    if text in ("daly", "never"):
        return text
    return _number("--interval", text, "seconds, daly or never", least=0)


def _number(name: str, text: str, what: str, least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise ValueError(f"{name} {text}: expected {what}, {least:g} or more")
    return value


def _address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(
            f"--bind {text}: expected an IPv4 address of this host, such as 10.0.0.1"
        ) from None


def _integer(name: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ValueError(f"{name} {text}: expected a whole number, {least} or more")
    return value


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"{name} {text}: expected {', '.join(choices[:-1])} or {choices[-1]}")
    return text


def size(text: str) -> int:
    """Bytes from a text such as 65536, 512K, 64MiB or 1.5G; K and KiB are 1024 bytes.

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:([KMG])(?:iB)?|B)?", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text}: expected bytes, such as 65536, 512K, 64MiB or 1G")
    return int(float(match[1]) * 1024 ** " KMG".index((match[2] or " ").upper()))


def _size(name: str, text: str) -> int:
    try:
        return size(text)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


# Option, environment name, attribute, parser.  The parser's errors name the value and the remedy.
TABLE: list[tuple[str, str, str, Any]] = [
    ("-n", "FTRMA_SLOTS", "slots", lambda t: _integer("-n", t, 1)),
    ("--checksums", "FTRMA_CHECKSUMS", "checksums", lambda t: _integer("--checksums", t, 1)),
    ("--group-size", "FTRMA_GROUP_SIZE", "group_size", lambda t: _integer("--group-size", t, 1)),
    ("--spares", "FTRMA_SPARES", "spares", lambda t: _integer("--spares", t, 0)),
    ("--policy", "FTRMA_POLICY", "policy", lambda t: _choice("--policy", t, POLICIES)),
    ("--log", "FTRMA_LOG", "log", lambda t: _choice("--log", t, ("all", "puts"))),
    ("--log-budget", "FTRMA_LOG_BUDGET", "log_budget", lambda t: _size("--log-budget", t)),
    ("--demand", "FTRMA_DEMAND", "demand", lambda t: _choice("--demand", t, DEMAND_MODES)),
    ("--interval", "FTRMA_INTERVAL", "interval", _interval),
    ("--mtbf", "FTRMA_MTBF", "mtbf", lambda t: _number("--mtbf", t, "seconds", 1e-3)),
    ("--max-relaunch", "FTRMA_MAX_RELAUNCH", "max_relaunch",
     lambda t: _integer("--max-relaunch", t, 0)),
    ("--mpirun", "FTRMA_MPIRUN", "mpirun", lambda t: t if mpirun.split(t) else ""),
    ("--bind", "FTRMA_BIND", "bind", _address),
    ("--topology", "FTRMA_TOPOLOGY", "topology", str),
    ("--aware", "FTRMA_AWARE", "aware", str),
    ("--trace", "FTRMA_TRACE", "trace", str),
    ("--kill", "FTRMA_KILL", "kill", lambda t: [KillRule.parse(r) for r in t.split()]),
]  # fmt: skip


def from_environment(environ: Mapping[str, str] = os.environ) -> Options:
    """Options from ``FTRMA_*``.

    Raises:
        ValueError: a value is wrong; the text names the variable's option, the value, the remedy.
    """
    options = Options(job=environ.get("FTRMA_JOB", ""))
    for _, name, attribute, parse in TABLE:
        if environ.get(name):
            setattr(options, attribute, parse(environ[name]))
    return options


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
