"""Sums up records of jobs: who died where, how they ended, and what that says.

A record is one JSON object on a line of its own:

* method: how deaths are drawn; seed and commit: which repeat the job;
* program, slots, nodes, options: the job; kills: rules of ``--kill``; strikes: deaths
  and pauses from outside;
* status, seconds: of ``ftrma run``; launches;
* deaths: role, index and place of each that the job told, or that struck it from outside while it
  came up or ended; agents: how many of them died;
* recoveries: their kinds; reseats: checksum ranks that were replaced;
* twins: checkpoints that were compared with the run without deaths, and how many of them differed;
* end, why: one of `judge.ENDS`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .judge import ENDS, GAVE_UP, HONEST, HUNG, RIGHT, UNTIDY, WRONG

CONFIDENCE = 0.95
OUTSIDE = "outside"  # the place of a death from outside, which no rule has named


def read(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The records in files; a last line that was cut off is left out."""
    for path in paths:
        for line in path.read_text().splitlines():
            if line.endswith("}"):
                yield json.loads(line)


def at_most(failures: int, runs: int, share: float) -> float:
    """Probability that so many runs have so many failures or fewer."""
    return sum(math.exp(math.lgamma(runs + 1) - math.lgamma(i + 1) - math.lgamma(runs - i + 1)
                        + i * math.log(share) + (runs - i) * math.log1p(-share))
               for i in range(failures + 1))


def bound(failures: int, runs: int) -> float:
    """Largest share of failures that agrees with what was seen, by Clopper and Pearson.

    It is one-sided at CONFIDENCE: without a failure about 3 / runs.
    """
    if failures >= runs:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = ((middle, high) if at_most(failures, runs, middle) > 1 - CONFIDENCE
                     else (low, middle))
    return high


def ranges_of(numbers: Iterable[int]) -> str:
    """Tell numbers as ranges: "0 to 7, 9"."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{a} to {b}" if b > a else str(a) for a, b in found)


def sum_up(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of the jobs of one method."""
    deaths = [death for record in records for death in record["deaths"]]
    for death in deaths:
        death["place"] = OUTSIDE if death["place"] == "unknown" else death["place"].split(":")[0]
    ends = Counter(record["end"] for record in records)
    agents = sum(record["agents"] for record in records)
    struck = Counter(strike["what"] for record in records for strike in record["strikes"])
    roles = Counter(death["role"] for death in deaths) + Counter({"agent": agents})
    return {
        "jobs": len(records),
        "seeds": ranges_of(record["seed"] for record in records),
        "commits": dict(Counter(str(record["commit"]) for record in records)),
        "hours": round(sum(record["seconds"] for record in records) / 3600, 2),
        "with_deaths": sum(bool(r["deaths"] or r["agents"] or r["strikes"]) for r in records),
        "over_nodes": sum(record["nodes"] > 1 for record in records),
        "programs": dict(Counter(r["program"].split()[0] for r in records).most_common()),
        "deaths": len(deaths) + agents,
        "launchers": struck["launcher"],
        "pauses": struck["pause"],
        "by_role": dict(roles.most_common()),
        "by_place": dict(Counter(death["place"] for death in deaths).most_common()),
        "recoveries": dict(Counter(k for r in records for k in r["recoveries"]).most_common()),
        "reseats": sum(record["reseats"] for record in records),
        "twins": sum(record["twins"][0] for record in records),
        "twins_that_differ": sum(record["twins"][1] for record in records),
        "ends": {end: ends[end] for end in ENDS},
        "failures": [{"seed": r["seed"], "commit": r["commit"], "program": r["program"],
                      "end": r["end"], "why": r["why"]}
                     for r in records if r["end"] not in (RIGHT, HONEST)],
    }


def add(first: Any, second: Any) -> Any:
    """Add counts of two campaigns, name by name; texts are joined."""
    if isinstance(first, dict):
        both = {name: add(first[name], second[name]) if name in first and name in second
                else first.get(name, second.get(name)) for name in first | second}
        counts = all(isinstance(value, int) for value in both.values())
        return dict(sorted(both.items(), key=lambda item: -item[1])) if counts else both
    if isinstance(first, float):
        return round(first + second, 2)
    return f"{first}, {second}" if isinstance(first, str) else first + second


def bounded(found: dict[str, Any]) -> dict[str, Any]:
    """Counts of a method, with the bounds that follow from them."""
    jobs, ends = found["jobs"], {end: found["ends"][end] for end in ENDS}
    failed = {end: ends[end] for end in (WRONG, GAVE_UP, HUNG, UNTIDY)}
    bad = sum(failed.values())
    return found | {
        "ends": ends,
        "bounds_95": {end: bound(count, jobs) for end, count in (failed | {"any": bad}).items()},
        "bound_95_of_a_death": bound(bad, max(found["deaths"], 1)),
    }


def summary(records: Iterable[dict[str, Any]], earlier: dict[str, Any] | None = None,
            ) -> dict[str, Any]:
    """Sum up records by method, and add summaries of before."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_method.setdefault(record["method"], []).append(record)
    found = {method: sum_up(of) for method, of in by_method.items()}
    return {method: bounded(counts) for method, counts in add(earlier or {}, found).items()}


def row(name: str, value: Any) -> str:
    return f"| {name} | {value} |"


def counted(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in found.items()) or "none"


def page(found: dict[str, Any]) -> str:
    """Tables for ``ftrma/docs/campaign.md``, one for each method, and the jobs that failed."""
    lines = []
    for method, s in found.items():
        lines += [f"### By {method}", "", "| | |", "|---|---|",
                  row("jobs, of them over emulated nodes", f"{s['jobs']:,}, {s['over_nodes']:,}"),
                  row("seeds", s["seeds"]),
                  row("commits", counted(s["commits"])),
                  row("hours of jobs", s["hours"]),
                  row("programs", counted(s["programs"])),
                  row("deaths of processes", f"{s['deaths']:,}, and of launchers {s['launchers']}"),
                  row("processes paused, and awake later", f"{s['pauses']:,}"),
                  row("deaths by role", counted(s["by_role"])),
                  row("deaths by place", counted(s["by_place"])),
                  row("recoveries", counted(s["recoveries"])),
                  row("checksum ranks replaced meanwhile", f"{s['reseats']:,}"),
                  row("checksums at checkpoints compared, differing",
                      f"{s['twins']:,}, {s['twins_that_differ']:,}"),
                  row("ends", counted(s["ends"])),
                  row("bounds at 95 %", ", ".join(f"{name} {100 * value:.2g} %"
                                                  for name, value in s["bounds_95"].items())),
                  ""]
        lines += [f"* seed {f['seed']} ({f['program']}, {f['commit']}): {f['end']}: {f['why']}"
                  for f in s["failures"]]
        lines += [""] * bool(s["failures"])
    return "\n".join(lines)
