"""Runs for which the framework has claimed the job's failures: how a run begins and ends.

After a failure a new attempt of the program comes to the same runs in the same order. A run that
had ended gives its result; the run that was interrupted goes on as its recovery says.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from ... import framework
from ...framework import entries, kept
from .part_store import PartStore
from .parts import Part, Partition
from .references import AnyArray
from .runner import GraphRunner, NotEnded, P, RunOutcome, Settings, Task, saved_result
from .transport import pass_by


class ClaimedRunner(GraphRunner[P]):
    """Base of the runners whose recovery is the framework's own.

    Attributes:
        saves_parts: checkpoints have the slots' parts of graphs from files, unless the user chooses
            otherwise.
        parts: the slots' parts of graphs.
    """

    saves_parts: ClassVar[bool]

    def __init__(self, comm: Any, settings: Settings) -> None:
        super().__init__(comm, settings)
        self.parts = PartStore(comm, settings, by_default=self.saves_parts,
                               together=True)

    def claim(self) -> None:
        framework.claim("graph")

    def run(self, task: Task[P]) -> RunOutcome:
        partition = self.parts.partition(task.graph, task.run)
        try:
            fields = self._fields(task, partition)
        except NotEnded:
            self.parts.end(task.run)
            raise
        self.parts.end(task.run)
        edges = kept.get(f"edges {task.run}")
        return RunOutcome(partition.ids(self.comm.rank), fields, edges=edges)

    def _fields(self, task: Task[P], partition: Partition) -> dict[str, AnyArray]:
        """Return this slot's part of the result, from a checkpoint or by a run now."""
        try:
            found = saved_result(task.program, kept, entries, task.run, task.identity)
        except NotEnded:
            pass_by(self.comm)
            raise
        if found is not None:
            pass_by(self.comm)
            return found
        return self.compute(task, partition,
                            lambda: self.parts.part(task.graph, partition, task.run))

    @abstractmethod
    def compute(self, task: Task[P], partition: Partition, part_of: Callable[[], Part]
                ) -> dict[str, AnyArray]:
        """Run a program of which no checkpoint has a result; return this slot's fields.

        Args:
            part_of: returns this slot's part of the graph.
        """
