"""Matrix completion: the model that users fit.

The values are first scaled to mean 0 and standard deviation 1, so that the same length of the steps
suits all units. The factors that the model shows are for the values as they were given.
"""

from __future__ import annotations

import inspect
import numbers
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .completion_run import CompletionProgress, Found, Told, find
from .completion_workload import Rules
from .kinds import Floats
from .matrices import MOST_IDS, Known, check_inside, ids_of, known_entries, values_of, whole
from .modes import SnapshotMode, VirtualSnapshot

DEFAULT_SNAPSHOT = VirtualSnapshot(seconds=2.0)
OWNERS = ("random", "ring")


class MatrixCompletion:
    """A matrix of which some entries are known, approximated by factors of its rows and columns.

    Entry (i, j) is approximated by ``mean_ + row_biases_[i] + column_biases_[j] + row_factors_[i] @
    column_factors_[j]``. The factors are found by NOMAD: slots keep the factors of rows, columns
    travel from slot to slot, and no slot waits for another one. So the order of the visits varies,
    and two runs on several slots have different factors, with about the same error. A run on one
    slot always has the same factors.

    `fit` checks the parameters. `get_params`, `set_params` and scikit-learn's ``clone`` work as for
    scikit-learn's estimators.

    Args:
        rank: number of factors of each row and of each column.
        regularization: lambda, at each entry, for values of standard deviation 1. The default is
            for many entries and little noise; for ratings by people 0.05 to 0.15 is usual.
        step: eta in the length of a step, ``1.5 * step / (1 + decay * t**1.5)``, for values of
            standard deviation 1; t is the number of visits that the column has had for each slot.
        decay: beta in the length of a step.
        epochs: number of visits of each column, for each slot, after which the run ends.
        rmse: the run ends earlier if the root of the mean square of the errors at the known entries
            has come down to this, in the unit of the values; None: it does not end earlier.
        seed: seed of the first factors and of the ways of the columns; 0 to 2**32 - 1.
        owner: the slot of a column's next visit: "random": any slot; "ring": the next slot.
        biases: before factors are found, subtract from each entry how much its row and its column
            are above the mean; of advantage for ratings by people.
        snapshot: how snapshots are taken; None: no snapshots, so a failure begins the run anew.
        pace: least number of seconds for an update (a step on one entry), reached by sleeping, to
            emulate slow machines; a list has one number for each slot. 0: no sleeping.
        progress: True: slot 0 prints the progress on standard error; or a function that slot 0
            calls with `CompletionProgress`, some times a second.

    Attributes:
        row_factors_: (n, rank); zeros in rows without a known entry.
        column_factors_: (m, rank); zeros in columns without a known entry.
        mean_: mean of the known values.
        row_biases_, column_biases_: (n,) and (m,); zeros without `biases`.
        rmse_: the root of the mean square of the errors at the known entries.
        stats_: numbers of the run, of all slots together: "updates" (entries on which a step was
            taken) and "visits" of columns, including those before a snapshot that was loaded; of
            this attempt "seconds", "records", "bytes", "snapshots", "snapshot_bytes",
            "snapshot_entries" (columns in them that were queued, packed or under way),
            "computing_s", "idle_s"; and "attempts". For a run that had ended before a failure only
            "updates" and "visits".
        history_: at slot 0 the progress, over all attempts for as long as its process lives.
    """

    mean_: float
    rmse_: float
    stats_: dict[str, float]
    history_: list[CompletionProgress]
    row_biases_: Floats
    column_biases_: Floats
    row_factors_: Floats
    column_factors_: Floats

    def __init__(self, rank: int = 20, *, regularization: float = 0.001, step: float = 0.03,
                 decay: float = 0.01, epochs: int = 60, rmse: float | None = None, seed: int = 0,
                 owner: str = "random", biases: bool = False,
                 snapshot: SnapshotMode | None = DEFAULT_SNAPSHOT,
                 pace: float | list[float] = 0.0,
                 progress: bool | Callable[[CompletionProgress], object] = False) -> None:
        self.rank, self.regularization = rank, regularization
        self.step, self.decay, self.epochs, self.rmse = step, decay, epochs, rmse
        self.seed, self.owner, self.snapshot = seed, owner, snapshot
        self.biases, self.pace, self.progress = biases, pace, progress

    # ---- scikit-learn's habits --------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> MatrixCompletion:
        """Set parameters by name.

        Raises:
            ValueError: there is no such parameter.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        for name, value in params.items():
            if name not in _PARAMETERS:
                raise ValueError(f"MatrixCompletion has no parameter {name!r}; it has "
                                 f"{', '.join(_PARAMETERS)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        signature = inspect.signature(type(self).__init__).parameters
        told = [f"{name}={value!r}" for name, value in self.get_params().items()
                if value is not signature[name].default and value != signature[name].default]
        return f"MatrixCompletion({', '.join(told)})"

    # ---- fit and use ------------------------------------------------------------------------

    def fit(self, rows: npt.ArrayLike, cols: npt.ArrayLike, values: npt.ArrayLike, *,
            shape: tuple[int, int] | None = None) -> MatrixCompletion:
        """Find the factors from known entries.

        Each slot gives all entries, and uses those of its block of rows; all blocks have about as
        many entries. Each slot gets the whole result. Slot 0 warns if `rmse` was not reached.

        Args:
            rows, cols: row and column of each entry, from 0, (k,) integers.
            values: the entries, (k,) numbers.
            shape: numbers of rows and columns of the matrix; None: up to the last row and the last
                column that have an entry.

        Raises:
            TypeError: ids are not integers, or values are not real numbers.
            ValueError: there is no entry, an entry lies outside of the matrix or is NaN or
                infinite, lengths differ, a parameter is out of its range, or the steps were too
                long.

        MPI: collective over all slots; no slot waits for another one until the end. Claims the
            job's failures.
        Fault: raises `Rollback` when all slots go back. In the next attempt the run goes on from
            the newest snapshot.
        """
        known = known_entries(rows, cols, values, shape)
        mean, row, column = known.values.mean(), *map(np.zeros, known.shape)
        if self.biases:
            row, column = known.biases()
        left = known.values - mean - row[known.rows] - column[known.cols]
        deviation = float(left.std()) or 1.0
        rules = self._rules(deviation)
        told = Told(self.progress, deviation)
        scaled = known.with_values(left / deviation)
        found = find(rules, scaled, self.snapshot, self.pace, told)
        if found.diverged:
            raise ValueError(f"step={self.step:g}: the errors grow without bound; give a smaller "
                             f"step, {self.step / 3:.2g} say")
        self.mean_, self.row_biases_, self.column_biases_ = float(mean), row, column
        self._take(found, known, deviation)
        self.history_ = told.history
        if found.slot == 0 and self.rmse is not None and self.rmse_ > self.rmse:
            warnings.warn(f"rmse {self.rmse:g} was not reached: it is {self.rmse_:.4g} after "
                          f"{self.epochs} epochs; give more epochs or a higher rank",
                          stacklevel=2)
        return self

    def predict(self, rows: npt.ArrayLike, cols: npt.ArrayLike) -> Floats:
        """Return the approximations of some entries, (k,).

        Args:
            rows, cols: row and column of each of these entries, as in `fit`.

        Raises:
            ValueError: the model is not fitted, lengths differ, or an id is not in the matrix.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        if not hasattr(self, "row_factors_"):
            raise ValueError("predict: the model is not fitted yet; call fit(rows, cols, values)")
        i, j = ids_of("rows", rows), ids_of("cols", cols)
        if len(i) != len(j):
            raise ValueError(f"predict: {len(i)} rows and {len(j)} columns: give one of each for "
                             "each entry")
        check_inside("predict", i, j, (len(self.row_factors_), len(self.column_factors_)))
        found = np.einsum("ij,ij->i", self.row_factors_[i], self.column_factors_[j])
        predicted: Floats = self.mean_ + self.row_biases_[i] + self.column_biases_[j] + found
        return predicted

    def score(self, rows: npt.ArrayLike, cols: npt.ArrayLike, values: npt.ArrayLike) -> float:
        """Return minus the root of the mean square of the errors: the greater, the better.

        It is scikit-learn's ``neg_root_mean_squared_error``, in the unit of the values, and not R2.

        Args:
            rows, cols, values: entries as in `fit`; usually entries that were not given to `fit`.

        Raises:
            ValueError: as in `predict` and `fit`.

        MPI: local.
        Fault: a death elsewhere has no effect on it.
        """
        predicted = self.predict(rows, cols)
        wanted = values_of(values)
        if len(wanted) != len(predicted):
            raise ValueError(f"score: {len(predicted)} entries and {len(wanted)} values: give a "
                             "value for each entry")
        if not len(wanted):
            raise ValueError("score: no entries; give one at least")
        return -float(np.sqrt(np.mean((predicted - wanted)**2)))

    # ---- inner ------------------------------------------------------------------------------

    def _rules(self, deviation: float) -> Rules:
        """Return the parameters, checked, for values of standard deviation 1."""
        rank = whole("rank", self.rank, 1, 10_000)
        epochs = whole("epochs", self.epochs, 1, 10**9)
        seed = whole("seed", self.seed, 0, MOST_IDS)
        for name, value, least in (
                ("regularization", self.regularization, "at least"), ("step", self.step, "above"),
                ("decay", self.decay, "at least"), ("rmse", self.rmse, "above")):
            if value is None and name == "rmse":
                continue
            if not isinstance(value, numbers.Real) or not 0 <= value < np.inf or (
                    value == 0 and least == "above"):
                raise ValueError(f"{name}={value!r}: give a finite number, {least} 0")
        if self.snapshot is not None and not isinstance(self.snapshot, SnapshotMode):
            raise ValueError(f"snapshot={self.snapshot!r}: give None, or one such as "
                             "VirtualSnapshot(seconds=2)")
        if self.owner not in OWNERS:
            raise ValueError(f"owner={self.owner!r}: give \"random\" or \"ring\"")
        return Rules(rank, float(self.regularization), float(self.step), float(self.decay), epochs,
                     (self.rmse or 0.0) / deviation, seed, self.owner)

    def _take(self, found: Found, known: Known, deviation: float) -> None:
        """Take over the factors that were found, scaled for the values as they were given."""
        self.stats_ = found.stats
        self.row_factors_ = found.rows
        self.row_factors_[np.bincount(known.rows, minlength=known.shape[0]) == 0] = 0.0
        self.column_factors_ = deviation * found.columns
        self.rmse_ = -self.score(known.rows, known.cols, known.values)


_PARAMETERS = tuple(inspect.signature(MatrixCompletion.__init__).parameters)[1:]
