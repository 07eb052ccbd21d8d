"""Times that an executor's run spends in its phases, arranged as in the paper's tables 2 to 6.

Times are in seconds, by the clock of the place that runs ``main``.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Recovery:
    """One return to a checkpoint; a failure during it begins another one.

    Attributes:
        places: the places that died.
        detect_s: time from the moment at which this place was told of the death to the exception.
        rebuild_s: time in which the group of active places is made anew and the store recovered.
        remake_s: time in which added places make their objects and all places call `remake_local`.
        restore_s: time in which all places read the checkpoint.
        redone_steps: steps that had been taken since the checkpoint, and are done again.
        redone_s: time of these steps, by the mean time of a step.
        complete: whether the recovery came to its end.
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
        """Time of all phases and of the work that is done again."""
        return self.detect_s + self.rebuild_s + self.remake_s + self.restore_s + self.redone_s


@dataclass
class Statistics:
    """The times of a run of an executor in this attempt.

    Attributes:
        total_s: time of the run.
        steps: number of steps taken, including those that were done again.
        steps_s: time of all these steps.
        first_checkpoint_s: time of the first checkpoint, which has more to save than others; 0: the
            run has taken no first checkpoint.
        checkpoints, checkpoints_s: number of the other checkpoints, and their time.
        recoveries: the recoveries, in their order.
        resumed: the run went on from a checkpoint of an earlier attempt, or from a file.
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
        """Mean time of a step; 0: no step was taken."""
        return self.steps_s / self.steps if self.steps else 0.0

    @property
    def failures(self) -> int:
        """Number of places that died, including those that died during a recovery."""
        return sum(len(recovery.places) for recovery in self.recoveries)

    def rows(self) -> list[tuple[str, float]]:
        """Return names and values, as in table 6; the times of recoveries are means of one."""
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
        """Return the rows as text, below a line with the numbers of steps and failures."""
        lines = [f"{self.steps} steps, {self.checkpoints} checkpoints after the first, "
                 f"{self.failures} failures"]
        return "\n".join(lines + [f"{name:26} {value:12.6f} s" for name, value in self.rows()])
