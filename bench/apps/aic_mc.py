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
import functools
import json
import re
import sys
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ftrma import MPI, aic, framework
from ftrma.frameworks.aic.modes import make
from ftrma.host import outfile

Entries = tuple[Any, Any, Any]
PLANTED, RATINGS = 0.001, 0.1  # lambda: for little noise; for ratings by people


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
    parser.add_argument("--regularization", type=float)
    parser.add_argument("--biases", choices=("yes", "no"))
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


def entries_of(options: argparse.Namespace) -> tuple[aic.Planted | aic.Ratings, Entries, Entries]:
    """The matrix, its known entries, and those that are held out.

    Raises:
        ValueError: the matrix is neither planted nor a file of entries; with the remedy.
    """
    found = re.fullmatch(r"planted:(\d+)x(\d+)", options.matrix)
    if found:
        matrix = aic.planted(int(found[1]), int(found[2]), options.rank, density=options.density,
                             noise=options.noise, seed=options.seed)
        return matrix, (matrix.rows, matrix.cols, matrix.values), matrix.held_out
    if options.matrix.startswith("planted:"):
        raise ValueError(f"{options.matrix}: expected planted:ROWSxCOLUMNS, such as "
                         "planted:10000x200")
    ratings = aic.load_ratings(options.matrix)
    if MPI.COMM_WORLD.rank == 0 and framework.attempt() <= 1:
        outfile.tell(f"{options.matrix}: read as {ratings.read_as}", who="aic")
    out = np.random.default_rng(options.seed).random(len(ratings.values)) < options.held_out
    known, held = (tuple(array[mask] for array in ratings) for mask in (~out, out))
    return ratings, known, held  # type: ignore[return-value]


def fitted(options: argparse.Namespace) -> tuple[aic.MatrixCompletion, Any, dict[str, Any]]:
    """The model, the ids of a file's rows and columns, and what is told of the run."""
    matrix, known, held_out = entries_of(options)
    people = isinstance(matrix, aic.Ratings)
    if options.regularization is None:
        options.regularization = RATINGS if people else PLANTED
    model = aic.MatrixCompletion(
        options.rank, regularization=options.regularization, step=options.step,
        decay=options.decay, epochs=options.epochs, rmse=options.rmse, seed=options.seed,
        owner=options.owner, biases=people if options.biases is None else options.biases == "yes",
        snapshot=make(options.snapshot), pace=options.pace,
        progress=options.progress)
    began = time.perf_counter()
    model.fit(*known, shape=matrix.shape)
    seconds = time.perf_counter() - began
    error = -model.score(*held_out) if len(held_out[2]) else None
    right: dict[str, Any] = {}
    if model.biases and error is not None:
        i, j, values = held_out
        left = values - model.mean_ - model.row_biases_[i] - model.column_biases_[j]
        right["held_out_rmse_of_biases"] = float(np.sqrt(np.mean(left**2)))
    if options.check:
        asked = options.rmse or 1.05 * options.noise
        right["right"] = model.rmse_ <= asked and error is not None and (
            error <= 2 * max(asked, options.noise))
    ids = {"row_ids": matrix.row_ids, "column_ids": matrix.column_ids} if isinstance(
        matrix, aic.Ratings) else {}
    return model, ids, {
        "matrix": options.matrix, "entries": len(known[2]), "rank": options.rank,
        "slots": MPI.COMM_WORLD.size, "snapshot": options.snapshot, "fit_s": seconds,
        "rmse": model.rmse_, "held_out_rmse": error, **model.stats_, **right}


def draw(options: argparse.Namespace, model: aic.MatrixCompletion) -> None:
    """Draw the error over time."""
    import aic_plot

    aic_plot.draw(model.history_, options.plot, f"completion of {options.matrix}", "rmse")


def save(path: str, model: aic.MatrixCompletion, ids: Mapping[str, Any]) -> int:
    """Write the model, with the ids of a file; the exit status."""
    try:
        with outfile.opened(path) as file:
            np.savez(file, rows=model.row_factors_, columns=model.column_factors_,
                     mean=model.mean_, row_biases=model.row_biases_,
                     column_biases=model.column_biases_, **ids)
    except OSError as error:
        outfile.tell(f"error: --out {path}: {outfile.why(error)}", who="aic")
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Fit a model; the result is the exit status."""
    slot, status = MPI.COMM_WORLD.rank, 0
    tell = functools.partial(outfile.tell_first, who="aic", unasked=slot == 0)
    try:
        options = parse(arguments)
        model, ids, told = fitted(options)
        if slot == 0:
            if options.plot:
                draw(options, model)
            status = save(options.out, model, ids) if options.out else 0
            print(json.dumps(told, default=float), flush=True)
            status = status or int(not told.get("right", True))
    except OSError as error:
        tell(f"error: {options.matrix}: {error.strerror or error}")
        return 2
    except (ValueError, TypeError) as error:
        tell(f"error: {error}")
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
