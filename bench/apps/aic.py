"""Asynchronous programs on a graph that survive failures: the one that is asked for.

What: the programs of ``aic_programs.py``, on a file or a graph that is made. The last line on
standard output is one JSON object.

Why: they are what users begin with.

Source: see ``aic_programs.py``.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import aic_plot
import aic_programs
import numpy as np

from ftrma import MPI, aic
from ftrma.frameworks.aic.modes import make
from ftrma.host import outfile

# Graphs that are made from a number: the scale, vertices, vertices, the side of a square, vertices.
MADE: dict[str, Callable[[int], aic.Graph]] = {
    "rmat": aic.rmat, "powerlaw": aic.power_law, "lognormal": lambda n: aic.lognormal(n, 4, 1.3),
    "grid": lambda side: aic.grid(side, side), "path": aic.path}
EXACT = ("sssp", "cc")  # programs whose values are the oracle's, bit by bit


class Parser(argparse.ArgumentParser):
    """One line from slot 0 alone."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="aic", description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("program", choices=aic_programs.NAMES)
    parser.add_argument("graph")
    parser.add_argument("--snapshot", default="virtual:2")
    parser.add_argument("--eps", type=float)
    parser.add_argument("--portion", type=float, default=0.2)
    parser.add_argument("--send-portion", type=float, default=0.01)
    parser.add_argument("--send-seconds", type=float, default=0.5)
    parser.add_argument("--recovery", choices=("all", "survivors"), default="all")
    parser.add_argument("--source", type=int)
    parser.add_argument("--beta", type=float)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plot")
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    if options.eps is None:
        options.eps = 0.0 if options.program in EXACT else 1e-9
    if options.plot:
        aic_plot.check(options.plot)
    return options


def graph_of(name: str) -> aic.Graph:
    """From a file, or made as the name says."""
    kind, _, number = name.partition(":")
    if kind in MADE and number:
        if not number.isdigit() or not int(number):
            raise ValueError(f"{name}: expected {kind}:NUMBER, such as {kind}:16")
        return MADE[kind](int(number))
    return aic.load(name)


def run(options: argparse.Namespace) -> tuple[aic_programs.Choice, Any]:
    """The program on its graph, and its result."""
    choice = aic_programs.choose(options.program, graph_of(options.graph), source=options.source,
                                 beta=options.beta, every=options.every)
    result = aic.run(
        choice.program, choice.graph, eps=options.eps, portion=options.portion,
        send_portion=options.send_portion, send_seconds=options.send_seconds,
        snapshot=make(options.snapshot), recovery=options.recovery,
        progress=options.progress)
    return choice, result


def checked(choice: aic_programs.Choice, values: Any, bound: float) -> dict[str, Any]:
    """Compare values with the oracle: the error, and that it is as small as was stated."""
    from aic_oracles import oracle  # here, since scipy takes a while

    expected = oracle(choice)
    if choice.norm is None:
        return {"right": bool(np.array_equal(values, expected))}
    error = choice.norm(values - expected)
    # Sums of so many floats are not better than this.
    rounding = 1e-13 * choice.norm(expected)
    return {"error": error, "right": error <= bound + rounding}


def save(path_: str, values: Any) -> int:
    """Write the result; the exit status."""
    try:
        with outfile.opened(path_) as file:
            np.save(file, values)
    except OSError as error:
        outfile.tell(f"error: --out {path_}: {outfile.why(error)}", who="aic")
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Run one of them; the result is the exit status."""
    slot, status = MPI.COMM_WORLD.rank, 0
    tell = functools.partial(outfile.tell_first, who="aic", unasked=slot == 0)
    try:
        options = parse(arguments)
        del sys.argv[1:]  # what tells a run from others is in the program and the graph
        choice, result = run(options)
        values = result.gather()
        if slot == 0:
            found = {"program": options.program, "graph": options.graph,
                     "vertices": choice.graph.n, "slots": MPI.COMM_WORLD.size,
                     "snapshot": options.snapshot, "recovery": options.recovery,
                     "bound": result.bound, **result.stats}
            if options.check:
                found |= checked(choice, values, result.bound)
            if options.plot:
                aic_plot.draw(result.history, options.plot, f"{options.program} {options.graph}")
            status = save(options.out, values) if options.out else 0
            found["out"] = None if status else options.out
            print(json.dumps(found, default=float), flush=True)
            status = status or int(not found.get("right", True))
    except MemoryError as error:
        tell(f"error: {options.graph} does not fit: {error}; use more slots on more machines, or a "
             "smaller graph")
        return 2
    except aic.Diverged as error:  # in one slot
        outfile.tell(f"error: {error}", who="aic")
        return 1
    except (ValueError, OSError) as error:
        tell(f"error: {error}")
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
