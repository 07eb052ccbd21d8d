"""The commands ``ftrma reliability`` and ``ftrma plan``: options, checks, output.

Importing this module is cheap, because ``ftrma run`` builds the same parser; numpy, scipy and
matplotlib are imported for the first computation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..host.jsonoutput import document
from ..host.outfile import say
from ..host.values import MTBF_S, number, size, whole
from ..machine.interval import FIRST_GUESS_BYTES_PER_S, daly_interval, young_interval
from ..machine.topology import MAX_MEMBERS

UNITS = {"": 1.0, "b": 1.0} | {
    f"{prefix}{suffix}": 1024.0 ** (i + 1)
    for i, prefix in enumerate("kmgt")
    for suffix in ("ib", "b", "")
}
MOST_RANKS = 10**9  # a hundred times the largest machine's cores
MOST_POINTS = 2000  # layouts in a sweep; some seconds ...
MANY_ELEMENTS = 50_000  # ... up to so many elements of a level; eq. (9) goes over all of them
MOST_DRAWN = 2e10  # members examined in all trials together; takes about a minute
DRAW_COSTS = 5000  # in addition a trial takes as long as so many members
MOST_BYTES = 2.0**60  # most bytes of memory, and per second
MOST_SEED = 10**18 - 1
JsonObject = dict[str, Any]

RELIABILITY_OPTIONS = [
    ("--machine", "NAME|FILE", "tsubame2, bluewaters, or a TOML file"),
    ("--ranks", "N", "computing ranks"),
    ("--checksums", "C|FROM:TO:STEP", "checksum ranks in all groups together"),
    ("--aware", "LEVEL|all", "members of a group lie apart up to this level (default: all levels)"),
    ("--m", "M", "losses that each group survives (default: 1)"),
    ("--simulate", "TRIALS", "draw so many failures per level as well"),
    ("--seed", "SEED", "of the simulation (default: 1)"),
    ("--fit", "CSV", "instead: fit exponentials to a record of failures"),
    ("--history-days", "D", "how long that was recorded (default: from first to last failure)"),
    ("--plot", "FILE", "draw P_cf over a sweep, or the fits (.pdf, .svg, .png)"),
]
PLAN_OPTIONS = [
    ("--machine", "NAME|FILE", "tsubame2, bluewaters, or a TOML file"),
    ("--ranks", "N", "computing ranks"),
    ("--memory", "SIZE", "to protect per rank, such as 2GiB"),
    ("--target-pcf", "P", "highest probability of a catastrophic failure per day"),
    ("--mtbf", "SECONDS", "mean time between failures of the job"),
    ("--bandwidth", "SIZE", f"bytes per second that a process copies (default: "
                            f"{FIRST_GUESS_BYTES_PER_S:g})"),
]


def add_parsers(commands: Any) -> None:
    """Add both commands to the parser of ``ftrma``."""
    for name, text, options, run in (
        ("reliability", "how likely a catastrophic failure is", RELIABILITY_OPTIONS, reliability),
        ("plan", "the cheapest protection that is safe enough", PLAN_OPTIONS, plan),
    ):
        parser = commands.add_parser(name, help=text, usage=f"ftrma {name} [options]")
        for flag, metavar, meaning in options:
            parser.add_argument(flag, metavar=metavar, help=meaning)
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(run=run)


# ---- ftrma reliability ----------------------------------------------------------------------


def reliability(arguments: argparse.Namespace) -> int:
    """Print P_cf of one layout or of many, or the fits to a record of failures."""
    if arguments.history_days and not arguments.fit:
        raise ValueError(
            f"--history-days {arguments.history_days}: only with --fit; leave it out"
        )
    return fit(arguments) if arguments.fit else compute(arguments)


def compute(arguments: argparse.Namespace) -> int:
    from . import machine, plots, report

    path = plots.check_path(arguments.plot, arguments.machine) if arguments.plot else None
    found = machine.load(needed(arguments, "machine"))
    points = all_points(arguments, found)
    if path:
        plots.draw_sweep(found, points, path)
    if arguments.json:
        say(document("reliability", points=points, fit=None))
    else:
        say(report.text(found, points))
    return 0


def all_points(arguments: argparse.Namespace, machine: Any) -> list[JsonObject]:
    """Return the results for all layouts that are asked for.

    Within a sweep or a list of levels, a layout that does not fit is a gap; alone it is an error.
    """
    from . import report
    from .model import make_groups

    ranks = whole("--ranks", needed(arguments, "ranks"), 1, MOST_RANKS)
    m = whole("--m", arguments.m or "1", 1, MAX_MEMBERS - 1)
    checksums = sweep(needed(arguments, "checksums"))
    levels = machine.strategies if arguments.aware in (None, "all") else [arguments.aware]
    machine.awareness(levels[0])
    most = MOST_POINTS * MANY_ELEMENTS // max(MANY_ELEMENTS, machine.levels[0].count)
    if len(checksums) * len(levels) > most:
        raise ValueError(
            f"--checksums {arguments.checksums}: {len(checksums)} values for {len(levels)} levels "
            f"of awareness, at most {most} layouts; use a larger step"
        )
    trials = 0
    if arguments.simulate:
        members = (ranks + checksums[-1]) * len(checksums)
        trials = affordable(arguments.simulate, machine, levels, members, len(checksums))
    points = []
    problem = None
    for count in checksums:
        groups = make_groups(ranks, count, m)
        for level in levels:
            try:
                points.append(report.point(arguments.machine, machine, groups, level))
            except ValueError as error:
                problem = error
                entry = report.impossible_point(arguments.machine, groups, level, str(error))
                points.append(entry)
                continue
            if arguments.simulate:
                points[-1]["simulated"] = drawn(arguments, machine, groups, level, trials)
    if problem and all(p["p_cf_per_day"] is None for p in points):
        raise problem
    return points


def affordable(
    text: str, machine: Any, levels: Sequence[str], members: int, layouts: int
) -> int:
    """Return the number of trials of ``--simulate``, or refuse a number that would take long.

    Args:
        members: members of all groups, in all layouts together.
        layouts: number of layouts for each level of awareness.
    """
    from .simulate import BATCHES

    trials = whole("--simulate", text, 1, 10**15)
    if trials < BATCHES:
        raise ValueError(f"--simulate {trials}: too few to tell anything; use {BATCHES} or more")
    drawn_levels = max(1, sum(machine.awareness(level) for level in levels))
    cost = members + layouts * (machine.levels[0].count // 10 + DRAW_COSTS)
    most = int(MOST_DRAWN / cost / drawn_levels)
    if trials > most:
        remedy = f"use {most} or fewer" if most >= BATCHES else "use fewer ranks or leave it out"
        raise ValueError(f"--simulate {trials}: would take long here; {remedy}")
    return trials


def drawn(
    arguments: argparse.Namespace, machine: Any, groups: Any, level: str, trials: int
) -> JsonObject:
    """Return the estimates of the simulation for one layout."""
    from .simulate import simulate

    aware = machine.awareness(level)
    seed = whole("--seed", arguments.seed or "1", 0, MOST_SEED)
    found = {}
    for placement in ("aligned", "scattered"):
        estimate = simulate(machine, groups, aware, placement, trials, seed)
        found[placement] = {"p_cf_per_day": estimate.p_cf_per_day, "trials": trials, "seed": seed,
                            "between": [estimate.low, estimate.high]}
    return found


def fit(arguments: argparse.Namespace) -> int:
    from . import history, plots, report

    for name in ("machine", "ranks", "checksums", "aware", "m", "simulate", "seed"):
        if getattr(arguments, name):
            raise ValueError(f"--{name}: not together with --fit; leave one of them out")
    days = None
    if arguments.history_days:
        days = number("--history-days", arguments.history_days, *history.DAYS, "days")
    path = plots.check_path(arguments.plot, arguments.fit) if arguments.plot else None
    record = history.read(Path(arguments.fit), days)
    fits: dict[str, list[history.Fit]] = {}
    problems: dict[str, str] = {}
    for level, counts in record.levels.items():
        try:
            fits[level] = [history.fit_by_least_squares(counts, record.days),
                           history.fit_by_likelihood(counts, record.days)]
        except ValueError as error:
            problems[level] = str(error)
    found = report.fit_object(record, fits, problems)
    if path:
        plots.draw_fits(record, fits, path)
    say(document("reliability", points=[], fit=found) if arguments.json else report.fit_text(found))
    return 0


# ---- ftrma plan -----------------------------------------------------------------------------


def plan(arguments: argparse.Namespace) -> int:
    """Print the cheapest layout that reaches the target; status 1 if none does."""
    from . import machine, provision, report

    found = machine.load(needed(arguments, "machine"))
    bandwidth, target = FIRST_GUESS_BYTES_PER_S, needed(arguments, "target_pcf")
    if arguments.bandwidth:
        bandwidth = at_least_one("--bandwidth", arguments.bandwidth)
    demand = provision.Demand(
        whole("--ranks", needed(arguments, "ranks"), 1, MOST_RANKS),
        at_least_one("--memory", needed(arguments, "memory")),
        number("--target-pcf", target, 1e-300, 1.0, "a probability"),
        mean_time(arguments, found),
        bandwidth,
    )
    offers, safest = provision.search(found, demand)
    delta_s = demand.memory_bytes / demand.bandwidth_bytes_per_s
    shown = {
        "machine": arguments.machine, "ranks": demand.ranks, "memory_bytes": demand.memory_bytes,
        "target_per_day": demand.target_per_day, "mtbf_s": demand.mtbf_s,
        "bandwidth_bytes_per_s": demand.bandwidth_bytes_per_s,
        "young_s": young_interval(delta_s, demand.mtbf_s),
        "daly_s": daly_interval(delta_s, demand.mtbf_s),
        "offers": [report.offer_object(offer, demand) for offer in offers],
        "safest": report.offer_object(safest, demand) if safest else None,
    }
    if arguments.json:
        say(document("plan", **shown))
    elif offers:
        say(report.plan_text(shown))
    elif safest:
        say(
            f"no layout on {found.name} keeps P_cf at {demand.target_per_day:g} per day; the "
            f"lowest is {safest.p_cf_per_day:.3g} with:\n{safest.command(demand.mtbf_s)}"
        )
    return 0 if offers else 1


def mean_time(arguments: argparse.Namespace, found: Any) -> float:
    """Return the mean seconds between failures of the job, which the user has to give.

    A job's interval and losses follow from this number. A machine's rates cannot replace it: they
    are only good for ratios (those of TSUBAME2.0, as printed, add up to one failure in 910 days,
    but there were two a day), and they are the rates of the whole machine.
    """
    if arguments.mtbf:
        return number("--mtbf", arguments.mtbf, *MTBF_S, "seconds")
    per_day = sum(level.total_per_day() for level in found.levels)
    rates = f"a failure every {86400 / per_day:.6g} s" if per_day else "no failure at all"
    raise ValueError(
        f"--mtbf is missing: give the seconds between failures of the job, from a record of "
        f"yours ('ftrma reliability --fit CSV' tells them); the rates of {found.name} add up to "
        f"{rates}, on all of it"
    )


# ---- values ---------------------------------------------------------------------------------


def needed(arguments: argparse.Namespace, name: str) -> str:
    text = getattr(arguments, name)
    if text is None:
        raise ValueError(f"--{name.replace('_', '-')} is missing; see ftrma "
                         f"{arguments.command} -h")
    return str(text)


def at_least_one(flag: str, text: str) -> float:
    """Return bytes, 1 or more."""
    found = size(flag, text, MOST_BYTES, UNITS)
    if found < 1:
        raise ValueError(f"{flag} {text}: expected a size above 0, such as 2GiB")
    return found


def sweep(text: str) -> Sequence[int]:
    """Return the values of ``C`` or ``FROM:TO:STEP``, both ends included."""
    parts = text.split(":")
    try:
        values = [whole("", part, 1, MOST_RANKS) for part in parts]
    except ValueError:
        values = []
    if len(values) not in (1, 3):
        raise ValueError(
            f"--checksums {text}: expected a number or FROM:TO:STEP such as 50:1000:50, each 1 to "
            f"{MOST_RANKS}"
        )
    if len(values) == 1:
        return values
    first, last, step = values
    if last < first:
        raise ValueError(f"--checksums {text}: {last} is below {first}; use FROM:TO:STEP upward")
    return range(first, last + 1, step)
