"""Measures the time until a program goes on after a SIGKILL: causally, by rollback, by relaunch.

In place a spare is there. The time from the signal to the end of recovery is measured, with its
phases, for one kill under two policies:

  causal    the dead slot's work since the checkpoint is replayed from logs, the others wait for it
  rollback  all go back to the checkpoint and do their work again

First with a large window and nothing to replay: restoring is the computation of the lost slot's
memory from parity and the others', and its speed is compared with memcpy of the same size in the
same launch. Relaunch: there is no spare, and the time to the first new step is measured.

Then NAS FT, killed in a run when most of it is done, with a checkpoint at its begin: the time lost
is measured in slot 0, from the last step before the death to the next new one, less a usual step.
The replacement first runs the program's imports and set-up again ("set-up"); the speed of the
replay is the time that the steps took at first, over the time that the replacement takes for them.

`--many`: ten recoveries in ten runs of FT, see ``recovery_many.py``.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from . import common, launching, recovery_many
from .common import Parser, spread
from .launching import HERE, BenchError, JsonObject
from .recovery_many import Times, run_ft

SCRIPT = HERE / "recovery_app.py"
POLICIES = ("causal", "rollback")
KILLED_FENCE = 15
SLACK_MS = 150  # of the aim for replay, beside half of the time that the steps took at first
TARGETS: dict[str, tuple[str, float]] = {
    "in place, ms": ("<=", 100.0),
    "relaunch to first new step, s": ("<=", 5.0),
    "restore / memcpy, bytes read": (">=", 0.5),
}
FT_TARGETS: dict[str, tuple[str, float]] = {
    "steps done again by survivors": ("<=", 0.0),
    "lost / (half the steps' first time + 150 ms)": ("<=", 1.0),
    "replay speed / original speed": (">=", 2.0),
}


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("recovery", "Time from a SIGKILL to going on.")
    parser.add_argument("-n", dest="slots", type=common.whole, default=4, metavar="N",
                        help="slots, in one group")
    parser.add_argument("--size", type=common.size, default="64MiB", metavar="SIZE",
                        help="of each slot's window")
    parser.add_argument("--class", dest="problem_class", default="W", choices=("S", "W", "A", "B"),
                        help="problem class of FT")
    parser.add_argument("--steps", type=common.whole, default=30, metavar="K",
                        help="steps of FT since the checkpoint when the slot dies")
    parser.add_argument("--log-budget", type=common.size, default="128MiB", metavar="SIZE",
                        help="memory for logs of each slot; must hold the steps' puts")
    parser.add_argument("--many", action="store_true",
                        help="ten recoveries in ten runs of FT instead")
    parser.add_argument("--runs", type=common.whole, default=10, metavar="R",
                        help="with --many: runs of FT, with a recovery in each")
    parser.add_argument("--groups", type=common.whole, nargs="+", default=[4, 2], metavar="K",
                        help="with --many: slots of a group, each of which has a checksum rank")
    options = parser.parse_args(arguments)
    if options.slots < 2:
        parser.error(f"-n {options.slots}: slot 0 takes the times, others die; give 2 or more")
    return options


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    if options.many:
        return recovery_many.main(options)
    report = common.begin("recovery")
    report.update(slots=options.slots, size_bytes=options.size, rounds=options.rounds,
                  problem_class=options.problem_class, steps=options.steps)
    report.update(measure(options))
    common.finish(report, options, text, draw)
    return 0


# ---- measuring ------------------------------------------------------------------------------


def measure(options: Namespace) -> JsonObject:
    """All rounds: for each policy, spreads of both programs' results."""
    window: dict[str, list[JsonObject]] = {policy: [] for policy in POLICIES}
    transform: dict[str, list[JsonObject]] = {policy: [] for policy in POLICIES}
    for i in range(options.rounds):
        common.progress(f"recovery: round {i + 1} of {options.rounds}")
        for policy in POLICIES:
            window[policy].append(launch(options, policy, spares=1))
        window["rollback"][-1] |= launch(options, "rollback", spares=0)
        expected = run_ft(options, runs=2, iterations=options.steps + 1)
        for policy in POLICIES:
            transform[policy].append(launch_ft(options, policy, expected.report["sums"]))
    return {
        name: {policy: {key: spread(r[key] for r in rows) for key in rows[0]}
               for policy, rows in found.items()}
        for name, found in (("window", window), ("ft", transform))
    }


