"""``ftrma reliability`` and ``ftrma plan``: options, checks, and what is printed.

Importing this module is cheap, because ``ftrma run`` builds the same parser; numpy, scipy and
matplotlib come with the first computation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

from ..interval import FIRST_GUESS_BYTES_PER_S, daly_interval, young_interval

UNITS = {"": 1.0, "b": 1.0} | {
    f"{prefix}{suffix}": 1024.0 ** (i + 1)
    for i, prefix in enumerate("kmgt")
    for suffix in ("ib", "b", "")
}
MOST_POINTS = 10_000
MOST_DRAWN = 2e10  # members looked at, all trials together; about a minute
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
    ("--mtbf", "SECONDS", "mean time between failures of the job (default: the machine's)"),
    ("--bandwidth", "SIZE", f"bytes per second that a process copies (default: "
                            f"{FIRST_GUESS_BYTES_PER_S:g})"),
]  # fmt: skip


def add_parsers(commands: Any) -> None:
    """Add both commands to the parser of ``ftrma``."""
    for name, text, options, run in (
        ("reliability", "how likely a catastrophic failure is", RELIABILITY_OPTIONS, reliability),
        ("plan", "the cheapest protection that is safe enough", PLAN_OPTIONS, plan),
    ):
        parser = commands.add_parser(name, help=text)
        for flag, metavar, meaning in options:
            parser.add_argument(flag, metavar=metavar, help=meaning)
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(run=run)


# ---- ftrma reliability ----------------------------------------------------------------------


def reliability(arguments: argparse.Namespace) -> int:
    """Print P_cf of one layout or of many, or the fits to a record of failures."""
    if arguments.history_days and not arguments.fit:
        raise ValueError("--history-days: only with --fit; leave it out")
    return fit(arguments) if arguments.fit else compute(arguments)


def compute(arguments: argparse.Namespace) -> int:
    from . import machine, plots, report

    path = plots.check_path(arguments.plot) if arguments.plot else None
    found = machine.load(needed(arguments, "machine"))
    points = all_points(arguments, found)
    if path:
        plots.draw_sweep(found, points, path)
    if arguments.json:
        show(json.dumps(points[0] if len(points) == 1 else points, indent=1))
    else:
        show(report.text(found, points))
    return 0


def all_points(arguments: argparse.Namespace, machine: Any) -> list[JsonObject]:
    """Return the results of all layouts that are asked for.

    Within a sweep or a list of levels, a layout that does not fit is a gap; alone it is an error.
    """
    from . import report
    from .model import make_groups

    ranks, m = whole("--ranks", needed(arguments, "ranks")), whole("--m", arguments.m or "1")
    checksums = sweep(needed(arguments, "checksums"))
    levels = machine.strategies if arguments.aware in (None, "all") else [arguments.aware]
    machine.awareness(levels[0])
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
                points[-1]["simulated"] = drawn(arguments, machine, groups, level)
    if problem and all(p["p_cf_per_day"] is None for p in points):
        raise problem
    return points


def drawn(arguments: argparse.Namespace, machine: Any, groups: Any, level: str) -> JsonObject:
    """Return the estimates of the simulation for one layout."""
    from .simulate import BATCHES, simulate

    trials = whole("--simulate", arguments.simulate)
    if trials < BATCHES:
        raise ValueError(f"--simulate {trials}: too few to tell anything; use {BATCHES} or more")
    aware = machine.awareness(level)
    most = int(MOST_DRAWN / (groups.ranks + groups.checksums) / max(1, aware))
    if trials > most:
        raise ValueError(f"--simulate {trials}: would take long here; use {most} or fewer")
    seed = whole("--seed", arguments.seed or "1", least=0)
    found = {}
    for placement in ("aligned", "scattered"):
        estimate = simulate(machine, groups, aware, placement, trials, seed)
        found[placement] = {"p_cf_per_day": estimate.p_cf_per_day, "trials": trials, "seed": seed,
                            "between": [estimate.low, estimate.high]}  # fmt: skip
    return found


def fit(arguments: argparse.Namespace) -> int:
    from . import history, plots, report

    for name in ("machine", "ranks", "checksums", "aware", "m", "simulate", "seed"):
        if getattr(arguments, name):
            raise ValueError(f"--{name}: not together with --fit; leave one of them out")
    days = number("--history-days", arguments.history_days) if arguments.history_days else None
    path = plots.check_path(arguments.plot) if arguments.plot else None
    record = history.read(Path(arguments.fit), days)
    fits: dict[str, list[history.Fit]] = {}
    problems: dict[str, str] = {}
    for level, counts in record.levels.items():
        try:
            fits[level] = [history.fit_by_least_squares(counts, record.days),
                           history.fit_by_likelihood(counts, record.days)]  # fmt: skip
        except ValueError as error:
            problems[level] = str(error)
    found = report.fit_object(record, fits, problems)
    if path:
        plots.draw_fits(record, fits, path)
    show(json.dumps(found, indent=1) if arguments.json else report.fit_text(found))
    return 0


# ---- ftrma plan -----------------------------------------------------------------------------


def plan(arguments: argparse.Namespace) -> int:
    """Print the cheapest layout that reaches the target; status 1 if none does."""
    from . import machine, provision, report

    found = machine.load(needed(arguments, "machine"))
    per_day = sum(level.total_per_day() for level in found.levels)
    if not arguments.mtbf and not per_day:
        raise ValueError(f"--mtbf is missing, and {found.name} never fails; give seconds")
    target = number("--target-pcf", needed(arguments, "target_pcf"))
    if target > 1:
        raise ValueError(f"--target-pcf {target:g}: a probability; use at most 1, such as 1e-6")
    bandwidth = arguments.bandwidth
    demand = provision.Demand(
        whole("--ranks", needed(arguments, "ranks")),
        size("--memory", needed(arguments, "memory")),
        target,
        number("--mtbf", arguments.mtbf) if arguments.mtbf else 86400 / per_day,
        size("--bandwidth", bandwidth) if bandwidth else FIRST_GUESS_BYTES_PER_S,
    )
    offers, safest = provision.search(found, demand)
    delta_s = demand.memory_bytes / demand.bandwidth_bytes_per_s
    shown = {
        "machine": arguments.machine, "ranks": demand.ranks, "memory_bytes": demand.memory_bytes,
        "target_per_day": target, "mtbf_s": demand.mtbf_s,
        "bandwidth_bytes_per_s": demand.bandwidth_bytes_per_s,
        "young_s": young_interval(delta_s, demand.mtbf_s),
        "daly_s": daly_interval(delta_s, demand.mtbf_s),
        "offers": [report.offer_object(offer, demand) for offer in offers],
        "safest": report.offer_object(safest, demand) if safest else None,
    }  # fmt: skip
    if arguments.json:
        show(json.dumps(shown, indent=1))
    elif offers:
        show(report.plan_text(shown))
    elif safest:
        show(
            f"no layout on {found.name} keeps P_cf at {target:g} per day; the lowest is "
            f"{safest.p_cf_per_day:.3g} with:\n{safest.command(demand.mtbf_s)}"
        )
    return 0 if offers else 1


def show(text: str) -> None:
    """Print a result; a reader that has seen enough, such as head, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes once more at its end and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ---- values ---------------------------------------------------------------------------------


