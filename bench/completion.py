"""Measures matrix completion beside alternating least squares and the libraries that users have.

In each round all sides fit a planted matrix with factors of its rank: `ftrma.aic` in jobs, with
snapshots and without; alternating least squares in NumPy, in this process; cmfrec and
scikit-surprise where they are installed. Each side works until its error at the known entries is
below what is asked for; those that do not watch it get as many passes as are known to suffice.
Times are those of fitting, with what it prepares.
"""

from __future__ import annotations

import importlib.util
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from ftrma.aic import Planted, planted

from . import common, figures, launching
from .common import Parser, spread
from .launching import HERE, JsonObject

SCRIPT = HERE / "apps" / "aic_mc.py"
REGULARIZATION = 0.001
STEP = 0.03
SURPRISE_EPOCHS = 6  # measured: enough for an error of 0.105 with noise of 0.1
CMFREC_ITERATIONS = 7  # as above
MOST_ITERATIONS = 50

Factors = tuple[Any, Any]


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("completion", "Matrix completion beside other libraries.")
    parser.add_argument("--rows", type=common.whole, default=10_000, metavar="N",
                        help="of the planted matrix")
    parser.add_argument("--cols", type=common.whole, default=200, metavar="M", help="of it")
    parser.add_argument("--rank", type=common.whole, default=20, metavar="K", help="of it")
    parser.add_argument("--rmse", type=common.positive, default=0.105, metavar="E",
                        help="error that is asked for; the noise is 0.1")
    parser.add_argument("-n", dest="slots", type=common.whole, default=2, metavar="N",
                        help="slots of the larger jobs; threads of the others")
    parser.add_argument("--snapshot", default="virtual:0.2", metavar="MODE:WHEN",
                        help="of one of the jobs")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure and print."""
    options = parse(arguments)
    report = common.begin("completion")
    report.update(rows=options.rows, cols=options.cols, rank=options.rank, rmse=options.rmse,
                  slots=options.slots, rounds=options.rounds, snapshot=options.snapshot)
    matrix = planted(options.rows, options.cols, options.rank, seed=1)
    report["entries"] = len(matrix.rows)
    sides: dict[str, Callable[[], JsonObject]] = {**jobs(options), **peers(matrix, options)}
    found: dict[str, list[JsonObject]] = {name: [] for name in sides}
    for i in range(options.rounds):
        for name, side in sides.items():
            common.progress(f"completion: round {i + 1} of {options.rounds}, {name}")
            found[name].append(side())
    report["sides"] = {name: {what: spread([run[what] for run in runs])
                              for what in ("fit_s", "rmse", "held_out_rmse")}
                       for name, runs in found.items()}
    common.finish(report, options, text, draw)
    return 0


def jobs(options: Namespace) -> dict[str, Callable[[], JsonObject]]:
    """Jobs of ftrma.aic, by what they are."""
    words = [f"planted:{options.rows}x{options.cols}", "--rank", str(options.rank), "--rmse",
             str(options.rmse), "--step", str(STEP), "--regularization", str(REGULARIZATION),
             "--epochs", "1000"]

    def job(slots: int, snapshot: str) -> JsonObject:
        said, _ = launching.run_protected(slots, SCRIPT, [*words, "--snapshot", snapshot],
                                          ["--spares", "0"], options.timeout)
        return said

    return {f"ftrma.aic, {slots} slot{'s' * (slots > 1)}, {snapshot}":
            (lambda slots=slots, snapshot=snapshot: job(slots, snapshot))
            for slots, snapshot in dict.fromkeys(
                [(1, "none"), (options.slots, "none"), (options.slots, options.snapshot)])}


def peers(matrix: Planted, options: Namespace) -> dict[str, Callable[[], JsonObject]]:
    """Other ways to the same end, by name."""
    found: dict[str, Callable[[], Factors]] = {
        "least squares in NumPy": lambda: least_squares(matrix, options.rank, options.rmse)}
    if importlib.util.find_spec("cmfrec"):
        found["cmfrec.CMF"] = lambda: by_cmfrec(matrix, options.rank, options.slots)
    if importlib.util.find_spec("surprise"):
        found["surprise.SVD"] = lambda: by_surprise(matrix, options.rank)

    def timed(fit: Callable[[], Factors]) -> JsonObject:
        began = time.perf_counter()
        factors = fit()
        seconds = time.perf_counter() - began
        return {"fit_s": seconds, "rmse": error(factors, tuple(matrix)),
                "held_out_rmse": error(factors, matrix.held_out)}

    return {name: (lambda fit=fit: timed(fit)) for name, fit in found.items()}


def error(factors: Factors, entries: tuple[Any, ...]) -> float:
    """The root of the mean square of the errors at some entries."""
    rows, cols, values = entries
    errors = np.einsum("ij,ij->i", factors[0][rows], factors[1][cols]) - values
    return float(np.sqrt(np.mean(errors**2)))


def least_squares(matrix: Planted, rank: int, rmse: float) -> Factors:
    """Alternate between the best rows for the columns and the best columns for the rows."""
    by_row = scipy.sparse.csr_matrix((matrix.values, (matrix.rows, matrix.cols)), matrix.shape)
    by_col = by_row.T.tocsr()
    cols = np.random.default_rng(1).normal(0, 0.1, (matrix.shape[1], rank))
    for _ in range(MOST_ITERATIONS):
        rows = solved(by_row, cols)
        cols = solved(by_col, rows)
        if error((rows, cols), tuple(matrix)) <= rmse:
            break
    return rows, cols


def solved(known: Any, fixed: Any) -> Any:
    """The best factors of each row of a sparse matrix, with those of its columns given."""
    rank = fixed.shape[1]
    there = known.copy()
    there.data = np.ones_like(known.data)
    squares = (there @ (fixed[:, :, None] * fixed[:, None, :]).reshape(len(fixed), -1))
    ridge = REGULARIZATION * np.diff(known.indptr)[:, None, None] * np.eye(rank)
    return np.linalg.solve(squares.reshape(-1, rank, rank) + ridge,
                           (known @ fixed)[:, :, None])[:, :, 0]


def by_cmfrec(matrix: Planted, rank: int, threads: int) -> Factors:
    """Alternating least squares of cmfrec, without biases."""
    import cmfrec

    known = scipy.sparse.coo_matrix((matrix.values, (matrix.rows, matrix.cols)), matrix.shape)
    model = cmfrec.CMF(k=rank, lambda_=REGULARIZATION, niter=CMFREC_ITERATIONS, user_bias=False,
                       item_bias=False, center=False, nthreads=threads,
                       verbose=False, precompute_for_predictions=False)
    model.fit(known)
    return model.A_, model.B_


def by_surprise(matrix: Planted, rank: int) -> Factors:
    """Stochastic gradient descent of scikit-surprise, without biases, on one core."""
    import surprise

    users: dict[int, list[tuple[int, float]]] = {i: [] for i in range(matrix.shape[0])}
    items: dict[int, list[tuple[int, float]]] = {j: [] for j in range(matrix.shape[1])}
    for i, j, value in zip(*(array.tolist() for array in matrix), strict=True):
        users[i].append((j, value))
        items[j].append((i, value))
    same = ({i: i for i in range(length)} for length in matrix.shape)
    entries = surprise.Trainset(users, items, *matrix.shape, len(matrix.rows), (-100, 100), *same)
    model = surprise.SVD(n_factors=rank, n_epochs=SURPRISE_EPOCHS, biased=False, lr_all=STEP,
                         reg_all=REGULARIZATION, random_state=1)
    model.fit(entries)
    return model.pu, model.qi


def text(report: Mapping[str, Any]) -> str:
    """The table."""
    rows = [["side", "fit, s", "rmse", "held out"]]
    for name, found in report["sides"].items():
        rows.append([name, common.with_range(found["fit_s"]),
                     f"{found['rmse']['median']:.4f}", f"{found['held_out_rmse']['median']:.4f}"])
    return (f"{report['rows']:,} x {report['cols']}, rank {report['rank']}, {report['entries']:,} "
            f"entries, noise 0.1, until {report['rmse']:g}; {report['rounds']} rounds\n\n"
            f"{common.table(rows)}")


def draw(report: Mapping[str, Any], path: Any) -> None:
    """Time of fitting, side by side."""
    figure, _ = figures.chart(
        list(report["sides"]), {"fit": [found["fit_s"] for found in report["sides"].values()]},
        f"s until an error of {report['rmse']:g}, {report['rows']:,} x {report['cols']}, rank "
        f"{report['rank']}")
    common.save(figure, path, report)