def launch(options: Namespace, policy: str, spares: int) -> JsonObject:
    """One launch with one kill; without a spare it is a relaunch."""
    flags = ["--interval", "0", "--policy", policy, "--spares", str(spares),
             "--kill", f"{options.slots - 1}@fence:{KILLED_FENCE}"]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "stats.json"
        command = launching.protected(
            options.slots, SCRIPT, [str(options.size)], [*flags, "--stats", str(path)]
        )
        said = launching.run(command, options.timeout)
        stats = json.loads(path.read_text())
    found = only_recovery(stats, policy if spares else "relaunch")
    on_s = min((s for s in said["fenced_s"] if s > found["began_s"]), default=0) - found["began_s"]
    if on_s < 0:
        raise BenchError(f"no step after the recovery: {launching.shown(command)}")
    if not spares:
        return {"relaunch to first new step, s": on_s}
    restore_s = found["phases"]["restore"]
    return {
        "in place, ms": found["seconds"] * 1e3,
        **phases(found),
        "in place to first new step, ms": on_s * 1e3,
        "restore / memcpy, bytes read": options.slots * said["memcpy_s"] / restore_s,
        "restore / memcpy, bytes restored": said["memcpy_s"] / restore_s,
    }


def launch_ft(options: Namespace, policy: str, expected: Any) -> JsonObject:
    """One launch of FT with one kill, before its last step but one."""
    killed = options.slots - 1, 1, options.steps
    done = run_ft(
        options, runs=2, iterations=options.steps + 1, kills=[killed], settle_s=1.0,
        flags=["--policy", policy, "--spares", "1", "--checksums", "1"],
    )
    if done.report["sums"] != expected:
        raise BenchError(f"FT's checksums after a {policy} recovery are not those without failure")
    found = only_recovery(done.stats, policy)
    row = {
        "recovery, ms": found["seconds"] * 1e3,
        **phases(found),
        **lost(done.times[0], found["began_s"]),
    }
    if policy == "causal":
        row |= replayed(done.times[-1], found["began_s"])
        limit_ms = row["steps at first, ms"] / 2 + SLACK_MS
        row["lost / (half the steps' first time + 150 ms)"] = row["lost, ms"] / limit_ms
    return row


def only_recovery(stats: JsonObject, kind: str) -> JsonObject:
    """The one recovery that was meant."""
    found: list[JsonObject] = stats["recoveries"]
    if [r["kind"] for r in found] != [kind]:
        told = ", ".join(f"{r['kind']} ({r['reason']})" for r in found) or "none"
        raise BenchError(f"not one {kind} recovery but: {told}")
    return found[0]


def phases(recovery: JsonObject) -> dict[str, float]:
    return {f"  {p}, ms": recovery["phases"].get(p, 0.0) * 1e3 for p in recovery_many.PHASES}


def lost(times: Times, died_s: float) -> dict[str, float]:
    """The cost of a failure for a survivor, from its own notes.

    Args:
        times: notes of the survivor.
        died_s: time at which the other slot died.

    Returns:
        Milliseconds between the last step before the death and the next new one, less a usual
        step; and the number of steps done twice.
    """
    before = [(number, s) for number, s in times.done if s < died_s]
    last, last_s = before[-1]
    new_s = next(s for number, s in times.done if number > last)
    began_s = max(s for _, s in times.began if s < died_s)
    in_run = [began_s, *(s for _, s in before if s > began_s)]
    usual_s = statistics.median(b - a for a, b in itertools.pairwise(in_run))
    return {
        "lost, ms": (new_s - last_s - usual_s) * 1e3,
        "steps done again by survivors": len(times.done)
        - len({number for number, _ in times.done}),
    }