def needed(arguments: argparse.Namespace, name: str) -> str:
    text = getattr(arguments, name)
    if text is None:
        raise ValueError(f"--{name.replace('_', '-')} is missing; see ftrma "
                         f"{arguments.command} -h")  # fmt: skip
    return str(text)


def whole(flag: str, text: str, least: int = 1) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
        raise ValueError(f"{flag} {text}: expected a whole number, {least} or more")
    return int(text)


def number(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{flag} {text}: expected a number above 0")
    return value


def size(flag: str, text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d*)?(?:e[+]?\d{1,2})?)\s*([A-Za-z]*)", text)
    if not match or match[2].lower() not in UNITS or float(match[1]) <= 0:
        raise ValueError(f"{flag} {text}: expected a size above 0, such as 2GiB")
    return float(match[1]) * UNITS[match[2].lower()]


def sweep(text: str) -> list[int]:
    """Return the values of ``C`` or ``FROM:TO:STEP``, both ends included."""
    parts = text.split(":")
    if len(parts) not in (1, 3):
        raise ValueError(f"--checksums {text}: expected a number or FROM:TO:STEP, as 50:1000:50")
    values = [whole("--checksums", part) for part in parts]
    if len(values) == 1:
        return values
    first, last, step = values
    if last < first:
        raise ValueError(f"--checksums {text}: {last} is below {first}; use FROM:TO:STEP upward")
    if (last - first) // step >= MOST_POINTS:
        raise ValueError(f"--checksums {text}: more than {MOST_POINTS} values; use a larger step")
    return list(range(first, last + 1, step))
