"""Writes a report: one HTML page that needs nothing else, no script and no network.

The page's own policy forbids both, so that it can be sent to anybody and opened anywhere. All text
of a run is escaped, since a reason or a program's name may contain anything.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from statistics import mean, median
from typing import Any

from . import reportcharts as charts
from .reportcharts import WORDS
from .reportdata import PHASES, Run, number
from .reporttrace import LEVELS, SLOW, Activity, Pace
from .status import lasting, size

MOST_ROWS = 200  # most rows of a table; the rest is counted
DAY_SECONDS = 86400.0
STYLE = """
:root { color-scheme: light dark; --ink: #1c2328; --soft: #5c6870; --line: #d8dee2; --page: #fff;
  --card: #f5f7f8; --useful: #1b9e77; --starting: #9aa5ad; --checkpoints: #3b82c4;
  --recoveries: #c8431f; --again: #e39a1d; --detect: #b4639a; --repair: #c8431f;
  --restore: #3b82c4; --replay: #d9b310; --curve: #1c5f99; --causal: #7b61c2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaed; --soft: #9aa7b0; --line: #39434a;
  --page: #14191c; --card: #1d2428; --useful: #2fae88; --starting: #6d7981; --checkpoints: #5b9bd8;
  --recoveries: #e0633f; --again: #e6a93c; --detect: #c884b1; --repair: #e0633f;
  --restore: #5b9bd8; --replay: #e3c53a; --curve: #7db6ea;
  --causal: #a48de0; } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1120px; padding: 28px 24px 60px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif }
h1 { font-size: 25px; margin: 0 0 4px } h2 { font-size: 19px; margin: 36px 0 8px }
h3 { font-size: 16px; margin: 22px 0 6px }
p { margin: 6px 0 10px; max-width: 78ch } .soft { color: var(--soft) }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 18px 0 }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 14px; flex: 1 1 150px }
.tile b { display: block; font-size: 23px; line-height: 1.25 } .tile span { color: var(--soft) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums }
th, td { padding: 4px 14px 4px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line) }
th { color: var(--soft); font-weight: 600; white-space: nowrap }
td:last-child:not(.n) { min-width: 12em }
td.n, th.n { text-align: right; white-space: nowrap }
svg { width: 100%; height: auto; display: block; min-width: 640px }
svg text { fill: var(--soft); font-size: 12px } svg .tick { text-anchor: middle }
svg .name { text-anchor: end } svg .small { font-size: 11px }
.grid { stroke: var(--line); stroke-width: 1; fill: none }
.curve { stroke: var(--curve); stroke-width: 2; fill: none } .dot { fill: var(--checkpoints) }
.bar { fill: var(--checkpoints) } .death { stroke: var(--ink); stroke-width: 2.4; fill: none }
.limit { stroke: var(--recoveries); stroke-dasharray: 4 3; fill: none }
.useful { fill: var(--useful); background: var(--useful) }
.starting { fill: var(--starting); background: var(--starting) }
.checkpoints { fill: var(--checkpoints); background: var(--checkpoints) }
.recoveries { fill: var(--recoveries); background: var(--recoveries) }
.again { fill: var(--again); background: var(--again) }
.detect { fill: var(--detect); background: var(--detect) }
.repair { fill: var(--repair); background: var(--repair) }
.restore { fill: var(--restore); background: var(--restore) }
.replay { fill: var(--replay); background: var(--replay) }
.recovery { fill: var(--recoveries) } .causal { fill: var(--causal); background: var(--causal) }
.recovery.reentry { fill: var(--again) } .reseat { fill: var(--starting) }
.key { margin: 6px 0 2px; font-size: 13px; color: var(--soft) } .key span { margin-right: 16px;
  display: inline-block } p.key { max-width: none }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px }
