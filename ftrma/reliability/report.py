"""Results as JSON objects, and as aligned text that is made from these objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import model
from .history import Fit, History
from .machine import Machine
from .model import Groups
from .provision import Demand, Offer

JsonObject = dict[str, Any]
HEADS = {
    "eq9": "eq. (9), as printed", "aligned": "exact, groups aligned",
    "scattered": "exact, groups scattered",
}
NOT_POSSIBLE = "-"
RUNNERS_UP = 6  # how many a plan shows; JSON has all


# ---- ftrma reliability ----------------------------------------------------------------------


def point(name: str, machine: Machine, groups: Groups, aware: str) -> JsonObject:
    """Return P_cf of one layout by all models.

    Raises:
        ValueError: the layout does not fit on the machine.
    """
    found = head(name, groups, aware)
    level = machine.awareness(aware)
    by_model = {kind: model.p_cf_per_day(machine, groups, level, kind) for kind in model.MODELS}
    found["p_cf_per_day"] = model.total(by_model["eq9"])
    found["by_level"] = by_model["eq9"]
    found["exact"] = {
        kind: {"p_cf_per_day": model.total(by_model[kind]), "by_level": by_model[kind]}
        for kind in ("aligned", "scattered")
    }
    return found


def impossible_point(name: str, groups: Groups, aware: str, reason: str) -> JsonObject:
    """Return the entry of a layout that does not fit."""
    return {**head(name, groups, aware), "p_cf_per_day": None, "by_level": None, "reason": reason}


def head(name: str, groups: Groups, aware: str) -> JsonObject:
    return {
        "machine": name, "ranks": groups.ranks, "checksums": groups.checksums, "aware": aware,
        "m": groups.m, "group_size": groups.size,
    }


def value_of(point: JsonObject, kind: str) -> float | None:
    """Return a point's P_cf per day by one model; None if the layout does not fit."""
    if point["p_cf_per_day"] is None:
        return None
    part = point if kind == "eq9" else point["exact"][kind]
    return float(part["p_cf_per_day"])


def text(machine: Machine, points: Sequence[JsonObject]) -> str:
    """Return tables: by level for one layout, by strategy for one |CH|, by |CH| for a sweep."""
    first = points[0]
    lines = [
        f"{machine.name}: {first['ranks']} computing ranks, m = {first['m']}; P_cf in catastrophic "
        "failures per day"
    ]
    checksums = list(dict.fromkeys(p["checksums"] for p in points))
    if len(checksums) == 1:
        lines[0] += f"; {checksums[0]} checksum ranks, {members_text(first)}"
        lines += ["", levels_table(machine, first) if len(points) == 1 else
                  strategies_table(points)]
    else:
        for kind in model.MODELS:
            lines += ["", HEADS[kind], sweep_table(points, kind)]
    lines += notes(machine, points)
    return "\n".join(lines)


def members_text(point: JsonObject) -> str:
    return f"groups of {point['group_size']} + {point['m']}"


def levels_table(machine: Machine, point: JsonObject) -> str:
    rows = [["level", "elements", "members", *HEADS.values()]]
    for j, level in enumerate(machine.levels):
        values = [
            point["by_level"][level.name],
            *(point["exact"][k]["by_level"][level.name] for k in ("aligned", "scattered")),
        ]
        apart = "apart" if j < machine.awareness(point["aware"]) else "anywhere"
        rows.append([level.name, str(level.count), apart, *map(number, values)])
    rows.append([f"P_cf (aware: {point['aware']})", "", "",
                 *(number(value_of(point, kind)) for kind in model.MODELS)])
    return table(rows)


def strategies_table(points: Sequence[JsonObject]) -> str:
    rows = [["aware", *HEADS.values(), "none / eq. (9)"]]
    none = next((p["p_cf_per_day"] for p in points if p["aware"] == "none"), None)
    for p in points:
        printed = p["p_cf_per_day"]
        ratio = f"{none / printed:.3g}" if none and printed else NOT_POSSIBLE
        rows.append([p["aware"], *(number(value_of(p, kind)) for kind in model.MODELS), ratio])
    return table(rows)


def sweep_table(points: Sequence[JsonObject], kind: str) -> str:
    strategies = list(dict.fromkeys(p["aware"] for p in points))
    rows = [["|CH|", "group", *strategies]]
    for checksums in dict.fromkeys(p["checksums"] for p in points):
        found = {p["aware"]: p for p in points if p["checksums"] == checksums}
        some = next(iter(found.values()))
        rows.append([str(checksums), f"{some['group_size']} + {some['m']}",
                     *(number(value_of(found[s], kind)) for s in strategies)])
    return table(rows)


def notes(machine: Machine, points: Sequence[JsonObject]) -> list[str]:
    """Return what a reader of the tables must know."""
    lines = []
    silent = [level.name for level in machine.levels if level.failures is None]
    if silent:
        lines.append(f"No failures are known of {', '.join(silent)}; counted as none.")
    reasons = list(dict.fromkeys(p["reason"] for p in points if "reason" in p))
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        lines.append(f"{NOT_POSSIBLE} does not fit: {reasons[0]}{more}")
    drawn = [p for p in points if "simulated" in p]
    if drawn:
        rows = [["simulated", "aware", "|CH|", "P_cf per day", "99.9 % between", "exact"]]
        for p in drawn:
            for kind, found in p["simulated"].items():
                low, high = found["between"]
                rows.append(
                    [
                        kind,
                        p["aware"],
                        str(p["checksums"]),
                        number(found["p_cf_per_day"]),
                        f"{number(low)} and {number(high)}",
                        number(value_of(p, kind)),
                    ]
                )
        lines += [table(rows), ""]
    return ["", *lines] if lines else []


# ---- ftrma reliability --fit ----------------------------------------------------------------


