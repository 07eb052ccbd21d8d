"""Measures tasks and finishes of `ftrma.apgas`, with the resilient finish and without resilience.

In each round the same patterns run in two jobs, one after the other: with finish "place0", which
survives deaths, and with "none", which counts by messages to the home and survives none. The
patterns are those by which X10 measures its finishes; a ratio compares one pattern's times in one
round. The store's times stand beside a copy of as many bytes in the same job. With ``--mpirun``
the places are on several nodes; if it maps by node, the other place is on another node.

With ``--peers`` calls and programs are measured beside other systems, see ``apgas_peers.py``; with
``--apps`` applications with deaths, see ``apgas_apps.py``.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import Any

from . import apgas_apps, apgas_peers, common, figures, launching
from .common import Parser, ratios, spread
from .launching import HERE, JsonObject

SCRIPT = HERE / "apgas_app.py"
SIDES = ("place0", "none")
FROM = {"zero": "place zero", "one": "another"}
# D. Grove et al., "Failure Recovery in Resilient X10", table 1: place zero's finish, 8 places.
PAPER = {"local": "1.1", "single": "4.0", "fan-out, back": "3.5", "fan-out, local work": "3.0",
         "fan-out squared": "4.8"}
LOCAL_TARGET, TARGET = 1.05, 1.3  # resilient / not, for finishes of one place and of several


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("apgas", "Tasks, finishes and the store, resilient and not.")
    parser.add_argument("-n", dest="places", type=common.whole, default=4, metavar="N",
                        help="places, two or more")
    parser.add_argument("--seconds", type=common.positive, default=0.3, metavar="S",
                        help="for each pattern, in each round")
    parser.add_argument("--peers", action="store_true",
                        help="calls and programs beside other systems instead")
    parser.add_argument("--apps", nargs="*", choices=apgas_apps.APPS, metavar="APP",
                        default=argparse.SUPPRESS, help="what resilience, checkpoints and deaths "
                        f"cost applications instead: all of {', '.join(apgas_apps.APPS)}, or some")
    parser.add_argument("--steps", type=common.whole, default=argparse.SUPPRESS, metavar="K",
                        help=f"of applications ({apgas_apps.STEPS})")
    parser.add_argument("--depth", type=common.whole, default=argparse.SUPPRESS, metavar="K",
                        help=f"of uts, a tree search ({apgas_apps.DEPTH})")
    parser.add_argument("--mpirun", default=argparse.SUPPRESS, metavar="OPTIONS",
                        help="measure over nodes: names of hosts and a mapping for the launcher, "
                        "such as '--host a:2,b:2 --map-by node'")
    options = parser.parse_args(arguments)
    asked = {name: getattr(options, name, None) for name in ("apps", "steps", "depth")}
    for name in ("steps", "depth"):
        if asked[name] and asked["apps"] is None:
            parser.error(f"--{name} {asked[name]}: belongs to --apps")
    if asked["apps"] is not None and options.peers:
        parser.error("--apps, --peers: give one of them")
    options.mpirun = getattr(options, "mpirun", "")
    if options.mpirun and (options.peers or asked["apps"] is not None):
        parser.error("--mpirun: goes neither with --peers nor with --apps")
    options.apps = asked["apps"] if asked["apps"] is None else asked["apps"] or apgas_apps.APPS
    options.steps = asked["steps"] or apgas_apps.STEPS
    options.depth = asked["depth"] or apgas_apps.DEPTH
    if options.places < 2:
        parser.error(f"-n {options.places}: give 2 or more places")
    return options


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    if options.peers:
        return apgas_peers.main(options)
    if options.apps:
        return apgas_apps.main(options)
    report = common.begin("apgas")
    report.update(places=options.places, rounds=options.rounds, seconds=options.seconds,
                  launcher=options.mpirun)
    nodes = ["--mpirun", options.mpirun] if options.mpirun else []
    found: dict[str, list[Any]] = {side: [] for side in SIDES}
    for i in range(options.rounds):
        common.progress(f"apgas: round {i + 1} of {options.rounds}")
        for side in SIDES[::-1] if i % 2 else SIDES:
            said, _ = launching.run_protected(
                options.places, SCRIPT, [side, str(options.seconds)],
                ["--spares", "0", *nodes], options.timeout)
            found[side].append(said)
    report["patterns"] = {
        place: {name: {**{side: spread([run[place][name] for run in found[side]])
                          for side in SIDES},
                       "ratio": spread(ratios(*([run[place][name] for run in found[side]]
                                                for side in SIDES)))}
                for name in found["none"][0][place]} for place in FROM}
    report["at"] = {side: spread([run["at"] for run in found[side]]) for side in SIDES}
    report["store"] = {name: spread([run["store"][name] for run in found["place0"]])
                       for name in found["place0"][0]["store"]}
    report["store"]["set / memcpy of 1 MiB"] = spread(
        run["store"]["set 1 MiB"] / run["store"]["memcpy 1 MiB"] for run in found["place0"])
    common.finish(report, options, text, draw)
    return 0


def in_us(found: JsonObject) -> str:
    return common.with_range(common.scaled(found, 1e6), 0)


def text(report: JsonObject) -> str:
    """The tables for people."""
    rows = [["us", "from", "place0", "none", "place0 / none", "paper",
             "target"]]
    for place, name_of_place in FROM.items():
        for name, times in report["patterns"][place].items():
            aim = LOCAL_TARGET if name == "local" else TARGET
            met = "met" if times["ratio"]["median"] <= aim else "missed"
            rows.append([name, name_of_place, *(in_us(times[side]) for side in SIDES),
                         common.with_range(times["ratio"], against=1), PAPER.get(name, "-"),
                         f"<= {aim:g} {met}"])
    calls = [["us", "median (min .. max)"],
             *(["at and back, " + side, in_us(report["at"][side])] for side in SIDES)]
    store = report["store"]
    calls += [[name, in_us(times)] for name, times in store.items() if "/" not in name]
    ratio = store["set / memcpy of 1 MiB"]
    met = "met" if ratio["median"] <= 3 else "missed"
    return "\n".join([
        f"{report['places']} places{', on nodes' if report['launcher'] else ''}; "
        f"{report['rounds']} rounds; median (min .. max).", "",
        common.table(rows), "", common.table(calls), "",
        f"set / memcpy of 1 MiB: {common.with_range(ratio, against=1)}, target <= 3 {met}"])


def draw(report: JsonObject, path: Any) -> None:
    """The cost of resilience, pattern by pattern (table 1)."""
    names = list(report["patterns"]["zero"])
    figure, axes = figures.chart(
        names, {f"from {label}": [report["patterns"][place][name]["ratio"] for name in names]
                for place, label in FROM.items()},
        f"time with the resilient finish / without, {report['places']} places (the paper: 8)",
        paper=[figures.range_of(PAPER.get(name, "")) for name in names])
    axes.axvline(1.0, color="0.2", lw=0.8)
    common.save(figure, path, report)