image { image-rendering: pixelated }
@media print { body { max-width: none } h2 { break-after: avoid } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Shades of a slot's strip, from computing to waiting in calls, while it is live and while it is
# replayed.
LIGHT, CALLS, REPLAY_LIGHT, REPLAY = (197, 232, 214), (31, 87, 138), (250, 224, 150), (190, 75, 20)


def page(run: Run, activity: Activity | None, safety: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the text of the page.

    Args:
        activity: summary of the run's trace; None if none was given.
        safety: P_cf of the layout on a machine, see `report.safety_of`; None if no machine was
            named.
    """
    name = run.program or run.job or "a run"
    yield (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
           f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
           '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
           f"<title>ftrma report: {escape(name[:80])}</title>\n"
           f"<style>{STYLE}</style></head><body>\n")
    yield head(run)
    yield tiles(run)
    yield where_time_went(run)
    yield section("Timeline", wide(charts.timeline(run)) + key(
        [("useful", "useful"), ("starting", "starting"), ("again", "work done again"),
         ("recoveries", "recovery"), ("causal", "causal: the others go on"),
         ("checkpoints", "coordinated checkpoint")]))
    yield recoveries(run)
    yield checkpoints(run)
    yield next_failure(run)
    yield layout(run, safety)
    yield stalls(run)
    yield slots(run, activity)
    yield f'<p class="soft">Written by ftrma report, {clock(time.time())}.</p></body></html>\n'


def head(run: Run) -> str:
    program = f"<p><code>{escape(run.program)}</code></p>" if run.program else ""
    job = f"{escape(run.job)}, " if run.job else ""
    return (f"<h1>Report of a run</h1>{program}<p class=soft>{job}began {clock(run.began)}, ran "
            f"for {lasting(run.total_s)}, ended with status {run.status}.</p>\n{halted(run)}")


def halted(run: Run) -> str:
    """Say why a run ended before its program did; empty if it did not."""
    halt = run.more.get("halt")
    if not isinstance(halt, dict):
        return ""
    whole = "nothing is computed twice" if halt.get("whole") else "what came after it is lost"
    version = halt.get("version")
    left = f"It can go on from checkpoint {version}; {whole}." if version else "Nothing is left."
    return (f"<p>It ended before its program: {escape(str(halt.get('reason', '')))}. "
            f"{escape(left)}</p>\n")


def tiles(run: Run) -> str:
    """Return the figures that operators ask for first."""
    taken, kinds = run.coordinated, Counter(r.kind for r in run.recoveries)
    held = f"held up {lasting(sum(each.seconds for each in run.checkpoints))} in all"
    repair = [r.seconds for r in run.recoveries]
    said = [(f"{100 * run.share:.1f} %", "effective time"), (lasting(run.total_s), "total"),
            (str(len(run.checkpoints)), f"checkpoints, {held}" if taken else "checkpoints"),
            (str(len(run.deaths)), "processes died"),
            (str(len(run.recoveries)), ", ".join(f"{n} {kind}" for kind, n in kinds.items())
             or "recoveries")]
    if repair:
        said.append((lasting(mean(repair)), "mean recovery"))
    return '<div class="tiles">' + "".join(
        f'<div class="tile"><b>{value}</b><span>{escape(words)}</span></div>'
        for value, words in said) + "</div>\n"


def where_time_went(run: Run) -> str:
    rows = [(f'<i class="{kind}"></i>{WORDS[kind]}', lasting(seconds) if seconds else "0",
             f"{100 * seconds / max(run.total_s, 1e-9):.2f} %", meaning)
            for kind, seconds, meaning in (
                ("useful", run.useful_s, "progress that was kept"),
                ("starting", run.lost_s["starting"], "until the slots entered the program"),
                ("checkpoints", run.lost_s["checkpoints"], "the program was held up"),
                ("recoveries", run.lost_s["recoveries"], "from a death to the recovery's end"),
                ("again", run.lost_s["again"], "thrown away by a rollback or relaunch"))]
    return section("Where the time went", wide(charts.account(run)) + table(
        ("", "time", "share", ""), rows, numbers=(1, 2), trusted=(0,), kind="key") + (
        "<p class=soft>Effective time is useful time over total time. After a causal recovery the "
        "other slots have computed meanwhile, so the figure is a lower bound.</p>"))


def recoveries(run: Run) -> str:
    if not run.recoveries and not run.reseats:
        text = "No process died." if not run.deaths else "No recovery was needed."
        return section("Failures and recoveries", f"<p>{text}</p>")
    parts = []
    if run.recoveries:
        parts.append(wide(charts.phases(run)))
        parts.append(key([(phase, phase) for phase in PHASES]))
        if len(run.recoveries) > charts.MOST_ROWS:
            parts.append(f"<p class=soft>The {charts.MOST_ROWS} longest are drawn.</p>")
        rows = [(lasting(r.died_at_s), r.kind, ", ".join(map(str, r.slots)) or "-",
                 str(r.version) if r.version else "start", lasting(r.seconds),
                 *(lasting(r.phases[phase]) if r.phases[phase] else "-" for phase in PHASES),
                 r.reason) for r in run.recoveries]
        parts.append(table(("at", "recovery", "slots", "to version", "took", *PHASES, "why"), rows,
                           numbers=(0, 3, 4, 5, 6, 7, 8)))
    if run.deaths:
        rows = [(lasting(at_s), name) for at_s, name in run.deaths]
        parts.append("<h3>Deaths</h3>" + table(("told at", "process"), rows, numbers=(0,)))
    if run.reseats:
        rows = [(lasting(at_s), str(checksum), lasting(seconds))
                for at_s, seconds, checksum in run.reseats]
        parts.append("<h3>Checksum ranks replaced while the slots went on</h3>" + table(
            ("at", "checksum rank", "took"), rows, numbers=(0, 1, 2)))
    return section("Failures and recoveries", "".join(parts))


def checkpoints(run: Run) -> str:
    taken = run.coordinated
    if not run.checkpoints:
        return section("Checkpoints", "<p>None was taken: a rollback would have gone back to the "
                       "program's start.</p>")
    rows = []
    if taken:
        held, last = [each.seconds for each in taken], taken[-1]
        rows = [("coordinated checkpoints", str(len(taken))),
                ("interval between them, median", lasting(interval_s(run) or run.total_s)),
                ("hold-up, median", lasting(median(held))),
                ("hold-up, longest", lasting(max(held))),
                ("hold-up in all", f"{lasting(sum(held))}, "
                 f"{100 * sum(held) / max(run.total_s, 1e-9):.3f} % of the run"),
                ("protected by the last one", size(last.bytes)),
                ("changed between two, mean",
                 size(mean(each.dirty_bytes for each in taken)))]
    demand = [each for each in run.checkpoints if each.kind == "demand"]
    if demand:
        rows += [("demand checkpoints of single slots", str(len(demand))),
                 ("hold-up of one slot, median", lasting(median(e.seconds for e in demand)))]
    picture = ("<p class=soft>Hold-up of each coordinated checkpoint:</p>"
               + wide(charts.hold_ups(run))) if taken else ""
    return section("Checkpoints", table(("", ""), rows, numbers=(1,)) + picture)


def interval_s(run: Run) -> float | None:
    """Median time between coordinated checkpoints; None for fewer than two."""
    between = [after.at_s - before.at_s for before, after in pairwise(run.coordinated)]
    return median(between) if between else None


def next_failure(run: Run) -> str:
    """Estimate what one more failure would have cost, from what was measured in this run."""
    every = interval_s(run)
    lost = (every if every else run.useful_s) / 2
    since = "half the interval" if every else "half of the run, as there is no interval"
    rows = []
    for kind in ("causal", "rollback", "relaunch"):
        found = [r for r in run.recoveries if r.kind == kind]
        measured = [r.seconds - r.phases["replay"] for r in found]
        repair = lasting(mean(measured)) if measured else "not measured in this run"
        work = {"causal": f"{lasting(lost)} of one slot, while the others go on",
                }.get(kind, f"{lasting(lost)} of all slots")
        rows.append((kind, repair, work))
    return section("What one more failure would cost", table(
        ("recovery", "repair, mean", "work done again, expected"), rows) + (
        f"<p class=soft>A failure comes at any moment between two checkpoints: {since}. What a "
        "replay saves of a slot's own time (waiting) is not counted.</p>"))


def layout(run: Run, safety: Mapping[str, Any] | None) -> str:
    many = f"{run.groups} groups of up to {run.group_size}" if run.groups > 1 else "one group"
    rows = [("slots", f"{run.slots} in {many}"), ("checksum ranks", f"{run.checksums}: each group "
             f"survives {run.strength} loss{'es' * (run.strength != 1)} at a time"),
            ("spares at the start", str(run.spares)),
            *((f"given up at {lasting(at_s)}",
               f"{checksums} of the checksum ranks, {spares} of the spares, as hosts were lost")
              for at_s, checksums, spares in run.given_up),
            ("time without full redundancy", lasting(run.degraded_s) if run.degraded_s else "none")]
    parts = [table(("", ""), rows)]
    if safety:
        points = [(p["aware"], *(f"{value:.3g}" if value is not None else "-" for value in (
            p["eq9"], p["aligned"], p["scattered"])),
            "-" if p["scattered"] is None else f"{p['scattered'] * run.total_s / DAY_SECONDS:.2g}")
            for p in safety["points"]]
        parts.append(f"<p>Probability of a catastrophic failure P_cf on "
                     f"{escape(str(safety['machine']))}: more members of a group lost at once than "
                     "it survives, by how far apart the members of a group lie.</p>")
        parts.append(table(("apart up to", "per day, eq. (9)", "groups aligned",
                            "groups scattered", "in this run, scattered"), points,
                           numbers=(1, 2, 3, 4)))
    else:
        parts.append("<p class=soft>P_cf, the probability of a catastrophic failure, is computed "
                     "if a machine is named: <code>--machine</code>.</p>")
    return section("Layout and its safety", "".join(parts))


def stalls(run: Run) -> str:
    found = run.more.get("stalls")
    if not isinstance(found, list) or not found:
        return ""
    rows = [(lasting(number(s, "at_s")), str(s.get("kind", "")),
             ", ".join(map(str, s.get("slots", []))), lasting(number(s, "seconds")),
             str(s.get("action", "")), " ".join(map(str, s.get("places", []))))
            for s in found if isinstance(s, dict)]
    return section("Stalls", table(("told at", "kind", "slots", "stood still", "then", "where"),
                                   rows, numbers=(0, 3)))


def slots(run: Run, activity: Activity | None) -> str:
    parts = []
    if activity:
        parts.append("<p class=soft>Each slot over time: light where it computes, dark where it is "
                     "in calls of MPI, which wait for others too.</p>")
        palette = [(128, 128, 128), *shades(LIGHT, CALLS), *shades(REPLAY_LIGHT, REPLAY)]
        parts.append(wide(charts.strips(activity.levels, palette, run.total_s)))
        parts.append('<p class="key">' + "".join(
            f'<span><i style="background:rgb{colour}"></i>{name}</span>' for name, colour in (
                ("computes", LIGHT), ("in calls", CALLS), ("replayed", REPLAY_LIGHT),
                ("replayed, in calls", REPLAY), ("not in the program", (128, 128, 128)))) + "</p>")
        parts.append(paces(activity.paces, activity.slow, "medians, by the trace"))
    elif told := told_paces(run):
        slow = [pace for pace in told if pace.slot in told_slow(run)]
        parts.append(paces(told, slow, "means, as seen from outside"))
    logs = run.more.get("log")
    if isinstance(logs, list) and logs and all(isinstance(log, dict) for log in logs):
        rows = [(f"slot {i}", number(log, "peak_bytes"), size(number(log, "peak_bytes")))
                for i, log in enumerate(logs)]
        budget = number(logs[0], "budget_bytes")
        shown = sorted(rows, key=lambda row: -row[1])[:charts.MOST_ROWS] if len(rows) > (
            charts.MOST_ROWS) else rows
        parts.append(f"<h3>Access logs</h3><p class=soft>The most that each slot's logs have used; "
                     f"the line is the budget, {size(budget)}.</p>"
                     + wide(charts.bars(shown, budget)))
    return section("Slots", "".join(parts)) if parts else ""


def told_paces(run: Run) -> list[Pace]:
    """Paces of the slots as the statistics have them; empty if no slot has passed a step."""
    found = run.more.get("pace")
    paces = []
    for slot, each in enumerate(found if isinstance(found, list) else []):
        if isinstance(each, dict) and (steps := number(each, "steps")) > 0:
            own_s = number(each, "own_s")
            paces.append(Pace(slot, int(steps), (own_s + number(each, "waited_s")) / steps,
                              own_s / steps))
    return paces


def told_slow(run: Run) -> set[int]:
    """Slots that the statistics call slow."""
    found = run.more.get("slow")
    return {int(number(each, "slot")) for each in (found if isinstance(found, list) else [])
            if isinstance(each, dict)}


def paces(paces: Sequence[Pace], slow: Sequence[Pace], source: str) -> str:
    """Return the own time of a step, slot by slot, and the slots that are slow."""
    if not paces:
        return "<p class=soft>No slot has passed enough safepoints to tell how long steps take.</p>"
    verdict = "No slot was much slower than the others."
    if slow:
        named = ", ".join(f"slot {pace.slot} ({lasting(pace.own_s)})" for pace in slow[:8])
        usual = lasting(median(pace.own_s for pace in paces))
        verdict = (f"<b>Slow: {named}.</b> The others compute for {usual} in a step, and wait for "
                   "the slow ones in calls.")
    shown = sorted(paces, key=lambda pace: -pace.own_s)[:charts.MOST_ROWS] if len(paces) > (
        charts.MOST_ROWS) else paces
    rows = [(f"slot {pace.slot}", pace.own_s,
             f"{lasting(pace.own_s)} of {lasting(pace.step_s)}") for pace in shown]
    limit = SLOW * median(pace.own_s for pace in paces)
    return (f"<h3>Steps</h3><p>{verdict}</p><p class=soft>Own time of a step, without waiting, and "
            f"the whole step; {source}.</p>" + wide(charts.bars(rows, limit if slow else None)))


# ---- pieces of HTML -------------------------------------------------------------------------


def shades(first: Sequence[int], last: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return colours from one to another, as many as there are levels."""
    def mixed(i: int, part: int) -> int:
        return round(first[part] + (last[part] - first[part]) * i / (LEVELS - 1))

    return [(mixed(i, 0), mixed(i, 1), mixed(i, 2)) for i in range(LEVELS)]


def section(name: str, inside: str) -> str:
    return f"<section><h2>{escape(name)}</h2>{inside}</section>\n"


def wide(inside: str) -> str:
    return f'<div class="wide">{inside}</div>'


def key(entries: Sequence[tuple[str, str]]) -> str:
    return '<p class="key">' + "".join(
        f'<span><i class="{kind}"></i>{escape(words)}</span>' for kind, words in entries) + "</p>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = (),
          trusted: Sequence[int] = (), kind: str = "") -> str:
    """Return an HTML table; cells are escaped, except in the columns in `trusted`."""
    def cell(tag: str, i: int, text: str) -> str:
        of = ' class="n"' if i in numbers else ""
        return f"<{tag}{of}>{text if i in trusted else escape(text)}</{tag}>"

    shown = rows[:MOST_ROWS]
    head_row = "".join(cell("th", i, text) for i, text in enumerate(heads)) if any(heads) else ""
    lines = "".join("<tr>" + "".join(cell("td", i, text) for i, text in enumerate(row)) + "</tr>"
                    for row in shown)
    more = f"<p class=soft>and {len(rows) - MOST_ROWS} more</p>" if len(rows) > MOST_ROWS else ""
    return wide(f'<table class="{kind}"><tr>{head_row}</tr>{lines}</table>' if head_row else
                f'<table class="{kind}">{lines}</table>') + more


def clock(at: float) -> str:
    """Return date and time of day, in this machine's time zone."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"