def fit_object(
    history: History, fits: dict[str, list[Fit]], problems: dict[str, str]
) -> JsonObject:
    """Return the fits of all levels."""
    levels: JsonObject = {}
    for name, counts in history.levels.items():
        levels[name] = {
            "failures": sum(counts.values()),
            "by_count": {str(x): n for x, n in sorted(counts.items())},
            "fits": [
                {
                    "method": fit.method,
                    "amplitude_per_day": fit.distribution.amplitude_per_day,
                    "decay": fit.distribution.decay,
                    "r_squared": fit.r_squared,
                    "chi_squared": fit.chi_squared,
                    "degrees_of_freedom": fit.freedom,
                    "p_value": fit.p_value,
                }
                for fit in fits.get(name, [])
            ],
        }
        if name in problems:
            levels[name]["problem"] = problems[name]
    failures = sum(level["failures"] for level in levels.values())
    return {"history": str(history.path), "days": history.days,
            "mtbf_s": 86400 * history.days / failures, "levels": levels}


def fit_text(found: JsonObject) -> str:
    """Return the fits as a table, and as lines for a machine file."""
    rows = [["level", "failures", "fit of A exp(-b x)", "A per day", "b", "R^2", "chi^2 / dof",
             "p"]]
    lines, snippets = [], []
    for name, level in found["levels"].items():
        for fit in level["fits"]:
            p = NOT_POSSIBLE if fit["p_value"] is None else f"{fit['p_value']:.3g}"
            r = NOT_POSSIBLE if fit["r_squared"] is None else f"{fit['r_squared']:.4f}"
            rows.append([
                name, str(level["failures"]), fit["method"], number(fit["amplitude_per_day"]),
                f"{fit['decay']:.4f}", r, f"{fit['chi_squared']:.3g} / {fit['degrees_of_freedom']}",
                p,
            ])
        if "problem" in level:
            lines.append(f"{name}: {level['problem']}")
        else:
            best = level["fits"][-1]
            snippets += ["", f"# {name}", "[level.failures]",
                         f"amplitude_per_day = {best['amplitude_per_day']:.6g}",
                         f"decay = {best['decay']:.6g}"]
    title = (f"{found['history']}: {found['days']:g} days, a failure every {found['mtbf_s']:.6g} s "
             "on all that is recorded (--mtbf)")
    body = [table(rows)] if len(rows) > 1 else []
    return "\n".join(
        [title, "", *body, *lines, "", "For a machine file, by maximum likelihood:", *snippets]
        if snippets else [title, "", *body, *lines]
    )


# ---- ftrma plan -----------------------------------------------------------------------------


def offer_object(offer: Offer, demand: Demand) -> JsonObject:
    """Return one layout of a plan."""
    groups = offer.groups
    return {
        "group_size": groups.size, "m": groups.m, "aware": offer.aware,
        "checksums": groups.checksums, "spares": offer.spares, "processes": offer.processes,
        "p_cf_per_day": offer.p_cf_per_day, "interval_s": offer.interval_s,
        "checkpoint_s": offer.delta_s, "waste": offer.waste,
        "added_memory_bytes": offer.memory_bytes, "added_processor_time": offer.processor_time,
        "command": offer.command(demand.mtbf_s), "note": offer.too_large,
    }


def plan_text(found: JsonObject) -> str:
    """Return a plan: the choice, what it costs, the runners-up, the line to use."""
    offers = found["offers"]
    lines = [
        f"{found['machine']}: {found['ranks']} ranks of {size(found['memory_bytes'])}, P_cf at "
        f"most {found['target_per_day']:g} per day, a failure every {found['mtbf_s']:.6g} s; "
        f"{size(found['bandwidth_bytes_per_s'])}/s per process"
    ]
    best = offers[0]
    lines += [
        "",
        f"group size       {best['group_size']} + {count(best['m'], 'checksum rank')}, apart up "
        f"to: {best['aware']}",
        f"P_cf             {best['p_cf_per_day']:.3g} per day (exact, groups scattered)",
        f"processes        {best['processes']}: {count(found['ranks'], 'rank')}, "
        f"{count(best['checksums'], 'checksum rank')}, {count(best['spares'], 'spare')}",
        f"memory           {size(best['added_memory_bytes'])} more in all processes, "
        f"{best['added_memory_bytes'] / found['ranks'] / found['memory_bytes']:.2f} times what is "
        "protected",
        f"checkpoint       {best['checkpoint_s']:.3g} s every {best['interval_s']:.4g} s "
        f"(Young: {found['young_s']:.4g} s, Daly: {found['daly_s']:.4g} s)",
        f"time lost        {100 * best['waste']:.2f} % to checkpoints, lost work and restarts",
        f"processor time   {100 * best['added_processor_time']:+.2f} % in all",
        "",
        best["command"],
    ]
    if best["note"]:
        lines.append(f"({best['note']})")
    rows = [
        ["runner-up: group", "m", "aware", "P_cf per day", "processes", "interval (s)",
         "lost time", "processor time"]
    ]
    rows += [
        [
            str(o["group_size"]), str(o["m"]), o["aware"], number(o["p_cf_per_day"]),
            str(o["processes"]), f"{o['interval_s']:.4g}", f"{100 * o['waste']:.2f} %",
            f"{100 * o['added_processor_time']:+.2f} %",
        ]
        for o in offers[1 : 1 + RUNNERS_UP]
    ]
    if len(rows) > 1:
        lines += ["", table(rows)]
    return "\n".join(lines)


# ---- shared ---------------------------------------------------------------------------------


def number(value: float | None) -> str:
    return NOT_POSSIBLE if value is None else f"{value:.3e}"


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def size(size_bytes: float) -> str:
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes:g} B"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns; the first column is text, the others are right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