def replayed(times: Times, died_s: float) -> dict[str, float]:
    """Times of steps that a slot did before it died and its replacement again, from their notes.

    Args:
        times: notes of both, one after the other.
        died_s: time at which the first one died.
    """
    last, last_s = max((number, s) for number, s in times.done if s < died_s)
    began_s = max(s for _, s in times.began if s < died_s)
    again_s = min(s for _, s in times.began if s > died_s)
    done_s = next(s for number, s in times.done if number == last and s > died_s)
    return {
        "set-up by the replacement, ms": (again_s - died_s) * 1e3,
        "steps at first, ms": (last_s - began_s) * 1e3,
        "steps replayed, ms": (done_s - again_s) * 1e3,
        "replay speed / original speed": (last_s - began_s) / (done_s - again_s),
    }


# ---- telling --------------------------------------------------------------------------------


def text(report: JsonObject) -> str:
    """The tables for people."""
    size_text = common.size_text(report["size_bytes"])
    return "\n".join(
        [
            f"One of {report['slots']} slots in one group is killed; {report['rounds']} rounds; "
            "median (min .. max).",
            "",
            f"A window of {size_text} on each, nothing to replay but the program's set-up, which "
            "fills it. To restore one member, all others and the parity are read: speeds as parts "
            "of memcpy's, by either count.",
            table(report["window"], TARGETS, ("rollback",)),
            "",
            f"NAS FT class {report['problem_class']}, killed {report['steps']} steps after the "
            "checkpoint.",
            table(report["ft"], FT_TARGETS, ("causal",)),
        ]
    )


def table(found: JsonObject, targets: dict[str, tuple[str, float]], aimed: tuple[str, ...]) -> str:
    """Rows by name, columns by policy; the targets are those of the policies `aimed` at."""
    rows = [["", *POLICIES, "target"]]
    for name in dict.fromkeys(name for policy in POLICIES for name in found[policy]):
        cells = [found[policy].get(name) for policy in POLICIES]
        target = "-"
        if name in targets:
            sign, value = targets[name]
            there = [found[p][name]["median"] for p in aimed if name in found[p]]
            met = all(m <= value if sign == "<=" else m >= value for m in there)
            target = f"{sign} {value:g} {'met' if met else 'missed'}"
        rows.append([name, *(common.with_range(c) if c else "-" for c in cells), target])
    return common.table(rows)


def draw(report: JsonObject, path: Any) -> None:
    """The cost of a failure under each policy, by phases, and the work that is done again."""
    plt = common.pyplot()
    figure, axes = plt.subplots(figsize=(5.6, 1.9), layout="constrained")
    bars = [(f"{policy}, {what}", report[key][policy], total)
            for key, what, total in (("window", common.size_text(report["size_bytes"]),
                                      "in place to first new step, ms"),
                                     ("ft", f"FT {report['problem_class']}", "lost, ms"))
            for policy in POLICIES][::-1]
    for place, (_, found, total) in enumerate(bars):
        left = 0.0
        for phase, color in recovery_many.PHASES.items():
            width = found[f"  {phase}, ms"]["median"]
            axes.barh(place, width, 0.7, left=left, color=color,
                      label=phase if place == 0 else None)
            left += width
        rest = max(0.0, found[total]["median"] - left)
        axes.barh(place, rest, 0.7, left=left, color="0.8",
                  label="work done again and the rest" if place == 0 else None)
        axes.errorbar(left + rest, place, xerr=common.whiskers([found[total]]), color="0.2",
                      capsize=2, lw=0.8)
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.set_xlabel("ms from the death, or from the last step before it")
    axes.grid(axis="x")
    figure.legend(ncols=5, loc="outside upper left", fontsize=7, handlelength=1, columnspacing=1)
    common.save(figure, path, report)
