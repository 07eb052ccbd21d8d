"""`bench apgas --apps`: applications over places, without resilience, with it, and with deaths.

In each round each application runs in these ways, in an order that turns: with the finish "none"
and no checkpoint after the first, with the resilient finish, with checkpoints too, and with one,
two and three deaths of a place. The time of a run begins with its first step, so making the data
and the first checkpoint, which is shown apart, do not count. All runs of an application must come
to the same bits. The tree search is also counted by one process alone.

Source: D. Grove et al., "Failure Recovery in Resilient X10", tables 2 to 6: runs of about 5 minutes
with 160 places.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from . import common, figures, launching
from .common import ratios, spread
from .launching import HERE, BenchError, JsonObject

SCRIPT = HERE / "apgas_apps_app.py"
APPS = ("kmeans", "logreg", "pagerank", "lulesh", "uts")
STEPS, DEPTH = 120, 11
MOST_DEATHS = 3
ARMS = ("none", "place0", "saved", *map(str, range(1, MOST_DEATHS + 1)))
EVERY, COMMIT_S = 10, 0.05  # steps between two checkpoints, seconds between two commits
# Records, of commits and parts, at which a place of the search dies: the first place when spares
# have come up, since the first of those that are ready replaces it; the others sooner.
FIRST_RECORD, LATER_RECORD = 20, 8
# Percent by which the paper's runs take longer: with the resilient finish; with checkpoints, too.
PAPER = {"kmeans": ("0.1 to 2.9", "1.8 to 12.5"), "pagerank": ("6.9", "50.6"),
         "lulesh": ("0.2", "3.0"), "uts": ("<= 0.3", "0.3")}
RESILIENT_TARGET, DOWN_TARGET_MS = 2.0, 100.0
SAVED_TARGET = dict.fromkeys(APPS, 1.8) | {"uts": 1.0}
LOSS_TARGET_S = 0.3  # of the search, for each death


def main(options: Namespace) -> int:
    """Measure, print, draw."""
    report = common.begin("apgas --apps")
    places = max(2, min(options.places, len(os.sched_getaffinity(0))))
    report.update(places=places, rounds=options.rounds, steps=options.steps, depth=options.depth)
    found: dict[str, dict[str, list[JsonObject]]] = {app: {} for app in options.apps}
    for i in range(options.rounds):
        for app in options.apps:
            arms = (*(("sequential",) if app == "uts" else ()), *ARMS)
            turn = i % len(arms)
            for arm in (*arms[turn:], *arms[:turn]):
                common.progress(f"apgas --apps: round {i + 1} of {options.rounds}, {app}, {arm}")
                found[app].setdefault(arm, []).append(measure(options, places, app, arm))
            results = {runs[-1]["crc"] for runs in found[app].values()}
            if len(results) != 1:
                raise BenchError(f"{app}: the runs have not come to the same bits")
    report["apps"] = {app: summary(app, runs, places) for app, runs in found.items()}
    common.finish(report, options, text, draw)
    return 0


def sizes_of(options: Namespace, app: str) -> list[int]:
    """Arguments of an application, behind its name."""
    return {"kmeans": [200_000, 30, 10, options.steps], "logreg": [200_000, 30, options.steps],
            "pagerank": [50_000, options.steps], "lulesh": [30, options.steps],
            "uts": [options.depth]}[app]


def measure(options: Namespace, places: int, app: str, arm: str) -> JsonObject:
    """Run an application in one way."""
    words = [app, json.dumps(sizes_of(options, app))]
    if arm == "sequential":
        return launching.run([sys.executable, str(SCRIPT), arm, *words, "0"], options.timeout)
    deaths = int(arm) if arm.isdigit() else 0
    rules = kills(options, app, deaths)
    every = COMMIT_S if app == "uts" else EVERY
    said, _ = launching.run_protected(
        places, SCRIPT,
        ["none" if arm == "none" else "place0", *words,
         "0" if arm in ("none", "place0") else str(every)],
        ["--spares", str(deaths), *rules], options.timeout, deaths=deaths)
    return said


def kills(options: Namespace, app: str, deaths: int) -> list[str]:
    """Deaths in equal distances: of place 1, and of each place that has replaced it.

    Visits are those of a process, so each victim dies after as many steps of its own.
    """
    victims = ["1", *(f"s{spare}" for spare in range(deaths - 1))][:deaths]
    if app == "uts":
        visits = [f"apgas.half:{FIRST_RECORD}"] + [f"apgas.half:{LATER_RECORD}"] * deaths
    else:
        visits = [f"apgas.step:{max(2, options.steps // (deaths + 1))}"] * deaths
    return [word for victim, visit in zip(victims, visits, strict=False)
            for word in ("--kill", f"{victim}@{visit}")]


def summary(app: str, runs: dict[str, list[JsonObject]], places: int) -> JsonObject:
    """The times of an application, and what they are by those without resilience."""
    def seconds(arm: str) -> list[float]:
        return [run["seconds"] for run in runs[arm]]

    def more(arm: str, than: str) -> JsonObject:
        """Percent by which one takes longer."""
        return spread(100 * (ratio - 1) for ratio in ratios(seconds(arm), seconds(than)))

    found: JsonObject = {
        "seconds": {arm: spread(seconds(arm)) for arm in runs},
        "resilient_percent": more("place0", "none"), "saved_percent": more("saved", "none")}
    deaths = ARMS[3:]
    found["loss_s"] = {arm: spread((lost - whole) / int(arm) for lost, whole in
                                   zip(seconds(arm), seconds("saved"), strict=True))
                       for arm in deaths}
    if app == "uts":
        found["efficiency"] = spread(one / (places * all_) for one, all_ in
                                     zip(seconds("sequential"), seconds("none"), strict=True))
        found["nodes_per_s"] = spread(run["crc"] / run["seconds"] for run in runs["none"])
        return found
    found["step_s"] = spread(run["step_s"] for run in runs["none"])
    for name in ("first_s", "checkpoint_s"):
        found[name] = spread(run[name] for run in runs["saved"])
    found["recovery"] = {arm: {
        **{phase: spread(each[phase] for run in runs[arm] for each in run["recoveries"])
           for phase in ("runtime_s", "data_s", "redone_s")},
        "stood_s": spread(stood for run in runs[arm] for stood in run["stood_s"])}
        for arm in deaths}
    return found


def met(value: float, target: float) -> str:
    return f"<= {target:g} {'met' if value <= target else 'missed'}"


def text(report: JsonObject) -> str:
    """The tables for people."""
    apps = report["apps"]
    costs = [["percent", "resilient finish", "paper", "target", "and checkpoints", "paper",
              "target"]]
    for app, found in apps.items():
        papers = PAPER.get(app, ("-", "-"))
        targets = RESILIENT_TARGET, SAVED_TARGET[app]
        costs.append([app])
        for name, paper, target in zip(("resilient_percent", "saved_percent"), papers,
                                       targets, strict=True):
            costs[-1] += [common.with_range(found[name], 1, against=0), paper,
                          met(found[name]["median"], target)]
    tables = [common.table(costs)]
    stepped = {app: found for app, found in apps.items() if app != "uts"}
    if stepped:
        tables += [common.table(of_steps(stepped)), common.table(of_deaths(stepped))]
    if "uts" in apps:
        tables.append(of_search(apps["uts"], report))
    return "\n\n".join([
        f"{report['places']} places, {report['steps']} steps, checkpoints every {EVERY}; the "
        f"search: depth {report['depth']}, commits every {COMMIT_S} s; {report['rounds']} rounds; "
        "median (min .. max).", *tables])


def of_steps(apps: JsonObject) -> list[list[str]]:
    rows = [["ms", "a step", "first checkpoint", "another checkpoint"]]
    for app, found in apps.items():
        rows.append([app, *(common.with_range(common.scaled(found[name], 1e3), 1)
                            for name in ("step_s", "first_s", "checkpoint_s"))])
    return rows


def of_deaths(apps: JsonObject) -> list[list[str]]:
    rows = [["ms for a death", "places, store", "data", "work again", "step to step", "target"]]
    for app, found in apps.items():
        for arm, phases in found["recovery"].items():
            shown = [common.with_range(common.scaled(phases[name], 1e3), 0)
                     for name in ("runtime_s", "data_s", "redone_s", "stood_s")]
            rows.append([f"{app}, {arm}", *shown,
                         met(1e3 * phases["stood_s"]["median"], DOWN_TARGET_MS)])
    return rows


def of_search(found: JsonObject, report: JsonObject) -> str:
    rate = common.with_range(common.scaled(found["nodes_per_s"], 1e-6), 2)
    share = common.with_range(common.scaled(found["efficiency"], 100), 1)
    lines = [f"uts: {rate} million nodes a second, {share} % of what {report['places']} processes "
             "alone would count (paper 98 with 160 places, target >= 95)"]
    for arm, loss in found["loss_s"].items():
        lines.append(f"uts, {arm} died: {common.with_range(loss)} s for each (paper 3), target "
                     f"{met(loss['median'], LOSS_TARGET_S)}")
    return "\n".join(lines)


def draw(report: JsonObject, path: Any) -> None:
    """Times of all ways by those without resilience (figure 3)."""
    apps = report["apps"]
    labels = {"place0": "resilient finish", "saved": "and checkpoints", "1": "1 death",
              "2": "2 deaths", "3": "3 deaths"}

    def by_none(app: str, arm: str) -> JsonObject:
        return common.scaled(apps[app]["seconds"][arm],
                             1 / apps[app]["seconds"]["none"]["median"])

    sides: dict[str, Sequence[Any]] = {
        label: [by_none(app, arm) for app in apps] for arm, label in labels.items()}
    figure, axes = figures.chart(list(apps), sides, "time by that without resilience")
    axes.axvline(1.0, color="0.2", lw=0.8)
    common.save(figure, path, report)
