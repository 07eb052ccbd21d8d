"""Launches that take turns: all are started, and then one at a time goes on for a moment.

A machine that is shared changes its speed by tens of percent within seconds, and with it what
launches one after the other are compared by. Here all sides of a round are alive together. Each is
stopped (SIGSTOP) as soon as it has come up, and goes on for one short turn after the other, in an
order drawn for each cycle of turns. Values that are compared were measured within one cycle,
seconds apart.

Processes that have no children are stopped: the ranks, and not those that launch and watch them.
This serves programs whose protection does not go by the clock, so no checkpoints at intervals.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from . import launching
from .launching import JsonObject, Started

START_S = 3.0  # the first turn: time to come up, and for short programs to end
SEED = 20141  # of the orders

# Begin and end of each turn, in seconds since the epoch.
Turns = list[tuple[float, float]]
Launch = Callable[[Started], JsonObject]


def take_turns(launches: Mapping[str, Launch], turn_s: float) -> dict[str, JsonObject]:
    """Run all launches to their ends, one at a time; each result with its ``turns`` (`Turns`).

    Raises:
        BenchError: one of them did; the others are ended.
    """
    order = random.Random(SEED)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    turns: dict[str, Turns] = {name: [] for name in launches}
    results: dict[str, Future[JsonObject]] = {}

    def turn(name: str, seconds: float) -> None:
        began = time.time()
        if name in processes:
            signal_ranks(processes[name], signal.SIGCONT)
        concurrent.futures.wait([results[name]], seconds)
        turns[name].append((began, time.time()))
        if not results[name].done():
            signal_ranks(processes[name], signal.SIGSTOP)
        for result in results.values():  # one may have failed while it was not its turn
            if result.done():
                result.result()

    with concurrent.futures.ThreadPoolExecutor(len(launches)) as pool:
        try:
            for name, launch in launches.items():

                def started(process: subprocess.Popen[bytes], name: str = name) -> None:
                    processes[name] = process

                results[name] = pool.submit(launch, started)
                turn(name, START_S)
            while left := [name for name, result in results.items() if not result.done()]:
                order.shuffle(left)
                for name in left:
                    turn(name, turn_s)
        finally:
            for name, process in processes.items():
                if not results[name].done():
                    process.terminate()
                    signal_ranks(process, signal.SIGCONT)
    return {name: {**result.result(), "turns": turns[name]} for name, result in results.items()}


def signal_ranks(launcher: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the processes below a launcher that have no children."""
    everyone = launching.processes()
    parents = {parent for parent, _, _ in everyone.values()}
    for pid in launching.family(launcher.pid).keys() - parents - {launcher.pid}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def active_s(turns: Turns, began: float, ended: float) -> float:
    """Seconds of the time from `began` to `ended` that lie in turns."""
    return sum(max(0.0, min(e, ended) - max(b, began)) for b, e in turns)
