"""The programs that fault tests run, and how their final memory is compared."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Result, run_job

ROOT = Path(__file__).parents[2]

SLOTS = 4
APP = """
import os, runpy, sys
directory, app, *rest = sys.argv[1:]
with open(f"{directory}/entered-{os.uname().nodename}-{os.getpid()}.txt", "a") as f:
    f.write("x")
sys.path.insert(0, os.path.dirname(app))
sys.argv = [app, *rest, "--dump", directory]
runpy.run_path(app, run_name="__main__")
"""
STENCIL = ("stencil.py", "--n", "128", "--steps", "40")
DHT = ("dht.py", "--inserts", "400", "--lookups", "200", "--buckets", "20", "--heap", "500",
       "--batch", "50", "--duty", "1")
PROGRAMS: dict[str, tuple[str, ...]] = {
    "stencil": STENCIL,
    "lock": (*STENCIL, "--mode", "lock"),
    "lockall": (*STENCIL, "--mode", "lockall"),
    "pscw": (*STENCIL, "--mode", "pscw"),
    "ft": ("ft.py", "--class", "S"),
    "dht": DHT,
    "mixed": (),
}


def words_of(program: str) -> tuple[str | Path, list[str]]:
    """The script of one of the programs, and its arguments behind the directory of results."""
    if program == "mixed":
        return ROOT / "tests/faults/mixed.py", []
    name, *args = PROGRAMS[program]
    return APP, [str(ROOT / "bench/apps" / name), *args]


def run(program: str, *options: str, timeout: float = 60) -> Result:
    """Run one of the programs protected, on SLOTS slots."""
    script, args = words_of(program)
    return run_job(script, SLOTS, *options, args=args, timeout=timeout)


@functools.cache
def reference(program: str) -> dict[str, Any]:
    """Final memory of the run without failure."""
    result = run(program)
    assert result.status == 0, result
    assert not result.stats["failures"], result.stats
    return final_memory(result)


def final_memory(result: Result) -> dict[str, Any]:
    return {f"slot-{s}": dump for s, dump in enumerate(result.of_slots("slot", SLOTS))}


def assert_same_bits(program: str, result: Result) -> None:
    """The run ended well, with the memory of the run without failure, bit for bit."""
    assert result.status == 0, result
    expected, found = reference(program), final_memory(result)
    for slot, arrays in expected.items():
        assert arrays.keys() == found[slot].keys(), slot
        for name, array in arrays.items():
            same = np.asarray(array).tobytes() == np.asarray(found[slot][name]).tobytes()
            assert same, f"{program}: {slot}'s {name} differs from the run without failure"


def entered(result: Result) -> list[int]:
    """Count how often each process that ran the program has entered it, in no order."""
    return sorted(len(v) for k, v in result.results.items() if k.startswith("entered-"))


def assert_causal(result: Result, slots: Sequence[int], processes: int) -> None:
    """The lost slots were replayed, each in turn, and nobody else did anything twice.

    Args:
        slots: that died, in this order.
        processes: that have entered the program: the slots, and replacements of those that had.
    """
    recoveries = result.stats["recoveries"]
    assert [(r["kind"], r["slots"]) for r in recoveries] == [("causal", [s]) for s in slots], result
    assert entered(result) == [1] * processes, result


def assert_rollback(result: Result, reason: str) -> None:
    """All went back once, for a reason in which these words are."""
    assert kinds(result) == ["rollback"], result
    assert reason in result.stats["recoveries"][0]["reason"], result.stats["recoveries"]


def deaths(result: Result) -> list[tuple[str, int, str]]:
    """(role, number, place) of all that died, sorted; an undeclared death is in here too."""
    found = []
    for failure in result.stats["failures"]:
        role = next(k for k in ("slot", "checksum", "spare") if k in failure)
        found.append((role, failure[role], failure["place"]))
    return sorted(found)


def kinds(result: Result) -> list[str]:
    """The kinds of a job's recoveries; a test that fails shows their reasons, too."""
    for recovery in result.stats["recoveries"]:
        print(f"{recovery['kind']} of slots {recovery['slots']}: {recovery['reason']}")
    return [recovery["kind"] for recovery in result.stats["recoveries"]]


def assert_replaced(result: Result, *kills: str) -> None:
    """These died, at these places, and nobody was launched again."""
    roles = {"c": "checksum", "s": "spare"}
    died = sorted((roles.get(kill[0], "slot"), int(kill.partition("@")[0].lstrip("cs")),
                   kill.partition("@")[2].partition(":")[0]) for kill in kills)
    assert deaths(result) == died, result
    assert "relaunch" not in kinds(result), result
