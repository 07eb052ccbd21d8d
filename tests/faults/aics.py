"""An asynchronous program for tests, which looks into each snapshot that is committed.

Arguments: the program, the snapshots and the recovery, as ``ftrma aic`` has them; then deaths, each
as SLOT:ATTEMPT:SECONDS from the begin of the run: a timer's signal ends the process. Slot 0 writes
the result and the bound of its error; each process writes down the sum of the values and that of
what is under way, in its part of each version that it has seen committed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ftrma import aic, framework
from ftrma.frameworks.aic import snapshots, worker
from ftrma.frameworks.aic.modes import make
from ftrma.graph.data import Graph, of_edges, rmat

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "apps"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import aic_programs
from graphs import sparse, weighted

SCALE, EPS = 9, 1e-10
# Seconds of an update: runs take a moment, in which there are snapshots.
PACES = {"pagerank": 2e-5, "sssp": 2e-3, "cc": 5e-4, "katz": 3e-4, "adsorption": 2e-5}


def web() -> Graph:
    """A graph in which each vertex has edges, so that no rank is lost."""
    found = [np.concatenate(ends) for ends in zip(*((s, t) for s, t, _ in rmat(SCALE).chunks()),
                                                  strict=True)]
    ring = np.arange(1 << SCALE)
    return of_edges(1 << SCALE, np.concatenate([found[0], ring]),
                    np.concatenate([found[1], (ring + 1) % (1 << SCALE)]))


GRAPHS = {"pagerank": web, "sssp": weighted, "cc": sparse, "katz": web, "adsorption": weighted}


def choice_of(name: str) -> aic_programs.Choice:
    return aic_programs.choose(name, GRAPHS[name](), every=5)


def amount(array: Any) -> float:
    """Sum of the messages in records that a snapshot has logged or kept back."""
    found = 0.0
    for _, data in snapshots.unpack(array):
        count = int(np.frombuffer(data[:8], "u8")[0])
        found += float(np.frombuffer(data, "f8")[-count:].sum())
    return found


def look_into_snapshots(directory: str, slot: int) -> None:
    """Have each turn of the worker look whether another version is committed."""
    seen, turn = {0}, worker.Worker.turn

    def read(name: str) -> Any:
        """An array of the first run's newest snapshot; None: it has no such."""
        key = f"aic 1 {name}"
        return framework.entries.read(key) if key in framework.entries else None

    def looking(self: Any) -> bool:
        # Entries read as in the newest snapshot, which is committed if the store has settled.
        settled = self.snapshots is not None and self.snapshots._store.settled()
        version = framework.committed()
        value = read("value") if settled and version not in seen else None
        if value is not None:
            kept = float(value.sum())
            moving = float(read("pending").sum()) + sum(
                amount(records) for name in ("log", "held") if (records := read(name)) is not None)
            seen.add(version)
            with open(f"{directory}/sums-{slot}-{os.getpid()}.txt", "a") as file:
                print(version, repr(kept), repr(moving), file=file)
        return turn(self)

    worker.Worker.turn = looking  # type: ignore[method-assign]


def main() -> None:
    directory = sys.argv.pop(1)  # another one in each launch
    name, snapshot, recovery, *timed = sys.argv[1:]
    from ftrma import MPI

    look_into_snapshots(directory, MPI.COMM_WORLD.rank)
    choice = choice_of(name)
    for death in timed:
        slot, attempt, seconds = map(float, death.split(":"))
        once = Path(directory, f"timer-{slot:.0f}-{attempt:.0f}")
        if (slot, attempt) == (MPI.COMM_WORLD.rank, framework.attempt()) and not once.exists():
            once.touch()  # a replacement that replays this attempt is spared
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)
    result = aic.run(choice.program, choice.graph, eps=0.0 if choice.norm is None else EPS,
                     snapshot=make(snapshot), recovery=recovery, pace=PACES[name])
    whole = result.gather()
    signal.setitimer(signal.ITIMER_REAL, 0)
    if whole is not None:
        np.save(f"{directory}/whole.npy", whole)
        with open(f"{directory}/run.json", "w") as file:
            json.dump({**result.stats, "bound": result.bound}, file, default=float)


if __name__ == "__main__":
    main()
