"""Options: their names, the corresponding variables of the environment, and their checks.

The same table serves ``ftrma run`` (where the command line takes precedence over the environment,
and that over defaults) and the processes of a job, which read the environment that the supervisor
or the user's own launcher gives them.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..host import timeouts, values
from ..host.listening import Bind
from ..host.signals import ASKABLE
from ..host.values import MTBF_S, number, whole
from ..machine.topology import NO_LEVEL, NODES, Domains, Layout, make_layout
from . import timelimits
from .killrules import KillRule, check_number
from .timelimits import TimeLimit

DEMAND_MODES = ("bulk", "stream")  # see `demand`
OVERSUBSCRIBE = ("yes", "no")
POLICIES = ("auto", "causal", "rollback")
ROLLBACKS = ("in-place", "fresh")
ON_STALL = ("tell", "replace", "halt")
COUNT = {"-n", "--n", "-np", "--np", "-c"}  # options of mpirun that are ours
MOST_COUNTED = 1_000_000  # most slots and others; `make_layout` knows how many are possible
MOST_INTERVAL_S = 1e9  # for fewer checkpoints there is the word never
STALL_S = 0.5, 1e9  # below this, pauses of the machine itself would be reported
STALL_TIMES = 2, 1e6
MOST_RELAUNCHES = 1_000_000  # chosen: a launch takes seconds, so they last for weeks
UNITS = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": 1024 ** (i + 1)
    for i, prefix in enumerate("kmg")
    for suffix in ("ib", "")
}
MOST_BUDGET = 1 << 40  # for a slot's logs; no node has so much memory for each process
# Variables that are no options: those used between the processes of a job, and those of the tests.
INNER_NAMES = {"FTRMA_JOB", "FTRMA_SPILL_ENTRY", "FTRMA_LINK", "FTRMA_SPREAD", "FTRMA_KEY",
               "FTRMA_MODEL_SEED", "FTRMA_MODEL_CASES", "FTRMA_TEST_MARK",
               "FTRMA_TEST_FILES", "FTRMA_WIRE_ENGINE"}
CONFIG_VARIABLE = "FTRMA_CONFIG"  # the variable for --config, see `configuration`
YES = "yes"
SWITCH = dict.fromkeys((YES, "true", "on", "1"), True) | dict.fromkeys(
    ("no", "false", "off", "0"), False)
REQUEUE = 85  # HTCondor's word for "has left a checkpoint, run me again"
TAKEN = (2, 70, 93)  # statuses that mean something else
Parser = Callable[[str, str], Any]
MOST_KEPT = 1000  # checkpoints in files
MOST_RATE = 1 << 40  # bytes per second


@dataclass(frozen=True)
class SpillInterval:
    """The time between two checkpoints that are written to files.

    Attributes:
        seconds: the time; None: Daly's interval, from the measured cost of writing.
        every: write every so many checkpoints, instead of after a time; 0: the time counts.
    """

    seconds: float | None = None
    every: int = 0

    def __str__(self) -> str:
        if self.every:
            return f"{self.every}-th"
        return "daly" if self.seconds is None else str(self.seconds)

    @classmethod
    def parse(cls, name: str, text: str) -> SpillInterval:
        """Read seconds, "daly", or "5-th"."""
        if text == "daly":
            return cls()
        count, dash, rest = text.partition("-")
        if dash and rest == "th" and count:
            return cls(every=whole(name, count, 1, MOST_COUNTED))
        return cls(number(name, text, 0, MOST_INTERVAL_S, "seconds, daly, or N-th such as 5-th"))


@dataclass
class Options:
    """Options of a job. ``None`` means that the option was not given and its default is used."""

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
    oversubscribe: str = "yes"
    bind: Bind = field(default_factory=Bind)
    topology: str = ""
    aware: str = ""  # nodes, or none where there is one only
    stall: float | str = ""  # see `stall_limit`
    on_stall: str = "tell"
    max_no_progress: int = 3
    validate: str = ""  # module:function
    trace: str = ""
    metrics: str = ""
    quiet: bool = False
    verbose: bool = False
    log_file: str = ""
    spill: str = ""
    spill_interval: SpillInterval = field(default_factory=SpillInterval)
    spill_keep: int = 2
    spill_rate: int = 0
    spill_entry: int = 1  # how often the job was begun from files, including this time
    time_limit: TimeLimit | None = None
    margin: float | None = None  # see `timelimits.margin_of`
    signal: str = ""  # SIGTERM, where checkpoints go to files
    requeue_status: int = REQUEUE
    timeout: dict[str, float] = field(default_factory=dict)
    job: str = ""

    def layout(self) -> Layout:
        if self.slots is None:
            raise ValueError("-n is missing: how many slots does the program need?")
        return make_layout(self.slots, self.checksums, self.group_size, self.spares)

    def check(self) -> Layout:
        """Return the layout, or refuse options that contradict each other."""
        layout = self.layout()
        for rule in self.kill:
            rule.check(layout)
        check_number(self.kill)
        self.check_levels()
        timeouts.check(self.timeout)
        if self.quiet and self.verbose:
            raise ValueError("--quiet and --verbose: both are asked for; leave one of them out")
        if self.on_stall != "tell" and not self.stall:
            raise ValueError(f"--on-stall {self.on_stall}: nothing is watched; give --stall, too")
        timelimits.check(self.time_limit, self.margin, time.time())
        return layout

    def check_levels(self) -> None:
        """Refuse a topology file or a level of awareness that cannot be used."""
        levels: tuple[str, ...] = (NODES,)
        if self.topology:
            from ..machine.topologyfile import read_topology

            levels = read_topology(self.topology).levels
        Domains(levels, ()).height(self.aware or NO_LEVEL)

    def layout_for(self, processes: int) -> Layout:
        """Return the layout of a job that another launcher has started with this many processes."""
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


def split_mpirun(text: str, name: str = "--mpirun") -> list[str]:
    """Return the words of ``--mpirun``.

    Raises:
        ValueError: quotes do not match, or the number of processes is among them.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{name} {text!r}: {error}; quote it as a shell would") from None
    if "\0" in text:
        raise ValueError(f"{name} {text!r}: NUL is no character of an option; remove it")
    for word in words:
        if word.split("=")[0] in COUNT:
            raise ValueError(
                f"{name} {text!r}: {word} is not yours to give; the number of processes follows "
                "from -n, --checksums and --spares"
            )
    return words


