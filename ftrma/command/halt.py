"""``ftrma halt``: asks a living job of this user to end behind its next checkpoint.

The request is a file in the job's directory (`launch.haltrequests`), on the host of ``ftrma run``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ..host import outfile, timeouts, values
from ..host.errors import FtrmaError
from ..settings.timelimits import TimeLimit, span

LOOK_S = 0.02
MOST_CHECKPOINTS = 10**9
DESCRIPTION = """Ask a job to take a checkpoint at its next safepoint and to end behind it, with the
status of --requeue-status (85). Give it on the host where 'ftrma run' is. Of several requests the
newest counts."""


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "halt", help="end a job behind a checkpoint", description=DESCRIPTION)
    parser.add_argument("job", metavar="JOB", nargs="?", help="such as ftrma-1000-x3k9ab2c")
    parser.add_argument("--after", metavar="TIME",
                        help="not before: in 2h30m, or at @ and seconds since 1970")
    parser.add_argument("--checkpoints", metavar="N",
                        help="let so many checkpoints pass before it (or come sooner by --after)")
    parser.add_argument("--now", action="store_true",
                        help="do not wait for a checkpoint; what was saved last stands")
    parser.add_argument("--list", action="store_true",
                        help="ask for nothing: show how the job, or each job, is to end")
    parser.add_argument("--unset", action="store_true", help="withdraw what 'halt' has asked")
    parser.set_defaults(run=command_halt)


def command_halt(arguments: argparse.Namespace) -> int:
    """Ask, or list; a mistake is one message and status 2, a job that does not answer status 1."""
    from ..launch import deadjobs, haltrequests

    given = [name for name in ("after", "checkpoints", "now", "list", "unset")
             if getattr(arguments, name)]
    alone = [name for name in given if name in ("now", "list", "unset")]
    if alone and len(given) > 1:
        other = next(name for name in given if name != alone[0])
        raise ValueError(f"--{alone[0]}: goes with no other option; leave out --{other}")
    if arguments.list and not arguments.job:
        return list_jobs(deadjobs.living())
    if not arguments.job:
        raise ValueError(f"halt: which job? {named(deadjobs.living())}")
    directory = find(arguments.job)
    if arguments.list:
        return list_jobs([directory])
    request = haltrequests.HaltRequest(
        moment_of(arguments.after), count_of(arguments.checkpoints), arguments.now,
        arguments.unset)
    state = haltrequests.state_of(directory)
    if state and not state.saves and not (request.now or request.unset):
        raise ValueError(f"halt {arguments.job}: nothing of this job would be left, since it runs "
                         "over several nodes without --spill; --now ends it all the same")
    haltrequests.ask(directory, request)
    return await_answer(directory, request)


def find(name: str) -> Path:
    """Return the directory of a living job of this user.

    Raises:
        ValueError: there is no job of this name, or it is another user's, or dead.
    """
    from ..host.nodedirectory import why_foreign
    from ..launch import deadjobs

    directory = deadjobs.path_of(name)
    if not directory.exists():
        raise ValueError(f"halt {name}: there is no such job on this host; "
                         f"{named(deadjobs.living())}")
    if why := why_foreign(directory):
        raise ValueError(f"halt {name}: not yours to end: the directory {directory} {why}")
    if not (directory / "start").exists():
        raise ValueError(f"halt {name}: no 'ftrma run' on this host has started it; give the "
                         "command where that runs")
    if not deadjobs.lives(directory):
        raise ValueError(f"halt {name}: the job has ended already; 'ftrma clean' lists what it "
                         "has left")
    return directory


def named(jobs: list[Path]) -> str:
    """Name the living jobs, in words."""
    if not jobs:
        return "no job of yours lives here"
    return f"of yours there {'is' if len(jobs) == 1 else 'are'} {', '.join(j.name for j in jobs)}"


def moment_of(text: str | None) -> float:
    """Return the time of ``--after`` in seconds since 1970; 0: it was not given."""
    if text is None:
        return 0.0
    limit, now = TimeLimit.parse("--after", text), time.time()
    if limit.left_s(now) < 0:
        raise ValueError(f"--after {text}: this moment passed {span(-limit.left_s(now))} ago; "
                         "leave it out to end the job now")
    return now + limit.left_s(now)


def count_of(text: str | None) -> int:
    """Return the number of ``--checkpoints``; 0: it was not given."""
    return 0 if text is None else values.whole("--checkpoints", text, 1, MOST_CHECKPOINTS)


def await_answer(directory: Path, request: Any) -> int:
    """Wait until the supervisor has taken the request, and say what it will do."""
    from ..launch import haltrequests

    deadline = time.monotonic() + timeouts.HALT.s
    while time.monotonic() < deadline:
        state = haltrequests.state_of(directory)
        if state and state.request and state.request.number == request.number:
            outfile.say(f"{directory.name}: {in_words(state)}")
            return 0
        if not (directory / haltrequests.REQUEST).exists():  # it was taken, and the job is over
            outfile.say(f"{directory.name}: ends")
            return 0
        time.sleep(LOOK_S)
    raise FtrmaError(f"{directory.name} has not answered within {timeouts.HALT.s:.0f} s: its "
                     "'ftrma run' is stopped, or launches the job again; the request stands")


def list_jobs(jobs: list[Path]) -> int:
    """Show which ends are planned for jobs."""
    from ..launch import haltrequests

    lines = [f"{job.name}: {in_words(state)}" for job in jobs
             if (state := haltrequests.state_of(job))]
    outfile.say("\n".join(lines or ["no job of yours lives here"]))
    return 0


def in_words(state: Any) -> str:
    """Say which ends are planned for a job."""
    request, now, found = state.request, time.time(), []
    if request and request.now:
        return "ends at once"
    if state.why:
        found.append("ends behind a checkpoint at its next safepoint")
    elif request and not request.unset:
        after = [f"in {span(max(0.0, request.after - now))}"] if request.after else []
        count = request.checkpoints
        after += [f"when {count} more checkpoint{'s have' if count > 1 else ' has'} passed"
                  ] if count else []
        found.append("ends behind a checkpoint " + (" or ".join(after) or "at its next safepoint"))
    if state.limit:
        found.append(f"its time limit comes in {span(max(0.0, state.limit - now))}, with a "
                     f"checkpoint {span(state.margin_s)} before")
    found.append(f"checkpoints that outlive it are in {state.saves}" if state.saves
                 else "nothing of it outlives its end")
    return "; ".join(found if len(found) > 1 else ["no end was asked for", *found])
