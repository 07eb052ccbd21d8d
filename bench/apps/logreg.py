"""Logistic regression by gradient descent over places, with checkpoints: `ftrma.apgas`.

Each place has samples of its own. In a step it computes their part of the gradient, and all sum the
parts. Samples are saved once, weights at each checkpoint.

Oracle: `oracle` takes the same steps in one process, place by place. The results have equal bits,
unless the group of places has shrunk.

Source: one of the applications of X10's resilient matrix library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrma import apgas


def samples_of(ordinal: int, samples: int, features: int) -> tuple[Any, Any]:
    """The samples of a place and their classes, 0 and 1, by a hidden vector of weights."""
    hidden = np.random.default_rng(3).standard_normal(features)
    rng = np.random.default_rng([3, ordinal])
    x = rng.standard_normal((samples, features))
    return x, (x @ hidden + rng.standard_normal(samples) > 0).astype(float)


def gradient(x: Any, y: Any, weights: Any) -> Any:
    return x.T @ (1 / (1 + np.exp(-(x @ weights))) - y)


class LogisticRegression(apgas.SPMDIterativeApp):
    """The samples of a place, and the weights that all have.

    Args:
        samples: of each place.
        rate: of the descent.
    """

    def __init__(self, samples: int, features: int, steps: int, rate: float = 1.0) -> None:
        self.mine = apgas.group().index_of(apgas.here()), samples, features
        self.all_samples = samples * len(apgas.group())
        self.weights, self.rate = np.zeros(features), rate
        self.step, self.steps = 0, steps

    def begin_local(self) -> None:
        self.x, self.y = samples_of(*self.mine)

    def is_finished_local(self) -> bool:
        return self.step == self.steps

    def step_local(self, team: Any) -> None:
        total = team.allreduce(gradient(self.x, self.y, self.weights))
        self.weights = self.weights - self.rate / self.all_samples * total
        self.step += 1

    def checkpoint_local(self, first: bool) -> dict[str, Any]:
        saved = {"weights": self.weights, "step": self.step}
        return saved | ({"x": self.x, "y": self.y, "all_samples": self.all_samples}
                        if first else {})

    def restore_local(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)

    def adopt_local(self, saved: dict[str, Any]) -> None:
        self.x = np.concatenate([self.x, saved["x"]])
        self.y = np.concatenate([self.y, saved["y"]])

    def result_local(self) -> Any:
        return self.weights


def oracle(places: int, samples: int, features: int, steps: int, rate: float = 1.0) -> Any:
    """The weights, computed in one process."""
    parts = [samples_of(ordinal, samples, features) for ordinal in range(places)]
    weights = np.zeros(features)
    for _ in range(steps):
        total = gradient(*parts[0], weights)
        for part in parts[1:]:
            total = total + gradient(*part, weights)
        weights = weights - rate / (samples * places) * total
    return weights