def _interval(name: str, text: str) -> float | str:
    if text in ("daly", "never"):
        return text
    return number(name, text, 0, MOST_INTERVAL_S, "seconds, daly or never")


def _function(name: str, text: str) -> str:
    module, _, function = text.partition(":")
    if not all(part.isidentifier() for part in module.split(".")) or not function.isidentifier():
        raise ValueError(f"{name} {text}: expected module:function, such as checks:is_right")
    return text


def _stall(name: str, text: str) -> float | str:
    if text.endswith("x"):
        times = number(name, text[:-1], *STALL_TIMES, "times the longest step, such as 10x")
        return f"{times:g}x"
    return number(name, text, *STALL_S, "seconds, or times the longest step, such as 10x")


def stall_limit(stall: float | str) -> tuple[float, float]:
    """Return how long a slot may stand still: in seconds, or in longest steps; the other is 0."""
    if isinstance(stall, str):
        return 0.0, float(stall.removesuffix("x") or 0)
    return stall, 0.0


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"{name} {text}: expected {', '.join(choices[:-1])} or {choices[-1]}")
    return text


def size(text: str, name: str = "size") -> int:
    """Return the bytes of a text such as 65536, 512K, 64MiB or 1.5G; K and KiB are 1024 bytes.

    Raises:
        ValueError: it is no size.
    """
    return int(values.size(name, text, MOST_BUDGET, UNITS))


def _count(least: int, most: int) -> Parser:
    return lambda name, text: whole(name, text, least, most)


def _one_of(*choices: str) -> Parser:
    return lambda name, text: _choice(name, text, choices)


def _text(name: str, text: str) -> str:
    return text


def _switch(name: str, text: str) -> bool:
    if text.lower() not in SWITCH:
        raise ValueError(f"{name} {text}: expected {YES} or no")
    return SWITCH[text.lower()]


def _signal(name: str, text: str) -> str:
    """Return the name, without SIG, of a signal that may ask for an end."""
    word = text.upper().removeprefix("SIG")
    if word not in ASKABLE:
        raise ValueError(f"{name} {text}: expected one of {', '.join(ASKABLE)}")
    return word


def _status(name: str, text: str) -> int:
    status = whole(name, text, 1, 125, "an exit status")
    if status in TAKEN:
        raise ValueError(f"{name} {text}: this status says something else already (2: a mistake "
                         "on the command line, 70: a failure that was not repaired, 93: one that "
                         "comes again and again); take another")
    return status


@dataclass(frozen=True)
class Option:
    """One option of ``ftrma run``, which may also be given in the environment.

    Attributes:
        flag: its name on the command line.
        attribute: its attribute of `Options`.
        metavar, help: its explanation on the command line. An option without a metavar takes no
            value there, and `YES` or no elsewhere.
        parse: function of the name under which a value was given, and the value; its errors name
            both, and the remedy.
        anew: it can be changed when a killed job is resumed.
        merged: it has several entries, each of which has its own source.
    """

    flag: str
    attribute: str
    metavar: str
    help: str
    parse: Parser
    anew: bool = False
    merged: bool = False

    @property
    def repeatable(self) -> bool:
        """Say whether the command line may contain it several times."""
        return self.merged or self.attribute == "kill"

    @property
    def key(self) -> str:
        """Return its name in a file ``ftrma.toml``."""
        return self.attribute.replace("_", "-")

    @property
    def variable(self) -> str:
        """Return its name in the environment."""
        return f"FTRMA_{self.attribute.upper()}"


