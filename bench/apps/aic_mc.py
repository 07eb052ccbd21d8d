"""Matrix completion by NOMAD: entries of a matrix that is planted, or of a file.

What: `ftrma.aic.MatrixCompletion` on entries of which some are held out. The last line on standard
output is one JSON object.

Why: the paper's second application, whose messages are columns: none may be lost, doubled or
combined.

Oracle: of a planted matrix the noise is known; the error at known entries comes below it, that at
the entries held out near it.

Source: section 5.1 of the paper; Yun et al. 2014.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from typing import Any, NoReturn

import numpy as np

from ftrma import MPI, aic
from ftrma.frameworks.aic.modes import make
from ftrma.host import outfile

Entries = tuple[Any, Any, Any]


class Parser(argparse.ArgumentParser):
    """One line from slot 0 alone."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="aic_mc", description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("matrix", nargs="?", default="planted:10000x200")
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--density", type=float, default=0.3)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--held-out", type=float, default=0.1)
    parser.add_argument("--regularization", type=float, default=0.001)
    parser.add_argument("--step", type=float, default=0.03)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--rmse", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--owner", default="random")
    parser.add_argument("--snapshot", default="virtual:2")
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--recovery", choices=("all",), default="all")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plot")
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    if options.check and not options.matrix.startswith("planted:"):
        raise ValueError("--check: the noise of a file is not known; give planted:ROWSxCOLUMNS")
    if options.plot:
        import aic_plot

        aic_plot.check(options.plot)
    return options


def entries_of(options: argparse.Namespace) -> tuple[Entries, Entries, tuple[int, int] | None]:
    """Known entries, those that are held out, and the shape if it is known.

    Raises:
        ValueError: the matrix is neither planted nor a file of entries; with the remedy.
    """
    found = re.fullmatch(r"planted:(\d+)x(\d+)", options.matrix)
    if found:
        matrix = aic.planted(int(found[1]), int(found[2]), options.rank, density=options.density,
                             noise=options.noise, seed=options.seed)
        return (matrix.rows, matrix.cols, matrix.values), matrix.held_out, matrix.shape
    if options.matrix.startswith("planted:"):
        raise ValueError(f"{options.matrix}: expected planted:ROWSxCOLUMNS, such as "
                         "planted:10000x200")
    rows, cols, values = from_file(options.matrix)
    if not len(rows) == len(cols) == len(values):
        raise ValueError(f"{options.matrix}: {len(rows)} rows, {len(cols)} columns and "
                         f"{len(values)} values; give one of each for each entry")
    shape = int(rows.max(initial=-1)) + 1, int(cols.max(initial=-1)) + 1
    out = np.random.default_rng(options.seed).random(len(values)) < options.held_out
    known, held = ((rows[mask], cols[mask], values[mask]) for mask in (~out, out))
    return known, held, shape


def from_file(path: str) -> Entries:
    """Entries of a file: an .npz file of rows, cols and values, or lines of the three.

    Raises:
        ValueError: it is no such file.
    """
    try:
        if path.endswith(".npz"):
            with np.load(path, allow_pickle=False) as file:
                return file["rows"], file["cols"], file["values"]
        lines = np.loadtxt(path, ndmin=2)
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}; give the arrays rows, cols and values"
                         ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}; give lines of a row, a column and a value") from None
    if lines.shape[1:] != (3,) or (lines[:, :2] != np.floor(lines[:, :2])).any():
        raise ValueError(f"{path}: give lines of a row, a column, both from 0, and a value")
    return lines[:, 0].astype(np.int64), lines[:, 1].astype(np.int64), lines[:, 2]


def fitted(options: argparse.Namespace) -> tuple[aic.MatrixCompletion, dict[str, Any]]:
    """The model, and what is told of it."""
    known, held_out, shape = entries_of(options)
    model = aic.MatrixCompletion(
        options.rank, regularization=options.regularization, step=options.step,
        decay=options.decay, epochs=options.epochs, rmse=options.rmse, seed=options.seed,
        owner=options.owner, snapshot=make(options.snapshot), pace=options.pace,
        progress=options.progress)
    began = time.perf_counter()
    model.fit(*known, shape=shape)
    seconds = time.perf_counter() - began
    error = -model.score(*held_out) if len(held_out[2]) else None
    right = {}
    if options.check:
        asked = options.rmse or 1.05 * options.noise
        right = {"right": model.rmse_ <= asked and error is not None
                 and error <= 2 * max(asked, options.noise)}
    return model, {"matrix": options.matrix, "entries": len(known[2]), "rank": options.rank,
                   "slots": MPI.COMM_WORLD.size, "snapshot": options.snapshot,
                   "fit_s": seconds, "rmse": model.rmse_, "held_out_rmse": error,
                   **model.stats_, **right}


def draw(options: argparse.Namespace, model: aic.MatrixCompletion) -> None:
    """Draw the error over time."""
    import aic_plot

    aic_plot.draw(model.history_, options.plot, f"completion of {options.matrix}", "rmse")


def save(path: str, model: aic.MatrixCompletion) -> int:
    """Write the factors; the exit status."""
    try:
        with outfile.opened(path) as file:
            np.savez(file, rows=model.row_factors_, columns=model.column_factors_,
                     mean=model.mean_)
    except OSError as error:
        outfile.tell(f"error: --out {path}: {outfile.why(error)}", who="aic_mc")
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Fit a model; the result is the exit status."""
    slot, status = MPI.COMM_WORLD.rank, 0
    try:
        options = parse(arguments)
        model, told = fitted(options)
        if slot == 0:
            if options.plot:
                draw(options, model)
            status = save(options.out, model) if options.out else 0
            print(json.dumps(told, default=float), flush=True)
            status = status or int(not told.get("right", True))
    except (ValueError, TypeError, OSError) as error:
        if slot == 0:
            outfile.tell(f"error: {error}", who="aic_mc")
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
