"""Prints how far a run of an executor is."""

from __future__ import annotations

import sys
import time

PROGRESS_S = 0.5  # least time between two lines


class Progress:
    """The steps of a run, printed in the place that runs ``main``.

    Args:
        run: name of the run.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._taken, self._told_s = 0, time.monotonic()

    def tell(self, step: int) -> None:
        """Count a step, and print a line now and then; the rate includes steps done again."""
        self._taken += 1
        passed_s = time.monotonic() - self._told_s
        if passed_s >= PROGRESS_S:
            print(f"apgas: {self._run}, step {step}, {self._taken / passed_s:.3g} steps/s",
                  file=sys.stderr, flush=True)
            self._taken, self._told_s = 0, time.monotonic()