OPTIONS = [
    Option(
        "-n", "slots", "N",
        "slots: ranks of the program",
        _count(1, MOST_COUNTED),
    ),
    Option(
        "--checksums", "checksums", "M",
        "checksum ranks in all, equally many per group (default: one)",
        _count(1, MOST_COUNTED),
    ),
    Option(
        "--group-size", "group_size", "K",
        "slots per group; a group survives as many losses at a time as it has checksum ranks "
        "(default: N / M)",
        _count(1, MOST_COUNTED),
    ),
    Option(
        "--spares", "spares", "S",
        "processes that wait to replace dead ones (default: 1)",
        _count(0, MOST_COUNTED),
    ),
    Option(
        "--topology", "topology", "FILE",
        "TOML file: which nodes share switches, racks and so on",
        _text,
    ),
    Option(
        "--aware", "aware", "LEVEL",
        "let no element up to this level (nodes, or one of the topology file) hold more members "
        "of a group than it can lose; none: do not look at them (default: nodes)",
        _text,
    ),
    Option(
        "--policy", "policy", "auto|causal|rollback",
        "after a failure: replay the dead slot and let the others go on, or roll all back where "
        "that is not exact (auto, the default) or end the job there (causal); or always roll back",
        _one_of(*POLICIES),
    ),
    Option(
        "--rollback", "rollback", "in-place|fresh",
        "go back in the same processes (in-place, the default), or let all start again (fresh)",
        _one_of(*ROLLBACKS),
    ),
    Option(
        "--log-budget", "log_budget", "SIZE",
        "memory for the access logs of each slot, such as 64M (the default)",
        lambda name, text: size(text, name),
    ),
    Option(
        "--log", "log", "all|puts",
        "log puts and gets, or puts alone (default: all)",
        _one_of("all", "puts"),
    ),
    Option(
        "--demand", "demand", "bulk|stream",
        "when logs run short, keep a slot's last demand checkpoint until the next is complete "
        "(bulk, the default), or write over it, in half of the memory (stream)",
        _one_of(*DEMAND_MODES),
    ),
    Option(
        "--mtbf", "mtbf", "SECONDS",
        "mean time between failures, for Daly's interval (default: 3600)",
        lambda name, text: number(name, text, *MTBF_S, "seconds"),
    ),
    Option(
        "--interval", "interval", "SECONDS|daly|never",
        "time between checkpoints; 0: at every safepoint (default: daly)",
        _interval,
    ),
    Option(
        "--max-relaunch", "max_relaunch", "R",
        "how often the job may be launched again (default: 3)",
        _count(0, MOST_RELAUNCHES), anew=True,
    ),
    Option(
        "--stall", "stall", "SECONDS|10x",
        "tell which slots hang: no call of MPI and no safepoint for so long, or for so many times "
        "the longest step (default: do not watch)",
        _stall, anew=True,
    ),
    Option(
        "--on-stall", "on_stall", "tell|replace|halt",
        "when slots hang: tell (the default), replace them as dead ones, or end the job",
        _one_of(*ON_STALL), anew=True,
    ),
    Option(
        "--time-limit", "time_limit", "TIME",
        "end by then, behind a checkpoint: 3h30m, 03:30:00, seconds, or @ and a moment in seconds "
        "since 1970",
        TimeLimit.parse, anew=True,
    ),
    Option(
        "--margin", "margin", "TIME",
        "how long before the time limit, and how long after a signal, the last checkpoint may take "
        "(default: 90s, or a tenth of the time limit)",
        timelimits.duration, anew=True,
    ),
    Option(
        "--signal", "signal", "SIGNAL",
        "signal that asks for the end behind a checkpoint, such as USR1 (default: TERM, where "
        "checkpoints go to files)",
        _signal, anew=True,
    ),
    Option(
        "--requeue-status", "requeue_status", "STATUS",
        "exit status of a job that has ended behind a checkpoint (default: 85)",
        _status, anew=True,
    ),
    Option(
        "--max-no-progress", "max_no_progress", "K",
        "end with status 93 if the job fails at the same safepoint after K recoveries running; 0: "
        "never (default: 3)",
        _count(0, MOST_RELAUNCHES), anew=True,
    ),
    Option(
        "--validate", "validate", "MODULE:FUNCTION",
        "ask this function of the program on each slot before a checkpoint is taken, or gone on "
        "from out of files; if one says False, it is set aside",
        _function, anew=True,
    ),
    Option(
        "--kill", "kill", "SLOT@PLACE[:COUNT]",
        "let a slot (or c0: checksum rank 0, s0: spare 0, a1: the agent of slot 1's node) die at a "
        "place; repeatable",
        lambda name, text: [KillRule.parse(rule, name) for rule in text.split()],
    ),
    Option(
        "--mpirun", "mpirun", "OPTIONS",
        'options for the launcher, such as "--host node1:4,node2:4 --map-by ppr:4:node"',
        lambda name, text: text if split_mpirun(text, name) else "",
    ),
    Option(
        "--oversubscribe", "oversubscribe", "yes|no",
        "when hosts are lost, the others take more processes than they have slots (yes, the "
        "default), or the job gives up spares, then checksum ranks",
        _one_of(*OVERSUBSCRIBE),
    ),
    Option(
        "--bind", "bind", "WHERE[:PORTS]",
        "over several nodes: at which address, network or interface, and ports, a job listens "
        "(default: all addresses, any port)",
        lambda name, text: Bind.parse(name, text),
    ),
    Option(
        "--trace", "trace", "FILE",
        "write every event, for 'ftrma check' and for Chrome's or Perfetto's viewer",
        _text, anew=True,
    ),
    Option(
        "--metrics", "metrics", "FILE",
        "write where the job is every few seconds, for Prometheus (node_exporter's textfile "
        "collector)",
        _text, anew=True,
    ),
    Option(
        "--quiet", "quiet", "",
        "of ftrma's own lines, show errors and warnings only",
        _switch, anew=True,
    ),
    Option(
        "--verbose", "verbose", "",
        "begin ftrma's own lines with time, job and role, and tell of launches and checkpoints too",
        _switch, anew=True,
    ),
    Option(
        "--log-file", "log_file", "FILE",
        "add all of ftrma's own lines to a file, with time, job and role",
        _text, anew=True,
    ),
    Option(
        "--spill", "spill", "DIR",
        "write checkpoints to files in DIR too, for 'ftrma run --resume DIR'",
        _text,
    ),
    Option(
        "--spill-interval", "spill_interval", "SECONDS|daly|N-th",
        "time between checkpoints in files, or each N-th checkpoint (default: daly)",
        SpillInterval.parse,
    ),
    Option(
        "--spill-keep", "spill_keep", "K",
        "checkpoints that stay in files (default: 2)",
        _count(1, MOST_KEPT),
    ),
    Option(
        "--spill-rate", "spill_rate", "SIZE",
        "bytes per second that each slot writes to files at most, such as 100M (default: no limit)",
        lambda name, text: size(text, name),
    ),
    Option(
        "--timeout", "timeout", "NAME=SECONDS",
        "choose a time-out, such as stuck=10; repeatable; 'ftrma run --show-config' lists all",
        lambda name, text: timeouts.parse(name, text), anew=True, merged=True,
    ),
]


