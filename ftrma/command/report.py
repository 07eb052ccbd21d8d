"""The command ``ftrma report``: one page about a run, from its statistics and its trace."""

from __future__ import annotations

import argparse
from typing import Any

from ..host import outfile
from ..host.outfile import say


def add_parser(commands: Any) -> None:
    """Add the command to the parser of ``ftrma``."""
    parser = commands.add_parser("report", help="a page about a run, for any browser")
    parser.add_argument("stats", metavar="STATS", help="what ftrma run --stats FILE has written")
    parser.add_argument("trace", nargs="?", metavar="TRACE",
                        help="what ftrma run --trace FILE has written: adds slots over time")
    parser.add_argument("-o", "--output", metavar="FILE", required=True,
                        help="the page, such as report.html")
    parser.add_argument("--machine", metavar="NAME|FILE",
                        help="add P_cf on a machine: tsubame2, bluewaters, or a TOML file")
    parser.set_defaults(run=report)


def report(arguments: argparse.Namespace) -> int:
    """Write the page."""
    from . import reportdata, reportpage, reporttrace

    read = [name for name in (arguments.stats, arguments.trace) if name]
    outfile.check("-o", arguments.output, read)
    run = reportdata.read(arguments.stats)
    activity = reporttrace.read(arguments.trace, run.began_monotonic_s, run.total_s) if (
        arguments.trace) else None
    safety = safety_of(arguments.machine, run) if arguments.machine else None
    try:
        outfile.write(arguments.output, reportpage.page(run, activity, safety))
    except (KeyError, TypeError) as error:  # in parts that only the page reads
        raise ValueError(f"{arguments.stats}: these are no statistics of a run: {error}; "
                         f"{reportdata.REMEDY}") from None
    except OSError as error:
        raise ValueError(f"-o {arguments.output}: {outfile.why(error)}") from None
    say(f"wrote {arguments.output}: effective time {100 * run.share:.1f} % of {run.total_s:.1f} s")
    return 0


def safety_of(name: str, run: Any) -> dict[str, Any]:
    """Return P_cf of a run's layout on a machine, by level of awareness.

    Returns:
        The machine's name, and for each level P_cf per day by each model; None if the layout does
        not fit on the machine.

    Raises:
        ValueError: there is no such machine, or no layout fits.
    """
    from ..reliability import machine, report
    from ..reliability.model import make_groups

    found = machine.load(name)
    groups = make_groups(run.slots, run.checksums, run.strength)
    points: list[dict[str, Any]] = []
    for level in found.strategies:
        try:
            point = report.point(name, found, groups, level)
        except ValueError as error:
            if level == found.strategies[-1] and all(p["eq9"] is None for p in points):
                raise ValueError(f"--machine {name}: {error}") from None
            points.append({"aware": level, "eq9": None, "aligned": None, "scattered": None})
            continue
        points.append({"aware": level, "eq9": point["p_cf_per_day"],
                       **{kind: point["exact"][kind]["p_cf_per_day"]
                          for kind in ("aligned", "scattered")}})
    return {"machine": found.name, "points": points}
