"""The slots of a run over MPI: a window with a lane for each pair of slots, and the job's services.

A lane has two halves, one for even steps and one for odd steps. The lanes of a step are complete
when all slots have met after it. The next step uses the other halves. No slot begins the step after
that before all slots have met again; by then all have taken the contents of the first halves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import framework
from . import runner
from .references import AnyArray, Ints
from .runner import StepReport


def allocate(comm: Any, size: int, *, protected: bool = False) -> Any:
    """Return a window that has `size` bytes at this slot.

    MPI: collective over all slots.
    """
    from ftrma import MPI

    info = MPI.Info.Create({"ftrma_protect": str(protected).lower()})
    found = MPI.Win.Allocate(size, 1, info=info, comm=comm)
    info.Free()
    return found


def pass_by(comm: Any) -> None:
    """Make and free a window, in place of the window of a run that ended before a failure.

    Windows are identified by the order in which they are made; so windows of later runs keep their
    numbers.

    MPI: collective over all slots.
    """
    allocate(comm, 0).Free()


class WindowTransport:
    """The window of a run, and the dealings of the run with its job.

    Args:
        comm: the communicator of the slots.
        interval_s: seconds after which a checkpoint is due; None: the job's interval decides.
        tell: is called with the report of each step.
        lanes: size in bytes of each slot's lane to this slot, for one step.
        offsets: for each slot, the place at which this slot's lane begins there, and the size of a
            half there, if both are known; then no slot is asked.
        make: returns the window, which stays when the run is over. If it is not given, a window is
            made, and freed afterwards.

    Attributes:
        at: the place at which each slot's lane begins here, (N + 1,).
        there, halves: see `offsets`.

    MPI: collective over all slots.
    Fault: calls raise `Rollback` when all slots go back. The window then stays until the end of the
        attempt.
    """

    def __init__(self, comm: Any, interval_s: float | None, tell: Callable[[StepReport], None],
                 lanes: Sequence[int], *,
                 offsets: tuple[Ints, Ints] | None = None,
                 make: Callable[[Ints], Any] | None = None) -> None:
        self.comm, self.interval_s, self.tell = comm, interval_s, tell
        self.taken_s = time.monotonic()
        self.at: Ints = np.concatenate([[0], np.cumsum(lanes)]).astype(np.int64)
        if offsets is None:
            offsets = (np.array(comm.alltoall([int(at) for at in self.at[:-1]])),
                       np.array(comm.allgather(int(self.at[-1]))))
        self.there, self.halves = offsets
        self._frees = make is None
        self.window = make(self.halves) if make else allocate(comm, 2 * int(self.at[-1]))
        memory: Any = self.window.tomemory()
        self.memory = np.frombuffer(memory, "u1") if len(memory) else np.zeros(0, "u1")
        self._sent: list[AnyArray] = []
        self.window.Lock_all()

    def free(self) -> None:
        """End the use of the window: the run is over."""
        self.window.Unlock_all()
        del self.memory
        if self._frees:
            self.window.Free()

    # -- lanes --------------------------------------------------------------------------------

    def put(self, step: int, slot: int, data: AnyArray, offset: int = 0) -> None:
        """Put an array into this slot's lane at another slot, `offset` bytes from its beginning."""
        at = step % 2 * int(self.halves[slot]) + int(self.there[slot]) + offset
        self.window.Put(data.view("u1"), slot, at)
        self._sent.append(data)  # MPI reads it until it is flushed

    def everybody(self, mine: AnyArray) -> AnyArray:
        """Wait until the puts of all slots are complete; return a record of each slot, (N,).

        MPI: collective over all slots.
        """
        self.window.Flush_all()
        self._sent.clear()
        found = np.empty(self.comm.size, mine.dtype)
        self.comm.Allgather(np.frombuffer(mine.tobytes(), "u1"), found.view("u1"))
        self.window.Sync()
        return found

    def lane(self, step: int, slot: int) -> AnyArray:
        """Return the bytes that a slot has put here in a step."""
        half = step % 2 * int(self.at[-1])
        return self.memory[half + self.at[slot] : half + self.at[slot + 1]]

    # -- the job, as `runner.Transport` has it ------------------------------------------------

    def due(self) -> bool:
        if self.interval_s is None:
            return framework.due()
        if framework.ending() and self.interval_s < math.inf:
            return True
        return time.monotonic() - self.taken_s >= self.interval_s

    def checkpoint(self) -> int:
        version = int(min(self.comm.allgather(framework.safepoint(take=True))))
        self.taken_s = time.monotonic()
        return version

    def committed(self) -> int:
        return framework.committed()

    def confirm(self, version: int) -> bool:
        return framework.confirm(version)

    def kill_place(self, name: str) -> None:
        runner.kill_place(name)