def from_environment(environ: Mapping[str, str] = os.environ) -> Options:
    """Return the options that ``FTRMA_*`` variables give.

    Raises:
        ValueError: a value is wrong; the text names the variable, the value, the remedy.
    """
    options = Options(job=environ.get("FTRMA_JOB", ""),
                      spill_entry=int(environ.get("FTRMA_SPILL_ENTRY", "1")))
    for option in OPTIONS:
        text = environ.get(option.variable)
        if text:
            setattr(options, option.attribute, option.parse(option.variable, text))
    return options


def strangers(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return variables that look like options but are none, each with the nearest option."""
    from difflib import get_close_matches

    known = {option.variable for option in OPTIONS}
    return [
        f"{name} (the nearest is {get_close_matches(name, sorted(known), 1, 0.0)[0]})"
        for name in sorted(environ)
        if name.startswith("FTRMA_") and name not in known | INNER_NAMES | {CONFIG_VARIABLE}
    ]


def to_environment(options: Options) -> dict[str, str]:
    """Return the environment that carries the options to the processes of a job."""
    found = {}
    for option in OPTIONS:
        value = getattr(options, option.attribute)
        if option.attribute == "kill":
            value = " ".join(rule.text for rule in value) or None
        elif isinstance(value, bool):
            value = YES if value else ""
        elif isinstance(value, dict):
            value = " ".join(f"{name}={entry!r}" for name, entry in value.items())
        if value is not None and str(value):
            found[option.variable] = str(value)
    if options.job:
        found["FTRMA_JOB"] = options.job
    if options.spill:
        found["FTRMA_SPILL_ENTRY"] = str(options.spill_entry)
    return found
