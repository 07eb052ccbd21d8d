"""Runs a drawn job, and tells what became of it in a record of the campaign's form."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Result
from tree import ROOT

from . import code, survey
from .draw import Job, draw
from .programs import PROGRAMS, SLOTS, difference, run

BREAKPOINT = np.dtype([("at", "u8"), ("nth", "u8"), ("count", "u8"), ("role", "i4"),
                       ("index", "i4"), ("struck", "i4"), ("first", "i4")])
CATASTROPHES = ("CatastrophicFailure", "cannot be rebuilt")
GIVING_UP = "(--max-relaunch); giving up"
REPEATED = "times running at the same place of its program"
STUCK = "the job makes no progress"
OURS, NO_PROGRESS, KILLED = 70, 93, 137  # statuses
MOST_SETBACKS = 3  # the default of --max-no-progress
RUNNING = 3  # deaths of a slot at one place, after which the job ends
RIGHT, HONEST, WRONG, GAVE_UP, HUNG, UNTIDY = (
    "right", "honest", "wrong", "gave up", "hung", "untidy")


def breakpoints_of(job: Job) -> np.ndarray:
    """The file from which ``tests/c/trapkill.c`` takes its breakpoints."""
    rows = np.zeros(len(job.kills), BREAKPOINT)
    for row, kill in zip(rows, job.kills, strict=True):
        row["at"], row["nth"], row["first"] = kill.at, kill.nth, kill.first
        row["role"], row["index"] = survey.ROLES.index(kill.role), kill.index
    return rows


def verdict_of(job: Job, result: Result, deaths: int) -> tuple[str, str]:
    """Judge a job that has ended and left nothing: in a word, and why.

    Args:
        deaths: at instructions.
    """
    if result.status == 0:
        differs = difference(job.program, job.number, result)
        return (WRONG, differs) if differs else (RIGHT, "")
    told = next((line for line in reversed(result.stderr.splitlines()) if "error" in line.lower()
                 or "Catastrophic" in line), result.stderr[-300:])
    launched = result.stderr.count("launching the job again")
    honest = {
        OURS: (any(word in result.stderr for word in CATASTROPHES) and deaths > job.strength)
        or (GIVING_UP in result.stderr and launched >= 6),
        KILLED: REPEATED in result.stderr and deaths >= RUNNING,
        NO_PROGRESS: STUCK in result.stderr and deaths > MOST_SETBACKS,
    }.get(result.status, False)
    return HONEST if honest else GAVE_UP, f"status {result.status}: {told}"


def play(job: Job, directory: Path, trap: Path) -> tuple[dict[str, Any], str]:
    """Run a job.

    Args:
        directory: for a file that all its processes map.
        trap: the compiled library that lets breakpoints stand.

    Returns:
        A record as the campaign writes them, and all that the job said.
    """
    file = directory / f"breakpoints-{job.program}-{job.seed}"
    breakpoints_of(job).tofile(file)
    env = survey.environment(job.library, file, "kill", trap)
    result, began = Result(-1, "", ""), time.monotonic()
    try:
        result = run(job.program, job.number, job.options, env, directory)
        end = why = ""
    except AssertionError as error:
        why = str(error)
        end = HUNG if "not ended after" in why else UNTIDY
    seconds = time.monotonic() - began
    rows = np.fromfile(file, BREAKPOINT)
    file.unlink()
    functions = code.code_of(job.library).functions
    kills, deaths = [], []
    for kill, row in zip(job.kills, rows, strict=True):
        who = f"{kill.role} {kill.index}" if kill.index >= 0 else kill.role
        place = f"instruction:{code.name_of(functions[kill.at])}"
        struck = "struck" if row["struck"] else f"{row['count']} visits"
        kills.append(f"{who}@{job.library}+{kill.at:#x}:{kill.nth} behind {kill.first} ({struck})")
        if row["struck"]:
            deaths.append({"role": kill.role, "index": kill.index, "place": place,
                           "file": code.source_of(functions[kill.at])})
    if not end:
        end, why = verdict_of(job, result, len(deaths))
    stats = result.stats
    record = {
        "method": "instructions", "seed": job.seed, "commit": commit(), "program": job.program,
        "slots": SLOTS, "nodes": PROGRAMS[job.program].nodes, "options": list(job.options),
        "kills": kills, "strikes": [], "status": result.status, "seconds": round(seconds, 2),
        "deaths": deaths, "agents": len(stats.get("agents", [])),
        "recoveries": [r["kind"] for r in stats.get("recoveries", [])],
        "reseats": len(stats.get("reseats", [])), "launches": len(stats.get("entered", [])),
        "twins": [0, 0], "end": end, "why": why[:300],
    }
    return record, f"{job}\n{kills}\n{why}\n{stats}\n{result}"


def commit() -> str:
    found = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                           capture_output=True, text=True).stdout.strip()
    return found or "unknown"


class Player:
    """Plays jobs by number; its files are in a directory that all nodes have in common."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="instructions-")
        self.directory = Path(self._home.name)
        self.trap = code.build_trap(self.directory)

    def close(self) -> None:
        self._home.cleanup()

    def survey_of(self, program: str, library: str) -> dict[str, dict[int, int]]:
        return survey.of(program, library, self.directory, self.trap)

    def job(self, seed: int, program: str) -> Job:
        return draw(seed, program, self.survey_of)

    def play(self, seed: int, program: str) -> tuple[dict[str, Any], str]:
        """Draw a job and run it."""
        return play(self.job(seed, program), self.directory, self.trap)
