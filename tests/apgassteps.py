"""An application in steps for executors, and what it computes without any places: its oracle.

Each place mixes its numbers with the sums over all places. The log of sums depends on the numbers
of all places in all steps, so place zero's log proves them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ftrma import apgas

MOST = 1_000_003
WIDTH = 5
STEPS = 12
TRIES = 4  # one more than places that die at most

Numbers = npt.NDArray[np.int64]


def first(ordinal: int) -> Numbers:
    return np.arange(1, WIDTH + 1) * (ordinal + 1)


def mixed(numbers: Numbers, sums: Numbers) -> Numbers:
    return (numbers * 31 + sums) % MOST


def oracle(places: int, steps: int = STEPS) -> list[list[int]]:
    """The log of an undisturbed run."""
    numbers = [first(ordinal) for ordinal in range(places)]
    log = []
    for _ in range(steps):
        sums = np.sum(numbers, axis=0)
        log.append(sums.tolist())
        numbers = [mixed(its, sums) for its in numbers]
    return log


class Steps(apgas.SPMDIterativeApp):
    """Takes steps side by side.

    Attributes:
        log: the sums of each step.
    """

    def __init__(self, steps: int = STEPS) -> None:
        self.steps, self.log = steps, np.zeros((0, WIDTH), "i8")
        self.numbers = first(apgas.group().index_of(apgas.here()))
        self.weights = np.full(3, 7.0)  # saved once, never changed

    def is_finished_local(self) -> bool:
        return len(self.log) == self.steps

    def step_local(self, team: Any) -> None:
        assert self.weights.tolist() == [7.0] * 3
        sums = team.allreduce(self.numbers)
        self.numbers = mixed(self.numbers, sums)
        self.log = np.vstack([self.log, sums])

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        fields = {"numbers": self.numbers, "log": self.log}
        return {**fields, "weights": self.weights} if first else fields

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)


def run_steps(every: int = 3, steps: int = STEPS) -> list[list[int]] | str:
    """Run it by an executor, and again if a place dies before the first checkpoint is there.

    Returns:
        The log, or "catastrophe" if more was lost than can be.
    """
    executor = apgas.SPMDIterativeExecutor(apgas.PlaceManager(), checkpoint=every)
    for _ in range(TRIES):
        try:
            log: list[list[int]] = executor.run(Steps, steps).log.tolist()
            return log
        except apgas.CatastrophicFailure:
            return "catastrophe"
        except apgas.MultipleExceptions as error:
            if error.of_type(apgas.CatastrophicFailure):
                return "catastrophe"
            if not error.only(apgas.DeadPlaceException):
                raise
    raise AssertionError(f"no run of {TRIES} has got a first checkpoint")
