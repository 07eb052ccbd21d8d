"""Phoenix over MPI: the window that slots exchange ghosts and mirrored values by, and a run."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import numpy as np

from ... import framework
from . import phoenix_runner
from .parts import Part, Partition
from .phoenix_program import PhoenixProgram
from .phoenix_runner import Bytes
from .pregel_runner import NotEnded, Saved, StepReport
from .pregel_transport import CheckpointFiles, WindowTransport, pass_by, window
from .references import AnyArray


class PhoenixWindow(WindowTransport):
    """As `phoenix_runner.PhoenixTransport`: for each pair of slots a lane of two turns in a window.

    A turn's lanes are full when all have met after it; those of the next turn are others, and for
    the one after that nobody begins before all have taken what was here.

    Args:
        comm, interval_s, tell, files: see `pregel_transport.WindowTransport`.
        room: bytes that each slot's lane to this one needs.

    MPI: collective over all slots.
    Fault: its calls unwind when all go back, and leave the window to the attempt's end.
    """

    def __init__(self, comm: Any, room: Sequence[int], interval_s: float | None,
                 tell: Callable[[StepReport], None], files: CheckpointFiles | None = None) -> None:
        super().__init__(comm, interval_s, tell, files)
        self.at = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
        self.there = comm.alltoall([int(at) for at in self.at[:-1]])
        self.halves = comm.allgather(int(self.at[-1]))
        self.window = window(comm, 2 * int(self.at[-1]))
        memory: Any = self.window.tomemory()
        self.memory = np.frombuffer(memory, "u1") if self.at[-1] else np.zeros(0, "u1")
        self.sent: list[Bytes] = []
        self.window.Lock_all()

    def free(self) -> None:
        """The run is over."""
        self.window.Unlock_all()
        del self.memory
        self.window.Free()

    def send(self, turn: int, lanes: Sequence[Bytes]) -> None:
        for slot, lane in enumerate(lanes):
            if len(lane):
                self.window.Put(lane, slot, turn % 2 * self.halves[slot] + self.there[slot])
                self.sent.append(lane)  # MPI's until it is flushed

    def meet(self, partial: AnyArray) -> list[AnyArray]:
        self.window.Flush_all()
        self.sent.clear()
        mine = np.frombuffer(partial.tobytes(), "u1")
        all_of_it = np.empty(self.comm.size * mine.size, "u1")
        self.comm.Allgather(mine, all_of_it)
        self.window.Sync()
        return [array.reshape(()) for array in all_of_it.view(partial.dtype)]

    def incoming(self, turn: int) -> list[Bytes]:
        half = turn % 2 * int(self.at[-1])
        return [self.memory[half + self.at[slot] : half + self.at[slot + 1]]
                for slot in range(self.comm.size)]


def run(comm: Any, partition: Partition, part: Callable[[], Part], program: PhoenixProgram,
        recovery: str, kept: MutableMapping[str, Any], saved: Saved, number: int, what: int,
        tell: Callable[[StepReport], None], *, every: int, interval_s: float | None,
        most: int, files: CheckpointFiles | None) -> dict[str, AnyArray]:
    """Run a program to its end, or come by its result.

    Args:
        comm: of the slots.
        partition: of the vertices; `part` makes what this slot has of the graph.
        recovery, kept, saved, what: see `phoenix_runner.PhoenixSlot`; `number` is that of the run.
        tell, interval_s, files: see `PhoenixWindow`; every, most: see `phoenix_runner.run`.

    Returns:
        The slot's fields.

    Raises:
        NotEnded: it has not ended after so many rounds.
        RuntimeError: it was a run of something else before a failure.

    MPI: collective over all slots; waits for them in each round.
    Fault: unwinds when all go back; by the entry that follows the run goes on.
    """
    levels = comm.allgather(phoenix_runner.level(kept, number, what))
    found = phoenix_runner.concluded(program, kept, number, levels)
    if found is not None:
        pass_by(comm)
        return found
    mine = part()
    asked = comm.alltoall([mine.targets[mine.to(slot)] for slot in range(comm.size)])
    rows = [partition.local(ids) for ids in asked]
    slot = phoenix_runner.PhoenixSlot(program, mine, partition.n, rows, recovery, kept, saved,
                                      number, what, levels)
    way = PhoenixWindow(comm, slot.room(), interval_s, tell, files)
    try:
        found = phoenix_runner.run(slot, way, every=every, most=most)
    except NotEnded:
        way.free()
        raise
    way.free()
    if comm.rank == 0:
        framework.note(run=number, rounds=slot.round)
    return found
