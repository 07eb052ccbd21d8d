"""The command ``ftrma demo``: one of three demonstrations; each kills processes and compares.

``fft`` is in `demo`. The two others show frameworks: a graph that loses half of its slots and has
neither a checkpoint nor a log, and a tree search whose places die. Everything that is printed was
measured in the runs, and the exit status is 0 only if all expectations came true.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..host.outfile import tell
from . import demo
from .demo import DemoStopped, say

GRAPH, SLOTS, AT = "rmat:14", 4, 3  # the graph; slots; the round in which slots die
DEPTH, COMMIT = 9, 3  # depth of the tree; number of the commit at which a place dies
LOST: tuple[tuple[int, ...], ...] = ((), (1,), (1, 3))  # slots, or places, that die in a run
BAR = "#"


def demonstrate(name: str, verbose: bool) -> int:
    """Run a demonstration, and return the exit status.

    Args:
        name: one of `apps.DEMOS`.
        verbose: show the commands that run, and what they print.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="ftrma-demo-") as directory:
            return DEMOS[name](Path(directory), verbose)
    except DemoStopped as reason:
        tell(f"error: demo: {reason}")
        return 1


def graph(directory: Path, verbose: bool) -> int:
    """Lose up to half of the slots of a graph, and find the same components."""
    say("program", f"connected components of {GRAPH} on {SLOTS} slots, by Phoenix: no checkpoint, "
        "no log")
    say("the kills", f"SIGKILL in round {AT}; a lost slot's vertices begin anew, all others stay")
    say("lost slots", f"{'rounds':<24} {'components':<11} labels")
    surprises, whole = [], np.empty(0)
    for lost in LOST:
        out = directory / "labels.npy"
        found, stats = run(
            ["graph", "cc", GRAPH, "-n", str(SLOTS), "--recovery", "phoenix", "--spares", "2",
             "--out", str(out)],
            [f"{slot}@graph.compute:{AT}" for slot in lost], directory, verbose)
        labels, rounds = np.load(out), int(stats["notes"][-1]["rounds"])
        whole = whole if lost else labels
        equal = labels.tobytes() == whole.tobytes()
        verdict = ("as without, bit for bit" if equal else "DIFFERENT") if lost else "(all slots)"
        say(named(lost), f"{BAR * rounds + f' {rounds}':<24} {found['components']:<11} {verdict}")
        surprises += [] if equal else [f"other labels after the loss of {named(lost)}"]
        surprises += deaths(stats, lost)
    return conclude(surprises, "half of the slots were lost, and the result is the same")


def search(directory: Path, verbose: bool) -> int:
    """Lose places of a tree search, and count each node once."""
    say("program", f"unbalanced tree search to depth {DEPTH} at {SLOTS} places, which steal work")
    say("the kills", f"SIGKILL at the commit number {COMMIT} of a place's bag of nodes")
    say("lost places", f"{'nodes':<10} {'all, once':<10} parts stolen")
    surprises = []
    for lost in LOST:
        found, stats = run(
            ["apgas", "uts", "-n", str(SLOTS), "--depth", str(DEPTH), "--spares", str(len(lost)),
             "--check"],
            [f"{place}@apgas.commit:{COMMIT}" for place in lost], directory, verbose)
        say(named(lost), f"{found['nodes']:<10} {'yes' if found['equal'] else 'NO':<10} "
            f"{BAR * min(found['parts'], 60)} {found['parts']}")
        surprises += [] if found["equal"] else [f"{found['nodes']} nodes are not those of the tree"]
        surprises += deaths(stats, lost)
    return conclude(surprises, "places died, and each node was counted once")


def run(
    words: list[str], kills: Sequence[str], directory: Path, verbose: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a command of a framework; return what it has printed, and its statistics."""
    stats = directory / "stats.json"
    words = [*words, *(word for rule in kills for word in ("--kill", rule)), "--stats", str(stats)]
    outcome = demo.run_verbosely(words, directory, verbose)
    try:
        return json.loads(outcome.output.splitlines()[-1]), json.loads(stats.read_text())
    except (IndexError, OSError, ValueError) as error:
        raise DemoStopped(f"it ended well, but its results cannot be read: {error}") from error


def named(lost: Sequence[int]) -> str:
    return " and ".join(map(str, lost)) or "none"


def deaths(stats: dict[str, Any], lost: Sequence[int]) -> list[str]:
    """Say whether other processes have died than were to die."""
    died = sorted(failure.get("slot", -1) for failure in stats["failures"])
    return [] if died == [*lost] else [f"{named(lost)} were to die, and {named(died)} did"]


def conclude(surprises: Sequence[str], well: str) -> int:
    """Print the result of a demonstration, and return its status."""
    for surprise in surprises:
        say("surprise", surprise)
    say("result", "not as it must be" if surprises else well)
    return 1 if surprises else 0


DEMOS = {"fft": demo.fft, "graph": graph, "search": search}
