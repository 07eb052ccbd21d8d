"""Time that an executor's run spends in its phases, in the shape of the paper's tables 2 to 6.

Times are in seconds, by the clock of the place that runs ``main``.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Recovery:
    """One return to a checkpoint; failures that come during it begin another one.

    Attributes:
        places: that died.
        detect_s: from the moment at which this place was told of the death to the exception.
        rebuild_s: the group of active places, and the store, are made anew.
        remake_s: added places make their part of the application, and all prepare theirs.
        restore_s: all read the checkpoint.
        redone_steps: steps that had been taken after the checkpoint.
        redone_s: time of these steps, by the mean time of a step.
        complete: no other failure came during it.
    """

    places: tuple[int, ...]
    detect_s: float = 0.0
    rebuild_s: float = 0.0
    remake_s: float = 0.0
    restore_s: float = 0.0
    redone_steps: int = 0
    redone_s: float = 0.0
    complete: bool = False

    @property
    def total_s(self) -> float:
        """All phases, with the work done again."""
        return self.detect_s + self.rebuild_s + self.remake_s + self.restore_s + self.redone_s


@dataclass
class Statistics:
    """The times of a run of an executor in this attempt.

    Attributes:
        total_s: of the run.
        steps: steps taken, those done again among them.
        steps_s: time that they took.
        first_checkpoint_s: of the first one, which has more to save than others; 0: none was taken.
        checkpoints, checkpoints_s: the number of the others, and their time.
        recoveries: in their order.
        resumed: the run went on from a checkpoint of an attempt before, or from a file.
    """

    total_s: float = 0.0
    steps: int = 0
    steps_s: float = 0.0
    first_checkpoint_s: float = 0.0
    checkpoints: int = 0
    checkpoints_s: float = 0.0
    recoveries: list[Recovery] = field(default_factory=list)
    resumed: bool = False

    @property
    def step_s(self) -> float:
        """Mean time of a step; 0: none was taken."""
        return self.steps_s / self.steps if self.steps else 0.0

    @property
    def failures(self) -> int:
        """The number of places that died, those that die in a recovery among them."""
        return sum(len(recovery.places) for recovery in self.recoveries)

    def rows(self) -> list[tuple[str, float]]:
        """Names and values, as in table 6: times of recoveries are those of one, on average."""
        count = max(1, sum(recovery.complete for recovery in self.recoveries))

        def mean(name: str) -> float:
            return float(sum(getattr(recovery, name) for recovery in self.recoveries)) / count

        return [
            ("total time", self.total_s),
            ("single step", self.step_s),
            ("first checkpoint", self.first_checkpoint_s),
            ("total checkpointing time", self.first_checkpoint_s + self.checkpoints_s),
            ("runtime recovery", mean("detect_s") + mean("rebuild_s")),
            ("application data recovery", mean("remake_s") + mean("restore_s")),
            ("lost work recovery", mean("redone_s")),
            ("total recovery time", mean("total_s")),
        ]

    def table(self) -> str:
        """The rows as text, with the numbers of steps, checkpoints and failures above them."""
        lines = [f"{self.steps} steps, {self.checkpoints} checkpoints after the first, "
                 f"{self.failures} failures"]
        return "\n".join(lines + [f"{name:26} {value:12.6f} s" for name, value in self.rows()])
