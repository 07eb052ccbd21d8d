"""The programs that are killed, and how a run of one is told right from wrong."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tree import APPS, ROOT, TESTS

sys.path.insert(0, str(TESTS / "faults"))  # modules of the fault tests stand beside each other

import programs as faultprograms
from jobs import Result, run_job, run_plain
from nodes import run_on_nodes

SLOTS = 3
TIMEOUT_S = 240  # a survey takes long, and machines are shared
DRAWN = 6  # programs that a number draws: as many as references are made


WAYS = (("--interval", "0"), ("--interval", "0.02"), ("--interval", "never"),
        ("--interval", "0", "--policy", "rollback"))


@dataclass(frozen=True)
class Program:
    """A program, whose results are a file ``slot-S`` from each slot.

    Attributes:
        script: path of it, or its text.
        args: behind the directory for results; a NUMBER in it is drawn.
        nodes: on how many it runs.
        ways: options of which one list is drawn.
        plain: the reference is a run of it without ftrma; else a protected one without failure.
    """

    script: str | Path
    args: tuple[str, ...] = ()
    nodes: int = 1
    plain: bool = False
    ways: tuple[tuple[str, ...], ...] = WAYS


DRAWN_SCRIPT = ROOT / "tests/faults/replay/drawn.py"
PROGRAMS = {
    "mixed": Program(ROOT / "tests/faults/mixed.py"),
    "drawn": Program(DRAWN_SCRIPT, ("top", "10", "NUMBER"), plain=True),
    "nodes": Program(DRAWN_SCRIPT, ("top", "10", "NUMBER"), nodes=2, plain=True),
    "dht": Program(faultprograms.APP, (str(APPS / "dht.py"), *faultprograms.DHT[1:])),
    "graph": Program(ROOT / "tests/faults/graphs.py", ("lwlog", "pagerank", "component"),
                     ways=((),)),
}


def args_of(program: str, number: int) -> list[str]:
    """The arguments of a program behind its directory for results."""
    return [str(number) if word == "NUMBER" else word for word in PROGRAMS[program].args]


def run(program: str, number: int, options: Sequence[str], env: Mapping[str, str],
        directory: Path) -> Result:
    """Run a program protected.

    Args:
        number: draws the program, if it is a drawn one.
        options: of ``ftrma run``.
        env: what is added to the environment of its processes.
        directory: with the files that they open by names in `env`.
    """
    it = PROGRAMS[program]
    args = args_of(program, number)
    if it.nodes == 1:
        return run_job(it.script, SLOTS, *options, args=args, env=env, timeout=TIMEOUT_S)
    return run_on_nodes(it.script, SLOTS, *options, args=args, timeout=TIMEOUT_S,
                        in_turn=it.nodes, files=directory, env=env)


def draw_number(program: str, dice: random.Random) -> int:
    return dice.randrange(DRAWN) if "NUMBER" in PROGRAMS[program].args else 0


@functools.cache
def reference(program: str, number: int) -> list[Mapping[str, Any]]:
    """The results of the slots in a run without failure."""
    it = PROGRAMS[program]
    args = args_of(program, number)
    if it.plain:
        args[0] = "plain"
        result = run_plain(it.script, SLOTS, args=args)
    else:
        result = run_job(it.script, SLOTS, args=args)
        assert not result.stats["failures"], result
    assert result.status == 0, result
    return result.of_slots("slot", SLOTS)


def difference(program: str, number: int, result: Result) -> str:
    """Say what differs from the run without failure; empty if no bit does."""
    missing = [s for s in range(SLOTS) if f"slot-{s}" not in result.results]
    if missing:
        return f"slots {missing} wrote no result"
    for slot, right in enumerate(reference(program, number)):
        found = result.results[f"slot-{slot}"]
        for name, array in right.items():
            if np.asarray(found[name]).tobytes() != np.asarray(array).tobytes():
                return f"slot {slot}'s {name} differs from the run without failure"
    return ""
