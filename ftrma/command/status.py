"""The command ``ftrma status``: where this user's jobs on this node are.

It reads shared memory (`launch.jobstatus`), asks nothing of a job, and loads no MPI library.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..host import jsonoutput, values
from ..host.errors import FtrmaError
from ..host.messages import one_line
from ..host.nodedirectory import why_foreign
from ..host.outfile import say, tell

WATCH_EACH_S = (0.1, 3600.0)
MANY = 32  # with more slots than this, only those that stand out are shown
CLEAR = "\x1b[H\x1b[2J\x1b[3J"  # clears a terminal
MIB = 2**20


def add_parser(commands: Any) -> None:
    """Add the command to the parser of ``ftrma``."""
    parser = commands.add_parser("status", help="where your jobs on this machine are")
    parser.add_argument("job", nargs="?", metavar="JOB",
                        help="one job: the name of its directory, or the end of the name")
    parser.add_argument("--watch", nargs="?", const="1", metavar="SECONDS",
                        help="again and again, until the jobs have ended (default: each second)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=status)


def status(arguments: argparse.Namespace) -> int:
    """Print where jobs are: once, or again and again."""
    every_s = None
    if arguments.watch is not None:
        every_s = values.number("--watch", arguments.watch, *WATCH_EACH_S, "seconds")
    found = look(arguments.job)
    show(found, arguments)
    if every_s is None:
        return 0
    try:
        while found:
            time.sleep(every_s)
            before, found = found, look(arguments.job, must=False)
            show([with_rate(job, before) for job in found], arguments)
    except KeyboardInterrupt:  # the user ends a watch in this way
        say("")
    return 0


def look(wanted: str | None, *, must: bool = True) -> list[Any]:
    """Look at all jobs, or at one.

    Raises:
        ValueError: there is no such job, although `must` says that there is.
    """
    from ..launch import jobstatus

    found = []
    for directory in chosen(wanted, list(jobstatus.jobs()), must=must):
        try:
            found.append(jobstatus.read(directory, time.time()))
        except FileNotFoundError:  # it has ended at this moment
            continue
        except FtrmaError as error:
            if wanted and must:
                raise ValueError(f"{wanted}: {error}") from None
            if must:
                tell(f"warning: {directory.name} is left out: {error}")
    return found


def chosen(wanted: str | None, there: Sequence[Path], *, must: bool) -> Sequence[Path]:
    """Return the directories of the jobs that a word of the command line names.

    Raises:
        ValueError: it names none or several, although `must` says that it names one.
    """
    if wanted is None:
        return there
    name = wanted.rstrip("/")
    found = [path for path in there if path.name == name or str(path) == name]
    found = found or [path for path in there if path.name.endswith(f"-{name}")]
    if len(found) == 1 or not must:
        return found[:1]
    from ..launch.deadjobs import SHARED

    path = Path(name) if "/" in name else SHARED / name
    if path.exists() and (why := why_foreign(path)):
        raise ValueError(f"{wanted}: {path} {why}; you can look at your own jobs only")
    known = f"jobs are {', '.join(path.name for path in there)}" if there else "no job runs"
    raise ValueError(f"{wanted}: there is no such job on this machine; {known}")


def with_rate(job: Any, before: Sequence[Any]) -> Any:
    """Return the status of a job with its steps per second since the previous look."""
    for other in before:
        if other.job == job.job and job.seconds > other.seconds and job.step >= other.step:
            rate = (job.step - other.step) / (job.seconds - other.seconds)
            return replace(job, steps_per_s=rate)
    return job


# ---- text -----------------------------------------------------------------------------------


def show(found: Sequence[Any], arguments: argparse.Namespace) -> None:
    if arguments.json:
        jobs = [job.plain() for job in found]
        document = jsonoutput.document("status", time=time.time(), jobs=jobs)
        say(json.dumps(json.loads(document)) if arguments.watch else document)
        return
    lines = text(found, full=arguments.job is not None)
    again = CLEAR if arguments.watch and sys.stdout.isatty() else ""
    say(again + "\n".join(lines) + "\n" * bool(arguments.watch and not again))


def text(found: Sequence[Any], *, full: bool) -> list[str]:
    """Return the status of jobs for users: a table, or one job at length."""
    if not found:
        return ["the job has ended" if full else "no job of yours runs on this machine"]
    if full or len(found) == 1:
        return [line for job in found for line in at_length(job)]
    rows = [("job", "state", "for", "slots", "step", "steps/s", "version", "effective", "program")]
    rows += [(job.job, state(job), lasting(job.seconds) if job.began else "-", str(job.slots),
              str(job.step), rate(job.steps_per_s), str(job.version),
              f"{100 * job.effective.share:.1f} %" if job.began else "-",
              one_line(" ".join(job.program))[:40]) for job in found]
    return [*table(rows), "'ftrma status JOB' tells more of one job"]


def at_length(job: Any) -> list[str]:
    """Return the lines about one job."""
    effective = job.effective
    lost = [f"{name} {lasting(seconds)}" for name, seconds in (
        ("starting", effective.starting_s), ("checkpoints", effective.checkpoints_s),
        ("recoveries", effective.recoveries_s), ("work done again", effective.again_s))
        if seconds > 0]
    facts = [("program", one_line(" ".join(job.program))[:100] or "not told on this node"),
             ("layout", layout(job))]
    if job.each_slot:
        facts += [("redundancy", redundancy(job)),
                  ("step", f"{job.step}, {rate(job.steps_per_s)} per second")]
    elif job.state != "starting":
        facts.append(("slots", "they are on other nodes; look there for their steps and states"))
    facts.append(("checkpoint", checkpoint(job)))
    if job.began is None:
        facts.append(("failures", "they, and times, are told where ftrma run is"))
    else:
        facts += [("failures", failures(job)),
                  ("effective", f"{100 * effective.share:.1f} % of {lasting(effective.total_s)}"
                   f"{': ' * bool(lost)}{', '.join(lost)}")]
    if job.loss_s is not None and job.state not in ("left behind", "starting"):
        facts.append(("a failure", at_stake(job)))
    if job.hangs:
        facts.append(("hangs", one_line(job.hangs)))
    if job.ends:
        facts.append(("end", one_line(job.ends)))
    if peaks := [slot.log_peak_bytes for slot in job.each_slot]:
        now = [slot.log_bytes for slot in job.each_slot if slot.log_bytes is not None]
        used = size(max(now)) if now else "not told on this node"
        facts.append(("logs", f"at most {used} of {size(job.log_budget_bytes)} for each slot "
                      f"(the most so far: {size(max(peaks))})"))
    since = "" if job.began is None else f", for {lasting(job.seconds)}"
    first = f"{job.job}: {state(job)}{since}"
    if job.state == "left behind":
        first = (f"{job.job}: left behind; 'ftrma run --resume {job.job}' goes on with it, 'ftrma "
                 "clean --remove' removes it")
    return [first, *(f"  {name:<11} {value}" for name, value in facts), *slots(job)]


def state(job: Any) -> str:
    degraded = job.degraded or job.checksums_given_up or job.spares_given_up
    return f"{job.state}, degraded" if degraded and job.state == "running" else str(job.state)


def layout(job: Any) -> str:
    size = -(-job.slots // job.groups)
    many = f"{job.groups} groups of " if job.groups > 1 else "one group of "
    spares = f"{job.spares} spare{'s' * (job.spares != 1)}"
    left = f"{job.spares_left} of {spares} left" if job.each_slot else spares
    return f"{job.slots} slots in {many}{size} + {job.strength}; {left}"


def redundancy(job: Any) -> str:
    if not job.degraded:
        fewer = [f"{count} {name}{'s' * (count > 1)}" for count, name in (
            (job.checksums_given_up, "checksum rank"), (job.spares_given_up, "spare")) if count]
        what = f"degraded, {' and '.join(fewer)} given up" if fewer else "whole"
        return f"{what}: each group survives {job.strength} loss{'es' * (job.strength > 1)}"
    groups = ", ".join(map(str, job.degraded[:8])) + ", ..." * (len(job.degraded) > 8)
    left = max(0, job.strength - job.worst_lack)
    return (f"degraded: group{'s' * (len(job.degraded) > 1)} {groups}; {left} more "
            f"loss{'es' * (left != 1)} would be survived")


def checkpoint(job: Any) -> str:
    if not job.version:
        return "none yet: a rollback goes to the start of the program"
    age = f", {lasting(job.checkpoint_age_s)} ago" if job.checkpoint_age_s is not None else ""
    held = f", {size(job.protected_bytes)}" if job.protected_bytes else ""
    files = ""
    if job.spilled:
        old = f", {lasting(job.spill_age_s)} old" if job.spill_age_s is not None else ""
        files = f"; in files: version {job.spilled}{old}"
    return f"version {job.version}{age}{held}{files}"


def failures(job: Any) -> str:
    died = [f"{count} {role}{'s' * (count > 1)}" for role, count in sorted(job.deaths.items())]
    went_on = [f"{count} {kind}" for kind, count in sorted(job.recoveries.items())]
    if not died and not went_on:
        return "none"
    return (f"{', '.join(died) or 'no process'} died; recoveries: {', '.join(went_on) or 'none'}; "
            f"{job.launches} launch{'es' * (job.launches != 1)}")


def at_stake(job: Any) -> str:
    repair = ""
    if job.repair_s is not None:
        repair = f", and a repair of {lasting(job.repair_s)}, the mean so far"
    return f"now would cost at most {lasting(job.loss_s)} of work, which is done again{repair}"


def slots(job: Any) -> list[str]:
    """Return the table of slots; of many slots, those that stand out."""
    each = list(job.each_slot)
    if not each:
        return []
    shown, note = each, []
    if len(each) > MANY:
        usual, _ = Counter((slot.state, slot.step) for slot in each).most_common(1)[0]
        shown = [slot for slot in each if (slot.state, slot.step) != usual]
        shown = sorted(shown, key=lambda slot: slot.step)[: MANY // 2]
        counts = Counter(slot.state for slot in each)
        said = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        note = ["", f"  slots: {said}; behind and unlike the others:" if shown else
                f"  slots: {said}"]
        if not shown:
            return note
    rows = [("slot", "group", "node", "process", "where", "step", "logs MiB")]
    rows += [(str(slot.slot), str(slot.group), str(slot.node), str(slot.pid), where(slot),
              str(slot.step), "" if slot.log_bytes is None else f"{slot.log_bytes / MIB:.1f}")
             for slot in shown]
    return [*(note or [""]), *(f"  {line}" for line in table(rows))]


def where(slot: Any) -> str:
    """Say where a slot is."""
    waits_in = f" in {slot.waits_in}" if slot.waits_in else ""
    awaited = f", for slot {slot.awaited}" if slot.awaited is not None else ""
    return f"{slot.state}{waits_in}{awaited}"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows with aligned columns; numbers are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [all(row[i][:1].isdigit() or not row[i] for row in rows[1:])
             for i in range(len(widths))]
    return ["  ".join(cell.rjust(width) if at_right else cell.ljust(width)
                      for cell, width, at_right in zip(row, widths, right, strict=True)).rstrip()
            for row in rows]


def rate(steps_per_s: float | None) -> str:
    return "-" if steps_per_s is None else f"{steps_per_s:.3g}"


def size(size_bytes: float) -> str:
    """Return a size as users read it."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(max(0, (int(size_bytes).bit_length() - 1) // 10), len(units) - 1)
    return f"{size_bytes / 1024**power:.{0 if power == 0 else 1}f} {units[power]}"


def lasting(seconds: float) -> str:
    """Return a time as users read it, with two units at most."""
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    units = (("min", 60), ("s", 1)) if whole < 3600 else (
        ("h", 3600), ("min", 60)) if whole < 86400 else (("d", 86400), ("h", 3600))
    (large, large_s), (small, small_s) = units
    rest = whole % large_s // small_s
    return f"{whole // large_s} {large}{f' {rest} {small}' if rest else ''}"
