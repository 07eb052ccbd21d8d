"""``ftrma demo fft``: kills a slot of a parallel FFT and compares the result bit by bit.

NPB FT, class S, runs twice on 4 slots with a checkpoint after every iteration: once undisturbed,
once with a SIGKILL in the middle. Everything that is shown was measured in these two runs (their
output, their ``--stats``, their final memory). All expectations are checked, and the exit status is
0 only if all came true.

The runs are started outside of the current directory, so that no package there is taken for the
installed one, and without the user's ``FTRMA_*`` variables, so that all demos give the same result.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..host import outfile, timeouts
from ..settings.configuration import NONE
from ..settings.options import CONFIG_VARIABLE
from . import apps

SLOTS, SPARES, ITERATIONS = 4, 1, 6  # of the demo; class S has so many iterations
VICTIM, FENCE = 2, 18  # the slot that dies, and the number of its fence
FENCES = 4  # of ft.py in each transform: it has two transposes, each between two fences
BEFORE = 2  # transforms before the first iteration: warm-up and start field
SAFEPOINTS = 4  # up to the one at the top of the first iteration
CLI = "from ftrma.command.cli import main; main()"  # needs no console script on PATH


class DemoStopped(Exception):
    """The demo cannot go on; the text says why."""


@dataclass
class Outcome:
    """Exit status, output and time of a child process."""

    status: int
    output: str
    errors: str
    seconds: float


@dataclass
class DemoRun:
    """One run of FT: its last line of output, its statistics, its final memory by slot."""

    report: dict[str, Any]
    stats: dict[str, Any]
    memory: list[dict[str, np.ndarray[Any, Any]]]
    seconds: float


def fft(directory: Path, verbose: bool) -> int:
    """Run the demonstration and print it.

    Args:
        directory: for its files.
        verbose: show the commands that run, and what they print.

    Returns:
        Exit status: 0 if everything that was expected came true.

    Raises:
        DemoStopped: it cannot go on.
    """
    program = find_program()
    servers = f"1 checksum rank, {SPARES} spare"
    say("program", f"NPB FT class S, {ITERATIONS} iterations, on {SLOTS} slots, {servers}")
    calm = run_ft(program, directory / "calm", [], verbose)
    checkpoints = calm.stats["checkpoints"]
    held_s = sum(c["seconds"] for c in checkpoints)
    say("undisturbed", f"{calm.report['seconds'] * 1e3:.0f} ms; the checksums are "
        f"{said(calm.report['verified'])}; {len(checkpoints)} checkpoints took {held_s * 1e3:.0f} "
        "ms")
    say("the kill", f"the same again with --kill {VICTIM}@fence:{FENCE}: SIGKILL in iteration "
        f"{iteration_of_kill()} of {ITERATIONS}")
    struck = run_ft(program, directory / "struck", ["--kill", f"{VICTIM}@fence:{FENCE}"], verbose)
    tell_recovery(struck)
    say("time", f"{struck.report['seconds'] * 1e3:.0f} ms with the failure in it, "
        f"{calm.report['seconds'] * 1e3:.0f} ms without")
    verdicts = {said(run.report["verified"]) for run in (calm, struck)}
    say("checksums", f"of all {ITERATIONS} iterations, in both runs: {' / '.join(verdicts)}")
    differences = list(compare(calm.memory, struck.memory))
    size_bytes = sum(array.nbytes for slot in struck.memory for array in slot.values())
    equal = f"{len(differences)} arrays differ" if differences else "equal bit for bit"
    say("final memory", f"{mebibytes(size_bytes)} on {SLOTS} slots, of both runs: {equal}")
    tell_redundancy(struck.stats)
    surprises = [*unexpected(calm, struck), *differences]
    for surprise in surprises:
        say("surprise", surprise)
    say("result", "not as it must be" if surprises else "a slot died, and the result is the same")
    return 1 if surprises else 0


# ---- telling --------------------------------------------------------------------------------


def say(what: str, text: str) -> None:
    """Print one aligned line at once, since the runs take seconds."""
    outfile.say(f"{what:<13} {text}")


def said(verified: Any) -> str:
    """Say in words what a program found out about its checksums."""
    return "as published by NPB" if verified is True else f"NOT as published ({verified})"


def mebibytes(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


def iteration_of_kill() -> int:
    """Return the iteration of FT with the victim's fence, which is counted from the program's
    top."""
    return (FENCE - 1) // FENCES - BEFORE + 1


def tell_recovery(run: DemoRun) -> None:
    """Tell which slot died, what was lost with it, how it came back and how long that took."""
    failures, recoveries = run.stats["failures"], run.stats["recoveries"]
    for failure in failures:
        role = next(r for r in ("slot", "checksum", "spare") if r in failure)
        say("died", f"{role} {failure[role]} (process {failure['pid']}) at a {failure['place']}")
    memory = run.memory[VICTIM]
    windows = sum(a.nbytes for name, a in memory.items() if name.startswith("window"))
    state = sum(a.nbytes for name, a in memory.items() if not name.startswith("window"))
    if failures:
        say("lost with it", f"{mebibytes(windows + state)}: {mebibytes(windows)} in windows, "
            f"{mebibytes(state)} of declared state")
    for recovery in recoveries:
        version = recovery["version"]
        done = max(version - SAFEPOINTS, 0)
        redone = max(iteration_of_kill() - done, 0)
        where = f"the end of iteration {done}" if done else "before the first iteration"
        causal = recovery["kind"] == "causal"
        how = "a spare was replayed from" if causal else f"by {recovery['kind']} to"
        say("came back", f"{how} checkpoint {version}, {where}")
        who = f"slot {VICTIM} alone; the others lost nothing" if causal else "all slots"
        say("redone", f"{redone} iteration{'s' * (redone != 1)} of {ITERATIONS}, by {who}")
        phases = ", ".join(
            f"{name} {recovery['phases'][name] * 1e3:.1f}"
            for name in ("detect", "repair", "restore", "replay")
        )
        say("took", f"{recovery['seconds'] * 1e3:.1f} ms from noticing the death: {phases}")


def tell_redundancy(stats: dict[str, Any]) -> None:
    """Tell which failures the job could still survive at its end."""
    seated = sum(len(r["slots"]) for r in stats["recoveries"]) + len(stats["reseats"])
    left = stats["spares"] - seated
    then = "is repaired in place too" if left > 0 else "means a relaunch"
    say("redundancy", f"whole again after {stats['degraded_seconds'] * 1e3:.1f} ms; spares left: "
        f"{left} of {stats['spares']} (another death {then})")


# ---- checking -------------------------------------------------------------------------------


def unexpected(calm: DemoRun, struck: DemoRun) -> Iterator[str]:
    """Yield everything that is not as expected, in words."""
    for name, run in (("undisturbed run", calm), ("run with the kill", struck)):
        if run.report["verified"] is not True:
            yield f"{name}: its checksums are not those that NPB publishes"
        if run.report["iterations"] != ITERATIONS or run.report["slots"] != SLOTS:
            yield f"{name}: {run.report['iterations']} iterations on {run.report['slots']} slots"
        if run.stats["reseats"]:
            yield f"{name}: a checksum rank died and was replaced, though none was killed"
    if calm.stats["failures"] or calm.stats["recoveries"]:
        yield "undisturbed run: a process died, though none was killed"
    failures = [(f.get("slot"), f["place"]) for f in struck.stats["failures"]]
    if failures != [(VICTIM, "fence")]:
        yield (f"run with the kill: slot {VICTIM} was to die once, at a fence; the failures are "
               f"{struck.stats['failures'] or 'none'}")
    recoveries = [(r["kind"], r["slots"]) for r in struck.stats["recoveries"]]
    if recoveries != [("causal", [VICTIM])]:
        yield (f"run with the kill: one replay of slot {VICTIM} was expected; the recoveries are "
               f"{recoveries or 'none'}")


def compare(
    one: list[dict[str, np.ndarray[Any, Any]]], other: list[dict[str, np.ndarray[Any, Any]]]
) -> Iterator[str]:
    """Yield every array that differs in a bit between the two runs."""
    for slot, (mine, theirs) in enumerate(zip(one, other, strict=True)):
        for name in sorted(mine.keys() | theirs.keys()):
            a, b = mine.get(name), theirs.get(name)
            if a is None or b is None:
                yield f"slot {slot} has {name} at the end of one run only"
            elif (a.dtype, a.shape) != (b.dtype, b.shape) or a.tobytes() != b.tobytes():
                yield f"{name} of slot {slot} differs between the runs"


# ---- running --------------------------------------------------------------------------------


def find_program() -> Path:
    """Find FT inside the installed package, or in the checkout around it."""
    if importlib.util.find_spec("scipy") is None:
        raise DemoStopped("the FFT needs SciPy; get it with: pip install scipy")
    if found := apps.find_app("ft.py", "npb.py"):
        return found
    raise DemoStopped(f"this installation lacks ft.py and npb.py in {apps.HERE / 'apps'}; install "
                      "it again")


def run_ft(program: Path, directory: Path, options: list[str], verbose: bool) -> DemoRun:
    """Run FT once under protection; its files go to `directory`."""
    directory.mkdir()
    stats, dump = directory / "stats.json", directory / "memory"
    arguments = [
        "-n", str(SLOTS), "--spares", str(SPARES), "--interval", "0", *options,
        "--stats", str(stats), str(program), "--class", "S", "--dump", str(dump),
    ]
    outcome = run_verbosely(["run", *arguments], directory, verbose)
    try:
        report = json.loads(outcome.output.splitlines()[-1])
        memory = [load(dump / f"slot-{slot}.npz") for slot in range(SLOTS)]
        return DemoRun(report, json.loads(stats.read_text()), memory, outcome.seconds)
    except (IndexError, OSError, ValueError) as error:
        raise DemoStopped(f"FT ended well, but its results cannot be read: {error}") from error


def run_verbosely(words: list[str], directory: Path, verbose: bool) -> Outcome:
    """Run ``ftrma`` with these words in `directory` to its end, and show it if `verbose`.

    Raises:
        DemoStopped: it did not end, or ended with an error.
    """
    if verbose:
        say("$", shlex.join(["ftrma", *words]))
    outcome = run_ftrma(words, directory)
    if verbose:
        for line in (outcome.errors + outcome.output).splitlines():
            say("|", line)
        say("|", f"exit status {outcome.status} after {outcome.seconds:.1f} s")
    if outcome.status:
        why = outcome.errors.strip() or outcome.output.strip() or "it said nothing"
        raise DemoStopped(f"it ended with exit status {outcome.status}:\n{why}")
    return outcome


def load(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as arrays:
        return dict(arrays)


def run_ftrma(words: list[str], directory: Path) -> Outcome:
    """Run ``ftrma`` with these words in `directory` to its end.

    Raises:
        DemoStopped: it took longer than `timeouts.DEMO`, and was ended.
    """
    command = [sys.executable, "-c", CLI, *words]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FTRMA_")}
    environment[CONFIG_VARIABLE] = NONE
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=directory, env=environment, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:
        try:
            output, errors = child.communicate(timeout=timeouts.DEMO.s)
        except subprocess.TimeoutExpired:
            raise DemoStopped(f"it did not end within {timeouts.DEMO.s:.0f} s") from None
        finally:
            if child.poll() is None:
                end(child)
    return Outcome(child.returncode, output, errors, time.monotonic() - began)


def end(child: subprocess.Popen[str]) -> None:
    """End a child that goes on running; it is first asked, so that a supervisor can end its job."""
    child.terminate()
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
