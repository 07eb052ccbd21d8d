"""Judges a job of the campaign: its status, words and bits. Pure, but for oracles of programs."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jobs import Result

from .draw import Case

GIVING_UP = "(--max-relaunch); giving up"
CATASTROPHES = ("CatastrophicFailure", "cannot be rebuilt", "elements of a group are lost")
REPEATED = "times running at the same place of its program"
SHELF_LOST = "the place that held it and the next one, which kept its copy, both died"
NO_RESERVE = "reserves are left; start the job with more --spares"
PROGRAM, NO_PROGRESS, KILLED, OURS = 1, 93, 137, 70
MOST_RELAUNCHES = 3  # the default of --max-relaunch
STUCK = "the job makes no progress"
MOST_SETBACKS = 3  # the default of --max-no-progress
RUNNING = 3  # deaths of a slot at one place, after which the job ends
RIGHT, HONEST, WRONG, GAVE_UP, HUNG, UNTIDY = ("right", "honest", "wrong", "gave up", "hung",
                                               "untidy")
ENDS = (RIGHT, HONEST, WRONG, GAVE_UP, HUNG, UNTIDY)


@dataclass(frozen=True)
class Verdict:
    """The end of a job, in one of the words of ENDS, and why.

    right: status 0 and the bits of the run without deaths. honest: the job says that it cannot go
    on, and more was lost than its layout makes up for. gave up: it ends so although it could have
    gone on. hung: it did not end in time. untidy: it left a process or a file.
    """

    end: str
    why: str = ""


@dataclass
class Reference:
    """A run without deaths.

    Attributes:
        bits: digest of each array of each slot.
        twins: checksums of what each slot's checkpoint at each step protects, see `twins_of`.
        seen_s: when its first process was seen; begun_s: when the first one had begun the program;
            seconds: it took.
    """

    bits: dict[str, dict[str, str]] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    seen_s: float = 0.0
    begun_s: float = 0.0
    seconds: float = 0.0


def digest(array: Any) -> str:
    array = np.asarray(array)
    told = f"{array.dtype} {array.shape} ".encode()
    return hashlib.sha256(told + array.tobytes()).hexdigest()[:16]


def bits_of(result: Result, slots: int) -> dict[str, dict[str, str]]:
    """Digests of the arrays that each slot has written at its end."""
    return {f"slot-{s}": {name: digest(array) for name, array in sorted(arrays.items())}
            for s, arrays in enumerate(result.of_slots("slot", slots))}


def twins_of(result: Result) -> dict[str, set[str]]:
    """All checksums in checkpoints, by "slot step name"."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, text in result.results.items():
        if name.startswith("twin-"):
            slot = name.split("-")[1]
            for line in text.splitlines():
                key, _, checksum = line.rpartition(" ")
                if key.count(" ") == 1 and len(checksum) == 8:  # or its writer was killed amid it
                    found[f"{slot} {key}"].add(checksum)
    return found


def compare_twins(reference: Mapping[str, str], found: Mapping[str, set[str]]) -> tuple[int, str]:
    """Compare checkpoints with those at the same step of the run without deaths.

    Returns:
        How many were compared, and those that differ.
    """
    common = sorted(reference.keys() & found.keys())
    wrong = [key for key in common if found[key] != {reference[key]}]
    return len(common), ", ".join(wrong)


def deaths_of(stats: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Deaths that the job has told: role, number, place."""
    found = []
    for failure in stats.get("failures", []):
        role = next(name for name in failure if name not in ("place", "pid", "host", "at_s"))
        found.append({"role": role, "index": failure[role], "place": failure["place"]})
    return found


def most_lost(case: Case, deaths: list[dict[str, Any]]) -> int:
    """Count the deaths in the group that has lost most, whenever they were."""
    lost: Counter[int] = Counter()
    for death in deaths:
        if death["role"] == "slot":
            lost[death["index"] // case.group_size] += 1
        elif death["role"] == "checksum":
            lost[death["index"] // case.strength] += 1
    return max(lost.values(), default=0)


def judge_end(case: Case, result: Result, deaths: list[dict[str, Any]], outside: int) -> Verdict:
    """Judge a job that says that it cannot go on.

    Args:
        outside: deaths from outside, which the job may not have told.
    """
    told, status = result.stderr, result.status
    lost = most_lost(case, deaths) + outside
    launched = told.count("launching the job again")  # also what did not come to an end
    last = next((line for line in reversed(told.splitlines()) if "error" in line), "")
    if status == OURS and any(word in told for word in CATASTROPHES):
        ok = lost > case.strength
    elif status == OURS and GIVING_UP in told:
        ok = launched >= MOST_RELAUNCHES
    elif status == OURS and "NotRecoverable" in told:
        ok = case.policy == "causal" and bool(deaths)
    elif status == PROGRAM and SHELF_LOST in told:  # a store makes up for one of two neighbours
        ok = case.work.judge == "answer" and len(deaths) + outside >= 2
    elif status == PROGRAM and NO_RESERVE in told:
        ok = len(deaths) + outside > int(case.options[case.options.index("--spares") + 1])
    elif status == KILLED and REPEATED in told:
        ok = len(deaths) >= RUNNING
    elif status == NO_PROGRESS and STUCK in told:
        ok = len(deaths) + outside > MOST_SETBACKS
    else:
        ok = False
    return Verdict(HONEST if ok else GAVE_UP, f"status {status}: {last}")


def judge_bits(case: Case, result: Result, reference: Reference) -> Verdict:
    work = case.work
    if work.judge == "answer":
        lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
        right = bool(lines) and json.loads(lines[-1]).get("equal") is True
        return Verdict(RIGHT) if right else Verdict(WRONG, f"it says {lines[-1:]}")
    if work.judge == "aic":
        from test_aic import assert_right

        assert_right(work.name.removeprefix("aic "), result)
        return Verdict(RIGHT)
    found = bits_of(result, work.slots)
    wrong = [f"{slot}'s {name}" for slot, arrays in reference.bits.items()
             for name, value in arrays.items() if found[slot].get(name) != value]
    return Verdict(WRONG, f"{', '.join(wrong)} differ") if wrong else Verdict(RIGHT)


def judge(case: Case, result: Result, reference: Reference, outside: int) -> Verdict:
    """Judge a job that has ended and left nothing behind."""
    deaths = deaths_of(result.stats)
    if result.status:
        return judge_end(case, result, deaths, outside)
    try:
        verdict = judge_bits(case, result, reference)
    except AssertionError as error:
        return Verdict(WRONG, str(error)[:500])
    if verdict.end == RIGHT and (differs := compare_twins(reference.twins, twins_of(result))[1]):
        return Verdict(WRONG, f"checkpoints differ (slot, step, name): {differs}")
    relaunches = sum(r["kind"] == "relaunch" for r in result.stats["recoveries"])
    agents = len(result.stats["agents"])
    if verdict.end == RIGHT and relaunches > len(deaths) + agents + outside:
        return Verdict(GAVE_UP, f"{relaunches} relaunches for {len(deaths)} deaths")
    return verdict
